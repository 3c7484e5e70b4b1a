//! Turns facts into lines. Pure, so that a test can describe any node.

use super::facts::{DoctorFacts, FreeSpace, OrdinaryUser, SpaceUse};
use super::{Check, CheckState, Purpose, judge_engines};
use crate::plan::KernelNeed;
use crate::plan::wrap_plan::WrapEnforcement;
use crate::wrap;

const ALL: &[Purpose] = &[Purpose::Wrap, Purpose::Landlock, Purpose::Engines];
const NAMESPACES: &[Purpose] = &[Purpose::Wrap, Purpose::Engines];
const WRAP: &[Purpose] = &[Purpose::Wrap];
const BY_WRAP: &[Purpose] = &[Purpose::Wrap, Purpose::Landlock];
const LANDLOCK: &[Purpose] = &[Purpose::Landlock];
pub(super) const ENGINES: &[Purpose] = &[Purpose::Engines];

/// With less free space than this a log or a record may fail soon; 64 MiB is a guess.
const LITTLE_SPACE: u64 = 64 << 20;

/// Every check of this node, in the order in which to fix them.
pub fn checks(facts: &DoctorFacts) -> Vec<Check> {
    let mut all = kernel(facts);
    all.extend(facts.ordinary.iter().map(user_namespaces));
    all.extend(container(facts));
    all.push(landlock_walls(facts));
    all.push(cgroups(facts));
    all.push(core_files(facts));
    all.push(scratch(facts));
    all.push(node_file(facts));
    all.extend(policies(facts));
    all.push(records(facts));
    all.push(logs(facts));
    all.extend(facts.space.iter().map(|found| space(found, facts)));
    all.push(clock(facts));
    all.push(program(facts));
    all.extend(judge_engines::checks(facts));
    all
}

pub(super) fn ok(
    name: &'static str,
    needed_for: &'static [Purpose],
    found: impl Into<String>,
) -> Check {
    Check {
        name,
        state: CheckState::Ok,
        needed_for,
        found: found.into(),
        remedy: None,
    }
}

impl Check {
    pub(super) fn lacking(self, state: CheckState, remedy: impl Into<String>) -> Self {
        Self {
            state,
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// A line for each need in [`crate::plan::HostFacts::lacks`].
fn kernel(facts: &DoctorFacts) -> Vec<Check> {
    let host = &facts.host;
    let lacks = host.lacks(WrapEnforcement::Mounts);
    // Outside of a user namespace an ordinary user cannot try a file system.
    let unasked = matches!(&facts.ordinary, Some(user) if user.namespace.is_err());
    let rows = [
        (
            KernelNeed::Version,
            "kernel",
            ALL,
            format!("Linux {}", host.release),
        ),
        (
            KernelNeed::Seccomp,
            "seccomp",
            ALL,
            "filters and their listeners".to_owned(),
        ),
        (
            KernelNeed::Landlock,
            "landlock",
            ALL,
            format!("ABI {}", host.landlock_abi),
        ),
        (
            KernelNeed::Overlay,
            "overlay",
            NAMESPACES,
            "supported by the kernel".to_owned(),
        ),
    ];
    rows.into_iter()
        .map(
            |(need, name, needed_for, found)| match lacks.contains(&need) {
                true if need == KernelNeed::Overlay && unasked => ok(name, needed_for, "unknown")
                    .lacking(
                        CheckState::Warning,
                        "unknown: the check needs a user namespace, which this machine denies",
                    ),
                true => ok(
                    name,
                    needed_for,
                    format!("Linux {} does not support it", host.release),
                )
                .lacking(
                    CheckState::Missing,
                    format!("use a kernel with {}", need.as_str()),
                ),
                false => ok(name, needed_for, found),
            },
        )
        .collect()
}

fn user_namespaces(user: &OrdinaryUser) -> Check {
    let name = "user-namespaces";
    match &user.namespace {
        Ok(()) => ok(name, WRAP, "created, with capabilities in it"),
        Err(why) => ok(name, WRAP, "refused").lacking(CheckState::Missing, why.clone()),
    }
}

/// A container around this program.
fn container(facts: &DoctorFacts) -> Option<Check> {
    let obstacle = facts.obstacle.as_ref()?;
    let check = ok("container", writers(facts), obstacle.to_string());
    Some(check.lacking(CheckState::Missing, obstacle.remedy()))
}

fn landlock_walls(facts: &DoctorFacts) -> Check {
    let abi = facts.host.landlock_abi;
    let check = ok("landlock-walls", LANDLOCK, format!("Landlock ABI {abi}"));
    match abi {
        _ if abi < wrap::LANDLOCK_LEAST_ABI => check.lacking(
            CheckState::Missing,
            format!(
                "`wrap --walls landlock` needs ABI {} (Linux 6.7)",
                wrap::LANDLOCK_LEAST_ABI
            ),
        ),
        _ if abi < wrap::LANDLOCK_SCOPES_ABI => check.lacking(
            CheckState::Warning,
            format!(
                "with `wrap --walls landlock` the command can signal your other processes; ABI {} (Linux 6.12) denies it",
                wrap::LANDLOCK_SCOPES_ABI
            ),
        ),
        _ => check,
    }
}

fn cgroups(facts: &DoctorFacts) -> Check {
    let name = "cgroups";
    if let Some(user) = &facts.ordinary {
        return match &user.no_cgroup {
            None => ok(name, WRAP, "version 2, with one of yours"),
            Some(why) => ok(name, WRAP, why.clone()).lacking(
                CheckState::Warning,
                match facts.user {
                    0 => "`wrap` limits no memory, processors or processes: user 0 lacks CAP_SYS_ADMIN here",
                    _ => "`wrap` limits no memory, processors or processes: use cgroup v2 and a login session of systemd, or sudo",
                },
            ),
        };
    }
    let has = &facts.host.controllers;
    let lacks: Vec<&str> = ["pids", "memory", "cpu"]
        .into_iter()
        .filter(|name| !has.contains(*name))
        .collect();
    let found: Vec<&str> = has.iter().map(String::as_str).collect();
    let check = ok(
        name,
        NAMESPACES,
        format!("controllers: {}", found.join(" ")),
    );
    // Every built-in policy limits processes.
    let state = match lacks.contains(&"pids") {
        true => CheckState::Missing,
        false => CheckState::Warning,
    };
    match lacks.is_empty() {
        true => check,
        false => check.lacking(
            state,
            format!(
                "policies with limits on {} are refused: enable the controllers (cgroup.subtree_control, or the kernel's command line)",
                lacks.join(", ")
            ),
        ),
    }
}

fn core_files(facts: &DoctorFacts) -> Check {
    let name = "core-files";
    let permitted = facts.node.1.as_ref().is_ok_and(|node| node.core_socket);
    if facts.host.core_socket && !permitted {
        return ok(name, ALL, "kernel.core_pattern is a socket, which gets every crash").lacking(
            CheckState::Missing,
            "make it a file or a pipe, or set `core-socket = true` under [allow] of the node's file",
        );
    }
    let zero = || ok(name, ENGINES, "the hard limit is 0 and cannot be raised");
    match (facts.host.core_bytes, &facts.ordinary) {
        (0, Some(_)) => zero().lacking(
            CheckState::Warning,
            "with a piped kernel.core_pattern a crash in `wrap` starts the node's helper, as it does without wrap",
        ),
        (0, None) => zero().lacking(
            CheckState::Missing,
            "start the engine with a hard core limit of 1 or more (LimitCORE=, ulimit -Hc)",
        ),
        _ => ok(name, ENGINES, "no crash reaches the node's handler"),
    }
}

fn scratch(facts: &DoctorFacts) -> Check {
    let name = "loop-devices";
    match (&facts.host.no_disk, &facts.ordinary) {
        (None, _) => ok(name, NAMESPACES, "scratch is on a disk"),
        (Some(_), Some(_)) => ok(name, WRAP, "not used without root: scratch is in memory"),
        (Some(why), None) => ok(name, NAMESPACES, why.clone()).lacking(
            CheckState::Warning,
            "scratch is in memory, within the container's limit; policies with filesystem.scratch-on = \"disk\" are refused",
        ),
    }
}

fn node_file(facts: &DoctorFacts) -> Check {
    let name = "node-file";
    let (path, read) = &facts.node;
    match read {
        Err(why) => {
            let consequence = format!("{path:?}: containers and wrap are refused");
            ok(name, ALL, consequence).lacking(CheckState::Missing, why.clone())
        }
        Ok(node) if !node.misnamed.is_empty() => ok(name, ALL, format!("{path:?} is read"))
            .lacking(
                CheckState::Warning,
                format!("not read: {}", node.misnamed.join("; ")),
            ),
        Ok(_) => ok(name, ALL, format!("{path:?}: only root can change it")),
    }
}

/// The policies without options and annotations. A node file that is refused has its own line.
fn policies(facts: &DoctorFacts) -> Vec<Check> {
    if facts.node.1.is_err() {
        return Vec::new();
    }
    let line = |name, needed_for, policy: Result<Option<&String>, &String>| {
        match policy {
        Ok(Some(policy)) => ok(name, needed_for, policy.clone()),
        Ok(None) => ok(name, needed_for, "unconfined").lacking(
            CheckState::Warning,
            "containers without the annotation dev.agentbox.policy have no walls: set `default` in the node's file",
        ),
        Err(why) => ok(name, needed_for, "none can be selected without options")
            .lacking(CheckState::Missing, why.clone()),
    }
    };
    let mut lines = vec![line(
        "policy",
        BY_WRAP,
        facts.wrap_policy.as_ref().map(Some),
    )];
    if facts.ordinary.is_none() {
        let policy = facts.engine_policy.as_ref().map(Option::as_ref);
        lines.push(line("engine-policy", ENGINES, policy));
    }
    lines
}

/// Who writes into the caller's directories: engines only write into root's.
fn writers(facts: &DoctorFacts) -> &'static [Purpose] {
    match facts.ordinary {
        Some(_) => WRAP,
        None => NAMESPACES,
    }
}

fn records(facts: &DoctorFacts) -> Check {
    let name = "records";
    // Every verb checks it first, even `wrap --walls landlock`.
    let needed_for = match facts.ordinary {
        Some(_) => BY_WRAP,
        None => ALL,
    };
    match &facts.records {
        Ok(path) => ok(name, needed_for, format!("{path:?}")),
        Err(why) => ok(name, needed_for, "the directory is not used")
            .lacking(CheckState::Missing, why.clone()),
    }
}

/// The severity of a log that cannot be kept.
fn no_log(facts: &DoctorFacts) -> CheckState {
    match &facts.node.1 {
        Ok(node) if node.log_required => CheckState::Missing,
        Ok(_) | Err(_) => CheckState::Warning,
    }
}

fn logs(facts: &DoctorFacts) -> Check {
    let (name, needed_for) = ("logs", writers(facts));
    match &facts.logs {
        Ok(logs) if logs.is_made => ok(name, needed_for, format!("{:?}", logs.path)),
        Ok(logs) => {
            let found = format!(
                "{:?} does not exist yet: the first run creates it",
                logs.path
            );
            ok(name, needed_for, found)
        }
        Err(why) => {
            let found = match no_log(facts) {
                CheckState::Missing => "not kept, but the node's file requires logs ([log])",
                CheckState::Ok | CheckState::Warning => "deleted with their sandboxes",
            };
            ok(name, needed_for, found).lacking(no_log(facts), why.clone())
        }
    }
}

fn space(space: &FreeSpace, facts: &DoctorFacts) -> Check {
    let (name, needed_for) = ("space", writers(facts));
    let FreeSpace {
        used_for,
        path,
        bytes,
    } = space;
    let (what, full) = match used_for {
        SpaceUse::Records => ("records of running sandboxes", CheckState::Missing),
        SpaceUse::Logs => ("logs", no_log(facts)),
    };
    match bytes {
        Err(why) => ok(name, needed_for, format!("{what}, {path:?}: {why}")).lacking(
            CheckState::Warning,
            "check that file system (df PATH, dmesg)",
        ),
        Ok(bytes) => {
            let check = ok(
                name,
                needed_for,
                format!("{what}, {path:?}: {} MiB free", bytes >> 20),
            );
            match *bytes {
                0 => check.lacking(full, "free some space on that file system"),
                1..LITTLE_SPACE => {
                    check.lacking(CheckState::Warning, "free some space on that file system")
                }
                _ => check,
            }
        }
    }
}

fn clock(facts: &DoctorFacts) -> Check {
    let name = "clock";
    match facts.clock.now < facts.clock.program {
        true => ok(name, ALL, "it is earlier than this program's build date").lacking(
            CheckState::Warning,
            "set the clock: TLS fails, and times in logs and receipts are wrong",
        ),
        false => ok(name, ALL, "later than this program's build date"),
    }
}

fn program(facts: &DoctorFacts) -> Check {
    let name = "program";
    let (path, closed) = &facts.program;
    let check = ok(name, ENGINES, format!("{path:?}"));
    match closed {
        true => check,
        false => check.lacking(
            CheckState::Warning,
            "other users can change it, and engines run it as root: register an installed program (`agentbox install`)",
        ),
    }
}
