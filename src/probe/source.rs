//! Facts of one bind mount's source, from a descriptor and from the mount that it is on.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use oci_spec::runtime::{LinuxNamespaceType, Mount, Spec};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::hosts::Hosts;
use super::idmap::is_without_set_id;
use super::stat::{FileStat, mount_id};
use super::{ProbeError, is_bind, kubelet, links, open_path, real_path, secret_volume, volume};
use crate::engines::kubelet::is_secret;
use crate::kernel::mountinfo::{MountTable, join};
use crate::plan::anonymous::is_anonymous;
use crate::plan::never::NeverList;
use crate::plan::pod::pod_role;
use crate::plan::{FileKind, FileSystem, FoundCredential, Home, SourceFacts, SourceIds, passwd};
use crate::scratch::overlay;
use crate::sys::mount::takes_handles;
use crate::sys::user_namespace::{only_user, owner};

/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

/// The depth of stacked overlays: the kernel stacks two (FILESYSTEM_MAX_STACK_DEPTH).
const STACKED: usize = 4;

/// Judges sources.
pub(super) struct Judge {
    pub(super) never: &'static NeverList,
    pub(super) hosts: Hosts,
    /// Read once, when first needed.
    mounts: OnceCell<MountTable>,
    /// The file system types of mounts.
    magics: RefCell<HashMap<u64, i64>>,
    /// The working directory of the init process.
    cwd: Option<PathBuf>,
    /// Whether its overlays are mounted in a user namespace other than the node's.
    user_namespace: bool,
    /// Whether a CRI engine made it. A pod's author names any path of the node, also that of another engine's volume.
    in_pod: bool,
}

/// A source with its facts, kept open since the probe.
pub(super) struct JudgedSource {
    pub(super) facts: SourceFacts,
    pub(super) fd: OwnedFd,
    /// The working directory in it, if the source is a whole home directory.
    pub(super) working: Option<OwnedFd>,
}

/// The names of a file on the node, or the reason why they are unknown.
type NamesResult = Result<NodeNames, String>;

/// The names of a file in the mounts of the node.
#[derive(Default)]
struct NodeNames {
    /// Its other names.
    names: BTreeSet<PathBuf>,
    /// Its paths in its file system and in those of the layers of its overlay.
    inner: BTreeSet<PathBuf>,
    /// The file systems of the layers.
    layers: Vec<FileSystem>,
}

impl Judge {
    pub(super) fn new(spec: &Spec, rootfs: &Path) -> Self {
        let never = NeverList::builtin();
        Self {
            hosts: Hosts::of(never, rootfs),
            never,
            mounts: OnceCell::new(),
            magics: RefCell::default(),
            cwd: spec.process().as_ref().map(|p| p.cwd().clone()),
            user_namespace: has_user_namespace(spec),
            in_pod: pod_role(spec).is_some(),
        }
    }

    /// Opens and judges a mount's source; `None` if it is not a bind mount.
    pub(super) fn source(&self, mount: &Mount) -> Result<Option<JudgedSource>, ProbeError> {
        if !is_bind(mount) {
            return Ok(None);
        }
        let path = mount.source().clone().unwrap_or_default();
        let fail = |e: Errno| ProbeError::Source {
            path: path.clone(),
            destination: mount.destination().clone(),
            source: e.into(),
        };
        let (fd, links) = links::open(&path).map_err(fail)?;
        let mut facts = self.look(&fd, &fail)?;
        facts.links = links;
        let mut working = None;
        if facts.kind == FileKind::Directory && facts.all_names().any(is_home) {
            let below = self.working_in(mount.destination());
            let found = below.and_then(|below| directory_in(&fd, &below));
            let looked = found.as_ref().map(|fd| self.look(fd, &fail)).transpose()?;
            facts.home = Some(Home {
                working: looked.map(Box::new),
            });
            working = found;
        }
        Ok(Some(JudgedSource { facts, fd, working }))
    }

    /// The working directory relative to a mount point, if it is below it.
    fn working_in(&self, destination: &Path) -> Option<PathBuf> {
        let cwd = self.cwd.as_ref()?;
        let below = cwd.strip_prefix(destination).ok()?;
        let plain = below
            .components()
            .all(|c| matches!(c, Component::Normal(_)));
        (plain && !below.as_os_str().is_empty()).then(|| below.to_owned())
    }

    /// Learns from a root file system's layers where containerd's data lies.
    pub(super) fn learn(&mut self, root: &OwnedFd) -> Result<(), ProbeError> {
        let table = self.mounts()?;
        let line = mount_id(root).and_then(|id| table.by_id(id));
        let layers = line.and_then(|line| line.layers());
        if let Some(layers) = layers {
            self.hosts.add_layers(self.never, layers.directories.iter());
        }
        Ok(())
    }

    /// The names of a root file system besides its path. Unknown names prove nothing: engines stack images.
    pub(super) fn shown_as(&self, fd: &OwnedFd) -> Result<BTreeSet<PathBuf>, ProbeError> {
        let table = self.mounts()?;
        let real = real_path(fd.as_fd()).unwrap_or_default();
        let line = mount_id(fd).and_then(|id| table.by_id(id));
        Ok(line
            .and_then(|line| table.names(line, &real))
            .unwrap_or_default())
    }

    /// The facts of an open file, without those of files inside it.
    fn look(
        &self,
        fd: &OwnedFd,
        fail: &impl Fn(Errno) -> ProbeError,
    ) -> Result<SourceFacts, ProbeError> {
        let stat = FileStat::of(fd).map_err(fail)?;
        let magic = self.magic(fd, stat.file.mount).map_err(fail)?;
        let real = real_path(fd.as_fd()).map_err(|source| ProbeError::Read {
            path: PathBuf::from("/proc/self/fd"),
            source,
        })?;
        let kind = stat.kind();
        let owner = owner(stat.uid);
        let mut facts = SourceFacts {
            roots: owner == 0 && stat.mode & 0o022 == 0,
            trusted: owner == 0 && stat.links == 1 && stat.mode & 0o022 == 0,
            tmpfs: magic == TMPFS,
            ids: SourceIds {
                uid: stat.uid,
                gid: stat.gid,
                inert: magic == TMPFS && is_without_set_id(fd),
                mapped: None,
            },
            hard_linked: kind == FileKind::File && stat.links > 1,
            same_as: hard_link(&stat),
            ..SourceFacts::plain(real, stat.file.dev, stat.file.ino, kind)
        };
        facts.file_system = FileSystem {
            kind: self.mount_kind(stat.file.mount)?,
            magic,
        };
        match self.names(stat.file.mount, &facts.path, STACKED)? {
            Ok(shown) => {
                facts.names = shown.names;
                facts.inner = shown.inner;
                facts.layers = shown.layers;
            }
            Err(why) => facts.nameless = Some(why),
        }
        let known = self.hosts.known_as((fd, &stat), &facts.path);
        facts.names.extend(known.name);
        facts.same_as = facts.same_as.or(known.engine);
        // A directory of the list that is a link on this node, found through another mount.
        for name in facts.names.clone() {
            let known = self.hosts.by_path(&name);
            facts.names.extend(known.name);
            facts.same_as = facts.same_as.take().or(known.engine);
        }
        facts.names.remove(&facts.path);
        facts.by_kubelet = kubelet::names(&facts);
        if is_anonymous(&facts) {
            facts.no_overlay = overlay::why_not(fd, &facts.file_system.kind);
            facts.no_links = self.no_links(fd);
        }
        facts.engines_volume = !self.in_pod && volume::is_engines(fd, &stat, &facts);
        if facts.all_names().any(is_secret) {
            facts.holds = secret_volume::look(fd, facts.kind);
        }
        let inside = facts
            .all_names()
            .flat_map(|name| self.hosts.inside(self.never, name));
        let inside: BTreeSet<FoundCredential> = inside.collect();
        facts.inside = inside.into_iter().collect();
        let below = facts.all_names().flat_map(|n| self.never.below(n));
        let linked = below
            .map(|(rest, _)| rest)
            .filter(|rest| is_linked(fd, rest));
        facts.linked = linked.map(Path::to_path_buf).collect();
        Ok(facts)
    }

    /// Whether an overlay over a directory breaks hard links apart. It does without file handles, and the kernel uses
    /// those only for overlays of the node's own user namespace (`ovl_can_decode_fh`).
    pub(super) fn no_links(&self, fd: &OwnedFd) -> bool {
        self.user_namespace || !takes_handles(fd.as_fd()).unwrap_or(false)
    }

    pub(super) fn mounts(&self) -> Result<&MountTable, ProbeError> {
        const MOUNTS: &str = "/proc/self/mountinfo";
        if let Some(table) = self.mounts.get() {
            return Ok(table);
        }
        let text = crate::sys::procfs::bytes(MOUNTS).map_err(|source| ProbeError::Read {
            path: MOUNTS.into(),
            source,
        })?;
        Ok(self.mounts.get_or_init(|| MountTable::parse(&text)))
    }

    /// The file system type in mountinfo; empty if its mount is not there.
    fn mount_kind(&self, mount: Option<u64>) -> Result<String, ProbeError> {
        let line = mount.map(|id| Ok(self.mounts()?.by_id(id)));
        let line = line.transpose()?.flatten();
        Ok(line.map(|l| l.kind.clone()).unwrap_or_default())
    }

    /// The file system type, read once for each mount. Its sources stay open, so that no other mount gets its number.
    fn magic(&self, fd: &OwnedFd, mount: Option<u64>) -> rustix::io::Result<i64> {
        let mut known = self.magics.borrow_mut();
        if let Some(magic) = mount.and_then(|mount| known.get(&mount)) {
            return Ok(*magic);
        }
        let magic = rustix::fs::fstatfs(fd)?.f_type;
        known.extend(mount.map(|mount| (mount, magic)));
        Ok(magic)
    }

    /// The other names of a path on a mount. `depth` is how many overlays may still be stacked.
    fn names(
        &self,
        mount: Option<u64>,
        real: &Path,
        depth: usize,
    ) -> Result<NamesResult, ProbeError> {
        let unknown = || "its mount is not among those of the node".to_owned();
        let table = self.mounts()?;
        let Some(line) = mount.and_then(|id| table.by_id(id)) else {
            return Ok(Err(unknown()));
        };
        let (Some(names), Some(inner)) = (table.names(line, real), line.inner(real)) else {
            return Ok(Err(unknown()));
        };
        let mut shown = NodeNames {
            names,
            inner: [inner.clone()].into(),
            layers: Vec::new(),
        };
        // The node's own root may be an overlay too: every file on it has its name below "/".
        let layers = line.layers().filter(|_| !table.is_of_root(line));
        let rest = inner.strip_prefix("/").unwrap_or(&inner);
        for layer in layers.into_iter().flat_map(|l| l.directories) {
            shown.names.insert(join(&layer, rest));
            let lost = || {
                format!(
                    "the layer {} of its overlay cannot be found",
                    layer.display()
                )
            };
            if !layer.is_absolute() || depth == 0 {
                return Ok(Err(lost()));
            }
            let Ok(below) = open_path(&layer, ResolveFlags::NO_MAGICLINKS) else {
                return Ok(Err(lost()));
            };
            let Ok(path) = real_path(below.as_fd()) else {
                return Ok(Err(lost()));
            };
            // An overlay that covers its own layer hides it: only the name is known.
            let mount = mount_id(&below);
            if mount == Some(line.id) {
                let Some(covered) = table.covered_by(line, &path) else {
                    return Ok(Err(lost()));
                };
                shown.layers.push(FileSystem {
                    kind: covered.kind.clone(),
                    magic: 0,
                });
                let inner = covered.inner(&path).unwrap_or_default();
                shown.inner.insert(join(&inner, rest));
                continue;
            }
            let Ok(found) = rustix::fs::fstatfs(&below) else {
                return Ok(Err(lost()));
            };
            shown.layers.push(FileSystem {
                kind: self.mount_kind(mount)?,
                magic: found.f_type,
            });
            shown.names.insert(join(&path, rest));
            match self.names(mount, &path, depth - 1)? {
                Ok(more) => {
                    let below = |paths: BTreeSet<PathBuf>| -> Vec<PathBuf> {
                        paths.iter().map(|n| join(n, rest)).collect()
                    };
                    shown.names.extend(below(more.names));
                    shown.inner.extend(below(more.inner));
                    shown.layers.extend(more.layers);
                }
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(shown))
    }
}

/// Whether a container has its own user namespace, or its caller is in one without root's rights.
pub(super) fn has_user_namespace(spec: &Spec) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    let mut all = namespaces.into_iter().flatten();
    all.any(|n| n.typ() == LinuxNamespaceType::User) || only_user().ok().flatten().is_some()
}

/// A file of root's with several names that others may not read: a hard link of /etc/shadow has its inode.
fn hard_link(stat: &FileStat) -> Option<PathBuf> {
    let secret = stat.kind() == FileKind::File && owner(stat.uid) == 0 && stat.mode & 0o004 == 0;
    (secret && stat.links > 1).then(|| PathBuf::from("a file of root's with several names"))
}

/// Opens a directory below another, without links and on the same mount.
fn directory_in(fd: &OwnedFd, below: &Path) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(fd, below, flags, Mode::empty(), resolve).ok()
}

/// Whether the path to a file below a directory has a link.
fn is_linked(fd: &OwnedFd, below: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let found = rustix::fs::openat2(fd, below, flags, Mode::empty(), resolve);
    matches!(found, Err(Errno::LOOP))
}

/// Whether a directory is a user's home, or root's.
pub fn is_home(path: &Path) -> bool {
    let above = path.parent();
    let usual = ["/home", "/var/home"]
        .iter()
        .any(|homes| above == Some(Path::new(homes)));
    let roots = ["/root", "/var/roothome"]
        .iter()
        .any(|home| path == Path::new(home));
    usual || roots || is_in_passwd(path)
}

/// Whether it is the home of a user who can log in. Read once: a verb decides in one moment.
fn is_in_passwd(path: &Path) -> bool {
    static HOMES: OnceLock<Option<HashSet<PathBuf>>> = OnceLock::new();
    // The ids between are services.
    let is_person = |uid: u32| uid == 0 || (1000..65534).contains(&uid);
    let homes = HOMES.get_or_init(|| {
        // Any user can add bytes that are not text, by chfn(1).
        let text = match crate::sys::procfs::lossy("/etc/passwd") {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(_) => return None,
        };
        let users = passwd::lines(&text);
        let users = users.filter(|user| is_person(user.uid) && user.home != "/");
        Some(users.map(|user| PathBuf::from(user.home)).collect())
    });
    // If the file cannot be read, any directory may be a home.
    homes.as_ref().is_none_or(|homes| homes.contains(path))
}
