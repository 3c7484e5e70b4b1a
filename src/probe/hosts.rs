//! The never-list on this node, by inode, to recognise an entry under another name.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::stat::{FileOnMount, FileStat, RealDirs, RealFile};
use super::{open_path, real_path};
use crate::engines::layout::{CONTAINERD, data_by_layer, data_by_root, docker_data, podmans_list};
use crate::kernel::mountinfo::join;
use crate::kernel::paths::is_outside;
use crate::plan::never::NeverList;
use crate::plan::{FileKind, FoundCredential};

/// Paths of the list, as they are on this node.
pub(super) struct Hosts {
    known: Vec<KnownFile>,
    /// Positions of directories that were already visited, for one decision.
    met: RefCell<HashMap<FileOnMount, ListPosition>>,
}

/// A file of the list that exists on this node.
struct KnownFile {
    dev: u64,
    ino: u64,
    /// The name in the list.
    name: PathBuf,
    /// The real path.
    real: PathBuf,
    /// Not in the list: the engine's own data on this node.
    engine: bool,
    /// Named by the node file: hidden inside another source whatever its kind.
    of_node: bool,
}

/// The entry of the list that a file matches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListMatch {
    /// Its name in or below an entry of the list.
    pub(super) name: Option<PathBuf>,
    /// The engine's own data that it is, or lies in.
    pub(super) engine: Option<PathBuf>,
}

/// The list's path of the node's own files.
const NODE: &str = "/etc/agentbox";
/// The list's path of trusted certificates: mounted read-only.
const CERTIFICATES: &str = "/etc/ssl/certs";

/// Paths in the node file.
#[derive(Debug, Default)]
pub struct NodePlaces {
    /// Policies, presets, secrets and the node file itself.
    pub hidden: Vec<PathBuf>,
    /// Trusted certificates, which may be mounted read-only.
    pub public: Vec<PathBuf>,
}

impl KnownFile {
    /// An engine's data in an unusual place, judged as if it were in the usual one.
    fn moved(never: &NeverList, plain: &mut RealDirs, data: &Path, usual: &str) -> Option<Self> {
        if !data.is_absolute() || never.refuses(data).is_some() {
            return None;
        }
        let RealFile {
            dev,
            ino,
            path: real,
        } = plain.resolve(data)?;
        (never.refuses(&real).is_none() && real != Path::new("/")).then(|| Self {
            dev,
            ino,
            name: usual.into(),
            real,
            engine: false,
            of_node: false,
        })
    }

    /// The match of the file at `rest` below this one.
    fn with(&self, rest: &Path) -> ListMatch {
        match self.engine {
            true => ListMatch {
                name: None,
                engine: Some(self.name.clone()),
            },
            false => ListMatch {
                name: Some(join(&self.name, rest)),
                engine: None,
            },
        }
    }
}

/// The position of a directory relative to the list's entries.
#[derive(Clone)]
enum ListPosition {
    /// In an entry, or the entry itself: its number, and its path at that time.
    In { known: usize, path: PathBuf },
    /// In no entry.
    Apart,
}

/// The parent of an open directory.
pub(super) fn open_above(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        directory,
        "..",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

impl Hosts {
    /// The list's paths, and the engine's data directory, known from the path of the root file system.
    pub(super) fn of(never: &NeverList, rootfs: &Path) -> Self {
        let never_in = never.host.iter().map(|h| &h.path);
        let listed = never_in.chain(never.read_only.iter().map(|r| &r.path));
        let listed = listed.map(|path| (path.clone(), false));
        let data = docker_data(rootfs).into_iter();
        let data = data.flat_map(|d| ["overlay2", "containers"].map(|name| (d.join(name), true)));
        let mut plain = RealDirs::default();
        let known = listed.chain(data).filter_map(|(name, engine)| {
            let RealFile {
                dev,
                ino,
                path: real,
            } = plain.resolve(&name)?;
            Some(KnownFile {
                dev,
                ino,
                name,
                real,
                engine,
                of_node: false,
            })
        });
        let mut known: Vec<KnownFile> = known.collect();
        let moved = data_by_root(rootfs, has_list);
        known.extend(
            moved.and_then(|(data, usual)| KnownFile::moved(never, &mut plain, data, usual)),
        );
        Self {
            known,
            met: RefCell::default(),
        }
    }

    /// Adds entries. Forgets known positions, which may change with them.
    fn add(&mut self, more: impl IntoIterator<Item = KnownFile>) {
        self.known.extend(more);
        self.met.borrow_mut().clear();
    }

    /// Adds the paths in the node file, judged as if they were below [`NODE`] or [`CERTIFICATES`].
    pub(super) fn add_nodes(&mut self, never: &NeverList, places: &NodePlaces) {
        let mut plain = RealDirs::default();
        let hidden = places.hidden.iter().map(|place| (place, NODE));
        let public = places.public.iter().map(|place| (place, CERTIFICATES));
        let known = hidden.chain(public).filter_map(|(place, usual)| {
            let mut known = KnownFile::moved(never, &mut plain, place, usual)?;
            known.name = Path::new(usual).join(place.file_name()?);
            known.of_node = true;
            Some(known)
        });
        self.add(known.collect::<Vec<_>>());
    }

    /// Adds containerd's data directory, known from the layers of the root file system.
    pub(super) fn add_layers<'a>(
        &mut self,
        never: &NeverList,
        layers: impl Iterator<Item = &'a PathBuf>,
    ) {
        let data: BTreeSet<&Path> = layers.filter_map(|l| data_by_layer(l)).collect();
        let mut plain = RealDirs::default();
        let known = data
            .into_iter()
            .filter_map(|data| KnownFile::moved(never, &mut plain, data, CONTAINERD));
        self.add(known);
    }

    /// The entry that this directory is, under any path, if `never` always refuses that entry.
    pub(super) fn is_one(&self, never: &NeverList, fd: &OwnedFd) -> Option<PathBuf> {
        let known = self.by_inode(FileStat::of(fd).ok()?.file)?;
        let never_in = known.engine || never.host.iter().any(|h| h.path == known.name);
        never_in.then(|| known.name.clone())
    }

    /// The entry that this directory is, of any kind.
    pub(super) fn entry(&self, fd: &OwnedFd) -> Option<PathBuf> {
        let known = self.by_inode(FileStat::of(fd).ok()?.file)?;
        Some(known.name.clone())
    }

    fn by_inode(&self, file: FileOnMount) -> Option<&KnownFile> {
        let is_it = |k: &&KnownFile| (k.dev, k.ino) == (file.dev, file.ino);
        self.known.iter().find(is_it)
    }

    /// The entry that a file is, or lies in, under another name than the list's: by a bind mount, a link or a hard
    /// link.
    pub(super) fn known_as(&self, opened: (&OwnedFd, &FileStat), real: &Path) -> ListMatch {
        self.walk(opened, real).unwrap_or_default()
    }

    fn walk(&self, (fd, stat): (&OwnedFd, &FileStat), real: &Path) -> Option<ListMatch> {
        if let Some(known) = self.by_inode(stat.file) {
            return Some(known.with(Path::new("")));
        }
        let is_directory = stat.kind() == FileKind::Directory;
        if is_directory && real == Path::new("/") {
            return None;
        }
        let above = is_directory.then(|| open_above(fd).ok()).flatten();
        let position = match above {
            Some(above) => self.position(above).ok()?,
            None => self.position_at(real.parent()?)?,
        };
        match position {
            ListPosition::In { known, path } => {
                // If the entry was renamed meanwhile, it counts as the entry itself.
                let rest = real.strip_prefix(&path).unwrap_or(Path::new(""));
                Some(self.known.get(known)?.with(rest))
            }
            ListPosition::Apart => None,
        }
    }

    /// The position of the directory at a path, perhaps remembered.
    fn position_at(&self, directory: &Path) -> Option<ListPosition> {
        let stat = FileStat::at(directory).ok();
        let met = stat.and_then(|stat| self.met(stat.file));
        met.or_else(|| {
            let opened = open_path(directory, ResolveFlags::NO_SYMLINKS).ok()?;
            self.position(opened).ok()
        })
    }

    /// Whether a directory is in an entry, or is one. Remembers the position of each directory on the way up.
    fn position(&self, directory: OwnedFd) -> io::Result<ListPosition> {
        let (mut here, mut way) = (directory, Vec::new());
        // No path has more components (PATH_MAX).
        for _ in 0..2048 {
            let file = FileStat::of(&here)?.file;
            if let Some(met) = self.met(file) {
                return Ok(self.remember(way, met));
            }
            way.push(file);
            let path = real_path(here.as_fd())?;
            let is_it = |k: &KnownFile| (k.dev, k.ino) == (file.dev, file.ino);
            if let Some(known) = self.known.iter().position(is_it) {
                return Ok(self.remember(way, ListPosition::In { known, path }));
            }
            if path == Path::new("/") {
                return Ok(self.remember(way, ListPosition::Apart));
            }
            here = open_above(&here)?;
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    fn met(&self, file: FileOnMount) -> Option<ListPosition> {
        self.met.borrow().get(&file).cloned()
    }

    fn remember(&self, way: Vec<FileOnMount>, position: ListPosition) -> ListPosition {
        let told = way.into_iter().filter(|file| file.mount.is_some());
        let all = told.map(|file| (file, position.clone()));
        self.met.borrow_mut().extend(all);
        position
    }

    /// The match of a path, by the real paths of the list's entries.
    pub(super) fn by_path(&self, path: &Path) -> ListMatch {
        let above = self.known.iter().filter(|k| k.real != Path::new("/"));
        let nearest = above
            .filter(|k| !is_outside(path, &k.real) && path.starts_with(&k.real))
            .max_by_key(|k| (k.real.components().count(), k.engine));
        nearest
            .and_then(|k| Some(k.with(path.strip_prefix(&k.real).ok()?)))
            .unwrap_or_default()
    }

    /// Entries inside a source that the list's names do not show. Nested ones are omitted: the outer one hides them.
    pub(super) fn inside(&self, never: &NeverList, real: &Path) -> Vec<FoundCredential> {
        let is_never = |k: &KnownFile| k.engine || k.of_node || never.refuses(&k.name).is_some();
        let moved = self
            .known
            .iter()
            .filter(|k| (k.engine || k.real != k.name) && k.name != Path::new("/"));
        let found: Vec<(&Path, &KnownFile)> = moved
            .filter(|k| !is_outside(&k.real, real))
            .filter_map(|k| Some((k.real.strip_prefix(real).ok()?, k)))
            .filter(|(rest, _)| rest.components().next().is_some())
            .filter(|(_, k)| is_never(k))
            .collect();
        let nested = |rest: &Path| {
            let mut all = found.iter();
            all.any(|(other, _)| rest != *other && rest.starts_with(other))
        };
        let outermost = found.iter().filter(|(rest, _)| !nested(rest));
        let inside = outermost.map(|(rest, k)| {
            let why = format!("it is {}", k.name.display());
            // Known by its whole path: the node's link leads there.
            FoundCredential::hidden(rest.to_path_buf(), why, rest.components().count())
        });
        inside.collect()
    }
}

/// Whether a driver's data has podman's list of containers beside it.
fn has_list(data: &Path, driver: &str) -> bool {
    data.join(podmans_list(driver)).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::probe::TestDir;

    fn never(paths: &[PathBuf]) -> NeverList {
        let host = |p: &PathBuf| format!("[[host]]\npath = {p:?}\nwhy = \"w\"\n");
        let text: String = paths.iter().map(host).collect();
        toml::from_str(&format!("{text}[credentials]\nwhy = \"c\"\npaths = []\n")).unwrap()
    }

    fn open(path: &Path) -> OwnedFd {
        open_path(path, ResolveFlags::empty()).unwrap()
    }

    fn known_as(hosts: &Hosts, path: &Path) -> ListMatch {
        let fd = open(path);
        hosts.known_as((&fd, &FileStat::of(&fd).unwrap()), path)
    }

    /// Stores that were moved are judged as if they were in the usual place, with their volumes.
    #[test]
    fn an_engines_store_is_recognised_in_any_place() {
        let scratch = TestDir::new("stores");
        let dir = scratch.0.canonicalize().unwrap();
        let id = "0123456789abcdef".repeat(4);
        let podman = dir.join("p/overlay").join(&id).join("merged");
        let docker = dir.join("d/rootfs/overlayfs").join(&id);
        let layer = dir.join("c/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs");
        for path in [&podman, &docker, &layer] {
            fs::create_dir_all(path).unwrap();
        }
        for path in [
            "p/secrets",
            "p/volumes/v/_data",
            "d/containers",
            "d/volumes/v/_data",
            "c/io.containerd.content.v1.content",
        ] {
            fs::create_dir_all(dir.join(path)).unwrap();
        }
        let never = NeverList::builtin();
        let judged = |hosts: &Hosts, path: &str| {
            let path = dir.join(path);
            let found = known_as(hosts, &path);
            let name = found.name.unwrap_or(path);
            (
                never.refuses(&name).is_some(),
                never.read_only(&name).is_some(),
            )
        };
        let (never_in, let_in) = ((true, true), (false, false));
        let hosts = Hosts::of(never, &podman);
        assert_eq!(judged(&hosts, "p/secrets"), never_in);
        assert_eq!(judged(&hosts, "p/volumes/v/_data"), let_in);
        assert_eq!(judged(&hosts, "d/containers"), let_in);
        let inside = |hosts: &Hosts| -> Vec<PathBuf> {
            let inside = hosts.inside(never, &dir).into_iter();
            inside.map(|i| i.path).collect()
        };
        assert_eq!(inside(&hosts), [PathBuf::from("p")]);
        let mut hosts = Hosts::of(never, &docker);
        assert_eq!(judged(&hosts, "d/containers"), never_in);
        assert_eq!(judged(&hosts, "d/volumes/v/_data"), let_in);
        assert_eq!(judged(&hosts, "c/io.containerd.content.v1.content"), let_in);
        let relative = PathBuf::from("io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs");
        hosts.add_layers(never, [layer, relative].iter());
        assert_eq!(
            judged(&hosts, "c/io.containerd.content.v1.content"),
            never_in
        );
        assert_eq!(inside(&hosts), ["d", "c"].map(PathBuf::from));
        // Docker without containerd's image store: the known parts of its data are hidden with the whole.
        let merged = dir.join("o/overlay2").join(&id).join("merged");
        fs::create_dir_all(&merged).unwrap();
        fs::create_dir_all(dir.join("o/swarm")).unwrap();
        let hosts = Hosts::of(never, &merged);
        assert_eq!(judged(&hosts, "o/swarm"), never_in);
        assert_eq!(inside(&hosts), [PathBuf::from("o")]);
        for (number, (driver, sub)) in [("vfs", "dir"), ("btrfs", "subvolumes"), ("zfs", "graph")]
            .into_iter()
            .enumerate()
        {
            for (engine, list, secrets) in [
                ("podman", format!("{driver}-containers"), "secrets"),
                ("docker", "containers".to_owned(), "swarm"),
            ] {
                let data = format!("{engine}-{number}");
                let root = dir.join(&data).join(driver).join(sub).join(&id);
                for path in [&root, &dir.join(&data).join(&list)] {
                    fs::create_dir_all(path).unwrap();
                }
                for path in [secrets, "volumes/v/_data"] {
                    fs::create_dir_all(dir.join(&data).join(path)).unwrap();
                }
                let hosts = Hosts::of(never, &root);
                assert_eq!(judged(&hosts, &data), never_in, "{driver} {engine}");
                let own = judged(&hosts, &format!("{data}/{secrets}"));
                assert_eq!(own, never_in, "{driver} {engine}");
                let volume = judged(&hosts, &format!("{data}/volumes/v/_data"));
                assert_eq!(volume, let_in, "{driver} {engine}");
            }
        }
        // In the usual place the list itself matches.
        let usual = PathBuf::from(
            "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs",
        );
        let mut hosts = Hosts::of(never, Path::new("/nowhere"));
        let before = hosts.known.len();
        hosts.add_layers(never, [usual].iter());
        assert_eq!(hosts.known.len(), before);
    }

    #[test]
    fn an_entry_is_recognised_by_its_inode_under_any_name() {
        let scratch = TestDir::new("hosts");
        let dir = scratch.0.canonicalize().unwrap();
        let at = |name: &str| dir.join(name);
        for name in [
            "listed/below",
            "real/below",
            "free",
            "data/overlay2/x/merged",
            "data/containers/y",
        ] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("secret"), "").unwrap();
        fs::hard_link(at("secret"), at("free/name")).unwrap();
        std::os::unix::fs::symlink("real", at("alias")).unwrap();
        let rootfs = at("data/overlay2/x/merged");
        let never = never(&["listed", "secret", "alias"].map(at));
        let hosts = Hosts::of(&never, &rootfs);
        let by_inode = |name: &str| known_as(&hosts, &at(name));
        let named = |name: &str| ListMatch {
            name: Some(at(name)),
            engine: None,
        };

        let is_one = |name: &str| hosts.is_one(&never, &open(&at(name)));
        assert_eq!(is_one("listed"), Some(at("listed")));
        assert_eq!(is_one("free"), None);
        // A hard link of a file, and another path to a directory.
        assert_eq!(by_inode("free/name"), named("secret"));
        for (path, name) in [
            ("real", "alias"),
            ("real/below", "alias/below"),
            ("listed/below", "listed/below"),
        ] {
            assert_eq!(by_inode(path), named(name));
            assert_eq!(hosts.by_path(&at(path)), named(name));
        }
        // The engine's own store.
        let engine = ListMatch {
            name: None,
            engine: Some(at("data/containers")),
        };
        assert_eq!(by_inode("data/containers/y"), engine);
        assert_eq!(hosts.by_path(&at("data/containers/y")), engine);
        for path in ["free", "data"] {
            assert_eq!(by_inode(path), ListMatch::default(), "{path}");
            assert_eq!(hosts.by_path(&at(path)), ListMatch::default(), "{path}");
        }
        let inside = hosts.inside(&never, &dir).into_iter().map(|i| i.path);
        let inside: Vec<PathBuf> = inside.collect();
        assert_eq!(
            inside,
            ["real", "data/overlay2", "data/containers"].map(PathBuf::from)
        );
    }
}
