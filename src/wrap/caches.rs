//! SHELL. Caches of package managers in the home. The command reads the user's caches, and what it writes is thrown
//! away: no package that it made is ever installed outside.

use std::path::Path;

use anyhow::Result;

use super::layout::Layout;
use super::list::Cache;
use super::request::WrapRequest;
use super::settings::places;
use crate::plan::BindAccess;
use crate::plan::wrapped::over_ceiling;
use crate::policy::{MountRule, ResolvedPolicy};

/// Which caches the command sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caches {
    /// The user's, under a layer of this run.
    #[default]
    Private,
    /// The user's, under a layer that the next run in this workspace gets again.
    Kept,
    /// None.
    Hidden,
}

/// Why no writes to caches are kept, with the directories to make if there are none.
pub fn none_kept(wanted: &WrapRequest) -> Result<String> {
    let (person, caches) = (&wanted.person, &wanted.list.caches);
    let home = places::home(person).unwrap_or_default();
    let is_there = |cache: &Cache| home.join(&cache.path).symlink_metadata().is_ok();
    let is_any = person.looking(|| caches.iter().any(is_there))?;
    Ok(match is_any {
        true => format!("{NONE_KEPT} that this policy shows (docs/wrap.md)"),
        false => none_made(caches),
    })
}

const NONE_KEPT: &str = "agentbox: nothing of caches is kept: the home has no cache";

fn none_made(caches: &[Cache]) -> String {
    let paths = (caches.iter()).map(|cache| format!("~/{}", cache.path.display()));
    let paths: Vec<String> = paths.collect();
    format!(
        "{NONE_KEPT} yet; make your package manager's directory with mkdir -p: {}",
        paths.join(", ")
    )
}

impl Layout {
    /// Adds the caches that exist, if the policy and its ceilings allow mounts beside the workspace. A visible home
    /// contains them already.
    pub fn add_caches(&mut self, caches: &[Cache], resolved: &ResolvedPolicy) {
        let Some(home) = self.home.clone() else {
            return;
        };
        match resolved.policy.filesystem.mounts {
            MountRule::ReadOnly | MountRule::Volumes => {}
            MountRule::Drop | MountRule::Keep => return,
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

    /// Whether the path overlaps a hidden path, a written one or the workspace.
    fn is_otherwise(&self, path: &Path) -> bool {
        let hidden = self.masked.iter();
        let mut places = hidden.chain(&self.written).chain([&self.workspace]);
        places.any(|place| path.starts_with(place) || place.starts_with(path))
    }

    /// Whether the path of a directory below the home has no link: a link could lead to something that is no cache.
    fn is_plain(&self, home: &Path, below: &Path) -> bool {
        let Some(home) = self.real.of(home) else {
            return false;
        };
        let path = home.join(below);
        self.real.of(&path).is_some_and(|real| real == path) && path.is_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::list::SystemList;

    #[test]
    fn a_home_without_caches_is_told_which_directories_to_make() {
        let list = SystemList::builtin();
        let none = none_made(&list.caches);
        for place in [
            "mkdir -p",
            "~/.npm/_cacache",
            "~/.cache/pip",
            "~/go/pkg/mod",
        ] {
            assert!(none.contains(place), "{none}");
        }
        assert!(none.len() < 400, "{none}");
    }
}
