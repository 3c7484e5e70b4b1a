#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! A child of this process that a helper makes (clone(2), CLONE_PARENT). It begins in the helper's namespaces, cgroups
//! and limits, which this process never enters.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::process::{Child, clone3, is_single_threaded, live};

/// Mapped memory is whole pages; the number needs four bytes of one.
const PAGE: usize = 4096;

/// Where the kernel writes the number of the child: memory that this process shares with its helper.
///
/// The kernel writes it before the child runs (CLONE_PARENT_SETTID). So it is known even if the helper is killed then.
#[derive(Debug)]
pub struct SiblingNumber(NonNull<AtomicI32>);

impl SiblingNumber {
    /// Make it before the helper, which inherits it.
    pub fn new() -> io::Result<Self> {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, at an address of the kernel's choice, changes no memory that is in use.
        let page = unsafe { libc::mmap(null_mut(), PAGE, access, kind, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or(io::ErrorKind::InvalidData)?;
        let number = Self(page);
        // The page exists from here on, and does not count as the helper's memory.
        number.cell().store(0, SeqCst);
        Ok(number)
    }

    /// Keeps it from the calling process's children: only their parent, this process, has to tell a number.
    fn keep_from_children(&self) -> io::Result<()> {
        // SAFETY: this value's own mapping, whose contents do not change.
        match unsafe { libc::madvise(self.0.as_ptr().cast(), PAGE, libc::MADV_DONTFORK) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn cell(&self) -> &AtomicI32 {
        // SAFETY: the page is aligned, and mapped until this value is dropped. The kernel fills it with zeros, which are a
        // valid number; it and other processes write whole numbers alone.
        unsafe { self.0.as_ref() }
    }

    /// The child, once the helper has ended; `None` if it made none. For the parent, which must not have waited for the
    /// child yet, and must not ignore SIGCHLD: until then no other process gets the number.
    pub fn child(&self) -> io::Result<Option<Child>> {
        let Some(pid) = Pid::from_raw(self.cell().load(SeqCst)) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Some(Child { pid, pidfd })),
            Err(error) => {
                // The caller would not know of it.
                kill_process(pid, Signal::KILL)?;
                Err(error.into())
            }
        }
    }
}

impl Drop for SiblingNumber {
    fn drop(&mut self) {
        // SAFETY: this value's own mapping, to which it gave no reference that lives longer.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

/// Makes a child of the calling process's parent, with the exit signal of the calling process. The child runs `work`, exits
/// with its result, and never returns to the caller's stack.
///
/// The process must be single-threaded: then the child may allocate like any other code.
pub fn fork_sibling(number: &SiblingNumber, work: impl FnOnce() -> i32) -> io::Result<()> {
    // If /proc is hidden already, this cannot be told.
    debug_assert!(is_single_threaded().unwrap_or(true));
    // The kernel ignores a failure to write the number, so the page must be in this process's tables.
    number.cell().store(0, SeqCst);
    number.keep_from_children()?;
    // SAFETY: all-zero bytes are a valid `clone_args`: it is integers only.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_PARENT | libc::CLONE_PARENT_SETTID) as u64;
    args.parent_tid = number.0.as_ptr() as u64;
    // SAFETY: a fork, without CLONE_VM and a stack. The address is `number`'s, whose page is writable. With one thread
    // (checked above in debug builds) no lock can be held by a thread that the child does not have.
    match unsafe { clone3(&mut args) }? {
        Some(pid) => {
            number.cell().store(pid.as_raw_pid(), SeqCst);
            Ok(())
        }
        None => live(work),
    }
}

/// As [`fork_sibling`], by clone(2): filters of engines answer ENOSYS to clone3(2). The child's number is not returned.
pub fn fork_beside(work: impl FnOnce() -> i32) -> io::Result<()> {
    debug_assert!(is_single_threaded().unwrap_or(true));
    let flags = libc::CLONE_PARENT | libc::SIGCHLD;
    // SAFETY: a fork, without CLONE_VM and a stack, whose other arguments are not read. With one thread (checked above in
    // debug builds) no lock can be held by a thread that the child does not have.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => live(work),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::pidfd_send_signal;

    use super::*;

    /// `hostile_p04` makes siblings: that needs a process with one thread.
    #[test]
    fn a_number_leads_to_the_process_that_has_it() {
        let number = SiblingNumber::new().unwrap();
        assert!(number.child().unwrap().is_none());
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        number.cell().store(sleeper.id().cast_signed(), SeqCst);
        let found = number.child().unwrap().unwrap();
        assert_eq!(found.pid.as_raw_pid(), sleeper.id().cast_signed());
        pidfd_send_signal(&found.pidfd, Signal::KILL).unwrap();
        assert!(!sleeper.wait().unwrap().success());
        // No process has it any more.
        assert!(number.child().is_err());
    }
}
