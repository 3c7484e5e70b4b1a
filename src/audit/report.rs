//! PURE. A run for people: what was refused and the rule that would allow it first, then what was let through, then what
//! happened.

use std::collections::BTreeMap;

use super::words;
use super::{Context, LEARNT, Line, Verdict, WallName, What};

/// Entries of one list; what is more is counted.
const MOST: usize = 50;

/// Which run is shown.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Whose it is.
    pub context: Context,
    /// When it began.
    pub started: String,
    /// Whether it runs, or how it ended.
    pub state: String,
    /// Whether it can be changed no more.
    pub is_over: bool,
    /// What its first process was to execute and as whom, where its log says so.
    pub command: Option<String>,
    /// What became of the files that it wrote, where that is known.
    pub files: Option<String>,
    /// Runs before it that are kept under the same id.
    pub earlier: usize,
}

/// A refusal, folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
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
}

/// What was let through to one place by one rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passed {
    /// The place.
    pub what: String,
    /// The rule.
    pub rule: String,
    /// Connections.
    pub connections: u64,
    /// Bytes that left the container, by connections that have ended.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
}

/// The refusals: the most frequent first, those that a rule would allow before all others.
pub fn denied(lines: &[&Line]) -> Vec<Denied> {
    folded(lines, Verdict::Denied)
}

/// What a policy that is only reported on would have refused, in the same order.
pub fn would_deny(lines: &[&Line]) -> Vec<Denied> {
    folded(lines, Verdict::WouldDeny)
}

/// What learn mode has let through.
pub fn learnt(lines: &[&Line]) -> Vec<Denied> {
    let is_learnt = |line: &&&Line| line.event.cause.as_deref() == Some(LEARNT);
    let lines: Vec<&Line> = lines.iter().filter(is_learnt).copied().collect();
    would_deny(&lines)
}

fn folded(lines: &[&Line], verdict: Verdict) -> Vec<Denied> {
    let mut all: BTreeMap<(WallName, String, String), Denied> = BTreeMap::new();
    for event in lines.iter().map(|line| &line.event) {
        // What a person denied is a decision, and stands with those.
        if event.verdict != verdict || event.wall == WallName::Rules {
            continue;
        }
        let what = words::what(&event.what);
        let reason = event.reason.clone().unwrap_or_default();
        let entry = all
            .entry((event.wall, what.clone(), reason.clone()))
            .or_insert_with(|| Denied {
                wall: event.wall,
                what,
                times: 0,
                reason,
                missing_rule: event.missing_rule.clone(),
                hint: event.hint.clone(),
            });
        entry.times = entry.times.saturating_add(event.times());
    }
    // A name that was also connected to is told with its port.
    let connected: Vec<String> = all
        .values()
        .filter(|denied| denied.wall == WallName::Network)
        .filter_map(|denied| {
            denied
                .what
                .rsplit_once(':')
                .map(|(host, _)| host.to_owned())
        })
        .collect();
    let mut all: Vec<Denied> = all
        .into_values()
        .filter(|denied| {
            let name = denied.what.strip_prefix("name ");
            !name.is_some_and(|name| connected.iter().any(|host| host == name))
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

/// What was let through, the most used first.
pub fn passed(lines: &[&Line]) -> Vec<Passed> {
    let mut all: BTreeMap<(String, String), Passed> = BTreeMap::new();
    for event in lines.iter().map(|line| &line.event) {
        let What::Connection { sent, received, .. } = &event.what else {
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
            .entry((what.clone(), rule.clone()))
            .or_insert_with(|| Passed {
                what,
                rule,
                ..Passed::default()
            });
        entry.connections = entry.connections.saturating_add(connections);
        entry.sent = entry.sent.saturating_add(sent.unwrap_or(0));
        entry.received = entry.received.saturating_add(received.unwrap_or(0));
    }
    let mut all: Vec<Passed> = all.into_values().collect();
    all.sort_by_key(|passed| u64::MAX - passed.connections);
    all
}

/// All but refusals and connections, as it happened.
pub fn happened<'a>(lines: &[&'a Line]) -> Vec<&'a Line> {
    let is_other = |line: &&&Line| {
        let event = &line.event;
        if event.verdict == Verdict::WouldDeny {
            return false;
        }
        let is_connection =
            matches!(event.what, What::Connection { .. }) && event.verdict != Verdict::Failed;
        !is_connection && (event.verdict != Verdict::Denied || event.wall == WallName::Rules)
    };
    lines.iter().filter(is_other).copied().collect()
}

/// Who a run is of, on one line.
pub fn title(context: &Context) -> String {
    let id: String = context.container.chars().take(12).collect();
    let parts = [&context.namespace, &context.pod, &context.name];
    let name: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
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

/// All of it as text.
pub fn text(subject: &Subject, lines: &[&Line]) -> String {
    let mut text = format!(
        "{}\nrun of {}: {}\n",
        title(&subject.context),
        subject.started,
        subject.state
    );
    if subject.context.learn {
        text += "LEARN MODE: public names that no rule lists were let through (report.learn)\n";
    }
    if let Some(command) = &subject.command {
        text += &format!("command: {command}\n");
    }
    if let Some(files) = &subject.files {
        text += &format!("files: {files}\n");
    }
    if subject.earlier > 0 {
        text += &format!(
            "earlier runs that are kept under this id: {}; agentbox audit lists runs, and takes their start for an id\n",
            subject.earlier
        );
    }
    let refused = denied(lines);
    text += match refused.is_empty() {
        true => "refused: nothing\n",
        false => "refused:\n",
    };
    list(&mut text, &refused, subject);
    let audited = would_deny(lines);
    if !audited.is_empty() {
        text += "let through, and would be refused without report.learn, or by the policy of report.audit:\n";
        list(&mut text, &audited, subject);
    }
    let through = passed(lines);
    if !through.is_empty() {
        text += "let through:\n";
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
    text += &more(through.len());
    let other = happened(lines);
    if !other.is_empty() {
        text += "what happened:\n";
    }
    let skipped = other.len().saturating_sub(MOST);
    if skipped > 0 {
        text += &format!("  ({skipped} lines before; --json has all)\n");
    }
    for line in &other[skipped..] {
        text += &format!("  {}\n", words::line(line));
    }
    text
}

/// `1 connection`, `3 connections`.
fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// What to do about a refusal. The rules of a container that is gone can be changed no more, so the next one is to have the rule.
fn hint(denied: &Denied, subject: &Subject) -> Option<String> {
    match (&denied.missing_rule, subject.is_over) {
        (Some(rule), true) => Some(format!(
            "network.allow with {rule} for the next container, within the ceiling; agentbox suggest has the annotation"
        )),
        _ => denied.hint.clone(),
    }
}

fn list(text: &mut String, refused: &[Denied], subject: &Subject) {
    for one in refused.iter().take(MOST) {
        let times = match one.times {
            1 => String::new(),
            times => format!(" x{times}"),
        };
        *text += &format!("  {:11} {}{times}", one.wall.as_str(), one.what);
        if !one.reason.is_empty() {
            *text += &format!(": {}", one.reason);
        }
        text.push('\n');
        if let Some(hint) = hint(one, subject) {
            *text += &format!("{:14}to allow it: {hint}\n", "");
        }
    }
    *text += &more(refused.len());
}

fn more(count: usize) -> String {
    match count.saturating_sub(MOST) {
        0 => String::new(),
        more => format!("  and {more} more; --json has all\n"),
    }
}
