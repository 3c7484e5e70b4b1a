//! The runtime's side: it starts the sidecar early, and attaches it once the container exists.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{PidfdFlags, Signal};
use serde::Serialize;

use crate::cgroup::sidecar::{self, CgroupConfig, CgroupPlan};
use crate::network::Listeners;
use crate::sidecar::attachment::{Attachment, FdTag};
use crate::sidecar::counts::KernelCount;
use crate::sidecar::error::SidecarError;
use crate::sidecar::handed::AttachRequest;
use crate::sidecar::protocol::{self, Duty, Loss, ProtocolError, Reply, SidecarSetup};
use crate::sidecar::record::{self, SidecarRecord, WardenRecord};
use crate::sidecar::{ARGV0, SidecarRlimits, VERB};
use crate::sys::process::{self, NewProgram};
use crate::sys::process_id::ProcessId;
use crate::sys::socket;
use crate::sys::user_namespace;

/// From the attachment to the acknowledgement; it takes milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How to start a sidecar.
#[derive(Debug)]
pub struct SidecarConfig<'a> {
    /// Its uid: of no other sandbox, and never root's. 0 in a user namespace without another user.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
    /// Its resource limits.
    pub limits: SidecarRlimits,
    /// Its cgroup; `None` leaves it in the runtime's, for `wrap` without the right to make one.
    pub cgroup: Option<CgroupConfig>,
    /// A file for its standard error instead of /dev/null.
    pub log: Option<BorrowedFd<'a>>,
    /// Whether it serves connections.
    pub duty: Duty,
    /// What its death means for the container.
    pub loss: Loss,
    /// The input of its reader of requests, if it has one: [`crate::sidecar::ReaderConfig::to_file`].
    pub reading: Option<BorrowedFd<'a>>,
}

/// A sidecar that is starting. Dropped without [`StartingSidecar::attach`], it is killed; its cgroups then wait for
/// [`crate::sidecar::remove`] with the record.
#[derive(Debug)]
pub struct StartingSidecar {
    bootstrap: OwnedFd,
    init_end: Option<OwnedFd>,
    pidfd: OwnedFd,
    record: SidecarRecord,
    /// Its setup, until it is sent, and its reader's input.
    setup: Option<(SidecarSetup, Option<OwnedFd>)>,
    /// The process that may kill on drop: never a forked copy of this value.
    owner: rustix::process::Pid,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    KillOnDrop,
    Keep,
}

/// Starts the sidecar from `exe` (this program) and returns while it starts. The calling process must be
/// single-threaded.
pub fn spawn(
    config: &SidecarConfig<'_>,
    exe: BorrowedFd<'_>,
) -> Result<StartingSidecar, SidecarError> {
    let SidecarConfig {
        uid,
        gid,
        limits,
        cgroup,
        log,
        duty,
        loss,
        reading,
    } = config;
    // Root may signal and trace every other root process, even without a capability. The largest number means "no
    // change" to setresuid(2). A user namespace with one user has no other root process, and its root is an ordinary
    // user outside.
    let alone = user_namespace::only_user().map_err(SidecarError::step("read the user's map"))?;
    for id in [*uid, *gid] {
        if id == 0 && alone.is_none() || id == u32::MAX {
            return Err(SidecarError::BadIdentity { id });
        }
    }
    let mut plan = match cgroup {
        Some(cgroup) => sidecar::plan(cgroup).map_err(SidecarError::Cgroup)?,
        None => CgroupPlan::default(),
    };
    let paths = plan.paths();
    let spawned = plan
        .prepare_v2()
        .map_err(SidecarError::Cgroup)
        .and_then(|born_in| {
            let setup = SidecarSetup {
                uid: *uid,
                gid: *gid,
                limits: *limits,
                cgroup: plan,
                duty: *duty,
                loss: *loss,
                reads: reading.is_some(),
            };
            start((setup, *reading), exe, born_in.as_ref(), *log)
        });
    if spawned.is_err() {
        // No record of them exists yet.
        forget(sidecar::remove(&paths).map_err(SidecarError::Cgroup));
    }
    spawned
}

fn start(
    (setup, reading): (SidecarSetup, Option<BorrowedFd<'_>>),
    exe: BorrowedFd<'_>,
    born_in: Option<&OwnedFd>,
    log: Option<BorrowedFd<'_>>,
) -> Result<StartingSidecar, SidecarError> {
    let reading = reading.map(|reading| reading.try_clone_to_owned());
    let reading = reading
        .transpose()
        .map_err(SidecarError::step("keep the reader's input"))?;
    let pair = || socket::pair().map_err(SidecarError::step("make a socket pair"));
    let (bootstrap, theirs) = pair()?;
    let (init_end, their_end) = pair()?;
    let null = open_null()?;
    let null = null.as_fd();
    let log = log.unwrap_or(null);
    let owner = rustix::process::getpid();
    let runtime = rustix::process::pidfd_open(owner, PidfdFlags::empty())
        .map_err(SidecarError::step("open our own pidfd"))?;
    // The numbers that `main` expects: 3 the bootstrap socket, 4 the hand-over, 5 our pidfd.
    let (theirs_fd, end_fd) = (theirs.as_fd(), their_end.as_fd());
    let descriptors = [null, null, log, theirs_fd, end_fd, runtime.as_fd()];
    let pids = match setup.loss {
        Loss::Tolerated => libc::CLONE_NEWPID,
        // The warden makes that namespace for the sidecar: from inside, it could not signal init.
        Loss::EndsContainer => 0,
    };
    let namespaces = pids | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    let child = process::spawn(&NewProgram {
        file: exe,
        arguments: &[ARGV0.to_owned(), VERB.to_owned()],
        descriptors: &descriptors,
        namespaces: u64::from(namespaces.unsigned_abs()),
        cgroup: born_in.map(AsFd::as_fd),
    })
    .map_err(SidecarError::step("clone a process"))?;
    let mut spawned = StartingSidecar {
        bootstrap,
        init_end: Some(init_end),
        pidfd: child.pidfd,
        record: SidecarRecord {
            pid: child.pid.as_raw_pid(),
            start_time: 0,
            cgroups: setup.cgroup.paths(),
            unlimited: setup.cgroup.missing().to_vec(),
            landlock_abi: 0,
            warden: None,
        },
        setup: Some((setup, reading)),
        owner,
        fate: Fate::KillOnDrop,
    };
    for gap in &spawned.record.unlimited {
        log::warn!("the sidecar runs without one of its limits: {gap}");
    }
    // Otherwise the sidecar's end would never close for us.
    drop((theirs, their_end));
    let started = ProcessId::read(spawned.record.pid);
    spawned.record.start_time = started
        .map_err(SidecarError::step("read the start time"))?
        .start_time;
    Ok(spawned)
}

/// The descriptors for a sidecar, without those that the runtime keeps.
fn tagged(attach: AttachRequest<'_>) -> Vec<(FdTag, OwnedFd)> {
    let AttachRequest {
        netns: _,
        init_pidfd: _,
        inner,
        shown,
        watched,
        counts,
        calls,
        serving,
    } = attach;
    let mut all = Vec::new();
    let is_served = serving.is_some();
    if let Some(inner) = inner {
        all.push((FdTag::Inner(inner.cookie), inner.netns));
        all.push((FdTag::Sysfs, inner.sysfs));
        if is_served {
            let listeners = inner.listeners.map(Listeners::into_fds).unwrap_or_default();
            all.extend(listeners.into_iter().map(|fd| (FdTag::Listener, fd)));
            all.extend(inner.dialers.into_iter().map(|fd| (FdTag::Dialer, fd)));
            all.extend(inner.taps.into_iter().map(|fd| (FdTag::Tap, fd)));
        }
    }
    all.extend(shown.map(|(shows, file)| (FdTag::Denials(shows), file)));
    let watched = watched.into_iter();
    all.extend(watched.map(|mount| (FdTag::Watched(mount.place), mount.writes)));
    for KernelCount { of, files } in counts {
        all.extend(files.into_iter().map(|file| (FdTag::Count(of), file)));
    }
    if let Some(calls) = calls {
        all.push((FdTag::Calls, calls.listening));
        all.push((FdTag::Filter, calls.program));
        if let Some(log) = calls.log {
            all.push((FdTag::CallsLog(log.context), log.file));
            all.push((FdTag::WardensLog, log.warden));
        }
    }
    if let Some(serving) = serving {
        all.push((FdTag::Config, serving.config));
        all.push((FdTag::Journal, serving.journal));
        all.push((FdTag::Control, serving.control));
        all.extend(serving.outside.map(|file| (FdTag::Outside, file)));
        all.extend(serving.warden.map(|file| (FdTag::WardensLog, file)));
    }
    all
}

/// A warden's sidecar, by the number that the warden reported.
fn sidecar_of_warden(pid: i32) -> Result<ProcessId, SidecarError> {
    match pid {
        1.. => ProcessId::read(pid).map_err(SidecarError::step("read the start time")),
        _ => Err(SidecarError::Gone),
    }
}

fn open_null() -> Result<File, SidecarError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty());
    null.map(File::from)
        .map_err(SidecarError::step("open /dev/null"))
}

impl StartingSidecar {
    /// Init's end of the hand-over socket, close-on-exec. It moves into the Executor, which gives it to
    /// [`crate::sidecar::request_namespace`]. `None` the second time.
    pub fn take_init_end(&mut self) -> Option<OwnedFd> {
        self.init_end.take()
    }

    /// What `delete` needs if `create` fails or dies from here on: save it first.
    pub fn record(&self) -> &SidecarRecord {
        &self.record
    }

    /// The sidecar, as a process.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Makes its cgroups of v1 and sends its setup; the sidecar then starts to confine itself. This is a separate step
    /// because the kernel may let cgroups wait for another migration ([`crate::cgroup::first_move`]), while other work
    /// can be done. Otherwise [`Self::attach`] does it.
    pub fn configure(&mut self) -> Result<(), SidecarError> {
        let Some((mut setup, reading)) = self.setup.take() else {
            return Ok(());
        };
        setup.cgroup.prepare_v1().map_err(SidecarError::Cgroup)?;
        let reading: Vec<_> = reading.iter().map(AsFd::as_fd).collect();
        self.tell(&setup, &reading)
    }

    /// Sends a message. A sidecar that has exited may have left its reason in the socket, which is read later.
    fn tell(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), SidecarError> {
        match protocol::send(self.bootstrap.as_fd(), "sidecar", message, fds) {
            Ok(()) | Err(ProtocolError::Gone { .. }) => Ok(()),
            Err(error) => Err(SidecarError::Protocol(error)),
        }
    }

    /// Sends what the sidecar serves, and waits until it is confined and has verified that. On an error, the sidecar
    /// and its cgroups are removed.
    pub fn attach(mut self, attach: AttachRequest<'_>) -> Result<SidecarRecord, SidecarError> {
        let attached = self
            .configure()
            .and_then(|()| self.exchange(attach))
            .and_then(|(abi, pid)| Ok((abi, pid.map(sidecar_of_warden).transpose()?)));
        match attached {
            Ok((landlock_abi, child)) => {
                self.fate = Fate::Keep;
                self.record.landlock_abi = landlock_abi;
                if let Some(ProcessId { pid, start_time }) = child {
                    // The process that we started is the warden.
                    self.record.warden = Some(WardenRecord {
                        pid: std::mem::replace(&mut self.record.pid, pid),
                        start_time: std::mem::replace(&mut self.record.start_time, start_time),
                    });
                }
                Ok(self.record.clone())
            }
            Err(error) => {
                forget(self.abort());
                Err(error)
            }
        }
    }

    /// Ends the sidecar and removes its cgroups.
    pub fn abort(mut self) -> Result<(), SidecarError> {
        self.fate = Fate::Keep;
        record::kill(&self.record)?;
        record::remove(&self.record)
    }

    fn exchange(&self, attach: AttachRequest<'_>) -> Result<(u32, Option<i32>), SidecarError> {
        let pid_namespace = protocol::own_pid_namespace()
            .and_then(|own| protocol::NamespaceId::of(own.as_fd()))
            .map_err(SidecarError::step("look at our own pid namespace"))?;
        let reasons = attach.calls.as_ref().map(|calls| calls.reasons.clone());
        let (init, outer) = (attach.init_pidfd, attach.netns);
        let owned = tagged(attach);
        let mut tags = vec![FdTag::Init];
        let mut fds = vec![init];
        if let Some(outer) = outer {
            tags.push(FdTag::Outer);
            fds.push(outer);
        }
        fds.extend(owned.iter().map(|(_, fd)| fd.as_fd()));
        tags.extend(owned.iter().map(|(tag, _)| tag.clone()));
        let message = Attachment {
            tags,
            pid_namespace,
            reasons: reasons.unwrap_or_default(),
        };
        self.tell(&message, &fds)?;
        match protocol::receive(self.bootstrap.as_fd(), "sidecar", "reply", READY_WITHIN) {
            Ok((Reply::Ready { landlock_abi, pid }, _)) => Ok((landlock_abi, pid)),
            Ok((Reply::Failed { reason }, _)) => Err(SidecarError::Refused { reason }),
            Err(ProtocolError::Gone { .. }) => Err(SidecarError::Gone),
            Err(ProtocolError::TimedOut { limit, .. }) => Err(SidecarError::TimedOut {
                what: "become ready",
                seconds: limit.as_secs(),
            }),
            Err(error) => Err(SidecarError::Protocol(error)),
        }
    }
}

impl Drop for StartingSidecar {
    fn drop(&mut self) {
        if self.fate == Fate::Keep || self.owner != rustix::process::getpid() {
            return;
        }
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => forget(record::wait_for_end(&self.pidfd)),
            Err(error) => log::warn!("the sidecar could not be killed: {error}"),
        }
    }
}

/// For cleanup after an error that is returned: the cleanup's own error is only logged.
fn forget(cleaned: Result<(), SidecarError>) {
    if let Err(error) = cleaned {
        log::warn!("cleaning up after the sidecar: {error}");
    }
}
