//! PURE. Capabilities and devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Capabilities, Linux, LinuxCapabilities, Process};
use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::facts::BundleFacts;
use super::reason::OmittedItem;
use crate::policy::{Capability, Privileges, ResolvedPolicy, Switch};

/// Device nodes that every container has; libcontainer makes them.
pub const USUAL_DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/console",
    "/dev/ptmx",
];

/// The five capability sets of a process (capabilities(7)), as `CAP_*` names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapabilitySets {
    /// Upper bound of what execve can give.
    pub bounding: BTreeSet<Capability>,
    /// The ones in force.
    pub effective: BTreeSet<Capability>,
    /// What can be made effective.
    pub permitted: BTreeSet<Capability>,
    /// Kept over execve by programs that request it.
    pub inheritable: BTreeSet<Capability>,
    /// Kept over execve by all programs.
    pub ambient: BTreeSet<Capability>,
}

/// A capability in a set that the kernel accepts only with another set (capset(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contradiction {
    /// The capability.
    pub capability: Capability,
    /// The set that contains it.
    pub set: &'static str,
    /// The set that lacks it.
    pub needs: &'static str,
}

impl CapabilitySets {
    /// The sets of a spec; empty sets if it has none (as in runc; libcontainer would keep every one).
    pub fn of(given: Option<&LinuxCapabilities>) -> Self {
        let Some(given) = given else {
            return Self::default();
        };
        let permitted = names(given.permitted().as_ref());
        let inheritable = names(given.inheritable().as_ref());
        // The kernel raises only those in both (capabilities(7)). runc drops the others; `spec` requests some.
        let mut ambient = names(given.ambient().as_ref());
        ambient.retain(|name| permitted.contains(name) && inheritable.contains(name));
        Self {
            bounding: names(given.bounding().as_ref()),
            effective: names(given.effective().as_ref()),
            permitted,
            inheritable,
            ambient,
        }
    }

    /// The first contradiction between two sets.
    pub fn contradiction(&self) -> Option<Contradiction> {
        [
            (&self.effective, &self.permitted, "effective", "permitted"),
            (&self.inheritable, &self.bounding, "inheritable", "bounding"),
        ]
        .into_iter()
        .find_map(|(set, needed, name, needs)| {
            let extra = set.difference(needed).next()?;
            Some(Contradiction {
                capability: *extra,
                set: name,
                needs,
            })
        })
    }

    /// The sets, restricted to `limit`.
    pub fn limited(self, limit: &BTreeSet<Capability>) -> Self {
        let cut = |set: BTreeSet<Capability>| -> BTreeSet<Capability> {
            set.intersection(limit).copied().collect()
        };
        let Self {
            bounding,
            effective,
            permitted,
            inheritable,
            ambient,
        } = self;
        Self {
            bounding: cut(bounding),
            effective: cut(effective),
            permitted: cut(permitted),
            inheritable: cut(inheritable),
            ambient: cut(ambient),
        }
    }
}

fn names(set: Option<&Capabilities>) -> BTreeSet<Capability> {
    let all = set.into_iter().flatten();
    // The specification contains all of the kernel's names.
    all.filter_map(|c| c.to_string().parse().ok()).collect()
}

/// The capabilities that no process of the container may exceed. With `set_id` off CAP_FSETID is dropped: a write then
/// clears the set-user-ID bit of a file, as for any ordinary user.
pub(super) fn limit(policy: &Privileges, set_id: Switch) -> BTreeSet<Capability> {
    let Privileges {
        capabilities,
        // The caller has resolved it to the argument `set_id`.
        set_id: _,
    } = policy;
    let keeps = |one: &Capability| set_id == Switch::On || *one != Capability::FSETID;
    capabilities.iter().copied().filter(keeps).collect()
}

/// Devices beyond the usual eight: only those of the node's file.
///
/// `--privileged` lists every device of the host. These are left out, not refused: the container is to run as one
/// without `--privileged`. A device requested by name (`--device`) is an error. So is a different device under an
/// allowed name: `--device /dev/sda:/dev/kvm`.
pub(super) fn devices(
    resolved: &ResolvedPolicy,
    linux: &Linux,
    bundle: &BundleFacts,
) -> Result<BTreeSet<PathBuf>, PlanError> {
    let asked: Vec<PathBuf> = linux
        .devices()
        .iter()
        .flatten()
        .map(|d| d.path().clone())
        .collect();
    let usual = |path: &PathBuf| USUAL_DEVICES.iter().any(|u| path == &PathBuf::from(u));
    let allowed = |path: &PathBuf| {
        resolved
            .node_allow
            .devices
            .iter()
            .any(|p| path == p.as_ref() as &std::path::Path)
    };
    let extra: Vec<PathBuf> = asked.into_iter().filter(|p| !usual(p)).collect();
    // More than a human would type: an engine's `--privileged`.
    let privileged = extra.len() > 16 || allows_every_device(linux);
    if let Some(path) = extra.iter().find(|p| !allowed(p) && !privileged) {
        return Err(PlanError::Device {
            policy: resolved.policy.name.to_string(),
            path: path.clone(),
        });
    }
    let extra: BTreeSet<PathBuf> = extra.into_iter().filter(allowed).collect();
    match extra.iter().find(|p| !bundle.devices.contains(*p)) {
        Some(other) => Err(PlanError::OtherDevice(other.clone())),
        None => Ok(extra),
    }
}

/// What engines request for every container: the capabilities of Docker and containerd, which include podman's.
const OF_ENGINES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Capabilities that were requested beyond the policy's: the caller's, and those that every engine requests.
pub(super) fn not_given(process: &Process, limit: &BTreeSet<Capability>) -> Vec<OmittedItem> {
    let asked = CapabilitySets::of(process.capabilities().as_ref());
    let missing = asked.bounding.union(&asked.permitted);
    let missing = missing.filter(|one| !limit.contains(*one));
    let mut missing: Vec<&str> = missing.map(|one| one.short_name()).collect();
    missing.sort_unstable();
    let names = missing.into_iter().map(str::to_owned);
    let (engines, callers): (Vec<String>, Vec<String>) =
        names.partition(|one| OF_ENGINES.contains(&one.as_str()));
    let mut items = Vec::new();
    if !callers.is_empty() {
        items.push(OmittedItem::Capabilities { names: callers });
    }
    if !engines.is_empty() {
        items.push(OmittedItem::EngineCapabilities { names: engines });
    }
    items
}

/// Requested devices that are left out: those that `--privileged` lists.
pub(super) fn devices_not_given(linux: &Linux, given: &BTreeSet<PathBuf>) -> Option<OmittedItem> {
    let asked = linux.devices().iter().flatten().map(|d| d.path());
    let usual = |path: &&PathBuf| USUAL_DEVICES.iter().any(|u| path.as_path() == Path::new(u));
    let missing = asked.filter(|p| !usual(p) && !given.contains(*p)).count();
    let every = allows_every_device(linux);
    match (missing, every) {
        (0, false) => None,
        (0, true) => Some(OmittedItem::EveryDevice),
        (count, _) => Some(OmittedItem::Devices { count }),
    }
}

fn allows_every_device(linux: &Linux) -> bool {
    let rules = linux
        .resources()
        .as_ref()
        .and_then(|r| r.devices().as_ref());
    rules.into_iter().flatten().next_back().is_some_and(|d| {
        d.allow()
            && d.major().is_none()
            && d.minor().is_none()
            && d.typ()
                .is_none_or(|t| t == oci_spec::runtime::LinuxDeviceType::A)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::process::to_spec;

    #[test]
    fn every_capability_survives_a_spec() {
        let all: BTreeSet<Capability> = Capability::all().collect();
        let sets = CapabilitySets {
            bounding: all.clone(),
            effective: all.clone(),
            permitted: all.clone(),
            inheritable: all.clone(),
            ambient: all,
        };
        assert_eq!(CapabilitySets::of(Some(&to_spec(&sets))), sets);
    }
    /// Former fault: each run had a denial that no caller had caused.
    #[test]
    fn capabilities_of_every_engine_are_listed_apart_from_the_callers() {
        let sets = |names: &[&str]| -> CapabilitySets {
            let names: BTreeSet<Capability> = names.iter().map(|n| n.parse().unwrap()).collect();
            CapabilitySets {
                bounding: names.clone(),
                permitted: names,
                ..CapabilitySets::default()
            }
        };
        let of = |names: &[&str]| {
            let mut process = Process::default();
            process.set_capabilities(Some(to_spec(&sets(names))));
            not_given(&process, &["CHOWN".parse().unwrap()].into())
        };
        assert_eq!(of(&["CHOWN"]), Vec::new());
        let engines = of(&["CHOWN", "MKNOD", "AUDIT_WRITE"]);
        assert_eq!(engines.len(), 1);
        assert!(engines[0].is_of_every_engine());
        assert!(engines[0].to_string().ends_with(": AUDIT_WRITE, MKNOD"));
        let both = of(&["SYS_ADMIN", "MKNOD"]);
        assert_eq!(both[0].to_string(), "capabilities SYS_ADMIN");
        assert!(!both[0].is_of_every_engine() && both[1].is_of_every_engine());
    }
}
