//! Everything that has a say in a container's policy, and what applies in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::request::FieldPattern;
use super::{
    AuditOutcome, Field, GuestPath, HoneyValue, Limits, NetworkLimit, NetworkPrefix, NodeAllow,
    NodeConfig, NodeSecret, Policy, PolicyName, Upstream, WrapOptions,
};

/// All that has a say in a container's policy.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The container's annotations, those of others too.
    pub annotations: &'a BTreeMap<String, String>,
    /// `--policy NAME`.
    pub flag: Option<&'a str>,
    /// The node's file.
    pub node: &'a NodeConfig,
    /// The node's policy files, name (without `.toml`) -> text. One replaces the built-in policy of its name.
    pub files: &'a BTreeMap<String, String>,
    /// The node's presets, name (without `.toml`) -> text. One replaces the built-in preset of its name.
    pub presets: &'a BTreeMap<String, String>,
    /// Whether there is a system call of this name.
    pub known_syscall: fn(&str) -> bool,
    /// Who asks for what the annotations say.
    pub asker: Asker,
    /// What the person says who runs `wrap`.
    pub asked: &'a WrapOptions,
}

impl<'a> Sources<'a> {
    /// With what the person says who runs `wrap`, if that is where the container comes from.
    pub fn asked_by_wrap(self, asked: &'a WrapOptions) -> Self {
        let asker = match asked.is_empty() {
            true => self.asker,
            false => Asker::Operator,
        };
        Self {
            asker,
            asked,
            ..self
        }
    }
}

/// Who asks for fields of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A container's annotations: they need leave to loosen.
    Container,
    /// Root on the node by `update`, or the person who runs `wrap`: the ceilings alone limit that.
    Operator,
}

/// What applies to a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// No walls: the spec as the engine wrote it.
    Unconfined {
        /// Who chose that.
        chosen_by: Origin,
    },
    /// These walls.
    Policy(Box<ResolvedPolicy>),
}

/// A policy, and where each of its values came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ResolvedPolicy {
    /// What is asked for.
    pub policy: Policy,
    /// What its file says of it.
    pub description: Option<String>,
    /// Which mount is the workspace, where an annotation says so.
    pub workspace: Option<GuestPath>,
    /// Who chose the policy.
    pub chosen_by: Origin,
    /// Where the value of each field came from: all fields are here.
    pub origins: BTreeMap<Field, Origin>,
    /// What limited it.
    pub ceilings: Vec<Ceiling>,
    /// What each of those lets network.allow have, in the same order.
    pub network_limits: Vec<NetworkLimit>,
    /// What the ceilings say.
    #[serde(default)]
    pub limits: Vec<Policy>,
    /// What annotations may ask for beyond the policy that was chosen.
    pub leave: Loosening,
    /// What else bounds the container besides `policy.limits`: of all, the smallest holds. They cannot always be compared
    /// without the node.
    #[serde(default)]
    pub bounds: Vec<Limits>,
    /// What this node allows beyond any policy.
    pub node_allow: NodeAllow,
    /// The proxy that this node reaches the internet through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The policy that is only reported on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audited: Option<AuditOutcome>,
    /// What this node calls the networks of its cluster.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Fields of requests that this node sends on besides the known ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub request_fields: BTreeSet<FieldPattern>,
    /// The node's secrets for containers of this policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<NodeSecret>,
    /// The node's honey values for containers of this policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
}

/// How far annotations may loosen the chosen policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loosening {
    /// All that is within the ceilings: somebody set one.
    UpToCeilings,
    /// These fields, up to the ceilings.
    Fields(BTreeSet<Field>),
}

impl Loosening {
    /// Whether it has this field.
    pub(super) fn has(&self, field: Field) -> bool {
        match self {
            Self::UpToCeilings => true,
            Self::Fields(fields) => fields.contains(&field),
        }
    }
}

/// A policy that limits another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ceiling {
    /// Its name.
    pub policy: PolicyName,
    /// Who set it: the node's file (or its default), or `--policy`.
    pub set_by: Origin,
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, set_by } = self;
        write!(f, "{policy} (set by {set_by})")
    }
}

/// Where something came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The container's annotation of this key.
    Annotation(String),
    /// `--policy`.
    Flag,
    /// Another option of `wrap`, as it was typed.
    Option(String),
    /// A setting of a file of the person who runs `wrap`: `NAME of PATH`.
    Setting(String),
    /// A policy file of the person who runs `wrap`, by its path.
    OwnFile(String),
    /// The node's file.
    Node,
    /// Nobody said anything.
    Default,
    /// A policy that is part of the program.
    Builtin(PolicyName),
    /// A policy file of the node.
    File(PolicyName),
    /// A ceiling, which is tighter than the policy that was chosen.
    Ceiling(PolicyName),
    /// `update`, while the container ran.
    Update,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::Flag => f.write_str("--policy"),
            Self::Option(option) => write!(f, "option {option}"),
            Self::Setting(setting) => write!(f, "setting {setting}"),
            Self::OwnFile(path) => write!(f, "policy file {path}"),
            Self::Node => f.write_str("the node's file"),
            Self::Default => f.write_str("the default"),
            Self::Builtin(name) => write!(f, "built-in policy {name}"),
            Self::File(name) => write!(f, "policy file {name}.toml"),
            Self::Ceiling(name) => write!(f, "the ceiling {name}"),
            Self::Update => f.write_str("agentbox update"),
        }
    }
}
