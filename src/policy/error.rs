//! Why a policy could not be resolved.
//!
//! Each error names the place (key, file and line, flag), what stood there, escaped and bounded, and what is allowed.

use thiserror::Error;

use super::conflict::Conflict;
use super::message::{BaseChain, ExceedingPolicy, LeaveHint, OriginText, OverLimits};
use super::option_error::OptionError;
use super::policy_text::PolicyText;
use super::remedy::{self, Remedy, RootOfDefault};
use super::text::{DidYouMean, ValueError};
use super::{
    AnnotationLeave, Capability, Ceiling, EgressRule, ExceededField, Field, Origin, PolicyName,
    PresetName, RootAccess, SyscallName,
};

/// Why there is no policy, and so no container.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A key that reads as ours and is not.
    #[error(
        "annotation {key} is not one of agentbox's{}; its keys are dev.agentbox.policy, dev.agentbox.workspace, and \
         dev.agentbox. with each field of `agentbox policy show standard`",
        DidYouMean(suggestion.as_deref())
    )]
    AnnotationKey {
        /// The key, escaped and bounded.
        key: String,
        /// The nearest key of ours.
        suggestion: Option<String>,
    },

    /// An annotation for a field that policy files alone have.
    #[error(
        "annotation dev.agentbox.{field}: annotations cannot set this field, only a policy file of the node"
    )]
    NoAnnotation {
        /// The field.
        field: Field,
    },

    /// An annotation whose value cannot be meant.
    #[error("annotation {key}: its value has {length} bytes, at most {limit} are read")]
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
        /// The value, or the item of the list, and what is allowed.
        problem: ValueError,
    },

    /// Only the node's operator may take the walls away.
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
        /// About what.
        conflict: Conflict,
    },

    /// An option of `wrap`.
    #[error(transparent)]
    Option(#[from] OptionError),

    /// An author allows what is denied below it, and would do nothing.
    #[error(
        "{asked_by} allows {name}, but {denied_by} denies it (syscalls.deny) and a denial wins: leave it out"
    )]
    AllowsDenied {
        /// Who names it.
        asked_by: Origin,
        /// The call.
        name: SyscallName,
        /// Who denies it.
        denied_by: Origin,
    },

    /// A preset that nobody defined.
    #[error("{asked_by}: there is no preset @{preset}; known: {known}. {how}")]
    NoSuchPreset {
        /// Who names it.
        asked_by: Origin,
        /// Its name.
        preset: PresetName,
        /// All that there are.
        known: String,
        /// Which one was probably meant, or how it can be defined.
        how: String,
    },

    /// A rule that needs the node's leave, or one too many.
    #[error("{origin}: {field} may not have {rule}: {why}")]
    RuleNotAllowed {
        /// Where it stands.
        origin: Origin,
        /// The field.
        field: Field,
        /// The rule.
        rule: Box<EgressRule>,
        /// The reason, and what permits it.
        why: String,
    },

    /// A field is to be changed where there is no policy.
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

    /// `--policy` with something that cannot be a policy.
    #[error("--policy: {problem}")]
    Flag {
        /// The value, and what is allowed.
        problem: ValueError,
    },

    /// A name that is neither built in nor a file's.
    #[error(
        "{asked_by}: there is no policy {name}{}; known: {known}",
        DidYouMean(suggestion.as_ref().map(PolicyName::as_str))
    )]
    NoSuchPolicy {
        /// The name.
        name: PolicyName,
        /// Who names it.
        asked_by: Origin,
        /// The nearest that there is.
        suggestion: Option<PolicyName>,
        /// All that there are.
        known: String,
    },

    /// A file among the node's policies or presets that nobody could choose.
    #[error("{kind} file {file}: {problem}")]
    FileName {
        /// What the file would define: `policy` or `preset`.
        kind: &'static str,
        /// The file, escaped and bounded.
        file: String,
        /// What its name should be.
        problem: ValueError,
    },

    /// A file that no person wrote.
    #[error("{file} has {length} bytes, at most {limit} are read")]
    FileTooLong {
        /// Which file.
        file: PolicyText,
        /// Its bytes.
        length: usize,
        /// The most that is read.
        limit: usize,
    },

    /// A file that is there and cannot be read.
    #[error("{file}: {why}")]
    FileUnreadable {
        /// Which file.
        file: PolicyText,
        /// The reason.
        why: String,
    },

    /// A file that is not what it should be.
    #[error("{file}, line {line} ({text}): {problem}")]
    File {
        /// Which file.
        file: PolicyText,
        /// The line, from 1.
        line: usize,
        /// What stands there, escaped and bounded.
        text: String,
        /// What is wrong with it.
        problem: String,
    },

    /// A policy that says too little.
    #[error("{file}: {field} is missing, also in `base`")]
    FieldMissing {
        /// Which file.
        file: PolicyText,
        /// The first field that is missing.
        field: Field,
    },

    /// Bases that lead back to where they began.
    #[error("policy files name each other as base: {}", BaseChain(chain))]
    BaseCycle {
        /// From the policy that was asked for to the one that is met again.
        chain: Vec<PolicyName>,
    },

    /// More bases than a person can follow.
    #[error(
        "policy files name more than {limit} bases in a row: {}",
        BaseChain(chain)
    )]
    BaseDepth {
        /// The bases, from the policy that was asked for.
        chain: Vec<PolicyName>,
        /// The most that are followed.
        limit: usize,
    },

    /// A path that stands for everything.
    #[error("{origin}: {field} is /: name a mount point below it")]
    RootPath {
        /// Where it came from.
        origin: Origin,
        /// The field, or the annotation's key.
        field: String,
    },

    /// A system call that nobody knows, whose rule would therefore do nothing.
    #[error("{origin}: {field} names {name}, which is not a system call that agentbox knows")]
    UnknownSyscall {
        /// Where it came from.
        origin: Origin,
        /// The field.
        field: Field,
        /// The name.
        name: SyscallName,
    },

    /// A capability that reaches beyond the container.
    #[error(
        "{origin}: privileges.capabilities names {capability}, which needs \
         `allow.capabilities` in the node's file (docs/policy.md lists the others)"
    )]
    CapabilityNotAllowed {
        /// Where it came from.
        origin: Origin,
        /// The capability.
        capability: Capability,
    },

    /// A policy that learns, on a node that does not permit it.
    #[error(
        "{origin}: report.learn is on, which allows unlisted hosts: `learn = true` under [allow] of the node's \
         file permits it"
    )]
    LearnNotAllowed {
        /// Where it came from.
        origin: Origin,
    },

    /// The container asks for more than it may have.
    #[error(
        "{}",
        remedy::one_line(
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
        /// What would help, where that is one thing.
        remedy: Box<Remedy>,
    },

    /// An annotation asks for more than the policy that was chosen, and nobody gave it leave.
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
        /// Whether the annotations may be an image's.
        image: bool,
    },

    /// An annotation that an image may have written chooses, and nobody gave it leave.
    #[error(
        "annotation {key} exceeds {than} ({chosen_by}): {asked}; {}",
        LeaveHint { keys: vec![leave], image: true }
    )]
    ChosenByImage {
        /// The annotation.
        key: String,
        /// What applies without it.
        than: String,
        /// Who chose that.
        chosen_by: Origin,
        /// What it asks for.
        asked: String,
        /// What the node's file would list.
        leave: AnnotationLeave,
    },

    /// Unknown hosts are to be asked for, and nothing may be granted.
    #[error(
        "network.on-unknown is ask, but the ceiling {ceiling} allows no approval: its network.limit is empty; \
         set one, such as limit = [\"*\"]"
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
        /// About what.
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
        /// The root that would be within, where it is that alone.
        root: Option<RootAccess>,
    },
}

impl PolicyError {
    /// Every field in which too much is asked for, of which the message has the first ones.
    pub fn over(&self) -> &[OverLimit] {
        match self {
            Self::ExceedsCeiling { over, .. }
            | Self::Loosened { over, .. }
            | Self::DefaultExceedsCeiling { over, .. } => over,
            _ => &[],
        }
    }
}

/// A field that exceeds a ceiling, and who asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverLimit {
    /// The field, what was asked and what is allowed.
    pub exceeded: ExceededField,
    /// Who asked.
    pub origin: Origin,
}
