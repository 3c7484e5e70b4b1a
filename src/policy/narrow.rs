//! A policy within a ceiling: field by field the tighter of both, denials united. Of a policy that somebody named, some fields alone.

use super::rows::Narrow;
use super::{Field, Policy, RootAccess, table};

/// Adds the ceiling's denials, which no policy below it can be without, and cuts the lists that allow nothing by themselves to what the
/// ceiling lets through; the fields that this changed.
pub(super) fn chosen(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, Narrow::Chosen)
}

/// Narrows a policy to a ceiling; the fields that this changed. What is left exceeds the ceiling nowhere.
pub(super) fn meet(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, Narrow::Everything)
}

/// Takes the engine's layer from a policy where there is none, if the ceiling has less; the field that this changed.
pub(super) fn without_layer(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    let most = ceiling.filesystem.root;
    let root = &mut policy.filesystem.root;
    if *root != RootAccess::Engine || most == RootAccess::Engine {
        return Vec::new();
    }
    *root = most;
    vec![Field::FilesystemRoot]
}
