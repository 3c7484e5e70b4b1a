//! PURE. Who owns, on the node, the files that root makes in a writable mount.
//!
//! A mapped mount (mount_setattr(2), MOUNT_ATTR_IDMAP) shows the node's ids as other ids, one to one. If root inside is
//! the owner outside, the owner's number inside must belong to another id.

use oci_spec::runtime::{LinuxNamespaceType, Spec};

use super::error::PlanError;
use super::facts::{BundleFacts, HostFacts};
use super::filesystem::FilesystemPlan;
use super::ids::{IdmapOutcome, SourceIds};
use super::mount::{BindAccess, PlannedMount};
use super::warning::Warning;
use super::wrap_plan::WrapEnforcement;
use crate::policy::{Filesystem, IdMapRule};

/// The container and its node, for decisions about id mappings.
#[derive(Clone, Copy)]
pub struct IdmapContext<'a> {
    /// The policy's rules for files.
    pub policy: &'a Filesystem,
    /// The container.
    pub spec: &'a Spec,
    /// How `wrap` enforces the policy.
    pub by: WrapEnforcement,
    /// The node.
    pub host: &'a HostFacts,
}

impl IdmapContext<'_> {
    /// Whether root inside is root outside, and there are mounts: an ordinary user's `wrap` maps its only user itself.
    fn is_roots(self) -> bool {
        let user = self.spec.process().as_ref().map(|process| process.user());
        let is_root = user.is_some_and(|user| (user.uid(), user.gid()) == (0, 0));
        is_root && self.host.person.is_none() && self.by == WrapEnforcement::Mounts
    }

    fn has_users_of_its_own(self) -> bool {
        let linux = self.spec.linux().as_ref();
        let namespaces = linux.and_then(|linux| linux.namespaces().as_ref());
        let mut namespaces = namespaces.into_iter().flatten();
        namespaces.any(|namespace| namespace.typ() == LinuxNamespaceType::User)
    }

    /// Whether to map a mount, if that is possible.
    fn wants(self, files: &FilesystemPlan, mount: &PlannedMount, ids: &SourceIds) -> bool {
        self.may_want(files, mount) && ids.uid != 0
    }

    /// The part that needs no ids, which take as long to find as there are sources.
    fn may_want(self, files: &FilesystemPlan, mount: &PlannedMount) -> bool {
        let is_written = mount
            .bind()
            .is_some_and(|bind| bind.access == BindAccess::ReadWrite);
        let is_meant = match self.policy.idmap {
            IdMapRule::Off => false,
            IdMapRule::Auto => {
                let workspace = files.workspace.as_ref();
                workspace == Some(&mount.destination) && !self.has_users_of_its_own()
            }
            IdMapRule::On => true,
        };
        is_written && is_meant && self.is_roots()
    }

    /// Whether an attempt must show if a mount can be mapped.
    pub fn is_to_be_tried(
        self,
        files: &FilesystemPlan,
        mount: &PlannedMount,
        ids: &SourceIds,
    ) -> bool {
        self.wants(files, mount, ids) && ids.mapped.is_none() && !self.has_users_of_its_own()
    }
}

/// Decides for each mount of the plan which ids it shows.
pub(super) fn place(
    container: IdmapContext<'_>,
    bundle: &BundleFacts,
    plan: &mut FilesystemPlan,
    warnings: &mut Vec<Warning>,
) -> Result<(), PlanError> {
    let mut all = Vec::new();
    for (index, mount) in plan.mounts.iter().enumerate() {
        let ids = match container.may_want(plan, mount) {
            true => ids_of(bundle, mount),
            false => None,
        };
        let Some(ids) = ids.filter(|ids| container.wants(plan, mount, ids)) else {
            continue;
        };
        let why = match &ids.mapped {
            _ if container.has_users_of_its_own() => "the container has its own user namespace",
            // Not yet: the plan is made again after the attempt.
            None => continue,
            Some(IdmapOutcome::To { ids, .. }) => {
                all.push((index, *ids));
                continue;
            }
            Some(IdmapOutcome::Cannot(why)) => why,
        };
        let place = mount.destination.clone();
        match container.policy.idmap {
            IdMapRule::On => {
                return Err(PlanError::NotMapped {
                    destination: place,
                    why: why.to_owned(),
                });
            }
            IdMapRule::Auto | IdMapRule::Off => warnings.push(Warning::RootsFiles {
                place,
                why: why.to_owned(),
            }),
        }
    }
    for (index, ids) in all {
        if let Some(bind) = plan.mounts.get_mut(index).and_then(PlannedMount::bind_mut) {
            bind.ids = ids;
        }
    }
    Ok(())
}

/// The ids of a bind mount's source.
pub(super) fn ids_of<'a>(bundle: &'a BundleFacts, mount: &PlannedMount) -> Option<&'a SourceIds> {
    let bind = mount.bind()?;
    let all = bundle.sources.iter().flatten();
    let mut all = all.flat_map(|facts| {
        let part = facts.home.as_ref().and_then(|home| home.working.as_deref());
        std::iter::once(facts).chain(part)
    });
    let found = all.find(|facts| bind.is_of(&facts.path, (facts.dev, facts.ino)));
    found.map(|facts| &facts.ids)
}
