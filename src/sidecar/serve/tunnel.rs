//! A connection that a rule allows: its first bytes are checked as the port requires, then the host is dialled.

use std::pin::pin;

use tokio::net::TcpStream;

use super::admission::AdmittedConnection;
use super::honey::Search;
use super::refusal::Refusal;
use super::relay::relay;
use super::secure::Server;
use super::sniff::{self, UndecidedClient};
use super::stream::{FIRST_BYTES_WITHIN, read_some};
use super::wall::Wall;
use super::watch::{Watch, pass};
use crate::egress::http::{HttpRefusal, RequestGuard};
use crate::egress::words::ContentRefusal;
use crate::rules::Host;

/// HTTPS: the TLS greeting must name the host.
pub(super) const HTTPS: u16 = 443;

/// HTTP: every request must name the host.
pub(super) const HTTP: u16 = 80;

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
    let refused = |refusal: HttpRefusal| Refusal::from(ContentRefusal::Http(refusal));
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
    match tokio::time::timeout(FIRST_BYTES_WITHIN, reading).await {
        Ok(Ok(())) => Ok(out),
        Ok(Err(refusal)) => Err(refusal),
        Err(_) => Err(ContentRefusal::SlowRequest.into()),
    }
}
