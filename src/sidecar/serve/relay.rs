//! Relays bytes both ways, until both sides are done. An idle connection has no buffer: the one buffer belongs to the
//! connection that is being read. A long stream has its own larger buffer, because the size of a read decides the
//! speed. splice(2), which copies nothing, was slower, because it hands over single pages (docs/benchmarks.md). Traffic
//! over TLS goes through `secure`.

use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::honey::Search;
use super::live::Share;
use super::long::{self, Flow};
use super::refusal::Refusal;
use super::secure::{self, Server};
use super::sniff::{Answers, Greeter, SniffResult, SniffStep, UndecidedClient};
use crate::egress::http::RequestGuard;
use crate::sidecar::buffer::{BUFFER, with_buffer};

/// After this many full buffers in a row a stream is long.
const LONG_AFTER: u32 = 4;
/// How long one side may go on after the other has ended.
const AFTER_END: Duration = Duration::from_secs(300);

/// What is still checked in the client's bytes.
#[derive(Debug)]
pub(super) enum Watch {
    /// Nothing more.
    Nothing,
    /// Every request.
    Http(Box<RequestGuard>),
    /// The first bytes, which may be TLS.
    First(Box<UndecidedClient>),
    /// Every greeting, until the server has answered.
    Tls(Box<Greeter>),
    /// The server's side of these two.
    Answers(Box<Answers>),
    /// Honey values in plain bytes, besides the rest.
    Searched(Box<(Watch, Search)>),
}

impl Watch {
    /// Also searches for honey values, if there are any.
    pub fn searched(self, search: Search) -> Self {
        match search.is_idle() {
            true => self,
            false => Self::Searched(Box::new((self, search))),
        }
    }

    /// The check of the server's bytes.
    fn other_side(&self) -> Self {
        let answered = match self {
            Self::First(first) => first.answered(),
            Self::Tls(greeter) => greeter.answered(),
            Self::Searched(both) => return both.0.other_side(),
            Self::Nothing | Self::Http(_) | Self::Answers(_) => return Self::Nothing,
        };
        Self::Answers(Box::new(Answers::new(Rc::clone(answered))))
    }
}

/// Relays until both directions have ended, or one is refused.
pub(super) async fn relay(
    client: &TcpStream,
    server: Server,
    watch: Watch,
    share: &Share<'_>,
) -> Result<(), Refusal> {
    let sent = |bytes| share.send(bytes).map_err(Refusal::Over);
    let received = |bytes| {
        share.receive(bytes);
        Ok(())
    };
    let back = watch.other_side();
    match server {
        Server::Plain(server) => {
            let one_has_ended = Cell::new(false);
            // The last side to end needs no message: both connections are closed then.
            let tell = |to: &TcpStream| {
                if !one_has_ended.replace(true) {
                    say_end(to);
                }
            };
            let up = async {
                pump(client, &server, watch, sent).await?;
                tell(&server);
                Ok(())
            };
            let down = async {
                pump(&server, client, back, received).await?;
                tell(client);
                Ok(())
            };
            both(pin!(up), pin!(down)).await
        }
        Server::Secured(stream) => {
            let (from, to) = tokio::io::split(stream);
            let up = secure::seal(client, to, watch, sent);
            let down = secure::open(from, client, back, received);
            both(Box::pin(up).as_mut(), Box::pin(down).as_mut()).await
        }
    }
}

/// Waits until both have ended, one has failed, or one has ended long before the other.
async fn both(
    mut up: Pin<&mut impl Future<Output = Result<(), Refusal>>>,
    mut down: Pin<&mut impl Future<Output = Result<(), Refusal>>>,
) -> Result<(), Refusal> {
    let (first, up_is_left) = tokio::select! {
        ended = &mut up => (ended, false),
        ended = &mut down => (ended, true),
    };
    first?;
    let rest = async {
        match up_is_left {
            true => up.await,
            false => down.await,
        }
    };
    match tokio::time::timeout(AFTER_END, rest).await {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}

/// Relays one direction to its end. The caller must still tell the other side.
pub(super) async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    mut watch: Watch,
    mut count: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut full = 0;
    loop {
        match step(from, to, &mut watch, &mut count).await? {
            RelayPiece::Moved(length) if length == BUFFER => full += 1,
            RelayPiece::Moved(_) => full = 0,
            RelayPiece::End => break,
        }
        if full >= LONG_AFTER {
            full = 0;
            // Lets other connections run: the sender may be as fast as this.
            tokio::task::yield_now().await;
            let plain = matches!(watch, Watch::Nothing);
            if plain && Box::pin(long::pump(from, to, &mut count)).await? == Flow::Ended {
                break;
            }
        }
    }
    Ok(())
}

pub(super) fn say_end(to: &TcpStream) {
    // The other side may be gone already.
    let _told = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
}

/// The result of one read.
enum RelayPiece {
    Moved(usize),
    End,
}

async fn step(
    from: &TcpStream,
    to: &TcpStream,
    watch: &mut Watch,
    count: &mut impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<RelayPiece, Refusal> {
    loop {
        from.readable().await.map_err(ended)?;
        let moved = with_buffer(|buffer| {
            let length = match from.try_read(buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(ended(error)),
            };
            if length == 0 {
                return Ok(Some((0, Vec::new())));
            }
            if length < buffer.len() {
                drained(from);
            }
            count(length)?;
            let left = match pass(watch, &buffer[..length])? {
                None => write_some(to, &buffer[..length])?,
                Some(passed) => write_some(to, &passed)?,
            };
            Ok(Some((length, left)))
        })?;
        match moved {
            None => {}
            Some((0, _)) => return Ok(RelayPiece::End),
            Some((length, left)) => {
                write_all(to, &left).await?;
                return Ok(RelayPiece::Moved(length));
            }
        }
    }
}

/// Tells tokio that there is nothing more to read for now, as its own reads do after a short one. Otherwise each
/// message costs another recv(2) without data. A known end stays known.
pub(super) fn drained(stream: &TcpStream) {
    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _said = stream.try_io(Interest::READABLE, nothing);
}

/// Checks these bytes, and returns those to send on; `None`: all of them, unchanged.
pub(super) fn pass(watch: &mut Watch, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    match watch {
        Watch::Nothing => Ok(None),
        Watch::Searched(both) => {
            let (inner, search) = &mut **both;
            search.look(bytes)?;
            let is_tls = matches!(inner, Watch::Tls(_));
            let passed = pass(inner, bytes)?;
            if let Watch::Tls(greeter) = inner {
                search.look_at(&greeter.take_greetings())?;
            }
            if is_tls && matches!(inner, Watch::Nothing) {
                // From here on the bytes are encrypted.
                *watch = Watch::Nothing;
            }
            Ok(passed)
        }
        Watch::Http(guard) => {
            let mut out = Vec::new();
            guard
                .feed(bytes, &mut out)
                .map_err(|refusal| Refusal::Other(refusal.to_string()))?;
            Ok(Some(out))
        }
        Watch::Tls(greeter) => match greeter.feed(bytes)? {
            SniffStep::Watched(out) => Ok(Some(out)),
            SniffStep::Free(out) => {
                *watch = Watch::Nothing;
                Ok(Some(out))
            }
        },
        Watch::Answers(answers) => {
            if answers.feed(bytes) {
                *watch = Watch::Nothing;
            }
            Ok(None)
        }
        Watch::First(_) => {
            let Watch::First(first) = std::mem::replace(watch, Watch::Nothing) else {
                return Ok(None);
            };
            match first.judge(bytes)? {
                SniffResult::Free => Ok(None),
                SniffResult::Open(first) => {
                    *watch = Watch::First(Box::new(first));
                    Ok(None)
                }
                SniffResult::Tls(greeter) => {
                    *watch = Watch::Tls(Box::new(greeter));
                    pass(watch, bytes)
                }
            }
        }
    }
}

/// Writes as much as possible at once, and returns the rest.
fn write_some(to: &TcpStream, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    match to.try_write(bytes) {
        Ok(written) => Ok(bytes[written..].to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(bytes.to_vec()),
        Err(error) => Err(ended(error)),
    }
}

/// Writes everything, and waits if necessary.
pub(super) async fn write_all(to: &TcpStream, bytes: &[u8]) -> Result<(), Refusal> {
    write_pieces(to, bytes, || Ok(())).await
}

/// The same, with a call of `gone` after each piece.
pub(super) async fn write_pieces(
    to: &TcpStream,
    mut bytes: &[u8],
    mut gone: impl FnMut() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => {
                bytes = &bytes[written..];
                gone()?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                to.writable().await.map_err(ended)?;
            }
            Err(error) => return Err(ended(error)),
        }
    }
    Ok(())
}

/// A broken connection has ended; that is no violation.
pub(super) fn ended(error: io::Error) -> Refusal {
    Refusal::Broken(error.kind())
}
