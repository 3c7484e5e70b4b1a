//! Honey values on their way out: what has one does not go on, is written down, and ends the container where the node says so.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use tokio::sync::Notify;

use super::refusal::Refusal;
use crate::egress::{Honey, HoneyMatch, HoneySearch};
use crate::policy::{HoneyThen, HoneyValue, Host};

/// The honey values of a container, and whether one has ended it.
#[derive(Debug, Default)]
pub(super) struct Traps {
    honey: Rc<Honey>,
    ends: Cell<bool>,
    told: Notify,
}

impl Traps {
    pub fn new(honey: &[HoneyValue]) -> Self {
        Self {
            honey: Rc::new(Honey::new(honey)),
            ..Self::default()
        }
    }

    /// Looks at a name of a host, in any spelling.
    pub fn look_at_name(&self, name: &str) -> Result<(), Refusal> {
        allowed(self.honey.find_in_name(name))
    }

    /// Looks at whom somebody wants to reach.
    pub fn look_at_host(&self, host: &Host) -> Result<(), Refusal> {
        match host {
            Host::Name(name) => self.look_at_name(name.as_str()),
            Host::Address(_) => Ok(()),
        }
    }

    /// Looks at the address of a request.
    pub fn look_at_address(&self, address: &str) -> Result<(), Refusal> {
        allowed(self.honey.find(address.as_bytes()))
    }

    /// What the reader says that it has found: one that there is.
    pub fn named(&self, name: &str) -> Option<Refusal> {
        self.honey.named(name).map(Refusal::Honey)
    }

    /// Looks at a stream.
    pub fn search(&self) -> Search {
        Search((!self.honey.is_empty()).then(|| HoneySearch::new(&self.honey)))
    }

    /// One was found, and written down.
    pub fn caught(&self, caught: &HoneyMatch) {
        match caught.then {
            HoneyThen::Log => {}
            HoneyThen::End => {
                self.ends.set(true);
                self.told.notify_one();
            }
        }
    }

    /// Waits until one is found that ends the container.
    pub async fn caught_to_end(&self) {
        while !self.ends.get() {
            self.told.notified().await;
        }
    }
}

fn allowed(caught: Option<HoneyMatch>) -> Result<(), Refusal> {
    match caught {
        None => Ok(()),
        Some(caught) => Err(Refusal::Honey(caught)),
    }
}

/// What a client sends, piece by piece.
#[derive(Debug)]
pub(super) struct Search(Option<HoneySearch>);

impl Search {
    /// Whether anything is looked for.
    pub fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Looks at something whole, before it goes on.
    pub fn look_at(&self, whole: &[u8]) -> Result<(), Refusal> {
        allowed(self.0.as_ref().and_then(|search| search.find(whole)))
    }

    /// Looks at the next piece, before it goes on.
    pub fn look(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        allowed(self.0.as_mut().and_then(|search| search.feed(piece)))
    }
}

/// In words, for the node.
pub(super) fn describe(caught: &HoneyMatch, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let HoneyMatch { name, then } = caught;
    let meaning = match then {
        HoneyThen::Log => "the container goes on",
        HoneyThen::End => "the container is ended",
    };
    write!(
        f,
        "the honey value {name} was on its way out, which no program has a reason to send ({meaning})"
    )
}
