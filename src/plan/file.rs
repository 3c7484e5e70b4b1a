//! PURE. Facts about one file: its type, its file system, the links to it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::text;

/// A file system, as the kernel names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSystem {
    /// Its type in /proc/self/mountinfo.
    pub kind: String,
    /// Its number in statfs(2).
    pub magic: i64,
}

/// Which file it is. A number alone is no proof: under overlayfs a file may have a directory's, and on btrfs each subvolume
/// counts anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileIdentity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// A symbolic link that was followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowedLink {
    /// The link itself.
    pub path: PathBuf,
    /// Who owns it.
    pub owner: u32,
}

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A UNIX socket.
    Socket,
    /// A block or character device.
    Device,
    /// A FIFO.
    Fifo,
}

impl FileKind {
    /// From the type bits of `st_mode` (inode(7)). Any other type counts as a file.
    pub fn of(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o040_000 => Self::Directory,
            0o140_000 => Self::Socket,
            0o020_000 | 0o060_000 => Self::Device,
            0o010_000 => Self::Fifo,
            _ => Self::File,
        }
    }
}

/// The top of a repository in a mount's source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepositoryTop {
    /// Relative to the source.
    #[serde(with = "text::one")]
    pub path: PathBuf,
    /// Its inode.
    pub ino: u64,
}

/// A directory in a mount's source that is hidden as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HiddenDirectory {
    /// Relative to the source.
    #[serde(with = "text::one")]
    pub path: PathBuf,
    /// The directory.
    pub file: FileIdentity,
}
