//! Looking for sockets and credentials inside a mount's source.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::plan::never::Never;
use crate::plan::{Inside, SourceFacts};

/// Entries looked at inside one mount's source, and how deep: enough for a home directory or a project's top, and
/// a bounded share of the start time for a large one.
const SEARCH_ENTRIES: usize = 16_384;
const SEARCH_DEPTH: usize = 4;

/// Sockets and credentials inside a directory, breadth first, within the bounds.
pub(super) fn search(root: &OwnedFd, never: &Never, facts: &mut SourceFacts) {
    let mut queue = VecDeque::from([(PathBuf::new(), 0)]);
    let mut seen = 0;
    while let Some((relative, depth)) = queue.pop_front() {
        let name = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &relative
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Unreadable for root means that it is unreadable in the container as well.
        let Ok(fd) = rustix::fs::openat2(
            root,
            name,
            flags,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        ) else {
            continue;
        };
        let Ok(entries) = Dir::new(fd) else { continue };
        for entry in entries.flatten() {
            let file = entry.file_name().to_bytes();
            if file == b"." || file == b".." {
                continue;
            }
            seen += 1;
            // The top is looked at whole: files planted there must not hide what lies beside them.
            if seen > SEARCH_ENTRIES && depth > 0 {
                facts.search_incomplete = true;
                return;
            }
            let path = relative.join(std::ffi::OsStr::from_bytes(file));
            if let Some(why) = unwanted(never, &path, entry.file_type()) {
                facts.inside.push(Inside { path, why });
            } else if entry.file_type() == FileType::Directory && depth + 1 < SEARCH_DEPTH {
                queue.push_back((path, depth + 1));
            }
        }
    }
}

fn unwanted(never: &Never, path: &Path, kind: FileType) -> Option<String> {
    match kind {
        FileType::Socket => Some("it is a socket".to_owned()),
        _ => never.credential(path).map(ToOwned::to_owned),
    }
}
