//! SHELL. Caches of package managers in the home: the command reads the person's, and what it writes is thrown away, so that no package
//! of its making is ever installed outside.

use std::path::Path;

use super::layout::Layout;
use super::list::Cache;
use crate::plan::BindAccess;
use crate::plan::wrapped::over_ceiling;
use crate::policy::{MountRule, ResolvedPolicy};

/// Whether the command sees caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caches {
    /// The person's, under a layer of the run's own.
    #[default]
    Private,
    /// The person's, under a layer that the next run in this workspace has again.
    Kept,
    /// None.
    Hidden,
}

impl Layout {
    /// Adds the caches that are there, where the policy and its ceilings let anything be shown beside the workspace. Where the whole
    /// home is shown, they are a part of that.
    pub fn add_caches(&mut self, caches: &[Cache], resolved: &ResolvedPolicy) {
        let Some(home) = self.home.clone() else {
            return;
        };
        if resolved.policy.filesystem.mounts != MountRule::ReadOnly {
            return;
        }
        for cache in caches {
            let path = home.join(&cache.path);
            let is_over = over_ceiling(resolved, &path, BindAccess::ReadOnly).is_some();
            if !is_over && self.is_plain(&home, &cache.path) && !self.is_otherwise(&path) {
                self.masked
                    .extend(cache.without.iter().map(|part| path.join(part)));
                self.caches.insert(path);
            }
        }
    }

    /// Whether the person said something else of it, or it lies in the workspace.
    fn is_otherwise(&self, path: &Path) -> bool {
        let hidden = self.masked.iter();
        let mut places = hidden.chain(&self.written).chain([&self.workspace]);
        places.any(|place| path.starts_with(place) || place.starts_with(path))
    }

    /// Whether a directory below the home is one by its own path: a link on the way could lead to what is no cache.
    fn is_plain(&self, home: &Path, below: &Path) -> bool {
        let Some(home) = self.real.of(home) else {
            return false;
        };
        let path = home.join(below);
        self.real.of(&path).is_some_and(|real| real == path) && path.is_dir()
    }
}
