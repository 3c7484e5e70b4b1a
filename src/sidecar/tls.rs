//! TLS client (RFC 8446, RFC 5246): to the upstream proxy, and to hosts of request rules.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// Remembered sessions: there are few servers.
const SESSIONS: usize = 4;

/// A client that trusts these root certificates.
pub(super) fn client(roots: &str) -> Result<ClientConfig, String> {
    let mut store = RootCertStore::empty();
    // A system's store may hold certificates that are malformed by today's rules; the others are used.
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

/// The error in words, without text from the certificate: the container may read it.
pub(super) fn what_is_wrong(error: &std::io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref());
    match tls {
        Some(Error::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer => {
                "is not known: no authority that the node trusts has signed its certificate"
                    .to_owned()
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
