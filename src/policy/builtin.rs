//! The policies that are built into the program.

/// Name and text of each, tightest first; `ci` is `standard` with other writable files. They are parsed when needed: this is
/// on the way of every start.
pub const BUILTIN: [(&str, &str); 4] = [
    ("strict", include_str!("../../policies/strict.toml")),
    ("standard", include_str!("../../policies/standard.toml")),
    ("ci", include_str!("../../policies/ci.toml")),
    ("permissive", include_str!("../../policies/permissive.toml")),
];

/// Whether a built-in policy has this name.
pub fn is_builtin(name: &str) -> bool {
    text(name).is_some()
}

/// Applies if nothing chooses a policy.
pub(super) const DEFAULT: &str = "standard";

/// The ceiling if the node's file names none.
pub(super) const CEILING: &str = "permissive";

/// The text of a built-in policy.
pub(super) fn text(name: &str) -> Option<&'static str> {
    BUILTIN
        .iter()
        .find(|(builtin, _)| *builtin == name)
        .map(|(_, text)| *text)
}
