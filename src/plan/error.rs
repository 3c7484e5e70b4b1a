//! PURE. Why a container cannot be planned. Each error says what to do about it.

use std::path::PathBuf;

use crate::policy::{Field, Origin};

/// Why a container cannot be planned. Nothing has been created when one is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The kernel lacks what the plan needs.
    #[error(
        "policy '{policy}' needs {need}, which this kernel ({have}) does not have: use a newer kernel (`agentbox doctor` lists what is missing)"
    )]
    Kernel {
        /// The policy's name.
        policy: String,
        /// The missing feature.
        need: &'static str,
        /// The kernel's release.
        have: String,
    },
    /// The node's crash handler would get crashes, and no wall of a container prevents it.
    #[error(
        "policy '{0}' hides crashes from the node, but kernel.core_pattern is a socket, to which Linux sends every crash: make it a file or a pipe, \
         or set `core-socket = true` under [allow] of the node's file"
    )]
    CoreSocket(String),
    /// The limit of core files is 0, and cannot be 1.
    #[error(
        "policy '{0}' needs a core limit of 1, but the hard limit is 0 and root lacks CAP_SYS_RESOURCE to raise it: start the engine \
         with a hard core limit of 1 or more (LimitCORE=, ulimit -Hc); see `agentbox doctor`"
    )]
    CoreLimit(String),
    /// A limit that no cgroup on this node can enforce.
    #[error(
        "policy '{policy}' sets limits.{field} ({bound}), but this node's cgroups have no {controller} controller: enable it (cgroup.subtree_control; see `agentbox doctor`), or use a policy with limits.{field} = \"unlimited\""
    )]
    Controller {
        /// The policy's name.
        policy: String,
        /// The field.
        field: &'static str,
        /// Its value.
        bound: String,
        /// The controller that is missing.
        controller: &'static str,
    },
    /// A limit with an explicit origin, but the caller can make no cgroup.
    #[error(
        "{field} (set by {origin}) cannot be enforced: {why}; run with sudo, or {}",
        without(*field, origin)
    )]
    NoCgroup {
        /// The field.
        field: Field,
        /// Who set it.
        origin: Origin,
        /// What is missing.
        why: &'static str,
    },
    /// A limit that the workload could leave.
    #[error(
        "{field} (set by {origin}) cannot be enforced: with {right} the workload could leave its cgroup; take {right} away, or leave {field} out"
    )]
    LeavesCgroup {
        /// The field.
        field: Field,
        /// Who set it.
        origin: String,
        /// The capability or system call.
        right: String,
    },
    /// A mask that git would record as a change of the project.
    #[error(
        "policy '{policy}' hides {path:?} of {source_path:?}, which holds credentials, but it differs from git's version, so git would record a deletion: remove the secret (git restore), hide it from git (git update-index --skip-worktree), or list it in filesystem.credentials of the node's policy"
    )]
    Tracked {
        /// The policy's name.
        policy: String,
        /// Path in the mount.
        path: PathBuf,
        /// The mount's source.
        source_path: PathBuf,
    },
    /// A mask that git might record as a change of the project.
    #[error(
        "policy '{policy}' hides {path:?} of {source_path:?}, which holds credentials, and it is unknown whether git has it: {why}; or remove the secret, or list it in filesystem.credentials of the node's policy"
    )]
    Untold {
        /// The policy's name.
        policy: String,
        /// Path in the mount.
        path: PathBuf,
        /// The mount's source.
        source_path: PathBuf,
        /// The reason, and what to do about it.
        why: String,
    },
    /// The caller wants writes to go to the root itself, but it is no layer of the engine's.
    #[error("{by} requests \"engine\", but the root {root:?} is {why}: use \"ephemeral\"")]
    NoLayer {
        /// Where this was requested.
        by: String,
        /// The root file system.
        root: PathBuf,
        /// What it is.
        why: String,
    },
    /// A file system of the node is mounted below the root, and would come in with it.
    #[error(
        "the root {root:?} has a mount below it at {at:?}: unmount it, or list it in config.json"
    )]
    MountBelow {
        /// The root file system.
        root: PathBuf,
        /// The mount point.
        at: PathBuf,
    },
    /// The policy puts scratch data on a disk, and this node cannot.
    #[error(
        "policy '{policy}' keeps scratch on disk (filesystem.scratch-on = \"disk\"), which this node cannot: {why}; use \"auto\", which falls back to memory, or \"memory\""
    )]
    NoDisk {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// An ephemeral root that would break hard links of the image.
    #[error(
        "policy '{policy}' has an ephemeral root (filesystem.root), in which hard links of this image would break: {why}; use filesystem.root = \"engine\" or \"read-only\""
    )]
    LinksApart {
        /// The policy's name.
        policy: String,
        /// Why the engine's layers cannot be used.
        why: String,
    },
    /// A mount that the user named for `wrap` is omitted.
    #[error("{0:?} cannot be mounted for this command: {1}")]
    Named(PathBuf, String),
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
    /// A pod in the node's own network.
    #[error("policy '{0}' refuses hostNetwork: run the pod without it")]
    HostNetwork(String),
    /// The namespace of a container with different walls.
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
        /// How the walls differ.
        why: String,
    },
    /// One container may make set-user-ID files; another one writes with the node's ids.
    #[error(
        "join of container {id} refused: it may make set-user-ID files, and {place:?} has the node's ids here; start {id} with dev.agentbox.privileges.set-id=off"
    )]
    SetIdNeighbour {
        /// The other container.
        id: String,
        /// The mount.
        place: PathBuf,
    },
    /// The policy learns hosts, but its network mode reaches none.
    #[error(
        "report.learn of policy '{policy}' is refused: it learns hosts, which only network.mode = \"allowlist\" reaches"
    )]
    Learn {
        /// The policy's name.
        policy: String,
    },
    /// Inbound ports that cannot work.
    #[error("network.inbound of policy '{policy}' is refused: {why}")]
    Inbound {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// Services that cannot be reached, or must not be.
    #[error("network.connect of policy '{policy}' is refused: {why}")]
    Connect {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// Keys of a user's SSH agent that cannot sign.
    #[error("network.ssh-keys of policy '{policy}' is refused: {why}")]
    SshKeys {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// A secret that cannot be limited to its own requests.
    #[error("policy '{policy}' cannot use a secret: {why}")]
    Secret {
        /// The policy's name.
        policy: String,
        /// The reason.
        why: String,
    },
    /// A deny rule that cannot be enforced.
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
    /// A device that the policy does not grant.
    #[error(
        "policy '{policy}' refuses the device {path:?}: the node's file can allow it (allow.devices)"
    )]
    Device {
        /// The policy's name.
        policy: String,
        /// The node in the container.
        path: PathBuf,
    },
    /// A different device under the name of one that the node's file allows.
    #[error(
        "the device {0:?} is not the node's device at this path: the node's file allows only that one (allow.devices)"
    )]
    OtherDevice(PathBuf),
    /// `dev.agentbox.workspace` names no mount.
    #[error("dev.agentbox.workspace = {0:?}: no bind mount of this container is at that path")]
    Workspace(PathBuf),
    /// Several mounts could be the workspace, and it is the only one that would be mounted.
    #[error(
        "policy '{policy}' mounts only the workspace, but several mounts could be it: {holder:?} holds the working directory, {rivals} could be meant too; set the annotation dev.agentbox.workspace, or mount the others read-only"
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
        /// The mount point it would have.
        place: PathBuf,
        /// The mount points it may have.
        allowed: String,
    },
    /// `filesystem.write` names no mount.
    #[error(
        "filesystem.write names {0:?}: no mount of this container is at that path; the image's own files can be written if filesystem.root is \"engine\" or \"ephemeral\""
    )]
    Written(PathBuf),
    /// Something requested would be omitted.
    #[error(
        "policy '{policy}' refuses to start if anything is left out (filesystem.left-out = \"error\"): {what}"
    )]
    LeftOut {
        /// The policy's name.
        policy: String,
        /// The omitted items, each with its reason.
        what: String,
    },
    /// The workspace is on the list of paths that are never mounted.
    #[error("the workspace {destination:?} (from {source_path:?}) is refused: {why}")]
    WorkspaceRefused {
        /// Mount point in the container.
        destination: PathBuf,
        /// Path on the node.
        source_path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A mount that may contain credentials which the search did not reach.
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
    /// A mount whose ids must be mapped, but cannot be.
    #[error(
        "the ids of the mount at {destination:?} cannot be mapped (filesystem.idmap = \"on\"): {why}; use \"auto\" (root's files there stay root's on the node), or ext4, xfs, btrfs or tmpfs"
    )]
    NotMapped {
        /// Mount point in the container.
        destination: PathBuf,
        /// The reason.
        why: String,
    },
    /// A destination that is not an absolute, plain path.
    #[error("the mount destination {0:?} is not an absolute path without `..`")]
    Destination(PathBuf),
}

/// How a run gets rid of a limit: its user cannot leave out what the node has set.
fn without(field: Field, origin: &Origin) -> String {
    match origin {
        Origin::Node | Origin::File(_) | Origin::Ceiling(_) => {
            format!("ask root for a policy and a ceiling with {field} = \"unlimited\"")
        }
        Origin::Annotation(_)
        | Origin::Flag
        | Origin::Option(_)
        | Origin::Setting(_)
        | Origin::OwnFile(_)
        | Origin::Default
        | Origin::Builtin(_)
        | Origin::Update => format!("leave {field} out"),
    }
}
