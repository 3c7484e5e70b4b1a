//! PURE. The decisions about mounts so far, and the rules that they follow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::error::PlanError;
use super::facts::SourceFacts;
use super::filesystem::VisibleFiles;
use super::mount::{OmittedMount, PlannedMount};
use super::never::{NeverList, VisibleCredentials};
use super::pod::Pod;
use super::protect::ProtectedPath;
use crate::policy::{Policy, Tool};

/// A mount's target as the engine names it.
#[derive(Clone, Copy)]
pub(super) struct MountTarget<'a> {
    pub(super) path: &'a Path,
    pub(super) is_workspace: bool,
}

/// The lists and policy that decide about mounts.
#[derive(Clone, Copy)]
pub(super) struct MountRules<'a> {
    pub(super) never: &'a NeverList,
    pub(super) meant: &'a VisibleCredentials,
    pub(super) policy: &'a Policy,
    /// The caller's tool, for the words of an error.
    pub(super) tool: Tool,
    /// The pod, if a kubelet made the container.
    pub(super) pod: Option<&'a Pod>,
    /// The ids of the container and of those with which it shares System V objects and shared memory.
    pub(super) ipc: &'a BTreeSet<&'a str>,
    /// The working directory of the init process.
    pub(super) cwd: &'a Path,
}

/// The decisions about mounts so far.
#[derive(Default)]
pub(super) struct SortedMounts {
    pub(super) kept: Vec<PlannedMount>,
    pub(super) pruned: Vec<OmittedMount>,
    pub(super) masked: BTreeSet<PathBuf>,
    pub(super) found: BTreeSet<PathBuf>,
    pub(super) found_in: Vec<CredentialLocation>,
    pub(super) seen: Vec<VisibleFiles>,
    pub(super) pinned: BTreeSet<PathBuf>,
    /// Each with the mount that contains it.
    pub(super) protected: Vec<(PathBuf, ProtectedPath)>,
    pub(super) protected_parents: BTreeSet<PathBuf>,
    pub(super) replaced: BTreeSet<PathBuf>,
    /// Exclude file -> paths that git is told to ignore.
    pub(super) excludes: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// Mount point of the workspace, once it is kept.
    pub(super) workspace: Option<PathBuf>,
}

pub(super) fn workspace_refused(destination: &Path, facts: &SourceFacts, why: String) -> PlanError {
    PlanError::WorkspaceRefused {
        destination: destination.to_owned(),
        source_path: facts.path.clone(),
        why,
    }
}

/// Where in a mount a credential was found.
pub(super) struct CredentialLocation {
    /// The mount's destination.
    pub(super) destination: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) inode: u64,
}
