//! SOCKS5 (RFC 1928), only CONNECT. Names are resolved here and never inside.

use std::rc::Rc;

use tokio::net::TcpStream;

use super::notes::refuse;
use super::refusal::Refusal;
use super::stream::{FIRST_BYTES_WITHIN, MALFORMED, SILENT, read_some, reset, write_all};
use super::tunnel::tunnel;
use super::wall::Wall;
use super::{dns, requests};
use crate::audit::ConnectionKind;
use crate::egress::socks::{NO_AUTHENTICATION, NOT_ALLOWED, VERSION, methods, request};
use crate::rules::Host;

/// Replies (sections 3 and 6).
const NONE_ACCEPTABLE: u8 = 0xff;
const SUCCEEDED: u8 = 0;
const UNREACHABLE: u8 = 4;

/// Serves one connection with these first bytes.
pub(super) async fn serve(wall: &Rc<Wall>, stream: &TcpStream, first: Vec<u8>) {
    let greeting = tokio::time::timeout(FIRST_BYTES_WITHIN, converse(wall, stream, first)).await;
    let SocksRequest { host, port, early } = match greeting {
        Ok(Ok(wish)) => wish,
        Ok(Err(())) => {
            reset(stream);
            return;
        }
        Err(_) => {
            wall.note(ConnectionKind::Socks, "", None, MALFORMED, SILENT);
            reset(stream);
            return;
        }
    };
    let host = dns::meant_host(wall, &host);
    if wall.opens(&host) && requests::are_read(wall, &host, port) {
        reply(stream, SUCCEEDED).await;
        let (how, to) = (
            (requests::ClientRoute::Direct, ConnectionKind::Socks),
            (&host, port),
        );
        return Box::pin(requests::serve(wall, stream, how, to, &early)).await;
    }
    let outcome = grant(wall, stream, &host, port, early).await;
    if let Err((refusal, answered)) = outcome {
        refuse(wall, stream, ConnectionKind::Socks, &host, port, &refusal);
        if !answered {
            let code = match refusal.is_violation() {
                true => NOT_ALLOWED,
                false => UNREACHABLE,
            };
            reply(stream, code).await;
        } else {
            reset(stream);
        }
    }
}

async fn grant(
    wall: &Wall,
    stream: &TcpStream,
    host: &Host,
    port: u16,
    early: Vec<u8>,
) -> Result<(), (Refusal, bool)> {
    let not_yet = |refusal| (refusal, false);
    let (admitted, server) = wall.connect(stream, host, port).await.map_err(not_yet)?;
    reply(stream, SUCCEEDED).await;
    tunnel(wall, stream, admitted, early, Some(server))
        .await
        .map_err(|refusal| (refusal, true))
}

/// The destination that a client requests, and the bytes after its request.
struct SocksRequest {
    host: Host,
    port: u16,
    early: Vec<u8>,
}

/// Reads the greeting and the request, and answers the greeting.
async fn converse(wall: &Wall, stream: &TcpStream, mut bytes: Vec<u8>) -> Result<SocksRequest, ()> {
    let methods = loop {
        match methods(&bytes) {
            Ok(Some((acceptable, length))) => {
                bytes.drain(..length);
                break acceptable;
            }
            Ok(None) => bytes.extend(read_some(stream).await.map_err(drop)?),
            Err(_) => {
                let why = "not a SOCKS5 greeting";
                wall.note(ConnectionKind::Socks, "", None, MALFORMED, why);
                return Err(());
            }
        }
    };
    let method = match methods {
        true => NO_AUTHENTICATION,
        false => NONE_ACCEPTABLE,
    };
    write_all(stream, &[VERSION, method]).await.map_err(drop)?;
    if !methods {
        let why = "the SOCKS5 client offers no way without a login";
        wall.note(ConnectionKind::Socks, "", None, MALFORMED, why);
        return Err(());
    }
    loop {
        match request(&bytes) {
            Ok(Some(((host, port), length))) => {
                bytes.drain(..length);
                if let Err(caught) = wall.traps.look_at_host(&host) {
                    wall.note_refusal(ConnectionKind::Socks, &host, Some(port), &caught);
                    reply(stream, NOT_ALLOWED).await;
                    return Err(());
                }
                return Ok(SocksRequest {
                    host,
                    port,
                    early: bytes,
                });
            }
            Ok(None) => bytes.extend(read_some(stream).await.map_err(drop)?),
            Err(code) => {
                wall.note(
                    ConnectionKind::Socks,
                    "",
                    None,
                    MALFORMED,
                    "only CONNECT of SOCKS5 is supported, for a name or an address",
                );
                reply(stream, code).await;
                return Err(());
            }
        }
    }
}

/// Sends a reply without a bound address.
async fn reply(stream: &TcpStream, code: u8) {
    let bytes = [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0];
    // A client that does not read the answer does not need it.
    let _sent = tokio::time::timeout(FIRST_BYTES_WITHIN, write_all(stream, &bytes)).await;
}
