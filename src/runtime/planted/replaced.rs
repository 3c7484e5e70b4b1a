//! SHELL. Replaced objects in `packed-refs`. With them git shows other commits than it pushes. Loose ones are files of
//! the list, and moved aside; these are lines among the branches, and are only said.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::probe;

/// The largest file that is read: 200,000 branches have about this much.
const LARGEST: usize = 16 << 20;

/// What to say of a git directory whose packed references have replaced objects, or are too many to search.
pub(super) fn packed(root: BorrowedFd<'_>, source: &Path, git: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let directory = probe::directory_below(root, git).ok()?;
    let file = rustix::fs::openat(directory, "packed-refs", flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let _as_far = File::from(file)
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut text);
    let path = source.join(git).join("packed-refs");
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
