//! SHELL. Replaced objects among the branches. With them git shows other commits than it pushes. Loose ones are files of the
//! list, and moved aside. Those in `packed-refs` are lines among the branches, and are only said; a table of the reftable format
//! (gitformat-reftable(5), git 2.45) is not read, and that is said. References of git's work may be lines there too: `git commit`
//! applies a `MERGE_AUTOSTASH`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::AtFlags;

use super::quarantine::Quarantine;
use super::{look, settings};
use crate::plan::protect::{self, AUTOSTASH};
use crate::policy::{ProtectedName, typed_path};
use crate::probe;

/// The largest file that is read: 200,000 branches have about this much.
const LARGEST: usize = 16 << 20;

/// What to do. A clone of a path copies what lies.
pub(super) const REVIEW: &str = "review in a clone by git clone --no-local";

const REFTABLE: &str = "reftable";

/// What to say of a git directory's branches.
#[derive(Default)]
pub(super) struct BranchLines {
    /// References of git's work were taken out.
    pub(super) taken: Option<String>,
    /// There may be replaced objects among them.
    pub(super) replaced: Vec<String>,
}

/// Looks at a git directory's branches. References of git's work are taken out unless the policy lets them stay.
pub(super) fn among_branches(
    (root, source): (BorrowedFd<'_>, &Path),
    git: &Path,
    free: &BTreeSet<ProtectedName>,
    quarantine: &mut Quarantine,
) -> BranchLines {
    let Ok(directory) = probe::directory_below(root, git) else {
        return BranchLines::default();
    };
    let git = source.join(git);
    let packed = PackedReferences::read(&directory, &git);
    let taken = packed
        .as_ref()
        .filter(|_| protect::is_protected(free, AUTOSTASH));
    BranchLines {
        taken: taken.and_then(|packed| packed.take_work(&directory, quarantine)),
        replaced: [
            packed.and_then(|packed| packed.replaced()),
            tables(&directory, &git),
        ]
        .into_iter()
        .flatten()
        .collect(),
    }
}

/// Whatever is there under the name: git follows a link.
fn tables(directory: &OwnedFd, git: &Path) -> Option<String> {
    rustix::fs::statat(directory, REFTABLE, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(format!(
        "{} is not searched for replaced objects and MERGE_AUTOSTASH: {REVIEW}",
        typed_path(&git.join(REFTABLE))
    ))
}

/// `packed-refs`, read once.
struct PackedReferences {
    file: File,
    /// The beginning, of at most [`LARGEST`] bytes and one.
    text: Vec<u8>,
    /// Its path in a command.
    path: String,
}

impl PackedReferences {
    const NAME: &str = "packed-refs";

    fn read(directory: &OwnedFd, git: &Path) -> Option<Self> {
        let file = look::open(directory, OsStr::new(Self::NAME)).ok()?;
        let mut text = Vec::new();
        (&file)
            .take(LARGEST as u64 + 1)
            .read_to_end(&mut text)
            .ok()?;
        let path = typed_path(&git.join(Self::NAME));
        Some(Self { file, text, path })
    }

    fn is_whole(&self) -> bool {
        self.text.len() <= LARGEST
    }

    fn replaced(&self) -> Option<String> {
        let path = &self.path;
        if !self.is_whole() {
            return Some(format!(
                "{path} is too large to search for replaced objects and MERGE_AUTOSTASH: {REVIEW}"
            ));
        }
        has_replaced(&self.text).then(|| {
            format!(
                "{path} has replaced objects (refs/replace): git shows other commits than it pushes; {REVIEW}"
            )
        })
    }

    /// Takes the references of git's work out, and says so: git has none there.
    fn take_work(&self, directory: &OwnedFd, quarantine: &mut Quarantine) -> Option<String> {
        let rest = Some(&self.text).filter(|_| self.is_whole());
        let rest = rest.and_then(|text| without_root_references(text))?;
        let path = &self.path;
        let name = OsStr::new(Self::NAME);
        let replaced = quarantine
            .check_room(rest.len())
            .and_then(|()| settings::replace(directory, name, &rest, &self.file));
        Some(match replaced {
            Ok(()) => format!(
                "{path} had a reference of git's work, such as MERGE_AUTOSTASH, which git would apply: it is taken out"
            ),
            Err(error) => format!(
                "{path} has a reference of git's work, such as MERGE_AUTOSTASH, and cannot be written: {error}"
            ),
        })
    }
}

/// The lines of branches and tags alone; `None` if there are no others.
fn without_root_references(text: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut is_taken) = (Vec::new(), false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let mut words = line.splitn(2, u8::is_ascii_whitespace);
        let name = words.nth(1).unwrap_or_default();
        is_taken = match line.first() {
            Some(b'#') => false,
            // The object of the tag before.
            Some(b'^') => is_taken,
            _ => !name.starts_with(b"refs/"),
        };
        if !is_taken {
            rest.extend(line);
        }
    }
    (rest.len() < text.len()).then_some(rest)
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
    fn references_of_gits_work_are_taken_out() {
        let head = "# pack-refs with: peeled fully-peeled sorted \n";
        let branches = "0123 refs/heads/a\n4567 refs/tags/t\n^89ab\n";
        let taken = |text: &str| {
            let rest = without_root_references(text.as_bytes());
            rest.map(|rest| String::from_utf8(rest).unwrap())
        };
        assert_eq!(taken(&format!("{head}{branches}")), None);
        for odd in ["0123 MERGE_AUTOSTASH\n", "0123\tx\n^0123\n", "0123 refs\n"] {
            let text = format!("{head}{odd}{branches}");
            assert_eq!(taken(&text), Some(format!("{head}{branches}")), "{odd}");
        }
    }

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
