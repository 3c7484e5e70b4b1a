//! Writable mounts of the container, each with a descriptor that becomes readable when a file is written
//! (`report.learn`).
//!
//! The runtime makes the descriptors: the sidecar lacks the rights. The event itself is never read: the kernel would
//! open the file in the sidecar, which Landlock refuses. After the first write the mount's descriptor is closed, so
//! that further writes cost the container nothing and the kernel keeps no list.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::audit::{Event, EventDetail, mounts};

/// The most mounts that are watched in one container.
pub const MOST_WATCHED: usize = 16;

/// The paths of a watched mount, for the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountPaths {
    /// In the container.
    pub destination: String,
    /// On the node.
    pub source: String,
}

impl MountPaths {
    /// The subject of its events.
    pub fn what(&self) -> EventDetail {
        EventDetail::Mount {
            destination: self.destination.clone().into(),
            source: self.source.clone().into(),
        }
    }
}

/// A watched mount.
#[derive(Debug)]
pub struct WatchedMount {
    /// Its paths.
    pub place: MountPaths,
    /// Readable after a file was written.
    pub writes: OwnedFd,
}

impl WatchedMount {
    /// The event: a file was written.
    pub(super) fn written(&self) -> Event {
        mounts::written(self.place.what())
    }
}

impl AsFd for WatchedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writes.as_fd()
    }
}
