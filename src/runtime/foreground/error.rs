//! Why a verb cannot use the caller's terminal.

/// Why the caller's terminal cannot be used for a container.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForegroundError {
    /// The verb does not stay to relay it.
    #[error(
        "standard {standard} is a terminal, which no policy hands in, and {what} does not relay it: redirect it (a file, a pipe, \
         /dev/null), or use --console-socket"
    )]
    Terminal {
        /// For example "input".
        standard: &'static str,
        /// The verb.
        what: String,
    },
    /// libcontainer sent no terminal.
    #[error("no pseudo-terminal arrived")]
    NoTerminal,
}
