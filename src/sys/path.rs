//! Resolves a path step by step, so that each directory and link on the way can be checked before it is followed.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::sys::user_namespace;

/// The kernel's MAXSYMLINKS.
const MOST_LINKS: usize = 40;

/// One component on the way to a path.
#[derive(Debug)]
pub struct PathStep<'a> {
    /// The directory in which it lies, without links.
    pub directory: &'a Path,
    /// The name in it.
    pub path: &'a Path,
    /// Its lstat(2).
    pub found: &'a Metadata,
}

/// The links on the way to a file, and last its path without links.
///
/// # Errors
/// The kernel's for a step, and ELOOP after forty links.
pub fn ways(file: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let real = resolve(file, |step| {
        if step.found.is_symlink() {
            all.push(step.path.to_owned());
        }
        Ok(())
    })?;
    all.push(real);
    Ok(all)
}

/// The path without links, as far as it exists. `judge` sees each step before it is taken; its error ends the walk.
///
/// # Errors
/// `judge`'s, the kernel's for a step, and ELOOP after forty links.
pub fn resolve(path: &Path, mut judge: impl FnMut(PathStep<'_>) -> Result<()>) -> Result<PathBuf> {
    let mut rest: VecDeque<OsString> = names(&std::path::absolute(path)?);
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let found = match std::fs::symlink_metadata(&next) {
            Ok(found) => found,
            // A missing file leads nowhere else.
            Err(error) if error.kind() == ErrorKind::NotFound && !rest.contains(&"..".into()) => {
                return Ok(rest.into_iter().fold(next, |path, name| path.join(name)));
            }
            Err(error) => return Err(error),
        };
        judge(PathStep {
            directory: &at,
            path: &next,
            found: &found,
        })?;
        if !found.is_symlink() {
            at = next;
            continue;
        }
        let target = std::fs::read_link(&next)?;
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in names(&target).into_iter().rev() {
            rest.push_front(name);
        }
    }
    Ok(at)
}

/// Paths without links, each directory on the way looked at once. For the length of one decision, and for what is judged again by
/// what is opened: a link that is made meanwhile is not seen.
#[derive(Debug, Default)]
pub struct RealPaths(RefCell<HashMap<PathBuf, Option<PathBuf>>>);

impl RealPaths {
    /// As `canonicalize` of std; `None` where that fails.
    pub fn of(&self, path: &Path) -> Option<PathBuf> {
        // Only plain paths are in it.
        if let Some(known) = self.0.borrow().get(path) {
            return known.clone();
        }
        let plain = |part| matches!(part, Component::Normal(_) | Component::RootDir);
        if !path.is_absolute() || !path.components().all(plain) {
            return path.canonicalize().ok();
        }
        let real = self.look(path);
        self.0.borrow_mut().insert(path.to_owned(), real.clone());
        real
    }

    fn look(&self, path: &Path) -> Option<PathBuf> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Some(PathBuf::from("/"));
        };
        let real = self.of(above)?.join(name);
        match std::fs::read_link(&real) {
            Ok(_) => real.canonicalize().ok(),
            // It is there, and no link.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Some(real),
            Err(_) => None,
        }
    }
}

/// Removes a directory with all in it, and follows no link. std lists each directory before it removes it; most mount points
/// are empty.
pub fn remove_tree(at: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<()> {
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        removed => return Ok(removed?),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = Dir::new(openat(at, name, flags, Mode::empty())?)?;
    let entries: Vec<_> = directory.by_ref().collect::<rustix::io::Result<_>>()?;
    let directory = directory.fd()?;
    for entry in entries {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        // Some file systems tell no types.
        let removed = match entry.file_type() {
            FileType::Directory => Err(Errno::ISDIR),
            _ => unlinkat(directory, name, AtFlags::empty()),
        };
        match removed {
            Err(Errno::ISDIR) => remove_tree(directory, name)?,
            removed => removed?,
        }
    }
    Ok(unlinkat(at, name, AtFlags::REMOVEDIR)?)
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// A directory, link or file on the way to a path that other users can change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} on the way there belongs to user {owner} and has mode {mode:o}")]
pub struct UnsafePath {
    /// The path.
    pub path: PathBuf,
    /// Its owner.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
}

/// Resolves a path if every directory, link and file on it belongs to root or to `user`, and others cannot write it. In
/// a directory with the sticky bit (/tmp) only an entry's owner can replace it (unlink(2)), so the entry's owner
/// counts.
///
/// # Errors
/// [`UnsafePath`] as the inner error of one of kind `PermissionDenied`; else the kernel's.
pub fn resolve_owned(path: &Path, user: u32) -> Result<PathBuf> {
    let root = std::fs::symlink_metadata("/")?;
    judge_owner(Path::new("/"), &root, user)?;
    resolve(path, |step| judge_owner(step.path, step.found, user))
}

/// As [`resolve_owned`], but the directory at the end of the path may be any user's.
///
/// # Errors
/// As those.
pub fn resolve_within_owned(path: &Path, user: u32) -> Result<PathBuf> {
    let mut way = Vec::new();
    let end = resolve(path, |step| {
        way.push((step.path.to_owned(), step.found.clone()));
        Ok(())
    })?;
    let root = std::fs::symlink_metadata("/")?;
    judge_owner(Path::new("/"), &root, user)?;
    let mut way = way.iter().filter(|(path, _)| *path != end);
    way.try_for_each(|(path, found)| judge_owner(path, found, user))?;
    Ok(end)
}

fn judge_owner(path: &Path, found: &Metadata, user: u32) -> Result<()> {
    const STICKY: u32 = 0o1000;
    let (owner, mode) = (user_namespace::owner(found.uid()), found.mode() & 0o7777);
    // A link's mode means nothing (symlink(7)).
    let excused = found.is_symlink() || (found.is_dir() && mode & STICKY != 0);
    let written = mode & 0o022 != 0 && !excused;
    // A user namespace with several users does not map the node's root.
    let is_root = owner == 0 || user_namespace::is_unmapped(owner);
    if (is_root || owner == user) && !written {
        return Ok(());
    }
    let why = UnsafePath {
        path: path.to_owned(),
        owner,
        mode,
    };
    Err(Error::new(ErrorKind::PermissionDenied, why))
}

/// The step of a [`resolve_owned`] error that other users may change, if that was its cause.
pub fn weakest(error: &Error) -> Option<&UnsafePath> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn base() -> PathBuf {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        nix::unistd::mkdtemp(&base).unwrap().canonicalize().unwrap()
    }

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn every_directory_link_and_file_on_the_way_counts() {
        let base = base();
        let own = rustix::process::geteuid().as_raw();
        for dir in ["a/b", "open/c", "sticky"] {
            std::fs::create_dir_all(base.join(dir)).unwrap();
        }
        for file in ["a/b/file", "open/c/file", "sticky/file"] {
            std::fs::write(base.join(file), "").unwrap();
            chmod(&base.join(file), 0o644);
        }
        for dir in ["a", "a/b", "open/c"] {
            chmod(&base.join(dir), 0o755);
        }
        chmod(&base.join("open"), 0o777);
        chmod(&base.join("sticky"), 0o1777);
        symlink("../../open/c/file", base.join("a/b/link")).unwrap();
        symlink("open/c", base.join("short")).unwrap();
        let weak = |path: &str| {
            let error = resolve_owned(&base.join(path), own).err()?;
            let weak = weakest(&error).expect("a step is named").path.clone();
            Some(weak.strip_prefix(&base).unwrap().to_owned())
        };
        assert_eq!(weak("a/b/file"), None);
        assert_eq!(weak("a/b/none"), None);
        assert_eq!(weak("sticky/file"), None);
        for through in ["open/c/file", "a/b/link", "short/file", "short/../none"] {
            assert_eq!(weak(through), Some("open".into()), "{through}");
        }
        chmod(&base.join("a/b/file"), 0o664);
        assert_eq!(weak("a/b/file"), Some("a/b/file".into()));
        chmod(&base.join("a/b/file"), 0o644);
        if own == 0 {
            let entry = base.join("sticky/file");
            std::os::unix::fs::chown(&entry, Some(1), None).unwrap();
            assert_eq!(weak("sticky/file"), Some("sticky/file".into()));
            assert!(resolve_owned(&entry, 1).is_ok());
            std::os::unix::fs::lchown(base.join("short"), Some(1), None).unwrap();
            chmod(&base.join("open"), 0o755);
            assert_eq!(weak("short/file"), Some("short".into()));
        }
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn links_are_followed_and_loops_are_errors() {
        let base = base();
        std::fs::create_dir_all(base.join("project/sub")).unwrap();
        symlink("project", base.join("own")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let real = |path: &str| resolve(&base.join(path), |_| Ok(()));
        assert_eq!(real("own/sub/new").unwrap(), base.join("project/sub/new"));
        assert_eq!(real("own/sub/../../x").unwrap(), base.join("x"));
        assert!(real("loop").is_err() && real("own/none/../new").is_err());
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn real_paths_are_those_of_the_system_and_stay_as_they_were() {
        let dir = base();
        std::fs::create_dir_all(dir.join("real/below")).unwrap();
        std::fs::write(dir.join("real/file"), "").unwrap();
        symlink("real", dir.join("one")).unwrap();
        symlink(dir.join("one/below"), dir.join("two")).unwrap();
        symlink("circle", dir.join("circle")).unwrap();
        symlink("nothing", dir.join("dangling")).unwrap();
        let real = RealPaths::default();
        for path in [
            "real/below",
            "one",
            "one/below",
            "two",
            "two/../file",
            "one/file",
            "one/./file",
            "real/file/below",
            "circle",
            "dangling",
            "none/below",
        ] {
            let path = dir.join(path);
            assert_eq!(real.of(&path), path.canonicalize().ok(), "{path:?}");
        }
        assert_eq!(real.of(Path::new("/")), Some(PathBuf::from("/")));
        assert_eq!(real.of(Path::new("proc")), None);
        // What was looked at is not looked at again.
        std::fs::remove_file(dir.join("one")).unwrap();
        assert_eq!(real.of(&dir.join("one")), Some(dir.join("real")));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_tree_is_removed_and_what_its_links_lead_to_is_not() {
        let dir = base();
        std::fs::create_dir_all(dir.join("tree/one/two/three")).unwrap();
        std::fs::create_dir_all(dir.join("kept/below")).unwrap();
        std::fs::write(dir.join("tree/one/file"), "x").unwrap();
        symlink("../../kept", dir.join("tree/one/link")).unwrap();
        remove_tree(rustix::fs::CWD, &dir.join("tree")).unwrap();
        assert!(!dir.join("tree").exists() && dir.join("kept/below").exists());
        symlink("kept", dir.join("tree")).unwrap();
        assert!(remove_tree(rustix::fs::CWD, &dir.join("tree")).is_err());
        assert!(dir.join("kept/below").exists());
        remove_tree(rustix::fs::CWD, &dir).unwrap();
    }
}
