//! Connections from inside: their limit, and the kind of each.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_nodelay;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::answer::{self, HttpAnswer};
use super::clients::{Clients, Peer};
use super::notes::refuse;
use super::refusal::Refusal;
use super::stream::reset;
use super::tunnel::{HTTP, HTTPS, tunnel};
use super::wall::Wall;
use super::{dns, explicit, requests, service};
use crate::audit::ConnectionKind;
use crate::egress::phrase::speaks_http;
use crate::egress::ssh::{self, SSH};
use crate::plan::ServiceTarget;

/// Why a connection is refused unread.
const TOO_MANY: &str = "more connections than network.connections are open or wait";

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
        let to = local.map(|local| dns::host_of_address(wall, local.ip()));
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
    let host = match wall.service_at(local.ip(), port) {
        Some(ServiceTarget::Machine) => return service::serve(wall, &stream, port).await,
        Some(ServiceTarget::Host(host)) => host.clone(),
        None => dns::host_of_address(wall, local.ip()),
    };
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
            let HttpAnswer { explanation, .. } = answer::words(wall, &host, port, &refusal);
            let why = explanation.sentence();
            answer::last_words(&stream, &ssh::goodbye(&why)).await;
        } else if understands(&stream, port, &refusal).await {
            answer::answer(wall, &stream, &host, port, &refusal).await;
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
