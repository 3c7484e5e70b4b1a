//! PURE. What the shell found out about the kernel and the bundle, as values: every kernel is a test input.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::git::GitState;
use super::wrapped::WrapPlan;
use super::{Neighbour, ProtectedFiles, RootOrigin, SourceIds};

/// What the kernel can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFacts {
    /// Release as uname(2) tells it, for messages.
    pub release: String,
    /// Major and minor number of the release.
    pub version: (u32, u32),
    /// Landlock's ABI, 0 when absent or switched off.
    pub landlock_abi: u32,
    /// seccomp(2) with SECCOMP_RET_KILL_PROCESS and SECCOMP_RET_USER_NOTIF.
    pub seccomp: bool,
    /// A denied call that its listener has taken is not interrupted by a signal (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, Linux
    /// 5.19).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait_killable: bool,
    /// The file system overlay.
    pub overlayfs: bool,
    /// Names of the controllers that cgroups have here, as the kernel spells them.
    pub controllers: BTreeSet<String>,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processors that this program may run on.
    pub processors: u32,
    /// kernel.core_pattern is a socket (`@`, Linux 6.16): crashes go there whatever RLIMIT_CORE is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub core_socket: bool,
    /// The limit of core files that a process can be given: 1, or 0 where the caller's hard limit is 0 and stays.
    #[serde(default = "super::process::no_core")]
    pub core_bytes: u64,
    /// Why what is thrown away cannot lie on a disk of the node, where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_disk: Option<String>,
    /// What a caller without root's rights lacks; nothing for root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<super::PersonFacts>,
}

/// What was found at the paths that a bundle names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleFacts {
    /// For each mount of the spec, in order: what its source is; `None` for one that is no bind mount.
    pub sources: Vec<Option<SourceFacts>>,
    /// For each mount of the spec, in order: where the image's own links lead its destination. Empty: nowhere else.
    pub destinations: Vec<PathBuf>,
    /// The bundle's directory, without links; engines name it by the container's id.
    pub bundle: PathBuf,
    /// The root file system, without links.
    pub rootfs: PathBuf,
    /// Whose it is.
    pub root: RootOrigin,
    /// The home directory of the container's user, from HOME or the image's passwd file.
    pub home: Option<PathBuf>,
    /// `wrap`'s own mounts, which are read-only under every policy.
    pub wrapped: WrapPlan,
    /// A file of the node that is handed in by its descriptor, if there is one.
    pub handed_file: Option<i32>,
    /// Device nodes of the spec that are, by type and number, what the node has under the same path.
    pub devices: BTreeSet<PathBuf>,
    /// Hook programs of the spec that are the engine's own network hook.
    pub engine_hooks: Vec<PathBuf>,
    /// The runtime's `--root` is one that a CRI engine gives it: nobody else says that a container is a pod's.
    pub cri: bool,
    /// Namespaces that the spec names by path: path -> this runtime's containers that are in it.
    pub neighbours: BTreeMap<PathBuf, Vec<Neighbour>>,
}

/// What a bind mount's source is, judged once by a descriptor that follows no magic link.
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
    /// Root's own, with one name, and nobody else may write it.
    pub trusted: bool,
    /// Root's own, and nobody else may write it.
    pub roots: bool,
    /// Whose it is, and how that can be mapped.
    #[serde(default)]
    pub ids: SourceIds,
    /// It lies on a tmpfs.
    pub tmpfs: bool,
    /// The file system that it lies on.
    pub file_system: FileSystem,
    /// The other paths by which the node knows it: through other mounts of its file system, the layers of its overlay,
    /// and directories of `policies/never.toml` that are links on this node.
    pub names: BTreeSet<PathBuf>,
    /// Those of its paths that lead through another mount of a kubelet's directory, by the inode of a directory on the way: path ->
    /// the same in the kubelet's own directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_kubelet: BTreeMap<PathBuf, PathBuf>,
    /// The file systems of the layers of its overlay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<FileSystem>,
    /// Its paths in the file systems on which it and the layers lie, wherever those are mounted: the root of one may be
    /// mounted nowhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub inner: BTreeSet<PathBuf>,
    /// Why its names cannot be told, where they cannot.
    pub nameless: Option<String>,
    /// The symbolic links that were followed on the way to it, in order.
    pub links: Vec<FollowedLink>,
    /// It is a file with several names in its file system (hard links), of which nobody can tell the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hard_linked: bool,
    /// What it is whatever its names say: the engine's own data, a hard link of a secret.
    pub same_as: Option<PathBuf>,
    /// Paths inside that must not be seen, relative to it.
    pub inside: Vec<FoundCredential>,
    /// Paths inside that the user's tools run later, where the container may write.
    #[serde(default)]
    pub protected: ProtectedFiles,
    /// Entries of `policies/never.toml` below it that are links here: what they lead to is judged by itself.
    pub linked: BTreeSet<PathBuf>,
    /// Where in it the runtime's own program is.
    pub runtime: Option<PathBuf>,
    /// Why the search inside is not complete, where it is not.
    pub unsearched: Option<String>,
    /// Why no overlay can be laid over it, where it is called like an anonymous volume, or is a cache of `wrap`, and that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_overlay: Option<String>,
    /// In an overlay over it hard links come apart: the kernel finds no file of it by a handle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_links: bool,
    /// It is the home directory of a person of the node, or root's.
    pub home: Option<Home>,
    /// What it holds, where it is in a pod's volume for what is secret, it holds anything, and all of it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<TokenContent>,
}

/// Whether a pod's projected volume contains a token, and anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenContent {
    /// No token of a service account.
    NoToken,
    /// Such a token, and what Kubernetes lays beside it.
    TokenAlone,
    /// Such a token, and more.
    TokenAndMore,
}

/// A whole home directory that is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Home {
    /// The working directory in it, where that is below it, is a directory and is reached without links.
    pub working: Option<Box<SourceFacts>>,
}

impl SourceFacts {
    /// What a path is by itself, with nothing found out about it but its inode and type.
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
            home: None,
            holds: None,
        }
    }

    /// What becomes of its hard links in an overlay over it, where that needs words.
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

    /// The same, those by another mount of a kubelet's directory as they are in that directory.
    pub fn kubelets_names(&self) -> impl Iterator<Item = &Path> {
        let in_kubelet = |name| self.by_kubelet.get(name).map_or(name, PathBuf::as_path);
        self.all_names().map(in_kubelet)
    }
}

/// A file system, as the kernel names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSystem {
    /// Its type in /proc/self/mountinfo.
    pub kind: String,
    /// Its number in statfs(2).
    pub magic: i64,
}

/// A symbolic link that was followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowedLink {
    /// The link itself.
    pub path: PathBuf,
    /// Who owns it.
    pub owner: u32,
}

/// A credential inside a mount's source: a file or a directory to hide.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundCredential {
    /// Path relative to the source.
    pub path: PathBuf,
    /// Why.
    pub why: String,
    /// How many of its last components it is known by: whoever renames one of those directories hides it from the next
    /// search.
    #[serde(default)]
    pub known_by: usize,
    /// The inode of the directory that it lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<u64>,
    /// What git makes of it, hidden as it is.
    #[serde(default, skip_serializing_if = "GitState::is_nothing")]
    pub git: GitState,
    /// It lies in a directory that is hidden as a whole, and is here for what git makes of it.
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
    /// What was judged.
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
    /// Something that is hidden, and that git makes nothing of.
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

    /// The directories in the source that are part of what it is known by.
    pub(super) fn named_by(&self) -> impl Iterator<Item = &Path> {
        let above = self.path.ancestors().skip(1);
        let above = above.take_while(|a| !a.as_os_str().is_empty());
        above.take(self.known_by.saturating_sub(1))
    }
}

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A UNIX socket.
    Socket,
    /// A block or character device.
    Device,
    /// A FIFO.
    Fifo,
}

impl FileKind {
    /// From the type bits of `st_mode` (inode(7)). What is none of the other kinds counts as a file.
    pub fn of(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o040_000 => Self::Directory,
            0o140_000 => Self::Socket,
            0o020_000 | 0o060_000 => Self::Device,
            0o010_000 => Self::Fifo,
            _ => Self::File,
        }
    }
}
