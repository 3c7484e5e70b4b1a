//! Why the network wall could not be made.

use std::io;

/// Why the network wall could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A step of making, entering or checking the namespace was refused.
    #[error("cannot {step} for the inner network namespace")]
    Step {
        /// The step.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel is older than Linux 5.14.
    #[error(
        "this kernel has no SO_NETNS_COOKIE (need Linux 5.14), so no namespace can be verified"
    )]
    NoCookie,
    /// The namespace has links that lead out.
    #[error("the network namespace must have lo alone but has {links}")]
    ForeignLinks {
        /// The names found, escaped.
        links: String,
    },
    /// The namespace is not the planned one.
    #[error("this is not the sandbox's network namespace: need cookie {need}, have {have}")]
    WrongNamespace {
        /// The cookie of the namespace that was made for the sandbox.
        need: u64,
        /// The cookie of the namespace that was found.
        have: u64,
    },
    /// A sysctl's key or value may not be written.
    #[error("the sysctl {key:?} is refused: {reason}")]
    BadSysctl {
        /// The key as it was given.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The kernel refused a sysctl.
    #[error("cannot set the sysctl {key} to {value:?} in the inner network namespace")]
    Sysctl {
        /// The key, with dots.
        key: String,
        /// The value.
        value: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The child that makes the namespace reported an error.
    #[error("the inner network namespace was not made: {reason}")]
    NotMade {
        /// The child's error with its causes.
        reason: String,
    },
    /// The child that makes the namespace did not answer.
    #[error("the inner network namespace was not made within {seconds} s")]
    TimedOut {
        /// How long the runtime waited.
        seconds: u64,
    },
}

impl NetworkError {
    /// For `map_err`: adds the step to the kernel's error.
    pub(super) fn step<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Step {
            step,
            source: source.into(),
        }
    }
}
