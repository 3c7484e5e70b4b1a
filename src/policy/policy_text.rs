//! Identifies a text that was read.

use std::fmt;

use super::{Origin, PolicyName};
use crate::rules::PresetName;

/// A text that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyText {
    /// A built-in policy.
    Builtin(PolicyName),
    /// A policy file of the node.
    File(PolicyName),
    /// A policy file of the user of `wrap`, by its path.
    Own(String),
    /// The node's own file.
    Node,
    /// A preset of the node.
    Preset(PresetName),
}

impl fmt::Display for PolicyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "built-in policy {name}"),
            Self::File(name) => write!(f, "policy file {name}.toml"),
            Self::Own(path) => write!(f, "policy file {path}"),
            Self::Node => f.write_str("the node's file"),
            Self::Preset(name) => write!(f, "preset file {name}.toml"),
        }
    }
}

impl PolicyText {
    /// The origin of what it contains.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Builtin(name) => Origin::Builtin(name.clone()),
            Self::File(name) => Origin::File(name.clone()),
            Self::Own(path) => Origin::OwnFile(path.clone()),
            Self::Node | Self::Preset(_) => Origin::Node,
        }
    }
}
