//! PURE. Mount pruning: which of the engine's mounts the container gets, how, and why not.
//!
//! Sources were opened and judged once by the shell ([`SourceFacts`]); the same inode is compared again after
//! pivot_root, so that a path swapped in between (the subPath class of bugs, CVE-2021-25741) is noticed.
//! Binds are made non-recursive: what else is mounted below a source stays outside.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use serde::{Deserialize, Serialize};

use super::ephemeral::ephemeral;
use super::judge::{is_kernel_place, read_only, refusal};
use super::never::{Meant, Never};
use super::support::support;
use super::tmpfs::{bounded, has_size};
use super::workspace::workspace;
use super::{BundleFacts, FileKind, FilesystemPlan, PlanError, SourceFacts};
use crate::policy::{Access, MountRule, Policy, Resolved};

/// Made empty in every container under a policy, whatever the engine says (`--privileged` says nothing):
/// Docker 28's list.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
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

/// Why the workspace's mount is there.
const WORKSPACE: &str = "the workspace";

/// Why the other binds and volumes are there.
const OTHERS: &str = "the policy keeps other mounts";

/// A mount that the container gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlannedMount {
    /// Mount point in the container.
    pub destination: PathBuf,
    /// File system type; `bind` for a bind mount.
    pub kind: String,
    /// What is mounted.
    pub source: PathBuf,
    /// Options, complete.
    pub options: Vec<String>,
    /// Why it is there.
    pub why: String,
    /// Inode that must be found there after pivot_root; bind mounts have one.
    pub judged: Option<Judged>,
}

impl PlannedMount {
    /// Whether the container's first process makes it itself, from a descriptor: binds, and what may lie below one.
    pub fn is_late(&self) -> bool {
        self.judged.is_some() || (self.kind == "tmpfs" && !self.destination.starts_with("/dev"))
    }

    /// Whether the container may write below it.
    pub fn is_writable(&self) -> bool {
        !self.options.iter().any(|o| o == "ro")
    }
}

/// Identity of a judged source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Judged {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub kind: FileKind,
}

/// A mount that the engine asked for and the container does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pruned {
    /// Mount point in the container.
    pub destination: PathBuf,
    /// What would have been mounted.
    pub source: PathBuf,
    /// The reason.
    pub why: String,
}

/// Plans the file system wall.
pub(super) fn plan(
    resolved: &Resolved,
    spec: &Spec,
    bundle: &BundleFacts,
    warnings: &mut Vec<String>,
) -> Result<FilesystemPlan, PlanError> {
    let never = Never::builtin();
    let meant = Meant::new();
    let policy = &resolved.policy;
    // As named by the engine, and as the image's own links lead there.
    let named = spec
        .mounts()
        .iter()
        .flatten()
        .map(canonical)
        .collect::<Result<Vec<Mount>, _>>()?;
    let mounts: Vec<Mount> = named
        .iter()
        .enumerate()
        .map(|(index, mount)| resolved_in_image(mount, bundle.destinations.get(index)))
        .collect();
    let workspace = workspace(resolved, spec, &named, bundle)?;
    let mut out = Sorted::default();
    for (index, (mount, named)) in mounts.iter().zip(&named).enumerate() {
        let place = Named {
            path: named.destination(),
            is_workspace: workspace == Some(index),
        };
        match bundle.sources.get(index).and_then(Option::as_ref) {
            Some(facts) if bundle.system.contains(place.path) => {
                out.keep_bind(
                    mount,
                    facts,
                    false,
                    "the node's, for programs to run".to_owned(),
                );
                out.mask_inside(&never, mount.destination(), facts, warnings);
            }
            Some(facts) => out.bind(&never, &meant, policy, place, mount, facts, warnings)?,
            None => out.kernel(mount, policy.filesystem.scratch.bytes()),
        }
    }
    let workspace = workspace.map(|index| mounts[index].destination().clone());
    let ephemeral = ephemeral(policy, bundle, &out.kept);
    if let Some(named) = &resolved.workspace {
        let is_it =
            |m: &PlannedMount| Some(&m.destination) == workspace.as_ref() && m.why == WORKSPACE;
        if !out.kept.iter().any(is_it) {
            return Err(PlanError::Workspace(PathBuf::from(named.as_str())));
        }
    }
    let linux = spec.linux().as_ref();
    let masked = union(
        MASKED,
        linux.and_then(|l| l.masked_paths().as_ref()),
        &out.masked,
    );
    let readonly = union(
        READONLY,
        linux.and_then(|l| l.readonly_paths().as_ref()),
        &BTreeSet::new(),
    );
    Ok(FilesystemPlan {
        root: policy.filesystem.root,
        ephemeral,
        scratch_bytes: policy.filesystem.scratch.bytes(),
        workspace: workspace.filter(|w| out.kept.iter().any(|m| m.destination == *w)),
        mounts: out.kept,
        pruned: out.pruned,
        masked,
        found: out.found,
        readonly,
        replaced: out.replaced,
    })
}

/// A mount's place as the engine names it.
#[derive(Clone, Copy)]
struct Named<'a> {
    path: &'a Path,
    is_workspace: bool,
}

#[derive(Default)]
struct Sorted {
    kept: Vec<PlannedMount>,
    pruned: Vec<Pruned>,
    masked: BTreeSet<PathBuf>,
    found: BTreeSet<PathBuf>,
    replaced: BTreeSet<PathBuf>,
}

impl Sorted {
    /// A mount that is no bind: the kernel's own file systems, on their usual places only.
    fn kernel(&mut self, mount: &Mount, scratch_bytes: u64) {
        let kind = mount.typ().as_deref().unwrap_or("none");
        let destination = mount.destination();
        let asked = mount.options().as_deref().unwrap_or_default();
        let place = destination.to_str().unwrap_or("");
        let options = match (kind, place) {
            ("proc", "/proc") => only(asked, &[], &["nosuid", "nodev", "noexec"]),
            ("sysfs", "/sys") => only(asked, &[], &["nosuid", "nodev", "noexec", "ro"]),
            ("cgroup" | "cgroup2", "/sys/fs/cgroup") => {
                only(asked, &[], &["nosuid", "nodev", "noexec", "ro"])
            }
            ("devpts", "/dev/pts") => keep(asked, &["nosuid", "noexec"]),
            ("mqueue", "/dev/mqueue") => only(asked, &[], &["nosuid", "nodev", "noexec"]),
            ("tmpfs", "/dev") => bounded(keep(asked, &["nosuid", "noexec"]), scratch_bytes),
            ("tmpfs", "/dev/shm") if has_size(asked) => keep(asked, &["nosuid", "nodev"]),
            ("tmpfs", _) if !is_kernel_place(destination) && place != "/" => {
                bounded(keep(asked, &["nosuid", "nodev"]), scratch_bytes)
            }
            _ => {
                self.prune(mount, &format!("a mount of type {kind:?} at this place is not among those that a policy keeps"));
                return;
            }
        };
        // Either version of cgroups is what is made read-only at the end: one over the other would leave one that is not.
        let family = |kind: &str| kind.strip_suffix('2').unwrap_or(kind).to_owned();
        if self
            .kept
            .iter()
            .any(|m| m.destination == *destination && family(&m.kind) == family(kind))
        {
            self.prune(mount, "the same file system is mounted there already");
            return;
        }
        self.kept.push(PlannedMount {
            destination: destination.clone(),
            kind: kind.to_owned(),
            source: mount
                .source()
                .clone()
                .unwrap_or_else(|| PathBuf::from(kind)),
            options,
            why: "the engine's".to_owned(),
            judged: None,
        });
    }

    fn bind(
        &mut self,
        never: &Never,
        meant: &Meant,
        policy: &Policy,
        named: Named<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        warnings: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        let Named { path, is_workspace } = named;
        let place = path.to_str().unwrap_or("");
        if matches!(
            destination.to_str(),
            Some("/etc/hosts" | "/etc/resolv.conf")
        ) {
            // Whatever its source is: the network wall's file takes its place.
            self.replaced.insert(destination.clone());
            return Ok(());
        }
        let asked_rw = !mount
            .options()
            .iter()
            .flatten()
            .any(|o| matches!(o.as_str(), "ro" | "rro"));
        if let Some((why, writable)) = support(place, facts) {
            self.keep_bind(mount, facts, writable && asked_rw, why.to_owned());
            return Ok(());
        }
        let refused = |why: String| PlanError::WorkspaceRefused {
            destination: destination.clone(),
            source_path: facts.path.clone(),
            why,
        };
        if let Some(why) = refusal(never, meant, destination, facts) {
            if is_workspace {
                return Err(refused(why));
            }
            self.prune(mount, &why);
            return Ok(());
        }
        match access(policy, is_workspace, place) {
            Access::None => self.prune(
                mount,
                &format!("policy '{}' keeps {}", policy.name, kept_words(policy)),
            ),
            granted => {
                let writable = asked_rw && granted == Access::ReadWrite;
                let mut why = match is_workspace {
                    true => WORKSPACE,
                    false => OTHERS,
                }
                .to_owned();
                let closed = writable.then(|| read_only(never, facts)).flatten();
                if let Some(closed) = &closed {
                    if is_workspace {
                        return Err(refused(format!(
                            "{closed}; no container writes it: use a directory of its own, or mount it read-only"
                        )));
                    }
                    why = format!("{why}, but nobody writes it: {closed}");
                }
                self.keep_bind(mount, facts, writable && closed.is_none(), why);
                self.mask_inside(never, destination, facts, warnings);
            }
        }
        Ok(())
    }

    fn keep_bind(&mut self, mount: &Mount, facts: &SourceFacts, writable: bool, why: String) {
        let asked = mount.options().as_deref().unwrap_or_default();
        let mut options: Vec<String> = vec![
            "bind".into(),
            "rprivate".into(),
            "nosuid".into(),
            "nodev".into(),
        ];
        if asked.iter().any(|o| o == "noexec") {
            options.push("noexec".into());
        }
        options.push(if writable { "rw" } else { "ro" }.into());
        self.kept.push(PlannedMount {
            destination: mount.destination().clone(),
            kind: "bind".to_owned(),
            source: facts.path.clone(),
            options,
            why,
            judged: Some(Judged {
                dev: facts.dev,
                ino: facts.ino,
                kind: facts.kind,
            }),
        });
    }

    fn mask_inside(
        &mut self,
        never: &Never,
        destination: &Path,
        facts: &SourceFacts,
        warnings: &mut Vec<String>,
    ) {
        for name in facts.all_names() {
            let below = never.below(name);
            self.masked
                .extend(below.map(|(rest, _)| destination.join(rest)));
        }
        let found = facts.inside.iter().map(|i| destination.join(&i.path));
        self.found.extend(found);
        self.masked.extend(self.found.iter().cloned());
        if let Some(why) = &facts.unsearched {
            warnings.push(format!(
                "{}: not all of it was searched for sockets and credentials ({why}); those found are masked",
                destination.display()
            ));
        }
    }

    fn prune(&mut self, mount: &Mount, why: &str) {
        // What it was to cover stays covered: /dev/null over a project's .env is how secrets are kept from a container.
        let over = |m: &PlannedMount| {
            m.judged.is_some() && mount.destination().starts_with(&m.destination)
        };
        if self.kept.iter().any(over) {
            self.masked.insert(mount.destination().clone());
        }
        self.pruned.push(Pruned {
            destination: mount.destination().clone(),
            source: mount.source().clone().unwrap_or_default(),
            why: why.to_owned(),
        });
    }
}

/// Which access the policy gives a bind mount that is on no list.
fn access(policy: &Policy, is_workspace: bool, place: &str) -> Access {
    let rules = &policy.filesystem;
    if is_workspace {
        return rules.workspace;
    }
    let listed = rules.write.iter().any(|w| w.as_str() == place);
    match rules.mounts {
        MountRule::Drop => Access::None,
        MountRule::ReadOnly if listed => Access::ReadWrite,
        MountRule::ReadOnly => Access::ReadOnly,
        MountRule::Keep => Access::ReadWrite,
    }
}

fn kept_words(policy: &Policy) -> &'static str {
    match policy.filesystem.workspace {
        Access::None => "no mounts",
        Access::ReadOnly | Access::ReadWrite => "the workspace alone",
    }
}

/// The mount at the place that the image's own links make of its destination.
fn resolved_in_image(mount: &Mount, real: Option<&PathBuf>) -> Mount {
    let mut mount = mount.clone();
    if let Some(real) = real {
        mount.set_destination(real.clone());
    }
    mount
}

/// The mount with the one spelling of its destination: `/etc//hosts` and `/proc/` are compared as text later on.
fn canonical(mount: &Mount) -> Result<Mount, PlanError> {
    let destination = mount.destination();
    if !destination.is_absolute() || !is_plain(destination) {
        return Err(PlanError::Destination(destination.clone()));
    }
    let mut mount = mount.clone();
    mount.set_destination(destination.components().collect());
    Ok(mount)
}

pub(super) fn is_plain(path: &Path) -> bool {
    path.components()
        .all(|c| matches!(c, Component::RootDir | Component::Normal(_)))
}

fn union(base: &[&str], engine: Option<&Vec<String>>, more: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut all: BTreeSet<PathBuf> = base.iter().map(PathBuf::from).collect();
    all.extend(engine.into_iter().flatten().map(PathBuf::from));
    all.extend(more.iter().cloned());
    all.into_iter().collect()
}

/// Those of the engine's options that cannot loosen anything, plus `add`.
fn keep(asked: &[String], add: &[&str]) -> Vec<String> {
    const KEYS: &[&str] = &[
        "size",
        "mode",
        "uid",
        "gid",
        "nr_inodes",
        "nr_blocks",
        "ptmxmode",
    ];
    const WORDS: &[&str] = &[
        "nosuid",
        "nodev",
        "noexec",
        "ro",
        "rw",
        "newinstance",
        "relatime",
        "strictatime",
        "noatime",
        "nodiratime",
    ];
    let harmless = |option: &&String| match option.split_once('=') {
        Some((key, value)) => {
            KEYS.contains(&key)
                && value
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'%')
        }
        None => WORDS.contains(&option.as_str()),
    };
    let mut out: Vec<String> = asked.iter().filter(harmless).cloned().collect();
    out.extend(add.iter().map(ToString::to_string));
    let mut seen = BTreeSet::new();
    out.retain(|o| seen.insert(o.clone()));
    out
}

/// `fixed`, plus those of the engine's options that `also` names.
fn only(asked: &[String], also: &[&str], fixed: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = fixed.iter().map(ToString::to_string).collect();
    out.extend(asked.iter().filter(|o| also.contains(&o.as_str())).cloned());
    out
}
