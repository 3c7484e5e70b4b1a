//! The only place with `unsafe`: one small file for each family of system calls.
//!
//! A wrapper makes one call, has its name, returns `io::Result`, and decides nothing.

pub mod attempt;
pub mod bounded;
pub mod bpf;
pub mod clocks;
pub mod deadline;
pub mod event;
pub mod fanotify;
pub mod file_size;
pub mod kernel;
pub mod keyring;
pub mod loopback;
pub mod memory;
pub mod mount;
pub mod netlink;
pub mod netns;
pub mod open_files;
pub mod owned_child;
pub mod path;
pub mod pidfd;
pub mod process;
pub mod process_id;
pub mod procfs;
pub mod program;
pub mod raw_socket;
pub mod scheduler;
pub mod seccomp;
pub mod setns;
pub mod sibling;
pub mod signal;
pub mod socket;
#[cfg(target_arch = "x86_64")]
pub mod start;
pub mod user;
pub mod user_namespace;
pub mod ways_out;
