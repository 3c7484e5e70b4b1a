//! PURE. Terms of the kernel's interfaces that planning, walls and system calls share.

pub mod mount_options;
pub mod mountinfo;
mod numbers;
pub mod paths;
pub mod syscall;

pub use syscall::SyscallName;
