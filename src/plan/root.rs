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

/// Holds the directories above hidden and read-only paths, where a renamed one would last: the next start would mask
/// another file of that name. That is the engine's root, and mounts that the container writes.
pub(super) fn hold_parents(plan: &mut FilesystemPlan, spec: &Spec) {
    let linux = spec.linux().as_ref();
    let masked = linux.and_then(|l| l.masked_paths().as_ref());
    let readonly = linux.and_then(|l| l.readonly_paths().as_ref());
    let named = masked.into_iter().chain(readonly).flatten().map(Path::new);
    let named: Vec<PathBuf> = named
        .chain(plan.pruned.iter().map(|mount| mount.destination.as_path()))
        .filter(|path| path.is_absolute() && is_plain(path))
        .map(|path| path.components().collect())
        .collect();
    for path in &named {
        let top = match plan.root == RootAccess::Engine && plan.is_own(path) {
            true => Some(Path::new("/")),
            false => plan.written_mount(path),
        };
        let Some(top) = top.map(Path::to_owned) else {
            continue;
        };
        let above = path.ancestors().skip(1);
        let above = above.take_while(|dir| dir.starts_with(&top) && **dir != *top);
        plan.pinned.extend(above.map(Path::to_owned));
    }
}
