//! PURE. A run for people: first denials with the rules that would allow them, then allowed connections, signatures, and
//! all other events.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::{EventCause, KnownCause};
use super::event::{Context, LogLine, Verdict, WallName};
use super::plain::PlainText;
use super::rows::{self, MOST, counted};
use super::what::EventDetail;
use super::{signatures, words};
use crate::policy::{Advice, Field, Tool};

/// Which run the report is about.
#[derive(Debug, Clone, Default)]
pub struct RunHeader {
    /// The run's context.
    pub context: Context,
    /// When it began.
    pub started: String,
    /// Whether it runs, or how it ended.
    pub state: String,
    /// Whether it has ended, so that its rules cannot change.
    pub is_over: bool,
    /// The command of its init process and its user, if the log has them.
    pub command: Option<String>,
    /// What became of the files that it wrote, if known.
    pub files: Option<String>,
    /// Older runs that are kept under the same id.
    pub earlier: usize,
}

/// Equal denials, counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenialGroup {
    /// The wall.
    pub wall: WallName,
    /// Host, call, mount.
    pub what: String,
    /// Events.
    pub times: u64,
    /// The reason.
    pub reason: String,
    /// The rule that would allow it.
    pub missing_rule: Option<String>,
    /// What to do.
    pub hint: Option<String>,
    /// Separates denials of one wall in a long list: a call's name, or the cause.
    pub kind: String,
    /// The cause, if code compares with it.
    pub cause: Option<KnownCause>,
    /// The host name, if it was only looked up.
    pub name: Option<String>,
    /// The port of a connection.
    pub port: Option<u16>,
    /// The tool whose words its remedy uses: that of its log.
    pub tool: Tool,
    /// The times of its first and its last line.
    pub span: (String, String),
}

impl DenialGroup {
    fn of(line: &LogLine, what: String, reason: String) -> Self {
        let event = &line.event;
        let kind = match &event.what {
            EventDetail::Syscall { name, .. } => Some(name.as_str()),
            EventDetail::Limit { limit, .. } => Some(limit.as_str()),
            _ => event.cause.as_ref().map(EventCause::as_str),
        };
        let (name, port) = match &event.what {
            EventDetail::Name { host, .. } => (Some(host.to_string()), None),
            EventDetail::Connection { port, .. } => (None, *port),
            _ => (None, None),
        };
        Self {
            wall: event.wall,
            what,
            name,
            port,
            times: 0,
            reason,
            missing_rule: event.missing_rule.clone().map(|text| text.to_string()),
            hint: event.hint.clone().map(|text| text.to_string()),
            kind: kind.unwrap_or_default().to_owned(),
            cause: event.known_cause(),
            tool: line.context.tool(),
            span: (words::time(line), words::time(line)),
        }
    }

    /// Adds one more line.
    fn add(&mut self, line: &LogLine) {
        self.times = match line.event.what {
            // The kernel's total, which several processes write down.
            EventDetail::Limit { times, .. } => self.times.max(times),
            _ => self.times.saturating_add(line.event.times()),
        };
        let time = words::time(line);
        let (first, last) = &mut self.span;
        if time < *first {
            first.clone_from(&time);
        }
        if time > *last {
            *last = time;
        }
    }
}

/// `at TIME`, or `from TIME to TIME`.
pub(super) fn when((first, last): &(String, String)) -> String {
    match first == last {
        true => format!("at {first}"),
        false => format!("from {first} to {last}"),
    }
}

/// The connections that one rule allowed to one host, counted together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrafficGroup {
    /// The host and port.
    pub what: String,
    /// The rule.
    pub rule: String,
    /// Connections.
    pub connections: u64,
    /// Bytes that left the container, of connections that have ended.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// The denials, the most frequent first. Those that a rule would allow come before all others.
pub fn denied(lines: &[&LogLine]) -> Vec<DenialGroup> {
    folded(lines, Verdict::Denied)
}

/// Events that a report-only policy would have denied, in the same order.
pub fn would_deny(lines: &[&LogLine]) -> Vec<DenialGroup> {
    folded(lines, Verdict::WouldDeny)
}

/// Events that learn mode allowed.
pub fn learnt(lines: &[&LogLine]) -> Vec<DenialGroup> {
    let is_learnt = |line: &&&LogLine| line.event.has_cause(KnownCause::Learnt);
    let lines: Vec<&LogLine> = lines.iter().filter(is_learnt).copied().collect();
    would_deny(&lines)
}

fn folded(lines: &[&LogLine], verdict: Verdict) -> Vec<DenialGroup> {
    let mut all: BTreeMap<(WallName, String, String), DenialGroup> = BTreeMap::new();
    let mut connected = BTreeSet::new();
    for line in lines {
        let event = &line.event;
        // A user's denial is a decision, and listed with decisions.
        if event.verdict != verdict || event.wall == WallName::Rules {
            continue;
        }
        if let EventDetail::Connection { host, port, .. } = &event.what
            && port.is_some()
        {
            connected.insert(host.as_str());
        }
        let what = match &event.what {
            EventDetail::Limit { limit, value, .. } => words::limited(limit, *value),
            other => words::what(other),
        };
        let reason = event.reason.clone().unwrap_or_default();
        all.entry((event.wall, what.clone(), reason.to_string()))
            .or_insert_with(|| DenialGroup::of(line, what, reason.to_string()))
            .add(line);
    }
    // A name that was also connected to is listed with its port.
    let mut all: Vec<DenialGroup> = all
        .into_values()
        .filter(|denied| {
            let name = denied.name.as_deref();
            !name.is_some_and(|name| connected.contains(name))
        })
        .collect();
    all.sort_by_key(|denied| {
        (
            denied.missing_rule.is_none(),
            denied.wall,
            u64::MAX - denied.times,
        )
    });
    all
}

/// Allowed connections, the most used first.
pub fn passed(lines: &[&LogLine]) -> Vec<TrafficGroup> {
    let mut all: BTreeMap<(String, String), TrafficGroup> = BTreeMap::new();
    for event in lines.iter().map(|line| &line.event) {
        let EventDetail::Connection { sent, received, .. } = &event.what else {
            continue;
        };
        let connections = match event.verdict {
            Verdict::Allowed => event.times(),
            Verdict::Ended => 0,
            Verdict::Denied | Verdict::Failed | Verdict::Noted | Verdict::WouldDeny => continue,
        };
        let (what, rule) = (
            words::what(&event.what),
            event.rule.clone().unwrap_or_default(),
        );
        let entry = all
            .entry((what.clone(), rule.to_string()))
            .or_insert_with(|| TrafficGroup {
                what,
                rule: rule.to_string(),
                ..TrafficGroup::default()
            });
        entry.connections = entry.connections.saturating_add(connections);
        entry.sent = entry.sent.saturating_add(sent.unwrap_or(0));
        entry.received = entry.received.saturating_add(received.unwrap_or(0));
    }
    let mut all: Vec<TrafficGroup> = all.into_values().collect();
    all.sort_by_key(|passed| u64::MAX - passed.connections);
    all
}

/// All events except denials, connections and signatures, in their order.
pub fn happened<'a>(lines: &[&'a LogLine]) -> Vec<&'a LogLine> {
    let is_other = |line: &&&LogLine| {
        let event = &line.event;
        if event.verdict == Verdict::WouldDeny {
            return false;
        }
        let is_listed = match event.what {
            EventDetail::Connection { .. } => {
                !matches!(event.verdict, Verdict::Failed | Verdict::Noted)
            }
            EventDetail::Signature { .. } => true,
            _ => false,
        };
        !is_listed && (event.verdict != Verdict::Denied || event.wall == WallName::Rules)
    };
    lines.iter().filter(is_other).copied().collect()
}

/// The owner of a run, on one line.
pub fn title(context: &Context) -> String {
    let id: String = context.container.chars().take(12).collect();
    let parts = [&context.namespace, &context.pod, &context.name];
    let name: Vec<&str> = parts.into_iter().flatten().map(PlainText::as_str).collect();
    let engine = context.engine.as_deref().unwrap_or("-");
    let mut text = format!("container {id} ({engine}");
    if !name.is_empty() {
        text += &format!(", {}", name.join("/"));
    }
    if let Some(image) = &context.image {
        text += &format!(", image {image}");
    }
    text += ")";
    if let Some(policy) = &context.policy {
        text += &format!(", policy {policy}");
    }
    if context.learn {
        text += ", LEARN MODE";
    }
    text
}

/// The whole report as text.
pub fn text(subject: &RunHeader, lines: &[&LogLine]) -> String {
    let mut text = format!(
        "{}\nrun of {}: {}\n",
        title(&subject.context),
        subject.started,
        subject.state
    );
    if subject.context.learn {
        text += "LEARN MODE: public names that no rule lists were allowed (report.learn)\n";
    }
    if let Some(command) = &subject.command {
        text += &format!("command: {command}\n");
    }
    if let Some(files) = &subject.files {
        text += &format!("files: {files}\n");
    }
    if subject.earlier > 0 {
        text += &format!(
            "earlier runs of this id: {}; `agentbox audit` lists them, `agentbox audit START` shows one\n",
            subject.earlier
        );
    }
    let refused = denied(lines);
    text += match refused.is_empty() {
        true => "denied: nothing\n",
        false => "denied:\n",
    };
    list(&mut text, &refused, subject);
    let audited = would_deny(lines);
    if !audited.is_empty() {
        text += "allowed, and would be denied without report.learn, or by the policy of report.audit:\n";
        list(&mut text, &audited, subject);
    }
    let through = passed(lines);
    if !through.is_empty() {
        text += "allowed:\n";
    }
    for one in through.iter().take(MOST) {
        text += &format!(
            "  {}: {}, {} bytes sent, {} received, by {}\n",
            one.what,
            counted(one.connections, "connection"),
            one.sent,
            one.received,
            one.rule
        );
    }
    let hidden = through.len().saturating_sub(MOST);
    text += &more(&[(WallName::Network, hidden)].into());
    text += &signatures::text(lines);
    let other = happened(lines);
    if !other.is_empty() {
        text += "what happened:\n";
    }
    // Prefer the newest lines of each wall.
    let kinds: Vec<rows::RowKind<'_>> = other
        .iter()
        .rev()
        .map(|line| (line.event.wall, line.event.verdict.as_str()))
        .collect();
    let (shown, hidden) = rows::share(&kinds);
    text += &more(&hidden);
    let lines = other.iter().zip(shown.iter().rev());
    for (line, _) in lines.filter(|(_, shown)| **shown) {
        text += &format!("  {}\n", words::line(line));
    }
    text
}

/// What to do about a denial. A container that is gone keeps its rules, so the hint is for the next one.
fn hint(denied: &DenialGroup, subject: &RunHeader) -> Option<String> {
    let Some(rule) = &denied.missing_rule else {
        return denied.hint.as_deref().map(allowing);
    };
    let (advice, tool) = (Advice::of(rule), denied.tool);
    match (advice, subject.is_over) {
        (Advice::Never(_), _) => None,
        (Advice::Deliberate(_) | Advice::Dotless, _) => advice
            .why_not(rule)
            .map(|why| format!("no rule is suggested: {why}")),
        (Advice::Offer, true) => Some(allowing(&format!(
            "{} for {}, within the ceiling{}",
            tool.names(&tool.adds(Field::NetworkAllow, &[rule])),
            tool.next(),
            match denied.name {
                Some(_) => tool.for_other_ports(rule),
                None => String::new(),
            }
        ))),
        (Advice::Offer, false) => denied.hint.as_deref().map(allowing),
    }
}

fn allowing(hint: &str) -> String {
    format!("to allow it: {hint}")
}

fn list(text: &mut String, refused: &[DenialGroup], subject: &RunHeader) {
    let (shown, hidden) = shares(refused);
    for one in shown {
        let times = match one.times {
            1 => String::new(),
            times => format!(" x{times}"),
        };
        *text += &format!("  {:11} {}{times}", one.wall.as_str(), one.what);
        if !one.reason.is_empty() {
            *text += &format!(": {}", one.reason);
        }
        *text += &format!(" ({})\n", when(&one.span));
        if let Some(hint) = hint(one, subject) {
            *text += &format!("{:14}{hint}\n", "");
        }
    }
    *text += &more(&hidden);
}

/// The denials that fit into a list, and the number of omitted ones of each wall.
pub fn shares(refused: &[DenialGroup]) -> (Vec<&DenialGroup>, BTreeMap<WallName, usize>) {
    let kinds: Vec<rows::RowKind<'_>> = refused
        .iter()
        .map(|one| (one.wall, one.kind.as_str()))
        .collect();
    let (shown, hidden) = rows::share(&kinds);
    let shown = refused.iter().zip(shown).filter(|(_, shown)| *shown);
    (shown.map(|(one, _)| one).collect(), hidden)
}

pub(super) fn more(hidden: &BTreeMap<WallName, usize>) -> String {
    let mut hidden = hidden.clone();
    hidden.retain(|_, count| *count > 0);
    rows::hidden_words(&hidden)
        .map(|words| format!("  {words}; --json has all\n"))
        .unwrap_or_default()
}
