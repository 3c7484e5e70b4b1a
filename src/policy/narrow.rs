//! A policy within a ceiling: field by field the tighter of both, denials united. Of a policy that somebody named, some fields alone.

use super::rows::NarrowScope;
use super::{Field, Policy, table};

/// Adds the ceiling's denials, which no policy below it can be without, and cuts the lists that allow nothing by themselves to what the
/// ceiling lets through; the fields that this changed.
pub(super) fn chosen(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, NarrowScope::Chosen)
}

/// Narrows a policy to a ceiling; the fields that this changed. What is left exceeds the ceiling nowhere.
pub(super) fn meet(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, NarrowScope::Everything)
}
