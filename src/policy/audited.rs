//! A policy that is tried but not enforced: its name, as the enforced policy gives it, and its result.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{PolicyName, ResolvedPolicy};
use crate::text::{ValueError, string_form};

/// The word for no policy to try.
const OFF: &str = "off";

/// The policy to try, if any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditedPolicy(Option<PolicyName>);

impl AuditedPolicy {
    /// No policy to try.
    pub fn off() -> Self {
        Self(None)
    }

    /// Its name.
    pub fn name(&self) -> Option<&PolicyName> {
        self.0.as_ref()
    }
}

impl FromStr for AuditedPolicy {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        match value {
            OFF => Ok(Self(None)),
            name => match name.parse() {
                Ok(name) => Ok(Self(Some(name))),
                Err(_) => Err(ValueError::grammar(value, "off, or a policy's name")),
            },
        }
    }
}

impl fmt::Display for AuditedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str(OFF),
            Some(name) => name.fmt(f),
        }
    }
}

string_form!(AuditedPolicy);

impl Serialize for AuditedPolicy {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AuditedPolicy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The policy of `report.audit`, as it would apply to the same container with the same annotations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AuditOutcome {
    /// Its name.
    pub name: PolicyName,
    /// The resolved policy, or why it would refuse the container.
    pub outcome: Result<Box<ResolvedPolicy>, String>,
}
