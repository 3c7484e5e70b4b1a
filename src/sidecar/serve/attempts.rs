//! Attempts by address that the kernel refuses inside: to ports without a rule, and by datagrams. Nothing listens
//! there, so they cost the container and the sidecar no connection. The sidecar hears the kernel's answers: each is a
//! log line, or in the count of one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use tokio::task::{spawn_local, yield_now};

use super::super::counts::HeardAttempts;
use super::dns;
use super::refusal::Refusal;
use super::wall::Wall;
use crate::audit::ConnectionKind;
use crate::audit::loopback;
use crate::egress::names::{SYNTHETIC_V4, SYNTHETIC_V6};
use crate::egress::own::is_own;
use crate::network::refused::{self, LONGEST, RefusedAttempt, Transport};
use crate::plan::connect::is_offered;
use crate::rules::Decision;
use crate::sys::event::ReadableFd;
use crate::sys::raw_socket::RawSocket;

/// Attempts in one turn: the network is served between turns.
const MOST: usize = 64;
/// Turns at the end; what remains then is only counted.
const LAST_TURNS: usize = 64;
/// Attempts at the loopback, after which no more are heard. The kernel counts them.
const MOST_OWN: usize = 4096;

/// The sockets that hear of attempts.
#[derive(Debug)]
pub(super) struct Taps {
    sockets: Vec<RawSocket>,
    heard: Cell<HeardAttempts>,
    /// Ports of the loopback that were tried and have no listener.
    ports: RefCell<BTreeSet<u16>>,
    /// How many attempts at the loopback were heard.
    own: Cell<usize>,
}

/// Hears attempts until the sidecar ends.
pub(super) fn serve(wall: &Rc<Wall>, sockets: Vec<OwnedFd>) -> Rc<Taps> {
    let sockets: io::Result<Vec<_>> = sockets.into_iter().map(RawSocket::new).collect();
    let sockets = sockets.unwrap_or_else(|error| {
        eprintln!("agentbox-sidecar: attempts by address are only counted: {error}");
        Vec::new()
    });
    let taps = Rc::new(Taps {
        sockets,
        heard: Cell::default(),
        ports: RefCell::default(),
        own: Cell::default(),
    });
    for place in 0..taps.sockets.len() {
        let (wall, taps) = (Rc::clone(wall), Rc::clone(&taps));
        spawn_local(async move {
            // Without a watch, attempts get no line, but the kernel still counts them.
            if let Err(error) = taps.hear(&wall, place).await {
                eprintln!("agentbox-sidecar: attempts by address are only counted: {error}");
            }
        });
    }
    taps
}

impl Taps {
    async fn hear(&self, wall: &Wall, place: usize) -> io::Result<()> {
        let socket = &self.sockets[place];
        let watched = ReadableFd::new(socket.as_fd().try_clone_to_owned()?)?;
        loop {
            watched.wait().await?;
            let before = self.own.get();
            while self.turn(wall, socket) == MOST {
                yield_now().await;
            }
            // This socket hears of nothing else: a flood at the loopback wakes nobody any more.
            if self.own.get() > before && self.has_heard_enough() {
                return Ok(());
            }
        }
    }

    fn has_heard_enough(&self) -> bool {
        self.own.get() >= MOST_OWN || self.ports.borrow().len() >= loopback::MOST_PORTS
    }

    /// Hears what waits, and returns the total of all attempts.
    pub fn hear_all(&self, wall: &Wall) -> HeardAttempts {
        for socket in &self.sockets {
            let mut turns = 0..LAST_TURNS;
            while turns.next().is_some() && self.turn(wall, socket) == MOST {}
        }
        self.heard.get()
    }

    /// Hears at most [`MOST`] attempts; returns how many.
    fn turn(&self, wall: &Wall, socket: &RawSocket) -> usize {
        let mut packet = [0; LONGEST];
        for count in 0..MOST {
            let Ok(length) = socket.receive(&mut packet) else {
                return count;
            };
            let attempt = refused::read(&packet[..length]);
            if let Some(attempt) = attempt.filter(|attempt| attempt.to.ip().is_loopback()) {
                // The kernel's count covers it.
                self.own.set(self.own.get().saturating_add(1));
                self.note_port(wall, attempt.to.port());
            } else if let Some(attempt) = attempt.filter(|attempt| wall.note_attempt(*attempt)) {
                self.count(attempt);
            }
        }
        MOST
    }

    /// The first attempt at a port gets a line: the user may have meant a server outside. At a port that leads in, the
    /// workload has its own.
    fn note_port(&self, wall: &Wall, port: u16) {
        let mut ports = self.ports.borrow_mut();
        let is_new = ports.len() < loopback::MOST_PORTS && !ports.contains(&port);
        if is_new && is_offered(port) && !wall.guests.lead_to(port) {
            ports.insert(port);
            wall.log(loopback::refused(port));
        }
    }

    fn count(&self, attempt: RefusedAttempt) {
        let mut heard = self.heard.get();
        let count = match (attempt.by, attempt.to) {
            (Transport::Udp, SocketAddr::V6(_)) => &mut heard.unanswered_v6,
            _ => &mut heard.unanswered,
        };
        *count = count.saturating_add(1);
        self.heard.set(heard);
    }
}

impl Wall {
    /// Logs a refused attempt; `false`: the wall does not refuse it, so the kernel's count covers it.
    fn note_attempt(&self, attempt: RefusedAttempt) -> bool {
        let RefusedAttempt { by, to, from } = attempt;
        let (host, port) = (dns::host_of_address(self, to.ip()), to.port());
        if is_own(&host, &self.own_names) || is_lo(to.ip()) {
            return false;
        }
        let (via, refusal, actor) = match by {
            Transport::Udp => (ConnectionKind::Udp, Refusal::Datagram, None),
            Transport::Tcp => {
                let denial = match self.rules().decide(&host, port) {
                    Decision::Deny(denial) => denial,
                    // A rule that was added meanwhile.
                    Decision::Allow(_) => return false,
                };
                let actor = self.actor_of_attempt(from, &host, port);
                (ConnectionKind::Tcp, self.denied(&host, denial), actor)
            }
        };
        self.tried.on_behalf(actor, || {
            self.note_refusal(via, &host, Some(port), &refusal);
        });
        true
    }
}

/// The container's own address, which leads nowhere else.
fn is_lo(address: IpAddr) -> bool {
    address == SYNTHETIC_V4 || address == SYNTHETIC_V6
}
