//! The host's side: a connection that the sidecar has dialled and carries, in which requests go one after the other.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request as HttpRequest, Response};
use rustls::pki_types::ServerName;
use tokio::net::UnixStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::stream::{Server, Way};
use crate::policy::Host;
use crate::policy::request::Scheme;
use crate::sidecar::tls;

/// How long the host may take to shake hands.
const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// The longest head of an answer, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;

/// Ready to greet hosts by TLS.
pub(super) struct Greetings(TlsConnector);

impl Greetings {
    /// Trusts these certificates (PEM); an error where there is none among them.
    pub fn new(roots: &str) -> Result<Self, String> {
        let mut config = tls::client(roots)?;
        // No answer is a stream of frames that nobody here reads.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with a host, whose certificate must name it. An error says what is wrong with it.
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
pub(super) struct Outside {
    host: Host,
    sender: SendRequest<Incoming>,
}

impl Outside {
    /// Begins to speak to the host over what the sidecar has dialled. An error says what is wrong with the host.
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
        let way: Box<dyn Way> = match scheme {
            Scheme::Http => Box::new(stream),
            Scheme::Https => Box::new(greetings.greet(host, stream).await?),
        };
        let mut builder = http1::Builder::new();
        builder.max_header_size(LONGEST_ANSWER);
        let shaken = builder.handshake(Server::new(way)).await;
        let (sender, connection) = shaken.map_err(|error| broken(&error))?;
        spawn_local(async move {
            // Whoever waits for an answer hears of it; afterwards it concerns nobody.
            let _ended = connection.await;
        });
        let host = host.clone();
        Ok(Self { host, sender })
    }

    /// Whether the next request may go by it too.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request; its answer, once the head of that has come. An error brings the request back where the host has seen
    /// nothing of it.
    pub async fn send(
        &mut self,
        message: HttpRequest<Incoming>,
    ) -> Result<Response<Incoming>, (String, Option<HttpRequest<Incoming>>)> {
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

/// What stands for a body that there is none of.
pub(super) type Words = Full<Bytes>;
