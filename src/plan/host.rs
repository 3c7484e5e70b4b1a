//! PURE. What every policy needs of the kernel.

use super::error::PlanError;
use super::facts::HostFacts;
use super::wrap_plan::{WrapEnforcement, WrapPlan};
use crate::policy::{NodeAllow, Policy};

/// A kernel feature that the walls of every policy need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelNeed {
    /// mount_setattr(2) came with 5.12, SO_NETNS_COOKIE (commit e8b9eab99232) with 5.14.
    Version,
    /// Filters of system calls.
    Seccomp,
    /// Rules for files.
    Landlock,
    /// The file system of the ephemeral root.
    Overlay,
}

impl KernelNeed {
    /// What to install or enable.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Version => "Linux 5.14 or newer (mount_setattr, SO_NETNS_COOKIE)",
            Self::Seccomp => "seccomp filters (CONFIG_SECCOMP_FILTER)",
            Self::Landlock => {
                "Landlock (CONFIG_SECURITY_LANDLOCK, and `landlock` in the lsm= list)"
            }
            Self::Overlay => "the overlay file system (CONFIG_OVERLAY_FS)",
        }
    }
}

impl HostFacts {
    /// What this kernel lacks for this kind of enforcement.
    pub fn lacks(&self, by: WrapEnforcement) -> Vec<KernelNeed> {
        let missing = [
            (KernelNeed::Version, self.version < (5, 14)),
            (KernelNeed::Seccomp, !self.seccomp),
            (KernelNeed::Landlock, self.landlock_abi < 1),
            (
                KernelNeed::Overlay,
                !self.overlayfs && by == WrapEnforcement::Mounts,
            ),
        ];
        let missing = missing.into_iter().filter(|(_, lacking)| *lacking);
        missing.map(|(need, _)| need).collect()
    }

    /// Refuses a kernel that cannot enforce one of the policy's walls.
    pub(super) fn require(
        &self,
        policy: &Policy,
        leave: &NodeAllow,
        wrapped: &WrapPlan,
    ) -> Result<(), PlanError> {
        if let Some(need) = self.lacks(wrapped.by).first() {
            return Err(PlanError::Kernel {
                policy: policy.name.to_string(),
                need: need.as_str(),
                have: self.release.clone(),
            });
        }
        if self.core_socket && !leave.core_socket {
            return Err(PlanError::CoreSocket(policy.name.to_string()));
        }
        // `wrap` takes nothing from its user here: a crash does the same as without wrap.
        if self.core_bytes == 0 && wrapped.is_empty() {
            return Err(PlanError::CoreLimit(policy.name.to_string()));
        }
        Ok(())
    }
}
