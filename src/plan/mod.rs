//! PURE. `plan(policy, spec, facts) -> Plan`: what will be enforced for one container, complete and resolved.
//!
//! A [`Plan`] answers a reviewer's question ("can it write /etc? which capabilities?") without the policy, the spec
//! or the kernel at hand. No `Option` means "default", no pattern is left, and everything is sorted, so that equal
//! plans are equal bytes. It is saved with the container's state; `exec`, `update` and `explain` read it back.

pub mod anonymous;
mod ephemeral;
pub mod facts;
pub mod git;
pub mod hooks;
pub mod join;
mod judge;
pub mod limits;
pub mod mountinfo;
pub mod mounts;
pub mod names;
mod namespace;
pub mod namespaces;
pub mod network;
pub mod neutral;
pub mod never;
mod options;
pub mod privileges;
pub mod process;
pub mod reach;
pub mod scratch;
pub mod settings;
mod sort;
pub mod support;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;
pub mod tokens;
pub mod volumes;
pub mod workspace;
pub mod wrapped;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};

use crate::egress::own::own_names;
use crate::egress::{Asking, Budget, Rules};
use crate::policy::{
    Leave, LeftOut, NetworkMode, NetworkPrefix, Policy, Resolved, RootAccess, Upstream,
};
pub use facts::{
    BundleFacts, FileKind, FileSystem, Home, HostFacts, Inside, Link, Neighbour, NeighbourNetwork,
    NetworkState, Seen, SeenAs, SourceFacts,
};
pub use git::{Exclude, InGit, Untracked};
pub use limits::LimitsPlan;
pub use mounts::{PlannedMount, Pruned};
pub use namespace::{Isolates, NamespaceError, PlannedNamespace};
pub use privileges::CapabilitySets;

/// What will be enforced for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// The policy as resolved, every field decided.
    pub policy: Policy,
    /// Field of the policy -> where its value came from, in words.
    pub origins: BTreeMap<String, String>,
    /// The file system wall.
    pub filesystem: FilesystemPlan,
    /// The network wall.
    pub network: NetworkPlan,
    /// Names of system calls added to, and taken from, the base rules.
    pub syscalls: SyscallPlan,
    /// Capabilities of the first process.
    pub capabilities: CapabilitySets,
    /// Capabilities that no process of the container may have beyond; `exec` is cut down to these.
    pub capability_limit: BTreeSet<String>,
    /// Namespaces that libcontainer makes or joins, as `type` or `type=path`.
    pub namespaces: Vec<PlannedNamespace>,
    /// Device nodes beyond the usual eight that the node's file allows.
    pub devices: BTreeSet<PathBuf>,
    /// What the container may take of the node.
    #[serde(default)]
    pub limits: LimitsPlan,
    /// What annotations may ask for beyond the policy; not in records of before there was leave.
    #[serde(default)]
    pub leave: Option<Leave>,
    /// The ceilings, and who set each.
    #[serde(default)]
    pub ceilings: Vec<String>,
    /// Limits of the sidecar process.
    pub sidecar: SidecarLimits,
    /// What was asked for and is not given, beside mounts: capabilities, devices, settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<String>,
    /// What is weaker than a reader might expect, and why.
    pub warnings: Vec<String>,
}

impl Plan {
    /// All that was asked for and is not given, in words, mounts first.
    pub fn left_out(&self) -> Vec<String> {
        let mounts = self.filesystem.pruned.iter().map(|m| {
            let (at, from) = (text::of(&m.destination), text::of(&m.source));
            format!("the mount at {at} (from {from}): {}", m.why)
        });
        mounts.chain(self.not_given.iter().cloned()).collect()
    }
}

/// The file system wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilesystemPlan {
    /// The root file system, whatever its image says.
    pub root: RootAccess,
    /// Directories that are private, writable and thrown away, in mount order.
    pub ephemeral: Vec<Ephemeral>,
    /// Upper bound of all that is ephemeral, bytes.
    pub scratch_bytes: u64,
    /// Where that lies.
    #[serde(default)]
    pub scratch_place: ScratchPlace,
    /// Mount point of the workspace, if the container has one.
    pub workspace: Option<PathBuf>,
    /// Mounts that the container gets, in order.
    pub mounts: Vec<PlannedMount>,
    /// Mounts that the engine asked for and the container does not get.
    pub pruned: Vec<Pruned>,
    /// Paths of the container that are made empty.
    #[serde(with = "text::many")]
    pub masked: Vec<PathBuf>,
    /// Those of the masked paths that were found inside a mount: they must be there when they are masked.
    #[serde(with = "text::many")]
    pub found: BTreeSet<PathBuf>,
    /// What is seen in some of those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<SeenIn>,
    /// Directories in mounts that are part of the name by which one of those is known: no process of the container can
    /// rename them.
    #[serde(
        default,
        with = "text::many",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub pinned: BTreeSet<PathBuf>,
    /// Paths of the container that are made read-only.
    pub readonly: Vec<PathBuf>,
    /// Files of the network wall that replace the engine's: /etc/hosts, /etc/resolv.conf.
    pub replaced: BTreeSet<PathBuf>,
    /// What git is told to leave alone of that which is hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<Exclude>,
}

/// What is seen, read-only, in a directory of a mount that is hidden as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeenIn {
    /// The directory, in the container.
    #[serde(with = "text::one")]
    pub directory: PathBuf,
    /// What, by its path in that.
    pub files: Vec<Seen>,
}

impl NetworkPlan {
    /// Whether the sidecar has anybody to answer, inside or outside.
    pub fn is_served(&self) -> bool {
        self.mode == NetworkMode::Allowlist || self.refusing || !self.inbound.is_empty()
    }
}

impl FilesystemPlan {
    /// Whether a path lies in or below something that the container's first process mounts itself.
    pub fn is_mounted_late(&self, path: &Path) -> bool {
        let late = self.mounts.iter().filter(|m| m.is_late());
        late.map(|m| &m.destination)
            .chain(self.ephemeral.iter().map(|e| &e.path))
            .any(|place| path.starts_with(place))
            // The root is one of them, but for what moves there as it is.
            || (self.root == RootAccess::Ephemeral
                && !self.kernel_mounts().any(|place| path.starts_with(place)))
    }

    /// The outermost of the mounts that libcontainer makes: the kernel's own file systems and /dev.
    pub fn kernel_mounts(&self) -> impl Iterator<Item = &Path> {
        let early = || self.mounts.iter().filter(|m| !m.is_late());
        let inside_another = move |path: &Path| {
            early().any(|m| m.destination != path && path.starts_with(&m.destination))
        };
        let places: BTreeSet<&Path> = early().map(|m| m.destination.as_path()).collect();
        places.into_iter().filter(move |path| !inside_another(path))
    }

    /// Whether there is anything that is thrown away.
    pub fn needs_scratch(&self) -> bool {
        self.root == RootAccess::Ephemeral
            || !self.ephemeral.is_empty()
            || self.mounts.iter().any(|m| m.private)
    }

    /// Whether what is written at a path is thrown away: no mount of the engine's holds it.
    pub fn is_thrown_away(&self, path: &Path) -> bool {
        let depth = |place: &Path| place.components().count();
        let holds = |place: &&Path| path.starts_with(place);
        let deepest = |private: bool| {
            let mounts = self.mounts.iter().filter(move |m| m.private == private);
            let mounts = mounts.map(|m| m.destination.as_path());
            mounts.filter(holds).map(depth).max().unwrap_or(0)
        };
        let mounted = deepest(false);
        let private = self.ephemeral.iter().map(|e| e.path.as_path());
        let private = private.filter(holds).map(depth).max().unwrap_or(0);
        let private = private.max(deepest(true));
        match self.root {
            RootAccess::Ephemeral => private >= mounted,
            RootAccess::ReadOnly => private > mounted,
        }
    }
}

/// A directory that is private, writable and thrown away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ephemeral {
    /// Path in the container.
    pub path: PathBuf,
    /// Empty, or over what the image has there.
    pub content: EphemeralContent,
}

/// Where what is thrown away lies until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScratchPlace {
    /// In memory, as the container's.
    #[default]
    Memory,
    /// On the node's disk, in a file system of the container's own.
    Disk,
}

/// What an ephemeral directory shows at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EphemeralContent {
    /// Nothing (mode 1777).
    Empty,
    /// Nothing, and it is a home directory: nothing in it can be executed, and it is its owner's.
    EmptyHome,
    /// What the image has there (an overlay).
    Image,
}

/// The network wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkPlan {
    /// What the inner namespace offers.
    pub mode: NetworkMode,
    /// What is reached through the sidecar; nothing unless the mode is `allowlist`.
    pub rules: Rules,
    /// The TCP ports that the wall listens on inside, bound at `create`: those that the rules named then.
    #[serde(default)]
    pub ports: BTreeSet<u16>,
    /// The port of the explicit proxy on 127.0.0.1.
    #[serde(default = "network::usual_proxy")]
    pub proxy_port: u16,
    /// What may be asked for, where that is not refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<Asking>,
    /// Whether processes are told of the proxy.
    pub proxy_env: bool,
    /// The cluster's networks, as the node's file names them: where rules `service:` lead besides the engine's own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Whether the stub and the proxy run to refuse everything with the reason: under the mode `local`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refusing: bool,
    /// What the container itself is called: its host name, and those of whoever shares its network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_names: Vec<String>,
    /// The most that one container's connections may take.
    pub budget: Budget,
    /// Seconds for which what a run used counts for the next one of the same container.
    #[serde(default, skip_serializing_if = "is_not_kept")]
    pub budgets_kept: u32,
    /// `net.*` settings for the inner namespace.
    pub sysctl: BTreeMap<String, String>,
    /// Whether the container has a sysfs, which is then replaced by the inner namespace's.
    pub sysfs: bool,
    /// The node's proxy, which the sidecar dials through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// Ports of the engine's network that lead to the same ports of the loopback inside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inbound: BTreeSet<u16>,
    /// The network of another container that this one is in: all of this is the other one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedNetwork>,
}

/// The network of a container that others join: its inner namespace and its sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SharedNetwork {
    /// The container's id.
    pub container: String,
    /// The inner namespace, by a process that is in it. What counts is the cookie.
    pub path: PathBuf,
    /// The inner namespace's cookie: every member makes sure that it is there before it executes anything.
    pub cookie: u64,
    /// The sidecar's number in the runtime's pid namespace.
    pub sidecar_pid: i32,
    /// When the sidecar started, in clock ticks after boot.
    pub sidecar_start: u64,
}

/// The syscall wall, beside the base rules and the engine's own profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyscallPlan {
    /// Allowed beyond the base rules.
    pub allow: BTreeSet<String>,
    /// Denied whatever the base rules say.
    pub deny: BTreeSet<String>,
    /// Whether the engine's profile is merged in.
    pub engine_profile: bool,
}

/// Limits of the sidecar's own cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SidecarLimits {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Share of one processor, per cent.
    pub cpu_percent: u32,
    /// Open files.
    pub files: u64,
}

/// Why a container cannot be planned. Nothing has been created when one is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The kernel lacks what the plan needs.
    #[error(
        "policy '{policy}' needs {need}, which this kernel ({have}) does not have: use a newer kernel, or a policy without it"
    )]
    Kernel {
        /// The policy's name.
        policy: String,
        /// The missing feature.
        need: &'static str,
        /// The kernel's release.
        have: String,
    },
    /// Crashes would reach the node's handler, which no wall of a container keeps them from.
    #[error(
        "policy '{0}' keeps crashes from the node's programs, but kernel.core_pattern on this node is a socket, to which Linux sends \
         every crash: make it a file or a pipe, or let the node's file say `core-socket = true` under [allow]"
    )]
    CoreSocket(String),
    /// A bound that no cgroup here can hold.
    #[error(
        "policy '{policy}' bounds limits.{field} ({bound}), and this node's cgroups have no {controller} controller: mount or enable it (cgroup.subtree_control), or use a policy with limits.{field} = \"unlimited\""
    )]
    Controller {
        /// The policy's name.
        policy: String,
        /// The field.
        field: &'static str,
        /// What it says.
        bound: String,
        /// The controller that is missing.
        controller: &'static str,
    },
    /// A mask that git would take for a change of the project.
    #[error(
        "policy '{policy}' hides {path:?} of {source_path:?}, which holds credentials, and git has another content of it, which a commit would empty: take the secret out (git restore), keep it yours alone (git update-index --skip-worktree), or let filesystem.credentials of the node's policy name it"
    )]
    Tracked {
        /// The policy's name.
        policy: String,
        /// Path in the mount.
        path: PathBuf,
        /// What is mounted.
        source_path: PathBuf,
    },
    /// A mask that git might take for a change of the project.
    #[error(
        "policy '{policy}' hides {path:?} of {source_path:?}, which holds credentials, and nobody can tell whether git has it: {why}; or take the secret out, or name it in filesystem.credentials of the node's policy"
    )]
    Untold {
        /// The policy's name.
        policy: String,
        /// Path in the mount.
        path: PathBuf,
        /// What is mounted.
        source_path: PathBuf,
        /// The reason, and what to do about it.
        why: String,
    },
    /// What is thrown away must lie on a disk, and cannot.
    #[error(
        "policy '{policy}' keeps scratch on disk (filesystem.scratch-on = \"disk\"), which this node cannot: {why}; use \"auto\", which falls back to memory, or \"memory\""
    )]
    NoDisk {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// A section that every container needs is missing from config.json.
    #[error("config.json has no `{0}` section")]
    Missing(&'static str),
    /// A namespace that would reach out of the container.
    #[error(
        "policy '{policy}' refuses the {whose} {kind} namespace: run without it, or let the node's file allow it (allow.namespaces)"
    )]
    Namespace {
        /// The policy's name.
        policy: String,
        /// `host's` or `foreign`, with its path.
        whose: String,
        /// pid, ipc, ...
        kind: &'static str,
    },
    /// The namespace of a container whose walls are not the same.
    #[error(
        "policy '{policy}' refuses the {kind} namespace of container {id}: {why}; use the same policy for both, or let the node's file allow it (allow.namespaces)"
    )]
    Neighbour {
        /// The policy's name.
        policy: String,
        /// pid, ipc, ...
        kind: &'static str,
        /// The other container.
        id: String,
        /// In what the walls differ.
        why: String,
    },
    /// Ports that cannot lead in.
    #[error("network.inbound of policy '{policy}' is refused: {why}")]
    Inbound {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// A denial that nobody could keep.
    #[error("network.deny of policy '{policy}' cannot be kept: {why}")]
    Denial {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// Another container's network.
    #[error(
        "policy '{policy}' refuses the network namespace of {whose}: {why}; run without it, or let the node's allow.namespaces give it its own loopback"
    )]
    SharedNetwork {
        /// The policy's name.
        policy: String,
        /// A container's id, or a path.
        whose: String,
        /// The reason.
        why: String,
    },
    /// A hook that is not the engine's network hook.
    #[error(
        "policy '{policy}' refuses the {when} hook {path:?}: the node's file can allow it (allow.hooks)"
    )]
    Hook {
        /// The policy's name.
        policy: String,
        /// prestart, createRuntime, ...
        when: &'static str,
        /// The program.
        path: PathBuf,
    },
    /// A device that the policy does not give.
    #[error(
        "policy '{policy}' refuses the device {path:?}: the node's file can allow it (allow.devices)"
    )]
    Device {
        /// The policy's name.
        policy: String,
        /// The node in the container.
        path: PathBuf,
    },
    /// A device that has the name of one that the node's file allows, and is another.
    #[error(
        "the device {0:?} is not the one that has this path on the node: the node's file allows that one alone (allow.devices)"
    )]
    OtherDevice(PathBuf),
    /// `dev.agentbox.workspace` names no mount.
    #[error("dev.agentbox.workspace = {0:?}: no bind mount of this container is at that path")]
    Workspace(PathBuf),
    /// Several mounts could be the workspace, and it is the only one that would be mounted.
    #[error(
        "policy '{policy}' mounts the workspace alone, and cannot tell which it is: {holder:?} holds the working directory, and {rivals} could be meant; name it by the annotation dev.agentbox.workspace, or mount the others read-only"
    )]
    WhichWorkspace {
        /// The policy's name.
        policy: String,
        /// The mount that holds the working directory.
        holder: PathBuf,
        /// The others.
        rivals: String,
    },
    /// The workspace is not where the policy wants it.
    #[error(
        "policy '{policy}' has the workspace at {allowed} (filesystem.workspace-at), not at {place:?}"
    )]
    WorkspaceElsewhere {
        /// The policy's name.
        policy: String,
        /// Where it would be.
        place: PathBuf,
        /// Where it may be.
        allowed: String,
    },
    /// `filesystem.write` names no mount.
    #[error(
        "filesystem.write names {0:?}: no mount of this container is at that path; the image's own files can be written, and are thrown away, if filesystem.root is \"ephemeral\""
    )]
    Written(PathBuf),
    /// Something that was asked for would be left out.
    #[error(
        "policy '{policy}' refuses to start if anything is left out (filesystem.left-out = \"error\"), and this is not given: {what}"
    )]
    LeftOut {
        /// The policy's name.
        policy: String,
        /// What, each with its reason.
        what: String,
    },
    /// The workspace is on the list of what is never let in.
    #[error("the workspace {destination:?} (from {source_path:?}) is refused: {why}")]
    WorkspaceRefused {
        /// Mount point in the container.
        destination: PathBuf,
        /// Path on the node.
        source_path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A mount in which a credential may lie that nobody has seen.
    #[error(
        "the mount at {destination:?} (from {source_path:?}) cannot be searched for sockets and credentials: {why}; mount less of it, or accept an incomplete search (filesystem.search = \"partial\")"
    )]
    Unsearched {
        /// Mount point in the container.
        destination: PathBuf,
        /// Path on the node.
        source_path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A destination that is not an absolute, plain path.
    #[error("the mount destination {0:?} is not an absolute path without `..`")]
    Destination(PathBuf),
}

/// Translates a policy into what will be enforced for this spec on this host.
pub fn plan(
    resolved: &Resolved,
    spec: &Spec,
    bundle: &BundleFacts,
    host: &HostFacts,
) -> Result<Plan, PlanError> {
    let linux = spec.linux().as_ref().ok_or(PlanError::Missing("linux"))?;
    let process = spec
        .process()
        .as_ref()
        .ok_or(PlanError::Missing("process"))?;
    if spec.root().is_none() {
        return Err(PlanError::Missing("root"));
    }
    let mut not_given: Vec<String> = neutral::not_given(spec).collect();
    let mut warnings = Vec::new();
    let joined = join::find(resolved, linux, bundle, &mut warnings)?;
    let adopted = joined.as_ref().map(|joined| joined.adopt(resolved));
    let resolved = adopted.as_ref().unwrap_or(resolved);
    let policy = &resolved.policy;
    host.require(policy, &resolved.node_allow)?;
    hooks::check(resolved, spec, bundle)?;
    let namespaces = namespaces::plan(resolved, linux, bundle, joined.as_ref())?;
    let devices = privileges::devices(resolved, linux, bundle)?;
    let mut filesystem = mounts::plan(resolved, spec, bundle, &mut warnings)?;
    scratch::place(policy, host, &mut filesystem, &mut warnings)?;
    let sysfs = filesystem
        .mounts
        .iter()
        .any(|m| m.destination == Path::new("/sys"));
    refuse_left_out(policy, &filesystem)?;
    let capability_limit = privileges::limit(policy);
    not_given.extend(privileges::not_given(process, &capability_limit));
    not_given.extend(privileges::devices_not_given(linux, &devices));
    not_given.extend(mounts::options_not_given(spec, &filesystem));
    // No `..`: a field added to `Policy` does not compile until it is planned.
    let Policy {
        name: _,
        filesystem: _,
        network: _,
        syscalls,
        privileges: _,
        limits,
        // What annotations may ask for is nothing that is enforced.
        annotations: _,
    } = policy;
    let crate::policy::Syscalls {
        allow,
        deny,
        // What a ceiling lets be allowed allows nothing.
        limit: _,
    } = syscalls;
    let bounds = LimitsPlan::smallest(resolved.bounds.iter().chain([limits]), host);
    bounds.require(policy, host)?;
    let sysctl = namespaces::net_sysctl(linux, &mut warnings);
    let own_names = own_names(spec.hostname().as_deref());
    let network = match &joined {
        Some(joined) => joined.network(&sysctl, own_names, &mut warnings),
        None => {
            let network = NetworkPlan {
                // Only where something is reached at all.
                upstream: (policy.network.mode == NetworkMode::Allowlist)
                    .then(|| resolved.upstream.clone())
                    .flatten(),
                own_names,
                ..network::plan(resolved, sysctl, sysfs)
            };
            network::check_inbound(&policy.name, &network, &namespaces)?;
            network::check_denials(&policy.name, &network)?;
            network
        }
    };
    Ok(Plan {
        origins: resolved
            .origins
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .map(|(k, v)| match &joined {
                Some(joined) if k.starts_with("network.") => (k, joined.origin()),
                _ => (k, v),
            })
            .collect(),
        filesystem,
        network,
        syscalls: SyscallPlan {
            allow: allow.iter().map(ToString::to_string).collect(),
            deny: deny.iter().map(ToString::to_string).collect(),
            engine_profile: linux.seccomp().is_some(),
        },
        capabilities: CapabilitySets::of(process.capabilities().as_ref())
            .limited(&capability_limit),
        capability_limit,
        namespaces,
        devices,
        limits: bounds,
        leave: Some(resolved.leave.clone()),
        ceilings: resolved.ceilings.iter().map(ToString::to_string).collect(),
        sidecar: network::sidecar(&policy.network, resolved.upstream.as_ref()),
        not_given,
        warnings,
        policy: policy.clone(),
    })
}

/// Records of before have no such field.
fn is_not_kept(seconds: &u32) -> bool {
    *seconds == 0
}

/// Under `filesystem.left-out = "error"` a mount is given or nothing starts.
fn refuse_left_out(policy: &Policy, filesystem: &FilesystemPlan) -> Result<(), PlanError> {
    let left_out = &filesystem.pruned;
    if left_out.is_empty() || policy.filesystem.left_out == LeftOut::Report {
        return Ok(());
    }
    let told = |m: &Pruned| format!("the mount at {} ({})", m.destination.display(), m.why);
    Err(PlanError::LeftOut {
        policy: policy.name.to_string(),
        what: left_out.iter().map(told).collect::<Vec<_>>().join("; "),
    })
}
