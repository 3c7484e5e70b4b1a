//! Ports of the engine's network that lead to the same port of the loopback inside (`docker run -p`, probes).
//!
//! A socket keeps the namespace where it was made. The maker of the inner namespace made the sockets to dial with, so
//! the sidecar never enters it and needs no right to. A finished socket is disconnected (connect(2), AF_UNSPEC) and
//! reused. Their number is fixed: while all are in use, no connection is accepted.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use chrono::Utc;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::spawn_local;

use super::guests::OpenInbound;
use super::pool::{Pair, Pool};
use super::refusal::Refusal;
use super::relay::pump;
use super::stream::{reset, say_end};
use super::wall::Wall;
use super::watch::Watch;
use crate::audit::{ConnectionKind, Verdict};
use crate::egress::OverBudget;

/// The loopback inside answers or refuses at once.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may be silent before it ends.
const IDLE: Duration = Duration::from_secs(300);
/// The same while others wait.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// The time between checks whether the last bytes have arrived; mostly the first check succeeds.
const DELIVERED_EVERY: Duration = Duration::from_millis(20);

/// Serves all inbound ports until the program ends.
pub(super) fn serve(
    wall: &Rc<Wall>,
    ports: Vec<(u16, OwnedFd)>,
    dialers: Vec<OwnedFd>,
) -> io::Result<()> {
    wall.guests.pool.fill(wall.families, dialers);
    serve_ports(wall, ports)
}

/// Opens further ports of a running container. `descriptors` are as [`ControlRequest::Inbound`] has them.
///
/// [`ControlRequest::Inbound`]: super::ControlRequest::Inbound
pub(super) fn open(
    wall: &Rc<Wall>,
    ports: BTreeSet<u16>,
    mut descriptors: Vec<OwnedFd>,
) -> io::Result<()> {
    if descriptors.len() < ports.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let dialers = descriptors.split_off(ports.len());
    let pool = &wall.guests.pool;
    match (pool.filled.get(), dialers.is_empty()) {
        // Without sockets no connection would be accepted.
        (false, true) => return Err(io::ErrorKind::InvalidInput.into()),
        (false, false) => pool.fill(wall.families, dialers),
        // The number of connections at once stays.
        (true, _) => {}
    }
    serve_ports(wall, ports.iter().copied().zip(descriptors))?;
    for port in ports {
        wall.leads_nowhere.borrow_mut().remove(&port);
        wall.guests.count(port, |_| {});
    }
    Ok(())
}

/// All of them, or none.
fn serve_ports(wall: &Rc<Wall>, ports: impl IntoIterator<Item = (u16, OwnedFd)>) -> io::Result<()> {
    let listener = |(port, fd): (u16, OwnedFd)| Ok((port, TcpListener::from_std(fd.into())?));
    let listeners: io::Result<Vec<_>> = ports.into_iter().map(listener).collect();
    for (port, listener) in listeners? {
        let pool = Rc::clone(&wall.guests.pool);
        let wall = Rc::clone(wall);
        spawn_local(async move {
            loop {
                let Ok((guest, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                // One connection waits here for its sockets, the others in the kernel's queue.
                let pair = pool.take().await;
                let pool = Rc::clone(&pool);
                let wall = Rc::clone(&wall);
                spawn_local(async move {
                    lead_in(&wall, &pool, guest, &pair, port).await;
                    pool.give_back(pair);
                });
            }
        });
    }
    Ok(())
}

async fn lead_in(wall: &Wall, pool: &Pool, guest: TcpStream, pair: &Pair, port: u16) {
    let _no_delay = guest.set_nodelay(true);
    let from = guest
        .peer_addr()
        .ok()
        .map(|address| address.ip().to_canonical());
    let refused = match wall.let_in(port, from) {
        Err(over) => Some(over),
        Ok(share) => match dial(pair, port).await {
            Some(inside) => {
                wall.find_somebody(port);
                relay(pool, &guest, &inside, &share).await.err()
            }
            // No program listens there: as if the port were closed.
            None => {
                wall.find_nobody(port, from);
                reset(&guest);
                None
            }
        },
    };
    if let Some(over) = refused {
        wall.send_away(port, from, over);
        reset(&guest);
    }
    disconnect(pair);
}

async fn dial(pair: &Pair, port: u16) -> Option<TcpStream> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    for (socket, to) in [(Some(&pair.v4), v4), (pair.v6.as_ref(), v6)] {
        // A copy: the socket itself stays here after the connection.
        let Some(copy) = socket.and_then(|socket| socket.try_clone().ok()) else {
            continue;
        };
        let socket = TcpSocket::from_std_stream(StdStream::from(copy));
        let connecting = tokio::time::timeout(CONNECT_WITHIN, socket.connect(to));
        if let Ok(Ok(stream)) = connecting.await {
            let _no_delay = stream.set_nodelay(true);
            return Some(stream);
        }
    }
    None
}

/// Relays both ways, until both are done or nothing has moved for too long; an error if the budget is used up.
async fn relay(
    pool: &Pool,
    guest: &TcpStream,
    inside: &TcpStream,
    share: &Guest<'_>,
) -> Result<(), OverBudget> {
    let moved = Cell::new(Instant::now());
    let received = |bytes| {
        moved.set(Instant::now());
        share.receive(bytes);
        Ok(())
    };
    let sent = |bytes| {
        moved.set(Instant::now());
        share.send(bytes).map_err(Refusal::Over)
    };
    let both = async {
        let inwards = async {
            pump(guest, inside, Watch::Nothing, received).await?;
            say_end(inside);
            Ok::<_, Refusal>(())
        };
        let outwards = async {
            pump(inside, guest, Watch::Nothing, sent).await?;
            say_end(guest);
            Ok::<_, Refusal>(())
        };
        tokio::try_join!(inwards, outwards)?;
        delivered(inside).await;
        Ok::<_, Refusal>(())
    };
    let silence = async {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let limit = if pool.is_full() { IDLE_WHEN_FULL } else { IDLE };
            if moved.get().elapsed() > limit {
                break;
            }
        }
    };
    let ended = tokio::select! {
        done = both => Some(done),
        () = silence => None,
    };
    match ended {
        Some(Ok(())) => Ok(()),
        Some(Err(Refusal::Over(over))) => Err(over),
        Some(Err(_)) | None => {
            reset(guest);
            Ok(())
        }
    }
}

/// Waits until the program inside has read everything, which may be slow and after its own last byte. [`disconnect`]
/// would drop the rest. After the last byte the kernel releases the other end: getpeername(2) no longer finds it.
async fn delivered(inside: &TcpStream) {
    while inside.peer_addr().is_ok() {
        tokio::time::sleep(DELIVERED_EVERY).await;
    }
}

/// Disconnects a socket, for reuse (connect(2): "may dissolve the association").
fn disconnect(pair: &Pair) {
    for socket in std::iter::once(&pair.v4).chain(&pair.v6) {
        // A socket that cannot be reused fails to connect, and its connection is reset.
        let _done = rustix::net::connect_unspec(socket);
    }
}

/// An inbound connection's share of the budget, freed on drop.
pub(super) struct Guest<'a> {
    wall: &'a Wall,
    number: u64,
    open: Rc<OpenInbound>,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.wall.guests.open.borrow_mut().remove(&self.number);
        self.wall.close();
        self.wall.log(self.open.event(Verdict::Ended));
    }
}

impl Guest<'_> {
    /// Counts bytes that are about to leave the container.
    pub fn send(&self, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.wall.send_inward(bytes)?;
        self.open
            .sent
            .set(self.open.sent.get().saturating_add(bytes));
        self.wall.guests.count(self.open.port, |total| {
            total.sent = total.sent.saturating_add(bytes);
        });
        Ok(())
    }

    /// Counts bytes that came in.
    pub fn receive(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let received = &self.open.received;
        received.set(received.get().saturating_add(bytes));
        self.wall.guests.count(self.open.port, |total| {
            total.received = total.received.saturating_add(bytes);
        });
    }
}

impl Wall {
    /// The only place where an inbound connection is allowed.
    pub fn let_in(&self, port: u16, from: Option<IpAddr>) -> Result<Guest<'_>, OverBudget> {
        self.open_inward()?;
        let open = Rc::new(OpenInbound {
            port,
            from,
            since: Utc::now(),
            sent: Cell::new(0),
            received: Cell::new(0),
        });
        let guests = &self.guests;
        self.log(open.event(Verdict::Allowed));
        let number = guests.next.get();
        guests.next.set(number + 1);
        guests.open.borrow_mut().insert(number, Rc::clone(&open));
        guests.count(port, |total| {
            total.connections = total.connections.saturating_add(1);
        });
        Ok(Guest {
            wall: self,
            number,
            open,
        })
    }

    /// Logs that no program listens on a port: once, until one does. Probes try every few seconds.
    pub fn find_nobody(&self, port: u16, from: Option<IpAddr>) {
        if self.guests.deserted.borrow_mut().insert(port) {
            let from = from.map_or_else(String::new, |from| from.to_string());
            let why = "no program of the container listens on this port of its loopback";
            self.note_failed(ConnectionKind::Inbound, &from, port, why);
        }
    }

    /// A program inside has answered.
    pub fn find_somebody(&self, port: u16) {
        self.guests.deserted.borrow_mut().remove(&port);
    }

    /// Logs that an inbound connection was refused.
    pub fn send_away(&self, port: u16, from: Option<IpAddr>, over: OverBudget) {
        let from = from.map_or_else(String::new, |from| from.to_string());
        self.note(
            ConnectionKind::Inbound,
            &from,
            Some(port),
            over.kind(),
            &over.to_string(),
        );
    }
}
