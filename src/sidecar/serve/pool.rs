//! The sockets of the inner namespace that inbound connections dial with.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

use tokio::sync::Notify;

use crate::egress::names::Families;

/// Sockets of the inner namespace, two for each possible connection: one of each family.
#[derive(Default)]
pub(super) struct Pool {
    free: RefCell<Vec<Pair>>,
    given_back: Notify,
    /// Whether it has got its sockets.
    pub filled: Cell<bool>,
}

/// One socket of each family.
pub(super) struct Pair {
    pub v4: OwnedFd,
    pub v6: Option<OwnedFd>,
}

impl Pool {
    /// Takes the sockets to dial with: half of them are IPv6's, if there are both.
    pub fn fill(&self, families: Families, mut dialers: Vec<OwnedFd>) {
        let of_v6 = match families {
            Families::Both => dialers.split_off(dialers.len() / 2),
            Families::V4 => Vec::new(),
        };
        let mut of_v6 = of_v6.into_iter();
        let pairs = dialers.into_iter().map(|v4| Pair {
            v4,
            v6: of_v6.next(),
        });
        self.free.borrow_mut().extend(pairs);
        self.filled.set(!self.free.borrow().is_empty());
    }

    pub async fn take(&self) -> Pair {
        loop {
            let free = self.free.borrow_mut().pop();
            match free {
                Some(pair) => return pair,
                None => self.given_back.notified().await,
            }
        }
    }

    pub fn give_back(&self, pair: Pair) {
        self.free.borrow_mut().push(pair);
        self.given_back.notify_one();
    }

    pub fn is_full(&self) -> bool {
        self.free.borrow().is_empty()
    }
}
