//! A filter as it is loaded, and as it is saved beside a container's record.

use super::oci::NEW_LISTENER;
use super::{FilterProgram, ProgramError, SyscallFilter};

/// A program as it is loaded: `create` passes it to init and saves it for every `exec`.
#[derive(Debug, Clone)]
pub struct SavedFilter {
    /// The program for the kernel.
    pub program: FilterProgram,
    /// seccomp(2)'s flags.
    pub flags: u64,
}

impl From<&SyscallFilter> for SavedFilter {
    fn from(filter: &SyscallFilter) -> Self {
        Self {
            program: filter.program.clone(),
            flags: filter.flags,
        }
    }
}

impl SavedFilter {
    /// Whether loading it returns a listener.
    pub const fn has_listener(&self) -> bool {
        self.flags & NEW_LISTENER != 0
    }

    /// Its flags, 8 bytes in the machine's byte order, then its instructions.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.flags.to_ne_bytes().to_vec();
        bytes.extend(self.program.to_bytes());
        bytes
    }

    /// Reads the bytes of [`Self::to_bytes`]; `None` if they are cut.
    pub fn from_bytes(bytes: &[u8]) -> Option<Result<Self, ProgramError>> {
        let (flags, program) = bytes.split_first_chunk::<8>()?;
        let flags = u64::from_ne_bytes(*flags);
        let program = FilterProgram::from_bytes(program);
        Some(program.map(|program| Self { program, flags }))
    }
}
