//! What is never let in, as it is on this node: by inode, so that another name for it is known as it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{open_path, real_path};
use crate::plan::Inside;
use crate::plan::never::Never;

/// Paths of the node that are never let in, as they are on this node.
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
    /// Not in the list: it is known on this node alone, so the list's names do not cover it.
    extra: bool,
}

impl Hosts {
    /// The list's paths, and the engine's data directory as the root file system's place betrays it.
    pub(super) fn of(never: &Never, rootfs: &Path) -> Self {
        let listed = never.host.iter().map(|h| (h.path.clone(), false));
        let store = rootfs
            .ancestors()
            .find(|a| a.file_name().is_some_and(|n| n == "overlay2"));
        let data = store.and_then(Path::parent).into_iter();
        let data = data.flat_map(|d| ["overlay2", "containers"].map(|name| (d.join(name), true)));
        let known = listed.chain(data).filter_map(|(name, extra)| {
            let stat = rustix::fs::stat(&name).ok()?;
            let real = name.canonicalize().ok()?;
            Some(Known {
                dev: stat.st_dev,
                ino: stat.st_ino,
                name,
                real,
                extra,
            })
        });
        Self {
            known: known.collect(),
        }
    }

    /// The entry whose inode this is.
    pub(super) fn is_one(&self, fd: &OwnedFd) -> Option<PathBuf> {
        let stat = rustix::fs::fstat(fd).ok()?;
        self.by_inode(stat.st_dev, stat.st_ino)
            .map(|k| k.name.clone())
    }

    fn by_inode(&self, dev: u64, ino: u64) -> Option<&Known> {
        self.known.iter().find(|k| (k.dev, k.ino) == (dev, ino))
    }

    /// The entry that this is, or lies in, under another name than the list's: by a bind mount, a link or a hard link.
    pub(super) fn other_name(&self, fd: &OwnedFd, real: &Path) -> Option<PathBuf> {
        let mut at =
            rustix::fs::openat(fd, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        if at.is_none() {
            let parent = real.parent()?;
            at = open_path(parent, ResolveFlags::NO_SYMLINKS).ok();
        }
        if let Some(known) = rustix::fs::fstat(fd)
            .ok()
            .and_then(|s| self.by_inode(s.st_dev, s.st_ino))
        {
            return (known.extra || known.name != *real).then(|| known.name.clone());
        }
        // At most as deep as paths can be.
        for _ in 0..2048 {
            let here = at?;
            let stat = rustix::fs::fstat(&here).ok()?;
            let path = real_path(here.as_fd()).ok()?;
            if let Some(known) = self.by_inode(stat.st_dev, stat.st_ino) {
                // Below "/" lies everything; below another name of it lies everything as well, but hidden.
                let by_its_name = path == known.name && !known.extra;
                return (!by_its_name).then(|| known.name.clone());
            }
            if path == Path::new("/") {
                return None;
            }
            at =
                rustix::fs::openat(&here, "..", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        }
        None
    }

    /// Entries that lie inside a source although the list's names do not say so.
    pub(super) fn inside<'a>(&'a self, real: &'a Path) -> impl Iterator<Item = Inside> + 'a {
        let moved = self
            .known
            .iter()
            .filter(|k| (k.extra || k.real != k.name) && k.name != Path::new("/"));
        moved.filter_map(move |k| {
            let rest = k.real.strip_prefix(real).ok()?;
            rest.components().next()?;
            Some(Inside {
                path: rest.to_owned(),
                why: format!("it is {}", k.name.display()),
            })
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
        let hosts = Hosts::of(&never(&["listed", "secret", "alias"].map(at)), &rootfs);
        let other = |name: &str| hosts.other_name(&open(&at(name)), &at(name));

        assert_eq!(hosts.is_one(&open(&at("listed"))), Some(at("listed")));
        assert_eq!(hosts.is_one(&open(&at("free"))), None);
        // A hard link of a file, another way to a directory, and the engine's own store.
        assert_eq!(other("free/name"), Some(at("secret")));
        assert_eq!(other("real"), Some(at("alias")));
        assert_eq!(other("real/below"), Some(at("alias")));
        assert_eq!(other("data/containers/y"), Some(at("data/containers")));
        // What the list's own names cover is not another name; nor is what has nothing to do with it.
        for name in ["secret", "listed", "listed/below", "free", "data"] {
            assert_eq!(other(name), None, "{name}");
        }
        let inside: Vec<PathBuf> = hosts.inside(&dir).map(|i| i.path).collect();
        assert_eq!(
            inside,
            ["real", "data/overlay2", "data/containers"].map(PathBuf::from)
        );
    }
}
