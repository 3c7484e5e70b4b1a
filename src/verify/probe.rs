//! PURE. What a probe is, and what it finds.

use serde::{Deserialize, Serialize};

use super::promise::Promise;
use crate::cgroup::controllers::Controllers;
use crate::enforce::Wall as Enforced;

/// A wall as people read of it in `verify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wall {
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

impl Wall {
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

impl From<Enforced> for Wall {
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
    /// The wall that stands in its way.
    pub wall: Wall,
    /// Its numbers in docs/threats.md.
    pub threats: &'static [&'static str],
    /// What is tried, in words.
    pub tried: &'static str,
    /// What a standing wall answers.
    pub expected: &'static str,
    /// What it means if that is not the answer.
    pub means: &'static str,
    /// What to do then.
    pub remedy: &'static str,
    /// Whether the policy promises it.
    pub promised: fn(&Promise) -> bool,
    /// The attempt.
    pub attempt: Attempt,
}

/// How an attack is tried.
#[derive(Clone, Copy)]
pub enum Attempt {
    /// In a child of the probing process, by a function that says what it found.
    Finds(fn(&Promise) -> Finding),
    /// Likewise; a standing wall kills the child with SIGSYS.
    Dies(fn() -> Finding),
    /// By the verifying process on the node, from the kernel's own files about the container.
    Read(fn(&View<'_>) -> Finding),
}

/// A container as the node sees it.
pub struct View<'a> {
    /// The process inside, by its number on the node.
    pub pid: i32,
    /// The container's first process.
    pub init: i32,
    /// The directories of its cgroup.
    pub controllers: &'a Controllers,
    /// What was promised.
    pub promise: &'a Promise,
}

/// Faults that a finding names.
const MOST_FAULTS: usize = 8;

/// How an attack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The wall stands.
    Held,
    /// The attack succeeded, or something other than the wall stopped it.
    NotHeld,
    /// It could not be tried.
    NotTried,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// How it ended.
    pub outcome: Outcome,
    /// What was seen, in words.
    pub saw: String,
}

impl Finding {
    /// The wall stands.
    pub fn held(saw: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::Held,
            saw: saw.into(),
        }
    }

    /// It does not.
    pub fn not_held(saw: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::NotHeld,
            saw: saw.into(),
        }
    }

    /// It could not be tried, for this reason.
    pub fn not_tried(saw: impl Into<String>) -> Self {
        Self {
            outcome: Outcome::NotTried,
            saw: saw.into(),
        }
    }

    /// Held unless something was found that should not be there.
    pub fn of_faults(faults: &[String], held: impl Into<String>) -> Self {
        let named = faults.iter().take(MOST_FAULTS).cloned();
        let mut words: Vec<String> = named.collect();
        match faults.len().saturating_sub(MOST_FAULTS) {
            0 => {}
            more => words.push(format!("and {more} more")),
        }
        match faults {
            [] => Self::held(held),
            _ => Self::not_held(words.join("; ")),
        }
    }
}
