//! Unix sockets of databases: each connection of the workload has one to the server, dialled anew.
//!
//! The server's directory is a mount of the relay's root that follows no link. So a name in it is a socket of this very
//! directory, whatever its path leads to by now. A server that restarted there is reached again.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

use super::duty::{RelayFds, SocketTarget};
use super::log::{self, RelayLog};
use crate::audit::{ConnectionKind, Event, EventDetail, Verdict, WallName};
use crate::policy::Field;
use crate::sidecar::journal::Journal;
use crate::sidecar::root::directory;
use crate::sys::event::event_loop;
use crate::sys::socket;

/// Connections at once, to all sockets; more wait in the kernel. Each has two descriptors and two buffers.
const MOST_CONNECTIONS: usize = 256;
/// The time that a connection costs: in a burst 5,000 of them.
const CONNECTION: Duration = Duration::from_millis(1);
/// For a server whose queue is full.
const DIAL_WITHIN: Duration = Duration::from_secs(10);
/// The pause until it is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// Without a byte, when one side has ended: the other has this time for its last ones.
const LAST_BYTES: Duration = Duration::from_secs(60);
/// Bytes on the way in one direction.
const BUFFER: usize = 16 << 10;

/// A target, and where its directory is.
struct Route {
    target: SocketTarget,
    path: String,
}

/// Serves until the init process or `wrap` has ended.
pub(super) fn run(
    fds: RelayFds,
    sockets: Vec<(OwnedFd, SocketTarget)>,
    journal: Journal,
) -> io::Result<()> {
    let runtime = event_loop()?;
    let log = Rc::new(RelayLog::new(journal));
    let all = Rc::clone(&log);
    runtime.block_on(async move {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        for (index, (listener, target)) in sockets.into_iter().enumerate() {
            let listener = UnixListener::from_std(listener.into())?;
            let path = format!("{}/{}", directory(index), target.name);
            let route = Rc::new(Route { target, path });
            spawn_local(accept(
                listener,
                route,
                Rc::clone(&all),
                Arc::clone(&places),
            ));
        }
        spawn_local(log::keep(Rc::clone(&all)));
        fds.ended().await
    })?;
    // Open connections end here, each with its line.
    drop(runtime);
    log.close();
    Ok(())
}

async fn accept(
    listener: UnixListener,
    route: Rc<Route>,
    log: Rc<RelayLog>,
    places: Arc<Semaphore>,
) {
    loop {
        log.pace(CONNECTION).await;
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        // Each socket waits with a place of its own, which the connections of another do not take.
        let Ok((client, _)) = listener.accept().await else {
            sleep(AGAIN).await;
            continue;
        };
        let (route, log) = (Rc::clone(&route), Rc::clone(&log));
        spawn_local(async move {
            serve(&route, &log, client).await;
            drop(place);
        });
    }
}

async fn serve(route: &Route, log: &RelayLog, mut client: UnixStream) {
    let mut server = match dial(route).await {
        Ok(server) => server,
        Err(error) => return log.write(failed(&route.target, &error)),
    };
    let open = OpenConnection::new(route, log);
    carry(&mut client, &mut server, &open).await;
}

/// Connects to the server, which must be of the same user as at the start.
async fn dial(route: &Route) -> io::Result<UnixStream> {
    let deadline = Instant::now() + DIAL_WITHIN;
    loop {
        match UnixStream::connect(&route.path).await {
            Ok(server) => return of_the_same_user(server, route.target.server),
            // The queue is full (connect(2)).
            Err(error) if is_full(&error) && Instant::now() < deadline => sleep(AGAIN).await,
            Err(error) => return Err(error),
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn of_the_same_user(server: UnixStream, user: u32) -> io::Result<UnixStream> {
    match socket::peer_uid(server.as_fd())? {
        now if now == user => Ok(server),
        now => Err(io::Error::other(format!(
            "the server's user was {user} at the start and is {now}"
        ))),
    }
}

/// Carries bytes until both sides have ended. Only a buffer in each direction waits for a slow side.
async fn carry(client: &mut UnixStream, server: &mut UnixStream, open: &OpenConnection<'_>) {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let mut up = pin!(copy(from_client, to_server, &open.sent));
    let mut down = pin!(copy(from_server, to_client, &open.received));
    let is_up = tokio::select! {
        () = &mut up => true,
        () = &mut down => false,
    };
    loop {
        let before = open.bytes();
        let other = async {
            match is_up {
                true => (&mut down).await,
                false => (&mut up).await,
            }
        };
        let ended = timeout(LAST_BYTES, other).await.is_ok();
        if ended || open.bytes() == before {
            return;
        }
    }
}

/// Copies until the end of the one or the other, and passes the end on.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &Cell<u64>,
) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
        count.set(count.get().saturating_add(length as u64));
    }
    let _gone = to.shutdown().await;
}

/// A connection that is carried. Its end is logged, whatever ends it.
struct OpenConnection<'a> {
    target: &'a SocketTarget,
    log: &'a RelayLog,
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl<'a> OpenConnection<'a> {
    fn new(route: &'a Route, log: &'a RelayLog) -> Self {
        let target = &route.target;
        log.write(event(target, Verdict::Allowed, None));
        Self {
            target,
            log,
            sent: Cell::new(0),
            received: Cell::new(0),
        }
    }

    fn bytes(&self) -> u64 {
        self.sent.get().wrapping_add(self.received.get())
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        let bytes = Some((self.sent.get(), self.received.get()));
        self.log.write(event(self.target, Verdict::Ended, bytes));
    }
}

/// An event of a connection, with the bytes that were sent and received.
fn event(target: &SocketTarget, verdict: Verdict, bytes: Option<(u64, u64)>) -> Event {
    let socket = &target.socket;
    let what = EventDetail::Connection {
        via: Some(ConnectionKind::Socket),
        host: socket.to_string().into(),
        port: None,
        sent: bytes.map(|(sent, _)| sent),
        received: bytes.map(|(_, received)| received),
    };
    Event {
        rule: Some(format!("{}: {socket}", Field::NetworkConnect).into()),
        ..Event::new(WallName::Network, verdict, what)
    }
}

/// One that did not reach the server.
fn failed(target: &SocketTarget, error: &io::Error) -> Event {
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "the socket is gone; restart `wrap` if the server recreated its directory".to_owned()
        }
        _ if error.raw_os_error() == Some(libc::ELOOP) => "it is now a link".to_owned(),
        _ => error.to_string(),
    };
    Event {
        rule: None,
        reason: Some(format!("no server answers at this socket: {why}").into()),
        ..event(target, Verdict::Failed, None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::path::Path;

    use super::super::log::tests::{lines, memory};
    use super::*;
    use crate::audit::Context;

    fn route(path: &Path, server: u32) -> Route {
        Route {
            target: SocketTarget {
                socket: "/run/x/mysqld.sock".parse().unwrap(),
                name: "mysqld.sock".to_owned(),
                server,
            },
            path: path.to_str().unwrap().to_owned(),
        }
    }

    /// What a client gets that sends `hello`, and the log.
    fn asked(route: &Route) -> (String, Vec<Event>) {
        let file = memory();
        let journal = Journal::new(file.try_clone().unwrap().into(), Context::default());
        let runtime = event_loop().unwrap();
        let log = RelayLog::new(journal);
        let said = runtime.block_on(async {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let client = async {
                let _sent = ours.write_all(b"hello").await;
                let _ended = ours.shutdown().await;
                let mut said = String::new();
                let _read = ours.read_to_string(&mut said).await;
                said
            };
            tokio::join!(client, serve(route, &log, theirs)).0
        });
        log.close();
        (said, lines(file))
    }

    #[test]
    fn a_connection_is_dialled_anew_and_only_to_a_server_of_the_same_user() {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        let base = nix::unistd::mkdtemp(&base).unwrap();
        let path = base.join("mysqld.sock");
        let own = rustix::process::geteuid().as_raw();
        let missing = asked(&route(&path, own));
        assert_eq!(
            (missing.0.as_str(), missing.1[0].verdict),
            ("", Verdict::Failed)
        );
        for turn in ["one", "two"] {
            let server = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let serves = std::thread::spawn(move || {
                let (mut client, _) = server.accept().unwrap();
                let mut said = String::new();
                client.read_to_string(&mut said).unwrap();
                client
                    .write_all(format!("{turn}:{said}").as_bytes())
                    .unwrap();
            });
            let (said, events) = asked(&route(&path, own));
            serves.join().unwrap();
            assert_eq!(said, format!("{turn}:hello"));
            let verdicts: Vec<_> = events.iter().map(|event| event.verdict).collect();
            assert_eq!(verdicts, [Verdict::Allowed, Verdict::Ended]);
            let EventDetail::Connection { sent, received, .. } = &events[1].what else {
                panic!("{events:?}");
            };
            assert_eq!((*sent, *received), (Some(5), Some(9)));
            std::fs::remove_file(&path).unwrap();
        }
        let _server = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (said, events) = asked(&route(&path, own + 1));
        assert_eq!((said.as_str(), events[0].verdict), ("", Verdict::Failed));
        let reason = events[0].reason.clone().unwrap_or_default().to_string();
        assert!(reason.contains("the server's user was"), "{reason}");
        std::fs::remove_dir_all(base).unwrap();
    }
}
