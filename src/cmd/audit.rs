//! `audit`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use chrono::DateTime;

use super::out::{self, Reader, TableFit};
use super::until::since;
use crate::audit::report::{self, RunHeader};
use crate::audit::{
    Event, EventDetail, LifeState, LogLine, LoggedCommand, PlainText, Verdict, WallName, markdown,
    ocsf, schema, words,
};
use crate::cli::{Audit, AuditFormat};
use crate::runtime::runs::read::{self, FoundRun, Logs};
use crate::text::escape;
use crate::wrap::leftovers;

/// Most runs in the list.
const LATEST: usize = 20;
/// Poll interval of `--follow`.
const PAUSE: Duration = Duration::from_millis(200);
/// The exit status for a log with faults.
const BROKEN: u8 = 3;

/// Shows the log of a run, or lists the latest runs.
pub fn run(args: &Audit) -> Result<ExitCode> {
    if args.schema {
        out::text(schema::TEXT)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The log should also have the end of a `wrap` that was killed.
    leftovers::sweep();
    let wanted = LineFilter::of(args)?;
    let Some(id) = &args.id else {
        return latest(args, &wanted);
    };
    let found = read::find(id)?;
    if args.follow {
        return follow(&found, args, &wanted);
    }
    let logs = found.logs()?;
    let lines = wanted.among(&logs);
    match args.format {
        format @ (AuditFormat::Json | AuditFormat::Ocsf) => {
            for line in &lines {
                if print(line, format)? == Reader::Gone {
                    break;
                }
            }
        }
        AuditFormat::Text => {
            let own = of_workload(&lines);
            let text = report::text(&subject(&found, &logs), &own);
            out::text(&(text + &verifys(&lines)))?;
        }
        AuditFormat::Markdown => {
            let own = of_workload(&lines);
            out::text(&markdown::text(&subject(&found, &logs), &own))?;
        }
    }
    Ok(verdict(&found, &logs))
}

/// The lines without the attempts of `verify`.
fn of_workload<'a>(lines: &[&'a LogLine]) -> Vec<&'a LogLine> {
    let own = lines.iter().filter(|line| !line.event.is_verifys());
    own.copied().collect()
}

/// A line that counts the omitted attempts.
fn verifys(lines: &[&LogLine]) -> String {
    let verifys = lines.iter().map(|line| &line.event);
    let tried = verifys.filter(|event| event.is_verifys() && event.verdict == Verdict::Denied);
    match tried.map(Event::times).sum::<u64>() {
        0 => String::new(),
        times => format!(
            "agentbox verify made {times} attempts that were denied; they are not in this list (--json has them, by: verify)\n"
        ),
    }
}

/// Prints one line, in the log's form or another.
fn print(line: &LogLine, format: AuditFormat) -> Result<Reader> {
    let text = match format {
        AuditFormat::Json => serde_json::to_string(line).context("write a line")?,
        AuditFormat::Ocsf => ocsf::event(line).to_string(),
        AuditFormat::Text | AuditFormat::Markdown => return out::line(&words::line(line)),
    };
    out::line(&crate::text::escape_json(&text))
}

/// Reports a log's faults on standard error, and by the exit status.
pub fn verdict(found: &FoundRun, logs: &Logs) -> ExitCode {
    let faults = logs.faults();
    for fault in &faults {
        let run = found.run.name();
        crate::log::complain(&format!("agentbox: THE LOG IS NOT WHOLE: {run}: {fault}"));
    }
    match faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(BROKEN),
    }
}

fn subject(found: &FoundRun, logs: &Logs) -> RunHeader {
    let own = |line: &&&LogLine| line.context.container == found.id;
    let lines = logs.lines();
    RunHeader {
        context: lines
            .iter()
            .find(own)
            .map(|line| line.context.clone())
            .unwrap_or_default(),
        started: found.run.started(),
        state: state(&lines, found),
        is_over: !found.is_there(),
        command: logs.command().map(LoggedCommand::words),
        files: files(found),
        earlier: found.earlier,
    }
}

/// What becomes of the files that it writes, by its plan.
fn files(found: &FoundRun) -> Option<String> {
    let record = found.run.record().ok()?;
    Some(record.plan()?.filesystem.written_in_words())
}

/// Whether the container runs, or how it ended.
fn state(lines: &[&LogLine], found: &FoundRun) -> String {
    let (state, exit) = life(lines, found);
    let exit = exit.map(|exit| format!(", exit status {exit}"));
    let exit = exit.unwrap_or_default();
    let gone = match found.is_there() || state == Some(LifeState::Deleted) {
        true => "",
        false => ", and gone without a delete",
    };
    format!("{}{gone}{exit}", state_word(state))
}

/// The same in few letters.
fn short_state(lines: &[&LogLine], found: &FoundRun) -> String {
    let (state, exit) = life(lines, found);
    match (state, exit) {
        (Some(LifeState::Ended | LifeState::Deleted), Some(exit)) => format!("exit {exit}"),
        (Some(LifeState::Deleted), None) => state_word(state).to_owned(),
        _ if !found.is_there() => "lost".to_owned(),
        _ => state_word(state).to_owned(),
    }
}

fn state_word(state: Option<LifeState>) -> &'static str {
    match state {
        None | Some(LifeState::Signalled) => "unknown, its log has no line",
        Some(LifeState::Created) => "created",
        Some(LifeState::Started | LifeState::Resumed) => "running",
        Some(LifeState::Paused) => "paused",
        Some(LifeState::Ended) => "ended",
        Some(LifeState::Deleted) => "deleted",
    }
}

/// The last state in the log, and the last exit status.
fn life(lines: &[&LogLine], found: &FoundRun) -> (Option<LifeState>, Option<i32>) {
    let lives = lines.iter().filter_map(|line| match &line.event.what {
        EventDetail::Container { state, exit, .. } if line.context.container == found.id => {
            Some((*state, *exit))
        }
        _ => None,
    });
    lives.fold((None, None), |(state, exit), (new, status)| {
        let state = match new {
            LifeState::Signalled => state,
            _ => Some(new),
        };
        (state, status.or(exit))
    })
}

/// Prints new lines until the container is deleted.
fn follow(found: &FoundRun, args: &Audit, wanted: &LineFilter) -> Result<ExitCode> {
    let mut printed: BTreeMap<String, u64> = BTreeMap::new();
    let mut size = None;
    loop {
        // Check this before the logs, so that lines written before the end are printed.
        let is_there = found.is_there();
        let before = size.replace(found.size());
        if is_there && found.is_alone() && before == size {
            std::thread::sleep(PAUSE);
            continue;
        }
        let logs = found.logs()?;
        let mut new: Vec<&LogLine> = Vec::new();
        for log in &logs.logs {
            let seen = printed.entry(log.file.clone()).or_default();
            new.extend(log.lines.iter().filter(|line| line.seq > *seen));
            *seen = log.lines.last().map_or(*seen, |line| line.seq.max(*seen));
        }
        new.sort_by(|a, b| a.time.cmp(&b.time));
        let shows = |line: &&LogLine| args.format != AuditFormat::Text || !line.event.is_verifys();
        for line in new
            .into_iter()
            .filter(|line| wanted.keeps(line))
            .filter(shows)
        {
            if print(line, args.format)? == Reader::Gone {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if !is_there {
            return Ok(verdict(found, &logs));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The latest runs with a matching line, as a table.
fn latest(args: &Audit, wanted: &LineFilter) -> Result<ExitCode> {
    let is_of_lines = matches!(args.format, AuditFormat::Json | AuditFormat::Ocsf);
    if args.format == AuditFormat::Markdown {
        bail!("--format markdown is of one run: name a container, or the start of a run");
    }
    let runs = read::all()?;
    let mut code = ExitCode::SUCCESS;
    let mut rows = Vec::new();
    for run in &runs {
        if rows.len() == LATEST {
            break;
        }
        let found = FoundRun::of(run)?;
        let logs = match found.logs() {
            Ok(logs) => logs,
            // The others are of use. This one is missing from them, as the exit status says.
            Err(error) => {
                let (run, why) = (run.name(), crate::log::chain(&error));
                crate::log::complain(&format!(
                    "agentbox: the log of run {run} is left out: {why}"
                ));
                code = ExitCode::from(BROKEN);
                continue;
            }
        };
        let lines = wanted.among(&logs);
        if is_of_lines {
            for line in &lines {
                print(line, args.format)?;
            }
        }
        let lines = of_workload(&lines);
        if !logs.faults().is_empty() {
            code = verdict(&found, &logs);
        }
        // Counts of 0 beside a run that has denials would be false evidence.
        if wanted.lists(&lines) {
            rows.push(row(&found, &logs, &lines));
        }
    }
    if !is_of_lines {
        let fit = TableFit {
            width: out::terminal_width(),
            expendable: &EXPENDABLE,
        };
        out::text(&out::columns(COLUMNS, rows, &fit))?;
    }
    Ok(code)
}

const COLUMNS: [&str; 10] = [
    "STARTED",
    "ID",
    "STATE",
    "TOOK",
    "DENIED",
    "ALLOWED",
    "POLICY",
    "NAME",
    "DIRECTORY",
    "COMMAND",
];

/// On a narrow terminal ALLOWED goes first, then POLICY, NAME, TOOK, DIRECTORY.
const EXPENDABLE: [usize; 5] = [5, 6, 7, 3, 8];

fn row(found: &FoundRun, logs: &Logs, lines: &[&LogLine]) -> [String; 10] {
    let subject = subject(found, logs);
    let context = &subject.context;
    let parts = [&context.namespace, &context.pod, &context.name];
    let name: Vec<&str> = parts.into_iter().flatten().map(PlainText::as_str).collect();
    let or_none = |text: String| match text.is_empty() {
        true => "-".to_owned(),
        false => text,
    };
    [
        subject.started.chars().take(20).collect(),
        found.id.chars().take(12).collect(),
        short_state(&logs.lines(), found),
        took(&logs.lines(), found).unwrap_or_else(|| "-".to_owned()),
        Verdict::Denied.times(lines).to_string(),
        Verdict::Allowed.times(lines).to_string(),
        or_none(context.policy.as_deref().unwrap_or_default().to_owned()),
        or_none(name.join("/")),
        or_none(workspace(found).unwrap_or_default()),
        or_none(logs.command().map(LoggedCommand::words).unwrap_or_default()),
    ]
}

/// Where its workspace is on the node.
fn workspace(found: &FoundRun) -> Option<String> {
    let record = found.run.record().ok()?;
    let source = record.plan()?.filesystem.workspace_source()?.to_owned();
    Some(escape(&source.to_string_lossy()))
}

/// How long it ran, from its first line to the end of its first process.
fn took(lines: &[&LogLine], found: &FoundRun) -> Option<String> {
    let lives = lines
        .iter()
        .filter(|line| line.context.container == found.id);
    let at = |wanted: &[LifeState]| {
        let mut lines = lives.clone();
        lines.find_map(|line| match &line.event.what {
            EventDetail::Container { state, .. } if wanted.contains(state) => {
                DateTime::parse_from_rfc3339(&line.time).ok()
            }
            _ => None,
        })
    };
    let begun = at(&[LifeState::Created, LifeState::Started])?;
    let ended = at(&[LifeState::Ended, LifeState::Deleted])?;
    let millis = (ended - begun).num_milliseconds().max(0);
    Some(match millis {
        0..10_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        10_000..600_000 => format!("{} s", millis / 1000),
        600_000..36_000_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    })
}

/// Which lines to print.
struct LineFilter {
    since: Option<String>,
    wall: Option<String>,
    verdicts: &'static [Verdict],
}

impl LineFilter {
    fn of(args: &Audit) -> Result<Self> {
        let since = args.since.as_deref().map(since).transpose()?;
        Ok(Self {
            since,
            wall: args.wall.clone(),
            verdicts: match (args.denied, args.allowed) {
                (true, _) => &[Verdict::Denied],
                (_, true) => &[Verdict::Allowed, Verdict::Ended],
                (false, false) => &[],
            },
        })
    }

    fn keeps(&self, line: &LogLine) -> bool {
        let wall = self.wall.as_deref();
        // Unlike the end of a connection, that of a run or of a rule was allowed by no rule.
        let is_network = line.event.wall == WallName::Network;
        let is_end = line.event.verdict == Verdict::Ended && !is_network;
        if is_end && !self.verdicts.is_empty() {
            return false;
        }
        wall.is_none_or(|wall| wall == line.event.wall.as_str())
            && (self.verdicts.is_empty() || self.verdicts.contains(&line.event.verdict))
            && self
                .since
                .as_ref()
                .is_none_or(|since| line.time.as_str() >= since.as_str())
    }

    /// Whether the list has a run with these lines left.
    fn lists(&self, lines: &[&LogLine]) -> bool {
        let has_filter = self.since.is_some() || self.wall.is_some() || !self.verdicts.is_empty();
        !has_filter || !lines.is_empty()
    }

    fn among<'a>(&self, logs: &'a Logs) -> Vec<&'a LogLine> {
        let lines = logs.lines().into_iter();
        lines.filter(|line| self.keeps(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::audit::{Chain, ConnectionKind, Context, Log, NODE};
    use crate::cli::{Cli, Verb};

    /// The filter of `agentbox audit` with these options.
    fn filter(options: &[&str]) -> LineFilter {
        let words = ["agentbox", "audit"].iter().chain(options);
        match Cli::try_parse_from(words).unwrap().verb {
            Some(Verb::Audit(args)) => LineFilter::of(&args).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// A run that was denied one host in 2026.
    fn denied() -> Logs {
        let what = EventDetail::attempt(ConnectionKind::Http, "a.test", Some(443));
        let event = Event::new(WallName::Network, Verdict::Denied, what);
        let line = Chain::default().render("2026-01-02T03:04:05.678Z", &Context::default(), &event);
        Logs {
            logs: vec![Log::parse(NODE, &line)],
            ..Logs::default()
        }
    }

    #[test]
    fn a_run_without_a_matching_line_is_not_listed() {
        let logs = denied();
        let lists = |logs: &Logs, options: &[&str]| {
            let filter = filter(options);
            filter.lists(&of_workload(&filter.among(logs)))
        };
        for options in [
            &["--denied"][..],
            &["--wall", "network"],
            &["--since", "2026-01-01T00:00:00Z"],
        ] {
            assert!(lists(&logs, options), "{options:?}");
            assert!(!lists(&Logs::default(), options), "{options:?}");
        }
        for options in [
            &["--allowed"][..],
            &["--wall", "keys"],
            &["--denied", "--wall", "keys"],
            &["--since", "2026-01-03T00:00:00Z"],
        ] {
            assert!(!lists(&logs, options), "{options:?}");
        }
        assert!(lists(&Logs::default(), &[]));
    }

    #[test]
    fn a_run_that_ended_and_was_allowed_nothing_is_not_listed_among_allowed_ones() {
        let ended = |wall, what| {
            let event = Event::new(wall, Verdict::Ended, what);
            let line =
                Chain::default().render("2026-01-02T03:04:05.678Z", &Context::default(), &event);
            Logs {
                logs: vec![Log::parse(NODE, &line)],
                ..Logs::default()
            }
        };
        let lists = |logs: &Logs, options: &[&str]| {
            let filter = filter(options);
            filter.lists(&filter.among(logs))
        };
        let life = ended(WallName::Life, EventDetail::life(LifeState::Ended));
        let rule = ended(WallName::Rules, EventDetail::life(LifeState::Ended));
        assert!(!lists(&life, &["--allowed"]) && !lists(&rule, &["--allowed"]));
        assert!(lists(&life, &[]) && lists(&life, &["--wall", "life"]));
        // The control: a connection that ended was allowed.
        let what = EventDetail::attempt(ConnectionKind::Http, "a.test", Some(443));
        assert!(lists(&ended(WallName::Network, what), &["--allowed"]));
    }
}
