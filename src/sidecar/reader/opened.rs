//! A client's TLS, opened: the reader answers in the host's place, with a certificate of the container's own authority.

use std::io;
use std::time::Duration;

use rustls::server::Acceptor;
use rustls::{AlertDescription, Error};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::authority::Opener;
use super::stream::ClientStream;
use crate::rules::Host;

/// The time limit of the client's handshake.
const GREETING_WITHIN: Duration = Duration::from_secs(10);

/// Shakes hands with a client that means this host. The error is for the log; the client sees a connection that ends.
pub(super) async fn open(
    opener: &Opener,
    host: &Host,
    client: ClientStream,
) -> Result<TlsStream<ClientStream>, String> {
    let greeting = async {
        let acceptor = LazyConfigAcceptor::new(Acceptor::default(), client);
        let start = acceptor.await.map_err(|error| why(&error))?;
        let named = start.client_hello().server_name().map(str::to_owned);
        if let Some(named) = named.filter(|named| !is_it(host, named)) {
            let named = crate::text::shown(&named);
            return Err(format!(
                "its TLS greeting names {named}, and the connection is to {host}"
            ));
        }
        let config = opener.greeting(host)?;
        start.into_stream(config).await.map_err(|error| why(&error))
    };
    match tokio::time::timeout(GREETING_WITHIN, greeting).await {
        Ok(greeted) => greeted,
        Err(_) => Err("its TLS greeting took too long".to_owned()),
    }
}

fn is_it(host: &Host, named: &str) -> bool {
    named.parse::<Host>().is_ok_and(|named| named == *host)
}

/// Why the client ended the connection, if it sent a TLS alert; `None` for an ordinary end.
pub(super) fn complaint(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref()? {
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate,
        ) => Some(
            "the program does not trust the certificate of this container's own authority: it has a list of its own, or pins its \
             host's (docs/network.md#opened-tls)"
                .to_owned(),
        ),
        Error::AlertReceived(AlertDescription::CloseNotify | AlertDescription::UserCanceled) => None,
        Error::AlertReceived(alert) => Some(format!("the program broke TLS off: {alert:?}")),
        _ => None,
    }
}

/// The same for the end of a conversation.
pub(super) fn of_end(error: &hyper::Error) -> Option<String> {
    let error = std::error::Error::source(error)?;
    complaint(error.downcast_ref()?)
}

/// The same for a handshake, whose end is never ordinary.
fn why(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    complaint(error).unwrap_or_else(|| match tls {
        Some(Error::NoApplicationProtocol) => {
            "the program speaks HTTP/2 alone, and opened TLS has HTTP/1.1".to_owned()
        }
        Some(_) => "the program and the wall have no TLS in common".to_owned(),
        None => format!("its TLS greeting is none, or ended: {}", error.kind()),
    })
}
