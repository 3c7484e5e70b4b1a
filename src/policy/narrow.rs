//! A policy within a ceiling: field by field the tighter of both, denials united.

use super::rows::Narrow;
use super::{Field, Policy, table};

/// Adds the ceiling's denials, which no policy below it can be without; the fields that this changed.
pub(super) fn unite_denials(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, Narrow::Denials)
}

/// Narrows a policy to a ceiling; the fields that this changed. What is left exceeds the ceiling nowhere.
pub(super) fn meet(policy: &mut Policy, ceiling: &Policy) -> Vec<Field> {
    table::narrow(policy, ceiling, Narrow::Everything)
}
