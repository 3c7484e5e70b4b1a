//! PURE. What `wrap` mounts, omits and requests besides its policy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::mount::OmittedMount;
use crate::policy::WrapOptions;

/// The directories that `wrap` mounts, and those that it omits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrapPlan {
    /// The system's directories and the parts of /etc that `policies/wrap.toml` lists.
    pub system: BTreeSet<PathBuf>,
    /// The others: toolchains of PATH, and under `permissive` the directories of the root.
    pub judged: BTreeSet<PathBuf>,
    /// Those of `judged` that the user named: a refusal is an error.
    pub asked: BTreeSet<PathBuf>,
    /// Caches of package managers: readable, and written only for the run.
    pub caches: BTreeSet<PathBuf>,
    /// Parts of toolchains that contain only packages, and are not searched.
    pub packages: BTreeSet<PathBuf>,
    /// The directory of the node that keeps writes to the caches, by [`layer_of`].
    pub kept: Option<PathBuf>,
    /// Directories that an agent has for its settings, history and login, by their places in the container.
    pub agent: BTreeMap<PathBuf, AgentMount>,
    /// Paths that the user named as writable, and the repository of a work tree.
    pub written: BTreeSet<PathBuf>,
    /// Ports inside that `--publish` names, and the node's addresses that lead there.
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Mounts that were omitted before anything was opened.
    pub dropped: Vec<OmittedMount>,
    /// What the user requests of the policy.
    pub requests: WrapOptions,
    /// How the directories are shown.
    pub by: WrapEnforcement,
}

/// A directory of the user's that is an agent's in sandboxes alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentMount {
    /// On the node, without links.
    pub source: PathBuf,
    /// What it is for.
    pub why: String,
}

/// How `wrap` shows the node's directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WrapEnforcement {
    /// Mounts in new namespaces, as for a container.
    #[default]
    Mounts,
    /// Landlock rules in the caller's namespaces: no mounts, and no cgroup.
    Rules,
}

/// The name of the directory that keeps writes to a cache.
pub fn layer_of(cache: &Path) -> String {
    let path = cache.strip_prefix("/").unwrap_or(cache);
    // A file name cannot contain a slash, and the lists of caches have no percent sign.
    path.to_string_lossy().replace('/', "%")
}

impl WrapPlan {
    /// Whether a mount point is one of `wrap`'s own; the workspace is not.
    pub fn contains(&self, place: &Path) -> bool {
        let mut all = [&self.system, &self.judged, &self.caches, &self.written].into_iter();
        all.any(|places| places.contains(place)) || self.agent.contains_key(place)
    }

    /// Whether there are none: the bundle is not `wrap`'s.
    pub fn is_empty(&self) -> bool {
        self.system.is_empty() && self.judged.is_empty() && self.written.is_empty()
    }

    /// The parts of a toolchain, below its mount point, that contain only packages; the empty path for all of it.
    pub fn packages_below(&self, place: &Path) -> Vec<PathBuf> {
        // A path that the user named is always searched.
        if !self.judged.contains(place) || self.asked.contains(place) {
            return Vec::new();
        }
        let all = self.packages.iter();
        all.filter_map(|part| match part.strip_prefix(place) {
            Ok(below) => Some(below.to_owned()),
            Err(_) => place.starts_with(part).then(PathBuf::new),
        })
        .collect()
    }
}
