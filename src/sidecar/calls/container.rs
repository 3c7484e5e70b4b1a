//! One container's denied calls: its filter program, and its log.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use super::log::{DeniedCallLog, Sink};
use crate::audit::Actor;
use crate::policy::Tool;
use crate::seccomp::{
    FilterProgram, FilterWords, MAX_INSTRUCTIONS, SavedFilter, SyscallData, SyscallVerdict, run,
};
use crate::sys::seccomp::notify;

/// The largest errno (`MAX_ERRNO`), to which the kernel also reduces a filter's errno.
const MAX_ERRNO: u16 = 4095;
const ENOSYS: u16 = 38;
/// A saved filter: its flags, and eight bytes for each instruction.
const LONGEST: usize = 8 + 8 * MAX_INSTRUCTIONS;

/// A container whose denied calls are answered.
#[derive(Debug)]
pub(super) struct Container {
    program: Rc<FilterProgram>,
    denied: RefCell<DeniedCallLog>,
}

impl Container {
    /// Reads the program from the start of its file, whatever the file's position. `words` are about it.
    pub fn new(program: BorrowedFd<'_>, words: FilterWords) -> io::Result<Self> {
        let mut bytes = vec![0; LONGEST + 1];
        let mut length = 0;
        while length < bytes.len() {
            match rustix::io::pread(program, &mut bytes[length..], length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        let kept = SavedFilter::from_bytes(&bytes[..length]);
        let kept = kept.ok_or_else(|| io::Error::other("the filter is cut short"))?;
        Ok(Self {
            program: Rc::new(kept.map_err(io::Error::other)?.program),
            denied: RefCell::new(DeniedCallLog::with(words)),
        })
    }

    /// The same program for processes of this actor. Their calls are counted and logged separately.
    pub fn apart(&self, by: Actor) -> Self {
        Self {
            program: Rc::clone(&self.program),
            denied: RefCell::new(self.denied.borrow().apart(by)),
        }
    }

    /// The program's errno for a call. The call is never allowed here, whatever the program says.
    pub fn errno(&self, waiting: &notify::NotifiedCall) -> u16 {
        errno(&self.program, &call(waiting))
    }

    /// Logs a denied call, or counts it.
    pub fn note(&self, waiting: &notify::NotifiedCall, errno: u16) {
        self.denied.borrow_mut().note(&call(waiting), errno);
    }

    /// Logs the calls that were only counted so far.
    pub fn settle(&self) {
        self.denied.borrow_mut().settle();
    }

    /// Sends its events to `sink` from now on.
    pub fn log_to(&self, tool: Tool, sink: Sink) {
        self.denied.borrow_mut().log_to(tool, sink);
    }
}

fn errno(program: &FilterProgram, call: &SyscallData) -> u16 {
    match run(program, call) {
        SyscallVerdict::Notify(errno @ 1..) | SyscallVerdict::Errno(errno @ 1..) => {
            errno.min(MAX_ERRNO)
        }
        // The kernel sends no other calls here.
        _ => ENOSYS,
    }
}

fn call(waiting: &notify::NotifiedCall) -> SyscallData {
    SyscallData {
        // The kernel's number is an int.
        number: waiting.number as u32,
        arch: waiting.arch,
        args: waiting.args,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{ARCH_X86_64, Instruction};

    fn program(value: u32) -> FilterProgram {
        let answer = Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: value,
        };
        FilterProgram::new(vec![answer]).unwrap()
    }

    #[test]
    fn the_answer_is_the_programs_errno_and_never_success() {
        let call = SyscallData {
            number: 1,
            arch: ARCH_X86_64,
            args: [0; 6],
        };
        for (value, expected) in [
            (0x7fc0_0001, 1),
            (0x7fc0_ffff, 4095),
            (0x0005_0061, 97),
            (0x7fc0_0000, ENOSYS),
            (0x0005_0000, ENOSYS),
            (0x7fff_0000, ENOSYS),
            (0x7ffc_0000, ENOSYS),
            (0x8000_0000, ENOSYS),
        ] {
            assert_eq!(errno(&program(value), &call), expected, "{value:#x}");
        }
    }
}
