//! The names that a search hides: sockets, and credentials that are not meant to be visible.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::plan::never::{FileNameFilter, NeverList, VisibleCredentials};

/// The names that the search looks for.
pub(in crate::probe) struct HiddenNames<'a> {
    pub(super) never: &'a NeverList,
    pub(super) meant: &'a VisibleCredentials,
    /// Device and inode of the runtime's own program: a workload that writes it is root at the next start.
    pub(super) runtime: Option<(u64, u64)>,
    /// The last components of credentials' names, a quick filter for most files.
    pub(super) last: FileNameFilter,
}

impl<'a> HiddenNames<'a> {
    pub(in crate::probe) fn new(never: &'a NeverList, meant: &'a VisibleCredentials) -> Self {
        Self {
            never,
            meant,
            runtime: rustix::fs::stat("/proc/self/exe")
                .ok()
                .map(|s| (s.st_dev, s.st_ino)),
            last: never.last_names(),
        }
    }

    /// Whether this is the runtime's own program.
    pub(in crate::probe) fn is_runtime(&self, dev: u64, ino: u64) -> bool {
        self.runtime == Some((dev, ino))
    }

    /// Why a file of a source with these names is hidden. Credentials are recognised by their real path, with the
    /// directories above the mount.
    pub(super) fn why(
        &self,
        bases: &[PathBuf],
        relative: &Path,
        kind: FileType,
    ) -> Option<(String, usize)> {
        match kind {
            FileType::Socket => return Some(("it is a socket".to_owned(), 1)),
            // The target, if it is inside the container, is judged itself.
            FileType::Symlink => return None,
            _ => {}
        }
        let found = bases.iter().filter_map(|base| {
            let path = base.join(relative);
            let why = self.never.credential(&path, self.meant)?;
            let parts = self.never.credential_parts(&path, self.meant)?;
            Some((why.to_owned(), parts))
        });
        found.max_by_key(|(_, parts)| *parts)
    }

    pub(super) fn may_be(&self, name: &[u8], kind: FileType) -> bool {
        kind == FileType::Socket || self.last.contains(name)
    }
}
