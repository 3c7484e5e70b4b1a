//! Opens a mount's source and reports the symbolic links on its path.
//!
//! An agent can replace part of a directory that it may write with a link. The next container that mounts that part
//! then gets the link's target (F26). So the followed links are reported, and the plan judges them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{open_path, real_path};
use crate::plan::FollowedLink;
use crate::sys::user_namespace::owner;

/// The kernel's limit on followed links (MAXSYMLINKS).
const MOST: usize = 40;

/// Opens a path and returns the links on it. Magic links are refused (ELOOP): /proc/<pid>/root and /proc/self/fd lead
/// to files that no path describes.
pub(super) fn open(path: &Path) -> rustix::io::Result<(OwnedFd, Vec<FollowedLink>)> {
    match open_path(
        path,
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    ) {
        Ok(fd) => Ok((fd, Vec::new())),
        Err(Errno::LOOP) => walk(path),
        Err(other) => Err(other),
    }
}

/// Walks step by step, each from the descriptor of the last.
fn walk(path: &Path) -> rustix::io::Result<(OwnedFd, Vec<FollowedLink>)> {
    let start = |path: &Path| match path.is_absolute() {
        true => directory("/"),
        false => directory("."),
    };
    let mut at = start(path)?;
    let mut todo = parts(path);
    let mut links = Vec::new();
    while let Some(part) = todo.pop_front() {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = rustix::fs::openat2(
            &at,
            Path::new(&part),
            flags,
            Mode::empty(),
            ResolveFlags::NO_MAGICLINKS,
        )?;
        let stat = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            at = next;
            continue;
        }
        if links.len() == MOST || rustix::fs::fstatfs(&next)?.f_type == libc::PROC_SUPER_MAGIC {
            return Err(Errno::LOOP);
        }
        let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
        let target = OsString::from_vec(target.into_bytes());
        links.push(FollowedLink {
            path: real_path(next.as_fd()).map_err(|_| Errno::IO)?,
            owner: owner(stat.st_uid),
        });
        let target = Path::new(&target);
        if target.is_absolute() {
            at = directory("/")?;
        }
        let mut more = parts(target);
        more.append(&mut todo);
        todo = more;
    }
    Ok((at, links))
}

fn directory(path: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|c| !matches!(c, Component::RootDir | Component::CurDir))
        .map(|c| c.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::probe::TestDir;

    #[test]
    fn every_link_on_the_path_is_reported_and_the_target_is_the_same() {
        let scratch = TestDir::new("links");
        let dir = scratch.0.canonicalize().unwrap();
        fs::create_dir_all(dir.join("real/below")).unwrap();
        symlink("real", dir.join("one")).unwrap();
        symlink(dir.join("one"), dir.join("two")).unwrap();
        symlink("../two/below", dir.join("real/three")).unwrap();
        let seen = |name: &str| {
            let (fd, links) = open(&dir.join(name)).unwrap();
            let names: Vec<_> = links
                .iter()
                .map(|l| l.path.strip_prefix(&dir).unwrap().to_owned())
                .collect();
            (real_path(fd.as_fd()).unwrap(), names)
        };
        let below = dir.join("real/below");
        for (name, links) in [
            ("real/below", &[][..]),
            ("one/below", &["one"]),
            ("two/below", &["two", "one"]),
            ("one/three", &["one", "real/three", "two", "one"]),
            ("one/../real/below/.", &["one"]),
        ] {
            let expected: Vec<_> = links.iter().map(std::path::PathBuf::from).collect();
            assert_eq!(seen(name), (below.clone(), expected), "{name}");
        }
    }

    #[test]
    fn loops_magic_links_and_missing_files_are_errors() {
        let scratch = TestDir::new("links-bad");
        let dir = &scratch.0;
        symlink("b", dir.join("a")).unwrap();
        symlink("a", dir.join("b")).unwrap();
        symlink("nothing", dir.join("dangling")).unwrap();
        symlink("/proc/self/root", dir.join("magic")).unwrap();
        let error = |path: &Path| open(path).unwrap_err();
        assert_eq!(error(&dir.join("a")), Errno::LOOP);
        assert_eq!(error(&dir.join("dangling")), Errno::NOENT);
        assert_eq!(error(&dir.join("magic")), Errno::LOOP);
        assert_eq!(error(Path::new("/proc/self/cwd")), Errno::LOOP);
        assert_eq!(error(Path::new("/proc/1/root/etc")), Errno::LOOP);
    }
}
