//! The certificate authority of one container: made at `create`, not shared, and gone with the reader.
//!
//! The container trusts its certificate, which is only valid for the names of request rules (RFC 5280, section
//! 4.2.1.10). Its key exists only in the reader's memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, Error,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerSessionMemoryCache;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::rules::{Host, RuleTarget, TlsHosts};

/// Its name, for people who inspect a certificate.
const NAME: &str = "agentbox, for this container alone";
/// The longest life of a container.
const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Clocks differ.
const BEFORE: Duration = Duration::from_secs(86_400);
/// Hosts whose certificates are kept. A wildcard rule covers more.
const KEPT: usize = 256;
/// Resumable sessions of a host.
const SESSIONS: usize = 32;
/// The longest common name (RFC 5280, appendix A.1), in characters.
const LONGEST_NAME: usize = 64;

/// The key of a container's authority, wiped on drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authority(String);

impl Drop for Authority {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// A new authority for these hosts, and its certificate (PEM).
    pub fn make(opened: &TlsHosts) -> Result<(Self, String), Error> {
        let key = KeyPair::generate()?;
        let mut params = of_authority();
        params.serial_number = Some(serial()?);
        params.name_constraints = constraints(opened);
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - BEFORE).into(), (now + YEARS).into());
        let certificate = params.self_signed(&key)?;
        let kept = Self(BASE64.encode(key.serialized_der()));
        Ok((kept, pem(certificate.der())))
    }

    fn key(&self) -> Result<KeyPair, String> {
        let bytes = BASE64.decode(self.0.as_bytes());
        let bytes = Zeroizing::new(bytes.map_err(|error| error.to_string())?);
        KeyPair::try_from(bytes.as_slice()).map_err(|error| error.to_string())
    }
}

fn of_authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}

/// A random number, to be unique.
fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| Error::RingUnspecified)?;
    // Positive, and never zero.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Constrains an authority to these names and those below them. A rule for every host needs no constraint.
fn constraints(opened: &TlsHosts) -> Option<NameConstraints> {
    let (mut permitted, mut names, mut addresses) = (Vec::new(), false, false);
    for target in opened.targets() {
        permitted.push(match target {
            RuleTarget::Any => return None,
            RuleTarget::Name(name) | RuleTarget::Below(name) => {
                names = true;
                GeneralSubtree::DnsName(name.to_string())
            }
            RuleTarget::Addresses(net, bits) => {
                addresses = true;
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*net, *bits))
            }
        });
    }
    let every = || {
        let v4 = CidrSubnet::from_v4_prefix([0; 4], 0);
        let v6 = CidrSubnet::from_v6_prefix([0; 16], 0);
        [v4, v6].map(GeneralSubtree::IpAddress).into()
    };
    Some(NameConstraints {
        permitted_subtrees: permitted,
        // A type without a permitted subtree is unrestricted, so it is excluded. The empty name covers every name.
        excluded_subtrees: match (names, addresses) {
            (true, true) => Vec::new(),
            (true, false) => every(),
            (false, _) => vec![GeneralSubtree::DnsName(String::new())],
        },
    })
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = BASE64.encode(certificate);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|at| &text[at..text.len().min(at + 64)])
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// The authority in the reader: it makes a host's certificate on first use.
pub(super) struct Opener {
    issuer: Issuer<'static, KeyPair>,
    /// The key of every host's certificate.
    key: KeyPair,
    made: RefCell<BTreeMap<Host, Arc<ServerConfig>>>,
}

impl Opener {
    pub fn new(authority: &Authority) -> Result<Self, String> {
        Ok(Self {
            issuer: Issuer::new(of_authority(), authority.key()?),
            key: KeyPair::generate().map_err(|error| error.to_string())?,
            made: RefCell::default(),
        })
    }

    /// The TLS configuration for a host's clients. The sidecar decides which hosts exist.
    pub fn greeting(&self, host: &Host) -> Result<Arc<ServerConfig>, String> {
        if let Some(made) = self.made.borrow().get(host) {
            return Ok(Arc::clone(made));
        }
        let new = Arc::new(self.make(host)?);
        let mut made = self.made.borrow_mut();
        if made.len() >= KEPT {
            made.clear();
        }
        made.insert(host.clone(), Arc::clone(&new));
        Ok(new)
    }

    fn make(&self, host: &Host) -> Result<ServerConfig, String> {
        let certificate = self.certificate(host).map_err(|error| error.to_string())?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::from(key))
            .map_err(|error| error.to_string())?;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn certificate(&self, host: &Host) -> Result<CertificateDer<'static>, Error> {
        let mut params = CertificateParams::default();
        let name = host.to_string();
        // Clients check only the other field.
        params.distinguished_name = match name.len() > LONGEST_NAME {
            true => named(NAME),
            false => named(&name),
        };
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Address(address) => SanType::IpAddress(IpAddr::to_canonical(address)),
        }];
        params.serial_number = Some(serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - BEFORE).into(), (now + YEARS).into());
        let certificate = params.signed_by(&self.key, &self.issuer)?;
        Ok(certificate.der().clone())
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;
    use crate::rules::EgressRules;

    fn opened(allow: &[&str]) -> TlsHosts {
        TlsHosts::of(&EgressRules {
            allow: allow.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..EgressRules::default()
        })
    }

    /// Whether a client that trusts the first certificate accepts the opener's for this host.
    fn is_taken(root: &str, opener: &Opener, host: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let certificate = opener.certificate(&host.parse().unwrap()).unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        verifier
            .verify_server_cert(&certificate, &[], &name, &[], UnixTime::now())
            .is_ok()
    }

    #[test]
    fn it_is_good_for_the_hosts_of_rules_for_requests_and_for_no_others() {
        let opened = opened(&[
            "GET https://a.test/x",
            "GET https://*.b.test/x",
            "GET https://192.0.2.7/x",
        ]);
        let (authority, root) = Authority::make(&opened).unwrap();
        let opener = Opener::new(&authority).unwrap();
        for (host, expected) in [
            ("a.test", true),
            ("x.b.test", true),
            ("c.test", false),
            ("xa.test", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
        ] {
            assert_eq!(is_taken(&root, &opener, host), expected, "{host}");
        }
        let names_alone = super::tests::opened(&["GET https://a.test/x"]);
        let (authority, root) = Authority::make(&names_alone).unwrap();
        let opener = Opener::new(&authority).unwrap();
        assert!(!is_taken(&root, &opener, "192.0.2.7"));
        let addresses_alone = super::tests::opened(&["GET https://192.0.2.7/x"]);
        let (authority, root) = Authority::make(&addresses_alone).unwrap();
        let opener = Opener::new(&authority).unwrap();
        assert!(is_taken(&root, &opener, "192.0.2.7"));
        assert!(!is_taken(&root, &opener, "c.test") && !is_taken(&root, &opener, "192.0.2.8"));
        let (authority, root) = Authority::make(&names_alone).unwrap();
        let opener = Opener::new(&authority).unwrap();
        // The certificate of another container.
        let (_, other) = Authority::make(&names_alone).unwrap();
        assert!(is_taken(&root, &opener, "a.test") && !is_taken(&other, &opener, "a.test"));
    }

    #[test]
    fn a_host_keeps_its_certificate_and_the_cache_is_bounded() {
        let (authority, _) = Authority::make(&opened(&["GET https://*.a.test/x"])).unwrap();
        let opener = Opener::new(&authority).unwrap();
        let host = |name: &str| name.parse::<Host>().unwrap();
        let greeting = |name: &str| opener.greeting(&host(name)).unwrap();
        assert!(Arc::ptr_eq(&greeting("x.a.test"), &greeting("x.a.test")));
        assert!(!Arc::ptr_eq(&greeting("x.a.test"), &greeting("y.a.test")));
        for number in 0..KEPT {
            greeting(&format!("h{number}.a.test"));
        }
        assert!(opener.made.borrow().len() <= KEPT);
        let long = format!("{}.a.test", "l".repeat(60));
        assert!(opener.certificate(&host(&long)).is_ok());
        assert!(!format!("{authority:?}").contains(&authority.0));
    }
}
