//! SHELL. Replaced objects among the branches. With them git shows other commits than it pushes. Loose ones are files of the
//! list, and moved aside. Those in `packed-refs` are lines among the branches, and are only said; a table of the reftable format
//! (gitformat-reftable(5), git 2.45) is not read, and that is said.

use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::probe;

/// The largest file that is read: 200,000 branches have about this much.
const LARGEST: usize = 16 << 20;

const REFTABLE: &str = "reftable";

/// What to say of a git directory whose branches may have replaced objects among them.
pub(super) fn among_branches(root: BorrowedFd<'_>, source: &Path, git: &Path) -> Vec<String> {
    let Ok(directory) = probe::directory_below(root, git) else {
        return Vec::new();
    };
    let git = source.join(git);
    [packed(&directory, &git), tables(&directory, &git)]
        .into_iter()
        .flatten()
        .collect()
}

/// Whatever is there under the name: git follows a link.
fn tables(directory: &OwnedFd, git: &Path) -> Option<String> {
    rustix::fs::statat(directory, REFTABLE, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(format!(
        "{} is not searched for replaced objects: review with git --no-replace-objects",
        git.join(REFTABLE).display()
    ))
}

fn packed(directory: &OwnedFd, git: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, "packed-refs", flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let _as_far = File::from(file)
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut text);
    let path = git.join("packed-refs");
    let path = path.display();
    if text.len() > LARGEST {
        return Some(format!(
            "{path} is too large to search for replaced objects: review with git --no-replace-objects"
        ));
    }
    has_replaced(&text).then(|| {
        format!(
            "{path} has replaced objects (refs/replace): git shows other commits than it pushes; review with \
             git --no-replace-objects"
        )
    })
}

fn has_replaced(text: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let mut words = line.split(|byte| byte.is_ascii_whitespace());
        words.any(|word| word.starts_with(b"refs/replace/"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_object_is_known_among_branches() {
        let branches =
            "# pack-refs with: peeled fully-peeled sorted\n0123 refs/heads/refs/replace\n^4567\n";
        assert!(!has_replaced(branches.as_bytes()));
        assert!(has_replaced(
            format!("{branches}89ab refs/replace/cdef").as_bytes()
        ));
    }
}
