//! PURE. Items of a policy that end.

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

impl ExpiredItem {
    /// Its word in a line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::Approval => "approval",
            Self::Secret => "secret",
        }
    }
}
