//! PURE. What the first process of a container executes.

use serde::{Deserialize, Serialize};

use super::what::plain_list;

/// A program with its arguments, and the user who executes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// User id in the container.
    pub uid: u32,
    /// Group id in the container.
    pub gid: u32,
}

impl Command {
    /// With texts that are bounded and harmless on a terminal: an image may have chosen them.
    pub fn plain(arguments: Vec<String>, uid: u32, gid: u32) -> Self {
        Self {
            arguments: plain_list(arguments),
            uid,
            gid,
        }
    }

    /// On one line.
    pub fn words(&self) -> String {
        format!("as {}:{}: {}", self.uid, self.gid, self.arguments.join(" "))
    }
}
