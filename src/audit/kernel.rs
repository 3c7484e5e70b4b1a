//! PURE. Events that only the kernel counts: limits that were reached, and attempts by address without a listener.

use serde::{Deserialize, Serialize};

use super::{ConnectionKind, Event, EventDetail, Verdict, WallName};

/// A limit whose hits the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountedLimit {
    /// Processes that were killed because memory ran out.
    Memory,
    /// New processes that were refused.
    Pids,
}

impl CountedLimit {
    /// Its policy field.
    pub fn field(self) -> &'static str {
        match self {
            Self::Memory => "limits.memory",
            Self::Pids => "limits.pids",
        }
    }

    /// The event for `times` hits. `value` is the kernel's limit, `bound` the policy's.
    pub fn reached(self, times: u64, value: Option<u64>, bound: Option<u64>) -> Event {
        let reason = match self {
            Self::Memory => "the kernel killed processes for it, and does not report which",
            Self::Pids => "the kernel refused new processes, and does not report whose",
        };
        // The kernel rounds memory down to whole pages.
        let unit = match self {
            Self::Memory => 4096,
            Self::Pids => 1,
        };
        let is_policys = match (value, bound) {
            (Some(value), Some(bound)) => value / unit >= bound / unit,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let hint = match (is_policys, self) {
            (true, _) => format!("within the ceiling, dev.agentbox.{}", self.field()),
            (false, Self::Memory) => {
                "the engine's own limit is the smaller one: docker run --memory, a pod's resources.limits".to_owned()
            }
            (false, Self::Pids) => "the engine's own limit is the smaller one: docker run --pids-limit".to_owned(),
        };
        let what = EventDetail::Limit {
            limit: self.field().into(),
            times,
            value,
        };
        Event {
            reason: Some(reason.into()),
            hint: Some(hint.into()),
            ..Event::new(WallName::Resources, Verdict::Denied, what)
        }
    }
}

/// The event for attempts by address since the previous one.
pub fn by_address(count: u64, via: ConnectionKind) -> Event {
    let what = EventDetail::attempt(via, "", None);
    let event = Event {
        cause: Some("by-address".into()),
        count: (count != 1).then_some(count),
        ..Event::new(WallName::Network, Verdict::Denied, what)
    };
    match via {
        ConnectionKind::Unanswered => Event {
            verdict: Verdict::Noted,
            reason: Some(
                "to a port of the container itself where nothing listens, or to an address, too many in a moment for lines of their own: \
                 the kernel counts both together, and tells neither address nor port"
                    .into(),
            ),
            ..event
        },
        _ => Event {
            reason: Some("no route leads out; the kernel counts them, and tells no address".into()),
            hint: Some("network.allow with the host's name".into()),
            ..event
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finding 9 of the reading for honesty: the hint named the annotation although the engine's limit applied.
    #[test]
    fn the_hint_names_the_limit_that_was_reached() {
        let hint = |limit: CountedLimit, value, bound| {
            let event = limit.reached(3, value, bound);
            event.hint.unwrap()
        };
        let mib = |n: u64| Some(n << 20);
        for (limit, value, bound, word) in [
            (CountedLimit::Memory, mib(32), mib(512), "--memory"),
            (CountedLimit::Memory, mib(32), None, "--memory"),
            (
                CountedLimit::Memory,
                mib(512),
                mib(512),
                "dev.agentbox.limits.memory",
            ),
            (
                CountedLimit::Memory,
                mib(512),
                Some((512 << 20) + 9),
                "dev.agentbox.limits.memory",
            ),
            (
                CountedLimit::Pids,
                Some(64),
                Some(64),
                "dev.agentbox.limits.pids",
            ),
            (CountedLimit::Pids, Some(63), Some(64), "--pids-limit"),
        ] {
            let hint = hint(limit, value, bound);
            assert!(hint.contains(word), "{limit:?} {value:?} {bound:?}: {hint}");
        }
    }

    #[test]
    fn attempts_that_may_be_local_are_noted_and_not_called_denied() {
        assert_eq!(
            by_address(2, ConnectionKind::Unrouted).verdict,
            Verdict::Denied
        );
        assert_eq!(
            by_address(2, ConnectionKind::Unanswered).verdict,
            Verdict::Noted
        );
        assert_eq!(by_address(1, ConnectionKind::Unrouted).times(), 1);
    }
}
