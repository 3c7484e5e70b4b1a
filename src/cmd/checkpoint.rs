//! `checkpoint` and `restore`: refused.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// The container library can checkpoint but not restore, and under a policy a restored container would have no walls. A
/// verb that ends a container for good must not have the name of one that saves it. Engines check for the verb by
/// `checkpoint --help`; a failure means no.
pub fn refuse(verb: &str) -> Result<ExitCode> {
    bail!("{verb} is not supported: containers cannot be restored by this runtime")
}
