//! PURE. Events that only the kernel counts: limits that were reached, and attempts by address without a listener.

use serde::{Deserialize, Serialize};

use super::event::{Event, Verdict, WallName};
use super::what::{ConnectionKind, EventDetail};
use crate::policy::{Field, MemoryLimit, Tool};

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
    pub fn field(self) -> Field {
        match self {
            Self::Memory => Field::LimitsMemory,
            Self::Pids => Field::LimitsPids,
        }
    }

    /// The text that sets twice the policy's value: a guess that can be pasted.
    fn raised(self, bound: u64, tool: Tool) -> String {
        /// No kernel has more (PID_MAX_LIMIT, threads.h).
        const MOST_PIDS: u64 = 4_194_304;
        let twice = bound.saturating_mul(2);
        let value = match self {
            Self::Memory => MemoryLimit::of_bytes(twice).to_string(),
            Self::Pids => twice.min(MOST_PIDS).to_string(),
        };
        tool.names(&tool.sets(self.field(), &value))
    }

    /// The event for `times` hits. `value` is the kernel's limit, `bound` the policy's; a cure is in the words of `tool`.
    pub fn reached(self, times: u64, value: Option<u64>, bound: Option<u64>, tool: Tool) -> Event {
        let reason = match self {
            Self::Memory => "the kernel killed processes for it; it does not report which",
            Self::Pids => "the kernel refused new processes; it does not report whose",
        };
        // The kernel rounds memory down to whole pages.
        let unit = match self {
            Self::Memory => 4096,
            Self::Pids => 1,
        };
        let policys = bound.filter(|bound| value.is_none_or(|value| value / unit >= bound / unit));
        let hint = match (policys, self) {
            (Some(bound), _) => format!("within the ceiling, {}", self.raised(bound, tool)),
            (None, Self::Memory) => {
                "the engine's own limit is the smaller one: docker run --memory, a pod's resources.limits".to_owned()
            }
            (None, Self::Pids) => "the engine's own limit is the smaller one: docker run --pids-limit".to_owned(),
        };
        let what = EventDetail::Limit {
            limit: self.field().to_string().into(),
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

/// The event for attempts by address since the previous one; a cure is in the words of `tool`.
pub fn by_address(count: u64, via: ConnectionKind, tool: Tool) -> Event {
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
            reason: Some("no route leads out; the kernel counts them without addresses".into()),
            hint: Some(
                format!(
                    "connect by the host's name, and allow it: {}",
                    tool.names(&tool.adds(Field::NetworkAllow, &["HOST"]))
                )
                .into(),
            ),
            ..event
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Former fault: the hint named the annotation although the engine's limit applied.
    #[test]
    fn the_hint_names_the_limit_that_was_reached() {
        let hint = |limit: CountedLimit, value, bound| {
            let event = limit.reached(3, value, bound, Tool::Annotating);
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
                "ceiling, --annotation dev.agentbox.limits.memory=1GiB",
            ),
            (
                CountedLimit::Memory,
                mib(512),
                Some((512 << 20) + 9),
                "ceiling, --annotation dev.agentbox.limits.memory=1025MiB",
            ),
            (
                CountedLimit::Pids,
                Some(64),
                Some(64),
                "ceiling, --annotation dev.agentbox.limits.pids=128",
            ),
            (CountedLimit::Pids, Some(63), Some(64), "--pids-limit"),
        ] {
            let hint = hint(limit, value, bound);
            assert!(hint.contains(word), "{limit:?} {value:?} {bound:?}: {hint}");
        }
    }

    /// Former fault: the cures were no text that can be pasted.
    #[test]
    fn a_raised_limit_is_one_that_a_policy_may_have() {
        use crate::policy::ProcessLimit;
        for bound in [1, 16, 4096, u64::from(u32::MAX), u64::MAX] {
            let pids = CountedLimit::Pids.raised(bound.max(16), Tool::Wrap);
            let pids = pids.strip_prefix("--set limits.pids=").unwrap();
            assert!(pids.parse::<ProcessLimit>().is_ok(), "{pids}");
            let memory = CountedLimit::Memory.raised(bound, Tool::Wrap);
            let memory = memory.strip_prefix("--set limits.memory=").unwrap();
            assert!(memory.parse::<MemoryLimit>().is_ok(), "{memory}");
        }
        let event = by_address(1, ConnectionKind::Unrouted, Tool::Wrap);
        assert!(event.hint.unwrap().ends_with(": --allow HOST"));
    }

    #[test]
    fn attempts_that_may_be_local_are_noted_and_not_called_denied() {
        assert_eq!(
            by_address(2, ConnectionKind::Unrouted, Tool::Wrap).verdict,
            Verdict::Denied
        );
        assert_eq!(
            by_address(2, ConnectionKind::Unanswered, Tool::Wrap).verdict,
            Verdict::Noted
        );
        assert_eq!(
            by_address(1, ConnectionKind::Unrouted, Tool::Wrap).times(),
            1
        );
    }
}
