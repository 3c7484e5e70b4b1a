//! All inputs of a container's policy, and the result.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::file_text::FileText;
use super::{
    AuditOutcome, Field, GuestPath, HoneyValue, ImageAnnotations, Limits, NodeAllow, NodeConfig,
    NodeSecret, Policy, PolicyName, Tool, Upstream, WrapOptions,
};
use crate::rules::request::FieldPattern;
use crate::rules::{ClockReading, Expiry, NetworkLimit, NetworkPrefix};

/// All inputs of a container's policy.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The container's annotations, with those of other programs.
    pub annotations: &'a BTreeMap<String, String>,
    /// Whether the image can have written some of them.
    pub image: ImageAnnotations,
    /// `--policy NAME`.
    pub flag: Option<&'a str>,
    /// The node's file.
    pub node: &'a NodeConfig,
    /// The node's policy files, name (without `.toml`) -> text. A file replaces the built-in policy of its name.
    pub files: &'a BTreeMap<String, FileText>,
    /// The node's presets, name (without `.toml`) -> text. A file replaces the built-in preset of its name.
    pub presets: &'a BTreeMap<String, FileText>,
    /// Who made the requests in the annotations.
    pub asker: Asker,
    /// The caller's tool, for the words of an error.
    pub tool: Tool,
    /// The requests of the user of `wrap`.
    pub asked: &'a WrapOptions,
}

impl<'a> Sources<'a> {
    /// Adds the requests of the user of `wrap`, if the container comes from there.
    pub fn asked_by_wrap(self, asked: &'a WrapOptions) -> Self {
        let (asker, tool) = match asked.is_empty() {
            true => (self.asker, self.tool),
            false => (Asker::Operator, Tool::Wrap),
        };
        Self {
            asker,
            tool,
            asked,
            ..self
        }
    }
}

/// Who requests fields of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A container's annotations: they need permission to loosen.
    Container,
    /// Root on the node by `update`, or the user of `wrap`: only the ceilings limit them.
    Operator,
}

/// The result for a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// No walls: the spec as the engine wrote it.
    Unconfined {
        /// Who chose this.
        chosen_by: Origin,
    },
    /// These walls.
    Policy(Box<ResolvedPolicy>),
}

/// A policy, with the origin of each value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ResolvedPolicy {
    /// The effective policy.
    pub policy: Policy,
    /// The description in its file.
    pub description: Option<String>,
    /// The mount that is the workspace, if an annotation names it.
    pub workspace: Option<GuestPath>,
    /// The mounts that an annotation lists in `filesystem.write`, without those of the policy below a `+`.
    #[serde(skip)]
    pub annotated_writes: BTreeSet<GuestPath>,
    /// Who chose the policy.
    pub chosen_by: Origin,
    /// The caller's tool, for the words of an error of the plan.
    #[serde(skip)]
    pub tool: Tool,
    /// The origin of each field's value; complete.
    pub origins: BTreeMap<Field, Origin>,
    /// The policies that limit it.
    pub ceilings: Vec<Ceiling>,
    /// What each of them allows in network.allow, in the same order.
    pub network_limits: Vec<NetworkLimit>,
    /// The ceilings' policies.
    #[serde(default)]
    pub limits: Vec<Policy>,
    /// What annotations may request beyond the chosen policy.
    pub leave: Loosening,
    /// Other bounds of the container besides `policy.limits`. The smallest of all applies; without the node they cannot
    /// always be compared.
    #[serde(default)]
    pub bounds: Vec<Limits>,
    /// The node's permissions beyond any policy.
    pub node_allow: NodeAllow,
    /// The proxy through which this node reaches the internet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The policy to try without enforcing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audited: Option<AuditOutcome>,
    /// The networks of this node's cluster.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Header fields that this node passes on besides the known ones.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub request_fields: BTreeSet<FieldPattern>,
    /// The node's secrets for containers of this policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<NodeSecret>,
    /// The node's honeytokens for containers of this policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
}

impl ResolvedPolicy {
    /// The rules, and the secrets, that have ended at this time, each with its end.
    pub fn expired(&self, now: ClockReading) -> [Vec<String>; 2] {
        let rules = self.policy.network.temporary.iter();
        let rules = rules.filter(|one| one.term.end(now).is_some_and(|end| end.is_over(now)));
        let secrets = self.secrets.iter().filter_map(|secret| {
            let until = secret.until?;
            let is_over = Expiry::at(until).is_over(now);
            is_over.then(|| format!("{} until {until}", secret.name))
        });
        [rules.map(ToString::to_string).collect(), secrets.collect()]
    }
}

/// How far annotations may loosen the chosen policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loosening {
    /// Everything within the ceilings: an operator set one.
    UpToCeilings,
    /// These fields, within the ceilings.
    Fields(BTreeSet<Field>),
}

impl Loosening {
    /// Whether it includes this field.
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

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The container's annotation of this key.
    Annotation(String),
    /// `--policy`.
    Flag,
    /// Another option of `wrap`, as typed.
    Option(String),
    /// A setting in a file of the user of `wrap`: `NAME of PATH`.
    Setting(String),
    /// A policy file of the user of `wrap`, by its path.
    OwnFile(String),
    /// The node's file.
    Node,
    /// An entry of the node's file: `[[secret]] NAME`.
    NodeEntry(String),
    /// The default.
    Default,
    /// A built-in policy.
    Builtin(PolicyName),
    /// A policy file of the node.
    File(PolicyName),
    /// A ceiling that is tighter than the chosen policy.
    Ceiling(PolicyName),
    /// `update`, while the container ran.
    Update,
}

impl Origin {
    /// Whether these are the words for the origin of a built-in policy's value: records keep origins as words.
    pub fn is_builtins(words: &str) -> bool {
        let mut names = super::BUILTIN
            .iter()
            .filter_map(|builtin| builtin.name.parse().ok());
        names.any(|name| Self::Builtin(name).to_string() == words)
    }
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
            Self::NodeEntry(entry) => write!(f, "the node's file: policies of {entry}"),
            Self::Default => f.write_str("the default"),
            Self::Builtin(name) => write!(f, "built-in policy {name}"),
            Self::File(name) => write!(f, "policy file {name}.toml"),
            Self::Ceiling(name) => write!(f, "the ceiling {name}"),
            Self::Update => f.write_str("agentbox update"),
        }
    }
}
