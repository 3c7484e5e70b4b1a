//! The events of ports that lead into a container, or nowhere.

use std::collections::BTreeSet;

use super::events::who;
use crate::audit::{ConnectionKind, Event, EventDetail, KnownCause, PlainList, Verdict, WallName};
use crate::plan::{NetworkPlan, join};
use crate::policy::Tool;

/// A published port that leads nowhere.
pub(super) fn published(
    id: &str,
    tool: Tool,
    network: &NetworkPlan,
    (port, outside): (u16, &BTreeSet<u16>),
) -> Event {
    let at: Vec<String> = outside.iter().map(u16::to_string).collect();
    let of = match at.is_empty() {
        true => String::new(),
        false => format!(" as {}", at.join(" and ")),
    };
    let now = match network.opens_live(port, join::short(id)) {
        Some(command) => format!(", or now: {command}"),
        None => String::new(),
    };
    let sets = network.lets_in(port, tool);
    Event {
        cause: Some(KnownCause::Published.into()),
        reason: Some(format!(
            "the engine publishes it{of}, and it leads nowhere: network.inbound does not name it"
        ).into()),
        hint: Some(format!(
            "{}, when the container is made{now}",
            tool.names(&sets)
        ).into()),
        ..Event::new(
            WallName::Network,
            Verdict::Denied,
            EventDetail::attempt(ConnectionKind::Outside, "", Some(port)),
        )
    }
}

/// `update` has opened inbound ports.
pub fn opened(ports: &BTreeSet<u16>) -> Event {
    let what = EventDetail::Rules {
        added: PlainList::default(),
        removed: PlainList::default(),
        denied: PlainList::default(),
        inbound: ports.iter().copied().collect(),
        by: who().into(),
    };
    Event::new(WallName::Rules, Verdict::Noted, what)
}
