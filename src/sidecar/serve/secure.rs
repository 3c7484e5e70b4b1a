//! TLS to the node's upstream proxy (RFC 9110, section 4.2.2): one more layer around what goes through it. What a container
//! sends is not decrypted here either.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::refusal::Refusal;
use crate::policy::Host;

use super::relay::{Watch, ended, pass, say_end, write_all};

/// What a TLS record holds (RFC 8446, section 5.1).
const RECORD: usize = 16 << 10;
/// Sessions that are remembered: there are few servers.
const SESSIONS: usize = 4;

/// How the proxy is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// Whom its certificate must name.
    pub name: String,
    /// The certificates that it may be signed by (PEM).
    pub roots: String,
}

/// Ready to greet the proxy.
pub(super) struct Greeter {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Greeter {
    /// An error where there is no certificate to trust.
    pub fn new(tls: &Tls) -> Result<Self, String> {
        let config = client(&tls.roots)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from(tls.name.clone())
                .map_err(|_| format!("{} is not a name that a certificate has", tls.name))?,
        })
    }

    /// Shakes hands. An error says what is wrong with the proxy.
    pub async fn greet(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let greeted = self.connector.connect(self.name.clone(), stream).await;
        greeted.map_err(|error| what_is_wrong(&error))
    }
}

/// Ready to greet the hosts of requests.
pub(super) struct Greetings(TlsConnector);

impl Greetings {
    /// Trusts these certificates (PEM); an error where there is none among them.
    pub fn new(roots: &str) -> Result<Self, String> {
        let mut config = client(roots)?;
        // No answer is a stream of frames that nobody here reads.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with a host, whose certificate must name it. An error says what is wrong with it.
    pub async fn greet(&self, host: &Host, server: Server) -> Result<TlsStream<Server>, String> {
        let name = match host {
            Host::Address(address) => ServerName::from(*address),
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned())
                .map_err(|_| format!("{host} is not a name that a certificate has"))?,
        };
        let greeted = self.0.connect(name, server).await;
        greeted.map_err(|error| format!("{host} {}", what_is_wrong(&error)))
    }
}

/// A client that knows others by these certificates.
fn client(roots: &str) -> Result<ClientConfig, String> {
    let mut store = RootCertStore::empty();
    // A system's store may hold some that are malformed by today's rules: the others count.
    let certificates = CertificateDer::pem_slice_iter(roots.as_bytes());
    store.add_parsable_certificates(certificates.filter_map(Result::ok));
    if store.is_empty() {
        return Err("none of the trusted certificates can be read".to_owned());
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Ok(config)
}

/// In words, without what the certificate says: the container may read it.
pub(super) fn what_is_wrong(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(Error::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer => {
                "is not known: its certificate is signed by nobody whom the node trusts".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "is not known: its certificate is for another name".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "is not known: its certificate has expired".to_owned()
            }
            _ => "is not known: its certificate is not valid".to_owned(),
        },
        Some(Error::InvalidMessage(_)) => "does not speak TLS".to_owned(),
        Some(Error::AlertReceived(alert)) => format!("broke TLS off: {alert:?}"),
        Some(_) => "and the sidecar have no TLS in common".to_owned(),
        None => format!("broke the connection: {}", error.kind()),
    }
}

/// A connection to whoever was allowed.
pub(super) enum Server {
    /// Directly, or through a proxy whose tunnel is as good.
    Plain(TcpStream),
    /// Through a proxy that speaks TLS.
    Secured(Box<TlsStream<TcpStream>>),
}

impl Server {
    /// Writes all of it, waiting where it must.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        match self {
            Self::Plain(stream) => write_all(stream, bytes).await,
            Self::Secured(stream) => {
                stream.write_all(bytes).await.map_err(ended)?;
                stream.flush().await.map_err(ended)
            }
        }
    }
}

impl AsyncRead for Server {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Secured(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Server {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Secured(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secured(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secured(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// What the client says, to its end.
pub(super) async fn seal(
    from: &TcpStream,
    mut to: impl AsyncWrite + Unpin,
    mut watch: Watch,
    mut count: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut buffer = vec![0; RECORD];
    loop {
        from.readable().await.map_err(ended)?;
        let length = match from.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(ended(error)),
        };
        let read = &buffer[..length];
        count(length)?;
        match pass(&mut watch, read)? {
            None => to.write_all(read).await.map_err(ended)?,
            Some(passed) => to.write_all(&passed).await.map_err(ended)?,
        }
        to.flush().await.map_err(ended)?;
    }
    // The proxy may be gone already, and then there is nobody to tell.
    let _told = to.shutdown().await;
    Ok(())
}

/// What comes back, to its end. An end that the proxy did not announce (close_notify) is one as well: many do not, and what
/// goes through a tunnel says itself how long it is, as it must to a proxy without TLS.
pub(super) async fn open(
    mut from: impl AsyncRead + Unpin,
    to: &TcpStream,
    mut watch: Watch,
    mut count: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut buffer = vec![0; RECORD];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(ended(error)),
        };
        count(length)?;
        let read = &buffer[..length];
        match pass(&mut watch, read)? {
            None => write_all(to, read).await?,
            Some(passed) => write_all(to, &passed).await?,
        }
    }
    say_end(to);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_certificate_nobody_is_greeted() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for roots in ["", "no certificate", broken] {
            let tls = Tls {
                name: "proxy.example".to_owned(),
                roots: roots.to_owned(),
            };
            let error = Greeter::new(&tls).err().unwrap();
            assert!(error.contains("none of the trusted"), "{error}");
        }
    }
}
