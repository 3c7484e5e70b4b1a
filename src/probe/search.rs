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
                facts.unsearched = Some("too many files".to_owned());
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
        _ => never
            .credential(path, &crate::plan::never::Meant::new())
            .map(ToOwned::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::plan::FileKind;
    use crate::probe::TestDir;

    fn searched(dir: &Path) -> SourceFacts {
        let mut facts = SourceFacts::plain(dir.to_owned(), 0, 0, FileKind::Directory);
        let root = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap();
        search(&root, &Never::builtin(), &mut facts);
        facts.inside.sort_by(|a, b| a.path.cmp(&b.path));
        facts
    }

    fn found(facts: &SourceFacts) -> Vec<&str> {
        let paths = facts.inside.iter().filter_map(|i| i.path.to_str());
        paths.collect()
    }

    #[test]
    fn sockets_and_credentials_are_found_four_levels_deep_and_links_are_not_followed() {
        let scratch = TestDir::new("search-depth");
        let dir = &scratch.0;
        fs::create_dir_all(dir.join("a/b/c/d")).unwrap();
        fs::create_dir_all(dir.join("user/.ssh")).unwrap();
        let sockets = ["s", "a/s", "a/b/s", "a/b/c/s", "a/b/c/d/s"];
        let _held = sockets.map(|name| UnixListener::bind(dir.join(name)).unwrap());
        fs::create_dir(dir.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("a", dir.join("elsewhere/link")).unwrap();
        let facts = searched(dir);
        assert_eq!(found(&facts), ["a/b/c/s", "a/b/s", "a/s", "s", "user/.ssh"]);
        assert!(facts.unsearched.is_none());
    }

    #[test]
    fn many_files_end_the_search_below_the_top_but_not_at_it() {
        let scratch = TestDir::new("search-many");
        let dir = &scratch.0;
        for number in 0..=SEARCH_ENTRIES {
            fs::write(dir.join(number.to_string()), "").unwrap();
        }
        fs::create_dir_all(dir.join(".aws")).unwrap();
        let facts = searched(dir);
        assert_eq!(found(&facts), [".aws"]);
        assert!(facts.unsearched.is_none(), "nothing is below the top");
        fs::create_dir_all(dir.join("below/.ssh")).unwrap();
        let facts = searched(dir);
        assert!(facts.unsearched.is_some());
        assert_eq!(found(&facts), [".aws"]);
    }
}
