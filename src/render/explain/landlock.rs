//! PURE. The walls of `wrap --walls landlock` as text, from the rules that the kernel gets. Much of the plan needs a
//! mount or a namespace, and does not apply here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::page::{Page, path};
use super::{changed_calls, network, time};
use crate::plan::process::core_words;
use crate::plan::{DecidedPlan, NetworkPlan, OmittedMount, SyscallPlan, TimePlan, Warning, text};
use crate::policy::{NetworkMode, Policy};
use crate::rules::ClockReading;
use crate::text::escape;

/// The walls by Landlock.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LandlockWalls {
    /// The kernel's Landlock ABI.
    pub abi: u32,
    /// Their policy.
    pub policy: Policy,
    /// The origin of each of its values.
    pub origins: BTreeMap<String, String>,
    /// All paths that can be opened.
    pub opened: Vec<LandlockPath>,
    /// Variables with a directory of the run, which is writable and removed afterwards.
    pub directories_of_the_run: Vec<String>,
    /// Requested mounts that are omitted.
    pub not_shown: Vec<OmittedMount>,
    /// The network's mode.
    pub mode: NetworkMode,
    /// The system calls that the policy adds and removes.
    pub syscalls: SyscallPlan,
    /// The command's capabilities.
    pub capabilities: Vec<String>,
    /// The limit of core files. 0 if the caller's hard limit is 0; a crash then still starts the node's core program.
    pub core_bytes: u64,
    /// Other requests that are not granted.
    pub not_given: Vec<String>,
    /// When the command ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimePlan>,
    /// The ends of rules and secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expires: Vec<String>,
    /// What is weaker than a reader may expect.
    pub warnings: Vec<String>,
    /// What these walls lack compared with namespaces.
    pub lacks: Vec<String>,
    /// The proxy's configuration.
    #[serde(skip)]
    network: NetworkPlan,
}

/// A file, or a directory with everything below it, that a Landlock rule allows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LandlockPath {
    /// Its path.
    #[serde(with = "text::one")]
    pub path: PathBuf,
    /// The allowed access.
    pub access: String,
    /// The reason.
    pub why: String,
    /// Whether it is on `wrap`'s list of what programs need.
    #[serde(skip)]
    pub is_listed: bool,
}

impl LandlockWalls {
    /// The walls from a plan; the caller adds the paths from the Landlock rules.
    pub fn of(decided: &DecidedPlan, abi: u32) -> Self {
        let plan = &decided.plan;
        Self {
            abi,
            policy: decided.policy(),
            origins: decided.origins.clone(),
            opened: Vec::new(),
            directories_of_the_run: Vec::new(),
            not_shown: plan.filesystem.pruned.clone(),
            mode: plan.network.mode,
            syscalls: plan.syscalls.clone(),
            capabilities: Vec::new(),
            core_bytes: plan.core_bytes,
            time: plan.time,
            not_given: plan.not_given.iter().map(ToString::to_string).collect(),
            // Nothing is thrown away here, so no disk is missed.
            warnings: plan
                .warnings
                .iter()
                .filter(|warning| !matches!(warning, Warning::InMemory { .. }))
                .map(ToString::to_string)
                .collect(),
            lacks: Vec::new(),
            expires: Vec::new(),
            network: NetworkPlan {
                // Nothing is kept after the run.
                ..plan.network.clone()
            },
        }
    }

    /// As at this time: without the rules whose time is over, and with what is left of others.
    pub fn expire(&mut self, now: ClockReading) {
        self.network.rules.expire(now);
        self.expires = time::expiries(&self.network, Some(now));
    }
}

pub(super) fn explain(page: &mut Page, walls: &LandlockWalls, filter: Option<&str>) {
    let abi = walls.abi;
    let of = match walls.mode {
        NetworkMode::None => " and a filter of system calls",
        NetworkMode::Local | NetworkMode::Allowlist => ", a filter of system calls and a proxy",
    };
    page.head(
        "walls",
        format_args!("Landlock (ABI {abi}){of}; what they lack beside those of namespaces:"),
    );
    for lack in &walls.lacks {
        page.item(escape(lack));
    }
    files(page, walls);
    network(page, walls);
    page.head(
        "syscalls",
        "agentbox's base rules and those for `--walls landlock`, the stricter verdict of both",
    );
    changed_calls(page, &walls.syscalls, filter);
    page.head(
        "privileges",
        format_args!(
            "no_new_privs; set-user-ID programs have no effect; {}",
            core_words(walls.core_bytes)
        ),
    );
    let capabilities = match walls.capabilities.is_empty() {
        true => "none".to_owned(),
        false => walls.capabilities.join(" "),
    };
    page.item(format_args!("capabilities: {capabilities}"));
    page.item("namespaces: the caller's");
    page.head("limits", "none holds");
    time::explain(page, walls.time);
    for line in &walls.expires {
        page.head("expires", line);
    }
    for thing in &walls.not_given {
        page.head("not given", escape(thing));
    }
    for warning in &walls.warnings {
        page.head("warning", escape(warning));
    }
}

/// A screen names paths with the same access and reason one by one up to this number.
const FEW_PATHS: usize = 2;

/// The paths by access and reason, in the order of their first.
fn alike(walls: &LandlockWalls) -> Vec<Vec<&LandlockPath>> {
    let mut groups: Vec<Vec<&LandlockPath>> = Vec::new();
    for opened in &walls.opened {
        // Paths that can be written, or were named, are never folded.
        let same = |group: &&mut Vec<&LandlockPath>| {
            let first = group.first();
            let alike = |one: &&&LandlockPath| one.is_listed && one.access == opened.access;
            opened.is_listed && first.is_some_and(|one| alike(&one))
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(opened),
            None => groups.push(vec![opened]),
        }
    }
    groups
}

fn files(page: &mut Page, walls: &LandlockWalls) {
    page.head(
        "files",
        "rules of Landlock on the node's own paths; every other path is refused",
    );
    for alike in alike(walls) {
        let [first, ..] = alike[..] else { continue };
        let (access, why) = (&first.access, &first.why);
        if page.is_whole() || alike.len() <= FEW_PATHS {
            for opened in alike {
                let place = path(&opened.path);
                page.item(format_args!("{place}  {access}: {why}"));
            }
        } else {
            let all = alike.iter().map(|opened| opened.path.as_path());
            let places = page.list(all, &["/etc"]);
            page.item(format_args!("{places}  {access}: {why}"));
        }
    }
    let own = walls.directories_of_the_run.join(", ");
    page.item(format_args!(
        "{own}  read, write, execute: directories of the run, removed afterwards"
    ));
    for pruned in &walls.not_shown {
        let (place, why) = (path(&pruned.destination), escape(&pruned.why));
        page.item(format_args!("{place}  refused: {why}"));
    }
}

fn network(page: &mut Page, walls: &LandlockWalls) {
    let mode = match walls.mode {
        NetworkMode::None => "only pairs of UNIX stream sockets can be opened",
        NetworkMode::Local => {
            "local: TCP sockets over IPv4, bound to the loopback interface, connect only to the ports of --connect, of --publish and of the proxy, which refuses every host"
        }
        NetworkMode::Allowlist => {
            "allowlist: TCP sockets over IPv4, bound to the loopback interface, connect only to the ports of --connect, of --publish and of the proxy, which reaches"
        }
    };
    page.head("network", mode);
    if walls.mode == NetworkMode::Allowlist {
        network::reached(page, &walls.network);
        network::budget(page, &walls.network);
        network::ways(page, &walls.network);
    }
    for port in &walls.network.inbound {
        page.item(format_args!(
            "published: the command can serve at 127.0.0.1:{port} of this machine, and connect to port {port}"
        ));
    }
    for (port, target) in &walls.network.connect {
        page.item(network::service(*port, target));
    }
}
