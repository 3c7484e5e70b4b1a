//! The never-list on this node, by inode, so that another name for an entry is recognised.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::{open_path, real_path};
use crate::plan::Inside;
use crate::plan::mountinfo::join;
use crate::plan::never::Never;

/// Paths of the list, as they are on this node.
pub(super) struct Hosts {
    known: Vec<Known>,
}

struct Known {
    dev: u64,
    ino: u64,
    /// As the list names it.
    name: PathBuf,
    /// Where that really is.
    real: PathBuf,
    /// Not in the list: the engine's own data, known on this node alone.
    engine: bool,
}

/// What something is by the list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The name that it has in or below an entry of the list.
    pub(super) name: Option<PathBuf>,
    /// The engine's own data that it is, or lies in.
    pub(super) engine: Option<PathBuf>,
}

impl Known {
    /// What lies at `rest` below it.
    fn with(&self, rest: &Path) -> Found {
        match self.engine {
            true => Found {
                name: None,
                engine: Some(self.name.clone()),
            },
            false => Found {
                name: Some(join(&self.name, rest)),
                engine: None,
            },
        }
    }
}

/// Directories that are where their names say: no symbolic link is in their paths. The list's entries nearly all are, and
/// one call tells it of each.
#[derive(Default)]
struct Plain(HashMap<PathBuf, bool>);

impl Plain {
    /// Device, inode and real path of what a name leads to.
    fn place(&mut self, name: &Path) -> Option<(u64, u64, PathBuf)> {
        let stat = stat(name)?;
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !link && name.parent().is_none_or(|above| self.is_plain(above)) {
            return Some((stat.st_dev, stat.st_ino, name.to_owned()));
        }
        let fd = open_path(name, ResolveFlags::empty()).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        Some((stat.st_dev, stat.st_ino, real_path(fd.as_fd()).ok()?))
    }

    fn is_plain(&mut self, dir: &Path) -> bool {
        let Some(above) = dir.parent() else {
            return dir == Path::new("/");
        };
        if let Some(known) = self.0.get(dir) {
            return *known;
        }
        let is_dir = || {
            let stat = stat(dir)?;
            Some(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        let plain = is_dir() == Some(true) && self.is_plain(above);
        self.0.insert(dir.to_owned(), plain);
        plain
    }
}

/// What is at a path itself. Nothing is mounted for it.
fn stat(path: &Path) -> Option<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    rustix::fs::statat(CWD, path, flags).ok()
}

impl Hosts {
    /// The list's paths, and the engine's data directory as the root file system's place betrays it.
    pub(super) fn of(never: &Never, rootfs: &Path) -> Self {
        let never_in = never.host.iter().map(|h| &h.path);
        let listed = never_in.chain(never.read_only.iter().map(|r| &r.path));
        let listed = listed.map(|path| (path.clone(), false));
        let store = rootfs
            .ancestors()
            .find(|a| a.file_name().is_some_and(|n| n == "overlay2"));
        let data = store.and_then(Path::parent).into_iter();
        let data = data.flat_map(|d| ["overlay2", "containers"].map(|name| (d.join(name), true)));
        let mut plain = Plain::default();
        let known = listed.chain(data).filter_map(|(name, engine)| {
            let (dev, ino, real) = plain.place(&name)?;
            Some(Known {
                dev,
                ino,
                name,
                real,
                engine,
            })
        });
        Self {
            known: known.collect(),
        }
    }

    /// The entry that this directory is, whatever its path says, if `never` lets it in nowhere.
    pub(super) fn is_one(&self, never: &Never, fd: &OwnedFd) -> Option<PathBuf> {
        let stat = rustix::fs::fstat(fd).ok()?;
        let known = self.by_inode(stat.st_dev, stat.st_ino)?;
        let never_in = known.engine || never.host.iter().any(|h| h.path == known.name);
        never_in.then(|| known.name.clone())
    }

    fn by_inode(&self, dev: u64, ino: u64) -> Option<&Known> {
        self.known.iter().find(|k| (k.dev, k.ino) == (dev, ino))
    }

    /// What something is that is, or lies in, an entry under another name than the list's: by a bind mount, a link or a
    /// hard link.
    pub(super) fn known_as(&self, fd: &OwnedFd, real: &Path) -> Found {
        self.walk(fd, real).unwrap_or_default()
    }

    fn walk(&self, fd: &OwnedFd, real: &Path) -> Option<Found> {
        let stat = rustix::fs::fstat(fd).ok()?;
        if let Some(known) = self.by_inode(stat.st_dev, stat.st_ino) {
            return Some(known.with(Path::new("")));
        }
        let mut at =
            rustix::fs::openat(fd, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        if at.is_none() {
            at = open_path(real.parent()?, ResolveFlags::NO_SYMLINKS).ok();
        }
        // At most as deep as paths can be.
        for _ in 0..2048 {
            let here = at?;
            let stat = rustix::fs::fstat(&here).ok()?;
            let path = real_path(here.as_fd()).ok()?;
            if let Some(known) = self.by_inode(stat.st_dev, stat.st_ino) {
                return Some(known.with(real.strip_prefix(&path).ok()?));
            }
            if path == Path::new("/") {
                return None;
            }
            at =
                rustix::fs::openat(&here, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        }
        None
    }

    /// What lies at a path by the places where the list's entries really are.
    pub(super) fn by_path(&self, path: &Path) -> Found {
        let above = self.known.iter().filter(|k| k.real != Path::new("/"));
        let nearest = above
            .filter(|k| path.starts_with(&k.real))
            .max_by_key(|k| (k.real.components().count(), k.engine));
        nearest
            .and_then(|k| Some(k.with(path.strip_prefix(&k.real).ok()?)))
            .unwrap_or_default()
    }

    /// Entries that lie inside a source although the list's names do not say so.
    pub(super) fn inside<'a>(
        &'a self,
        never: &'a Never,
        real: &'a Path,
    ) -> impl Iterator<Item = Inside> + 'a {
        let is_never = |k: &&Known| k.engine || never.host.iter().any(|h| h.path == k.name);
        let moved = self
            .known
            .iter()
            .filter(|k| (k.engine || k.real != k.name) && k.name != Path::new("/"));
        moved.filter(is_never).filter_map(move |k| {
            let rest = k.real.strip_prefix(real).ok()?;
            rest.components().next()?;
            let why = format!("it is {}", k.name.display());
            // By its whole path: the node's link leads there.
            let known_by = rest.components().count();
            Some(Inside::hidden(rest.to_owned(), why, known_by))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::probe::TestDir;

    fn never(paths: &[PathBuf]) -> Never {
        let host = |p: &PathBuf| format!("[[host]]\npath = {p:?}\nwhy = \"w\"\n");
        let text: String = paths.iter().map(host).collect();
        toml::from_str(&format!("{text}[credentials]\nwhy = \"c\"\npaths = []\n")).unwrap()
    }

    fn open(path: &Path) -> OwnedFd {
        open_path(path, ResolveFlags::empty()).unwrap()
    }

    #[test]
    fn what_is_listed_is_known_by_its_inode_under_any_name() {
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
        let by_inode = |name: &str| hosts.known_as(&open(&at(name)), &at(name));
        let named = |name: &str| Found {
            name: Some(at(name)),
            engine: None,
        };

        let is_one = |name: &str| hosts.is_one(&never, &open(&at(name)));
        assert_eq!(is_one("listed"), Some(at("listed")));
        assert_eq!(is_one("free"), None);
        // A hard link of a file, and another way to a directory.
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
        let engine = Found {
            name: None,
            engine: Some(at("data/containers")),
        };
        assert_eq!(by_inode("data/containers/y"), engine);
        assert_eq!(hosts.by_path(&at("data/containers/y")), engine);
        for path in ["free", "data"] {
            assert_eq!(by_inode(path), Found::default(), "{path}");
            assert_eq!(hosts.by_path(&at(path)), Found::default(), "{path}");
        }
        let inside: Vec<PathBuf> = hosts.inside(&never, &dir).map(|i| i.path).collect();
        assert_eq!(
            inside,
            ["real", "data/overlay2", "data/containers"].map(PathBuf::from)
        );
    }
}
