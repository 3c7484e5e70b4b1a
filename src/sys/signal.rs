//! Signals that libraries have no names for, and the features of seccomp.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::sync::OnceLock;

use rustix::process::Signal;

use super::procfs;

/// The real-time signal with this number, if the C library leaves it to programs (signal(7)).
fn realtime(number: i32) -> Option<Signal> {
    if !(libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) {
        return None;
    }
    // SAFETY: the number is a valid signal, and not one of those that the C library keeps for itself.
    Some(unsafe { Signal::from_raw_unchecked(number) })
}

/// The signal with this number, if programs may use it.
pub fn of(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number).or_else(|| realtime(number))
}

/// The signals that this process ignores, if [`note_ignored`] has looked.
static IGNORED: OnceLock<u64> = OnceLock::new();

/// Notes which signals this process ignores, for [`reset`] in the processes that it forks: there /proc may be the
/// container's. Call it when nothing more is to be ignored.
pub fn note_ignored() {
    if let Ok(status) = procfs::text("/proc/self/status")
        && let Some(mask) = ignored(&status)
    {
        IGNORED.get_or_init(|| mask);
    }
}

/// Lets children that have ended wait for this process. Where the caller ignores SIGCHLD the kernel reaps them itself
/// (wait(2)), and their numbers may be other processes' by the time that this one looks. Call [`note_ignored`] first.
pub fn keep_ended_children() -> std::io::Result<()> {
    const CHILD: i32 = libc::SIGCHLD;
    let ignored = IGNORED.get().copied().unwrap_or(u64::MAX);
    if ignored >> (CHILD - 1) & 1 == 0 {
        return Ok(());
    }
    // SAFETY: SIG_DFL runs no code, and the number is a signal's.
    match unsafe { libc::signal(CHILD, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The line `SigIgn` of /proc/PID/status (proc_pid_status(5)).
fn ignored(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Gives every signal its default disposition, and blocks none. An ignored signal stays ignored over execve(2), so the
/// program must not get those of an engine under nohup(1), or Rust's own SIGPIPE. execve(2) itself resets the others.
pub fn reset() {
    /// `struct sigaction` of the kernel on x86-64 (handler, flags, restorer, mask), all zero: SIG_DFL.
    const DEFAULT: [u64; 4] = [0; 4];
    /// The size of the mask.
    const MASK: usize = 8;
    let ignored = IGNORED.get().copied().unwrap_or(u64::MAX);
    for number in (1..=64_i32).filter(|number| ignored >> (number - 1) & 1 == 1) {
        // By the system call: the C library reserves two numbers and refuses to change them.
        // SAFETY: the kernel reads the 32 bytes of DEFAULT and writes nothing. A default disposition runs no code. For
        // SIGKILL and SIGSTOP the call fails, and nothing happens.
        unsafe {
            let nothing = std::ptr::null::<u64>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                DEFAULT.as_ptr(),
                nothing,
                MASK,
            );
        }
    }
    // SAFETY: an all-zero sigset_t is the empty set that sigemptyset(3) makes again; both calls only read and write it.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Ignores signals, in this process and those that it forks.
///
/// # Errors
/// The kernel's, for a signal that cannot be ignored.
pub fn ignore(signals: &[Signal]) -> std::io::Result<()> {
    for one in signals {
        // SAFETY: SIG_IGN runs no code, and the number is a signal's.
        let before = unsafe { libc::signal(one.as_raw(), libc::SIG_IGN) };
        if before == libc::SIG_ERR {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether the kernel has seccomp(2) filters that can kill a whole process (Linux 4.14).
pub fn can_kill_by_seccomp() -> bool {
    const GET_ACTION_AVAIL: libc::c_long = 2;
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel reads four bytes from `action`, which lives until the call returns.
    let rc = unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAIL, 0, &raw const action) };
    rc == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ignored_signals_are_the_kernels_bits() {
        let status =
            "Name:\tSigIgn:\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001000\nSigCgt:\t1\n";
        assert_eq!(ignored(status), Some(1 << (libc::SIGPIPE - 1)));
        for unknown in ["", "SigIgn:\tx\n", "Name:\tSigIgn:\t1\n"] {
            assert_eq!(ignored(unknown), None, "{unknown}");
        }
        // Rust's runtime ignores SIGPIPE (also where tests begin).
        let own = ignored(&procfs::text("/proc/self/status").unwrap());
        assert_eq!(own.map(|mask| mask >> (libc::SIGPIPE - 1) & 1), Some(1));
    }
}
