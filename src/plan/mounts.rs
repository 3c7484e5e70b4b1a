//! PURE. Mount pruning: which of the engine's mounts the container gets, how, and why not.
//!
//! The shell opened and checked the sources once ([`SourceFacts`]). The same inode is compared again after pivot_root,
//! to notice a path that was swapped in between (the subPath class of bugs, CVE-2021-25741). Binds are not recursive:
//! other mounts below a source stay outside.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Mount, Spec};

use super::access::asks_to_write;
use super::ephemeral::{ephemeral, is_plain};
use super::error::PlanError;
use super::facts::BundleFacts;
use super::filesystem::{FilesystemPlan, ScratchStorage, VisibleFiles};
use super::git::Exclude;
use super::mount::PlannedMount;
use super::names::sharers;
use super::never::NeverList;
use super::pod::{pod, pod_role};
use super::reason::{MountReason, OmittedItem};
use super::root::{hold_parents, root};
use super::scratch::most_of_a_tmpfs;
use super::sorted_mounts::{MountRules, MountTarget, SortedMounts};
use super::warning::Warning;
use super::workspace::workspace;
use crate::policy::ResolvedPolicy;

/// Masked in every container under a policy, whatever the engine says (`--privileged` lists nothing): Docker 28's list,
/// and files that show user 0 the whole node's memory without a capability.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/fs/selinux",
];

/// Made read-only in every container under a policy: Docker's list.
const READONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Plans the file system wall.
pub(super) fn plan(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
    warnings: &mut Vec<Warning>,
) -> Result<FilesystemPlan, PlanError> {
    let mut sorted = sort(resolved, spec, bundle, warnings)?;
    let files = &resolved.policy.filesystem;
    let root = root(resolved, spec, bundle, warnings)?;
    let linux = spec.linux().as_ref();
    let overlays = ephemeral(&resolved.policy, root, bundle, &sorted.kept);
    let found_in = sorted.held(&overlays);
    let masked = linux.and_then(|l| l.masked_paths().as_ref());
    // Those of `wrap` are there, and resolved. Of others a mask may cover nothing.
    let hidden = masked.filter(|_| !bundle.wrapped.is_empty());
    let protected = sorted.protected(&overlays, hidden.map_or(&[], Vec::as_slice));
    let excludes = sorted.excludes.into_iter();
    let mut plan = FilesystemPlan {
        root,
        ephemeral: overlays,
        scratch_bytes: files.scratch.bytes(),
        scratch_on: files.scratch_on,
        scratch_place: ScratchStorage::Memory,
        image_below: None,
        workspace: sorted.workspace,
        kept: bundle.wrapped.kept.clone(),
        mounts: sorted.kept,
        pruned: sorted.pruned,
        masked: union(MASKED, masked, &sorted.masked),
        found: sorted.found,
        found_in,
        seen: unmasked(sorted.seen, &sorted.masked),
        pinned: sorted.pinned,
        protected,
        watched: Vec::new(),
        readonly: union(
            READONLY,
            linux.and_then(|l| l.readonly_paths().as_ref()),
            &BTreeSet::new(),
        ),
        replaced: sorted.replaced,
        excludes: excludes
            .map(|(file, names)| Exclude { file, names })
            .collect(),
    };
    plan.watch(bundle);
    hold_parents(&mut plan, spec);
    Ok(plan)
}

/// Decides about each of the engine's mounts.
fn sort(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
    warnings: &mut Vec<Warning>,
) -> Result<SortedMounts, PlanError> {
    let policy = &resolved.policy;
    let meant = policy.filesystem.visible_credentials();
    // As the engine names them, and where the image's own links lead.
    let all = spec.mounts().iter().flatten();
    let named: Vec<Mount> = all.map(canonical).collect::<Result<_, _>>()?;
    let real = |(index, mount)| resolved_in_image(mount, bundle.destinations.get(index));
    let mounts: Vec<Mount> = named.iter().enumerate().map(real).collect();
    let process = spec.process().as_ref();
    let pod = pod(spec, bundle);
    let ipc = sharers(spec, bundle, LinuxNamespaceType::Ipc, pod.as_ref());
    let rules = MountRules {
        never: NeverList::builtin(),
        meant: &meant,
        policy,
        tool: resolved.tool,
        pod: pod.as_ref(),
        ipc: &ipc,
        cwd: process.map_or(Path::new("/"), |p| p.cwd().as_path()),
    };
    let workspace = workspace(resolved, spec, &named, bundle, rules, warnings)?;
    check_written(resolved, spec, &named, warnings)?;
    let mut out = SortedMounts {
        pruned: bundle.wrapped.dropped.clone(),
        ..SortedMounts::default()
    };
    for (index, (mount, named)) in mounts.iter().zip(&named).enumerate() {
        let place = MountTarget {
            path: named.destination(),
            is_workspace: workspace == Some(index),
        };
        match bundle.sources.get(index).and_then(Option::as_ref) {
            Some(facts) if bundle.wrapped.contains(place.path) => {
                out.wrapped(rules, &bundle.wrapped, mount, facts, warnings)?;
            }
            Some(facts) => out.bind(rules, place, mount, facts, warnings)?,
            None => out.unjudged(mount, most_of_a_tmpfs(policy)),
        }
    }
    if let (Some(named), Some(_), None) = (&resolved.workspace, workspace, &out.workspace) {
        return Err(PlanError::Workspace(named.as_str().into()));
    }
    Ok(out)
}

/// Options of kept mounts that were requested and not granted.
pub(super) fn options_not_given(spec: &Spec, plan: &FilesystemPlan) -> Vec<OmittedItem> {
    // Options that grant something. Others restrict, or concern access times.
    const GIVING: [&str; 9] = [
        "rw", "suid", "dev", "exec", "shared", "rshared", "slave", "rslave", "idmap",
    ];
    let mut out = Vec::new();
    // The first of each destination.
    let mut planned: HashMap<&Path, &PlannedMount> = HashMap::new();
    for mount in &plan.mounts {
        planned.entry(&mount.destination).or_insert(mount);
    }
    for mount in spec.mounts().iter().flatten() {
        let destination: PathBuf = mount.destination().components().collect();
        let Some(kept) = planned.get(destination.as_path()) else {
            continue;
        };
        let asked = mount.options().iter().flatten().map(String::as_str);
        let given = |option: &str| match option {
            "rw" => kept.is_writable(),
            "exec" => !kept.options().iter().any(|o| o == "noexec"),
            _ => false,
        };
        if kept.why == MountReason::Home
            && asks_to_write(mount)
            && !plan.is_written_in(&destination)
        {
            out.push(OmittedItem::WholeHome { destination });
            continue;
        }
        let mut missing: Vec<&str> = asked.filter(|o| GIVING.contains(o) && !given(o)).collect();
        // Docker gives no option for a writable mount.
        let unsaid = kept.why.is_other() && asks_to_write(mount) && !kept.is_writable();
        if unsaid && !missing.contains(&"rw") {
            missing.push("rw");
        }
        // The kernel file systems have the same options in every container.
        if !kept.is_the_kernels() && !missing.is_empty() {
            let options = missing.into_iter().map(str::to_owned).collect();
            out.push(match is_engines_file(kept) {
                true => OmittedItem::EngineMountOptions {
                    destination,
                    options,
                },
                false => OmittedItem::MountOptions {
                    destination,
                    options,
                },
            });
        }
    }
    out
}

/// Whether it is the host name file that CRI engines mount to be written in every container. A file of the caller's at
/// this place has another reason.
fn is_engines_file(kept: &PlannedMount) -> bool {
    kept.destination == Path::new("/etc/hostname") && matches!(kept.why, MountReason::InWords(_))
}

/// A path of `filesystem.write` that is no mount is an error if it was written for this container. A pod's annotations
/// are written for all of its containers, and a policy's file for many: also if an annotation adds to its list.
fn check_written(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    named: &[Mount],
    warnings: &mut Vec<Warning>,
) -> Result<(), PlanError> {
    let is_mount = |path: &str| named.iter().any(|m| m.destination() == Path::new(path));
    let listed = resolved.annotated_writes.iter().map(|path| path.as_str());
    for path in listed.filter(|path| !is_mount(path)) {
        if pod_role(spec).is_none() {
            return Err(PlanError::Written(path.into()));
        }
        warnings.push(Warning::NothingToWrite { path: path.into() });
    }
    Ok(())
}

/// The mount, with its destination resolved through the image's own links.
fn resolved_in_image(mount: &Mount, real: Option<&PathBuf>) -> Mount {
    let mut mount = mount.clone();
    if let Some(real) = real {
        mount.set_destination(real.clone());
    }
    mount
}

/// The mount with a normalised destination: `/etc//hosts` and `/proc/` are compared as text later.
fn canonical(mount: &Mount) -> Result<Mount, PlanError> {
    let destination = mount.destination();
    if !destination.is_absolute() || !is_plain(destination) {
        return Err(PlanError::Destination(destination.clone()));
    }
    let mut mount = mount.clone();
    mount.set_destination(destination.components().collect());
    Ok(mount)
}

/// The visible files of credential directories, except those at or below another mask.
fn unmasked(seen: Vec<VisibleFiles>, masked: &BTreeSet<PathBuf>) -> Vec<VisibleFiles> {
    let mut seen = seen;
    for VisibleFiles { directory, files } in &mut seen {
        let inside = masked
            .iter()
            .filter(|mask| mask.starts_with(&*directory) && *mask != directory);
        let inside: Vec<&PathBuf> = inside.collect();
        files.retain(|file| {
            let path = directory.join(&file.path);
            !inside.iter().any(|mask| path.starts_with(mask))
        });
    }
    seen
}

fn union(base: &[&str], engine: Option<&Vec<String>>, more: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut all: BTreeSet<PathBuf> = base.iter().map(PathBuf::from).collect();
    all.extend(engine.into_iter().flatten().map(PathBuf::from));
    all.extend(more.iter().cloned());
    all.into_iter().collect()
}
