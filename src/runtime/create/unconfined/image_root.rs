//! Resolves a mount's destination through the links of an image, also through dangling links: runc creates their
//! target; libcontainer refuses them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::runtime::error::RuntimeError;

/// The kernel's limit of links in one path (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// The root of an image.
pub struct ImageRoot(OwnedFd);

impl ImageRoot {
    /// Opens it.
    pub fn open(path: &Path) -> Result<Self, RuntimeError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Self)
            .map_err(RuntimeError::io(format!(
                "open the root file system {path:?}"
            )))
    }

    /// The path that a destination means in the container, without `..` and without links of the image. The image's
    /// links do not count below a path that an earlier mount has `covered`. After too many links the rest stays as it
    /// is: the kernel will refuse it.
    pub fn destination(&self, path: &Path, covered: &[PathBuf]) -> PathBuf {
        let mut done = PathBuf::from("/");
        let mut left: VecDeque<OsString> = parts(path).collect();
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            if part == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&part);
            let image = !covered.iter().any(|place| next.starts_with(place));
            match self.link(&next).filter(|_| image && links < MOST_LINKS) {
                Some(target) => {
                    links += 1;
                    if target.is_absolute() {
                        done = PathBuf::from("/");
                    }
                    for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                        left.push_front(part);
                    }
                }
                None => done = next,
            }
        }
        done
    }

    /// The mode of a directory of the image.
    pub fn mode(&self, path: &Path) -> Option<u32> {
        let stat = rustix::fs::fstat(self.at(path, OFlags::DIRECTORY)?).ok()?;
        Some(stat.st_mode & 0o7777)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        let link = self.at(path, OFlags::NOFOLLOW)?;
        // Links only: readlinkat(2) with an empty path fails with ENOENT on other files.
        let target = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn at(&self, path: &Path, flags: OFlags) -> Option<OwnedFd> {
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.0, path, flags, Mode::empty(), resolve).ok()
    }
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_within_the_image_even_dangling_ones() {
        let dir = std::env::temp_dir().join(format!("resolve-in-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("etc")).unwrap();
        symlink("../var/target", dir.join("etc/link")).unwrap();
        symlink("/../../../abs", dir.join("etc/out")).unwrap();
        symlink("nowhere/deep", dir.join("etc/deep")).unwrap();
        symlink("round", dir.join("round")).unwrap();
        let root = ImageRoot::open(&dir).unwrap();
        for (given, meant) in [
            ("/etc/link", "/var/target"),
            ("/etc/out", "/abs"),
            ("/etc/deep/x/y", "/etc/nowhere/deep/x/y"),
            ("/a/../../b", "/b"),
            ("rel//x/", "/rel/x"),
            ("/round", "/round"),
        ] {
            let found = root.destination(Path::new(given), &[]);
            assert_eq!(found, Path::new(meant), "{given}");
        }
        let covered = root.destination(Path::new("/etc/link"), &[PathBuf::from("/etc")]);
        assert_eq!(covered, Path::new("/etc/link"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
