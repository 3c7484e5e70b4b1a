//! PURE. Connections to ports of the loopback inside where nothing listens: the user may have meant a server outside
//! (`wrap --connect`).

use std::collections::BTreeSet;

use super::cause::KnownCause;
use super::event::{Event, LogLine, Verdict, WallName};
use super::what::{ConnectionKind, EventDetail};

/// Ports with a line in the log of one run. Test runners try many.
pub const MOST_PORTS: usize = 16;

/// The host of these events.
const LOCALHOST: &str = "localhost";

/// The event for the first connection to a port.
pub fn refused(port: u16) -> Event {
    let what = EventDetail::attempt(ConnectionKind::Unanswered, LOCALHOST, Some(port));
    Event {
        cause: Some(KnownCause::Loopback.into()),
        reason: Some("nothing listens at this port inside".into()),
        ..Event::new(WallName::Network, Verdict::Noted, what)
    }
}

/// The ports of these events, which are at most [`MOST_PORTS`].
pub fn ports<'a>(lines: impl IntoIterator<Item = &'a LogLine>) -> BTreeSet<u16> {
    let port = |line: &LogLine| match &line.event.what {
        EventDetail::Connection { port, .. } if line.event.has_cause(KnownCause::Loopback) => *port,
        _ => None,
    };
    lines
        .into_iter()
        .filter_map(port)
        .take(MOST_PORTS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Chain, Context};

    #[test]
    fn the_ports_are_those_of_their_own_events() {
        let line = |event: &Event| {
            let line = Chain::default().render("x", &Context::default(), event);
            serde_json::from_slice::<LogLine>(&line).unwrap()
        };
        let other = Event {
            cause: Some("port".into()),
            ..refused(80)
        };
        let mut lines = [5432, 6379, 5432]
            .map(refused)
            .map(|event| line(&event))
            .to_vec();
        lines.push(line(&other));
        assert_eq!(ports(&lines), [5432, 6379].into());
    }
}
