//! Honey values in outgoing data: they are stopped and logged, and end the container if the node's file says so.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use super::refusal::Refusal;
use crate::egress::{Honey, HoneyMatch, HoneySearch};
use crate::policy::{HoneyAction, HoneyValue};
use crate::rules::Host;

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

    /// Searches a host name, in any spelling.
    pub fn look_at_name(&self, name: &str) -> Result<(), Refusal> {
        allowed(self.honey.find_in_name(name))
    }

    /// Searches the destination of a connection.
    pub fn look_at_host(&self, host: &Host) -> Result<(), Refusal> {
        match host {
            Host::Name(name) => self.look_at_name(name.as_str()),
            Host::Address(_) => Ok(()),
        }
    }

    /// Searches the address of a request.
    pub fn look_at_address(&self, address: &str) -> Result<(), Refusal> {
        allowed(self.honey.find(address.as_bytes()))
    }

    /// The refusal for a honey value that the reader reports; `None` if it does not exist.
    pub fn named(&self, name: &str) -> Option<Refusal> {
        self.honey.named(name).map(Refusal::Honey)
    }

    /// Searches a stream.
    pub fn search(&self) -> Search {
        Search((!self.honey.is_empty()).then(|| HoneySearch::new(&self.honey)))
    }

    /// Acts on a value that was found and logged.
    pub fn caught(&self, caught: &HoneyMatch) {
        match caught.then {
            HoneyAction::Log => {}
            HoneyAction::End => {
                self.ends.set(true);
                self.told.notify_one();
            }
        }
    }

    /// Whether a value has ended the container.
    pub fn have_ended(&self) -> bool {
        self.ends.get()
    }

    /// Waits for a value that ends the container.
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

/// Searches what a client sends, piece by piece.
#[derive(Debug)]
pub(super) struct Search(Option<HoneySearch>);

impl Search {
    /// Whether there is nothing to search for.
    pub fn is_idle(&self) -> bool {
        self.0.is_none()
    }

    /// Searches whole data, before it is sent on.
    pub fn look_at(&self, whole: &[u8]) -> Result<(), Refusal> {
        allowed(self.0.as_ref().and_then(|search| search.find(whole)))
    }

    /// Searches the next piece, before it is sent on.
    pub fn look(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        allowed(self.0.as_mut().and_then(|search| search.feed(piece)))
    }
}
