//! The runtime's side: start the sidecar early, attach it when the container stands.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{PidfdFlags, Signal};
use serde::Serialize;

use crate::cgroup::sidecar::{self, CgroupConfig, CgroupPlan};
use crate::network::Listeners;
use crate::sidecar::attachment::{Attachment, CallsAttachment, InnerAttachment, NetnsAttachment};
use crate::sidecar::handed::{AttachRequest, CallsFds, CallsLog};
use crate::sidecar::protocol::{self, Duty, Loss, ProtocolError, Reply, SidecarSetup};
use crate::sidecar::record::{self, SidecarRecord, WardenRecord};
use crate::sidecar::{ARGV0, SidecarError, SidecarRlimits, VERB};
use crate::sys::process::{self, NewProgram};
use crate::sys::process_id::ProcessId;
use crate::sys::socket;
use crate::sys::user_namespace;

/// From the attachment to the acknowledgement; measured in milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// What a sidecar is to be.
#[derive(Debug)]
pub struct SidecarConfig<'a> {
    /// Its uid, of no other sandbox and never root's; 0 in a user namespace that has no other user.
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
    /// What its reader of requests is given, where there is to be one: [`crate::sidecar::ReaderConfig::to_file`].
    pub reading: Option<BorrowedFd<'a>>,
}

/// A sidecar that is starting up. Dropped without [`StartingSidecar::attach`], it is killed; its cgroups
/// then wait for [`crate::sidecar::remove`] with the record.
#[derive(Debug)]
pub struct StartingSidecar {
    bootstrap: OwnedFd,
    init_end: Option<OwnedFd>,
    pidfd: OwnedFd,
    record: SidecarRecord,
    /// What it has not been told yet, and what its reader is given.
    setup: Option<(SidecarSetup, Option<OwnedFd>)>,
    /// Who may kill on drop: never a forked copy of this value.
    owner: rustix::process::Pid,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    KillOnDrop,
    Keep,
}

/// Starts the sidecar from `exe` (this program) and returns while it starts up. The calling
/// process must be single-threaded.
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
    // Root, even without a capability, may signal and trace every other root process; the largest
    // number means "leave it as it is" to setresuid(2).
    // In a user namespace with one user there is no other, and root there is a person outside.
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
        // Nobody else knows of them yet.
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
    // The numbers that `main` knows: 3 is the bootstrap socket, 4 the hand-over, 5 ourselves.
    let (theirs_fd, end_fd) = (theirs.as_fd(), their_end.as_fd());
    let descriptors = [null, null, log, theirs_fd, end_fd, runtime.as_fd()];
    let pids = match setup.loss {
        Loss::Tolerated => libc::CLONE_NEWPID,
        // The warden, which makes that namespace for the sidecar: nobody signals from there to init.
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
    // Our copies must go, or its end would never close for us.
    drop((theirs, their_end));
    let started = ProcessId::read(spawned.record.pid);
    spawned.record.start_time = started
        .map_err(SidecarError::step("read the start time"))?
        .start_time;
    Ok(spawned)
}

/// A warden's sidecar, by the number that its parent gave.
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
    /// Init's end of the hand-over socket, close-on-exec: to be moved into the Executor, which
    /// gives it to [`crate::sidecar::request_namespace`]. `None` the second time.
    pub fn take_init_end(&mut self) -> Option<OwnedFd> {
        self.init_end.take()
    }

    /// What `delete` needs if `create` fails or dies from here on: save it before going on.
    pub fn record(&self) -> &SidecarRecord {
        &self.record
    }

    /// The sidecar, as a process.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Makes its cgroups of v1 and tells it what it is to be; it confines itself from here on. A step of its own
    /// because the kernel may make cgroups wait for somebody's migration ([`crate::cgroup::first_move`]), and there is other
    /// work to be done meanwhile. [`Self::attach`] does it if nobody has.
    pub fn configure(&mut self) -> Result<(), SidecarError> {
        let Some((mut setup, reading)) = self.setup.take() else {
            return Ok(());
        };
        setup.cgroup.prepare_v1().map_err(SidecarError::Cgroup)?;
        let reading: Vec<_> = reading.iter().map(AsFd::as_fd).collect();
        self.tell(&setup, &reading)
    }

    /// Sends it something. One that is gone already may have left its reason in the socket, which is read later.
    fn tell(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), SidecarError> {
        match protocol::send(self.bootstrap.as_fd(), "sidecar", message, fds) {
            Ok(()) | Err(ProtocolError::Gone { .. }) => Ok(()),
            Err(error) => Err(SidecarError::Protocol(error)),
        }
    }

    /// Hands over what the sidecar serves, and waits until it is confined and has read that back.
    /// On an error the sidecar is gone, and its cgroups too.
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
                    // Whom we started is the warden.
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

    /// Ends the sidecar and removes what it had.
    pub fn abort(mut self) -> Result<(), SidecarError> {
        self.fate = Fate::Keep;
        record::kill(&self.record)?;
        record::remove(&self.record)
    }

    fn exchange(&self, attach: AttachRequest<'_>) -> Result<(u32, Option<i32>), SidecarError> {
        let AttachRequest {
            netns,
            init_pidfd,
            mut inner,
            shown,
            watched,
            counts,
            calls,
            serving,
        } = attach;
        let served = inner.as_mut();
        let served = served.map(|i| (i.listeners.take(), std::mem::take(&mut i.dialers)));
        let (listeners, dialers) = served.unwrap_or_default();
        let extra: Vec<OwnedFd> = match serving {
            Some(serving) => {
                let own = [serving.config, serving.journal, serving.control];
                let listeners = listeners.map(Listeners::into_fds).unwrap_or_default();
                own.into_iter()
                    .chain(serving.outside)
                    .chain(serving.warden)
                    .chain(listeners)
                    .chain(dialers)
                    .collect()
            }
            None => Vec::new(),
        };
        let pid_namespace = protocol::own_pid_namespace()
            .and_then(|own| protocol::NamespaceId::of(own.as_fd()))
            .map_err(SidecarError::step("look at our own pid namespace"))?;
        let message = Attachment {
            inner: inner.as_ref().map_or(InnerAttachment::No, |inner| {
                InnerAttachment::Cookie(inner.cookie)
            }),
            pid_namespace,
            place: netns.map_or(NetnsAttachment::Inherited, |_| NetnsAttachment::Sent),
            shows: shown.as_ref().map(|(shows, _)| *shows),
            watched: watched.iter().map(|mount| mount.place.clone()).collect(),
            counts: counts.iter().map(|count| count.of).collect(),
            calls: match &calls {
                None => CallsAttachment::No,
                Some(CallsFds { log: None, .. }) => CallsAttachment::SharedLog,
                Some(CallsFds { log: Some(log), .. }) => {
                    CallsAttachment::OwnLog(log.context.clone())
                }
            },
            set_id: calls.as_ref().and_then(|calls| calls.set_id.clone()),
            sockets: extra.len().checked_sub(3),
        };
        let mut fds = vec![init_pidfd];
        if let Some(inner) = &inner {
            fds.extend([inner.netns.as_fd(), inner.sysfs.as_fd()]);
        }
        fds.extend(netns);
        fds.extend(shown.as_ref().map(|(_, file)| file.as_fd()));
        fds.extend(watched.iter().map(AsFd::as_fd));
        fds.extend(
            counts
                .iter()
                .flat_map(|count| &count.files)
                .map(AsFd::as_fd),
        );
        if let Some(calls) = &calls {
            fds.extend([calls.listening.as_fd(), calls.program.as_fd()]);
            if let Some(CallsLog { file, warden, .. }) = &calls.log {
                fds.extend([file.as_fd(), warden.as_fd()]);
            }
        }
        fds.extend(extra.iter().map(AsFd::as_fd));
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

/// For cleaning up after an error that is being returned: the cause comes first, this second.
fn forget(cleaned: Result<(), SidecarError>) {
    if let Err(error) = cleaned {
        log::warn!("cleaning up after the sidecar: {error}");
    }
}
