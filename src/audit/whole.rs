//! PURE. Checks that the logs of one run belong together, which no file shows alone.
//!
//! The runtime's log starts with the container's creation and ends with its deletion. The deletion's line has the end
//! of every other log, so a cut or an added line in those is noticed.

use super::chain::NONE;
use super::event::LogLine;
use super::life::{LifeState, LogHead};
use super::log_files::{NODE, SIDECAR, SOCKETS, SSH, TIME, WARDEN};
use super::read::Log;
use super::what::EventDetail;

/// The logs of the other writers. The deletion's line names [`SSH`], [`SOCKETS`] and [`TIME`] only if the run had
/// such a log.
pub const OTHERS: [&str; 5] = [SIDECAR, WARDEN, SSH, SOCKETS, TIME];

/// The stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its container exists: its logs may still grow.
    There,
    /// Its container is gone: its logs are final.
    Gone,
}

/// Adds the faults between the logs of one run to them.
pub fn check(logs: &mut Vec<Log>, stage: Stage) {
    if !logs.iter().any(|log| log.file == NODE) {
        logs.insert(0, Log::parse(NODE, b""));
    }
    let Some(node) = logs.iter_mut().find(|log| log.file == NODE) else {
        return;
    };
    let kept = check_node(node, stage);
    let Some(kept) = kept else { return };
    for name in OTHERS {
        let head = kept.iter().find(|head| head.file == name);
        if !logs.iter().any(|log| log.file == name) {
            logs.push(Log::parse(name, b""));
        }
        for log in logs.iter_mut().filter(|log| log.file == name) {
            match head {
                Some(head) => log.check_head(head),
                None => check_unnamed(log),
            }
        }
    }
}

/// The recorded ends of the other logs, if the run has ended.
fn check_node(node: &mut Log, stage: Stage) -> Option<Vec<LogHead>> {
    let Some(first) = node.lines.first() else {
        // A line that is not an event is already a fault.
        if node.faults.is_empty() {
            node.fault(0, "it is missing or has no line: it was removed or emptied, or the runtime was killed before it wrote the first one");
        }
        return None;
    };
    if first.seq == 1 && life_of(first).map(|(state, _)| state) != Some(LifeState::Created) {
        node.fault(
            1,
            "it is not the container's creation, with which this log begins: the log was emptied while the container was there",
        );
    }
    let end = node
        .lines
        .iter()
        .find(|line| matches!(life_of(line), Some((LifeState::Deleted, _))))
        .cloned();
    let last = node.lines.last().map_or(0, |line| line.seq);
    let Some(end) = end else {
        if stage == Stage::Gone {
            node.fault(
                last,
                "the container is gone, and no line of its deletion follows: lines were cut off at the end, or the node or \
                 runtime stopped before it, or the disk was full",
            );
        }
        return None;
    };
    if end.seq != last {
        node.fault(
            end.seq + 1,
            "it stands after the line of the deletion, which is the last one that the runtime writes: it was added since",
        );
    }
    let heads = life_of(&end).map(|(_, heads)| heads.to_vec())?;
    if heads
        .iter()
        .any(|head| !OTHERS.contains(&head.file.as_str()))
    {
        node.fault(end.seq, "it names the end of a file that no run has");
    }
    Some(heads)
}

/// The container's state in this line, and the ends of the other logs.
fn life_of(line: &LogLine) -> Option<(LifeState, &[LogHead])> {
    match &line.event.what {
        EventDetail::Container { state, logs, .. } => Some((*state, logs)),
        _ => None,
    }
}

/// A log that the deletion's line does not name. Earlier versions did not name empty logs.
fn check_unnamed(log: &mut Log) {
    let is_empty = log.head.is_none() && log.faults.is_empty();
    if !is_empty {
        log.fault(
            0,
            "the line of the deletion does not name it: it was added since",
        );
    }
}

/// The end of an empty log.
pub fn no_line(file: &str) -> LogHead {
    LogHead {
        file: file.into(),
        seq: 0,
        head: NONE.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Chain, ConnectionKind, Context, Event, Verdict, WallName};
    use super::*;

    fn life(state: LifeState, logs: &[LogHead]) -> Event {
        let what = EventDetail::Container {
            state,
            exit: None,
            signal: None,
            logs: logs.to_vec(),
            command: None,
            kept: BTreeMap::new(),
            receipt_by: None,
        };
        Event::new(WallName::Life, Verdict::Noted, what)
    }

    fn refused(host: &str) -> Event {
        let what = EventDetail::attempt(ConnectionKind::Http, host, Some(443));
        Event::new(WallName::Network, Verdict::Denied, what)
    }

    fn text(events: &[Event]) -> Vec<u8> {
        let (mut chain, mut text) = (Chain::default(), Vec::new());
        for event in events {
            let line = chain.render("2026-01-02T03:04:05.678Z", &Context::default(), event);
            chain.commit(&line);
            text.extend(line);
        }
        text
    }

    /// A run with two denials, and the ends that its deletion records.
    fn run() -> [Vec<u8>; 2] {
        let sidecar = text(&[refused("a.test"), refused("b.test")]);
        let end = Log::parse(SIDECAR, &sidecar).head.unwrap();
        let node = text(&[
            life(LifeState::Created, &[]),
            life(LifeState::Started, &[]),
            life(LifeState::Deleted, &[end, no_line(WARDEN)]),
        ]);
        [node, sidecar]
    }

    /// Names and contents.
    type Files<'a> = &'a [(&'a str, &'a [u8])];

    fn faults(files: Files<'_>, stage: Stage) -> Vec<String> {
        let mut logs = files
            .iter()
            .map(|(name, text)| Log::parse(name, text))
            .collect();
        check(&mut logs, stage);
        let faults = logs.iter().flat_map(|log| &log.faults);
        faults.map(ToString::to_string).collect()
    }

    fn without_last(text: &[u8]) -> &[u8] {
        let end = text[..text.len() - 1].iter().rposition(|b| *b == b'\n');
        &text[..=end.unwrap()]
    }

    #[test]
    fn a_complete_run_has_no_fault_even_if_a_log_is_empty_or_absent() {
        let [node, sidecar] = run();
        for stage in [Stage::Gone, Stage::There] {
            assert_eq!(
                faults(&[(NODE, &node), (SIDECAR, &sidecar)], stage),
                [""; 0]
            );
            let empty: &[u8] = b"";
            let files = [(NODE, &node[..]), (SIDECAR, &sidecar), (WARDEN, empty)];
            assert_eq!(faults(&files, stage), [""; 0]);
        }
        // A run that goes on has no end yet.
        let begun = without_last(&node);
        let files = [(NODE, begun), (SIDECAR, &sidecar[..])];
        assert_eq!(faults(&files, Stage::There), [""; 0]);
    }

    #[test]
    fn any_removal_from_or_addition_to_a_finished_run_is_noticed() {
        let [node, sidecar] = run();
        let more = {
            let mut text = node.clone();
            let last = text[..text.len() - 1]
                .rsplit(|b| *b == b'\n')
                .next()
                .unwrap();
            let line = Chain::after(3, last).render(
                "",
                &Context::default(),
                &life(LifeState::Started, &[]),
            );
            text.extend(line);
            text
        };
        let anew = text(&[life(LifeState::Started, &[]), life(LifeState::Deleted, &[])]);
        let unnamed = text(&[life(LifeState::Created, &[]), life(LifeState::Deleted, &[])]);
        let foreign = text(&[
            life(LifeState::Created, &[]),
            life(LifeState::Deleted, &[no_line("/etc/passwd")]),
        ]);
        let warden = text(&[refused("c.test")]);
        let (node, sidecar, warden) = (&node[..], &sidecar[..], &warden[..]);
        let cases: [(&str, Files<'_>, &str); 11] = [
            (
                "cut",
                &[(NODE, without_last(node)), (SIDECAR, sidecar)],
                "cut off at the end",
            ),
            (
                "emptied",
                &[(NODE, b""), (SIDECAR, sidecar)],
                "missing or has no line",
            ),
            ("removed", &[(SIDECAR, sidecar)], "missing or has no line"),
            ("all removed", &[], "missing or has no line"),
            (
                "a line more",
                &[(NODE, &more), (SIDECAR, sidecar)],
                "node.jsonl, line 4: it stands after",
            ),
            (
                "begun anew",
                &[(NODE, &anew)],
                "not the container's creation",
            ),
            (
                "no longer named",
                &[(NODE, &unnamed), (SIDECAR, sidecar)],
                "sidecar.jsonl: the line of the deletion does not",
            ),
            (
                "another file",
                &[(NODE, &foreign)],
                "a file that no run has",
            ),
            (
                "a warden's log",
                &[(NODE, node), (SIDECAR, sidecar), (WARDEN, warden)],
                "warden.jsonl, line 1: the log ended with line 0",
            ),
            (
                "no sidecar's log",
                &[(NODE, node)],
                "the log ended with line 2",
            ),
            (
                "an empty one",
                &[(NODE, node), (SIDECAR, b"")],
                "the log ended with line 2",
            ),
        ];
        for (what, files, words) in cases {
            let found = faults(files, Stage::Gone);
            assert!(
                found.iter().any(|fault| fault.contains(words)),
                "{what}: {found:?}"
            );
        }
    }
}
