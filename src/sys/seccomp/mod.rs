//! seccomp(2): putting a filter on the calling thread.
#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::seccomp::{Instruction, Program};

/// `SECCOMP_SET_MODE_FILTER`
const SET_MODE_FILTER: libc::c_ulong = 1;
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`
const NEW_LISTENER: u64 = 1 << 3;

/// `struct sock_fprog`
#[repr(C)]
struct Fprog {
    len: u16,
    filter: *const Instruction,
}

/// Puts the filter on the calling thread and on all that it clones or executes from now on; it cannot be taken off again.
///
/// Needs `no_new_privs` or `CAP_SYS_ADMIN`, and sets neither: which of them holds is the caller's order of steps. With
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER` in `flags` the answer is the listener, close-on-exec.
pub fn load(program: &Program, flags: u64) -> io::Result<Option<OwnedFd>> {
    let instructions = program.instructions();
    let len = u16::try_from(instructions.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let fprog = Fprog {
        len,
        filter: instructions.as_ptr(),
    };
    // SAFETY: the kernel reads `len` instructions from `filter`; both come from one slice, which `program` keeps alive during
    // the call. `Instruction` and `Fprog` are `repr(C)` with the fields of `struct sock_filter` and `struct sock_fprog`. The
    // call writes nothing to our memory.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const fprog) };
    let fd = match i32::try_from(result) {
        Ok(fd) if fd >= 0 && flags & NEW_LISTENER != 0 => fd,
        Ok(0) => return Ok(None),
        // SECCOMP_FILTER_FLAG_TSYNC without TSYNC_ESRCH answers the id of a thread that could not follow.
        Ok(1..) => return Err(io::Error::from(io::ErrorKind::ResourceBusy)),
        _ => return Err(io::Error::last_os_error()),
    };
    // SAFETY: with NEW_LISTENER a result that is not negative is a new descriptor, which nobody else owns yet.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests;
