//! A policy that is only reported on: its name in the policy that is enforced, and what became of it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::text::{ValueError, string_form};
use super::{PolicyName, ResolvedPolicy};

/// The word for no policy.
const OFF: &str = "off";

/// The policy that is reported on, if one is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditedPolicy(Option<PolicyName>);

impl AuditedPolicy {
    /// None is.
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

/// The policy of `report.audit`, as it would hold for the same container with the same annotations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AuditOutcome {
    /// Its name.
    pub name: PolicyName,
    /// What it would be, or why the container would be refused.
    pub outcome: Result<Box<ResolvedPolicy>, String>,
}
