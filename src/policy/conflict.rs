//! Contradictions between the fields of one author.

use std::fmt;

use super::Field;
use crate::kernel::SyscallName;

/// The subject of a contradiction between two fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// A system call is both allowed and denied.
    Syscall(SyscallName),
    /// A workspace is named, but `filesystem.workspace` is none.
    NoWorkspace,
    /// The workspace is also listed among the other writable mounts.
    WorkspaceInWrite,
    /// Writable mounts are listed, but all mounts are dropped.
    WriteDropped,
    /// Hosts are listed in this field, but the mode reaches none.
    NoNetwork(Field),
    /// Unknown hosts wait for approval, but the mode reaches none.
    NoneAsked,
}

impl Conflict {
    /// The two fields that contradict each other.
    pub(super) fn fields(&self) -> (Field, Field) {
        match self {
            Self::Syscall(_) => (Field::SyscallsAllow, Field::SyscallsDeny),
            Self::WriteDropped => (Field::FilesystemMounts, Field::FilesystemWrite),
            Self::NoNetwork(lists) => (Field::NetworkMode, *lists),
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
            Self::NoNetwork(_) => f.write_str(
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
