//! A container's process that this program clones itself, for `create` and `exec`: its first steps, and its end if it
//! must not exist.

use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use libcontainer::syscall::syscall::create_syscall;
use oci_spec::runtime::{PosixRlimitType, Process};
use rustix::process::{DumpableBehavior, Signal, WaitOptions};

use crate::cgroup::birthplace::Birthplace;
use crate::enforce::report::FailureReport;
use crate::runtime::RuntimeError;
use crate::sys::open_files;
use crate::sys::process::{self, Child};
use crate::sys::sibling::SiblingNumber;
use crate::sys::{signal, socket};

/// How long a killed process may take to end.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The process's name until it executes its program.
const NAME: &std::ffi::CStr = c"agentbox-init";

/// Before the clone. As in libcontainer, processes in the namespaces that the child joins cannot read what it has of
/// the node.
pub fn prepare() -> Result<(), RuntimeError> {
    signal::note_ignored();
    signal::keep_ended_children().map_err(RuntimeError::io("keep ended processes"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(RuntimeError::io("become undumpable"))
}

/// The words for a failed step.
fn step(what: &str, error: &dyn std::error::Error) -> String {
    let why = crate::log::chain(error);
    tracing::error!("failed to {what}: {why}");
    format!("failed to {what}: {why}")
}

/// Names the process.
pub fn take_name() -> Result<(), String> {
    process::set_name(NAME).map_err(|e| step("set the name", &e))
}

/// What libcontainer's second process does before it clones the process, which has one thread.
pub fn settle(wanted: Option<&Process>, born: &Birthplace) -> Result<(), String> {
    born.enter().map_err(|e| step("enter the cgroup", &e))?;
    let Some(wanted) = wanted else {
        return Ok(());
    };
    if let Some(score) = wanted.oom_score_adj() {
        fs::write("/proc/self/oom_score_adj", score.to_string())
            .map_err(|e| step("write oom_score_adj", &e))?;
    }
    let kernel = create_syscall();
    for limit in wanted.rlimits().iter().flatten() {
        match limit.typ() {
            // The set-up needs more where there are many mounts.
            PosixRlimitType::RlimitNofile => {
                open_files::limit_programs(limit.soft(), limit.hard())
                    .map_err(|e| step("set the limit of descriptors", &e))?;
            }
            _ => kernel
                .set_rlimit(limit)
                .map_err(|e| step("set a resource limit", &e))?,
        }
    }
    Ok(())
}

/// The process that a helper makes ([`crate::sys::sibling`]). Waits until the helper has ended; if it could not make the
/// process, nothing is left of either.
pub fn made_by(helper: &Child, number: &SiblingNumber) -> Result<Child, RuntimeError> {
    // No retry on EINTR, by which the time limit ends it.
    let waited = rustix::process::waitpid(Some(helper.pid), WaitOptions::empty());
    if waited.is_err() {
        end(helper);
    }
    let made = number.child();
    let made = made.map_err(RuntimeError::io("open the container's process"))?;
    match (waited, made) {
        (Ok(_), Some(child)) => Ok(child),
        (Ok(_), None) => {
            Err(FailureReport::step("its helper ended before it made the process").into())
        }
        (Err(errno), made) => {
            if let Some(child) = &made {
                end(child);
            }
            Err(RuntimeError::io(
                "wait for the helper that makes the process",
            )(errno))
        }
    }
}

/// Kills a process that must not exist. One that a cgroup v1 freezer holds ends when it is thawed. The runtime does not
/// wait for that: the caller's time is up then, and it says so (`half_made::kill`).
pub fn end(child: &Child) {
    if let Err(error) = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL) {
        log::debug!("kill the container's process: {error}");
    }
    // It is readable when the process has ended (pidfd_open(2)).
    match socket::wait_readable(child.pidfd.as_fd(), END_WITHIN) {
        Ok(true) => {
            let reaped = rustix::io::retry_on_intr(|| {
                rustix::process::waitpid(Some(child.pid), WaitOptions::empty())
            });
            if let Err(error) = reaped {
                log::debug!("reap the container's process: {error}");
            }
        }
        Ok(false) => log::warn!("the container's process was killed and has not ended"),
        Err(error) => log::debug!("wait for the container's process: {error}"),
    }
}
