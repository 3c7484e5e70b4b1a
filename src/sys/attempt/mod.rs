#![expect(unsafe_code, reason = "raw system calls; every block states its proof")]
//! System calls that a container must not be able to make; `agentbox verify` tries them.
//!
//! Only this file makes a [`TestCall`]. Its arguments change nothing outside of the calling process, whatever its
//! rights: only null pointers and texts of this program, descriptors and processes that do not exist, flags that every
//! kernel refuses. Each call runs in a child: a namespace or descriptor that it makes ends with the child.

mod calls;

use std::io;

use rustix::io::Errno;

use crate::kernel::syscall::{NONE, ROWS};
pub use calls::*;

/// A system call with harmless arguments.
#[derive(Debug, Clone, Copy)]
pub struct TestCall {
    /// Its name, with the relevant arguments.
    pub name: &'static str,
    number: libc::c_long,
    arguments: [u64; 6],
}

impl TestCall {
    const fn new<const N: usize>(
        name: &'static str,
        number: libc::c_long,
        first: [u64; N],
    ) -> Self {
        let mut arguments = [0; 6];
        let mut at = 0;
        while at < N {
            arguments[at] = first[at];
            at += 1;
        }
        Self {
            name,
            number,
            arguments,
        }
    }

    /// Makes the call. Only in a child: the effect of a success is not undone.
    ///
    /// # Errors
    /// The kernel's, or the filter's.
    pub fn make(&self) -> Result<(), Errno> {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: the numbers and arguments are the constants of this file. None has a pointer that the kernel writes to: they are
        // null, or lead to texts that are only read. None makes a thread or shares memory. See the head of the file.
        let result = unsafe { libc::syscall(self.number, a, b, c, d, e, f) };
        match result {
            -1 => Err(last()),
            _ => Ok(()),
        }
    }
}

/// The number of the call that a name begins with. The compiler refuses a name that x86_64 does not have.
const fn number(name: &str) -> libc::c_long {
    let name = name.as_bytes();
    let mut row = 0;
    loop {
        let (known, mut at) = (ROWS[row].name.as_bytes(), 0);
        while at < known.len() && at < name.len() && known[at] == name[at] {
            at += 1;
        }
        let is_end = at == name.len() || matches!(name[at], b'(' | b',');
        if at == known.len() && is_end && ROWS[row].x86_64 != NONE {
            return ROWS[row].x86_64 as libc::c_long;
        }
        row += 1;
    }
}

fn last() -> Errno {
    let number = io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(number.unwrap_or(libc::EIO))
}

const fn text(text: &'static std::ffi::CStr) -> TextAddress {
    TextAddress(text)
}

/// A text that a call reads; its address is known at run time.
#[derive(Debug, Clone, Copy)]
pub struct TextAddress(&'static std::ffi::CStr);

/// A call whose first argument is a text.
#[derive(Debug, Clone, Copy)]
pub struct TextCall {
    /// Its name.
    pub name: &'static str,
    number: libc::c_long,
    text: TextAddress,
    second: u64,
}

impl TextCall {
    /// As [`TestCall::make`].
    ///
    /// # Errors
    /// The kernel's, or the filter's.
    pub fn make(&self) -> Result<(), Errno> {
        // SAFETY: as for `TestCall::make`; the text is static, ends in NUL, and is only read.
        let result =
            unsafe { libc::syscall(self.number, self.text.0.as_ptr(), self.second, 0_u64, 0_u64) };
        match result {
            -1 => Err(last()),
            _ => Ok(()),
        }
    }
}

/// The kernel's 32-bit entry, S11, with call 20: getpid there, and here writev without buffers.
#[cfg(target_arch = "x86_64")]
pub fn enter_as_i386() -> i64 {
    let result: i64;
    // SAFETY: getpid takes no argument. The kernel clears r8 to r11 on this entry, which are named as lost; it touches no memory.
    unsafe {
        core::arch::asm!(
            "int 0x80",
            inlateout("rax") 20_i64 => result,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    result
}
