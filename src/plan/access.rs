//! PURE. The access of a bind mount that is on no list: what the policy grants, and what the mount requests.

use std::path::Path;

use oci_spec::runtime::Mount;

use super::facts::SourceFacts;
use super::mount::BindAccess;
use super::sorted_mounts::MountTarget;
use super::volumes::Volume;
use crate::policy::{Access, MountRule, Policy};

/// The access that the policy grants a bind mount on no list.
pub(super) fn access(
    policy: &Policy,
    volume: Option<Volume>,
    named: MountTarget<'_>,
    facts: &SourceFacts,
) -> Access {
    let rules = &policy.filesystem;
    if named.is_workspace {
        return rules.workspace;
    }
    let mut write = rules.write.iter();
    let listed = write.any(|w| Path::new(w.as_str()) == named.path);
    match rules.mounts {
        _ if volume == Some(Volume::Scratch) => Access::ReadWrite,
        // A kubelet rewrites it from outside; an image must not change.
        MountRule::ReadOnly | MountRule::Volumes | MountRule::Keep
            if matches!(volume, Some(Volume::Settings | Volume::Image)) =>
        {
            Access::ReadOnly
        }
        MountRule::Drop => Access::None,
        MountRule::ReadOnly | MountRule::Volumes if listed => Access::ReadWrite,
        MountRule::Volumes if facts.engines_volume => Access::ReadWrite,
        MountRule::ReadOnly | MountRule::Volumes => Access::ReadOnly,
        MountRule::Keep => Access::ReadWrite,
    }
}

/// The access that the mount gets: the granted one, if the mount requests it.
pub(super) fn given(mount: &Mount, granted: Access) -> BindAccess {
    match granted {
        Access::ReadWrite if asks_to_write(mount) => BindAccess::ReadWrite,
        Access::None | Access::ReadOnly | Access::ReadWrite => BindAccess::ReadOnly,
    }
}

/// Whether the engine requests it writable.
pub(super) fn asks_to_write(mount: &Mount) -> bool {
    let mut options = mount.options().iter().flatten();
    !options.any(|o| matches!(o.as_str(), "ro" | "rro"))
}
