//! The node's way to the internet through a company's HTTP proxy.
//!
//! Credentials are a [`Secret`], which no `Debug` and no error shows. An [`Upstream`], without credentials, is saved
//! and explained.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

use super::user_proxy::DirectHost;
use super::value::words;
use super::{HostPath, Switch};
use crate::rules::request::FieldPattern;
use crate::rules::{Host, NetworkPrefix};
use crate::text::ValueError;

/// What the URL must look like. Errors do not show a wrong one: it may contain a password.
const GRAMMAR: &str = "http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, or either with https://, with %XX for any byte \
                       of user and password that is not a letter or a digit";
/// The longest user name and password together (RFC 7617 sets no limit, proxies do).
const LONGEST: usize = 1024;

/// `[network]` of the node's file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NodeNetwork {
    /// The HTTP proxy that every connection to the internet goes through.
    pub upstream_proxy: Option<ProxyUrl>,
    /// A file with `USER:PASSWORD` in its first line, readable by root only.
    pub upstream_credentials: Option<HostPath>,
    /// Who resolves names.
    pub upstream_names: UpstreamNames,
    /// CA certificates (PEM) for the proxy's certificate, besides those that the node trusts anyway.
    pub upstream_trust_roots: Option<HostPath>,
    /// Whether `wrap` uses the proxy of its user's `HTTPS_PROXY`. Without it: unless an operator set a ceiling.
    pub upstream_from_user: Option<Switch>,
    /// The networks of the cluster's pods and Services, where `service:` rules may lead: addresses and prefixes.
    pub services: BTreeSet<NetworkPrefix>,
    /// Header fields that are passed on besides those of `policies/request-fields.toml`.
    pub request_fields: BTreeSet<FieldPattern>,
}

words! {
    /// Who resolves the names that go through an upstream proxy.
    #[derive(Default)]
    UpstreamNames {
        /// The sidecar. It checks each address and asks the proxy for the checked one.
        #[default]
        Vetted = "vetted",
        /// The proxy. Nothing on the node sees where a name leads.
        Proxy = "proxy",
    }
}

/// A proxy as the node's file, or a variable of the user, names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ProxyUrl {
    /// Whether to use TLS to the proxy (RFC 9110, section 4.2.2).
    pub tls: bool,
    /// Its name or address.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// Our credentials.
    pub credentials: Option<Secret>,
}

/// An upstream proxy without its credentials: planned, saved and explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Upstream {
    /// Whether to use TLS to the proxy.
    #[serde(default)]
    pub tls: bool,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who resolves names.
    pub names: UpstreamNames,
    /// Who named it.
    #[serde(default, skip_serializing_if = "UpstreamSource::is_node")]
    pub source: UpstreamSource,
    /// Hosts that are dialled without it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub direct: BTreeSet<DirectHost>,
}

/// Who named an upstream proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamSource {
    /// The node's file.
    #[default]
    Node,
    /// This variable of the user of `wrap`.
    User(String),
}

impl UpstreamSource {
    fn is_node(&self) -> bool {
        *self == Self::Node
    }
}

/// `USER:PASSWORD`. It has no `Display`, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// From the text of a credentials file: its first line.
    pub fn from_file(text: &str) -> Option<Self> {
        Self::new(text.lines().next()?.to_owned())
    }

    fn new(text: String) -> Option<Self> {
        let (user, _) = text.split_once(':')?;
        let good = !user.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control);
        good.then_some(Self(text))
    }

    /// The value of a `Proxy-Authorization` header (RFC 7617).
    pub fn basic(&self) -> String {
        format!("Basic {}", BASE64.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl ProxyUrl {
    /// Whether it is the one that was planned.
    pub fn is_at(&self, planned: &Upstream) -> bool {
        let Upstream {
            tls, host, port, ..
        } = planned;
        self.tls == *tls && self.host.to_string() == *host && self.port == *port
    }
}

impl NodeNetwork {
    /// The proxy without its credentials.
    pub fn upstream(&self) -> Option<Upstream> {
        let ProxyUrl {
            tls, host, port, ..
        } = self.upstream_proxy.as_ref()?;
        Some(Upstream {
            tls: *tls,
            host: host.to_string(),
            port: *port,
            names: self.upstream_names,
            source: UpstreamSource::Node,
            direct: BTreeSet::new(),
        })
    }

    /// Why the fields contradict each other, if they do.
    pub fn contradiction(&self) -> Option<&'static str> {
        match &self.upstream_proxy {
            None if self.upstream_credentials.is_some() => {
                Some("network.upstream-credentials has no use without network.upstream-proxy")
            }
            // The user of `wrap` may have a proxy.
            None if self.upstream_names != UpstreamNames::default()
                && self.upstream_from_user == Some(Switch::Off) =>
            {
                Some("network.upstream-names has no use without network.upstream-proxy")
            }
            Some(proxy) if proxy.credentials.is_some() && self.upstream_credentials.is_some() => {
                Some(
                    "the credentials of the upstream proxy are in network.upstream-proxy and in \
                 network.upstream-credentials: leave one out",
                )
            }
            _ => None,
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tls, host, port, ..
        } = self;
        let scheme = if *tls { "https" } else { "http" };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

impl TryFrom<String> for ProxyUrl {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        text.parse()
    }
}

impl FromStr for ProxyUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        parse(text).ok_or_else(|| ValueError {
            value: "the URL of the upstream proxy (not shown)".to_owned(),
            allowed: GRAMMAR.to_owned(),
            suggestion: None,
        })
    }
}

fn parse(text: &str) -> Option<ProxyUrl> {
    let (tls, rest) = match text.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("http://")?),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, place) = match rest.rsplit_once('@') {
        None => (None, rest),
        Some((userinfo, place)) => {
            let (user, password) = userinfo.split_once(':')?;
            let user = percent_decoded(user)?;
            // In `user:password` the first colon ends the user.
            let whole = (!user.contains(':'))
                .then_some(format!("{user}:{}", percent_decoded(password)?))?;
            (Some(Secret::new(whole)?), place)
        }
    };
    let (host, port) = place.rsplit_once(':')?;
    if !port.bytes().all(|b| b.is_ascii_digit()) || (host.contains(':') && !host.starts_with('[')) {
        return None;
    }
    Some(ProxyUrl {
        tls,
        host: host.parse().ok()?,
        port: port.parse().ok().filter(|port| *port != 0)?,
        credentials,
    })
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                out.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
            }
            // Unescaped delimiters of a URL (RFC 3986, section 2.2) are a mistake.
            b'/' | b'?' | b'#' | b'@' | b':' | b'[' | b']' | b' ' => return None,
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_proxy_with_and_without_credentials() {
        let proxy: ProxyUrl = "http://proxy.example:3128".parse().unwrap();
        assert_eq!(
            (proxy.host.to_string().as_str(), proxy.port),
            ("proxy.example", 3128)
        );
        assert_eq!((proxy.credentials, proxy.tls), (None, false));
        let proxy: ProxyUrl = "https://me:p%40ss%3Aw%25@[fd00::1]:8080/".parse().unwrap();
        assert!(proxy.tls);
        assert_eq!(
            (proxy.host.to_string().as_str(), proxy.port),
            ("fd00::1", 8080)
        );
        assert_eq!(
            proxy.credentials,
            Secret::from_file("me:p@ss:w%\nanother line")
        );
    }

    #[test]
    fn a_node_can_add_header_fields() {
        let network = |text: &str| toml::from_str::<NodeNetwork>(text);
        let fields = network("request-fields = [\"X-Acme-Trace\", \"x-corp-*\"]").unwrap();
        let fields: Vec<String> = fields
            .request_fields
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(fields, ["x-acme-trace", "x-corp-*"]);
        for wrong in ["host", "x-*", "*", "x.acme"] {
            assert!(
                network(&format!("request-fields = [\"{wrong}\"]")).is_err(),
                "{wrong}"
            );
        }
    }

    /// RFC 7617, section 2, and RFC 4648, section 10.
    #[test]
    fn writes_the_header_as_its_specification_does() {
        let secret = Secret::from_file("Aladdin:open sesame").unwrap();
        assert_eq!(secret.basic(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(BASE64.encode(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn other_texts_are_refused_and_no_password_is_shown() {
        for text in [
            "proxy.example:3128",
            "https//me:hunter2@proxy.example:3128",
            "socks5://proxy.example:3128",
            "http://proxy.example",
            "http://proxy.example:0",
            "http://proxy.example:+1",
            "http://proxy.example:65536",
            "http://me@proxy.example:3128",
            "http://:hunter2@proxy.example:3128",
            "http://me:hunter2@evil@proxy.example:3128",
            "http://me:hunter%0d2@proxy.example:3128",
            "http://me:hunter%2@proxy.example:3128",
            "http://me:hunter2@proxy.example:3128/path",
            "http://fd00::1:3128",
        ] {
            let error = text.parse::<ProxyUrl>().unwrap_err().to_string();
            assert!(!error.contains("hunter"), "{error}");
        }
        let proxy: ProxyUrl = "http://me:hunter2@proxy.example:1".parse().unwrap();
        assert!(!format!("{proxy:?}").contains("hunter"));
        for text in ["", "hunter2", ":hunter2", "me:hunter\u{7}2"] {
            assert_eq!(Secret::from_file(text), None);
        }
    }
}
