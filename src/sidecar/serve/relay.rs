//! Relays bytes both ways, until both sides are done. An idle connection has no buffer: the one buffer belongs to the
//! connection that is being read. A long stream has its own larger buffer, because the size of a read decides the
//! speed. splice(2), which copies nothing, was slower, because it hands over single pages (docs/benchmarks.md). Traffic
//! over TLS goes through `secure`.

use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::net::TcpStream;

use super::long::{self, Flow};
use super::refusal::Refusal;
use super::secure::{self, Server};
use super::share::Share;
use super::stream::{drained, ended, say_end, write_all, write_some};
use super::watch::{Watch, pass};
use crate::sidecar::buffer::{BUFFER, with_buffer};

/// After this many full buffers in a row a stream is long.
const LONG_AFTER: u32 = 4;
/// How long one side may go on after the other has ended.
const AFTER_END: Duration = Duration::from_secs(300);

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
