//! Connections from inside: their limit, and the kind of each.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::admission::AdmittedConnection;
use super::clients::{Clients, Peer};
use super::explicit::HttpAnswer;
use super::honey::Search;
use super::refusal::Refusal;
use super::relay::{Watch, ended, pass, relay};
use super::secure::Server;
use super::sniff::UndecidedClient;
use super::wall::Wall;
use super::{dns, explicit, requests, sniff};
use crate::audit::ConnectionKind;
use crate::egress::http::RequestGuard;
use crate::egress::phrase::speaks_http;
use crate::egress::ssh::{self, SSH};
use crate::policy::Host;
use crate::sidecar::buffer::with_buffer;

/// HTTPS: the TLS greeting must name the host.
pub(super) const HTTPS: u16 = 443;
/// HTTP: every request must name the host.
const HTTP: u16 = 80;
/// Why a connection is refused unread.
const TOO_MANY: &str = "more connections than network.connections are open or wait";
/// Bytes of one read while a connection begins.
const CHUNK: usize = 4096;

/// Serves all TCP listeners until the program ends.
pub(super) fn serve(wall: &Rc<Wall>, proxy: OwnedFd, ports: Vec<OwnedFd>) -> io::Result<()> {
    listen(wall, proxy, ListenerKind::Explicit, None)?;
    let numbers = wall.ports.borrow().clone();
    for (listener, port) in ports.into_iter().zip(numbers) {
        listen(wall, listener, ListenerKind::Transparent(port), None)?;
    }
    Ok(())
}

/// Serves the proxy's port, for these clients only.
pub(super) fn serve_clients(wall: &Rc<Wall>, proxy: OwnedFd, clients: Clients) -> io::Result<()> {
    let clients = Rc::new(clients);
    clients.serve();
    listen(wall, proxy, ListenerKind::Explicit, Some(clients))
}

/// Serves a port that a later rule names.
pub(super) fn serve_port(wall: &Rc<Wall>, listener: OwnedFd, port: u16) -> io::Result<()> {
    listen(wall, listener, ListenerKind::Transparent(port), None)?;
    wall.ports.borrow_mut().push(port);
    Ok(())
}

/// The kind of a listener.
#[derive(Debug, Clone, Copy)]
enum ListenerKind {
    Explicit,
    Transparent(u16),
}

fn listen(
    wall: &Rc<Wall>,
    fd: OwnedFd,
    kind: ListenerKind,
    clients: Option<Rc<Clients>>,
) -> io::Result<()> {
    // Accepted connections inherit this: small answers leave at once. If it fails, they leave a little later.
    let _no_delay = set_tcp_nodelay(&fd, true);
    let listener = TcpListener::from_std(fd.into())?;
    let wall = Rc::clone(wall);
    spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match clients.as_ref().map(|clients| clients.peer(&stream)) {
                    None | Some(Peer::Own) => take(&wall, stream, kind),
                    Some(other) => turn_away(&wall, &stream, other),
                },
                // Out of descriptors: open connections go on, and some of them end.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    Ok(())
}

/// Resets a connection before it counts: other users take no room from the command.
fn turn_away(wall: &Wall, stream: &TcpStream, peer: Peer) {
    match peer {
        Peer::Own | Peer::Gone => {}
        Peer::Stranger(uid) => wall.note_stranger(Some(uid)),
        Peer::Unknown => wall.note_stranger(None),
    }
    reset(stream);
}

fn take(wall: &Rc<Wall>, stream: TcpStream, kind: ListenerKind) {
    let open = &wall.accepted;
    if u64::from(open.get()) >= wall.most_accepted() {
        let (via, port) = match kind {
            ListenerKind::Explicit => (ConnectionKind::Http, None),
            ListenerKind::Transparent(port) => (ConnectionKind::Transparent, Some(port)),
        };
        let local = stream.local_addr().ok();
        let to = local.map(|local| dns::meant(wall, local.ip()));
        let by = to
            .zip(port)
            .and_then(|(host, port)| wall.actor_of(&stream, &host, port));
        wall.tried.on_behalf(by, || {
            wall.note(via, "", port, "over-connections", TOO_MANY);
        });
        reset(&stream);
        return;
    }
    open.set(open.get() + 1);
    let wall = Rc::clone(wall);
    spawn_local(async move {
        match kind {
            ListenerKind::Explicit => explicit::serve(&wall, stream).await,
            ListenerKind::Transparent(port) => transparent(&wall, stream, port).await,
        }
        wall.accepted.set(wall.accepted.get() - 1);
    });
}

/// A connection that the program makes directly: its destination address tells the host.
async fn transparent(wall: &Rc<Wall>, stream: TcpStream, port: u16) {
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let host = dns::meant(wall, local.ip());
    if requests::are_read(wall, &host, port) {
        let (how, to) = (
            (requests::ClientRoute::Direct, ConnectionKind::Transparent),
            (&host, port),
        );
        return Box::pin(requests::serve(wall, &stream, how, to, &[])).await;
    }
    let outcome = match wall.admit(&stream, host.clone(), port).await {
        Ok(admitted) => tunnel(wall, &stream, admitted, Vec::new(), None).await,
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = outcome {
        refuse(
            wall,
            &stream,
            ConnectionKind::Transparent,
            &host,
            port,
            &refusal,
        );
        if port == SSH && refusal.is_before_the_first_byte() {
            let HttpAnswer { explanation, .. } = explicit::words(wall, &host, port, &refusal);
            let why = explanation.sentence();
            explicit::last_words(&stream, &ssh::goodbye(&why)).await;
        } else if understands(&stream, port, &refusal).await {
            explicit::answer(wall, &stream, &host, port, &refusal).await;
        } else {
            reset(&stream);
        }
    }
}

/// Whether the client reads an HTTP answer. On port 80 it does, at any point of the stream. On other ports its first
/// bytes tell, if it sends any at once.
async fn understands(stream: &TcpStream, port: u16, refusal: &Refusal) -> bool {
    const AT_ONCE: Duration = Duration::from_millis(200);
    match (port, refusal) {
        (_, Refusal::Broken(_)) | (HTTPS, _) => false,
        (HTTP, _) => true,
        _ => {
            let mut first = [0; 16];
            let peeked = tokio::time::timeout(AT_ONCE, stream.peek(&mut first)).await;
            matches!(peeked, Ok(Ok(length)) if speaks_http(&first[..length]))
        }
    }
}

/// Checks the first bytes as the port requires, dials, and relays. `early` came from the client already. `dialled` is
/// set if the client needed an answer first.
pub(super) async fn tunnel(
    wall: &Wall,
    client: &TcpStream,
    admitted: AdmittedConnection<'_>,
    early: Vec<u8>,
    dialled: Option<Server>,
) -> Result<(), Refusal> {
    let work = pin!(look_and_relay(wall, client, &admitted, early, dialled));
    admitted.share.while_allowed(work).await
}

async fn look_and_relay(
    wall: &Wall,
    client: &TcpStream,
    admitted: &AdmittedConnection<'_>,
    mut early: Vec<u8>,
    dialled: Option<Server>,
) -> Result<(), Refusal> {
    let AdmittedConnection {
        host, port, share, ..
    } = admitted;
    let mut watch = Watch::Nothing;
    let mut search = wall.traps.search();
    search.look(&early)?;
    match (host, *port) {
        (Host::Name(name), HTTPS) => {
            let hello = sniff::client_hello(client, name, early, &mut search);
            let (greeting, greeter) = hello.await?;
            early = greeting;
            watch = Watch::Tls(Box::new(greeter));
        }
        (Host::Name(name), HTTP) => {
            let mut guard = RequestGuard::new(name.clone(), *port);
            early = first_request(client, &mut guard, early, &mut search).await?;
            watch = Watch::Http(Box::new(guard));
        }
        // Here the server may speak first.
        (Host::Name(name), _) => {
            watch = Watch::First(Box::new(UndecidedClient::new(name.clone())));
            if !early.is_empty()
                && let Some(passed) = pass(&mut watch, &early)?
            {
                early = passed;
            }
        }
        // A rule names the address, so any protocol is allowed.
        (Host::Address(_), _) => {}
    }
    let mut server = match dialled {
        Some(server) => server,
        None => wall.dial(admitted).await?,
    };
    share.send(early.len()).map_err(Refusal::Over)?;
    server.write_all(&early).await?;
    drop(early);
    relay(client, server, watch.searched(search), share).await
}

/// Reads until one request's head has come and names the host; otherwise nothing is dialled.
async fn first_request(
    client: &TcpStream,
    guard: &mut RequestGuard,
    early: Vec<u8>,
    search: &mut Search,
) -> Result<Vec<u8>, Refusal> {
    let refused = |refusal: crate::egress::http::HttpRefusal| Refusal::Other(refusal.to_string());
    let mut out = Vec::new();
    guard.feed(&early, &mut out).map_err(refused)?;
    let reading = async {
        while guard.requests() == 0 {
            let chunk = read_some(client).await?;
            search.look(&chunk)?;
            guard.feed(&chunk, &mut out).map_err(refused)?;
        }
        Ok(())
    };
    match tokio::time::timeout(super::wall::FIRST_BYTES_WITHIN, reading).await {
        Ok(Ok(())) => Ok(out),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(Refusal::Other("the request took too long".to_owned())),
    }
}

/// Reads what has come, at least one byte and at most [`CHUNK`].
pub(super) async fn read_some(stream: &TcpStream) -> Result<Vec<u8>, Refusal> {
    loop {
        stream.readable().await.map_err(ended)?;
        let read = with_buffer(|buffer| {
            let chunk = &mut buffer[..CHUNK];
            stream
                .try_read(chunk)
                .map(|length| chunk[..length].to_vec())
        });
        match read {
            Ok(chunk) if chunk.is_empty() => {
                return Err(Refusal::Broken(io::ErrorKind::UnexpectedEof));
            }
            Ok(chunk) => return Ok(chunk),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(ended(error)),
        }
    }
}

/// Logs a violation, or the failure of an allowed connection. A broken connection is neither.
pub(super) fn refuse(
    wall: &Wall,
    stream: &TcpStream,
    via: ConnectionKind,
    host: &Host,
    port: u16,
    refusal: &Refusal,
) {
    let by = wall.actor_of(stream, host, port);
    wall.tried
        .on_behalf(by, || write_down(wall, stream, via, host, port, refusal));
}

fn write_down(
    wall: &Wall,
    stream: &TcpStream,
    via: ConnectionKind,
    host: &Host,
    port: u16,
    refusal: &Refusal,
) {
    if let Refusal::Unreachable(_) | Refusal::Busy = refusal {
        wall.note_failed(via, &host.to_string(), port, &refusal.to_string());
    }
    if !refusal.is_violation() {
        return;
    }
    let peer: Option<SocketAddr> = stream.peer_addr().ok();
    // A handshake that was given up has no client. A honey value is logged even so, and an address: the name was
    // resolved outside.
    let has_left = matches!(refusal, Refusal::Honey(_) | Refusal::Address(..));
    if peer.is_some() || has_left {
        wall.note_refusal(via, host, Some(port), refusal);
    }
}

/// Closes with a reset: an ordinary end could look like an answer.
pub(super) fn reset(stream: &TcpStream) {
    let _linger = set_socket_linger(stream, Some(Duration::ZERO));
}
