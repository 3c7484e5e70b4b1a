//! PURE. An event in words, on one line.

use super::command::command_line;
use super::event::{Event, LogLine, Verdict};
use super::life::{LifeState, ProcessState};
use super::what::{ConnectionKind, EventDetail};

/// A host and a port as people write them.
pub fn endpoint(host: &str, port: Option<u16>) -> String {
    match (host.is_empty(), port) {
        (true, None) => "somewhere".to_owned(),
        (true, Some(port)) => format!("port {port}"),
        (false, None) => host.to_owned(),
        (false, Some(port)) if host.contains(':') => format!("[{host}]:{port}"),
        (false, Some(port)) => format!("{host}:{port}"),
    }
}

/// The subject of an event.
pub fn what(what: &EventDetail) -> String {
    match what {
        EventDetail::Connection {
            via, host, port, ..
        } => match via {
            Some(ConnectionKind::Unrouted) => "attempts by address".to_owned(),
            Some(ConnectionKind::Unanswered) if port.is_none() => {
                "attempts on ports where nothing listens".to_owned()
            }
            Some(ConnectionKind::Udp) => format!("{} by UDP", endpoint(host, *port)),
            _ => endpoint(host, *port),
        },
        EventDetail::Name { host, .. } => format!("name {host}"),
        EventDetail::Approval {
            host,
            port,
            lasting,
            by,
        } => {
            let lasting = lasting.as_deref().map(|l| format!(" ({l})"));
            let host = endpoint(host, Some(*port));
            format!("{host}{} by {by}", lasting.unwrap_or_default())
        }
        EventDetail::Rules { .. } => rules(what),
        EventDetail::Expired { of, item, until } => format!("the {of} {item} expired at {until}"),
        EventDetail::Mount {
            destination,
            source,
        } => format!("mount at {destination} (from {source})"),
        EventDetail::Syscall { call, errno, .. } => format!("{call}: {errno}"),
        EventDetail::Signature { .. } => signature(what),
        EventDetail::Asked { item } => item.to_string(),
        EventDetail::Container { .. } => life(what),
        EventDetail::Process {
            state,
            arguments,
            cut,
            uid,
            gid,
            exit,
        } => {
            let word = match state {
                ProcessState::Began => "began",
                ProcessState::Ended => "ended",
                ProcessState::Refused => "not started",
            };
            let exit = exit.map(|exit| format!(" with status {exit}"));
            let arguments = command_line(arguments, cut);
            format!(
                "exec {word}{} as {uid}:{gid}: {arguments}",
                exit.unwrap_or_default()
            )
        }
        EventDetail::Limit {
            limit,
            times,
            value,
        } => format!("{}, {times} times", limited(limit, *value)),
        EventDetail::Update { limits } => format!("limits set: {}", limits.join(", ")),
        EventDetail::Verified {
            result,
            held,
            not_held,
            not_tried,
            ..
        } => {
            let lists = [(not_held, "not held"), (not_tried, "not tried")];
            let lists = lists.iter().filter(|(list, _)| !list.is_empty());
            let lists = lists.map(|(list, name)| format!("; {name}: {}", list.join(", ")));
            let lists: String = lists.collect();
            format!("verified: {result}: {held} attempts held off{lists}")
        }
        EventDetail::LeftOut { of, events } => {
            format!("{events} more events of {of} without a line")
        }
    }
}

/// A signature, and what it is for. The names are the workload's, so they stand in quotes.
fn signature(what: &EventDetail) -> String {
    let EventDetail::Signature {
        key,
        user,
        server,
        namespace,
        ..
    } = what
    else {
        return String::new();
    };
    let purpose = match (user, server, namespace) {
        (Some(user), Some(server), _) => {
            format!("to log in as {user:?} at the server with the key {server}")
        }
        (Some(user), None, _) => format!("to log in as {user:?} at a server that it does not name"),
        (None, _, Some(namespace)) => format!("of a message for {namespace:?}"),
        (None, _, None) => "of unknown data".to_owned(),
    };
    format!("signature with {key} {purpose}")
}

fn rules(what: &EventDetail) -> String {
    let EventDetail::Rules {
        added,
        removed,
        denied,
        inbound,
        by,
    } = what
    else {
        return String::new();
    };
    let inbound = inbound.iter().map(u16::to_string).collect();
    let lists = [
        ("added", added),
        ("removed", removed),
        ("denied", denied),
        ("opened the inbound ports", &inbound),
    ];
    let lists = lists.iter().filter(|(_, list)| !list.is_empty());
    let words: Vec<String> = lists
        .map(|(word, list)| format!("{word} {}", list.join(", ")))
        .collect();
    format!("rules changed by {by}: {}", words.join("; "))
}

/// A limit with its value.
pub fn limited(limit: &str, value: Option<u64>) -> String {
    match value {
        Some(value) => format!("{limit} = {value}"),
        None => limit.to_owned(),
    }
}

fn life(what: &EventDetail) -> String {
    let EventDetail::Container {
        state,
        exit,
        signal,
        command,
        ..
    } = what
    else {
        return String::new();
    };
    let word = match state {
        LifeState::Created => "created",
        LifeState::Started => "started",
        LifeState::Signalled => "sent signal",
        LifeState::Paused => "paused",
        LifeState::Resumed => "resumed",
        LifeState::Ended => "ended",
        LifeState::Deleted => "deleted",
    };
    let mut text = match (exit, signal) {
        (Some(exit), _) => format!("{word} with status {exit}"),
        (None, Some(signal)) => format!("{word} {signal}"),
        (None, None) => word.to_owned(),
    };
    if let Some(command) = command {
        text += &format!(", to run {}", command.words());
    }
    text
}

/// The time down to seconds, for a list.
pub fn time(line: &LogLine) -> String {
    line.time.chars().take(19).collect::<String>() + "Z"
}

/// A whole line of a log.
pub fn line(line: &LogLine) -> String {
    let event = &line.event;
    let verdict = match event.verdict {
        Verdict::Noted => "",
        // The container's state already says it.
        Verdict::Ended
            if matches!(
                event.what,
                EventDetail::Container { .. } | EventDetail::Process { .. }
            ) =>
        {
            ""
        }
        other => other.as_str(),
    };
    format!(
        "{} {:10} {:7} {}",
        time(line),
        event.wall.as_str(),
        verdict,
        message(event)
    )
}

/// What happened, why, and what to do.
pub fn message(event: &Event) -> String {
    let mut text = what(&event.what) + &times(event);
    if event.is_verifys() {
        text += " by agentbox verify";
    }
    for words in [&event.reason, &event.hint].into_iter().flatten() {
        text += &format!("; {words}");
    }
    text
}

/// `x7`, if a line stands for more than one event.
pub fn times(event: &Event) -> String {
    match event.times() {
        1 => String::new(),
        times => format!(" x{times}"),
    }
}
