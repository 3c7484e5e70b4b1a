//! seccomp(2): loading a filter on the calling thread.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

pub mod notify;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::seccomp::FilterProgram;

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`
const NEW_LISTENER: u64 = 1 << 3;

/// Loads the filter on the calling thread and everything that it clones or executes from now on; it cannot be removed.
///
/// Needs `no_new_privs` or `CAP_SYS_ADMIN`, and sets neither: the caller provides one of them. With
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` in `flags` it returns the listener, close-on-exec.
pub fn load(program: &FilterProgram, flags: u64) -> io::Result<Option<OwnedFd>> {
    let instructions = program.instructions();
    // SAFETY: pointer and length are of one slice, which `program` keeps alive during the call. `Instruction` is `repr(C)`
    // with the fields of `struct sock_filter`.
    let loaded = unsafe { set_filter(instructions.as_ptr().cast(), instructions.len(), flags) };
    let fd = match loaded? {
        fd if fd >= 0 && flags & NEW_LISTENER != 0 => fd,
        0 => return Ok(None),
        // SECCOMP_FILTER_FLAG_TSYNC without TSYNC_ESRCH returns the id of a thread that could not follow.
        _ => return Err(io::ErrorKind::ResourceBusy.into()),
    };
    // SAFETY: with NEW_LISTENER a result that is not negative is a new descriptor, which nothing else owns yet.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// [`load`] for a program of seccompiler's, without flags. It allocates nothing: the filter may deny the calls for that.
pub fn load_compiled(program: &[seccompiler::sock_filter]) -> io::Result<()> {
    // SAFETY: pointer and length are of one slice, which outlives the call. seccompiler's `sock_filter` is `repr(C)` with the
    // fields of the kernel's.
    unsafe { set_filter(program.as_ptr().cast(), program.len(), 0) }.map(drop)
}

/// Whether a filter around this thread lets it load filters, but none with a listener: agentbox's does, and none of an engine's.
/// Nothing is loaded: without a program the kernel fails with EFAULT, after the filter has let the call pass.
pub fn forbids_listeners() -> bool {
    let errno = |flags: u64| {
        // SAFETY: with a null pointer the kernel reads nothing, and fails.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                std::ptr::null::<libc::sock_fprog>(),
            )
        };
        (rc < 0).then(|| io::Error::last_os_error().raw_os_error())
    };
    let tried = [0, NEW_LISTENER].map(errno);
    tried == [Some(Some(libc::EFAULT)), Some(Some(libc::EPERM))]
}

/// `SECCOMP_SET_MODE_FILTER` for the calling thread.
///
/// # Safety
///
/// `filter` must point at `len` instructions that can be read until the call returns.
unsafe fn set_filter(filter: *const libc::sock_filter, len: usize, flags: u64) -> io::Result<i32> {
    let len = u16::try_from(len).ok().filter(|len| *len > 0);
    let header = libc::sock_fprog {
        len: len.ok_or(io::ErrorKind::InvalidInput)?,
        // The kernel only reads it; the pointer is mutable because C's struct says so.
        filter: filter.cast_mut(),
    };
    // SAFETY: by this function's contract `header` describes memory that can be read; the kernel copies it, and writes
    // nothing to our memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const header,
        )
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the kernel knows `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` (Linux 5.19). No filter is loaded.
pub fn can_wait_killable() -> bool {
    const WAIT_KILLABLE_RECV: u64 = 1 << 5;
    // SAFETY: the kernel looks at the flags first and refuses unknown ones with EINVAL; then it reads from a null pointer, which
    // fails with EFAULT and changes nothing.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            NEW_LISTENER | WAIT_KILLABLE_RECV,
            std::ptr::null::<libc::sock_fprog>(),
        )
    };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// `prctl(PR_GET_SECCOMP)`: 2 when a filter is loaded.
///
/// Not rustix's `secure_computing_mode`: it is the same call, but under a filter only this exact form with zeroed
/// arguments is sure to pass.
pub fn mode() -> io::Result<i32> {
    // SAFETY: PR_GET_SECCOMP takes integers only.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    if mode < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(mode)
    }
}

#[cfg(test)]
mod tests;
