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
    let set_id = (
        decided.resolved.privileges.set_id,
        decided.plan.syscalls.set_id,
    );
    let handed = streams_to_check(set_id, args, process, given)
        .and_then(|standard| descriptors::handed_file(args.preserve_fds, standard));
    match handed {
        Some(fd) => Err(ExecError::HandedFile { fd }.into()),
        None => Ok(()),
    }
}

/// Whose standard streams may be no file of the node, besides the passed-on descriptors; `None` if the container cannot
/// make set-user-ID files, or the policy permits it for files of the node too.
fn streams_to_check(
    set_id: (SetIdRule, Switch),
    args: &cli::Exec,
    process: &Process,
    given: StandardStreams,
) -> Option<StandardStreams> {
    if set_id != (SetIdRule::Auto, Switch::On) {
        return None;
    }
    // The output of a process that is not detached is relayed.
    Some(match args.detach && !process.terminal().unwrap_or(false) {
        true => given,
        false => StandardStreams::Replaced,
    })
}

#[cfg(test)]
mod tests {
    use super::super::arguments;
    use super::*;

    /// What is checked for a process with these options, whose streams are the caller's.
    fn checked(set_id: (SetIdRule, Switch), options: &str) -> Option<StandardStreams> {
        let args = arguments(options);
        let mut process = Process::default();
        process.set_terminal(args.tty.then_some(true));
        streams_to_check(set_id, &args, &process, StandardStreams::Callers)
    }

    #[test]
    fn a_container_that_makes_set_user_id_files_is_handed_no_file_of_the_node() {
        let auto = (SetIdRule::Auto, Switch::On);
        for (options, expected) in [
            ("-d", StandardStreams::Callers),
            ("", StandardStreams::Replaced),
            ("--tty", StandardStreams::Replaced),
            ("-d --tty", StandardStreams::Replaced),
        ] {
            assert_eq!(checked(auto, options), Some(expected), "{options}");
        }
        // The streams of a verb that made pipes itself are no files, detached or not.
        let args = arguments("-d");
        let replaced = StandardStreams::Replaced;
        let kept = streams_to_check(auto, &args, &Process::default(), replaced);
        assert_eq!(kept, Some(replaced));
    }

    #[test]
    fn descriptors_are_free_where_no_set_user_id_file_can_be_made_or_all_may() {
        for rule in [SetIdRule::Auto, SetIdRule::On, SetIdRule::Off] {
            for made in [Switch::On, Switch::Off] {
                if (rule, made) != (SetIdRule::Auto, Switch::On) {
                    assert_eq!(checked((rule, made), "-d"), None, "{rule:?} {made:?}");
                }
            }
        }
    }
}
