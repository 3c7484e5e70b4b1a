//! The container's view of its denials: a file that the runtime mounted there, read-only.
//!
//! The sidecar holds that file open, and opens nothing. It overwrites the whole text, at most every quarter of a
//! second, so that a flood of denials costs neither disk nor time. A failed write has no other effect.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use crate::audit::{DenialNotice, Event, RecentDenials, ReportedDenials, Verdict, WallName, words};

/// The least time between two writes.
const EVERY_MS: u64 = 250;

/// The file of denials that the container reads.
#[derive(Debug, Default)]
pub(super) struct DenialFile {
    recent: RecentDenials,
    /// The file, opened to write. Without one, denials are only shown on request.
    file: Option<File>,
    /// The time of the next write.
    due: Option<u64>,
    /// The time of the last write.
    written: Option<u64>,
}

impl DenialFile {
    /// For this file, where the runtime has already written the first line.
    pub fn new(shows: ReportedDenials, file: OwnedFd) -> Self {
        Self {
            recent: RecentDenials::of(shows),
            file: Some(file.into()),
            ..Self::default()
        }
    }

    /// When to call [`Self::flush`] next.
    pub fn due_ms(&self) -> Option<u64> {
        self.due
    }

    /// Takes a denial.
    pub fn take(&mut self, refused: &DenialNotice, times: u64, now_ms: u64) {
        let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        self.recent.take(&time, refused, times);
        if self.due.is_none() && self.file.is_some() {
            let next = self
                .written
                .map_or(now_ms, |at| at.saturating_add(EVERY_MS));
            self.due = Some(next.max(now_ms));
        }
        self.flush(now_ms);
    }

    /// Takes a denied system call. Other denials come through [`Self::take`], in words for the container.
    pub fn hear(&mut self, event: &Event, now_ms: u64) {
        if event.wall != WallName::Syscalls
            || event.verdict != Verdict::Denied
            || event.is_verifys()
        {
            return;
        }
        let refused = DenialNotice {
            wall: event.wall,
            what: words::what(&event.what),
            why: event.reason.clone().unwrap_or_default().to_string(),
            ask: event.hint.clone().map(|text| text.to_string()),
        };
        self.take(&refused, event.times(), now_ms);
    }

    /// Writes the file, if it is due.
    pub fn flush(&mut self, now_ms: u64) {
        if self.due.is_none_or(|due| due > now_ms) {
            return;
        }
        self.due = None;
        self.written = Some(now_ms);
        let Some(file) = &self.file else {
            return;
        };
        let text = self.recent.file();
        let (mut rest, mut at) = (text.as_bytes(), 0);
        while !rest.is_empty() {
            match rustix::io::retry_on_intr(|| rustix::io::pwrite(file.as_fd(), rest, at)) {
                // No room: the next denial tries again.
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    rest = &rest[length..];
                    at += length as u64;
                }
            }
        }
    }

    /// The network's denials. Other containers may share the network, and must not see this one's calls.
    pub fn of_the_network(&self) -> String {
        self.recent.text(|wall| wall == WallName::Network)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;
    use crate::audit::EventDetail;

    fn refused(host: &str) -> DenialNotice {
        DenialNotice {
            wall: WallName::Network,
            what: format!("{host}:443"),
            why: "no rule matches it".to_owned(),
            ask: None,
        }
    }

    fn text(file: &mut File) -> String {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_first_denial_is_written_at_once_and_a_flood_four_times_a_second() {
        let fd = rustix::fs::memfd_create("denied", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        let mut inside = DenialFile::new(ReportedDenials::All, file.try_clone().unwrap().into());
        inside.take(&refused("a.test"), 1, 1_000);
        assert!(text(&mut file).contains("a.test:443: no rule matches it"));
        assert_eq!(inside.due_ms(), None);
        inside.take(&refused("b.test"), 1, 1_001);
        assert_eq!(inside.due_ms(), Some(1_250));
        assert!(!text(&mut file).contains("b.test"), "not yet");
        inside.flush(1_249);
        assert!(!text(&mut file).contains("b.test"), "not yet");
        inside.flush(1_250);
        assert!(text(&mut file).ends_with("b.test:443: no rule matches it\n"));
        assert_eq!(inside.due_ms(), None);
    }

    #[test]
    fn a_denied_call_is_shown_in_the_file_but_not_to_containers_that_share_the_network() {
        let what = EventDetail::Syscall {
            name: "mount".into(),
            call: "mount(...)".into(),
            errno: "EPERM".into(),
        };
        let event = Event {
            reason: Some("it changes mounts".into()),
            ..Event::new(WallName::Syscalls, Verdict::Denied, what)
        };
        let mut inside = DenialFile::default();
        inside.hear(&event, 0);
        assert!(inside.recent.text(|_| true).contains("it changes mounts"));
        assert!(!inside.of_the_network().contains("mount"));
        assert_eq!(inside.due_ms(), None, "there is no file");
    }
}
