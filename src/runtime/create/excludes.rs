//! Tells git about hidden files: a copy of a repository's info/exclude, with their names added at the end.
//!
//! The copy is mounted read-only over the file, which does not change on the node. Writing to it in the container is an
//! error. If the mount is impossible, git stops with an error at a hidden file, rather than commit something else in
//! its place.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::plan::{Exclude, FilesystemPlan};
use crate::probe::HeldSource;

/// The most that is read for one container, in bytes: agents write these files, and the copies lie in memory.
const ROOM: u64 = 1 << 20;

/// Writes the files to be mounted, and returns each with its destination.
pub fn write<'a>(
    plan: &'a FilesystemPlan,
    sources: &[HeldSource],
    files: &Path,
) -> io::Result<Vec<(&'a Path, PathBuf)>> {
    let mut room = ROOM;
    let mut out = Vec::new();
    for (number, exclude) in plan.excludes.iter().enumerate() {
        let ExcludeFile { text, meta } = match own(plan, sources, exclude, room) {
            Ok(own) => own,
            Err(why) => {
                let file = exclude.file.display();
                log::warn!(
                    "git cannot be told about hidden files, and may stop at them: {file}: {why}"
                );
                continue;
            }
        };
        room -= text.len() as u64;
        let path = files.join(format!("exclude-{number}"));
        std::fs::write(&path, exclude.text(&text))?;
        // Only those who may read the file itself may read the copy. An agent can have replaced the file by another,
        // which root reads here and the container's user may not.
        std::os::unix::fs::chown(&path, Some(meta.uid()), Some(meta.gid()))?;
        std::fs::set_permissions(&path, Permissions::from_mode(meta.mode() & 0o444))?;
        out.push((exclude.file.as_path(), path));
    }
    Ok(out)
}

/// The repository's own exclude file: its text and its owner.
struct ExcludeFile {
    text: Vec<u8>,
    meta: Metadata,
}

/// Reads the file. A missing file is made, as git makes it, so that there is something to mount on.
fn own(
    plan: &FilesystemPlan,
    sources: &[HeldSource],
    exclude: &Exclude,
    room: u64,
) -> io::Result<ExcludeFile> {
    let mounts = plan.mounts.iter();
    let holds = mounts.filter(|m| exclude.file.starts_with(&m.destination));
    let mount = holds.max_by_key(|m| m.destination.components().count());
    let found = mount.and_then(|mount| {
        let source = sources.iter().find(|s| s.is_of(mount))?;
        let path = exclude.file.strip_prefix(&mount.destination).ok()?;
        // Over a volume of its own scratch the container writes nothing on the node.
        Some((&source.fd, path, mount.is_writable() && !mount.is_private()))
    });
    let (root, path, writable) = found.ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open(root, path, flags) {
        // A work tree says where the repository is, so nothing is made in a mount that the container may not write.
        Err(Errno::NOENT) if writable => {
            let meta = make(root, path)?.metadata()?;
            let text = Vec::new();
            return Ok(ExcludeFile { text, meta });
        }
        opened => File::from(opened?),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(room + 1).read_to_end(&mut text)?;
    match text.len() as u64 <= room {
        true => Ok(ExcludeFile { text, meta }),
        false => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Makes an empty `info/exclude`, owned by the owner of the repository.
fn make(root: &OwnedFd, path: &Path) -> io::Result<File> {
    let info = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let git = info.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let owner = rustix::fs::fstat(open(root, git, flags)?)?;
    let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    let directory = match open(root, info, flags) {
        Err(Errno::NOENT) => {
            let git = open(root, git, flags)?;
            rustix::fs::mkdirat(&git, "info", Mode::from_raw_mode(0o755))?;
            let made = open(&git, Path::new("info"), flags)?;
            rustix::fs::fchown(&made, Some(uid), Some(gid))?;
            made
        }
        opened => opened?,
    };
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = rustix::fs::openat(directory.as_fd(), "exclude", flags, mode)?;
    rustix::fs::fchown(&file, Some(uid), Some(gid))?;
    // Set again: the caller's umask may have reduced it.
    rustix::fs::fchmod(&file, mode)?;
    Ok(File::from(file))
}

/// Opens a path beneath a mount's source, without following links or crossing file systems.
fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}
