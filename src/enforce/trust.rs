//! Adds the certificate of the container's own authority to each of the container's files of trusted certificates: a
//! copy with one more certificate covers the file. The file below does not change.
//!
//! This happens when all mounts exist, because a volume may cover a file of the image.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::cover::{attach, attach_at};
use super::error::EnforceError;
use super::file_system::NewFileSystem;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::plan::trust::{ALL, AUTHORITY, TRUST_IN, lists, named};
use crate::sys::mount::{change, copy};

/// The largest file of certificates, in bytes. Debian's is 220 KB.
const LARGEST: u64 = 4 << 20;

/// The certificate authorities that programs of a container trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    /// The certificate of the container's authority (PEM).
    pub authority: String,
    /// The node's trusted certificates (PEM), for a container without a list of its own.
    pub nodes: String,
}

impl TrustStore {
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

/// Adds it to the container's lists, to the files that its variables name, and to [`TRUST_IN`], to which other
/// variables point.
pub(super) fn add(trust: &TrustStore, environment: &[String]) -> Result<(), EnforceError> {
    let at = Path::new(TRUST_IN);
    let step = || format!("make the container's trusted certificates in {at:?}");
    let cover = NewFileSystem::begin("tmpfs", Path::new("tmpfs"))
        .and_then(|fs| fs.mount(Bits::NO_PRIVILEGE.and(Bits::NO_PROGRAM)))
        .map_err(EnforceError::step(step()))?;
    // The kernel can copy only mounted trees.
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
    change(cover.as_fd(), Bits::READ_ONLY, None, MountReach::One)
        .map_err(EnforceError::step(step()))
}

/// Covers a file by a copy with the certificate, and returns its content; `None` if there is no such file.
fn extend(
    trust: &TrustStore,
    cover: &OwnedFd,
    path: &Path,
) -> Result<Option<Vec<u8>>, EnforceError> {
    const NAME: &str = "list";
    let Some((there, list)) = read(path) else {
        return Ok(None);
    };
    let added = trust.added_to(&list);
    let covered = make(cover, NAME, &added).and_then(|file| {
        let stat = rustix::fs::fstat(&there)?;
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        // An owner that this user namespace does not map stays root; under an ACL the group bits mean something else.
        let owned = rustix::fs::fchown(&file, Some(uid), Some(gid));
        let listed = rustix::fs::fgetxattr(&there, c"system.posix_acl_access", &mut [0_u8; 0]);
        let group = match (owned, listed) {
            (Ok(()), Err(_)) => 0o040,
            (Ok(()), Ok(_)) | (Err(_), _) => 0,
        };
        let mode = stat.st_mode & (0o404 | group);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        let tree = copy(&file, MountReach::One)?;
        change(tree.as_fd(), Bits::READ_ONLY, None, MountReach::One).map_err(errno)?;
        attach(&tree, &there)?;
        // It is visible only there, with the permissions of the covered file.
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
    // Set again: the umask may have reduced it.
    rustix::fs::fchmod(&file, ALL_READ)?;
    Ok(file.into())
}

/// A list and its content; `None` if it is missing, or left alone: its programs then trust no opened TLS. A link to
/// another list, or to any other file, is left alone as well.
fn read(path: &Path) -> Option<(OwnedFd, Vec<u8>)> {
    match read_list(path) {
        Ok(list) => list,
        // The container's programs cannot read what this process cannot.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => None,
        Err(error) => {
            log::warn!(
                "{path:?} does not get the certificate of the container's own authority: {error}"
            );
            None
        }
    }
}

fn read_list(path: &Path) -> rustix::io::Result<Option<(OwnedFd, Vec<u8>)>> {
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = |flags| {
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), links)
    };
    // Open for reading only if that cannot block or act: no device, pipe, or file of the kernel or a server.
    let found = open(OFlags::PATH)?;
    let stat = rustix::fs::fstat(&found)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || !is_of_a_disk(rustix::fs::fstatfs(&found)?.f_type) {
        return Ok(None);
    }
    let file = open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let same = rustix::fs::fstat(&file)?;
    if (same.st_dev, same.st_ino) != (stat.st_dev, stat.st_ino) {
        return Err(Errno::STALE);
    }
    let mut bytes = Vec::new();
    let mut file = File::from(file);
    let mut bounded = Read::by_ref(&mut file).take(LARGEST + 1);
    bounded.read_to_end(&mut bytes).map_err(errno)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Errno::FBIG);
    }
    let is_list = bytes.windows(BEGIN.len()).any(|window| window == BEGIN);
    Ok(is_list.then(|| (file.into(), bytes)))
}

/// The beginning of each certificate.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

/// Whether a file system of this type (statfs(2)) only stores bytes, on a disk or in memory, like those of images and
/// volumes.
fn is_of_a_disk(kind: rustix::fs::FsWord) -> bool {
    const DISKS: [rustix::fs::FsWord; 11] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683e, // btrfs
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x794c_7630, // overlayfs
        0xf2f5_2010, // f2fs
        0x2fc1_2fc1, // zfs
        0xe0f5_e1e2, // erofs
        0x7371_7368, // squashfs
        0xca45_1a4e, // bcachefs
    ];
    DISKS.contains(&(kind & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_added_certificate_stands_apart_in_the_list() {
        let trust = TrustStore {
            authority: "own\n".to_owned(),
            nodes: "node\n".to_owned(),
        };
        assert_eq!(trust.added_to(b"one"), b"one\nown\n");
        assert_eq!(trust.added_to(b"one\n"), b"one\nown\n");
        assert_eq!(trust.added_to(b""), b"own\n");
    }

    #[test]
    fn only_plain_files_are_changed() {
        for path in [
            "/nonexistent/x",
            "/etc/passwd/x",
            "/dev/null",
            "/etc",
            "/proc/self/exe",
            "/proc/modules",
            "/proc/self/environ",
        ] {
            assert!(read(Path::new(path)).is_none(), "{path}");
        }
        let dir = std::env::temp_dir().join(format!("trust-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        // /tmp may be a link itself.
        let dir = dir.canonicalize().unwrap();
        let list = [BEGIN, b"\n"].concat();
        for (name, bytes, is_list) in [
            ("list", list.clone(), true),
            ("empty", Vec::new(), false),
            ("other", b"root:x:0:0\n".to_vec(), false),
            (
                "large",
                [list, vec![b'x'; LARGEST as usize]].concat(),
                false,
            ),
        ] {
            let path = dir.join(name);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path).is_some(), is_list, "{name}");
        }
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        assert!(read(&dir.join("socket")).is_none());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
