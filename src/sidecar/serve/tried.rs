//! Attempts of `verify`, told from the workload's by the ports that the runtime sends over the control socket.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use tokio::net::TcpStream;

use super::wall::Wall;
use crate::audit::Actor;
use crate::egress::tried::TriedPorts;
use crate::policy::Host;

/// How long the ports count. One `verify` tries no longer, even if it dies.
const WITHIN_MS: u64 = 3_000;

/// The attempts that `verify` announced, and the actor whose attempt the sidecar handles now.
#[derive(Debug, Default)]
pub(super) struct VerifyAttempts {
    from: RefCell<TriedPorts>,
    until_ms: Cell<u64>,
    by: Cell<Option<Actor>>,
}

impl VerifyAttempts {
    /// The actor of the current events, if it is not the workload.
    pub fn by(&self) -> Option<Actor> {
        self.by.get()
    }

    /// Runs `act`, whose events are this actor's.
    pub fn on_behalf<T>(&self, by: Option<Actor>, act: impl FnOnce() -> T) -> T {
        let before = self.by.replace(by);
        let done = act();
        self.by.set(before);
        done
    }

    fn is_late(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms.get()
    }
}

impl Wall {
    /// Sets the ports from which `verify` tries; none when it is done.
    pub fn expect_tried(&self, from: TriedPorts) {
        let until_ms = self.milliseconds().saturating_add(WITHIN_MS);
        self.tried.until_ms.set(until_ms);
        self.tried.from.replace(from);
    }

    /// The actor of a connection, if it is not the workload.
    pub fn actor_of(&self, stream: &TcpStream, to: &Host, port: u16) -> Option<Actor> {
        if self.tried.is_late(self.milliseconds()) {
            return None;
        }
        let from = stream.peer_addr().ok()?;
        let is_its = self.tried.from.borrow_mut().take_connection(from, to, port);
        is_its.then_some(Actor::Verify)
    }

    /// The same for a connection that the kernel refused.
    pub fn actor_of_attempt(&self, from: SocketAddr, to: &Host, port: u16) -> Option<Actor> {
        if self.tried.is_late(self.milliseconds()) {
            return None;
        }
        let is_its = self.tried.from.borrow_mut().take_connection(from, to, port);
        is_its.then_some(Actor::Verify)
    }

    /// The same for a DNS question.
    pub fn actor_of_question(&self, from: Option<SocketAddr>, name: &str) -> Option<Actor> {
        if self.tried.is_late(self.milliseconds()) {
            return None;
        }
        let is_its = self.tried.from.borrow_mut().take_question(from?, name);
        is_its.then_some(Actor::Verify)
    }
}
