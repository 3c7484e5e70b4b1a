//! The certificate of the container's own authority, in each file of trusted certificates of the container: the file is covered by a
//! copy with one certificate more. What lies below is not changed.
//!
//! It is done when all mounts are there, because a file of the image may lie under a volume.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::EnforceError;
use super::cover::{attach, attach_at, copy};
use super::file_system::NewFileSystem;
use crate::kernel::mount_options::{Bits, Reach};
use crate::plan::trust::{ALL, AUTHORITY, TRUST_IN, lists, named};
use crate::sys::mount::change;

/// The largest file of certificates, in bytes. Debian's is 220 KB.
const LARGEST: u64 = 4 << 20;

/// What the programs of a container are to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    /// The certificate of the container's authority (PEM).
    pub authority: String,
    /// What the node trusts (PEM), for a container that has no list of its own.
    pub nodes: String,
}

impl Trust {
    /// A list with the authority's certificate at its end.
    pub fn added_to(&self, list: &[u8]) -> Vec<u8> {
        let mut all = list.to_vec();
        if !all.is_empty() && !all.ends_with(b"\n") {
            all.push(b'\n');
        }
        all.extend_from_slice(self.authority.as_bytes());
        all
    }
}

/// Puts it into the lists of the container, into the files that its variables name, and into [`TRUST_IN`], where other variables
/// lead.
pub(super) fn add(trust: &Trust, environment: &[String]) -> Result<(), EnforceError> {
    let at = Path::new(TRUST_IN);
    let step = || format!("make the container's trusted certificates in {at:?}");
    let cover = NewFileSystem::begin("tmpfs", Path::new("tmpfs"))
        .and_then(|fs| fs.mount(Bits::NO_PRIVILEGE.and(Bits::NO_PROGRAM)))
        .map_err(EnforceError::step(step()))?;
    // The kernel mounts nothing out of what is not mounted itself.
    attach_at(&cover, at)?;
    make(&cover, AUTHORITY, trust.authority.as_bytes()).map_err(EnforceError::step(step()))?;
    let lists = lists().map(|list| extend(trust, &cover, list));
    let lists = lists.collect::<Result<Vec<_>, _>>()?;
    for path in named(environment) {
        extend(trust, &cover, &path)?;
    }
    let first = lists.into_iter().flatten().next();
    let all = first.unwrap_or_else(|| trust.added_to(trust.nodes.as_bytes()));
    make(&cover, ALL, &all).map_err(EnforceError::step(step()))?;
    change(cover.as_fd(), Bits::READ_ONLY, None, Reach::One).map_err(EnforceError::step(step()))
}

/// Covers a file by a copy with the certificate; what is in that. Nothing where there is no such file.
fn extend(trust: &Trust, cover: &OwnedFd, path: &Path) -> Result<Option<Vec<u8>>, EnforceError> {
    const NAME: &str = "list";
    let Some((there, list)) = read(path)? else {
        return Ok(None);
    };
    let added = trust.added_to(&list);
    let covered = make(cover, NAME, &added).and_then(|file| {
        let stat = rustix::fs::fstat(&there)?;
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        // Where the owner is nobody in this user namespace it stays root's.
        let _owned = rustix::fs::fchown(&file, Some(uid), Some(gid));
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o444))?;
        let tree = copy(&file, Reach::One)?;
        change(tree.as_fd(), Bits::READ_ONLY, None, Reach::One).map_err(errno)?;
        attach(&tree, &there)?;
        // It is seen there alone, by whoever may read what it covers.
        rustix::fs::unlinkat(cover, NAME, AtFlags::empty())
    });
    covered.map_err(EnforceError::step(format!(
        "add the container's own authority to {path:?}"
    )))?;
    Ok(Some(added))
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// A new file, for every user of the container to read.
fn make(directory: &OwnedFd, name: &str, bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
    const ALL_READ: Mode = Mode::from_raw_mode(0o444);
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(directory, name, new, ALL_READ)?);
    file.write_all(bytes).map_err(errno)?;
    // Whatever the umask is.
    rustix::fs::fchmod(&file, ALL_READ)?;
    Ok(file.into())
}

/// A file and what is in it; `None` where there is none. A link leads to another file of the list, or is left alone.
fn read(path: &Path) -> Result<Option<(OwnedFd, Vec<u8>)>, EnforceError> {
    let step = || format!("read the trusted certificates of {path:?}");
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), links);
    let file = match opened {
        // What this process may not read no program of the container may either.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => return Ok(None),
        opened => opened.map_err(EnforceError::step(step()))?,
    };
    let stat = rustix::fs::fstat(&file).map_err(EnforceError::step(step()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut file = File::from(file);
    let mut bounded = Read::by_ref(&mut file).take(LARGEST + 1);
    let read = bounded.read_to_end(&mut bytes);
    read.map_err(EnforceError::step(step()))?;
    if bytes.len() as u64 > LARGEST {
        return Err(EnforceError::step(step())(Errno::FBIG));
    }
    Ok(Some((file.into(), bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_list_of_whole_certificates_afterwards() {
        let trust = Trust {
            authority: "own\n".to_owned(),
            nodes: "node\n".to_owned(),
        };
        assert_eq!(trust.added_to(b"one"), b"one\nown\n");
        assert_eq!(trust.added_to(b"one\n"), b"one\nown\n");
        assert_eq!(trust.added_to(b""), b"own\n");
    }

    #[test]
    fn what_is_no_plain_file_is_left_alone() {
        for path in [
            "/nonexistent/x",
            "/etc/passwd/x",
            "/dev/null",
            "/etc",
            "/proc/self/exe",
        ] {
            assert!(read(Path::new(path)).unwrap().is_none(), "{path}");
        }
    }
}
