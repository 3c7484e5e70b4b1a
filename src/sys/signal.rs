//! Signals that libraries have no names for, and what seccomp can do.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use rustix::process::Signal;

/// The real-time signal with this number, if the C library leaves it to programs (signal(7)).
pub fn realtime(number: i32) -> Option<Signal> {
    if !(libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) {
        return None;
    }
    // SAFETY: the number is a valid signal, and not one of those that the C library keeps for itself.
    Some(unsafe { Signal::from_raw_unchecked(number) })
}

/// Whether seccomp(2) filters are there and may kill a whole process (Linux 4.14).
pub fn can_kill_by_seccomp() -> bool {
    const GET_ACTION_AVAIL: libc::c_long = 2;
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads four bytes from `action`, which lives until the call returns.
    let rc = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) };
    rc == 0
}
