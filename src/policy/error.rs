//! Why a policy could not be resolved.
//!
//! Each error gives the place (key, file and line, flag), the text there, escaped and bounded, and the allowed values.

use thiserror::Error;

use super::conflict::Conflict;
use super::message::{
    self, BaseChain, ExceedingPolicy, LeaveHint, OriginText, OverLimits, RootOfDefault,
};
use super::option_error::OptionError;
use super::policy_text::PolicyText;
use super::remedy::Remedy;
use super::{
    AnnotationLeave, Capability, Ceiling, ExceededField, Field, Origin, PolicyName, RootAccess,
};
use crate::kernel::SyscallName;
use crate::rules::{EgressRule, PresetName};
use crate::text::{DidYouMean, ValueError};

/// Why there is no policy, and so no container.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A key that looks like ours but is not.
    #[error(
        "annotation {key} is not one of agentbox's{}; use dev.agentbox.policy, .workspace or a field of `agentbox policy show \
         standard`",
        DidYouMean(suggestion.as_deref())
    )]
    AnnotationKey {
        /// The key, escaped and bounded.
        key: String,
        /// The nearest key of ours.
        suggestion: Option<String>,
    },

    /// An annotation for a field that only policy files can set.
    #[error(
        "annotation dev.agentbox.{field}: annotations cannot set this field, only a policy file of the node"
    )]
    NoAnnotation {
        /// The field.
        field: Field,
    },

    /// An annotation whose value is too long to be meant.
    #[error("annotation {key}: its value is too large: {length} bytes, the limit is {limit}")]
    AnnotationTooLong {
        /// The key, one of ours.
        key: String,
        /// The value's bytes.
        length: usize,
        /// The most that is read.
        limit: usize,
    },

    /// An annotation whose value does not fit.
    #[error("annotation {key}: {problem}")]
    AnnotationValue {
        /// The key, one of ours.
        key: String,
        /// The value, or the item of the list, and the allowed values.
        problem: ValueError,
    },

    /// Only the node's operator may choose a container without walls.
    #[error(
        "annotation {key} chooses unconfined, which only `default` of the node's file or --policy may choose; \
         name a policy"
    )]
    AnnotationUnconfined {
        /// The key.
        key: String,
    },

    /// Two annotations of one container contradict each other.
    #[error("annotations {first} and {second} disagree: {conflict}")]
    AnnotationsDisagree {
        /// One key.
        first: String,
        /// The other.
        second: String,
        /// The subject.
        conflict: Conflict,
    },

    /// An option of `wrap`.
    #[error(transparent)]
    Option(#[from] OptionError),

    /// An author allows a call that is denied below, so the allowance would have no effect.
    #[error(
        "{asked_by} allows {name}, but {denied_by} denies it (syscalls.deny) and a denial wins: leave it out"
    )]
    AllowsDenied {
        /// Who allows it.
        asked_by: Origin,
        /// The call.
        name: SyscallName,
        /// Who denies it.
        denied_by: Origin,
    },

    /// A preset that does not exist.
    #[error("{asked_by}: there is no preset @{preset}; known: {known}. {how}")]
    NoSuchPreset {
        /// Who names it.
        asked_by: Origin,
        /// Its name.
        preset: PresetName,
        /// All existing presets.
        known: String,
        /// The preset that was probably meant, or how to define it.
        how: String,
    },

    /// A rule that needs the node's permission, or more rules than allowed.
    #[error("{origin}: {field} may not have {rule}: {why}")]
    RuleNotAllowed {
        /// Its origin.
        origin: Origin,
        /// The field.
        field: Field,
        /// The rule.
        rule: Box<EgressRule>,
        /// The reason, and the setting that permits it.
        why: String,
    },

    /// An annotation changes a field, but no policy applies.
    #[error(
        "annotation {key} needs a policy, but {chosen_by} chose unconfined: \
         set dev.agentbox.policy"
    )]
    AnnotationWithoutPolicy {
        /// The key.
        key: String,
        /// Who chose `unconfined`.
        chosen_by: Origin,
    },

    /// `--policy` with a value that cannot be a policy.
    #[error("--policy: {problem}")]
    Flag {
        /// The value, and the allowed values.
        problem: ValueError,
    },

    /// A name of no existing policy.
    #[error(
        "{asked_by}: there is no policy {name}{}; known: {known}",
        DidYouMean(suggestion.as_ref().map(PolicyName::as_str))
    )]
    NoSuchPolicy {
        /// The name.
        name: PolicyName,
        /// Who names it.
        asked_by: Origin,
        /// The nearest existing name.
        suggestion: Option<PolicyName>,
        /// All existing names.
        known: String,
    },

    /// A policy or preset file of the node whose name no policy or preset can have.
    #[error("{kind} file {file}: {problem}")]
    FileName {
        /// What the file would define: `policy` or `preset`.
        kind: &'static str,
        /// The file, escaped and bounded.
        file: String,
        /// What its name must look like.
        problem: ValueError,
    },

    /// A file that is too long to be meant.
    #[error("{file} is too large: {length} bytes, the limit is {limit}")]
    FileTooLong {
        /// Which file.
        file: PolicyText,
        /// Its bytes.
        length: usize,
        /// The most that is read.
        limit: usize,
    },

    /// A file that exists but cannot be read.
    #[error("{file}: {why}")]
    FileUnreadable {
        /// Which file.
        file: PolicyText,
        /// The reason.
        why: String,
    },

    /// A file with an error in it.
    #[error("{file}, line {line} ({text}): {problem}")]
    File {
        /// Which file.
        file: PolicyText,
        /// The line, from 1.
        line: usize,
        /// The text there, escaped and bounded.
        text: String,
        /// What is wrong with it.
        problem: String,
    },

    /// A policy with a missing field.
    #[error("{file}: {field} is missing, also in `base`")]
    FieldMissing {
        /// Which file.
        file: PolicyText,
        /// The first field that is missing.
        field: Field,
    },

    /// Bases that form a cycle.
    #[error("policy files name each other as base: {}", BaseChain(chain))]
    BaseCycle {
        /// From the requested policy to the one that appears again.
        chain: Vec<PolicyName>,
    },

    /// More bases in a row than a reader can follow.
    #[error(
        "policy files name more than {limit} bases in a row: {}",
        BaseChain(chain)
    )]
    BaseDepth {
        /// The bases, from the requested policy on.
        chain: Vec<PolicyName>,
        /// The most that are followed.
        limit: usize,
    },

    /// The path `/`, which would mean everything.
    #[error("{origin}: {field} is /: name a mount point below it")]
    RootPath {
        /// Its origin.
        origin: Origin,
        /// The field, or the annotation's key.
        field: String,
    },

    /// A capability that reaches beyond the container.
    #[error(
        "{origin}: privileges.capabilities names {capability}, which needs \
         `allow.capabilities` in the node's file (docs/policy.md lists the others)"
    )]
    CapabilityNotAllowed {
        /// Its origin.
        origin: Origin,
        /// The capability.
        capability: Capability,
    },

    /// A policy in learn mode, on a node that does not permit it.
    #[error(
        "{origin}: report.learn is on, which allows unlisted hosts: `learn = true` under [allow] of the node's \
         file permits it"
    )]
    LearnNotAllowed {
        /// Its origin.
        origin: Origin,
    },

    /// The container requests more than a ceiling allows.
    #[error(
        "{}",
        message::one_line(
            &format!("{} exceeds the ceiling {ceiling}", ExceedingPolicy(policy, ceiling)),
            over,
            remedy,
            ceiling,
        )
    )]
    ExceedsCeiling {
        /// The policy that was chosen.
        policy: PolicyName,
        /// The limit, and who set it.
        ceiling: Ceiling,
        /// Each field that exceeds it.
        over: Vec<OverLimit>,
        /// The remedy, if there is exactly one.
        remedy: Box<Remedy>,
    },

    /// An annotation requests more than the chosen policy, without permission.
    #[error(
        "policy {policy} ({}) is exceeded by annotations: {}; {}",
        OriginText(chosen_by),
        OverLimits(over),
        LeaveHint { keys: over.iter().map(|over| over.exceeded.field).collect(), image: *image }
    )]
    Loosened {
        /// The policy that was chosen.
        policy: PolicyName,
        /// Who chose it.
        chosen_by: Origin,
        /// Each field that exceeds it.
        over: Vec<OverLimit>,
        /// Whether an image may have written the annotations.
        image: bool,
    },

    /// An annotation lists writable mounts under a policy that drops all mounts. Permission would not help.
    #[error(
        "policy {policy} ({}) is exceeded by annotations: filesystem.write requests {writes} (annotation), \
         and {mounts_by} drops all mounts: name another policy",
        OriginText(chosen_by)
    )]
    WriteDropped {
        /// The policy that was chosen.
        policy: PolicyName,
        /// Who chose it.
        chosen_by: Origin,
        /// The listed mounts.
        writes: String,
        /// Who drops the mounts.
        mounts_by: Origin,
    },

    /// An annotation that an image may have written chooses a policy or a mount, without permission.
    #[error(
        "annotation {key} exceeds {than} ({chosen_by}): {asked}; {}",
        LeaveHint { keys: vec![leave], image: true }
    )]
    ChosenByImage {
        /// The annotation.
        key: String,
        /// The policy that applies without it.
        than: String,
        /// Who chose that policy.
        chosen_by: Origin,
        /// What it requests.
        asked: String,
        /// The entry that the node's file would need.
        leave: AnnotationLeave,
    },

    /// Unknown hosts wait for approval, but the ceiling allows no approval.
    #[error(
        "network.on-unknown is ask, but the ceiling {ceiling} allows no approval: its network.limit is empty; {}",
        message::of_approvals(ceiling)
    )]
    NothingToApprove {
        /// The ceiling.
        ceiling: Ceiling,
    },

    /// A policy file that contradicts itself.
    #[error("{file} contradicts itself: {conflict}")]
    FileDisagrees {
        /// Which file.
        file: PolicyText,
        /// The subject.
        conflict: Conflict,
    },

    /// The node's file contradicts itself.
    #[error(
        "the node's file: its default {policy} exceeds its own ceiling {ceiling}: {}{}",
        OverLimits(over),
        RootOfDefault(policy, *root)
    )]
    DefaultExceedsCeiling {
        /// The file's default.
        policy: PolicyName,
        /// The file's ceiling.
        ceiling: PolicyName,
        /// Each field that exceeds it.
        over: Vec<OverLimit>,
        /// The root that would be within the ceiling, if only the root exceeds it.
        root: Option<RootAccess>,
    },
}

impl PolicyError {
    /// Every field that exceeds a limit. The message has only the first ones.
    pub fn over(&self) -> &[OverLimit] {
        match self {
            Self::ExceedsCeiling { over, .. }
            | Self::Loosened { over, .. }
            | Self::DefaultExceedsCeiling { over, .. } => over,
            _ => &[],
        }
    }
}

/// A field that exceeds a ceiling, and who requested it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverLimit {
    /// The field, the requested and the allowed value.
    pub exceeded: ExceededField,
    /// Who requested it.
    pub origin: Origin,
}
