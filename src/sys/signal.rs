//! Signals that libraries have no names for, and the features of seccomp.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use rustix::process::Signal;

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

/// Gives every signal its default disposition, and blocks none. An ignored signal stays ignored over execve(2), so the
/// program must not get those of an engine under nohup(1), or Rust's own SIGPIPE.
pub fn reset() {
    /// `struct sigaction` of the kernel on x86-64 (handler, flags, restorer, mask), all zero: SIG_DFL.
    const DEFAULT: [u64; 4] = [0; 4];
    /// The size of the mask.
    const MASK: usize = 8;
    for number in 1..=64_i32 {
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
