//! What `exec` refuses before it has made anything.

use oci_spec::runtime::Process;

use super::target::ExecTarget;
use crate::cli;
use crate::plan::CapabilitySets;
use crate::runtime::RuntimeError;
use crate::runtime::input::descriptors::{self, LetIn};
use crate::runtime::launch::refuse_contradiction;

/// Refuses what the process must not inherit, and what the kernel would refuse.
pub(super) fn check(
    args: &cli::Exec,
    target: &ExecTarget,
    process: &Process,
) -> Result<(), RuntimeError> {
    let plan = target.record.plan();
    descriptors::check(args.preserve_fds, LetIn::of(plan))?;
    descriptors::check_limit(process, plan, 0)?;
    refuse_contradiction(&CapabilitySets::of(process.capabilities().as_ref()))
}
