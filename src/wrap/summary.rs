//! Lists denied hosts and denied system calls once the command has ended: an agent may describe a denial in its own words, or not at all.
//!
//! The sources are the logs of the sidecar and of the relay to the SSH agent, whose size is bounded, so endless denials make no longer summary. Files are
//! missing: a path that is not visible is absent, and no log counts attempts to open it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::denied_calls::{DeniedCallSummary, times};
use super::error::WrapRefusal;
use super::planted;
use super::request::WrapRequest;
use crate::audit::{
    Event, EventDetail, KnownCause, Log, LogLine, Verdict, WallName, loopback, quota, words,
};
use crate::policy::{Advice, Field, NodeSecret, TlsWay, Tool};
use crate::sys::procfs;

/// Lines at a terminal.
const MOST: usize = 10;

/// A host and port that were denied for one reason.
#[derive(Debug, PartialEq, Eq)]
struct DeniedHost {
    host: String,
    /// `None` for a name lookup.
    port: Option<u16>,
    reason: String,
    /// The rule that would allow it, if there is one.
    missing: Option<String>,
    /// A rule allowed it, until its end.
    is_expired: bool,
    count: u64,
    /// The cure for a host of the user's own secret.
    with_key: Option<String>,
}

/// All denials of a run, in order.
#[derive(Debug, Default)]
pub struct DeniedSummary {
    refused: Vec<DeniedHost>,
    /// Allowed ones that could not be reached.
    failed: Vec<DeniedHost>,
    calls: DeniedCallSummary,
    /// The container's id, by which `audit` finds its log.
    id: Option<String>,
    /// Denials without a line in the log.
    left_out: u64,
    /// Ports of the loopback inside that refused a connection.
    pub ports: BTreeSet<u16>,
}

impl DeniedSummary {
    /// Prints it on standard error, and writes it to the summary file.
    pub fn tell(&self, wanted: &WrapRequest, file: Option<&File>) -> Result<()> {
        for line in self.lines() {
            crate::log::plain::before_line();
            // The reader may be gone.
            writeln!(std::io::stderr(), "agentbox: {line}").ok();
        }
        let Some(file) = file else {
            return Ok(());
        };
        self.write(file).context("write the summary")?;
        let gone = || rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 0);
        if let Some(path) = wanted.summary.as_ref().filter(|_| gone()) {
            crate::log::complain(&format!(
                "agentbox: the summary {path:?} is lost, because its file was removed during the run: name one outside of what the \
                 command writes"
            ));
        }
        Ok(())
    }

    /// With the id that `audit` takes.
    fn of_container(self, id: &str) -> Self {
        Self {
            id: Some(id.to_owned()),
            ..self
        }
    }

    /// The same, with the cures for hosts of the user's secrets.
    pub fn of_run(self, id: &str, wanted: &WrapRequest) -> Self {
        self.of_container(id).with_keys(&wanted.asked.secrets)
    }

    /// A rule for the whole host would leave their keys out. Where a request was denied, its host's requests are read already.
    fn with_keys(mut self, secrets: &[NodeSecret]) -> Self {
        let is_connection = |rule: &String| !Advice::is_request(rule);
        let missing = |one: &&mut DeniedHost| {
            !one.is_expired && one.missing.as_ref().is_some_and(is_connection)
        };
        for denied in self.refused.iter_mut().filter(missing) {
            let of_host = |secret: &&NodeSecret| secret.is_used_at(&denied.host, denied.port);
            denied.with_key = secrets.iter().find(of_host).map(with_key);
        }
        self
    }

    /// Reads the logs that there are. A command whose network wall has no listener has none.
    pub fn read(logs: &[PathBuf]) -> Self {
        let lines = |log: &PathBuf| {
            let read =
                std::fs::File::open(log).and_then(|file| procfs::at_most(file, quota::MOST_BYTES));
            let text = read.unwrap_or_else(|error| {
                log::debug!("read {log:?}: {error}");
                Vec::new()
            });
            let log = Log::parse("the log of refusals", &text);
            for fault in &log.faults {
                log::warn!("{fault}");
            }
            log.lines
        };
        Self::of(&logs.iter().flat_map(lines).collect::<Vec<_>>())
    }

    fn of(lines: &[LogLine]) -> Self {
        let mut summary = Self {
            ports: loopback::ports(lines),
            ..Self::default()
        };
        for line in lines {
            summary.count(line);
        }
        // A lookup of a name that was also connected to is left out: the connection shows its port.
        let connected: Vec<String> = summary
            .refused
            .iter()
            .filter(|r| r.port.is_some())
            .map(|r| r.host.clone())
            .collect();
        let all = &mut summary.refused;
        all.retain(|r| r.port.is_some() || !connected.contains(&r.host));
        summary
    }

    fn count(&mut self, line: &LogLine) {
        let event = &line.event;
        if event.is_verifys() {
            return;
        }
        let (host, port) = match &event.what {
            EventDetail::LeftOut { events, .. } => {
                self.left_out = self.left_out.saturating_add(*events);
                return;
            }
            EventDetail::Connection { host, port, .. } => (host, *port),
            EventDetail::Name { host, .. } => (host, None),
            EventDetail::Signature { .. } => {
                if event.has_cause(KnownCause::NotAsked) {
                    self.signature_not_asked(event);
                }
                return;
            }
            EventDetail::Syscall { name, errno, .. } => {
                self.calls.count(name, errno, event.times());
                return;
            }
            _ => return,
        };
        let of_kind = match (event.wall, event.verdict) {
            (WallName::Network, Verdict::Denied) => &mut self.refused,
            (WallName::Network, Verdict::Failed) => &mut self.failed,
            _ => return,
        };
        let reason = plain(event.reason.as_deref().unwrap_or_default(), TextKind::Words);
        let host = match host.is_empty() {
            true => words::what(&event.what),
            false => plain(host, TextKind::Host),
        };
        let missing = event.missing_rule.as_deref();
        let (reason, missing) = match missing.map(|rule| (rule, Advice::of(rule))) {
            // An escaped rule is not a usable rule.
            Some((rule, Advice::Offer)) if plain(rule, TextKind::Words) == rule => {
                (reason, Some(rule))
            }
            Some((rule, advice)) => (advice.why_not(rule).unwrap_or(reason), None),
            None => (reason, None),
        };
        let denied = DeniedHost {
            host,
            port,
            reason,
            missing: missing.map(str::to_owned),
            is_expired: event.is_expired(),
            count: event.times(),
            with_key: None,
        };
        denied.add_to(of_kind);
    }

    /// A signature that `--ask` would have asked about.
    fn signature_not_asked(&mut self, event: &Event) {
        let what = plain(&words::what(&event.what), TextKind::Words);
        let denied = DeniedHost {
            host: what,
            port: None,
            reason: "--ask could not ask: run it in a terminal; after quiet or many questions it asks no more"
                .to_owned(),
            missing: None,
            is_expired: false,
            count: event.times(),
            with_key: None,
        };
        denied.add_to(&mut self.refused);
    }

    /// Whether nothing was denied, failed or refused.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.lines().is_empty()
    }

    /// One line per denial, for a terminal. Empty if nothing was denied.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .refused
            .iter()
            .take(MOST)
            .map(|r| format!("denied: {}", r.line()))
            .collect();
        let more = self.refused.len().saturating_sub(MOST);
        if more > 0 {
            lines.push(format!(
                "denied: and {more} more; --summary FILE writes all of them"
            ));
        }
        let failed = self.failed.iter().take(MOST);
        lines.extend(failed.map(|r| format!("failed: {}", r.line())));
        let calls = self.calls.lines(self.id.as_deref());
        lines.extend(calls.map(|line| format!("denied: {line}")));
        if self.left_out > 0 {
            lines.push(format!(
                "denied: {} more times, too often for the log",
                self.left_out
            ));
        }
        lines
    }

    /// Writes all of it as Markdown, for a CI job's page.
    pub fn write(&self, mut to: &std::fs::File) -> std::io::Result<()> {
        let mut text = String::from("### agentbox\n\n");
        match self.refused.is_empty() && self.failed.is_empty() && self.calls.is_empty() {
            true => text.push_str("Nothing was denied.\n"),
            false => {
                text.push_str("| Refused or failed | Times | What to do |\n| --- | --- | --- |\n");
                let refused = self.refused.iter().map(|r| (r, ""));
                for (r, failed) in refused.chain(self.failed.iter().map(|r| (r, "failed: "))) {
                    let endpoint = r.endpoint().replace(['`', '|'], "?");
                    let (count, remedy) = (r.count, in_markdown(&r.remedy()));
                    text.push_str(&format!("| `{endpoint}` | {count} | {failed}{remedy} |\n"));
                }
                for [name, count, remedy] in self.calls.rows() {
                    text.push_str(&format!("| `{name}` | {count} | {remedy} |\n"));
                }
            }
        }
        if self.left_out > 0 {
            text.push_str(&format!(
                "\n{} more denials are not in the log.\n",
                self.left_out
            ));
        }
        to.write_all(text.as_bytes())
    }
}

/// What allows the requests that get this secret.
fn with_key(secret: &NodeSecret) -> String {
    let requests: Vec<String> = secret.requests.iter().map(ToString::to_string).collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    format!(
        "{} {} allows it with the key of secret {}",
        Tool::Wrap.adds(Field::NetworkAllow, &requests),
        Tool::Wrap.sets(Field::NetworkTls, TlsWay::Open.as_str()),
        secret.name
    )
}

impl DeniedHost {
    /// Counts it with an equal one.
    fn add_to(self, all: &mut Vec<Self>) {
        let same = |r: &&mut Self| {
            (&r.host, r.port, &r.reason, &r.missing)
                == (&self.host, self.port, &self.reason, &self.missing)
        };
        match all.iter_mut().find(same) {
            Some(known) => known.count = known.count.saturating_add(self.count),
            None => all.push(self),
        }
    }

    fn endpoint(&self) -> String {
        match (self.port, self.host.contains(':')) {
            (Some(port), true) => format!("[{}]:{port}", self.host),
            (Some(port), false) => format!("{}:{port}", self.host),
            (None, _) if self.host.is_empty() => "a connection".to_owned(),
            (None, _) => self.host.clone(),
        }
    }

    fn remedy(&self) -> String {
        let adds = |rule: &str| Tool::Wrap.adds(Field::NetworkAllow, &[rule]);
        if let Some(cure) = &self.with_key {
            return cure.clone();
        }
        match &self.missing {
            Some(rule) if self.is_expired => {
                format!("its rule has expired; {} allows it again", adds(rule))
            }
            Some(rule) if self.port.is_none() => {
                format!(
                    "{} allows it{}",
                    adds(rule),
                    Tool::Wrap.for_other_ports(rule)
                )
            }
            Some(rule) => format!("{} allows it", adds(rule)),
            None => self.reason.clone(),
        }
    }

    fn line(&self) -> String {
        let times = times(self.count);
        format!("{}{times}; {}", self.endpoint(), self.remedy())
    }
}

/// The characters that a text may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Host,
    Words,
}

/// Text from the command, on one line, without characters that a terminal would interpret.
fn plain(text: &str, kind: TextKind) -> String {
    text.chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | ':' => c,
            ' '..='~' if kind == TextKind::Words => c,
            _ => '?',
        })
        .collect()
}

/// A cell of Markdown, in which nothing is a tag, an emphasis, a link or a person (CommonMark, "Backslash escapes").
fn in_markdown(text: &str) -> String {
    const LITERAL: &str = ".-,/()=;:%'?";
    let mut cell = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() && !LITERAL.contains(c) {
            cell.push('\\');
        }
        cell.push(c);
    }
    cell
}

/// Creates or empties the summary file, before the command can replace it. It follows no link that a sandbox may have
/// made, and accepts only a regular file.
pub fn open(wanted: &WrapRequest) -> Result<Option<File>> {
    let Some(path) = &wanted.summary else {
        return Ok(None);
    };
    let open = || planted::named(path, &wanted.person).and_then(|real| empty(&real));
    match wanted.person.looking(open)? {
        Ok(file) => Ok(Some(file)),
        Err(why) => bail!(WrapRefusal::Summary {
            path: path.clone(),
            why,
        }),
    }
}

fn empty(path: &Path) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // Another run may put a link there meanwhile.
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mode = Mode::from_raw_mode(0o666);
    let file = File::from(rustix::fs::openat2(CWD, path, flags, mode, links)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    file.set_len(0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Chain, ConnectionKind, Context, Event};
    use crate::rules::Denial;

    /// The reason of a network in which no host is listed, and of one in which others are.
    fn reasons() -> [String; 2] {
        let local = "the network is local (network.mode)".to_owned();
        [local, Denial::NotListed.to_string()]
    }

    fn line(host: &str, port: Option<u16>, reason: &str, rule: Option<&str>) -> LogLine {
        let via = port.map_or(ConnectionKind::Dns, |_| ConnectionKind::Http);
        of(Event {
            reason: Some(reason.into()),
            missing_rule: rule.map(str::to_owned).map(Into::into),
            ..Event::new(
                WallName::Network,
                Verdict::Denied,
                EventDetail::attempt(via, host, port),
            )
        })
    }

    fn of(event: Event) -> LogLine {
        let line = Chain::default().render("x", &Context::default(), &event);
        serde_json::from_slice(&line).unwrap()
    }

    #[test]
    fn an_expired_rule_is_said_to_have_expired() {
        let mut late = line("a.test", Some(443), "x", Some("a.test"));
        late.event.cause = Some(KnownCause::RuleExpired.into());
        let summary = DeniedSummary::of(&[late]);
        assert_eq!(
            summary.lines(),
            ["denied: a.test:443; its rule has expired; --allow a.test allows it again"]
        );
    }

    fn call(name: &str, errno: &str, count: Option<u64>) -> LogLine {
        let what = EventDetail::Syscall {
            name: name.into(),
            call: format!("{name}()").into(),
            errno: errno.into(),
        };
        of(Event {
            count,
            ..Event::new(WallName::Syscalls, Verdict::Denied, what)
        })
    }

    /// The first cure was a rule for the whole host, with which the key is not used.
    #[test]
    fn the_host_of_an_own_secret_is_allowed_by_the_secrets_requests() {
        let secret: NodeSecret = toml::from_str(
            "name = 'ex'\nfile = '/k'\npolicies = ['standard']\nrequests = ['GET https://api.example.test/v1/**']\nheader = 'x-api-key: {}'",
        )
        .unwrap();
        let log = [
            line(
                "api.example.test",
                Some(443),
                "no rule",
                Some("api.example.test"),
            ),
            line("b.example.org", Some(443), "no rule", Some("b.example.org")),
            line(
                "api.example.test",
                Some(443),
                "no rule",
                Some("POST https://api.example.test/v1/w"),
            ),
        ];
        let summary = DeniedSummary::of(&log).with_keys(&[secret]);
        let cure = "--allow 'GET https://api.example.test/v1/**' --set network.tls=open allows it with the key of secret ex";
        let post = "--allow 'POST https://api.example.test/v1/w' allows it";
        assert_eq!(
            summary.lines(),
            [
                format!("denied: api.example.test:443; {cure}"),
                "denied: b.example.org:443; --allow b.example.org allows it".to_owned(),
                format!("denied: api.example.test:443; {post}"),
            ]
        );
    }

    /// Probes of ordinary programs (libuv's io_uring, a kind of socket) are no news, and would be a line at each run.
    #[test]
    fn the_summary_names_the_option_for_denied_calls_and_no_probes() {
        let log = [
            call("ptrace", "EPERM", Some(3)),
            call("process_vm_readv", "EPERM", None),
            call("mount", "EPERM", None),
            call("unshare", "EPERM", Some(2)),
            call("io_uring_setup", "ENOSYS", Some(7)),
            call("socket", "EAFNOSUPPORT", None),
        ];
        let lines = [
            "denied: system calls of debuggers: ptrace x3, process_vm_readv; --set syscalls.profile=debug allows them",
            "denied: system calls: unshare x2, mount; agentbox audit w1 has the reasons",
        ];
        let summary = DeniedSummary::of(&log).of_container("w1");
        assert_eq!(summary.lines(), lines);
        assert!(DeniedSummary::of(&log[4..]).is_empty());
    }

    #[test]
    fn many_denied_calls_are_one_line() {
        let log: Vec<LogLine> = (0..300)
            .map(|n| call(&format!("call{}", n % 30), "EPERM", Some(1 << 60)))
            .collect();
        let lines = DeniedSummary::of(&log).lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with(", 24 more"), "{lines:?}");
    }

    /// Former fault: git said "agent refused operation?", and `wrap` nothing.
    #[test]
    fn a_signature_that_nobody_could_confirm_is_said_with_a_remedy() {
        let signature = |cause: &str| {
            let what = EventDetail::Signature {
                key: "SHA256:abc".into(),
                user: None,
                server: None,
                session: None,
                namespace: Some("git".into()),
            };
            of(Event {
                cause: Some(cause.into()),
                ..Event::new(WallName::Keys, Verdict::Denied, what)
            })
        };
        let not_asked = KnownCause::NotAsked.as_str();
        let causes = [not_asked, not_asked, "unconfirmed"];
        let line = "denied: signature with SHA256:abc of a message for \"git\" x2; --ask could not ask: run it in a terminal; \
                    after quiet or many questions it asks no more";
        assert_eq!(DeniedSummary::of(&causes.map(signature)).lines(), [line]);
    }

    #[test]
    fn ports_of_the_loopback_are_no_denials() {
        let summary = DeniedSummary::of(&[of(loopback::refused(5432))]);
        assert_eq!(
            (summary.ports.clone(), summary.lines()),
            ([5432].into(), vec![])
        );
    }

    #[test]
    fn a_reason_is_whole_and_its_characters_are_its_own() {
        let reason = format!("set network.tls=open for /v2/a=b%20c's {}", "x".repeat(150));
        let log = [line("a.example.org", Some(443), &reason, None)];
        let said = DeniedSummary::of(&log).lines();
        assert_eq!(said, [format!("denied: a.example.org:443; {reason}")]);
        assert_eq!(in_markdown("a=b|<c> @d [e](f)"), r"a=b\|\<c\> \@d \[e\](f)");
    }

    /// The first denial says what to type, whatever its reason.
    #[test]
    fn each_is_said_once_with_its_count_and_its_remedy() {
        for reason in &reasons() {
            let a = |port| line("a.example.org", port, reason, Some("a.example.org"));
            let mut seven = a(Some(443));
            seven.event.count = Some(7);
            let b = "b.example.org:8443";
            let d = EventDetail::attempt(ConnectionKind::Http, "d.example.org", Some(443));
            let d = Event {
                reason: Some("d.example.org does not resolve: it has no address".into()),
                ..Event::new(WallName::Network, Verdict::Failed, d)
            };
            let log = [
                a(None),
                seven,
                line("b.example.org", Some(8443), reason, Some(b)),
                line("c.example.org", None, reason, Some("c.example.org")),
                line("db", Some(5432), reason, Some("db:5432")),
                line("::1", Some(80), "it is closed", None),
                of(d),
            ];
            let db = Advice::of("db:5432").why_not("db:5432").unwrap();
            assert_eq!(
                DeniedSummary::of(&log).lines(),
                [
                    "denied: a.example.org:443 x7; --allow a.example.org allows it".to_owned(),
                    format!("denied: {b}; --allow {b} allows it"),
                    "denied: c.example.org; --allow c.example.org allows it; other ports, such as SSH's, need --allow c.example.org:PORT".to_owned(),
                    format!("denied: db:5432; {db}"),
                    "denied: [::1]:80; it is closed".to_owned(),
                    "failed: d.example.org:443; d.example.org does not resolve: it has no address".to_owned(),
                ]
            );
        }
        assert!(DeniedSummary::of(&[]).lines().is_empty());
    }

    #[test]
    fn a_flood_makes_few_lines_and_no_text_of_the_command_is_a_terminals() {
        let mut log: Vec<LogLine> = (0..50)
            .map(|n| {
                line(
                    &format!("h{n}\u{1b}[2J|`\u{202e}"),
                    Some(1),
                    &reasons()[1],
                    Some("a|`.test"),
                )
            })
            .collect();
        let what = EventDetail::LeftOut {
            of: "names".into(),
            events: 9,
        };
        log.push(of(Event::new(WallName::Network, Verdict::Noted, what)));
        let lines = DeniedSummary::of(&log).lines();
        assert_eq!(lines.len(), MOST + 2);
        assert!(
            lines[0].starts_with("denied: h0?u?1b??2J???u?202e?:1; "),
            "{}",
            lines[0]
        );
        assert!(lines[MOST].contains("40 more") && lines[MOST + 1].contains('9'));
        assert!(
            lines
                .iter()
                .all(|l| l.chars().all(|c| (' '..='~').contains(&c)))
        );
    }
}
