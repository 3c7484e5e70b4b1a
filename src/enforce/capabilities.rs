//! The capability sets of the calling process, read from the kernel.

use std::collections::BTreeSet;

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet};

use super::error::EnforceError;
use crate::plan::CapabilitySets;
use crate::policy::Capability;

/// The sets of the calling process, as the kernel reports them.
pub fn current() -> Result<CapabilitySets, EnforceError> {
    let step = || EnforceError::step("read the capabilities");
    let found = thread::capabilities(None).map_err(step())?;
    let (permitted, inheritable) = (named(found.permitted), named(found.inheritable));
    // The kernel keeps in the ambient set only what is in both (capabilities(7)); to ask takes a call for each capability.
    let ambient = match permitted.is_disjoint(&inheritable) {
        true => BTreeSet::new(),
        false => each(thread::capability_is_in_ambient_set).map_err(step())?,
    };
    Ok(CapabilitySets {
        bounding: each(thread::capability_is_in_bounding_set).map_err(step())?,
        effective: named(found.effective),
        permitted,
        inheritable,
        ambient,
    })
}

/// The capabilities for which the kernel says yes. It does not know the newest ones if it is old.
fn each(
    asked: impl Fn(CapabilitySet) -> Result<bool, Errno>,
) -> Result<BTreeSet<Capability>, Errno> {
    let mut found = BTreeSet::new();
    for capability in Capability::all() {
        match asked(bit(capability)) {
            Ok(true) => _ = found.insert(capability),
            Ok(false) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Its bit in a set.
pub(super) fn bit(capability: Capability) -> CapabilitySet {
    CapabilitySet::from_bits_retain(1 << capability.number())
}

fn named(bits: CapabilitySet) -> BTreeSet<Capability> {
    Capability::all()
        .filter(|c| bits.contains(bit(*c)))
        .collect()
}
