//! The specification's MUSTs (runtime-spec 1.2). Each is a case that is named after its section and runs on both
//! agentbox and runc.
//!
//! A known failure is in [`DIFFERENCES`] with the reason. It must fail, so that the table stays true.

mod config_linux_md;
mod config_md;
mod hooks;
mod runtime_md;
pub(crate) mod trial;

use std::panic::{AssertUnwindSafe, catch_unwind};

use trial::{Runtime, Trial};

/// Case, failing runtimes, and the reason.
const DIFFERENCES: &[(&str, &[Runtime], &str)] = &[
    (
        "runtime_md_delete_must_error_unless_stopped",
        ALL,
        "a created container can be deleted: engines clean up after a failed start this way",
    ),
    (
        "runtime_md_state_must_be_creating_while_hooks_of_create_run",
        RUNC,
        "it writes its state after the hooks, and does not know the container before",
    ),
    (
        "runtime_md_lifecycle_a_failing_start_container_hook_must_fail_start",
        RUNC,
        "its start returns before the hook has ended",
    ),
    (
        "runtime_md_lifecycle_a_failing_start_hook_must_destroy",
        RUNC,
        "its start returns before startContainer hooks have ended, and poststart is part of its create",
    ),
    (
        "runtime_md_lifecycle_a_failing_poststop_hook_must_be_a_warning",
        RUNC,
        "it gives up the remaining hooks",
    ),
    (
        "config_md_hooks_must_run_in_order_and_at_their_moment",
        RUNC,
        "its poststart hooks run in create",
    ),
    (
        "config_md_poststart_must_run_after_the_program_began",
        RUNC,
        "its poststart hooks run in create",
    ),
    (
        "config_md_hooks_must_be_told_the_status_of_their_moment",
        RUNC,
        "its poststart hooks run in create",
    ),
    (
        "config_md_hooks_what_a_hook_leaves_in_the_background_must_not_hold_it",
        RUNC,
        "it reads a hook's output to the end",
    ),
    (
        "config_md_hooks_path_must_be_absolute",
        RUNC,
        "it does not look",
    ),
    (
        "config_md_hooks_timeout_must_be_greater_than_zero",
        RUNC,
        "it does not look",
    ),
    (
        "config_md_oci_version_must_be_one_that_is_known",
        RUNC,
        "it does not look",
    ),
    (
        "config_md_mounts_options_must_be_obeyed",
        RUNC,
        "it gives a tmpfs the mode of the directory below it",
    ),
    (
        "config_md_process_rlimits_must_error_on_duplicates",
        RUNC,
        "the last one counts",
    ),
    (
        "config_md_process_io_priority_and_scheduler_must_be_set",
        RUNC,
        "newer than runc 1.1",
    ),
    (
        "config_md_domainname_must_be_set",
        RUNC,
        "newer than runc 1.1",
    ),
    (
        "config_linux_md_personality_must_be_set",
        RUNC,
        "newer than runc 1.1",
    ),
    (
        "config_linux_md_rootfs_propagation_must_be_set",
        RUNC,
        "its root stays private under `shared`",
    ),
];

/// Runs a case on each of its runtimes; all must end as [`DIFFERENCES`] says.
#[track_caller]
fn check(name: &str, runtimes: &[Runtime], case: fn(&mut Trial)) {
    let mut wrong = Vec::new();
    for &runtime in runtimes {
        let known = DIFFERENCES
            .iter()
            .find(|(case, who, _)| *case == name && who.contains(&runtime));
        let passed = catch_unwind(AssertUnwindSafe(|| case(&mut Trial::new(runtime)))).is_ok();
        match (passed, known) {
            (false, None) => wrong.push(format!("{runtime:?} fails it")),
            (true, Some((_, _, why))) => {
                wrong.push(format!("{runtime:?} passes it, though \"{why}\""));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{name}: {}", wrong.join("; "));
}

/// Defines cases: a name, the runtimes, and the steps with a fresh container.
macro_rules! cases {
    ($($name:ident, $runtimes:expr, $case:expr;)*) => {$(
        #[test]
        #[ignore = "needs the rig: hack/test"]
        fn $name() {
            super::check(stringify!($name), $runtimes, $case);
        }
    )*};
}
use cases;

/// For behaviour of every container.
const ALL: &[Runtime] = &[Runtime::Runc, Runtime::Unconfined, Runtime::Standard];

/// For the control only.
const RUNC: &[Runtime] = &[Runtime::Runc];

/// For behaviour that a policy changes on purpose.
const PLAIN: &[Runtime] = &[Runtime::Runc, Runtime::Unconfined];

#[test]
fn every_difference_names_an_existing_case() {
    let sources = [
        include_str!("runtime_md.rs"),
        include_str!("config_md.rs"),
        include_str!("config_linux_md.rs"),
        include_str!("hooks.rs"),
    ];
    for (name, _, _) in DIFFERENCES {
        let exists = sources
            .iter()
            .any(|text| text.contains(&format!("{name},")));
        assert!(exists, "{name}");
    }
}
