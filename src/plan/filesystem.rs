//! PURE. The file system wall of a plan.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::facts::VisibleFile;
use super::git::Exclude;
use super::guarded_mount::GuardedMount;
use super::mount::{BindAccess, MountKind, OmittedMount, PlannedMount};
use super::protect::ProtectedPath;
use super::reason::MountReason;
use super::text;
use crate::kernel::paths::is_outside;
use crate::policy::{RootAccess, ScratchOn};
use crate::text::escape;

/// The file system wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FilesystemPlan {
    /// The access to the root file system, whatever its image says.
    pub root: RootAccess,
    /// Directories that are private, writable and thrown away, in mount order.
    pub ephemeral: Vec<EphemeralMount>,
    /// Upper bound of all ephemeral data, bytes.
    pub scratch_bytes: u64,
    /// Where the policy wants scratch data.
    pub scratch_on: ScratchOn,
    /// Where scratch data is stored.
    #[serde(default)]
    pub scratch_place: ScratchStorage,
    /// The lower part of the overlays over image files; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_below: Option<ImageBase>,
    /// Mount point of the workspace, if the container has one.
    pub workspace: Option<PathBuf>,
    /// Mounts that the container gets, in order.
    pub mounts: Vec<PlannedMount>,
    /// The directory of the node that keeps writes to caches for the next run of `wrap`.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
    /// Mounts that the engine requested and the container does not get.
    pub pruned: Vec<OmittedMount>,
    /// Paths of the container that are made empty.
    #[serde(with = "text::many")]
    pub masked: Vec<PathBuf>,
    /// The masked paths that were found inside a mount: they must exist when they are masked.
    #[serde(with = "text::many")]
    pub found: BTreeSet<PathBuf>,
    /// The directories of the found paths: they must be the same when the masks are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_in: Vec<CredentialDirectory>,
    /// The files that stay visible in some of the masked directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<VisibleFiles>,
    /// Directories in mounts that are part of the identifying name of a masked path: no process of the container can
    /// rename them.
    #[serde(
        default,
        with = "text::many",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub pinned: BTreeSet<PathBuf>,
    /// Paths in writable mounts that the user's tools run later: read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<ProtectedPath>,
    /// Writable mounts in which new files of that kind are moved aside at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<GuardedMount>,
    /// Paths of the container that are made read-only.
    pub readonly: Vec<PathBuf>,
    /// Files of the network wall that replace the engine's: /etc/hosts, /etc/resolv.conf.
    pub replaced: BTreeSet<PathBuf>,
    /// Hidden paths that git is told to ignore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<Exclude>,
}

/// The files that stay visible, read-only, in a hidden directory of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VisibleFiles {
    /// The directory, in the container.
    #[serde(with = "text::one")]
    pub directory: PathBuf,
    /// The files, by their paths in it.
    pub files: Vec<VisibleFile>,
}

/// What the init process mounts itself, looked up by path: a question for each of many mounts costs no more each.
pub struct InitMounts<'a> {
    places: HashSet<&'a Path>,
    kernels: Vec<&'a Path>,
    root: RootAccess,
}

impl InitMounts<'_> {
    /// Whether a path is in or below one of them.
    pub fn hold(&self, path: &Path) -> bool {
        let is_below = |place: &&Path| !is_outside(path, place) && path.starts_with(place);
        path.ancestors().any(|above| self.places.contains(above))
            // A writable root is the process's own overlay, or a layer in which it follows no link that an earlier
            // process of the container made.
            || (self.root != RootAccess::ReadOnly && !self.kernels.iter().any(is_below))
    }
}

/// So many files of /etc are named one by one; any small number would do.
const FEW_FILES: usize = 2;

impl FilesystemPlan {
    /// Whether another mount below this mount point is writable.
    pub(super) fn is_written_in(&self, place: &Path) -> bool {
        let below = |mount: &&PlannedMount| {
            mount.destination != place && mount.destination.starts_with(place)
        };
        self.mounts
            .iter()
            .filter(below)
            .any(PlannedMount::is_writable)
    }

    /// What happens to files that the container writes, in one line for a later reader.
    pub fn written_in_words(&self) -> String {
        // Podman binds the container's own directory there, and removes it with the container.
        let shm = Path::new("/dev/shm");
        let binds = |wanted: fn(BindAccess) -> bool| -> String {
            let all = self.mounts.iter().filter(
                |mount| matches!(&mount.kind, MountKind::Bind(bind) if wanted(bind.access)),
            );
            let all = all.filter(|mount| mount.destination != shm);
            // `wrap` shows some thirty files of /etc, which say nothing about writes.
            let is_etcs = |mount: &&PlannedMount| {
                mount.destination.starts_with("/etc") && mount.why == MountReason::Programs
            };
            let (of_etc, others): (Vec<_>, Vec<_>) = all.partition(is_etcs);
            let place = |mount: &&PlannedMount| escape(&text::of(&mount.destination));
            let mut places: Vec<String> = others.iter().map(place).collect();
            match of_etc.len() {
                0..=FEW_FILES => places.extend(of_etc.iter().map(place)),
                many => places.push(format!("{many} files of /etc")),
            }
            places.join(", ")
        };
        let in_layer = self.root == RootAccess::Engine;
        let mut words = match binds(|access| access == BindAccess::ReadWrite) {
            none if none.is_empty() && !in_layer => "nothing that it wrote stays".to_owned(),
            none if none.is_empty() => "its writes stay until the engine removes them".to_owned(),
            places if in_layer => {
                format!("its writes at {places} stay, all others until the engine removes them")
            }
            places => format!("its writes at {places} stay, all others are discarded"),
        };
        if self.kept.is_some() {
            let caches = binds(|access| access == BindAccess::Private);
            words += &format!("; writes at {caches} are kept for the next run there");
        }
        let read_only = binds(|access| access == BindAccess::ReadOnly);
        if !read_only.is_empty() {
            words += &format!("; read-only: {read_only}");
        }
        if self.root == RootAccess::ReadOnly {
            let is_wraps = |mount: &PlannedMount| mount.why == MountReason::Programs;
            words += match self.mounts.iter().any(is_wraps) {
                true => "; all else is read-only",
                false => "; the image is read-only",
            };
        }
        words + "; a write that failed has no line"
    }

    /// The workspace, on the node.
    pub fn workspace_source(&self) -> Option<&Path> {
        let mut mounts = self.mounts.iter();
        let workspace = mounts.find(|mount| mount.why == MountReason::Workspace)?;
        Some(workspace.source())
    }

    /// What the init process mounts itself.
    pub fn mounted_by_init(&self) -> InitMounts<'_> {
        let mounts = self.mounts.iter().filter(|m| !m.is_the_kernels());
        let mounts = mounts.map(|m| m.destination.as_path());
        let ephemeral = self.ephemeral.iter().map(|e| e.path.as_path());
        InitMounts {
            places: mounts.chain(ephemeral).collect(),
            kernels: self.kernel_mounts().collect(),
            root: self.root,
        }
    }

    /// The outermost mounts of those that libcontainer makes: the kernel's own file systems and /dev.
    pub fn kernel_mounts(&self) -> impl Iterator<Item = &Path> {
        let kernels = || self.mounts.iter().filter(|m| m.is_the_kernels());
        let inside_another = move |path: &Path| {
            kernels().any(|m| {
                let place = &m.destination;
                !is_outside(path, place) && place != path && path.starts_with(place)
            })
        };
        let places: BTreeSet<&Path> = kernels().map(|m| m.destination.as_path()).collect();
        places.into_iter().filter(move |path| !inside_another(path))
    }

    /// Whether the container sees the network's interfaces in /sys.
    pub fn has_sysfs(&self) -> bool {
        self.mounts
            .iter()
            .any(|m| m.destination == Path::new("/sys"))
    }

    /// Whether anything is thrown away.
    pub fn needs_scratch(&self) -> bool {
        self.root == RootAccess::Ephemeral
            || !self.ephemeral.is_empty()
            || self.mounts.iter().any(PlannedMount::is_private)
    }

    /// Whether there is an overlay over anything: the root, an image's directory, a volume.
    pub fn has_overlay(&self) -> bool {
        self.lies_over_image() || self.mounts.iter().any(PlannedMount::is_private)
    }

    /// The mount point of the node's directory that the container writes at a path.
    pub fn written_mount(&self, path: &Path) -> Option<&Path> {
        let above = self.mounts.iter();
        let above = above.filter(|m| path.starts_with(&m.destination));
        let nearest = above.max_by_key(|m| m.destination.components().count())?;
        let mut private = self.ephemeral.iter().map(|e| &e.path);
        let covers = |p: &PathBuf| path.starts_with(p) && p.starts_with(&nearest.destination);
        let is_written = nearest.bind()?.access == BindAccess::ReadWrite && !private.any(covers);
        is_written.then_some(nearest.destination.as_path())
    }

    /// Whether a directory to be held may be missing: only the container writes there, or it was held for a path that is
    /// hidden by name, whether it exists or not.
    pub fn may_be_missing(&self, directory: &Path) -> bool {
        let is_below = |path: &PathBuf| path.starts_with(directory);
        let found = |path: &PathBuf| self.found.contains(path);
        let mut named = self.masked.iter().chain(&self.readonly);
        let by_name = named.any(|path| is_below(path) && !found(path));
        let mut seen = self
            .found
            .iter()
            .chain(self.protected.iter().map(|p| &p.path));
        self.is_own(directory) || (by_name && !seen.any(is_below))
    }

    /// Whether only the container writes this path: in its root or a private directory, outside the engine's mounts.
    pub fn is_own(&self, path: &Path) -> bool {
        let depth = |place: &Path| place.components().count();
        let holds = |place: &&Path| path.starts_with(place);
        let deepest = |private: bool| {
            let mounts = self
                .mounts
                .iter()
                .filter(move |m| m.is_private() == private);
            let mounts = mounts.map(|m| m.destination.as_path());
            mounts.filter(holds).map(depth).max().unwrap_or(0)
        };
        let mounted = deepest(false);
        let private = self.ephemeral.iter().map(|e| e.path.as_path());
        let private = private.filter(holds).map(depth).max().unwrap_or(0);
        let private = private.max(deepest(true));
        match self.root {
            RootAccess::Ephemeral | RootAccess::Engine => private >= mounted,
            RootAccess::ReadOnly => private > mounted,
        }
    }
}

/// A private, writable directory that is thrown away at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EphemeralMount {
    /// Path in the container.
    pub path: PathBuf,
    /// Empty, or over the image's files.
    pub content: EphemeralContent,
}

/// Where scratch data is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScratchStorage {
    /// In memory that counts as the container's.
    #[default]
    Memory,
    /// On the node's disk, in the container's own file system.
    Disk,
}

/// The content of an ephemeral directory at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EphemeralContent {
    /// Nothing (mode 1777).
    Empty,
    /// Nothing, as a home directory: it belongs to its owner, and files in it cannot be executed.
    EmptyHome,
    /// The image's files there (an overlay).
    Image,
}

/// A directory of the container that contains credentials. Its inodes are checked when the masks are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialDirectory {
    /// Its path.
    #[serde(with = "text::one")]
    pub directory: PathBuf,
    /// Its inode; one of these if mounts lie over each other.
    pub inodes: BTreeSet<u64>,
}

/// The lower part of an overlay with an image's private files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageBase {
    /// A directory of a file system that finds files by their handles.
    Directory,
    /// The layers of the engine's overlay.
    Layers,
    /// The root as it is, where the kernel finds no file by a handle.
    AsItIs(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_by_its_path_as_by_a_comparison_with_each() {
        let some = ["", "a", "b", ".", "..", "ab"];
        let mut paths = Vec::new();
        for one in some {
            for two in some {
                for end in ["", "/", "/c", "//c/.", "/../c"] {
                    paths.push(PathBuf::from(format!("/{one}/{two}{end}")));
                }
            }
        }
        for place in &paths {
            let mounts = InitMounts {
                places: [place.as_path()].into(),
                kernels: Vec::new(),
                root: RootAccess::ReadOnly,
            };
            for path in &paths {
                let expected = path.starts_with(place);
                assert_eq!(mounts.hold(path), expected, "{path:?} in {place:?}");
            }
        }
    }
}
