//! TLS to the upstream proxy (RFC 9110, section 4.2.2): one more layer around its tunnels. Here too, what a
//! container sends is not decrypted.

use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::refusal::Refusal;
use super::stream::{ended, say_end, write_all};
use super::watch::{Watch, pass};
use crate::sidecar::tls::{client, what_is_wrong};

/// Bytes of a TLS record (RFC 8446, section 5.1).
const RECORD: usize = 16 << 10;

/// How to verify the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// The name that its certificate must have.
    pub name: String,
    /// The certificates that may have signed it (PEM).
    pub roots: String,
}

/// The TLS client for the proxy.
pub(super) struct Greeter {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Greeter {
    /// An error if there is no certificate to trust.
    pub fn new(tls: &Tls) -> Result<Self, String> {
        let config = client(&tls.roots)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from(tls.name.clone())
                .map_err(|_| format!("{} is not a name that a certificate has", tls.name))?,
        })
    }

    /// Shakes hands. The error says what is wrong with the proxy.
    pub async fn greet(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let greeted = self.connector.connect(self.name.clone(), stream).await;
        greeted.map_err(|error| what_is_wrong(&error))
    }
}

/// A connection to an allowed host.
pub(super) enum Server {
    /// Direct, or through a proxy's plain tunnel.
    Plain(TcpStream),
    /// Through a proxy that speaks TLS.
    Secured(Box<TlsStream<TcpStream>>),
}

impl Server {
    /// Writes everything, and waits if necessary.
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

/// Relays the client's bytes to their end.
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
    // The proxy may be gone already.
    let _told = to.shutdown().await;
    Ok(())
}

/// Relays the server's bytes to their end. An end without close_notify counts too: many proxies omit it, and the
/// tunnelled data tells its own length, as it must without TLS.
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
    fn without_a_certificate_no_proxy_is_trusted() {
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
