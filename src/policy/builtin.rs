//! The policies that are built into the program.

use crate::data::{BuiltinTable, table};

/// Name and text of each, tightest first; `ci` is `standard` with other writable files.
pub const BUILTIN: [(&str, &str); 4] = [
    ("strict", include_str!("../../policies/strict.toml")),
    ("standard", include_str!("../../policies/standard.toml")),
    ("ci", include_str!("../../policies/ci.toml")),
    ("permissive", include_str!("../../policies/permissive.toml")),
];

/// The same, as every start reads them.
const TABLES: [(&str, BuiltinTable); 4] = [
    ("strict", table!("strict")),
    ("standard", table!("standard")),
    ("ci", table!("ci")),
    ("permissive", table!("permissive")),
];

/// Whether a built-in policy has this name.
pub fn is_builtin(name: &str) -> bool {
    text(name).is_some()
}

/// Applies if nothing chooses a policy.
pub(super) const DEFAULT: &str = "standard";

/// The ceiling if the node's file names none.
pub(super) const CEILING: &str = "permissive";

/// The table of a built-in policy.
pub(super) fn table(name: &str) -> Option<BuiltinTable> {
    let found = TABLES.iter().find(|(builtin, _)| *builtin == name);
    found.map(|(_, table)| *table)
}

/// The text of a built-in policy.
pub(super) fn text(name: &str) -> Option<&'static str> {
    BUILTIN
        .iter()
        .find(|(builtin, _)| *builtin == name)
        .map(|(_, text)| *text)
}
