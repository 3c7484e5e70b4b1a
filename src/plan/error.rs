//! PURE. Why a container cannot be planned. Each error says what to do about it.

use std::path::PathBuf;

use crate::policy::{Field, Origin, Tool};

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
        "policy '{0}' hides crashes, but kernel.core_pattern is a socket: make it a file or a pipe, or set `core-socket = true` \
         under [allow] of the node's file"
    )]
    CoreSocket(String),
    /// The limit of core files is 0, and cannot be 1.
    #[error(
        "policy '{0}' needs a core limit of 1, but the hard limit is 0 and root lacks CAP_SYS_RESOURCE: start the engine with \
         LimitCORE=1 or after `ulimit -Hc 1`"
    )]
    CoreLimit(String),
    /// A limit that no cgroup on this node can enforce.
    #[error(
        "policy '{policy}' sets limits.{field} ({bound}), but cgroups here have no {controller} controller: enable it \
         (`agentbox doctor`), or set it to \"unlimited\""
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
        "policy '{policy}' hides {path:?} of {source_path:?} (credentials), a deletion for git: run `git restore`, \
         `git update-index --skip-worktree`, or {}",
        shown(*tool)
    )]
    Tracked {
        /// The policy's name.
        policy: String,
        /// Path in the mount.
        path: PathBuf,
        /// The mount's source.
        source_path: PathBuf,
        /// The caller's tool.
        tool: Tool,
    },
    /// A mask that git might record as a change of the project.
    #[error(
        "policy '{policy}' hides {path:?} of {source_path:?} (credentials), and git may track it: {why}; or remove it, or {}",
        shown(*tool)
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
        /// The caller's tool.
        tool: Tool,
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
        "join of container {id} refused: it may make set-user-ID files, and {place:?} has the node's ids here; start {id} with {}",
        tool.sets(Field::PrivilegesSetId, "off")
    )]
    SetIdNeighbour {
        /// The other container.
        id: String,
        /// The mount.
        place: PathBuf,
        /// The caller's tool.
        tool: Tool,
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
        "policy '{policy}' mounts only the workspace, but several mounts could be it ({holder}, {rivals}): add {}, or mount the \
         others read-only",
        tool.names(&tool.sets_workspace(holder))
    )]
    WhichWorkspace {
        /// The policy's name.
        policy: String,
        /// The mount that holds the working directory.
        holder: String,
        /// The others.
        rivals: String,
        /// The caller's tool.
        tool: Tool,
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
        "the mount at {destination:?} (from {source_path:?}) cannot be searched for sockets and credentials: {why}; \
         mount less, or set filesystem.search to \"partial\""
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
        "the ids of the mount at {destination:?} cannot be mapped (filesystem.idmap = \"on\"): {why}; use \"auto\", or a \
         directory on ext4, xfs, btrfs or tmpfs"
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

/// How a policy shows credentials. Options of `wrap` may loosen it; annotations may not.
fn shown(tool: Tool) -> String {
    match tool {
        Tool::Wrap => format!(
            "show it: {}",
            tool.adds(Field::FilesystemCredentials, &["NAME"])
        ),
        Tool::Engine | Tool::Annotating | Tool::Pod | Tool::PodmanPod => {
            "list it in filesystem.credentials of the node's policy".to_owned()
        }
    }
}

/// How a run gets rid of a limit: its user cannot leave out what the node has set.
fn without(field: Field, origin: &Origin) -> String {
    match origin {
        Origin::Node | Origin::NodeEntry(_) | Origin::File(_) | Origin::Ceiling(_) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 31: the reader pastes the cure into the tool that refused.
    #[test]
    fn a_cure_is_in_the_words_of_the_callers_tool() {
        const KEY: &str = "dev.agentbox.workspace";
        for (tool, adds) in [
            (Tool::Engine, format!("the annotation {KEY}=/work")),
            (Tool::Annotating, format!("--annotation {KEY}=/work")),
            (Tool::Pod, format!("the pod's annotation {KEY}: \"/work\"")),
        ] {
            let error = PlanError::WhichWorkspace {
                policy: "strict".into(),
                holder: "/work".into(),
                rivals: "/data".into(),
                tool,
            };
            let words = error.to_string();
            assert!(words.contains(&format!(": add {adds}, ")), "{words}");
        }
        let off = |tool| {
            let id = "other".to_owned();
            let place = "/cache".into();
            PlanError::SetIdNeighbour { id, place, tool }.to_string()
        };
        let option = "start other with --annotation dev.agentbox.privileges.set-id=off";
        assert!(off(Tool::Annotating).ends_with(option));
        assert!(off(Tool::Pod).ends_with("dev.agentbox.privileges.set-id: \"off\""));
        let tracked = |tool| {
            let error = PlanError::Tracked {
                policy: "standard".into(),
                path: ".netrc".into(),
                source_path: "/srv/project".into(),
                tool,
            };
            error.to_string()
        };
        let root = "list it in filesystem.credentials of the node's policy";
        assert!(tracked(Tool::Annotating).ends_with(root));
        let option = "show it: --set filesystem.credentials=+,NAME";
        assert!(tracked(Tool::Wrap).ends_with(option));
    }
}
