//! The timekeeper: two processes that end a container when its time is over (`time.wall`), or when it did nothing for too
//! long (`time.idle`).
//!
//! ```text
//! create --clone3, exec--> FIRST --fork--> SECOND        outside of the container's pid namespace and cgroup
//!                            |  each has the other's pidfd  |
//!                            +---- init's pidfd, the cgroup -+
//! ```
//!
//! Each has its own timer (timerfd_create(2)), so one that is stopped (SIGSTOP) delays nothing: the second acts a
//! second later. If one is killed, the other ends the container at once: a container never runs without a clock. No
//! daemon, engine or sidecar takes part, so none of their restarts stretches a limit.
//!
//! Both receive nothing from the container. They have an empty root and network, a user of their own, one right
//! (CAP_KILL), and the descriptors of [`keep`]. Their filter allows SIGTERM and SIGKILL, to the init process on cgroup
//! v2. cgroup v1 cannot kill a cgroup, so there the processes are listed, and killed by their pidfds.
//!
//! The deadline is in the clock's file, where `agentbox extend` changes it. A timekeeper reads it when its timer rings.
//! Under `time.idle` each also reads the kernel's counts of the container's processor time and packets ([`activity`]),
//! by descriptors that `create` opened.
//!
//! The one that sends the signal first writes why into a log of its own, of one line: so the cause is in the chained logs
//! from then on, whatever becomes of the sidecar, the warden and the engine ([`end_line`]).
//!
//! A process of `exec` under `time.exec` has a timekeeper of its own, with the pidfd of that process and a cgroup that holds only
//! what it has started. Its end does not end this timekeeper: a daemon that it left has the same limit. If one of the two is
//! killed, the other ends the `exec` and not the container.
//!
//! Not held: root of the node can kill or stop both at once. Then the next verb ends the container
//! (`src/runtime/clock.rs`).

mod activity;
mod cgroup;
mod end_line;
mod keep;
mod program;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use self::activity::ActivityKind;
pub use self::activity::{ActivityFiles, ProcessorFile};
pub(in crate::sidecar) use self::cgroup::MembersKind;
pub use self::cgroup::{CgroupMembers, ExecCgroup, remove};
pub use self::end_line::{EndLines, event};
pub use self::keep::{note, now, read, ring_at, timer};
pub use self::program::main;
use super::error::SidecarError;
use super::protocol::{self, ProtocolError};
use super::record;
use crate::plan::TimePlan;
use crate::sys::process::{self, NewProgram};
use crate::sys::process_id::ProcessId;
use crate::sys::socket;

/// argv[0], as ps(1) shows it.
const ARGV0: &std::ffi::CStr = c"agentbox-timer";
/// argv[1]: the hidden verb that [`main`] serves.
pub const VERB: &std::ffi::CStr = c"timekeeper";
/// The name in messages.
const PEER: &str = "timekeeper";
/// From the clone to the answers; it takes milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How to start the timekeeper of a container.
pub struct TimekeeperConfig<'a> {
    /// Its user and group: of no other process. 0 in a user namespace without another user.
    pub id: u32,
    /// The limit.
    pub plan: TimePlan,
    /// The init process.
    pub init: BorrowedFd<'a>,
    /// The clock's file, open for reading and writing.
    pub clock: BorrowedFd<'a>,
    /// Its log, open for reading and writing.
    pub log: BorrowedFd<'a>,
    /// What it may write there.
    pub lines: EndLines,
    /// The other processes of the container.
    pub members: CgroupMembers,
    /// What it samples under `time.idle`.
    pub activity: Option<ActivityFiles>,
    /// The cgroup, if it keeps the time of an `exec` alone.
    pub exec: Option<ExecCgroup>,
    /// The v2 cgroup to be born in.
    pub born_in: Option<BorrowedFd<'a>>,
    /// The v1 cgroups to enter.
    pub enters: Vec<PathBuf>,
}

/// The two processes of a timekeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimekeeperRecord {
    /// The parent.
    pub first: ProcessId,
    /// Its child.
    pub second: ProcessId,
}

/// The first message to it. The descriptors of [`keep`] come with it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimekeeperSetup {
    id: u32,
    plan: TimePlan,
    members: MembersKind,
    activity: Option<ActivityKind>,
    /// The name of the cgroup, if it keeps the time of an `exec`.
    exec: Option<String>,
    enters: Vec<PathBuf>,
    lines: EndLines,
}

/// The answer of each process.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum TimekeeperReply {
    /// It is confined. The first one tells the number of the second.
    Ready { second: Option<i32> },
    /// It failed, and exits.
    Failed { reason: String },
}

/// Starts the timekeeper from `exe` (this program), and waits until both processes are confined. The calling process
/// must be single-threaded.
pub fn start(
    config: TimekeeperConfig<'_>,
    exe: BorrowedFd<'_>,
) -> Result<TimekeeperRecord, SidecarError> {
    let (ours, theirs) = socket::pair().map_err(SidecarError::step("make a socket pair"))?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())
        .map_err(SidecarError::step("open /dev/null"))?;
    let namespaces =
        libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWNET;
    let child = process::spawn(&NewProgram {
        file: exe,
        arguments: &[ARGV0.to_owned(), VERB.to_owned()],
        descriptors: &[null.as_fd(), null.as_fd(), null.as_fd(), theirs.as_fd()],
        namespaces: u64::from(namespaces.unsigned_abs()),
        cgroup: config.born_in,
    })
    .map_err(SidecarError::step("clone the timekeeper"))?;
    drop(theirs);
    let begun = greet(config, ours.as_fd(), null).and_then(|second| {
        let process = |pid| ProcessId::read(pid).map_err(SidecarError::step("read the start time"));
        Ok(TimekeeperRecord {
            first: process(child.pid.as_raw_pid())?,
            second: process(second)?,
        })
    });
    if begun.is_err() {
        // The second one ends with it, and with it the container, which is not started.
        let _gone = rustix::process::pidfd_send_signal(&child.pidfd, rustix::process::Signal::KILL);
        if let Err(error) = record::wait_for_end(&child.pidfd) {
            log::warn!("after a timekeeper that did not start: {error}");
        }
    }
    begun
}

/// Sends the setup, and waits for both. Returns the second one's number.
fn greet(
    config: TimekeeperConfig<'_>,
    socket: BorrowedFd<'_>,
    null: OwnedFd,
) -> Result<i32, SidecarError> {
    let TimekeeperConfig {
        id,
        plan,
        init,
        clock,
        log,
        lines,
        members,
        activity,
        exec,
        born_in: _,
        enters,
    } = config;
    let setup = TimekeeperSetup {
        id,
        plan,
        members: members.kind(),
        activity: activity.as_ref().map(ActivityFiles::kind),
        exec: exec.as_ref().map(|cgroup| cgroup.name.clone()),
        enters,
        lines,
    };
    let null = null.as_fd();
    let of_exec = exec.as_ref().map(|cgroup| cgroup.descriptors(null));
    let sampled = activity.as_ref().map(|files| files.descriptors(null));
    let sampled = of_exec.or(sampled);
    let mut fds = vec![init, clock];
    fds.extend(members.descriptors(null));
    fds.extend(sampled.unwrap_or([null; 4]));
    fds.push(log);
    let failed = SidecarError::Protocol;
    protocol::send(socket, PEER, &setup, &fds).map_err(failed)?;
    let mut second = None;
    for _ in 0..2 {
        match protocol::receive(socket, PEER, "reply", READY_WITHIN) {
            Ok((TimekeeperReply::Ready { second: number }, _)) => second = second.or(number),
            Ok((TimekeeperReply::Failed { reason }, _)) => {
                return Err(SidecarError::NoTimekeeper { reason });
            }
            Err(error) => return Err(failed(error)),
        }
    }
    second.ok_or(failed(ProtocolError::Missing { peer: PEER }))
}

impl TimekeeperRecord {
    /// Whether at least one of them lives.
    pub fn lives(&self) -> bool {
        self.first.is_alive() || self.second.is_alive()
    }

    /// Whether both live.
    pub fn is_whole(&self) -> bool {
        self.first.is_alive() && self.second.is_alive()
    }

    /// Ends both, once the init process has ended. Fine if they are gone.
    pub fn end(&self) -> Result<(), SidecarError> {
        let end = |one: ProcessId| record::end(one.pid, one.start_time);
        // The second one is the first one's child, and a zombie until that has ended.
        end(self.second).and(end(self.first))
    }
}
