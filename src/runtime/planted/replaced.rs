//! SHELL. Replaced objects in `packed-refs`. With them git shows other commits than it pushes. Loose ones are files of
//! the list, and moved aside; these are lines among the branches, and are only said.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::quarantine::Quarantine;
use crate::probe;

/// The largest file that is read: 200,000 branches have about this much.
const LARGEST: usize = 16 << 20;

/// Names a git directory whose packed references have replaced objects, or are too many to look through.
pub(super) fn say_packed(
    (root, source): (BorrowedFd<'_>, &Path),
    git: &Path,
    quarantine: &mut Quarantine,
) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = probe::directory_below(root, git)
        .and_then(|git| rustix::fs::openat(git, "packed-refs", flags, Mode::empty()));
    let mut text = Vec::new();
    let Ok(file) = file else { return };
    let _as_far = File::from(file)
        .take(LARGEST as u64 + 1)
        .read_to_end(&mut text);
    let path = source.join(git).join("packed-refs");
    let path = path.display();
    if text.len() > LARGEST {
        quarantine.fail(format!(
            "{path} is too large to search for replaced objects: review with git --no-replace-objects"
        ));
    } else if has_replaced(&text) {
        quarantine.fail(format!(
            "{path} has replaced objects (refs/replace): git shows other commits than it pushes; review with \
             git --no-replace-objects"
        ));
    }
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
