//! SHELL. Facts about the kernel and the bundle's files, for the pure planner. The only feature detection in the tree.

pub mod annotations;
mod at_end;
mod hosts;
pub mod idmap;
mod image;
mod kernel;
mod kubelet;
mod layer;
mod links;
mod named;
mod pairs;
mod search;
mod secret_volume;
mod source;
mod stat;
mod system;
#[cfg(test)]
mod test_dir;
mod volume;

use self::system::{below_settings, is_programs, is_top};

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::kernel::mount_options::MountReach;
use crate::plan::never::NeverList;
use crate::plan::wrap_plan::{WrapEnforcement, WrapPlan};
use crate::plan::{
    BundleFacts, FileKind, FilesystemPlan, MappedIds, PlannedMount, ProtectedFiles, SourceFacts,
};
use crate::policy::{Filesystem, ProtectedName, SearchRule};
use crate::scratch::overlay;
use crate::sys::mount::copy;
use pairs::MountsBySource;
use search::{HiddenNames, MountView, SearchBudget};
use source::Judge;

pub use at_end::{directory_below, is_in_git, protected, protected_by_name};
pub use hosts::NodePlaces;
pub use image::{Image, image};
pub use kernel::host;
pub use pairs::SourcesByMount;
pub use search::{IndexNames, MOST_GITS, ObjectFormat, names_of_index};
pub use source::is_home;
#[cfg(test)]
pub(crate) use test_dir::TestDir;
pub use volume::has_no_access_list;

/// Why the bundle cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A mount's source cannot be opened.
    #[error("the source {path:?} of the mount at {destination:?}")]
    Source {
        /// The source.
        path: PathBuf,
        /// Mount point in the container.
        destination: PathBuf,
        /// The errno.
        source: io::Error,
    },
    /// The root file system is the node's own, or a part of it that is always refused.
    #[error("the root file system {rootfs:?} is the node's {name:?}: use an image")]
    Root {
        /// The name in the bundle.
        rootfs: PathBuf,
        /// The node's name of it.
        name: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("{path:?}")]
    Read {
        /// The path.
        path: PathBuf,
        /// The errno.
        source: io::Error,
    },
}

/// A bind mount's source, kept open since the decision about it.
pub struct HeldSource {
    /// Its path after all symbolic links, to find it again.
    pub path: PathBuf,
    /// Device number of the inode.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// O_PATH descriptor.
    pub fd: OwnedFd,
    /// The map of its ids and the user namespace that has the map, if that was tried.
    pub map: Option<(MappedIds, OwnedFd)>,
}

impl HeldSource {
    fn of(facts: &SourceFacts, fd: OwnedFd) -> Self {
        Self {
            path: facts.path.clone(),
            dev: facts.dev,
            ino: facts.ino,
            fd,
            map: None,
        }
    }

    /// Whether a mount of the plan has this source.
    pub fn is_of(&self, mount: &PlannedMount) -> bool {
        let judged = (self.dev, self.ino);
        mount
            .bind()
            .is_some_and(|bind| bind.is_of(&self.path, judged))
    }
}

/// Whether a directory can be opened and judged: its path has no magic link.
pub fn can_be_judged(path: &Path) -> io::Result<()> {
    links::open(path).map(|_| ()).map_err(Into::into)
}

/// Reads facts about every host path in the bundle at `dir`, and keeps the sources of bind mounts open. `of_node` are
/// the node file's own path and the paths in it.
pub fn bundle(
    spec: &Spec,
    (dir, rootfs): (&Path, &Path),
    wrapped: &WrapPlan,
    of_node: &NodePlaces,
) -> Result<(BundleFacts, Vec<HeldSource>), ProbeError> {
    let mut judge = Judge::new(spec, rootfs);
    judge.hosts.add_nodes(judge.never, of_node);
    let root = open_path(rootfs, ResolveFlags::empty()).map_err(|e| ProbeError::Read {
        path: rootfs.to_owned(),
        source: e.into(),
    })?;
    let mut names = judge.shown_as(&root)?;
    judge.learn(&root)?;
    let base = real_path(root.as_fd()).map_err(|source| ProbeError::Read {
        path: rootfs.to_owned(),
        source,
    })?;
    names.insert(base.clone());
    let name = judge.hosts.is_one(judge.never, &root);
    let name = name.or_else(|| names.iter().find_map(|n| below_settings(n)));
    if let Some(name) = name.filter(|_| wrapped.is_empty()) {
        return Err(ProbeError::Root {
            rootfs: rootfs.to_owned(),
            name,
        });
    }
    let origin = layer::origin(&judge, &root, (dir, &base), &names)?;
    let (mut sources, mut opened, mut destinations) = (Vec::new(), Vec::new(), Vec::new());
    let mut ways = RootPaths::new(&root, &base);
    let mut parts = Vec::new();
    let mut caches = Vec::new();
    for mount in spec.mounts().iter().flatten() {
        destinations.push(ways.resolve(mount.destination()));
        let Some(mut found) = judge.source(mount)? else {
            sources.push(None);
            continue;
        };
        if wrapped.caches.contains(mount.destination()) {
            found.facts.no_links = judge.no_links(&found.fd);
            caches.push((sources.len(), opened.len()));
        }
        opened.push(HeldSource::of(&found.facts, found.fd));
        let working = found.facts.home.as_ref().and_then(|h| h.working.as_ref());
        if let (Some(facts), Some(fd)) = (working, found.working) {
            parts.push(HeldSource::of(facts, fd));
        }
        sources.push(Some(found.facts));
    }
    let over: Vec<&OwnedFd> = caches.iter().map(|(_, at)| &opened[*at].fd).collect();
    if !overlay::lies_over_all(&over) {
        for (source, at) in caches {
            let facts: Option<&mut SourceFacts> = sources[source].as_mut();
            if let Some(facts) = facts {
                facts.no_overlay = overlay::why_not(&opened[at].fd, &facts.file_system.kind);
            }
        }
    }
    // Sources of mounts come first, one for each mount.
    opened.append(&mut parts);
    let facts = BundleFacts {
        now: crate::sys::clocks::read(),
        sources,
        destinations,
        bundle: dir.to_owned(),
        rootfs: rootfs.to_owned(),
        root: origin,
        home: named::home(spec, rootfs),
        wrapped: wrapped.clone(),
        devices: named::devices(spec),
        engine_hooks: named::engine_hooks(spec),
        // Not in the bundle: the descriptors that the container is handed.
        handed_file: None,
        // Not in the bundle: the engine, which `--root` shows.
        cri: false,
        // Not in the bundle: the containers that share a namespace, which only the runtime's records show.
        neighbours: BTreeMap::new(),
    };
    Ok((facts, opened))
}

/// Searches the plan's mounts for sockets and credentials. Returns whether the plan must be made again with the
/// results.
pub fn search(
    facts: &mut BundleFacts,
    opened: &[HeldSource],
    plan: &FilesystemPlan,
    policy: &Filesystem,
) -> bool {
    let (never, meant) = (NeverList::builtin(), policy.visible_credentials());
    let unwanted = HiddenNames::new(never, &meant);
    let protects = !policy.unprotected.iter().any(ProtectedName::is_all);
    let mut told = false;
    let wrapped = &facts.wrapped;
    let by_source = MountsBySource::new(plan);
    let places = places(wrapped, plan, opened);
    let sources = facts.sources.iter_mut().flatten();
    for (source, found) in sources.zip(opened) {
        let mut mounts = by_source.of(found);
        let budget = match mounts
            .clone()
            .any(|m| !wrapped.contains(&m.destination) || !is_top(&m.destination))
        {
            false if policy.search == SearchRule::Partial => SearchBudget::SYSTEM,
            _ => SearchBudget::of(policy.search),
        };
        let wanted = mounts.any(|m| {
            // A cache has only packages, by the list; a socket in it has no server through an overlay. An agent's directory is
            // all its own.
            let is_cache = wrapped.caches.contains(&m.destination)
                || wrapped.agent.contains_key(&m.destination);
            let is_system = || wrapped.is_system(never, &m.destination, source);
            !(is_cache || is_programs(&m.destination) && is_system())
        });
        if unwanted.is_runtime(source.dev, source.ino) {
            source.runtime = Some(source.path.clone());
            told = true;
        }
        if source.kind != FileKind::Directory || !wanted {
            continue;
        }
        let before = source.inside.len();
        // As in the container: a clone of this mount alone shows the files that other mounts of the node cover.
        let tree = copy(&found.fd, MountReach::One);
        // Without the right to clone (`explain` by an ordinary user) nothing is mounted either.
        let root = tree.as_ref().unwrap_or(&found.fd);
        let mut view = view(wrapped, by_source.of(found).next(), &places);
        let mut own = by_source.of(found);
        if protects && own.any(|m| plan.is_users(wrapped, m, source)) {
            view.unprotected = Some(&policy.unprotected);
        }
        search::search(root, &unwanted, budget, &view, source);
        told |= source.protected != ProtectedFiles::default();
        told |=
            source.inside.len() > before || source.unsearched.is_some() || source.runtime.is_some();
    }
    told
}

/// The container paths of all sources.
fn places<'a>(
    wrapped: &WrapPlan,
    plan: &FilesystemPlan,
    opened: &'a [HeldSource],
) -> Vec<(PathBuf, BorrowedFd<'a>)> {
    let by_mount = SourcesByMount::new(opened);
    // By rules nothing is mounted: what the user has where an agent's directory would be is still there.
    let is_there = |mount: &&PlannedMount| {
        wrapped.by == WrapEnforcement::Mounts || !wrapped.agent.contains_key(&mount.destination)
    };
    let there = plan.mounts.iter().filter(is_there);
    let places = there.filter_map(|mount| {
        let source = &opened[by_mount.of(opened, mount)?];
        Some((mount.destination.clone(), source.fd.as_fd()))
    });
    places.collect()
}

/// The container paths of a source's mount and of the others.
fn view<'a>(
    wrapped: &WrapPlan,
    own: Option<&PlannedMount>,
    others: &'a [(PathBuf, BorrowedFd<'a>)],
) -> MountView<'a> {
    MountView {
        passed: own.map_or_else(Vec::new, |m| wrapped.packages_below(&m.destination)),
        own: own.map(|m| m.destination.clone()).unwrap_or_default(),
        unprotected: None,
        others,
    }
}

fn open_path(path: &Path, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)
}

/// The target of a destination through the image's own links.
pub fn destination(rootfs: &Path, destination: &Path) -> PathBuf {
    match open_path(rootfs, ResolveFlags::empty()) {
        Ok(root) => match real_path(root.as_fd()) {
            Ok(base) => RootPaths::new(&root, &base).resolve(destination),
            Err(_) => destination.to_owned(),
        },
        Err(_) => destination.to_owned(),
    }
}

/// Targets of destinations through the image's own links. The existing part is resolved as in the container, the rest
/// is kept. A shared parent is looked up once.
struct RootPaths<'a> {
    root: &'a OwnedFd,
    /// The root's path on the node.
    base: &'a Path,
    /// Existing paths and their targets.
    known: HashMap<PathBuf, PathBuf>,
}

impl<'a> RootPaths<'a> {
    fn new(root: &'a OwnedFd, base: &'a Path) -> Self {
        Self {
            root,
            base,
            known: HashMap::new(),
        }
    }

    fn resolve(&mut self, destination: &Path) -> PathBuf {
        for existing in destination.ancestors() {
            if let Some(inside) = self.inside(existing) {
                let rest = destination.strip_prefix(existing).unwrap_or(Path::new(""));
                return Path::new("/")
                    .join(inside)
                    .join(rest)
                    .components()
                    .collect();
            }
        }
        destination.to_owned()
    }

    /// The target of an existing path, relative to the root.
    fn inside(&mut self, existing: &Path) -> Option<PathBuf> {
        if let Some(known) = self.known.get(existing) {
            return Some(known.clone());
        }
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::openat2(self.root, existing, flags, Mode::empty(), resolve).ok()?;
        let real = real_path(fd.as_fd()).ok()?;
        let inside = real.strip_prefix(self.base).ok()?.to_path_buf();
        self.known.insert(existing.to_owned(), inside.clone());
        Some(inside)
    }
}

/// Whether libcontainer treats a mount as a bind mount.
pub fn is_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
        || mount
            .options()
            .iter()
            .flatten()
            .any(|o| o == "bind" || o == "rbind")
}

fn real_path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
