//! The first bytes of a connection: which host do they name?

use std::io::ErrorKind;

use tokio::net::TcpStream;

use super::accept::read_some;
use super::wall::{FIRST_BYTES_WITHIN, Refusal};
use crate::egress::tls::{self, Greeting, Heard, TlsRefusal};
use crate::policy::HostName;

/// The most that is read before a ClientHello must be complete. With post-quantum key shares they have 2 KiB.
const LONGEST_HELLO: usize = 32 << 10;

/// Reads a ClientHello and makes sure that it names the host. Returns its bytes, to be passed on.
/// `early` came already.
pub(super) async fn client_hello(
    stream: &TcpStream,
    host: &HostName,
    early: Vec<u8>,
) -> Result<Vec<u8>, Refusal> {
    let mut greeting = Greeting::default();
    if greeting.hear(&early, host).map_err(refused)? == Heard::Whole {
        return Ok(early);
    }
    let mut bytes = early;
    let reading = async {
        loop {
            let chunk = match read_some(stream).await {
                Err(Refusal::Broken(ErrorKind::UnexpectedEof)) if !bytes.is_empty() => {
                    return Err(other("the connection ended inside the TLS greeting"));
                }
                // With nothing said it was a port scan, or a connection that was opened ahead and is not needed.
                read => read?,
            };
            bytes.extend_from_slice(&chunk);
            if greeting.hear(&chunk, host).map_err(refused)? == Heard::Whole {
                return Ok(());
            }
            if bytes.len() > LONGEST_HELLO {
                return Err(other("the TLS greeting is too long"));
            }
        }
    };
    match tokio::time::timeout(FIRST_BYTES_WITHIN, reading).await {
        Ok(Ok(())) => Ok(bytes),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(other("the TLS greeting took too long")),
    }
}

/// [`tls::check_if_tls`], as a refusal of the wall's.
pub(super) fn check_if_tls(bytes: &[u8], host: &HostName) -> Result<(), Refusal> {
    tls::check_if_tls(bytes, host).map_err(refused)
}

fn refused(why: TlsRefusal) -> Refusal {
    Refusal::Other(why.to_string())
}

fn other(why: &str) -> Refusal {
    Refusal::Other(why.to_owned())
}
