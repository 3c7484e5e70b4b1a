//! The explicit proxy: HTTP's CONNECT and http:// requests. A first byte of 5 is SOCKS5's.

use std::pin::pin;
use std::rc::Rc;

use tokio::net::TcpStream;

use super::answer::{self, last_words, respond};
use super::notes::refuse;
use super::refusal::Refusal;
use super::relay::relay;
use super::stream::{FIRST_BYTES_WITHIN, MALFORMED, SILENT, read_some, reset, write_all};
use super::tunnel::{HTTPS, tunnel};
use super::wall::Wall;
use super::watch::Watch;
use super::{dns, requests, socks};
use crate::audit::ConnectionKind;
use crate::egress::http::{self, Body, HttpRefusal, Pieces, ProxyRequest, RequestGuard};
use crate::egress::phrase::RefusalExplanation;
use crate::egress::words::ContentRefusal;
use crate::rules::Host;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one connection of the proxy's port.
pub(super) async fn serve(wall: &Rc<Wall>, stream: TcpStream) {
    let first = tokio::time::timeout(FIRST_BYTES_WITHIN, read_some(&stream)).await;
    let Ok(Ok(first)) = first else {
        if first.is_err() {
            wall.note(ConnectionKind::Http, "", None, MALFORMED, SILENT);
        }
        reset(&stream);
        return;
    };
    if first.first() == Some(&crate::egress::socks::VERSION) {
        socks::serve(wall, &stream, first).await;
    } else {
        http(wall, &stream, first).await;
    }
}

/// A request as received: the request itself, the kind of its body, and the bytes after it.
struct ReceivedRequest {
    request: ProxyRequest,
    body: Body,
    /// The head as it came.
    head: Vec<u8>,
    early: Vec<u8>,
    /// The honey value in it, if there is one.
    caught: Result<(), Refusal>,
}

async fn http(wall: &Rc<Wall>, stream: &TcpStream, first: Vec<u8>) {
    let wish = match tokio::time::timeout(FIRST_BYTES_WITHIN, read_wish(wall, stream, first)).await
    {
        Ok(Ok(wish)) => wish,
        Ok(Err(Refusal::Content(refusal))) => {
            // The bytes are no request, or an ambiguous one.
            let why = refusal.to_string();
            wall.note(ConnectionKind::Http, "", None, MALFORMED, &why);
            respond(stream, 400, &RefusalExplanation::new(why)).await;
            return;
        }
        Ok(Err(caught @ Refusal::Honey(_))) => {
            wall.note_honey(ConnectionKind::Http, "", &caught);
            respond(
                stream,
                403,
                &RefusalExplanation::new(caught.for_container()),
            )
            .await;
            return;
        }
        Err(_) => {
            wall.note(ConnectionKind::Http, "", None, MALFORMED, SILENT);
            reset(stream);
            return;
        }
        // A client that is gone needs no reset.
        Ok(Err(_)) => {
            reset(stream);
            return;
        }
    };
    let (host, port) = match &wish.request {
        ProxyRequest::Refusals => return show(wall, stream).await,
        ProxyRequest::Tunnel(host, port) | ProxyRequest::Forward(host, port, _) => {
            (dns::meant_host(wall, host), *port)
        }
    };
    if let Err(caught) = &wish.caught {
        refuse(wall, stream, ConnectionKind::Http, &host, port, caught);
        return answer::answer(wall, stream, &host, port, caught).await;
    }
    if let ProxyRequest::Forward(..) = &wish.request
        && wall.rules().plain_way(&host, port).is_some()
    {
        let early = [wish.head, wish.early].concat();
        let (how, to) = (
            (requests::ClientRoute::Proxy, ConnectionKind::Http),
            (&host, port),
        );
        return Box::pin(requests::serve(wall, stream, how, to, &early)).await;
    }
    if let ProxyRequest::Tunnel(..) = &wish.request
        && wall.opens(&host)
        && requests::are_read(wall, &host, port)
    {
        if write_all(stream, ESTABLISHED).await.is_err() {
            return reset(stream);
        }
        let (how, to) = (
            (requests::ClientRoute::Direct, ConnectionKind::Http),
            (&host, port),
        );
        return Box::pin(requests::serve(wall, stream, how, to, &wish.early)).await;
    }
    if let Err((refusal, answered)) = grant(wall, stream, &host, port, wish).await {
        refuse(wall, stream, ConnectionKind::Http, &host, port, &refusal);
        if answered {
            reset(stream);
        } else {
            answer::answer(wall, stream, &host, port, &refusal).await;
        }
    }
}

/// Answers with the network's denials, if the container may read them.
async fn show(wall: &Wall, stream: &TcpStream) {
    let Some(text) = wall.shown() else {
        let why = "this is a proxy; it lists denials if report.denied = \"on\"";
        respond(stream, 404, &RefusalExplanation::new(why)).await;
        return;
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        text.len()
    );
    last_words(stream, &[head.as_bytes(), text.as_bytes()].concat()).await;
}

/// The result of a parser; if it fails, a found honey value is the reason.
fn read<T>(read: Result<T, HttpRefusal>, caught: &Result<(), Refusal>) -> Result<T, Refusal> {
    read.map_err(|refusal| match caught {
        Err(caught) => caught.clone(),
        Ok(()) => ContentRefusal::Http(refusal).into(),
    })
}

async fn read_wish(
    wall: &Wall,
    stream: &TcpStream,
    mut bytes: Vec<u8>,
) -> Result<ReceivedRequest, Refusal> {
    let mut search = wall.traps.search();
    let mut caught = search.look(&bytes);
    let mut pieces = Pieces::default();
    loop {
        if let Some(due) = pieces.due(&bytes)
            && let Some(head) = read(http::head(&bytes[..due]), &caught)?
        {
            let request = read(http::proxy_request(&head), &caught)?;
            let (length, body) = (head.len, head.body);
            if let ProxyRequest::Tunnel(host, _) | ProxyRequest::Forward(host, ..) = &request {
                caught = caught.and_then(|()| wall.traps.look_at_host(host));
            }
            let early = bytes.split_off(length);
            return Ok(ReceivedRequest {
                request,
                body,
                early,
                head: bytes,
                caught,
            });
        }
        let more = read_some(stream).await?;
        caught = caught.and_then(|()| search.look(&more));
        bytes.extend(more);
    }
}

/// Serves the request. The error says whether the client has already had its answer.
async fn grant(
    wall: &Wall,
    stream: &TcpStream,
    host: &Host,
    port: u16,
    wish: ReceivedRequest,
) -> Result<(), (Refusal, bool)> {
    let not_yet = |refusal| (refusal, false);
    if let (ProxyRequest::Forward(..), Host::Name(_), HTTPS) = (&wish.request, host, port) {
        return Err(not_yet(ContentRefusal::PlainOnHttps.into()));
    }
    let (admitted, mut server) = wall.connect(stream, host, port).await.map_err(not_yet)?;
    let ReceivedRequest {
        request,
        body,
        early,
        head: _,
        caught: _,
    } = wish;
    match request {
        // Answered already.
        ProxyRequest::Refusals => Ok(()),
        ProxyRequest::Tunnel(..) => {
            write_all(stream, ESTABLISHED).await.map_err(not_yet)?;
            tunnel(wall, stream, admitted, early, Some(server))
                .await
                .map_err(|refusal| (refusal, true))
        }
        ProxyRequest::Forward(_, _, head) => {
            let mut out = head;
            let mut watch = Watch::Nothing;
            if let Host::Name(name) = host {
                let mut guard = RequestGuard::after_head(name.clone(), port, body);
                guard
                    .feed(&early, &mut out)
                    .map_err(|refusal| not_yet(ContentRefusal::Http(refusal).into()))?;
                watch = Watch::Http(Box::new(guard));
            } else {
                out.extend(early);
            }
            let mut search = wall.traps.search();
            search.look(&out).map_err(not_yet)?;
            let watch = watch.searched(search);
            let share = admitted.share;
            share
                .send(out.len())
                .map_err(|over| not_yet(Refusal::Over(over)))?;
            server.write_all(&out).await.map_err(not_yet)?;
            share
                .while_allowed(pin!(relay(stream, server, watch, &share)))
                .await
                .map_err(|refusal| (refusal, true))
        }
    }
}
