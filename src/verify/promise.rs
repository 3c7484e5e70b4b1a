//! PURE. The walls that a plan promises, in the form that probes need. It never says that a wall stands.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use oci_spec::runtime::LinuxNamespaceType;
use serde::{Deserialize, Serialize};

use crate::egress::tried::{
    HTTP, HTTPS, KNOWN_NAME, METADATA_ADDRESS, NOBODYS_ADDRESS, NOBODYS_ADDRESS_6,
};
use crate::plan::{LimitsPlan, Plan};
use crate::policy::{Capability, NetworkMode, RootAccess, Switch, SyscallProfile};
use crate::rules::{Decision, Host};

/// The promise for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// The walls; `None` under `unconfined`.
    pub walls: Option<PromisedWalls>,
    /// The node's namespaces: the kernel's name of their kind (`pid`), and the text of their link.
    pub node: BTreeMap<String, String>,
    /// Descriptors above 2 that the program inside started with. It lists them before it opens any.
    #[serde(default)]
    pub inherited: Vec<i32>,
    /// Why no network attempts are made that the sidecar would log.
    #[serde(default)]
    pub untried_network: Option<String>,
}

/// The walls of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromisedWalls {
    /// The most capabilities that a process may have.
    pub capabilities: BTreeSet<Capability>,
    /// System calls that the policy adds.
    pub calls: BTreeSet<String>,
    /// Set-user-ID modes are refused.
    pub set_id_refused: bool,
    /// The profile `paranoid` applies.
    #[serde(default)]
    pub paranoid: bool,
    /// The root file system is read-only.
    pub root_read_only: bool,
    /// Masked paths.
    pub masked: BTreeSet<PathBuf>,
    /// Read-only paths.
    pub readonly: BTreeSet<PathBuf>,
    /// Device nodes beyond the usual ones.
    pub devices: BTreeSet<PathBuf>,
    /// Hosts of the probes that the policy allows.
    pub reached: BTreeSet<String>,
    /// The stub that answers for names; `None` if no name is resolved.
    #[serde(default)]
    pub name_server: Option<Ipv4Addr>,
    /// Unlisted hosts wait for approval.
    pub asks: bool,
    /// Namespaces that differ from the node's, by the kernel's name.
    pub namespaces: BTreeSet<String>,
    /// Its processes are in a cgroup of its own.
    #[serde(default)]
    pub own_cgroup: bool,
    /// The kernel refuses device nodes by the cgroup's rules.
    #[serde(default)]
    pub device_rules: bool,
    /// A crash starts no core program of the node.
    #[serde(default)]
    pub crashes_kept: bool,
    /// Limits of the cgroup.
    pub limits: LimitsPlan,
    /// The hash of the filter; `None` for an old container without a record of it.
    #[serde(default)]
    pub filter: Option<String>,
}

impl Promise {
    /// Whether the policy's walls promise this.
    pub fn has(&self, what: impl FnOnce(&PromisedWalls) -> bool) -> bool {
        self.walls.as_ref().is_some_and(what)
    }
}

impl PromisedWalls {
    /// The promise of a plan.
    pub fn of(plan: &Plan) -> Self {
        // No `..`: a new field of the plan does not compile until someone decides which probe tries it.
        let Plan {
            filesystem,
            network,
            syscalls,
            capabilities: _,
            capability_limit,
            namespaces,
            devices,
            limits,
            // Permissions, omissions and texts.
            leave: _,
            ceilings: _,
            not_given: _,
            warnings: _,
            // A process outside of the container; integration/sidecar.rs tries its walls.
            sidecar: _,
            core_bytes,
            // Kept by processes outside of the container; integration/clock.rs tries them.
            time: _,
            exec_time: _,
            // No wall.
            report: _,
        } = plan;
        let reached = [
            (NOBODYS_ADDRESS, HTTPS),
            (NOBODYS_ADDRESS_6, HTTPS),
            (METADATA_ADDRESS, HTTP),
            (KNOWN_NAME, HTTPS),
        ];
        let is_reached = |(host, port): &(&str, u16)| {
            let Ok(host) = host.parse::<Host>() else {
                return false;
            };
            let decision = network.rules.decide(&host, *port);
            network.mode == NetworkMode::Allowlist && matches!(decision, Decision::Allow(_))
        };
        // Files that stay visible in a masked directory are not part of the mask.
        let seen: BTreeSet<_> = filesystem.seen.iter().map(|s| &s.directory).collect();
        let masked = filesystem.masked.iter().filter(|path| !seen.contains(path));
        let protected = filesystem.protected.iter().map(|one| &one.path);
        let readonly = filesystem.readonly.iter().chain(protected);
        Self {
            capabilities: capability_limit.clone(),
            calls: syscalls
                .allow
                .iter()
                .map(ToString::to_string)
                .chain(syscalls.profile.adds().iter().copied().map(str::to_owned))
                .collect(),
            set_id_refused: syscalls.set_id == Switch::Off,
            paranoid: syscalls.profile == SyscallProfile::Paranoid,
            root_read_only: filesystem.root == RootAccess::ReadOnly,
            masked: masked.cloned().collect(),
            readonly: readonly.cloned().collect(),
            devices: devices.clone(),
            reached: reached
                .iter()
                .filter(|r| is_reached(r))
                .map(|(host, _)| (*host).to_owned())
                .collect(),
            name_server: network.name_server(),
            asks: network.asking.is_some(),
            namespaces: namespaces
                .iter()
                // Its name below /proc/PID/ns.
                .map(|planned| LinuxNamespaceType::from(planned.isolates).to_string())
                // The inner namespace is never the node's, whatever the spec requests.
                .chain(["net".to_owned()])
                .collect(),
            limits: *limits,
            own_cgroup: true,
            device_rules: true,
            crashes_kept: *core_bytes != 0,
            // The record has it.
            filter: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_promises_only_its_walls() {
        let mut plan = crate::plan::tests::sample();
        plan.network.mode = NetworkMode::Allowlist;
        plan.network.rules.allow = ["example.com".parse().unwrap()].into();
        let walls = PromisedWalls::of(&plan);
        assert_eq!(walls.reached, [KNOWN_NAME.to_owned()].into());
        assert!(walls.namespaces.contains("net"));
        plan.network.mode = NetworkMode::None;
        assert!(PromisedWalls::of(&plan).reached.is_empty());
    }
}
