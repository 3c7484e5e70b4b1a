//! An allowed connection's share of the budget, and its place among the open ones.

use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::rc::Rc;

use chrono::Utc;
use tokio::sync::Notify;

use super::live::AllowedConnection;
use super::permission::Permission;
use super::refusal::Refusal;
use super::wall::Wall;
use crate::egress::OverBudget;
use crate::rules::{Host, HostName};

/// A connection's share of the budget and its place among the open ones; both end on drop.
pub(super) struct Share<'a> {
    wall: &'a Wall,
    number: u64,
    live: Rc<AllowedConnection>,
    /// Whether its host is being resolved and dialled, with nothing logged yet.
    dials: Cell<bool>,
}

impl std::fmt::Debug for Share<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Share")
    }
}

impl<'a> Share<'a> {
    /// For a connection that the ledger has counted.
    pub fn new(wall: &'a Wall, host: Host, port: u16, permission: Permission) -> Self {
        let forms = wall.connections.forms_of(&host, port, permission.rule);
        let live = Rc::new(AllowedConnection {
            host,
            port,
            reach: permission.reach,
            once: permission.once,
            request: permission.request,
            is_service: permission.is_service,
            forms,
            address: Cell::new(None),
            since: Utc::now(),
            began: Cell::new(false),
            sent: Cell::new(0),
            received: Cell::new(0),
            revoked: Notify::new(),
        });
        let number = wall.connections.next.get();
        wall.connections.next.set(number + 1);
        let open = &wall.connections.open;
        open.borrow_mut().insert(number, Rc::clone(&live));
        Self {
            wall,
            number,
            live,
            dials: Cell::new(false),
        }
    }

    /// Dials. The log always shows that something was sent: by the outcome, or by the drop of this share.
    pub async fn dial<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        self.dials.set(true);
        let done = work.await;
        self.dials.set(false);
        done
    }

    /// Logs that the connection was allowed, now that the host has answered. Its end then logs the bytes.
    pub fn begin(&self) {
        if !self.live.began.replace(true) {
            self.wall.log_again(&self.live.forms.began, (None, None));
        }
    }

    /// Sets the connection's address: later rules about the address apply to it.
    pub fn leads_to(&self, address: IpAddr) {
        self.live.address.set(Some(address));
    }

    /// Whether its requests are decided, and not the connection.
    pub fn carries_requests(&self) -> bool {
        self.live.request.is_some()
    }

    /// Counts bytes that are about to be sent upstream.
    pub fn send(&self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.wall.send(bytes)?;
        let sent = &self.live.sent;
        sent.set(sent.get().saturating_add(bytes));
        Ok(())
    }

    /// Counts a name that an outside resolver will receive: many such names in order can carry data.
    pub fn ask_for(&self, name: &HostName) -> Result<(), Refusal> {
        let bytes = u64::try_from(name.as_str().len()).unwrap_or(u64::MAX);
        self.wall.send(bytes).map_err(Refusal::Over)
    }

    /// Counts bytes that came back.
    pub fn receive(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let received = &self.live.received;
        received.set(received.get().saturating_add(bytes));
    }

    /// Runs `work` until it is done, or the connection is no longer allowed.
    pub async fn while_allowed<T>(
        &self,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        tokio::select! {
            biased;
            () = self.live.revoked.notified() => {
                self.dials.set(false);
                Err(self.wall.revoked(&self.live))
            }
            done = work => done,
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.wall.connections.open.borrow_mut().remove(&self.number);
        self.wall.close();
        let live = &self.live;
        if self.dials.get() {
            self.wall.note_given_up(&live.host, live.port);
        }
        if !live.began.get() {
            return;
        }
        let amounts = (Some(live.sent.get()), Some(live.received.get()));
        self.wall.log_again(&live.forms.ended, amounts);
    }
}
