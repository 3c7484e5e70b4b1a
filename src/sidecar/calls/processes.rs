//! The end of `exec` processes: under an engine, the runtime exited long before.
//!
//! The runtime sends a process's pidfd, with the event of its end without the status. The kernel tells the status only
//! in an outer pid namespace. The sidecar is not in one, so it asks its warden.

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Sink;
use crate::audit::{Event, EventDetail, ProcessState, Verdict, WallName};
use crate::sidecar::warden::WardenLine;
use crate::sys::pidfd::ExitStatusSupport;

/// The reasons for a missing status.
const OLD_KERNEL: &str = "its exit status is not known: Linux keeps it since 6.15";
const NOT_REAPED: &str = "its exit status is not known: its parent has not asked for it";
const NO_WARDEN: &str =
    "its exit status is not known: the sidecar's warden, which asks the kernel for it, is gone";

/// A running process, and the event of its end without the status.
#[derive(Debug)]
pub(super) struct LoggedProcess {
    pidfd: OwnedFd,
    ended: Box<Event>,
}

impl LoggedProcess {
    /// From the runtime's message and its only descriptor.
    pub fn read(message: &[u8], mut fds: Vec<OwnedFd>) -> Option<Self> {
        let ended: Event = serde_json::from_slice(message).ok()?;
        let is_end = matches!(
            ended.what,
            EventDetail::Process {
                state: ProcessState::Ended,
                ..
            }
        );
        match (is_end, fds.pop(), fds.is_empty()) {
            (true, Some(pidfd), true) => Some(Self {
                pidfd,
                ended: Box::new(ended),
            }),
            _ => None,
        }
    }

    fn has_ended(&self, wanted: PollFlags) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, wanted)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let polled = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now)));
        polled.is_ok() && !fds[0].revents().is_empty()
    }
}

impl AsFd for LoggedProcess {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Where the ends of processes are logged, and the warden that tells their status.
pub(super) struct ProcessEnds {
    sink: RefCell<Option<Sink>>,
    warden: RefCell<Option<WardenLine>>,
    exits: ExitStatusSupport,
}

impl fmt::Debug for ProcessEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessEnds").finish_non_exhaustive()
    }
}

impl ProcessEnds {
    /// To be called before the sidecar is sealed: it reads the kernel's version.
    pub fn new() -> Self {
        Self {
            sink: RefCell::default(),
            warden: RefCell::default(),
            exits: ExitStatusSupport::of_kernel(),
        }
    }

    /// Sends events to `sink` from now on.
    pub fn log_to(&self, sink: Sink) {
        self.sink.replace(Some(sink));
    }

    /// Asks this warden for the status.
    pub fn ask(&self, warden: WardenLine) {
        self.warden.replace(Some(warden));
    }

    /// What to wait for: the reaping, if the kernel keeps the status (epoll always reports it), otherwise the end.
    pub fn awaited(&self) -> EventFlags {
        match self.exits {
            ExitStatusSupport::Kept => EventFlags::empty(),
            ExitStatusSupport::Forgotten => EventFlags::IN,
        }
    }

    /// Logs a process that has ended, and was reaped if that is awaited.
    pub fn note(&self, process: LoggedProcess) {
        let status = match self.exits {
            ExitStatusSupport::Forgotten => Err(OLD_KERNEL),
            ExitStatusSupport::Kept => self.status(&process),
        };
        self.log(process, status);
    }

    /// For the container's end. A process that lives on, in a shared pid namespace, gets no line.
    pub fn note_last(&self, process: LoggedProcess) {
        if process.has_ended(PollFlags::empty()) {
            self.note(process);
        } else if process.has_ended(PollFlags::IN) {
            self.log(process, Err(NOT_REAPED));
        }
    }

    /// Logs that an end has no line, because too many processes are watched.
    pub fn leave_out(&self) {
        let what = EventDetail::LeftOut {
            of: "ends of exec processes".into(),
            events: 1,
        };
        self.send(Event {
            reason: Some("too many exec processes have ended that no parent has reaped".into()),
            ..Event::new(WallName::Life, Verdict::Noted, what)
        });
    }

    fn status(&self, process: &LoggedProcess) -> Result<i32, &'static str> {
        let mut warden = self.warden.borrow_mut();
        let asked = warden
            .as_ref()
            .map(|line| line.exit_status(process.as_fd()));
        match asked {
            Some(Ok(status)) => status.ok_or(NOT_REAPED),
            Some(Err(_)) => {
                // A late answer would be taken for another process's.
                *warden = None;
                Err(NO_WARDEN)
            }
            None => Err(NO_WARDEN),
        }
    }

    fn log(&self, process: LoggedProcess, status: Result<i32, &'static str>) {
        let mut event = *process.ended;
        if let EventDetail::Process { exit, .. } = &mut event.what {
            *exit = status.ok();
        }
        event.reason = status.err().map(Into::into).or(event.reason);
        self.send(event);
    }

    fn send(&self, event: Event) {
        let sink = self.sink.borrow().clone();
        if let Some(sink) = sink {
            sink(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::rc::Rc;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    fn child(script: &str) -> (Child, OwnedFd) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        (child, pidfd_open(pid, PidfdFlags::empty()).unwrap())
    }

    fn message(state: ProcessState) -> Vec<u8> {
        let what = EventDetail::Process {
            state,
            arguments: vec!["sh".to_owned()].into(),
            cut: Vec::new(),
            uid: 0,
            gid: 0,
            exit: None,
        };
        let event = Event::new(WallName::Life, Verdict::Ended, what);
        serde_json::to_vec(&event).unwrap()
    }

    fn logged(pidfd: &OwnedFd) -> LoggedProcess {
        let fds = vec![pidfd.try_clone().unwrap()];
        LoggedProcess::read(&message(ProcessState::Ended), fds).unwrap()
    }

    #[test]
    fn an_end_without_a_status_says_why() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let ends = ProcessEnds::new();
        let heard = Rc::clone(&told);
        ends.log_to(Rc::new(move |event| heard.borrow_mut().push(event)));
        let (mut process, pidfd) = child("exec sleep 600");
        ends.note_last(logged(&pidfd));
        assert_eq!(told.take(), [], "it lives");
        process.kill().unwrap();
        while !logged(&pidfd).has_ended(PollFlags::IN) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        ends.note_last(logged(&pidfd));
        let reason = told.take().remove(0).reason;
        assert!(reason.is_some_and(|why| why.contains("not known")));
        process.wait().unwrap();
        ends.note(logged(&pidfd));
        let event = told.take().remove(0);
        assert!(event.reason.is_some_and(|why| why.contains("not known")));
        assert!(matches!(
            event.what,
            EventDetail::Process { exit: None, .. }
        ));
    }

    #[test]
    fn only_a_processs_end_with_its_descriptor_is_taken() {
        let (mut process, pidfd) = child("exit 0");
        process.wait().unwrap();
        let copies = |count| (0..count).map(|_| pidfd.try_clone().unwrap()).collect();
        let read = |message: &[u8], count| LoggedProcess::read(message, copies(count)).is_some();
        let ended = message(ProcessState::Ended);
        assert!(read(&ended, 1));
        assert!(!read(&ended, 0) && !read(&ended, 2));
        assert!(!read(&message(ProcessState::Began), 1));
        assert!(!read(b"", 1) && !read(&ended[1..], 1));
    }
}
