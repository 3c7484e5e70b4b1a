//! The container's view of the network's denials.

use super::wall::Wall;
use crate::audit::{DenialNotice, EventDetail, WallName, words};

impl Wall {
    /// Shows the container the denial of its own attempt.
    pub fn show(&self, what: &EventDetail, why: String, ask: Option<String>) {
        if self.tried.by().is_some() {
            return;
        }
        let refused = DenialNotice {
            wall: WallName::Network,
            what: match what.host() {
                Some(_) => words::what(what),
                None => "a connection".to_owned(),
            },
            why,
            ask,
        };
        let now = self.milliseconds();
        self.with_journal(|journal| journal.show(&refused, now));
    }

    /// The network's denials, if the container may read them.
    pub fn shown(&self) -> Option<String> {
        self.with_journal(|journal| journal.shown())
    }
}
