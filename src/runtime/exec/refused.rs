//! Refusals of `exec`, before it has made anything.

use oci_spec::runtime::Process;

use super::error::ExecError;
use super::target::ExecTarget;
use crate::cli;
use crate::plan::CapabilitySets;
use crate::policy::{SetIdRule, Switch};
use crate::runtime::error::RuntimeError;
use crate::runtime::input::descriptors::{self, DescriptorRule, StandardStreams};
use crate::runtime::launch::refuse_contradiction;

/// Refuses what the process must not inherit, and what the kernel would refuse. `standard` are the streams that the
/// caller gives.
pub(super) fn check(
    args: &cli::Exec,
    target: &ExecTarget,
    process: &Process,
    standard: StandardStreams,
) -> Result<(), RuntimeError> {
    let plan = target.record.plan();
    descriptors::check(args.preserve_fds, DescriptorRule::of(plan))?;
    descriptors::check_limit(process, plan, 0)?;
    refuse_file(args, target, process, standard)?;
    refuse_contradiction(&CapabilitySets::of(process.capabilities().as_ref()))
}

/// Refuses a file of the node if the container may make set-user-ID files, because the node's files must not become
/// set-user-ID.
fn refuse_file(
    args: &cli::Exec,
    target: &ExecTarget,
    process: &Process,
    given: StandardStreams,
) -> Result<(), RuntimeError> {
    let Some(decided) = &target.record.decided else {
        return Ok(());
    };
    let rule = decided.resolved.privileges.set_id;
    if (rule, decided.plan.syscalls.set_id) != (SetIdRule::Auto, Switch::On) {
        return Ok(());
    }
    // The output of a process that is not detached is relayed.
    let standard = match args.detach && !process.terminal().unwrap_or(false) {
        true => given,
        false => StandardStreams::Replaced,
    };
    match descriptors::handed_file(args.preserve_fds, standard) {
        Some(fd) => Err(ExecError::HandedFile { fd }.into()),
        None => Ok(()),
    }
}
