//! Why the options of `wrap` are refused.

use thiserror::Error;

use super::conflict::Conflict;
use super::{Field, Origin};
use crate::text::{DidYouMean, ValueError};

/// An option that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// `--set` without a field or a value.
    #[error("option --set {text} is not FIELD=VALUE, such as limits.memory=4GiB")]
    SetGrammar {
        /// What was given, escaped and bounded.
        text: String,
    },

    /// `--set` with a field that does not exist.
    #[error(
        "option --set: there is no field {name}{}; `agentbox policy show standard` prints all of them",
        DidYouMean(*suggestion)
    )]
    SetField {
        /// What was given, escaped and bounded.
        name: String,
        /// The nearest field.
        suggestion: Option<&'static str>,
    },

    /// A field that only policy files can set.
    #[error("{field} is set by a policy file alone: write one and name it with --policy FILE")]
    SetByFilesAlone {
        /// The field.
        field: Field,
    },

    /// `--set` with the field of an engine's mounts, of which `wrap` has none.
    #[error("option --set filesystem.write: it is for an engine's mounts; wrap has --write PATH")]
    SetWrite,

    /// An option whose value is too long to be meant.
    #[error("{option}: its value is too large: {length} bytes, the limit is {limit}")]
    OptionTooLong {
        /// The option.
        option: Origin,
        /// The value's bytes.
        length: usize,
        /// The most that is read.
        limit: usize,
    },

    /// An option with a wrong value.
    #[error("{option}: {problem}")]
    OptionValue {
        /// The option.
        option: Origin,
        /// The value, or the item of the list, and the allowed values.
        problem: ValueError,
    },

    /// Two options of one command line contradict each other.
    #[error("{first} and {second} disagree: {conflict}")]
    OptionsDisagree {
        /// One of them.
        first: Origin,
        /// The other.
        second: Origin,
        /// The subject.
        conflict: Conflict,
    },
}
