//! PURE. The directories in which masked paths were found. A mask by path must not cover another file, and a directory
//! that was moved meanwhile must be noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sort::SortedMounts;
use super::{EphemeralMount, FoundCredential, text};

/// A directory of the container that contains credentials. Its inodes are checked when the masks are made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialDirectory {
    /// Its path.
    #[serde(with = "text::one")]
    pub directory: PathBuf,
    /// Its inode; one of these if mounts lie over each other.
    pub inodes: BTreeSet<u64>,
}

/// Where in a mount a credential was found.
pub(super) struct CredentialLocation {
    /// The mount's destination.
    destination: PathBuf,
    directory: PathBuf,
    inode: u64,
}

impl SortedMounts {
    /// Remembers where a credential was found.
    pub(super) fn hold(&mut self, destination: &Path, inside: &FoundCredential) {
        let path = destination.join(&inside.path);
        if let Some(inode) = inside.directory
            && let Some(directory) = path.parent()
        {
            self.found_in.push(CredentialLocation {
                destination: destination.to_owned(),
                directory: directory.to_owned(),
                inode,
            });
        }
    }

    /// The directories to check when the masks are made. An overlay has its own inodes: paths below one, or below
    /// another mount, are known by path only.
    pub(super) fn held(&self, overlays: &[EphemeralMount]) -> Vec<CredentialDirectory> {
        let mut held: BTreeMap<&Path, BTreeSet<u64>> = BTreeMap::new();
        for found in &self.found_in {
            let directory = found.directory.as_path();
            let above = self
                .kept
                .iter()
                .filter(|m| directory.starts_with(&m.destination));
            let nearest = above.max_by_key(|m| m.destination.components().count());
            let own =
                nearest.is_some_and(|m| m.destination == found.destination && !m.is_private());
            let mut over = overlays.iter().filter(|o| directory.starts_with(&o.path));
            if own && !over.any(|o| o.path.starts_with(&found.destination)) {
                held.entry(directory).or_default().insert(found.inode);
            }
        }
        let held = held
            .into_iter()
            .map(|(directory, inodes)| CredentialDirectory {
                directory: directory.to_owned(),
                inodes,
            });
        held.collect()
    }
}
