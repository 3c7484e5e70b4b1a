//! Reading from and writing to a TCP stream, and its end. Nothing here knows of rules.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::refusal::Refusal;
use crate::sidecar::buffer::with_buffer;

/// The time limit for a client's first bytes.
pub(super) const FIRST_BYTES_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of one read while a connection begins.
const CHUNK: usize = 4096;

/// The time limit for one address to accept.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A connection to one address, or why there is none.
pub(super) async fn connect(to: SocketAddr) -> Result<TcpStream, String> {
    match tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(to)).await {
        Ok(Ok(stream)) => {
            // Small requests leave at once. If it fails, they leave a little later.
            let _no_delay = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not answer in time".to_owned()),
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

/// Tells tokio that there is nothing more to read for now, as its own reads do after a short one. Otherwise each
/// message costs another recv(2) without data. A known end stays known.
pub(super) fn drained(stream: &TcpStream) {
    let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _said = stream.try_io(Interest::READABLE, nothing);
}

/// Writes as much as possible at once, and returns the rest.
pub(super) fn write_some(to: &TcpStream, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
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

pub(super) fn say_end(to: &TcpStream) {
    // The other side may be gone already.
    let _told = rustix::net::shutdown(to, rustix::net::Shutdown::Write);
}

/// A broken connection has ended; that is no violation.
pub(super) fn ended(error: io::Error) -> Refusal {
    Refusal::Broken(error.kind())
}

/// Closes with a reset: an ordinary end could look like an answer.
pub(super) fn reset(stream: &TcpStream) {
    let _linger = set_socket_linger(stream, Some(Duration::ZERO));
}

/// The word under which unreadable requests are counted.
pub(super) const MALFORMED: &str = "malformed-request";

/// Why a silent client is given up.
pub(super) const SILENT: &str = "no request came within ten seconds";
