//! The relay's loop: it accepts connections of the workload, within limits, and keeps the log.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::connection;
use crate::audit::Event;
use crate::egress::ssh::key::ListedKeys;
use crate::sidecar::journal::Journal;
use crate::sys::event::{event_loop, readable};

/// Connections at once; more wait in the kernel. Each holds one message of the workload's, and one of the agent's.
const MOST_CONNECTIONS: usize = 32;
/// The time that a message and a signature cost. A burst of them costs nothing: 5,000 messages or 100 signatures.
const MESSAGE: Duration = Duration::from_millis(1);
const SIGNATURE: Duration = Duration::from_millis(50);
const BURST: Duration = Duration::from_secs(5);

/// The descriptors of the loop.
pub(super) struct RelayFds {
    pub listener: OwnedFd,
    pub init: OwnedFd,
    pub line: OwnedFd,
}

/// What a message costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestCost {
    Message,
    Signature,
}

/// What all connections share.
pub(super) struct RelayState {
    pub keys: ListedKeys,
    journal: RefCell<Journal>,
    /// A line of the log is due earlier than before.
    due: Notify,
    began: Instant,
    /// When the time of all messages so far is paid.
    paid: Cell<Instant>,
}

impl RelayState {
    fn new(keys: ListedKeys, journal: Journal) -> Self {
        let now = Instant::now();
        Self {
            keys,
            journal: RefCell::new(journal),
            due: Notify::new(),
            began: now,
            paid: Cell::new(now),
        }
    }

    /// Waits as long as the rate of messages requires: a flood costs the node little.
    pub async fn pace(&self, cost: RequestCost) {
        let now = Instant::now();
        let cost = match cost {
            RequestCost::Message => MESSAGE,
            RequestCost::Signature => SIGNATURE,
        };
        let earliest = now.checked_sub(BURST).unwrap_or(self.began);
        let paid = self.paid.get().max(earliest) + cost;
        self.paid.set(paid);
        if paid > now {
            tokio::time::sleep_until(paid).await;
        }
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn log(&self, event: Event) {
        let now = self.milliseconds();
        self.journal.borrow_mut().write(event, now);
        self.due.notify_one();
    }
}

/// Serves until the init process or `wrap` has ended.
pub(super) fn run(fds: RelayFds, keys: ListedKeys, journal: Journal) -> io::Result<()> {
    let runtime = event_loop()?;
    let relay = runtime.block_on(async move {
        let relay = Rc::new(RelayState::new(keys, journal));
        let listener = UnixListener::from_std(fds.listener.into())?;
        spawn_local(accept(Rc::clone(&relay), listener));
        spawn_local(keep_log(Rc::clone(&relay)));
        // `wrap` sends nothing more: the line is readable when it has closed.
        tokio::select! {
            ended = readable(&fds.init) => ended?,
            ended = readable(&fds.line) => ended?,
        }
        io::Result::Ok(relay)
    })?;
    drop(runtime);
    relay.journal.borrow_mut().close();
    Ok(())
}

async fn accept(relay: Rc<RelayState>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        relay.pace(RequestCost::Message).await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let relay = Rc::clone(&relay);
        spawn_local(async move {
            connection::serve(&relay, stream).await;
            drop(place);
        });
    }
}

/// Writes the log's lines when they are due. Without a due line it sleeps.
async fn keep_log(relay: Rc<RelayState>) {
    loop {
        let due = relay.journal.borrow().due_ms();
        let earlier = relay.due.notified();
        let Some(due) = due else {
            earlier.await;
            continue;
        };
        let left = Duration::from_millis(due.saturating_sub(relay.milliseconds()));
        if tokio::time::timeout(left, earlier).await.is_err() {
            let now = relay.milliseconds();
            relay.journal.borrow_mut().flush(now);
        }
    }
}
