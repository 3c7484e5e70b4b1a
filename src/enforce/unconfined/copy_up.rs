//! Copies the files under a mount point into the mount over it (`tmpcopyup`).

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};

/// Deeper trees are surely no configuration; each level costs two descriptors and some stack.
const DEEPEST: u32 = 100;

/// Copies directories, files, symbolic links and nodes below `from` to `to`, with owners and modes. Links are not
/// followed.
pub fn directory(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    below(&reopen(from)?, to, 0)
}

/// Reopens a directory with O_PATH for reading.
fn reopen(dir: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, c".", flags, Mode::empty())?)
}

fn below(from: &OwnedFd, to: BorrowedFd<'_>, depth: u32) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            one(from, to, name, depth)?;
        }
    }
    Ok(())
}

fn one(from: &OwnedFd, to: BorrowedFd<'_>, name: &CStr, depth: u32) -> io::Result<()> {
    let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let open = |flags| {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(from, name, flags, Mode::empty())
    };
    match kind {
        FileType::Directory => {
            rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o700))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::openat(to, name, flags, Mode::empty())?;
            below(&open(OFlags::DIRECTORY)?, made.as_fd(), depth + 1)?;
        }
        FileType::RegularFile => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let made = rustix::fs::openat(to, name, flags, Mode::from_raw_mode(0o600))?;
            io::copy(
                &mut File::from(open(OFlags::NONBLOCK)?),
                &mut File::from(made),
            )?;
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(target, to, name)?;
        }
        _ => rustix::fs::mknodat(to, name, kind, Mode::from_raw_mode(0o600), stat.st_rdev)?,
    }
    own(to, name, &stat, kind)
}

fn own(to: BorrowedFd<'_>, name: &CStr, stat: &Stat, kind: FileType) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    rustix::fs::chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if kind != FileType::Symlink {
        // After the owner: chown(2) clears set-user-ID bits.
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::chmodat(to, name, mode, AtFlags::empty())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_tree_is_copied_with_modes_and_links() {
        let dir = std::env::temp_dir().join(format!("copy-up-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        std::fs::create_dir_all(from.join("sub")).unwrap();
        std::fs::create_dir(&to).unwrap();
        std::fs::write(from.join("sub/file"), "text").unwrap();
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(from.join("sub/file"), mode).unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        let open = |path| File::open(path).unwrap();
        directory(open(&from).as_fd(), open(&to).as_fd()).unwrap();
        assert_eq!(
            std::fs::read_to_string(to.join("sub/file")).unwrap(),
            "text"
        );
        let mode = std::fs::metadata(to.join("sub/file")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o640);
        let link = std::fs::read_link(to.join("link")).unwrap();
        assert_eq!(link, std::path::Path::new("/nowhere"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
