//! PURE. The hidden and protected paths inside mounts: where they were found, what git makes of them, and which of
//! them the container sees.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::PlanError;
use super::facts::{FoundCredential, SourceFacts};
use super::filesystem::{CredentialDirectory, EphemeralMount};
use super::git::GitState;
use super::mount::PlannedMount;
use super::protect::{FoundProtected, ProtectedPath};
use super::sorted_mounts::{CredentialLocation, MountRules, SortedMounts};

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

impl SortedMounts {
    /// Tells git of hidden files in writable mounts, and refuses if git would commit one as changed.
    pub(super) fn tell_git(
        &mut self,
        rules: MountRules<'_>,
        destination: &Path,
        facts: &SourceFacts,
    ) -> Result<(), PlanError> {
        for inside in &facts.inside {
            if inside.git.is_nothing() || !self.is_written(&destination.join(&inside.path)) {
                continue;
            }
            let (policy, path) = (rules.policy.name.to_string(), inside.path.clone());
            let source_path = facts.path.clone();
            match &inside.git {
                GitState::Nothing => {}
                GitState::Untracked(untracked) => {
                    // An absolute path, in the container, stays as it is.
                    let file = destination.join(&untracked.exclude);
                    let names = self.excludes.entry(file).or_default();
                    names.insert(untracked.name.clone());
                }
                GitState::Changed => {
                    return Err(PlanError::Tracked {
                        policy,
                        path,
                        source_path,
                        tool: rules.tool,
                    });
                }
                GitState::Untold(why) => {
                    return Err(PlanError::Untold {
                        policy,
                        path,
                        source_path,
                        why: why.clone(),
                        tool: rules.tool,
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether a path of the container is in a writable mount.
    fn is_written(&self, path: &Path) -> bool {
        let holds = self
            .kept
            .iter()
            .filter(|m| path.starts_with(&m.destination));
        let nearest = holds.max_by_key(|m| m.destination.components().count());
        nearest.is_some_and(PlannedMount::is_writable)
    }
}

impl SortedMounts {
    /// Adds the protected paths of a mount that the container can write.
    pub(super) fn protect(&mut self, destination: &Path, found: &[FoundProtected]) {
        for one in found {
            let held = one.held().map(|directory| destination.join(directory));
            self.protected_parents.extend(held);
            self.protected.push((
                destination.to_owned(),
                ProtectedPath {
                    path: destination.join(&one.path),
                    name: one.name.clone(),
                    file: one.file,
                },
            ));
        }
    }

    /// The protected paths that the container sees in their own mounts: not covered by another mount, and not hidden.
    /// Their parents are held in place. `hidden` are the paths of `wrap --hide`.
    pub(super) fn protected(
        &mut self,
        overlays: &[EphemeralMount],
        hidden: &[String],
    ) -> Vec<ProtectedPath> {
        let shown = |destination: &Path, path: &Path| {
            let above = self
                .kept
                .iter()
                .filter(|m| path.starts_with(&m.destination));
            let nearest = above.max_by_key(|m| m.destination.components().count());
            let own = nearest.is_some_and(|m| m.destination == destination && !m.is_private());
            let mut over = overlays.iter().filter(|o| path.starts_with(&o.path));
            let covered = over.any(|o| o.path.starts_with(destination));
            let is_masked = |above: &Path| {
                self.masked.contains(above) || hidden.iter().any(|path| Path::new(path) == above)
            };
            own && !covered && !path.ancestors().any(is_masked)
        };
        let mut all: Vec<ProtectedPath> = self
            .protected
            .iter()
            .filter(|(destination, one)| shown(destination, &one.path))
            .map(|(_, one)| one.clone())
            .collect();
        all.sort();
        all.dedup_by(|a, b| a.path == b.path);
        let parents = self.protected_parents.iter().filter(|parent| {
            let mut below = all.iter().map(|one| &one.path);
            below.any(|path| path.starts_with(parent))
        });
        self.pinned.extend(parents.cloned());
        all
    }
}
