//! PURE. Probes and their findings.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::promise::Promise;
use crate::cgroup::controllers::Controllers;
use crate::enforce::WallKind as Enforced;
use crate::plan::Plan;

/// A wall as `verify` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbedWall {
    /// The inner network namespace, and the decision about names.
    Network,
    /// The filter.
    Syscalls,
    /// Capabilities, no_new_privs, set-user-ID modes.
    Privileges,
    /// Mounts, masks, devices.
    Files,
    /// Namespaces, descriptors, terminals, core files.
    Processes,
    /// Limits of the cgroup.
    Resources,
}

impl ProbedWall {
    /// All of them, in the order of the report.
    pub const ALL: [Self; 6] = [
        Self::Network,
        Self::Syscalls,
        Self::Privileges,
        Self::Files,
        Self::Processes,
        Self::Resources,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Syscalls => "system calls",
            Self::Privileges => "privileges",
            Self::Files => "files",
            Self::Processes => "processes",
            Self::Resources => "resources",
        }
    }
}

impl From<Enforced> for ProbedWall {
    fn from(wall: Enforced) -> Self {
        match wall {
            Enforced::Files => Self::Files,
            Enforced::Network => Self::Network,
            Enforced::Syscalls => Self::Syscalls,
            Enforced::Privileges => Self::Privileges,
        }
    }
}

/// An attack, and how it is tried.
pub struct Probe {
    /// Its name in `--json`; never changed.
    pub id: &'static str,
    /// The wall that it attacks.
    pub wall: ProbedWall,
    /// Its numbers in docs/threats.md.
    pub threats: &'static [&'static str],
    /// The attempt, in words.
    pub tried: &'static str,
    /// The answer of a wall that holds.
    pub expected: &'static str,
    /// The meaning of any other answer.
    pub means: &'static str,
    /// The remedy in that case.
    pub remedy: &'static str,
    /// Whether the policy promises it.
    pub promised: fn(&Promise) -> bool,
    /// The attempt.
    pub attempt: Attempt,
}

/// How an attack is tried.
#[derive(Clone, Copy)]
pub enum Attempt {
    /// In a child of the probing process, by a function that returns a finding.
    Finds(fn(&Promise) -> Finding),
    /// The same, but a wall that holds kills the child with SIGSYS.
    Dies(fn() -> Finding),
    /// By the verifying process on the node, from the kernel's files about the container.
    Read(fn(&ContainerView<'_>) -> Finding),
}

/// A container as the node sees it.
pub struct ContainerView<'a> {
    /// The pid of the process inside on the node; `None` if none could be started.
    pub pid: Option<i32>,
    /// The container's init process.
    pub init: i32,
    /// The directories of its cgroup.
    pub controllers: &'a Controllers,
    /// The promises.
    pub promise: &'a Promise,
    /// The plan; `None` under `unconfined`.
    pub plan: Option<&'a Plan>,
    /// The file of the filter that exec processes load.
    pub filter: &'a Path,
    /// The file with the init process's mounts at the start.
    pub mounts: &'a Path,
    /// The node's other containers.
    pub others: &'a dyn Fn() -> HelperProcesses,
}

/// Processes of other containers, and sidecars, that a container may share namespaces with.
#[derive(Debug, Default)]
pub struct HelperProcesses {
    /// The cgroups of the other containers.
    pub cgroups: Vec<Controllers>,
    /// The sidecars of all containers. One may be in another container's network, with its own walls.
    pub sidecars: BTreeSet<i32>,
}

/// The most faults that a finding names.
const MOST_FAULTS: usize = 8;

/// The outcome of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The wall holds.
    Held,
    /// The attack succeeded, or something other than the wall stopped it.
    NotHeld,
    /// It could not be tried.
    NotTried,
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The outcome.
    pub outcome: Outcome,
    /// The observation, in words.
    pub saw: String,
}

impl Finding {
    /// The wall holds.
    pub fn held(saw: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Held,
            saw: saw.into(),
        }
    }

    /// The wall does not hold.
    pub fn not_held(saw: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::NotHeld,
            saw: saw.into(),
        }
    }

    /// The attack could not be tried, for this reason.
    pub fn not_tried(saw: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::NotTried,
            saw: saw.into(),
        }
    }

    /// Held, unless there are faults.
    pub fn of_faults(faults: &[String], held: impl Into<String>) -> Self {
        match faults {
            [] => Self::held(held),
            _ => Self::not_held(some_of(faults)),
        }
    }

    /// Of several attempts: not held if any was not, and held if all were.
    pub fn of_all(all: impl IntoIterator<Item = Self>, held: impl Into<String>) -> Self {
        let (mut faults, mut untried) = (Vec::new(), Vec::new());
        for one in all {
            match one.outcome {
                Outcome::Held => {}
                Outcome::NotHeld => faults.push(one.saw),
                Outcome::NotTried => untried.push(one.saw),
            }
        }
        match (faults.is_empty(), untried.is_empty()) {
            (true, true) => Self::held(held),
            (true, false) => Self::not_tried(some_of(&untried)),
            (false, _) => Self::not_held(some_of(&faults)),
        }
    }
}

/// The first ones, and the number of the others.
fn some_of(all: &[String]) -> String {
    let mut words: Vec<String> = all.iter().take(MOST_FAULTS).cloned().collect();
    match all.len().saturating_sub(MOST_FAULTS) {
        0 => {}
        more => words.push(format!("and {more} more")),
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_attempts_held_if_each_did() {
        let of = |all: &[Finding]| Finding::of_all(all.to_vec(), "all").outcome;
        let (held, not_held, not_tried) = (
            Finding::held("a"),
            Finding::not_held("b"),
            Finding::not_tried("c"),
        );
        assert_eq!(of(&[held.clone(), held.clone()]), Outcome::Held);
        assert_eq!(of(&[held.clone(), not_tried.clone()]), Outcome::NotTried);
        assert_eq!(of(&[not_tried, not_held, held]), Outcome::NotHeld);
    }
}
