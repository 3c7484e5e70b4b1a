//! Mounts of the container that may be written, each with a descriptor that becomes readable when a file of it is (`report.learn`).
//!
//! The runtime makes the descriptors, which takes rights that nobody here has. What was written is never read: the kernel would open
//! that file here, which Landlock refuses. After the first write a mount's descriptor is closed, and nothing is watched any more, so
//! that writing costs the container nothing and the kernel keeps no list.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::audit::{Event, EventDetail, mounts};

/// Mounts of one container that are watched.
pub const MOST_WATCHED: usize = 16;

/// The paths of such a mount, for the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountPaths {
    /// In the container.
    pub destination: String,
    /// On the node.
    pub source: String,
}

impl MountPaths {
    /// What events about it are about.
    pub fn what(&self) -> EventDetail {
        EventDetail::Mount {
            destination: self.destination.clone(),
            source: self.source.clone(),
        }
    }
}

/// A mount that is watched.
#[derive(Debug)]
pub struct WatchedMount {
    /// Where it is.
    pub place: MountPaths,
    /// Readable once a file of it was written.
    pub writes: OwnedFd,
}

impl WatchedMount {
    /// A file of it was written.
    pub(super) fn written(&self) -> Event {
        mounts::written(self.place.what())
    }
}

impl AsFd for WatchedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writes.as_fd()
    }
}
