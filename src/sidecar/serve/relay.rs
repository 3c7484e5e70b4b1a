//! Bytes both ways, until both sides are done. While nothing flows a connection costs no buffer: the one buffer there
//! is belongs to whoever is reading. A long stream has a larger one of its own, for what counts is how much goes at once:
//! splice(2), which copies nothing, was slower, since it hands the socket single pages (docs/benchmarks.md). What goes by
//! TLS is another matter: `secure`.

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

use super::live::Share;
use super::secure::{self, Server};
use super::sniff;
use super::wall::Refusal;
use crate::egress::http::RequestGuard;
use crate::policy::HostName;

/// The one buffer.
const BUFFER: usize = 64 << 10;
/// Full buffers in a row after which a stream is long.
const LONG_AFTER: u32 = 4;
/// What a long stream moves at once.
const LARGE: usize = 512 << 10;
/// Streams that have a large buffer; further ones use the one that all share, so that memory is bounded.
const MOST_LARGE: usize = 8;
/// How long a stream that has paused keeps its large buffer.
const PAUSE: Duration = Duration::from_millis(20);
/// How long one side may go on after the other has ended.
const AFTER_END: Duration = Duration::from_secs(300);

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
    static LENT: Cell<usize> = const { Cell::new(0) };
}

/// What is still looked at in what the client sends.
#[derive(Debug)]
pub(super) enum Watch {
    /// Nothing more.
    Nothing,
    /// Every request.
    Http(Box<RequestGuard>),
    /// The first bytes: if they are TLS's, they must name this host.
    First(HostName),
}

/// Relays until both directions have ended, or one may not go on.
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
    match server {
        Server::Plain(server) => {
            let up = pump(client, &server, watch, sent);
            both(up, pump(&server, client, Watch::Nothing, received)).await
        }
        Server::Secured(stream) => {
            let (from, to) = tokio::io::split(stream);
            let up = secure::seal(client, to, watch, sent);
            both(up, secure::open(from, client, received)).await
        }
    }
}

/// Until both have ended, one of them badly, or one long before the other.
async fn both(
    up: impl Future<Output = Result<(), Refusal>>,
    down: impl Future<Output = Result<(), Refusal>>,
) -> Result<(), Refusal> {
    tokio::pin!(up, down);
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

/// One direction, to its end; then the other side is told.
pub(super) async fn pump(
    from: &TcpStream,
    to: &TcpStream,
    mut watch: Watch,
    mut count: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut full = 0;
    loop {
        match step(from, to, &mut watch, &mut count).await? {
            Step::Moved(length) if length == BUFFER => full += 1,
            Step::Moved(_) => full = 0,
            Step::End => break,
        }
        if full >= LONG_AFTER {
            full = 0;
            // Others have connections too, and a sender may be as fast as this.
            tokio::task::yield_now().await;
            let plain = matches!(watch, Watch::Nothing);
            if plain && pump_long(from, to, &mut count).await? == Flow::Ended {
                break;
            }
        }
    }
    say_end(to);
    Ok(())
}

pub(super) fn say_end(to: &TcpStream) {
    // The other side may be gone already, and then there is nobody to tell.
    let _told = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
}

enum Step {
    Moved(usize),
    End,
}

async fn step(
    from: &TcpStream,
    to: &TcpStream,
    watch: &mut Watch,
    count: &mut impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Step, Refusal> {
    loop {
        from.readable().await.map_err(ended)?;
        let moved = SHARED.with_borrow_mut(|buffer| {
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
            Some((0, _)) => return Ok(Step::End),
            Some((length, left)) => {
                write_all(to, &left).await?;
                return Ok(Step::Moved(length));
            }
        }
    }
}

/// Tells tokio that there is nothing more to read for now, as its own reads do after a short one: without that each
/// message costs another recv(2), which says so. An end that is known already stays known.
fn drained(stream: &TcpStream) {
    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _said = stream.try_io(Interest::READABLE, nothing);
}

/// What of these bytes goes on: `None` for all of them as they are.
pub(super) fn pass(watch: &mut Watch, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    match watch {
        Watch::Nothing => Ok(None),
        Watch::Http(guard) => {
            let mut out = Vec::new();
            guard
                .feed(bytes, &mut out)
                .map_err(|refusal| Refusal::Other(refusal.to_string()))?;
            Ok(Some(out))
        }
        Watch::First(host) => {
            sniff::check_if_tls(bytes, host)?;
            *watch = Watch::Nothing;
            Ok(None)
        }
    }
}

/// Writes what goes at once and returns the rest.
fn write_some(to: &TcpStream, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    match to.try_write(bytes) {
        Ok(written) => Ok(bytes[written..].to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(bytes.to_vec()),
        Err(error) => Err(ended(error)),
    }
}

/// Writes all of it, waiting where it must.
pub(super) async fn write_all(to: &TcpStream, bytes: &[u8]) -> Result<(), Refusal> {
    write_pieces(to, bytes, || Ok(())).await
}

/// Likewise, and says so whenever a piece has gone.
async fn write_pieces(
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

/// A connection that broke is over; that is no violation.
pub(super) fn ended(error: io::Error) -> Refusal {
    Refusal::Broken(error.kind())
}

#[derive(PartialEq, Eq)]
enum Flow {
    Paused,
    Ended,
}

/// A buffer that few have at a time.
struct Large(Vec<u8>);

impl Large {
    fn take() -> Option<Self> {
        let lent = LENT.get();
        (lent < MOST_LARGE).then(|| {
            LENT.set(lent + 1);
            Self(vec![0; LARGE])
        })
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        LENT.set(LENT.get().saturating_sub(1));
    }
}

/// Moves much at once, until the sender pauses, ends or has little to say.
async fn pump_long(
    from: &TcpStream,
    to: &TcpStream,
    count: &mut impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Flow, Refusal> {
    let Some(mut buffer) = Large::take() else {
        return Ok(Flow::Paused);
    };
    loop {
        match tokio::time::timeout(PAUSE, from.readable()).await {
            Ok(ready) => ready.map_err(ended)?,
            Err(_) => return Ok(Flow::Paused),
        }
        let length = match from.try_read(&mut buffer.0) {
            Ok(0) => return Ok(Flow::Ended),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(ended(error)),
        };
        count(length)?;
        // Counted again with each piece: it moves, if slowly.
        write_pieces(to, &buffer.0[..length], || count(0)).await?;
        if length < BUFFER {
            return Ok(Flow::Paused);
        }
        // Others have connections too.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::{LENT, Large, MOST_LARGE};

    #[test]
    fn few_have_a_large_buffer_and_every_one_comes_back() {
        for _ in 0..2 {
            let mut lent: Vec<Large> = std::iter::from_fn(Large::take).collect();
            assert_eq!(lent.len(), MOST_LARGE);
            assert!(lent.pop().is_some() && Large::take().is_some());
        }
        assert_eq!(LENT.get(), 0);
    }
}
