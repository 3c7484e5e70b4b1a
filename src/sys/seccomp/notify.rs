//! The listener of a filter: system calls that wait for an answer (seccomp_unotify(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::sys::deadline::Deadline;

/// `SECCOMP_IOCTL_NOTIF_RECV` and its kin, of linux/seccomp.h.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const IS_VALID: libc::c_ulong = 0x4008_2102;
const ADD_DESCRIPTOR: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
const CONTINUE: u32 = 1;
/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`
const SYNC_WAKE_UP: libc::c_ulong = 1;
/// `SECCOMP_ADDFD_FLAG_SEND` (Linux 5.14): the descriptor's number becomes the result.
const AS_THE_ANSWER: u32 = 1 << 1;

/// `struct seccomp_notif`, with its `struct seccomp_data`.
#[repr(C)]
#[derive(Default)]
struct RawNotification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// `struct seccomp_notif_addfd`
#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    new: u32,
    new_flags: u32,
}

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
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
    done(rc)
}

/// The next waiting call; `None` if the caller has gone meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Option<NotifiedCall>> {
    // The kernel requires zeros.
    let mut raw = RawNotification::default();
    // SAFETY: `raw` has the layout of the struct that this request writes, and lives until the call returns.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut raw) };
    if rc == 0 {
        return Ok(Some(NotifiedCall {
            id: raw.id,
            thread: raw.pid.cast_signed(),
            number: raw.number.into(),
            arch: raw.arch,
            args: raw.args,
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
    unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID as _, &raw const call.id) == 0 }
}

/// Answers a call. A caller that has gone needs no answer.
pub fn answer(
    listener: BorrowedFd<'_>,
    call: &NotifiedCall,
    answer: NotifyAnswer,
) -> io::Result<()> {
    let response = Response {
        id: call.id,
        value: 0,
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
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const response) };
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
    let add = AddDescriptor {
        id: call.id,
        flags: AS_THE_ANSWER,
        source: descriptor.as_raw_fd().cast_unsigned(),
        new: 0,
        new_flags: flags,
    };
    let within = Deadline::begin(RECEIVED_WITHIN, None)?;
    // SAFETY: `add` has the layout of the struct that this request reads, and outlives the call.
    let rc = unsafe { libc::ioctl(listener.as_raw_fd(), ADD_DESCRIPTOR as _, &raw const add) };
    let given = done(rc);
    drop(within);
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
