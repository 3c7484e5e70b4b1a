//! PURE. Items of a policy that end.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What may expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ExpiredItem {
    /// A network rule.
    Rule,
    /// An approval of the operator.
    Approval,
    /// A secret that is added to requests.
    Secret,
}

impl fmt::Display for ExpiredItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "rule",
            Self::Approval => "approval",
            Self::Secret => "secret",
        })
    }
}
