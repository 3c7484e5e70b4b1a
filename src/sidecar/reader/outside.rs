//! The host's side: a connection that the sidecar dialled and carries, with one request after another.

use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, Connection, Parts, SendRequest};
use hyper::header::UPGRADE;
use hyper::{Request as HttpRequest, Response};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::mcp::SentBody;
use super::stream::{ByteStream, Server};
use super::websocket::SwitchedConnection;
use crate::rules::Host;
use crate::rules::request::Scheme;
use crate::sidecar::tls;

/// The time limit of the host's handshake.
const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// The longest head of an answer, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;

/// The TLS client for hosts.
pub(super) struct Greetings(TlsConnector);

impl Greetings {
    /// Trusts these certificates (PEM); an error if none is usable.
    pub fn new(roots: &str) -> Result<Self, String> {
        let mut config = tls::client(roots)?;
        // No HTTP/2, whose frames the reader does not read.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with a host, whose certificate must name it. The error says what is wrong with it.
    async fn greet(
        &self,
        host: &Host,
        server: UnixStream,
    ) -> Result<TlsStream<UnixStream>, String> {
        let name = match host {
            Host::Address(address) => ServerName::from(*address),
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned())
                .map_err(|_| format!("{host} is not a name that a certificate has"))?,
        };
        match tokio::time::timeout(GREETING_WITHIN, self.0.connect(name, server)).await {
            Ok(greeted) => {
                greeted.map_err(|error| format!("{host} {}", tls::what_is_wrong(&error)))
            }
            Err(_) => Err(format!("{host} does not greet in time (TLS)")),
        }
    }
}

/// A connection to one host. It ends with this value, or when the sidecar ends it.
pub(super) struct HostClient {
    host: Host,
    sender: SendRequest<SentBody>,
    /// Whether the last request asked for another protocol.
    asks: Rc<Cell<bool>>,
    /// The remaining connection, once the host has switched the protocol.
    switched: oneshot::Receiver<SwitchedConnection>,
}

impl HostClient {
    /// Starts HTTP over a connection that the sidecar dialled. The error says what is wrong with the host.
    pub async fn open(
        greetings: &Greetings,
        (host, scheme): (&Host, Scheme),
        stream: OwnedFd,
    ) -> Result<Self, String> {
        let broken = |error: &dyn std::fmt::Display| format!("{host} is not spoken to: {error}");
        let stream = StdStream::from(stream);
        stream
            .set_nonblocking(true)
            .map_err(|error| broken(&error))?;
        let stream = UnixStream::from_std(stream).map_err(|error| broken(&error))?;
        let way: Box<dyn ByteStream> = match scheme {
            Scheme::Http => Box::new(stream),
            Scheme::Https => Box::new(greetings.greet(host, stream).await?),
        };
        let mut builder = http1::Builder::new();
        builder.max_header_size(LONGEST_ANSWER);
        // hyper keeps as much of a body that the host does not read.
        builder.max_buf_size(LONGEST_ANSWER + (16 << 10));
        let shaken = builder.handshake(Server::new(way)).await;
        let (sender, connection) = shaken.map_err(|error| broken(&error))?;
        let asks = Rc::new(Cell::new(false));
        let (tell, switched) = oneshot::channel();
        spawn_local(drive(connection, Rc::clone(&asks), tell));
        Ok(Self {
            host: host.clone(),
            sender,
            asks,
            switched,
        })
    }

    /// Whether the next request may use it too.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// The remaining connection after a switch of the protocol; `None` if it is gone.
    pub async fn switched(self) -> Option<SwitchedConnection> {
        self.switched.await.ok()
    }

    /// Sends a request, and returns its answer once the head is there. The error returns the request if the host has
    /// seen nothing of it.
    pub async fn send(
        &mut self,
        message: HttpRequest<SentBody>,
    ) -> Result<Response<Incoming>, (String, Option<HttpRequest<SentBody>>)> {
        self.asks.set(message.headers().contains_key(UPGRADE));
        let sent = self.sender.try_send_request(message).await;
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            let why = format!(
                "{} ended the connection before its answer: {}",
                self.host,
                error.into_error()
            );
            (why, unsent)
        })
    }
}

/// Drives a connection until one side has nothing more to say.
async fn drive(
    mut connection: Connection<Server, SentBody>,
    asks: Rc<Cell<bool>>,
    switched: oneshot::Sender<SwitchedConnection>,
) {
    let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    // A request that waits for its answer receives the error; later it does not matter.
    if ended.is_err() {
        return;
    }
    let Parts { io, read_buf, .. } = connection.into_parts();
    let (mut way, early) = (io.into_way(), read_buf);
    match asks.get() {
        true => {
            // If no request waits for it, it ends here.
            let _unheard = switched.send(SwitchedConnection { way, early });
        }
        false => {
            let _ended = way.shutdown().await;
        }
    }
}

/// A body made of our own text.
pub(super) type TextBody = Full<Bytes>;
