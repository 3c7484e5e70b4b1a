//! `checkpoint` and `restore`: refused.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// The container library takes checkpoints and cannot restore them, and under a policy a restored container would have
/// no walls. A verb that ends a container for good must not be called like one that saves it. Engines ask by
/// `checkpoint --help` whether there is such a verb, and a failure says no.
pub fn refuse(verb: &str) -> Result<ExitCode> {
    bail!("{verb} is not supported: containers cannot be restored by this runtime")
}
