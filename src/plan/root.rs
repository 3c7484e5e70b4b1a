//! PURE. What happens to writes to the root file system.

use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

use super::ephemeral::is_plain;
use super::error::PlanError;
use super::facts::{BundleFacts, RootOrigin};
use super::filesystem::FilesystemPlan;
use super::warning::Warning;
use crate::policy::{Field, Origin, ResolvedPolicy, RootAccess};

/// Decides the access to the root. The engine's read-only root stays read-only. A root that is no engine's layer gets
/// an overlay, unless the caller requested more explicitly. `wrap` is no engine.
pub(super) fn root(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
    warnings: &mut Vec<Warning>,
) -> Result<RootAccess, PlanError> {
    let asked = spec.root().as_ref().and_then(|r| r.readonly());
    let root = match asked {
        Some(true) => RootAccess::ReadOnly,
        _ => resolved.policy.filesystem.root,
    };
    let wrapped = !bundle.wrapped.is_empty();
    // A read-only root has no overlay, and a mount below it was not checked.
    if let (RootAccess::ReadOnly, RootOrigin::Mounted(at), false) = (root, &bundle.root, wrapped) {
        let root = bundle.rootfs.clone();
        return Err(PlanError::MountBelow {
            root,
            at: at.clone(),
        });
    }
    if root != RootAccess::Engine || bundle.root == RootOrigin::Layer && !wrapped {
        return Ok(root);
    }
    let why = match wrapped {
        true => "made by `wrap` for this command".to_owned(),
        false => bundle.root.to_string(),
    };
    let root = bundle.rootfs.clone();
    match resolved.origins.get(&Field::FilesystemRoot) {
        Some(
            by @ (Origin::Annotation(_)
            | Origin::Option(_)
            | Origin::Setting(_)
            | Origin::OwnFile(_)),
        ) => {
            return Err(PlanError::NoLayer {
                by: by.to_string(),
                root,
                why,
            });
        }
        _ if wrapped => {}
        _ => warnings.push(Warning::NoLayer { root, why }),
    }
    Ok(RootAccess::Ephemeral)
}

/// Holds the directories above paths that the engine masks or makes read-only, if the root outlives the container's
/// processes: a renamed one would expose the path at the next start.
pub(super) fn hold_parents(plan: &mut FilesystemPlan, spec: &Spec) {
    if plan.root != RootAccess::Engine {
        return;
    }
    let linux = spec.linux().as_ref();
    let masked = linux.and_then(|l| l.masked_paths().as_ref());
    let readonly = linux.and_then(|l| l.readonly_paths().as_ref());
    let named = masked.into_iter().chain(readonly).flatten().map(Path::new);
    let ours = named.filter(|path| path.is_absolute() && is_plain(path) && plan.is_own(path));
    let above = ours.flat_map(|path| path.ancestors().skip(1));
    let above = above.filter(|dir| *dir != Path::new("/"));
    let above: Vec<PathBuf> = above.map(|dir| dir.components().collect()).collect();
    plan.pinned.extend(above);
}
