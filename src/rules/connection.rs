//! One rule of the network wall: host and port.
//!
//! ```text
//! rule    = [reach ":"] target [":" port]
//! reach   = "service" | "internal" | "node"                         (without one: public)
//! target  = name | "*." name | address | address "/" bits | "*"     (an IPv6 address with a port in brackets)
//! item    = rule | a rule for requests (`super::request`) | "@" preset
//! ```

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::closed::is_closed;
use super::embedded::spellings;
use super::host::HostName;
use crate::text::{ValueError, string_form};

/// The port of a rule that names none: HTTPS.
pub const DEFAULT_PORT: u16 = 443;
/// The port of the sidecar's own DNS stub. No rule may name it: no query there leaves the sandbox.
pub const DNS_PORT: u16 = 53;

const GRAMMAR: &str = "a rule: HOST, *.DOMAIN or ADDRESS[/BITS], with :PORT if not 443; service:, internal: or node: before a \
                       private name; METHOD https://HOST/PATH; or @PRESET";

/// Which private addresses a name may lead to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostReach {
    /// Public addresses only.
    #[default]
    Public,
    /// The container's neighbours only: the networks that Docker or podman made for it, and the cluster's networks of
    /// the node's file.
    Service,
    /// Private addresses and neighbours too, but not the node's own.
    Internal,
    /// The node's own addresses only.
    Node,
}

impl HostReach {
    /// The prefix of the name.
    fn prefix(self) -> &'static str {
        match self {
            Self::Public => "",
            Self::Service => "service:",
            Self::Internal => "internal:",
            Self::Node => "node:",
        }
    }

    /// Whether this reach includes the other.
    pub fn covers(self, other: Self) -> bool {
        self == other || (self, other) == (Self::Internal, Self::Service)
    }

    /// Whether a connection that was allowed under the other reach may continue under this one.
    pub fn keeps(self, other: Self) -> bool {
        self.covers(other) || (self, other) == (Self::Internal, Self::Public)
    }

    /// Whether names are looked up in the engine's network, where a name has several spellings.
    pub fn is_private(self) -> bool {
        self != Self::Public
    }
}

/// The hosts that a rule names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleTarget {
    /// One name.
    Name(HostName),
    /// Every name with exactly one more label: not the name itself, not two labels more.
    Below(HostName),
    /// Every name. Only a limit may use it, or a policy if the node permits it.
    Any,
    /// Addresses that share this many first bits; all bits for a single address.
    Addresses(IpAddr, u8),
}

/// A rule of the network wall.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkRule {
    /// The host or hosts.
    pub target: RuleTarget,
    /// The TCP port. `None` if the rule has none: 443 to allow, all ports to deny or to limit.
    pub port: Option<u16>,
    /// Where the name may lead.
    pub reach: HostReach,
}

impl NetworkRule {
    /// The rule that allows this port, in its usual form.
    pub fn allowing(target: RuleTarget, port: u16) -> Self {
        Self {
            target,
            port: (port != DEFAULT_PORT).then_some(port),
            reach: HostReach::Public,
        }
    }

    /// The port that it allows.
    pub fn allowed_port(&self) -> u16 {
        self.port.unwrap_or(DEFAULT_PORT)
    }

    /// The same permission as a limit. A limit without a port would mean all ports, so the port is set.
    pub fn as_limit(&self) -> Self {
        Self {
            port: Some(self.allowed_port()),
            ..self.clone()
        }
    }

    /// Whether this rule as a limit covers all that `other` allows as a rule of an allowlist.
    pub fn covers(&self, other: &Self) -> bool {
        self.covers_limit(&other.as_limit())
    }

    /// Whether this rule as a limit covers all of `other` as a limit.
    pub fn covers_limit(&self, other: &Self) -> bool {
        let port = self.port.is_none() || self.port == other.port;
        // Hosts that are not public need their own reach in a limit: no wildcard of a public one covers them.
        port && self.reach.covers(other.reach) && self.target.covers(&other.target)
    }
}

impl RuleTarget {
    /// This address alone.
    pub fn address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::Addresses(address, width(address))
    }

    /// A host or hosts as a rule spells them, without a port.
    pub fn parse(text: &str) -> Option<Self> {
        parse_target(text)
    }

    /// The address, if it names exactly one.
    pub fn one_address(&self) -> Option<IpAddr> {
        match self {
            Self::Addresses(net, bits) if *bits == width(*net) => Some(*net),
            Self::Addresses(..) | Self::Name(_) | Self::Below(_) | Self::Any => None,
        }
    }

    fn covers(&self, other: &Self) -> bool {
        // A limit must name a cloud's own address exactly: no prefix covers it.
        if self != other && other.one_address().is_some_and(is_closed) {
            return false;
        }
        match (self, other) {
            (Self::Any, Self::Name(_) | Self::Below(_) | Self::Any) => true,
            (Self::Below(domain), Self::Name(name)) => name.parent() == Some(domain.as_str()),
            (Self::Addresses(net, bits), Self::Addresses(other, longer)) => {
                longer >= bits && contains(*net, *bits, *other)
            }
            (same, other) => same == other,
        }
    }

    /// Whether it names this host.
    pub fn matches_name(&self, name: &HostName) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Below(domain) => name.parent() == Some(domain.as_str()),
            Self::Any => true,
            Self::Addresses(..) => false,
        }
    }

    /// Whether a denial of this target covers the host. A name, also with `*.`, denies itself and all below.
    pub fn denies_name(&self, name: &HostName) -> bool {
        match self {
            Self::Name(domain) | Self::Below(domain) => {
                domain == name || is_within(name.as_str(), domain.as_str())
            }
            Self::Any => true,
            Self::Addresses(..) => false,
        }
    }

    /// Whether a denial of this target covers the address, in any form that leads there.
    pub fn denies_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Addresses(net, bits) => spellings(address).any(|one| contains(*net, *bits, one)),
            Self::Name(_) | Self::Below(_) | Self::Any => false,
        }
    }

    /// Whether it names this address.
    pub fn matches_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Addresses(net, bits) => contains(*net, *bits, address.to_canonical()),
            Self::Name(_) | Self::Below(_) | Self::Any => false,
        }
    }
}

/// Whether a name is below a domain, at any depth.
pub fn is_within(name: &str, domain: &str) -> bool {
    let rest = name.strip_suffix(domain);
    rest.is_some_and(|rest| rest.ends_with('.'))
}

/// Whether an address is in a prefix. Never for addresses of different families.
pub fn contains(net: IpAddr, bits: u8, address: IpAddr) -> bool {
    let (net, address, width) = match (net, address) {
        (IpAddr::V4(net), IpAddr::V4(address)) => (
            u128::from(net.to_bits()),
            u128::from(address.to_bits()),
            32_u32,
        ),
        (IpAddr::V6(net), IpAddr::V6(address)) => (net.to_bits(), address.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let host_bits = width.saturating_sub(u32::from(bits));
    (net ^ address).checked_shr(host_bits).unwrap_or(0) == 0
}

impl fmt::Display for NetworkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reach.prefix())?;
        match (&self.target, self.port) {
            (RuleTarget::Name(name), _) => write!(f, "{name}")?,
            (RuleTarget::Below(domain), _) => write!(f, "*.{domain}")?,
            (RuleTarget::Any, _) => f.write_str("*")?,
            (RuleTarget::Addresses(net, bits), port) => {
                let text = if *bits == width(*net) {
                    net.to_string()
                } else {
                    format!("{net}/{bits}")
                };
                match (net, port) {
                    (IpAddr::V6(_), Some(_)) => write!(f, "[{text}]")?,
                    _ => f.write_str(&text)?,
                }
            }
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The reaches with a prefix.
const PREFIXED: [HostReach; 3] = [HostReach::Service, HostReach::Internal, HostReach::Node];

/// Whether a host has the name of a prefix.
fn is_prefix(name: &HostName) -> bool {
    let words = PREFIXED.map(HostReach::prefix);
    words
        .iter()
        .any(|word| word.strip_suffix(':') == Some(name.as_str()))
}

/// Splits the prefix from the rest, ignoring case as in names. Otherwise another spelling of `internal` would be a host
/// of that name.
fn split_reach(text: &str) -> (HostReach, &str) {
    let found = PREFIXED.into_iter().find_map(|reach| {
        let (prefix, rest) = text.split_at_checked(reach.prefix().len())?;
        prefix
            .eq_ignore_ascii_case(reach.prefix())
            .then_some((reach, rest))
    });
    found.unwrap_or((HostReach::Public, text))
}

impl FromStr for NetworkRule {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bad = || ValueError::grammar(text, GRAMMAR);
        let (reach, rest) = split_reach(text);
        let (target, port) = split_port(rest).ok_or_else(bad)?;
        let target = parse_target(target).ok_or_else(bad)?;
        // Also `internal.`: printed again, it would be the prefix.
        if reach == HostReach::Public
            && matches!(&target, RuleTarget::Name(name) if is_prefix(name))
        {
            return Err(bad());
        }
        if port == Some(DNS_PORT) {
            return Err(ValueError::grammar(
                text,
                "a rule that can be kept: port 53 is the wall's own, its stub answers the names that rules list and \
                 nothing goes on from there",
            ));
        }
        if reach.is_private() && !matches!(target, RuleTarget::Name(_) | RuleTarget::Any) {
            return Err(ValueError::grammar(
                text,
                "a rule: service:, internal: and node: stand before one name, or in a limit before *",
            ));
        }
        Ok(Self {
            target,
            port,
            reach,
        })
    }
}

string_form!(NetworkRule);

/// Splits host and port. A bare IPv6 address has colons and no port.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        // Only an IPv6 address may have brackets.
        address.contains(':').then_some(())?;
        return match port.strip_prefix(':') {
            Some(port) => Some((address, Some(parse_port(port)?))),
            None => port.is_empty().then_some((address, None)),
        };
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Some((host, Some(parse_port(port)?))),
        _ => Some((text, None)),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

fn parse_bits(text: &str) -> Option<u8> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

fn parse_target(text: &str) -> Option<RuleTarget> {
    if text == "*" {
        return Some(RuleTarget::Any);
    }
    if let Some(domain) = text.strip_prefix("*.") {
        return domain.parse().ok().map(RuleTarget::Below);
    }
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    if let Ok(address) = address.parse::<IpAddr>() {
        let bits = match bits {
            Some(bits) => parse_bits(bits).filter(|b| *b <= width(address))?,
            None => width(address),
        };
        // Refuse a second spelling of an address, and bits without a meaning.
        let plain = address == address.to_canonical() && network_of(address, bits) == address;
        return plain.then_some(RuleTarget::Addresses(address, bits));
    }
    match bits {
        Some(_) => None,
        None => text.parse().ok().map(RuleTarget::Name),
    }
}

fn network_of(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> NetworkRule {
        text.parse().unwrap()
    }

    #[test]
    fn a_rule_is_printed_as_it_is_read() {
        for text in [
            "api.example.com",
            "api.example.com:22",
            "*.example.com",
            "*.example.com:8443",
            "internal:postgres:5432",
            "service:db:6379",
            "node:host.docker.internal:11434",
            "192.0.2.7:5432",
            "192.0.2.0/24",
            "2001:db8::1",
            "[2001:db8::1]:443",
            "[2001:db8::/32]:443",
            "*",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("API.example.com.").to_string(), "api.example.com");
    }

    #[test]
    fn a_text_that_is_no_rule_is_refused() {
        for text in [
            "",
            ":443",
            "example.com:",
            "example.com:0",
            "example.com:0443",
            "example.com:65536",
            "example.com:+1",
            "example.com:443:443",
            "https://example.com",
            "example.com/path",
            "**.example.com",
            "*.*.example.com",
            "a*.example.com",
            "*example.com",
            "*.",
            "a.*",
            "192.0.2.1/24",
            "192.0.2.0/33",
            "192.0.2.0/-1",
            "192.0.2.0/+24",
            "192.0.2.0/024",
            "[192.0.2.1]:443",
            "[example.com]:443",
            "::ffff:192.0.2.1",
            "fe80::1%lo",
            "internal:*.example.com",
            "internAl:3",
            "internAl.:3",
            "internal.",
            "internal:10.0.0.1",
            "internal:",
            "service:*.example.com",
            "Service:3",
            "service.",
            "node:10.0.0.1:11434",
            "node:443",
            "node",
            "example.com:53",
            "internal:dns:53",
            "[2001:db8::53]:53",
            "exa mple.com",
            "@python",
        ] {
            assert!(text.parse::<NetworkRule>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_wildcard_is_exactly_one_label() {
        let below = rule("*.example.com").target;
        let matches = |text: &str| below.matches_name(&text.parse().unwrap());
        assert!(matches("www.example.com"));
        for name in [
            "example.com",
            "a.b.example.com",
            "evilexample.com",
            "www.example.com.evil.com",
        ] {
            assert!(!matches(name), "{name}");
        }
    }

    #[test]
    fn a_limit_covers_what_is_within_it() {
        for (limit, asked, covered) in [
            ("*", "example.com", true),
            ("*", "*.example.com:22", true),
            ("*", "192.0.2.1", false),
            ("*", "internal:postgres:5432", false),
            ("internal:*", "internal:postgres:5432", true),
            ("internal:*", "postgres:5432", false),
            ("*:443", "example.com", true),
            ("*:443", "example.com:22", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("*.example.com", "example.com", false),
            ("example.com", "example.com:22", true),
            ("example.com:443", "example.com", true),
            ("www.example.com", "*.example.com", false),
            ("192.0.2.0/24", "192.0.2.7:80", true),
            ("192.0.2.0/24", "192.0.2.0/25", true),
            ("192.0.2.0/24", "192.0.0.0/16", false),
            ("internal:postgres", "internal:postgres:5432", true),
            ("internal:postgres", "postgres:5432", false),
            ("*", "service:db:6379", false),
            ("service:*", "service:db:6379", true),
            ("internal:*", "service:db:6379", true),
            ("service:*", "internal:db:6379", false),
            ("node:*", "node:host.docker.internal:11434", true),
            ("internal:*", "node:host.docker.internal:11434", false),
            ("node:*", "internal:db:6379", false),
            ("*", "node:host.docker.internal:11434", false),
        ] {
            assert_eq!(
                rule(limit).covers(&rule(asked)),
                covered,
                "{limit} / {asked}"
            );
        }
    }

    #[test]
    fn a_limit_within_a_limit_is_narrower_in_its_ports_too() {
        for (limit, asked, covered) in [
            ("*", "*", true),
            ("*", "*:443", true),
            ("*:443", "*", false),
            ("*:443", "a.test", false),
            ("*:443", "a.test:443", true),
            ("a.test", "a.test", true),
        ] {
            assert_eq!(
                rule(limit).covers_limit(&rule(asked)),
                covered,
                "{limit} / {asked}"
            );
        }
        assert!(!rule("a.test").as_limit().covers(&rule("a.test:22")));
        assert!(rule("a.test").as_limit().covers(&rule("a.test")));
    }

    #[test]
    fn a_prefix_contains_the_addresses_that_share_its_bits() {
        let net = |text: &str| rule(text).target;
        let is = |net: &RuleTarget, text: &str| net.matches_address(text.parse().unwrap());
        assert!(is(&net("192.0.2.0/24"), "192.0.2.255"));
        assert!(!is(&net("192.0.2.0/24"), "192.0.3.0"));
        assert!(is(&net("192.0.2.0/24"), "::ffff:192.0.2.9"));
        assert!(is(&net("0.0.0.0/0"), "203.0.113.1"));
        assert!(!is(&net("0.0.0.0/0"), "2001:db8::1"));
        assert!(is(&net("2001:db8::/32"), "2001:db8:ffff::1"));
        assert!(is(&net("2001:db8::1"), "2001:db8::1"));
        assert!(!is(&net("2001:db8::1"), "2001:db8::2"));
    }

    /// N-H4, N-M1: a ceiling must name a cloud's own address exactly.
    #[test]
    fn no_prefix_of_a_limit_covers_a_clouds_address() {
        let covers = |limit: &str, rule: &str| {
            let [limit, rule] = [limit, rule].map(|text| text.parse::<NetworkRule>().unwrap());
            limit.covers(&rule)
        };
        assert!(covers("169.254.169.254:80", "169.254.169.254:80"));
        assert!(covers("168.63.129.16", "168.63.129.16:80"));
        for (limit, rule) in [
            ("169.254.0.0/16:80", "169.254.169.254:80"),
            ("0.0.0.0/0", "168.63.129.16:80"),
            ("::/0", "[fd00:ec2::254]:80"),
            ("64:ff9b::/96", "64:ff9b::a83f:8110"),
            ("*", "168.63.129.16:80"),
        ] {
            assert!(!covers(limit, rule), "{limit} {rule}");
        }
        assert!(covers("168.63.128.0/17", "168.63.129.17"));
    }
}
