//! What one author cannot all mean.

use std::fmt;

use super::{Field, SyscallName};

/// What two annotations can contradict each other about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// A system call is both allowed and denied.
    Syscall(SyscallName),
    /// A workspace is named, and there shall be none.
    NoWorkspace,
    /// The workspace is listed among the other mounts that may be written.
    WorkspaceInWrite,
    /// Mounts shall be written, and all are dropped.
    WriteDropped,
    /// Hosts are listed, and the mode reaches none.
    NoNetwork,
    /// Unknown hosts are to be asked for, and the mode reaches none.
    NoneAsked,
}

impl Conflict {
    /// The two fields that it is about.
    pub(super) fn fields(&self) -> (Field, Field) {
        match self {
            Self::Syscall(_) => (Field::SyscallsAllow, Field::SyscallsDeny),
            Self::WriteDropped => (Field::FilesystemMounts, Field::FilesystemWrite),
            Self::NoNetwork => (Field::NetworkMode, Field::NetworkAllow),
            Self::NoneAsked => (Field::NetworkMode, Field::NetworkOnUnknown),
            Self::NoWorkspace | Self::WorkspaceInWrite => {
                (Field::FilesystemWorkspace, Field::FilesystemWrite)
            }
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syscall(name) => write!(f, "both name {name}"),
            Self::NoWorkspace => f.write_str("a workspace is set, but its access is none"),
            Self::WorkspaceInWrite => f.write_str(
                "the workspace is listed as another mount; use filesystem.workspace for its access",
            ),
            Self::NoNetwork => f.write_str(
                "hosts are allowed, but the mode reaches none: leave network.mode out, or use allowlist",
            ),
            Self::NoneAsked => f.write_str(
                "network.on-unknown=ask needs the mode allowlist, which is also its default: leave network.mode out",
            ),
            Self::WriteDropped => {
                f.write_str("mounts are listed for writing, but all mounts are dropped")
            }
        }
    }
}
