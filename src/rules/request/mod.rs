//! One rule for requests: methods, host and path.
//!
//! ```text
//! rule    = methods " " scheme "://" host [":" port] [path]
//! methods = "*" | method *("," method)          scheme = "https" | "http"
//! host    = name | "*." name | "*" | address    (an IPv6 address in brackets)
//! path    = "/" segments                        ("*": a part of a segment, "**": one segment or more; none: all paths)
//! ```
//!
//! The method `WEBSOCKET` is a WebSocket's handshake, which a rule must name to allow it. A rule that begins with
//! `mcp:` has an address, then calls of MCP instead of methods (`mcp`).

pub mod calls;
pub mod cover;
pub mod decide;
mod field;
mod glob;
mod mcp;
mod method;
mod path;

use std::fmt;
use std::str::FromStr;

use super::connection::{NetworkRule, RuleTarget};
use super::host::Host;
use crate::text::{ValueError, string_form};

pub use field::FieldPattern;
pub use glob::PathGlob;
pub use mcp::{McpCall, McpWords, NameGlob, is_method, listed_for, name_field};
pub use method::{Method, Methods};
pub use path::{PathFault, RequestPath};

const GRAMMAR: &str = "a rule for requests: METHOD[,METHOD...] https://HOST[:PORT]/PATH, in which * is a part of a segment and \
                       ** one segment or more";

const MCP_GRAMMAR: &str = "a rule for MCP: mcp:https://HOST[:PORT]/PATH METHOD[:NAME]..., such as \
                           mcp:https://mcp.example.com/mcp tools/call:search_*";
/// The prefix of a rule for calls.
pub const MCP: &str = "mcp:";

/// The protocol to the real host.
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
    /// The port of an address without one.
    pub fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }

    /// Splits the scheme from the rest of an address, ignoring case, as clients write it.
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

/// A request in its canonical form, with all that rules compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The protocol to the host.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// The path.
    pub path: RequestPath,
    /// The calls of MCP in its body, if the body was read.
    pub calls: Option<Vec<McpCall>>,
}

impl Request {
    /// Each of its calls as a request of its own; the request itself if it has none.
    pub fn alone(&self) -> impl Iterator<Item = Self> {
        let calls = self.calls.as_deref().unwrap_or_default();
        let itself = calls.is_empty().then(|| self.clone());
        let each = calls.iter().map(|call| Self {
            calls: Some(vec![call.clone()]),
            ..self.clone()
        });
        each.chain(itself)
    }
}

/// A request rule.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct RequestRule {
    /// The methods.
    pub methods: Methods,
    /// The protocol to the host.
    pub scheme: Scheme,
    /// The host or hosts.
    pub target: RuleTarget,
    /// The TCP port. `None` if the rule has none: the scheme's port to allow, all ports to deny.
    pub port: Option<u16>,
    /// The paths.
    pub path: PathGlob,
}

impl RequestRule {
    /// Whether a text is meant as a request rule, valid or not: only these have an address after a space.
    pub fn is_meant(text: &str) -> bool {
        Self::is_mcp_meant(text)
            || text
                .split_once(' ')
                .is_some_and(|(_, address)| address.contains("://"))
    }

    /// Whether a text is meant as a rule for calls of MCP.
    pub fn is_mcp_meant(text: &str) -> bool {
        text.strip_prefix(MCP)
            .is_some_and(|rest| rest.contains('/'))
    }

    /// The calls, if it is a rule for calls.
    pub fn mcp(&self) -> Option<&McpWords> {
        match &self.methods {
            Methods::Mcp(words) => Some(words),
            Methods::Any | Methods::These(_) => None,
        }
    }

    /// Whether it covers this path of this host, for any method.
    pub fn leads_to(&self, request: &Request) -> bool {
        self.names(&request.host)
            && self.scheme == request.scheme
            && self.allowed_port() == request.port
            && self.path.matches(&request.path)
    }

    /// Whether it denies any method at this path of this host, in one of the path's readings.
    pub fn denies_something_of(&self, request: &Request) -> bool {
        let named = match &request.host {
            Host::Name(name) => self.target.denies_name(name),
            Host::Address(address) => self.target.denies_address(*address),
        };
        named
            && self.port.is_none_or(|port| port == request.port)
            && self.path.denies(&request.path)
    }

    /// Whether it covers this host.
    pub fn names(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => self.target.matches_name(name),
            Host::Address(address) => self.target.matches_address(*address),
        }
    }

    /// Whether it allows this request, however the host reads the path.
    pub fn allows(&self, request: &Request) -> bool {
        self.leads_to(request) && self.methods.allow_request(request)
    }

    /// Whether it denies this request in one of its readings. A name includes all below; a scheme, the other.
    pub fn denies(&self, request: &Request) -> bool {
        self.denies_something_of(request) && self.methods.deny_request(request)
    }

    /// The connection rule that would allow all of these requests, and everything else at their hosts.
    pub fn connection(&self) -> NetworkRule {
        NetworkRule::allowing(self.target.clone(), self.allowed_port())
    }

    /// The port of the plain address (`http://`) of these hosts at the sidecar: 80 for HTTPS's 443, else the same.
    pub fn plain_port(&self) -> u16 {
        match self.scheme {
            Scheme::Https if self.allowed_port() == Scheme::Https.port() => Scheme::Http.port(),
            Scheme::Https | Scheme::Http => self.allowed_port(),
        }
    }

    /// Whether it can stand in a list of rules that a user types. A comma of a path would begin another rule, and a quote
    /// end an argument.
    pub fn fits_a_list(&self) -> bool {
        let words = self.mcp().map(ToString::to_string).unwrap_or_default();
        ![self.path.to_string(), words]
            .iter()
            .any(|text| text.contains([',', '\'']))
    }

    /// The port that it allows.
    pub fn allowed_port(&self) -> u16 {
        self.port.unwrap_or(self.scheme.port())
    }
}

impl fmt::Display for RequestRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.methods {
            Methods::Mcp(_) => f.write_str(MCP)?,
            Methods::Any | Methods::These(_) => write!(f, "{} ", self.methods)?,
        }
        write!(f, "{}://", self.scheme)?;
        match &self.target {
            RuleTarget::Name(name) => write!(f, "{name}")?,
            RuleTarget::Below(domain) => write!(f, "*.{domain}")?,
            RuleTarget::Any => f.write_str("*")?,
            RuleTarget::Addresses(address, _) if address.is_ipv6() => write!(f, "[{address}]")?,
            RuleTarget::Addresses(address, _) => write!(f, "{address}")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        self.path.fmt(f)?;
        match &self.methods {
            Methods::Mcp(words) => write!(f, " {words}"),
            Methods::Any | Methods::These(_) => Ok(()),
        }
    }
}

impl FromStr for RequestRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let is_mcp = Self::is_mcp_meant(text);
        let bad = || ValueError::grammar(text, if is_mcp { MCP_GRAMMAR } else { GRAMMAR });
        let (methods, address) = match text.strip_prefix(MCP).filter(|_| is_mcp) {
            Some(rest) => {
                let (address, words) = rest.split_once(' ').ok_or_else(bad)?;
                (Methods::Mcp(words.parse()?), address)
            }
            None => {
                let (methods, address) = text.split_once(' ').ok_or_else(bad)?;
                (methods.parse()?, address)
            }
        };
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

/// Splits host and port. An address with colons needs brackets.
fn parse_authority(text: &str) -> Option<(RuleTarget, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(parse_port(port)?)),
        _ => (text, None),
    };
    let target = match host.parse::<Host>() {
        Ok(Host::Address(address)) if address.is_ipv6() && !host.starts_with('[') => return None,
        Ok(Host::Address(address)) => RuleTarget::address(address),
        Ok(Host::Name(name)) => RuleTarget::Name(name),
        Err(_) => RuleTarget::parse(host)
            .filter(|t| matches!(t, RuleTarget::Below(_) | RuleTarget::Any))?,
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
            "mcp:https://mcp.example.com/mcp tools/call:search_*",
            "mcp:http://[2001:db8::1]:444/a/* prompts/get resources/read:file:///a tools/list",
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
    fn a_text_that_is_no_request_rule_is_refused() {
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
            "mcp:https://a.test/mcp",
            "mcp:https://a.test/mcp ",
            "mcp:a.test/mcp tools/call",
            "mcp:https://a.test/mcp TOOLS/CALL:a,b",
            "mcp: https://a.test/mcp tools/call",
            "POST mcp:https://a.test/mcp tools/call",
        ] {
            assert!(text.parse::<RequestRule>().is_err(), "{text:?}");
        }
    }

    /// The sidecar does not read what follows the handshake, so a rule for all methods does not include it.
    #[test]
    fn a_websocket_is_allowed_by_its_own_name_and_denied_by_any() {
        let request = |method: &str| Request {
            method: method.parse().unwrap(),
            scheme: Scheme::Https,
            host: "a.test".parse().unwrap(),
            port: 443,
            path: RequestPath::parse("/x").unwrap(),
            calls: None,
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
