//! Learn mode: the mounts that a container may write, and the descriptors by which its sidecar notices the first write
//! to each mount.

use std::os::fd::{AsFd, OwnedFd};

use crate::audit::{Event, mounts};
use crate::enforce::rootfs::{OwnMount, OwnSource};
use crate::plan::{BindAccess, DecidedPlan, MountKind, PlannedMount, text};
use crate::policy::{Field, MountRule, Policy};
use crate::runtime::error::RuntimeError;
use crate::sidecar::{MOST_WATCHED, MountPaths, WatchedMount};
use crate::sys::fanotify;

/// A mount that may be written.
pub struct WritableMount {
    place: MountPaths,
    /// The policy field that allows writing to it.
    field: Option<Field>,
    /// The mount itself, which the container gets.
    tree: OwnedFd,
}

/// The writable mounts of a container that learns. `own` are its mounts before its init process has them.
pub fn keep(decided: &DecidedPlan, own: &[OwnMount]) -> Result<Vec<WritableMount>, RuntimeError> {
    let DecidedPlan { resolved, plan, .. } = decided;
    if !plan.network.learns() {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for mount in &plan.filesystem.mounts {
        let Some((source, tree)) = writable_tree(mount, own) else {
            continue;
        };
        let place = MountPaths {
            destination: text::of(&mount.destination),
            source,
        };
        let is_workspace = plan.filesystem.workspace.as_ref() == Some(&mount.destination);
        all.push(WritableMount {
            field: match is_workspace {
                true => Some(Field::FilesystemWorkspace),
                false => field(resolved, &place.destination),
            },
            tree: tree
                .try_clone()
                .map_err(RuntimeError::io("keep a mount that may be written"))?,
            place,
        });
    }
    Ok(all)
}

/// The source of a writable bind mount, and the mount that was made of it.
fn writable_tree<'a>(mount: &PlannedMount, own: &'a [OwnMount]) -> Option<(String, &'a OwnedFd)> {
    let MountKind::Bind(bind) = &mount.kind else {
        return None;
    };
    if bind.access != BindAccess::ReadWrite {
        return None;
    }
    let mut own = own.iter();
    let made = own.find(|made| made.destination == mount.destination)?;
    match &made.source {
        OwnSource::Tree { tree, .. } => Some((text::of(&bind.source), tree)),
        OwnSource::Private { .. } | OwnSource::Tmpfs(_) => None,
    }
}

/// The field that allows writing to a mount other than the workspace. A pod's own volumes go by their kind.
fn field(policy: &Policy, destination: &str) -> Option<Field> {
    let files = &policy.filesystem;
    if files.write.iter().any(|path| path.as_str() == destination) {
        return Some(Field::FilesystemWrite);
    }
    matches!(files.mounts, MountRule::Keep | MountRule::Volumes).then_some(Field::FilesystemMounts)
}

/// Begins to watch the mounts; returns what the log says of each. If that fails the container goes on without.
pub fn watch(all: Vec<WritableMount>) -> (Vec<WatchedMount>, Vec<Event>) {
    let (mut watched, mut events) = (Vec::new(), Vec::new());
    for writable in all {
        let WritableMount { place, field, tree } = writable;
        let what = place.what();
        let made = match watched.len() < MOST_WATCHED {
            true => fanotify::writes_by(tree.as_fd()).map_err(|error| error.to_string()),
            false => Err(format!("more than {MOST_WATCHED} mounts may be written")),
        };
        match made {
            Ok(writes) => {
                events.push(mounts::watched(what, field.map(Field::as_str)));
                watched.push(WatchedMount { place, writes });
            }
            Err(why) => events.push(mounts::not_watched(what, &why)),
        }
    }
    (watched, events)
}

/// The log lines of the mounts if the container has no sidecar of its own.
pub fn not_watched(all: Vec<WritableMount>) -> Vec<Event> {
    let why = "no sidecar answers this container's denied calls, which would record it";
    all.into_iter()
        .map(|writable| mounts::not_watched(writable.place.what(), why))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::sample_policy;

    #[test]
    fn a_writable_mount_is_allowed_by_its_own_field_before_that_of_all_mounts() {
        let mut policy = sample_policy();
        policy.filesystem.write = ["/listed".parse().unwrap()].into();
        for (mounts, other) in [
            (MountRule::Keep, Some(Field::FilesystemMounts)),
            (MountRule::Volumes, Some(Field::FilesystemMounts)),
            (MountRule::ReadOnly, None),
            (MountRule::Drop, None),
        ] {
            policy.filesystem.mounts = mounts;
            let listed = field(&policy, "/listed");
            assert_eq!(listed, Some(Field::FilesystemWrite), "{mounts:?}");
            assert_eq!(field(&policy, "/other"), other, "{mounts:?}");
        }
    }
}
