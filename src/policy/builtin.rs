//! The policies that are built into the program.

use crate::data::{BuiltinTable, table};

/// A policy that is built in.
#[derive(Debug, Clone, Copy)]
pub struct BuiltinPolicy {
    /// Its name.
    pub name: &'static str,
    /// Its text, with the comments.
    pub(super) text: &'static str,
    /// The same, as every start reads it.
    pub(super) table: BuiltinTable,
}

macro_rules! builtin {
    ($name:literal) => {
        BuiltinPolicy {
            name: $name,
            text: include_str!(concat!("../../policies/", $name, ".toml")),
            table: table!($name),
        }
    };
}

/// All, tightest first; `ci` is `standard` with other writable files.
pub const BUILTIN: [BuiltinPolicy; 4] = [
    builtin!("strict"),
    builtin!("standard"),
    builtin!("ci"),
    builtin!("permissive"),
];

/// Whether a built-in policy has this name.
pub fn is_builtin(name: &str) -> bool {
    policy(name).is_some()
}

/// Applies if nothing chooses a policy.
pub(super) const DEFAULT: &str = "standard";

/// The ceiling if the node's file names none.
pub(super) const CEILING: &str = "permissive";

/// The built-in policy of this name.
pub(super) fn policy(name: &str) -> Option<BuiltinPolicy> {
    BUILTIN.into_iter().find(|builtin| builtin.name == name)
}

/// The text of a built-in policy.
pub(super) fn text(name: &str) -> Option<&'static str> {
    policy(name).map(|builtin| builtin.text)
}
