//! The listener of a filter: system calls that wait for an answer (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::{
    SECCOMP_ADDFD_FLAG_SEND as AS_THE_ANSWER, SECCOMP_IOCTL_NOTIF_ADDFD as ADD_DESCRIPTOR,
    SECCOMP_IOCTL_NOTIF_ID_VALID as IS_VALID, SECCOMP_IOCTL_NOTIF_RECV as RECEIVE,
    SECCOMP_IOCTL_NOTIF_SEND as SEND, SECCOMP_IOCTL_NOTIF_SET_FLAGS as SET_FLAGS, seccomp_data,
    seccomp_notif, seccomp_notif_addfd, seccomp_notif_resp,
};

use crate::sys::deadline::Deadline;

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const CONTINUE: u32 = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifiedCall {
    /// The kernel's id of this notification.
    pub id: u64,
    /// The thread that made it, in the listener's pid namespace.
    pub thread: i32,
    /// The call's number.
    pub number: i64,
    /// `AUDIT_ARCH_*`: the ABI of the call's number.
    pub arch: u32,
    /// Its arguments, as they were in the registers.
    pub args: [u64; 6],
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotifyAnswer {
    /// The call was done.
    Done,
    /// It failed with this errno.
    Failed(i32),
    /// The kernel makes it, with what is in the caller's memory by then.
    Continue,
}

/// The ioctl(2) requests that take and answer calls, for the filter of the answering process.
pub const ANSWERING: [u32; 3] = [RECEIVE as u32, SEND as u32, SET_FLAGS as u32];

/// Makes the kernel run both sides on one CPU in turns, which halves the time that a caller waits. Since Linux 6.6;
/// older kernels refuse, and answers are correct without it.
pub fn take_turns(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument of this request is a number.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
    done(rc)
}

/// The next waiting call; `None` if the caller has gone meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<NotifiedCall>> {
    // The kernel requires zeros.
    let mut raw = seccomp_notif {
        id: 0,
        pid: 0,
        flags: 0,
        data: seccomp_data {
            nr: 0,
            arch: 0,
            instruction_pointer: 0,
            args: [0; 6],
        },
    };
    // SAFETY: `raw` has the layout of the struct that this request writes, and lives until the call returns.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut raw) };
    if rc == 0 {
        return Ok(Some(NotifiedCall {
            id: raw.id,
            thread: raw.pid.cast_signed(),
            number: raw.data.nr.into(),
            arch: raw.data.arch,
            args: raw.data.args,
        }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EINTR) => Ok(None),
        _ => Err(error),
    }
}

/// Whether the caller still waits. Only then do files opened by its pid belong to it.
pub fn still_waits(listener: BorrowedFd<'_>, call: &NotifiedCall) -> bool {
    // SAFETY: the kernel reads eight bytes from `call.id`, which outlives the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID, &raw const call.id) == 0 }
}

/// Answers a call. A caller that has gone needs no answer.
pub fn answer(
    listener: BorrowedFd<'_>,
    call: &NotifiedCall,
    answer: NotifyAnswer,
) -> io::Result<()> {
    let response = seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: match answer {
            NotifyAnswer::Done | NotifyAnswer::Continue => 0,
            NotifyAnswer::Failed(errno) => -errno,
        },
        flags: match answer {
            NotifyAnswer::Done | NotifyAnswer::Failed(_) => 0,
            NotifyAnswer::Continue => CONTINUE,
        },
    };
    // SAFETY: `response` has the layout of the struct that this request reads, and outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const response) };
    done(rc)
}

/// How long a caller may take to receive a descriptor: it installs it itself, once it has a processor.
const RECEIVED_WITHIN: Duration = Duration::from_secs(3);

/// Answers a call with a copy of a descriptor, under the caller's lowest free number. If it cannot have one, or does not receive it
/// within three seconds, its call fails: the kernel goes on waiting for an answer then (seccomp_unotify(2)).
pub fn give(
    listener: BorrowedFd<'_>,
    call: &NotifiedCall,
    descriptor: BorrowedFd<'_>,
    flags: u32,
) -> io::Result<()> {
    let add = seccomp_notif_addfd {
        id: call.id,
        // Linux 5.14: the descriptor's number becomes the result.
        flags: AS_THE_ANSWER as u32,
        srcfd: descriptor.as_raw_fd().cast_unsigned(),
        newfd: 0,
        newfd_flags: flags,
    };
    let given = Deadline::begin(RECEIVED_WITHIN, None).and_then(|_within| {
        // SAFETY: `add` has the layout of the struct that this request reads, and outlives the call.
        done(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_DESCRIPTOR, &raw const add) })
    });
    given.or_else(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EACCES);
        self::answer(listener, call, NotifyAnswer::Failed(errno))
    })
}

fn done(rc: libc::c_int) -> io::Result<()> {
    if rc >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::mpsc;
    use std::time::Instant;

    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

    use super::*;
    use crate::seccomp::{FilterInput, compile};
    use crate::sys::seccomp::load;

    const PROFILE: &str = r#"{
        "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "flags": [FLAGS],
        "syscalls": [{"names": ["bind"], "action": "SCMP_ACT_NOTIFY"}]
    }"#;
    const FAILED: i32 = libc::EXFULL;

    extern "C" fn nothing(_: libc::c_int) {}

    /// Whether a thread still waits for its answer after a signal. In the end its call fails with [`FAILED`].
    fn waits_after_a_signal(flags: &str) -> bool {
        let handler = SigHandler::Handler(nothing);
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler does nothing.
        unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
        let profile = serde_json::from_str(&PROFILE.replace("FLAGS", flags)).unwrap();
        let input = FilterInput {
            ours: None,
            engine: Some(&profile),
        };
        let filter = compile(&input).unwrap().unwrap();
        let (sender, listener) = mpsc::channel();
        // A filter without TSYNC is this thread's alone, and ends with it.
        let caller = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let listener = load(&filter.program, filter.flags).unwrap().unwrap();
            sender.send(listener).unwrap();
            // SAFETY: no descriptor has this number, so the kernel reads nothing.
            let rc = unsafe { libc::bind(-1, std::ptr::null(), 0) };
            assert_eq!(rc, -1);
            io::Error::last_os_error().raw_os_error()
        });
        let listener = listener.recv().unwrap();
        let next = || loop {
            if let Some(call) = receive(listener.as_fd()).unwrap() {
                return call;
            }
        };
        let first = next();
        // SAFETY: the thread is joined below, so its handle is valid.
        let sent = unsafe { libc::pthread_kill(caller.as_pthread_t(), libc::SIGUSR2) };
        assert_eq!(sent, 0);
        let begun = Instant::now();
        while still_waits(listener.as_fd(), &first) && begun.elapsed() < Duration::from_millis(500)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = still_waits(listener.as_fd(), &first);
        // The kernel makes an interrupted call once more.
        let last = if waits { first } else { next() };
        answer(listener.as_fd(), &last, NotifyAnswer::Failed(FAILED)).unwrap();
        assert_eq!(caller.join().unwrap(), Some(FAILED));
        waits
    }

    #[test]
    fn a_signal_does_not_interrupt_a_call_that_was_taken() {
        let flag = r#""SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV""#;
        assert!(waits_after_a_signal(flag));
        // The control.
        assert!(!waits_after_a_signal(""));
    }
}
