//! One rule for requests: methods, host and path.
//!
//! ```text
//! rule    = methods " " scheme "://" host [":" port] [path]
//! methods = "*" | method *("," method)          scheme = "https" | "http"
//! host    = name | "*." name | "*" | address    (an IPv6 address in brackets)
//! path    = "/" segments                        ("*": a part of a segment, "**": one segment or more; none: all paths)
//! ```
//!
//! The method `WEBSOCKET` is a WebSocket's handshake, which no rule allows that does not name it.

mod cover;
mod glob;
mod path;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::host::Host;
use super::rule::{NetworkRule, Target};
use super::text::{ValueError, string_form};

pub use cover::exceeds;
pub use glob::PathGlob;
pub use path::{PathFault, RequestPath};

/// The most methods that a rule names, and the longest of them.
const MOST_METHODS: usize = 16;
const LONGEST_METHOD: usize = 24;

const GRAMMAR: &str = "a rule for requests: METHOD[,METHOD...] https://HOST[:PORT]/PATH, in which * is a part of a segment and \
                       ** one segment or more";

/// The method of a request: capitals and hyphens, as all registered ones are; another spelling is another method to some servers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Method(String);

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Method {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let plain = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        let starts = text.starts_with(|c: char| c.is_ascii_uppercase());
        // A tunnel is no request for a path.
        if plain && starts && text.len() <= LONGEST_METHOD && text != "CONNECT" {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::grammar(
                text,
                "a method of HTTP: A-Z and '-', and not CONNECT",
            ))
        }
    }
}

impl Method {
    /// Not a method of HTTP: the handshake of a WebSocket, by which a connection is no longer one of requests.
    pub const WEBSOCKET: &str = "WEBSOCKET";

    /// Whether it is that handshake.
    pub fn is_websocket(&self) -> bool {
        self.0 == Self::WEBSOCKET
    }
}

/// Which methods a rule names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Methods {
    /// Every one; to allow, all but the handshake of a WebSocket.
    Any,
    /// These.
    These(BTreeSet<Method>),
}

impl Methods {
    /// Whether a rule with them allows this one. What follows a WebSocket's handshake nobody reads: it is allowed by its own name.
    pub fn allow(&self, method: &Method) -> bool {
        match self {
            Self::Any => !method.is_websocket(),
            Self::These(methods) => methods.contains(method),
        }
    }

    /// Whether a rule with them denies this one.
    pub fn deny(&self, method: &Method) -> bool {
        *self == Self::Any || self.allow(method)
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::These(methods) => {
                let methods: Vec<&str> = methods.iter().map(|method| method.0.as_str()).collect();
                f.write_str(&methods.join(","))
            }
        }
    }
}

/// How the real host is spoken to.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// By TLS.
    Https,
    /// In the clear.
    Http,
}

impl Scheme {
    /// The port that an address without one means.
    pub fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }

    /// What stands before the host, and the rest of an address. In whatever case, as clients write it.
    pub fn split(text: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = text.split_once("://")?;
        let all = [Self::Https, Self::Http];
        let found = all
            .into_iter()
            .find(|known| scheme.eq_ignore_ascii_case(known.word()))?;
        Some((found, rest))
    }

    fn word(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A request in its one form, as far as rules look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// How the host is spoken to.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// The path.
    pub path: RequestPath,
}

/// A rule for requests.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct RequestRule {
    /// The methods.
    pub methods: Methods,
    /// How the host is spoken to.
    pub scheme: Scheme,
    /// The host or hosts.
    pub target: Target,
    /// The TCP port; `None` where none is written: the scheme's to allow, all of them to deny.
    pub port: Option<u16>,
    /// The paths.
    pub path: PathGlob,
}

impl RequestRule {
    /// Whether a text means a rule for requests, be it a right one or not: no other has an address behind a space.
    pub fn is_meant(text: &str) -> bool {
        text.split_once(' ')
            .is_some_and(|(_, address)| address.contains("://"))
    }

    /// Whether it names this host.
    pub fn names(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => self.target.matches_name(name),
            Host::Address(address) => self.target.matches_address(*address),
        }
    }

    /// Whether it allows this request, however the host reads it.
    pub fn allows(&self, request: &Request) -> bool {
        self.names(&request.host)
            && self.scheme == request.scheme
            && self.allowed_port() == request.port
            && self.methods.allow(&request.method)
            && self.path.matches(&request.path)
    }

    /// Whether it denies this request, in one of its readings. A name stands for all below it, and the scheme for either.
    pub fn denies(&self, request: &Request) -> bool {
        let named = match &request.host {
            Host::Name(name) => self.target.denies_name(name),
            Host::Address(address) => self.target.denies_address(*address),
        };
        named
            && self.port.is_none_or(|port| port == request.port)
            && self.methods.deny(&request.method)
            && self.path.denies(&request.path)
    }

    /// The rule for connections that would let all of these requests through, and all else that can be said to their hosts.
    pub fn connection(&self) -> NetworkRule {
        NetworkRule::allowing(self.target.clone(), self.allowed_port())
    }

    /// The port of a plain address (`http://`) that leads to these hosts through the wall: 80 for HTTPS's own, else the same.
    pub fn plain_port(&self) -> u16 {
        match self.scheme {
            Scheme::Https if self.allowed_port() == Scheme::Https.port() => Scheme::Http.port(),
            Scheme::Https | Scheme::Http => self.allowed_port(),
        }
    }

    /// The port that it allows.
    pub fn allowed_port(&self) -> u16 {
        self.port.unwrap_or(self.scheme.port())
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}://", self.methods, self.scheme)?;
        match &self.target {
            Target::Name(name) => write!(f, "{name}")?,
            Target::Below(domain) => write!(f, "*.{domain}")?,
            Target::Any => f.write_str("*")?,
            Target::Addresses(address, _) if address.is_ipv6() => write!(f, "[{address}]")?,
            Target::Addresses(address, _) => write!(f, "{address}")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        self.path.fmt(f)
    }
}

impl FromStr for RequestRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = || ValueError::grammar(text, GRAMMAR);
        let (methods, address) = text.split_once(' ').ok_or_else(bad)?;
        let methods = parse_methods(methods)?;
        let (scheme, rest) = Scheme::split(address).ok_or_else(bad)?;
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (target, port) = parse_authority(authority).ok_or_else(bad)?;
        let path = PathGlob::parse(path)
            .map_err(|fault| ValueError::grammar(text, &format!("{GRAMMAR}; it has {fault}")))?;
        Ok(Self {
            methods,
            scheme,
            target,
            port,
            path,
        })
    }
}

string_form!(RequestRule);

fn parse_methods(text: &str) -> Result<Methods, ValueError> {
    if text == "*" {
        return Ok(Methods::Any);
    }
    let methods: BTreeSet<Method> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    match methods.len() <= MOST_METHODS {
        true => Ok(Methods::These(methods)),
        false => Err(ValueError::grammar(text, "a list of at most 16 methods")),
    }
}

/// The host or hosts and the port. An address has a colon in it only within brackets.
fn parse_authority(text: &str) -> Option<(Target, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(parse_port(port)?)),
        _ => (text, None),
    };
    let target = match host.parse::<Host>() {
        Ok(Host::Address(address)) if address.is_ipv6() && !host.starts_with('[') => return None,
        Ok(Host::Address(address)) => Target::address(address),
        Ok(Host::Name(name)) => Target::Name(name),
        Err(_) => Target::parse(host).filter(|t| matches!(t, Target::Below(_) | Target::Any))?,
    };
    Some((target, port))
}

fn parse_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_printed_as_it_is_read() {
        for text in [
            "GET,HEAD https://api.github.com/repos/acme/**",
            "POST https://api.anthropic.com/v1/messages",
            "* https://*.example.com:8443/a/*/b-*",
            "PROPFIND http://192.0.2.7/",
            "GET https://[2001:db8::1]:444/**",
            "VERSION-CONTROL https://*/**",
            "GET,WEBSOCKET https://a.test/socket",
        ] {
            let rule: RequestRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), text);
        }
        let written = |text: &str| text.parse::<RequestRule>().unwrap().to_string();
        assert_eq!(
            written("HEAD,GET,GET HTTPS://API.Example.com."),
            "GET,HEAD https://api.example.com/**"
        );
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "GET",
            "GET ",
            " https://a.test/",
            "https://a.test/",
            "get https://a.test/",
            "GET, https://a.test/",
            "GET,* https://a.test/",
            "CONNECT https://a.test/",
            "GET  https://a.test/",
            "GET\thttps://a.test/",
            "GET ftp://a.test/",
            "GET //a.test/",
            "GET a.test/",
            "GET https:///a",
            "GET https://",
            "GET https://:443/",
            "GET https://a.test:/",
            "GET https://a.test:0/",
            "GET https://a.test:0443/",
            "GET https://a.test:65536/",
            "GET https://u@a.test/",
            "GET https://u:p@a.test/",
            "GET https://a.test\\@b.test/",
            "GET https://a.test?q=/",
            "GET https://a.test#/",
            "GET https://2001:db8::1/",
            "GET https://127.1/",
            "GET https://192.0.2.0%2f24/",
            "GET https://a*.test/",
            "GET https://internal:db/",
            "GET https://a.test/?q=1",
            "GET https://a.test/a b",
            "GET https://a.test/../b",
            "GET https://a.test/a\r\nHost: b.test",
        ] {
            assert!(text.parse::<RequestRule>().is_err(), "{text:?}");
        }
    }

    /// Nobody reads what follows the handshake, so that a rule for requests of every kind does not mean it.
    #[test]
    fn a_websocket_is_allowed_by_its_own_name_and_denied_by_any() {
        let request = |method: &str| Request {
            method: method.parse().unwrap(),
            scheme: Scheme::Https,
            host: "a.test".parse().unwrap(),
            port: 443,
            path: RequestPath::parse("/x").unwrap(),
        };
        for (methods, get, websocket) in [
            ("*", true, false),
            ("GET", true, false),
            ("WEBSOCKET", false, true),
            ("GET,WEBSOCKET", true, true),
        ] {
            let rule: RequestRule = format!("{methods} https://a.test/x").parse().unwrap();
            assert_eq!(rule.allows(&request("GET")), get, "{methods}");
            assert_eq!(rule.allows(&request("WEBSOCKET")), websocket, "{methods}");
            let denies = rule.denies(&request("WEBSOCKET"));
            assert_eq!(denies, websocket || methods == "*", "{methods}");
        }
    }
}
