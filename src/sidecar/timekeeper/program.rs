//! The timekeeper's own program: it drops every right but one, twice, and keeps time.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{PidfdFlags, pidfd_open};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;

use super::keep::{self, LAG, Timekeeper, TimekeeperFds};
use super::{ARGV0, TimekeeperReply, TimekeeperSetup};
use crate::network::with_causes;
use crate::sidecar::account::{Account, Identity, Procfs};
use crate::sidecar::confine::{self, ConfineError, SidecarRlimits};
use crate::sidecar::error::SidecarError;
use crate::sidecar::filter;
use crate::sidecar::protocol::{self, ProtocolError};
use crate::sys::memory::Code;
use crate::sys::{process, socket};

/// Agreed with [`super::start`]: standard streams, then this.
const LINE_FD: RawFd = 3;
/// The runtime sends it immediately after the clone.
const SETUP_WITHIN: Duration = Duration::from_secs(10);
/// The descriptors that come with the setup.
const SENT: usize = 9;
/// Descriptors: those of [`keep`], and a few while it starts. It writes a clock's file, of some bytes, and
/// one line of a log.
const LIMITS: SidecarRlimits = SidecarRlimits {
    open_files: 1024,
    file_bytes: 4096,
};

/// Runs a timekeeper; `argv[1]` is [`super::VERB`]. Must be called before any thread is made.
pub fn main() -> ExitCode {
    let line = match socket::take_inherited(LINE_FD) {
        Ok(line) => line,
        Err(error) => {
            let error = SidecarError::NotStartedByRuntime(error);
            eprintln!("{}: {}", ARGV0.to_string_lossy(), with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    match begin(&line) {
        Ok(never) => match never {},
        Err(error) => {
            give_up(line.as_fd(), &error);
            ExitCode::FAILURE
        }
    }
}

/// Tells the runtime why there is no timekeeper. If it cannot hear that, it sees the socket close.
fn give_up(line: BorrowedFd<'_>, error: &SidecarError) {
    let reason = with_causes(error);
    let _unheard = protocol::send(line, "runtime", &TimekeeperReply::Failed { reason }, &[]);
}

/// The parts of a timekeeper, before it is confined.
struct Parts {
    line: OwnedFd,
    setup: TimekeeperSetup,
    /// As sent: init's pidfd, the clock, the members, the counts of its activity, the log.
    fds: [OwnedFd; SENT],
    filter: BpfProgram,
    code: Code,
    procfs: Procfs,
}

fn begin(line: &OwnedFd) -> Result<std::convert::Infallible, SidecarError> {
    process::set_name(ARGV0).map_err(SidecarError::step("set the name"))?;
    process::block_signals().map_err(SidecarError::step("block the signals"))?;
    let received = protocol::receive(line.as_fd(), "runtime", "setup", SETUP_WITHIN);
    let (setup, fds): (TimekeeperSetup, Vec<OwnedFd>) = received.map_err(SidecarError::Protocol)?;
    let fds = <[OwnedFd; SENT]>::try_from(fds).map_err(|fds| {
        SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need: SENT,
            have: fds.len(),
        })
    })?;
    enter(&setup)?;
    let compiled = filter::of_timekeeper(setup.members, &setup.exec).map_err(ConfineError::Filter);
    let parts = Parts {
        line: line
            .try_clone()
            .map_err(SidecarError::step("copy the socket"))?,
        setup,
        fds,
        filter: compiled.map_err(SidecarError::Confine)?,
        code: Code::find().map_err(SidecarError::step("find the program's own code"))?,
        procfs: Procfs::open().map_err(SidecarError::Confine)?,
    };
    confine::hide(LIMITS).map_err(SidecarError::Confine)?;
    let own = rustix::process::getpid();
    let own = pidfd_open(own, PidfdFlags::empty())
        .map_err(SidecarError::step("open the timekeeper's pidfd"))?;
    let mut parts = Some((parts, own));
    let held = &mut parts;
    let second = process::fork_into(move || match held.take() {
        Some((parts, first)) => keep_time(parts, first, None),
        None => 1,
    })
    .map_err(SidecarError::step("fork"))?;
    let other = pidfd_open(second, PidfdFlags::empty())
        .map_err(SidecarError::step("open the second timekeeper's pidfd"))?;
    let code = match parts {
        Some((parts, _)) => keep_time(parts, other, Some(second.as_raw_pid())),
        None => 1,
    };
    process::end(code)
}

/// Moves to the sidecar's v1 cgroups: "0" is the writing thread, the only one.
fn enter(setup: &TimekeeperSetup) -> Result<(), SidecarError> {
    setup.enters.iter().try_for_each(|directory| {
        std::fs::write(directory.join("tasks"), "0")
            .map_err(SidecarError::step("enter the sidecar's cgroup"))
    })
}

/// Confines one of the two, and keeps time. Returns the exit code.
fn keep_time(parts: Parts, other: OwnedFd, second: Option<i32>) -> i32 {
    let Parts {
        line,
        setup,
        fds,
        filter,
        code,
        procfs,
    } = parts;
    let timer = match drop_rights(&setup, procfs) {
        Ok(timer) => timer,
        Err(error) => {
            give_up(line.as_fd(), &error);
            return 1;
        }
    };
    let [init, clock, sent @ ..] = &fds;
    let [one, two, processor, v4, v6, freezer, log] = sent;
    let kept = [
        &line, init, &other, &timer, clock, one, two, processor, v4, v6, freezer, log,
    ];
    if process::keep_only(kept.map(AsFd::as_fd)).is_err() {
        return 1;
    }
    // Already closed, with all others.
    std::mem::forget((line, other, timer, fds));
    let kept = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(socket::take_inherited);
    let [
        Ok(line),
        Ok(init),
        Ok(other),
        Ok(timer),
        Ok(clock),
        Ok(one),
        Ok(two),
        Ok(processor),
        Ok(v4),
        Ok(v6),
        Ok(freezer),
        Ok(log),
    ] = kept
    else {
        return 1;
    };
    debug_assert_eq!(init.as_raw_fd(), filter::TIMEKEEPER_INIT);
    let sealed = code
        .release()
        .map_err(ConfineError::step("give back the code of the start"))
        .and_then(|()| confine::seal(&filter));
    if let Err(error) = sealed {
        give_up(line.as_fd(), &SidecarError::Confine(error));
        return 1;
    }
    let ready = TimekeeperReply::Ready { second };
    if protocol::send(line.as_fd(), "runtime", &ready, &[]).is_err() {
        return 1;
    }
    Timekeeper {
        fds: TimekeeperFds {
            init,
            other,
            timer,
            clock,
            members: [one, two],
            activity: [processor, v4, v6, freezer],
            log,
        },
        lines: setup.lines,
        plan: setup.plan,
        members: setup.members,
        activity: setup.activity,
        exec: setup.exec,
        lag: second.map_or(LAG, |_| Duration::ZERO),
    }
    .keep()
}

/// Makes the timer, and drops all but the one right.
fn drop_rights(setup: &TimekeeperSetup, procfs: Procfs) -> Result<OwnedFd, SidecarError> {
    let timer =
        keep::timer(setup.plan.sleep).map_err(SidecarError::step("make a timer for the limit"))?;
    // The first look at the clock finds the vDSO by calls that the filter does not allow.
    let _found = keep::now(setup.plan.sleep);
    let account = procfs.account().map_err(SidecarError::Confine)?;
    drop(procfs);
    give_away(setup.id, &account).map_err(SidecarError::Confine)?;
    Ok(timer)
}

fn give_away(id: u32, account: &Account) -> Result<(), ConfineError> {
    let kill = CapabilitySets {
        effective: CapabilitySet::KILL,
        permitted: CapabilitySet::KILL,
        inheritable: CapabilitySet::empty(),
    };
    let identity = Identity { uid: id, gid: id };
    confine::become_somebody(identity, kill)?;
    confine::verify_somebody(identity, kill, account)
}
