//! Narrows a policy to a ceiling: the tighter value of each field, all denials. A named policy only in some fields.

use super::file::LoadedPolicy;
use super::resolve::CeilingPolicy;
use super::rows::NarrowScope;
use super::{Field, Origin, Policy, RootAccess, table};

/// Adds the ceiling's denials, which apply to every policy below it, and cuts the lists that allow nothing by
/// themselves to the ceiling's. Returns the changed fields.
pub(super) fn chosen(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, NarrowScope::Chosen)
}

/// Narrows a policy to a ceiling, which it then exceeds in no field. Returns the changed fields.
pub(super) fn meet(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, NarrowScope::Everything)
}

/// Replaces the engine's layer as the root if the ceiling allows less. Returns the changed field.
pub(super) fn without_layer(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    let most = ceiling.filesystem.root;
    let root = &mut policy.filesystem.root;
    if *root != RootAccess::Engine || most == RootAccess::Engine {
        return Vec::new();
    }
    *root = most;
    vec![Field::FilesystemRoot]
}

/// A policy narrowed to the ceilings.
pub(super) fn by_ceilings(
    mut loaded: LoadedPolicy,
    narrow: fn(&mut Policy, &Policy) -> Vec<Field>,
    limits: &[CeilingPolicy],
) -> LoadedPolicy {
    for limit in limits {
        for field in narrow(&mut loaded.policy, &limit.policy) {
            let origin = Origin::Ceiling(limit.ceiling.policy.clone());
            loaded.origins.insert(field, origin);
        }
    }
    loaded
}
