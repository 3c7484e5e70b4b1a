//! PURE. What the shell read from the kernel and the bundle, as values: tests can pass any kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{FileKind, FileSystem, FollowedLink};
use super::git::GitState;
use super::ids::SourceIds;
use super::neighbour::Neighbour;
use super::protect::ProtectedFiles;
use super::wrap_plan::WrapPlan;
use crate::rules::ClockReading;

/// What the kernel can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFacts {
    /// Release as uname(2) reports it, for messages.
    pub release: String,
    /// Major and minor number of the release.
    pub version: (u32, u32),
    /// Landlock's ABI, 0 when absent or switched off.
    pub landlock_abi: u32,
    /// seccomp(2) with SECCOMP_RET_KILL_PROCESS and SECCOMP_RET_USER_NOTIF.
    pub seccomp: bool,
    /// A signal does not interrupt a denied call that its listener has received
    /// (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux 5.19).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_killable: bool,
    /// The overlay file system.
    pub overlayfs: bool,
    /// The available cgroup controllers, by their kernel names.
    pub controllers: BTreeSet<String>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processors that this program may run on.
    pub processors: u32,
    /// kernel.core_pattern is a socket (`@`, Linux 6.16): it receives crashes whatever RLIMIT_CORE is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub core_socket: bool,
    /// The limit of core files that a process can get: 1, or 0 if the caller's hard limit is 0 and cannot be raised.
    #[serde(default = "super::process::no_core")]
    pub core_bytes: u64,
    /// Why scratch data cannot be stored on a disk of the node; `None` if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_disk: Option<String>,
    /// What a caller without root's rights lacks; nothing for root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<super::person::PersonFacts>,
}

/// What was found at the paths that a bundle names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleFacts {
    /// The clocks when they were gathered: the run begins.
    pub now: ClockReading,
    /// For each mount of the spec, in order: the facts about its source; `None` if it is no bind mount.
    pub sources: Vec<Option<SourceFacts>>,
    /// For each mount of the spec, in order: where the image's links lead its destination. Empty: no link does.
    pub destinations: Vec<PathBuf>,
    /// The bundle's directory, with links resolved; engines name it by the container's id.
    pub bundle: PathBuf,
    /// The root file system, with links resolved.
    pub rootfs: PathBuf,
    /// Where the root comes from.
    pub root: RootOrigin,
    /// The home directory of the container's user, from HOME or the image's passwd file.
    pub home: Option<PathBuf>,
    /// The mounts of `wrap` itself.
    pub wrapped: WrapPlan,
    /// The descriptor that passes in a file of the node, if there is one.
    pub handed_file: Option<i32>,
    /// Device nodes of the spec with the same type and number as the node's device at that path.
    pub devices: BTreeSet<PathBuf>,
    /// Hook programs of the spec that are the engine's own network hook.
    pub engine_hooks: Vec<PathBuf>,
    /// The runtime's `--root` is the one of a CRI engine: the only sign that a container belongs to a pod.
    pub cri: bool,
    /// Namespaces that the spec names by path: path -> this runtime's containers in it.
    pub neighbours: BTreeMap<PathBuf, Vec<Neighbour>>,
}

impl BundleFacts {
    /// Whether a mount is a named volume of the engine's.
    pub fn has_engines_volume(&self) -> bool {
        let mut sources = self.sources.iter().flatten();
        sources.any(|facts| facts.engines_volume)
    }

    /// None is: a pod's author names any path of the node, also that of another container's volume.
    pub fn count_no_volumes(&mut self) {
        for facts in self.sources.iter_mut().flatten() {
            facts.engines_volume = false;
        }
    }
}

/// Facts about a bind mount's source, read once through a descriptor that follows no magic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceFacts {
    /// Its path after all symbolic links.
    pub path: PathBuf,
    /// Device number of the inode.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Its type.
    pub kind: FileKind,
    /// Owned by root, with one hard link, and writable only by root.
    pub trusted: bool,
    /// Owned by root, and writable only by root.
    pub roots: bool,
    /// Its owner, and how its ids can be mapped.
    #[serde(default)]
    pub ids: SourceIds,
    /// It lies on a tmpfs.
    pub tmpfs: bool,
    /// The file system that it lies on.
    pub file_system: FileSystem,
    /// The other paths by which the node knows it: through other mounts of its file system, the layers of its overlay,
    /// and directories of `policies/never.toml` that are links on this node.
    pub names: BTreeSet<PathBuf>,
    /// The paths that lead through another mount of a kubelet's directory, recognised by the inode of a directory on
    /// the way: path -> the same in the kubelet's own directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_kubelet: BTreeMap<PathBuf, PathBuf>,
    /// The file systems of the layers of its overlay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<FileSystem>,
    /// Its paths within its file system and within those of the layers, wherever they are mounted: the root of one may
    /// be mounted nowhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inner: BTreeSet<PathBuf>,
    /// Why its names cannot be determined; `None` if they can.
    pub nameless: Option<String>,
    /// The symbolic links that were followed on the way to it, in order.
    pub links: Vec<FollowedLink>,
    /// A file with several hard links, whose other names cannot be determined.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard_linked: bool,
    /// What it is under any name: the engine's own data, a hard link of a secret.
    pub same_as: Option<PathBuf>,
    /// Paths inside that the container must not see, relative to it.
    pub inside: Vec<FoundCredential>,
    /// Paths inside that the user's tools run later and the container may write.
    #[serde(default)]
    pub protected: ProtectedFiles,
    /// Entries of `policies/never.toml` below it that are links here; their targets are checked separately.
    pub linked: BTreeSet<PathBuf>,
    /// The runtime's own program, if it is inside.
    pub runtime: Option<PathBuf>,
    /// Why the search inside is incomplete; `None` if it is complete.
    pub unsearched: Option<String>,
    /// Why no overlay can cover it. Set only for a source named like an anonymous volume and for a cache of `wrap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_overlay: Option<String>,
    /// An overlay over it breaks hard links: the kernel finds no file of it by a handle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_links: bool,
    /// It is a named volume in the engine's own storage, which other users of the node cannot enter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub engines_volume: bool,
    /// It is the home directory of a user of the node, or root's.
    pub home: Option<Home>,
    /// The content, if it is a pod's volume for secrets, is not empty, and could be read completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<TokenContent>,
}

/// Whether a pod's projected volume contains a token, and anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenContent {
    /// No token of a service account.
    NoToken,
    /// A token, and the files that Kubernetes puts beside it.
    TokenAlone,
    /// A token, and other files.
    TokenAndMore,
}

/// A whole home directory that is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Home {
    /// The working directory, if it is a directory below the home and reached without links.
    pub working: Option<Box<SourceFacts>>,
}

impl SourceFacts {
    /// A path with no facts but its inode and type.
    pub fn plain(path: PathBuf, dev: u64, ino: u64, kind: FileKind) -> Self {
        Self {
            path,
            dev,
            ino,
            kind,
            trusted: false,
            roots: false,
            ids: SourceIds::default(),
            tmpfs: false,
            file_system: FileSystem::default(),
            names: BTreeSet::new(),
            by_kubelet: BTreeMap::new(),
            layers: Vec::new(),
            inner: BTreeSet::new(),
            nameless: None,
            links: Vec::new(),
            hard_linked: false,
            same_as: None,
            inside: Vec::new(),
            protected: ProtectedFiles::default(),
            linked: BTreeSet::new(),
            runtime: None,
            unsearched: None,
            no_overlay: None,
            no_links: false,
            engines_volume: false,
            home: None,
            holds: None,
        }
    }

    /// What an overlay over it does to hard links, if that needs a note.
    pub(super) fn links_in_words(&self) -> &'static str {
        match self.no_links {
            true => "; a hard link to a file of it comes apart when it is made",
            false => "",
        }
    }

    /// All the paths by which the node knows it.
    pub fn all_names(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path.as_path()).chain(self.names.iter().map(PathBuf::as_path))
    }

    /// The same; a path through another mount of a kubelet's directory is given as in that directory.
    pub fn kubelets_names(&self) -> impl Iterator<Item = &Path> {
        let in_kubelet = |name| self.by_kubelet.get(name).map_or(name, PathBuf::as_path);
        self.all_names().map(in_kubelet)
    }
}

/// A credential inside a mount's source: a file or a directory to hide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundCredential {
    /// Path relative to the source.
    pub path: PathBuf,
    /// Why.
    pub why: String,
    /// How many of its last components identify it. A workload that renames one of those directories hides it from the
    /// next search.
    #[serde(default)]
    pub known_by: usize,
    /// The inode of the directory that it lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<u64>,
    /// What git makes of the hidden file.
    #[serde(default, skip_serializing_if = "GitState::is_nothing")]
    pub git: GitState,
    /// It lies in a directory that is hidden as a whole; kept only for its git state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub covered: bool,
    /// The visible files of a directory that is hidden as a whole: those that git has with the same content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<VisibleFile>,
}

/// A file that stays visible in a hidden directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VisibleFile {
    /// Relative to that directory.
    #[serde(with = "super::text::one")]
    pub path: PathBuf,
    /// What was checked.
    pub what: VisibleKind,
}

/// How the file stays visible.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VisibleKind {
    /// This very file.
    File {
        /// Device number.
        dev: u64,
        /// Inode number.
        ino: u64,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        #[serde(with = "super::text::one")]
        to: PathBuf,
    },
}

impl FoundCredential {
    /// A hidden path that git ignores.
    pub fn hidden(path: PathBuf, why: String, known_by: usize) -> Self {
        Self {
            path,
            why,
            known_by,
            directory: None,
            git: GitState::Nothing,
            covered: false,
            seen: Vec::new(),
        }
    }

    /// The directories in the source that are part of its identifying name.
    pub(super) fn named_by(&self) -> impl Iterator<Item = &Path> {
        let above = self.path.ancestors().skip(1);
        let above = above.take_while(|a| !a.as_os_str().is_empty());
        above.take(self.known_by.saturating_sub(1))
    }
}

/// The origin of a root file system: only the container's own is written directly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RootOrigin {
    /// The engine's layer of this container, or a directory of its bundle.
    Layer,
    /// No engine's record lists it: a directory that the caller named, as with `podman run --rootfs`.
    #[default]
    Named,
    /// There is a mount below it, which would come in with it.
    Mounted(PathBuf),
    /// It shows a directory of the node that no container may write.
    Shows(PathBuf),
}

impl fmt::Display for RootOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layer => f.write_str("the engine's layer of this container"),
            Self::Named => f.write_str("not a layer that an engine keeps for this container"),
            Self::Mounted(at) => write!(f, "mounted over at {}", at.display()),
            Self::Shows(name) => write!(f, "{} of the node", name.display()),
        }
    }
}
