//! PURE. The time limits of a container.

use std::collections::BTreeSet;
use std::fmt;

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::facts::{BundleFacts, HostFacts};
use super::person::PersonsCgroup;
use super::pod::pod_role;
use super::syscalls::SyscallPlan;
use super::wrap_plan::WrapEnforcement;
use crate::engines::annotation::SANDBOX;
use crate::policy::{
    Capability, Field, Grace, Lifetime, Origin, ResolvedPolicy, SleepRule, Time, TimeLimit,
};

/// When a container ends: at least one of the limits is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimePlan {
    /// From `create` to SIGTERM.
    pub wall: TimeLimit,
    /// Without activity until SIGTERM.
    #[serde(default = "unlimited", skip_serializing_if = "is_unlimited")]
    pub idle: TimeLimit,
    /// From SIGTERM to SIGKILL.
    pub grace: Grace,
    /// Whether the time in which the machine is suspended counts; for `idle`, also the time in which the container is
    /// paused.
    pub sleep: SleepRule,
    /// The shortest limit of the ceilings: `agentbox extend` gives no more in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<Lifetime>,
}

fn unlimited() -> TimeLimit {
    TimeLimit::Unlimited
}

fn is_unlimited(limit: &TimeLimit) -> bool {
    *limit == TimeLimit::Unlimited
}

impl TimePlan {
    /// The limits of this policy; `None` if it has none.
    pub fn of(resolved: &ResolvedPolicy) -> Option<Self> {
        let Time {
            wall,
            idle,
            exec: _,
            grace,
            sleep,
        } = resolved.policy.time;
        let ceilings = resolved.limits.iter().map(|ceiling| ceiling.time.wall);
        let limits = Self {
            wall,
            idle,
            grace,
            sleep,
            most: ceilings.min().and_then(TimeLimit::lifetime),
        };
        limits.has_any().then_some(limits)
    }

    fn has_any(&self) -> bool {
        !is_unlimited(&self.wall) || !is_unlimited(&self.idle)
    }

    fn without_idle(self) -> Option<Self> {
        let idle = TimeLimit::Unlimited;
        Some(Self { idle, ..self }).filter(Self::has_any)
    }
}

/// The limits of a container. `time.idle` needs the processor time of a cgroup: refused for a caller who can make none.
pub(super) fn plan(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
    host: &HostFacts,
) -> Result<Option<TimePlan>, PlanError> {
    let Some(time) = TimePlan::of(resolved) else {
        return Ok(None);
    };
    // A pod's sandbox only waits, and its end ends the pod: the containers have the limit.
    if bundle.cri && pod_role(spec) == Some(SANDBOX) {
        return Ok(time.without_idle());
    }
    let by_mounts = bundle.wrapped.by == WrapEnforcement::Mounts;
    if let Some(person) = host
        .person
        .filter(|_| by_mounts && !is_unlimited(&time.idle))
        && person.cgroup != PersonsCgroup::Given
    {
        let field = Field::TimeIdle;
        let origin = resolved.origins.get(&field);
        return Err(PlanError::NoCgroup {
            field,
            origin: origin.cloned().unwrap_or(Origin::Default),
            why: person.cgroup.lacking(),
        });
    }
    Ok(Some(time))
}

/// How long each `exec` of a container may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecTime {
    /// From its start to SIGTERM.
    pub limit: Lifetime,
    /// From SIGTERM to the end of everything that it started.
    pub grace: Grace,
    /// Whether the time in which the machine is suspended counts.
    pub sleep: SleepRule,
}

impl ExecTime {
    /// The limit as that of one `exec`'s timekeeper.
    pub fn of_one(self) -> TimePlan {
        TimePlan {
            wall: TimeLimit::Is(self.limit),
            idle: TimeLimit::Unlimited,
            grace: self.grace,
            sleep: self.sleep,
            most: None,
        }
    }
}

/// What a workload could do to leave the cgroup of an `exec`.
#[derive(Debug, Clone, Copy)]
pub(super) struct CgroupRights<'a> {
    /// The system calls of its filter.
    pub syscalls: &'a SyscallPlan,
    /// The capabilities that any of its processes can get.
    pub capabilities: &'a BTreeSet<Capability>,
}

impl<'a> CgroupRights<'a> {
    /// Of a plan.
    pub fn of(syscalls: &'a SyscallPlan, capabilities: &'a BTreeSet<Capability>) -> Self {
        Self {
            syscalls,
            capabilities,
        }
    }

    /// Calls that mount a writable cgroup file system (the container's own cgroup mount is always read-only), and clone3(2), which
    /// needs no more than a directory of it (CLONE_INTO_CGROUP).
    const LEAVING: [&'static str; 5] =
        ["mount", "move_mount", "fsmount", "mount_setattr", "clone3"];
    /// The capability to mount.
    const ADMIN: &'static str = "CAP_SYS_ADMIN";

    /// The right by which it may write its cgroups, if it has one.
    pub(super) fn writes_cgroups(self) -> Option<String> {
        let given = self.syscalls.allow.difference(&self.syscalls.deny);
        let mut names = given.map(ToString::to_string);
        let call = names.find(|name| Self::LEAVING.contains(&name.as_str()));
        let mut capabilities = self.capabilities.iter().map(ToString::to_string);
        call.or_else(|| capabilities.find(|name| name == Self::ADMIN))
    }
}

/// The limit of each `exec`. Refused where it cannot be kept: in a cgroup that is not root's, or that the workload may leave.
pub(super) fn plan_exec(
    resolved: &ResolvedPolicy,
    host: &HostFacts,
    bundle: &BundleFacts,
    (syscalls, capabilities): (&SyscallPlan, &BTreeSet<Capability>),
) -> Result<Option<ExecTime>, PlanError> {
    let Time {
        exec, grace, sleep, ..
    } = resolved.policy.time;
    let Some(limit) = exec.lifetime() else {
        return Ok(None);
    };
    let field = Field::TimeExec;
    let origin = resolved.origins.get(&field);
    let origin = origin.cloned().unwrap_or(Origin::Default);
    // Landlock's walls refuse it with words of their own.
    if host.person.is_some() && bundle.wrapped.by == WrapEnforcement::Mounts {
        let why = "each exec needs a cgroup that is root's";
        return Err(PlanError::NoCgroup { field, origin, why });
    }
    match CgroupRights::of(syscalls, capabilities).writes_cgroups() {
        Some(right) => Err(PlanError::LeavesCgroup {
            field,
            origin: origin.to_string(),
            right,
        }),
        None => Ok(Some(ExecTime {
            limit,
            grace,
            sleep,
        })),
    }
}

/// What is left of the limits of a container that runs, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeLeft {
    /// Of `time.wall`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Of `time.idle`, until the next activity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds_left: Option<u64>,
}

/// Why a container was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// Its time was over.
    Wall,
    /// It did nothing for too long.
    Idle,
    /// A process that keeps its time was killed.
    TimekeeperLost,
}

impl EndCause {
    /// All causes.
    pub const ALL: [Self; 3] = [Self::Wall, Self::Idle, Self::TimekeeperLost];

    /// The cause as one byte of a file.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Wall => b'w',
            Self::Idle => b'i',
            Self::TimekeeperLost => b'k',
        }
    }

    /// The field that ended it, or the group of fields.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Wall => "time.wall",
            Self::Idle => "time.idle",
            Self::TimekeeperLost => "time",
        }
    }
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Wall => "its time was over",
            Self::Idle => "it was idle for too long",
            Self::TimekeeperLost => "the process that keeps its time was killed",
        };
        write!(f, "{words} ({})", self.field())
    }
}

/// The state of a container's clock, as its file has it. The runtime writes the deadline, the timekeepers the rest.
///
/// ```text
/// 00000000000000123456\n   milliseconds of the plan's clock
/// -\n                      running, or the byte of the cause
/// 00000000000000120000\n   since when it is idle; only with time.idle
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockState {
    /// When SIGTERM is due, in milliseconds of the plan's clock; without `time.wall` never.
    pub deadline: u64,
    /// Why it was ended, if it was.
    pub cause: Option<EndCause>,
    /// The last activity, if the plan has `time.idle`.
    pub idle_since: Option<u64>,
}

impl ClockState {
    /// The bytes of the longest file.
    pub const LENGTH: usize = Self::IDLE_AT + Self::DIGITS + 1;
    /// Where the cause is.
    pub const CAUSE_AT: usize = Self::DIGITS + 1;
    /// Where the last activity is.
    pub const IDLE_AT: usize = Self::CAUSE_AT + 2;
    /// The byte of a container that was not ended.
    pub const RUNNING: u8 = b'-';
    /// Every `u64` fits.
    const DIGITS: usize = 20;

    /// A time as the file has it.
    pub fn time_text(time: u64) -> String {
        format!("{time:0width$}", width = Self::DIGITS)
    }

    /// The file's content.
    pub fn to_text(self) -> String {
        let cause = self.cause.map_or(Self::RUNNING, EndCause::byte);
        let deadline = Self::time_text(self.deadline);
        let idle = self.idle_since.map(|since| Self::time_text(since) + "\n");
        format!(
            "{deadline}\n{}\n{}",
            char::from(cause),
            idle.unwrap_or_default()
        )
    }

    /// Reads the file's content; `None` if it is no such file's.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (deadline, rest) = Self::time(text)?;
        let (cause, rest) = match rest {
            [Self::RUNNING, b'\n', rest @ ..] => (None, rest),
            [byte, b'\n', rest @ ..] => {
                let cause = EndCause::ALL.into_iter().find(|one| one.byte() == *byte)?;
                (Some(cause), rest)
            }
            _ => return None,
        };
        let idle_since = match rest {
            [] => None,
            rest => {
                let (since, end) = Self::time(rest)?;
                Some(end.is_empty().then_some(since)?)
            }
        };
        Some(Self {
            deadline,
            cause,
            idle_since,
        })
    }

    /// A line with a time, and the rest.
    fn time(text: &[u8]) -> Option<(u64, &[u8])> {
        let (digits, rest) = text.split_at_checked(Self::DIGITS)?;
        let rest = rest.strip_prefix(b"\n")?;
        let is_number = digits.iter().all(u8::is_ascii_digit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
        Some((digits.parse().ok()?, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_as_it_was_written() {
        let causes = EndCause::ALL.map(Some).into_iter().chain([None]);
        let times = [0, 123_456, u64::MAX, 7];
        for (cause, deadline) in causes.zip(times) {
            for idle_since in [None, Some(0), Some(u64::MAX)] {
                let state = ClockState {
                    deadline,
                    cause,
                    idle_since,
                };
                let text = state.to_text();
                assert_eq!(ClockState::parse(text.as_bytes()), Some(state));
                assert!(text.len() <= ClockState::LENGTH);
            }
        }
        let good = ClockState {
            deadline: 7,
            cause: None,
            idle_since: Some(5),
        }
        .to_text();
        for bad in [
            String::new(),
            good.replace('-', "x"),
            good.replace('7', "+"),
            good.replace('5', "+"),
            good.replace('\n', " "),
            good.trim_end().to_owned(),
            format!("{good}\n"),
            "99999999999999999999\n-\n".to_owned(),
        ] {
            assert_eq!(ClockState::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
