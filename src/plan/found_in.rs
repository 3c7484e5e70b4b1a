//! PURE. The directories in which something was found that is masked: a mask by a path must not cover something else, while a
//! directory that was moved meanwhile is seen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Inside;
use super::sort::Sorted;
use super::text;

/// A directory of the container, and what it must be when the masks are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FoundIn {
    /// Its path.
    #[serde(with = "text::one")]
    pub directory: PathBuf,
    /// Its inode; one of them where mounts lie over each other.
    pub inodes: BTreeSet<u64>,
}

impl Sorted {
    /// An overlay has inodes of its own: what lies below one is known by its path alone.
    pub(super) fn hold(&mut self, destination: &Path, inside: &Inside) {
        let mut over = self.kept.iter().filter(|m| m.destination == destination);
        let path = destination.join(&inside.path);
        if let Some(inode) = inside.directory
            && let Some(directory) = path.parent()
            && !over.any(|m| m.is_private())
        {
            let inodes = self.found_in.entry(directory.to_owned());
            inodes.or_default().insert(inode);
        }
    }
}
