//! PURE. Which mount is the workspace.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use super::{BundleFacts, PlanError};
use crate::policy::Resolved;

/// The index of the workspace's mount: the one that was named, else the bind mount that holds the working directory.
pub(super) fn workspace(
    resolved: &Resolved,
    spec: &Spec,
    mounts: &[Mount],
    bundle: &BundleFacts,
) -> Result<Option<usize>, PlanError> {
    let binds = || {
        let all = mounts.iter().zip(&bundle.sources).enumerate();
        all.filter(|(_, (_, source))| source.is_some())
            .map(|(index, (mount, _))| (index, mount.destination()))
    };
    if let Some(named) = &resolved.workspace {
        let named = PathBuf::from(named.as_str());
        let found = binds().rfind(|(_, d)| **d == named);
        return match found {
            Some((index, _)) => Ok(Some(index)),
            None => Err(PlanError::Workspace(named)),
        };
    }
    let Some(cwd) = spec.process().as_ref().map(|p| p.cwd().clone()) else {
        return Ok(None);
    };
    let holds = binds().filter(|(_, d)| cwd.starts_with(d) && d.as_path() != Path::new("/"));
    Ok(holds
        .max_by_key(|(_, d)| d.components().count())
        .map(|(index, _)| index))
}
