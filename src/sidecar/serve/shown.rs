//! What the container reads of the network's refusals.

use super::wall::Wall;
use crate::audit::{DenialNotice, EventDetail, WallName, words};

impl Wall {
    /// Shows the container a refusal of its own.
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

    /// What the network refused, where the container may read it.
    pub fn shown(&self) -> Option<String> {
        self.with_journal(|journal| journal.shown())
    }
}
