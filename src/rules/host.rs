//! Host names: one form for each, and none that a program reads as an address.
//!
//! Every name in a rule, a DNS question, a ClientHello, an HTTP head or a SOCKS request goes through [`HostName`]
//! before any comparison, so that the matched name is the resolved name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::text::{ValueError, string_form, text_type};

/// The longest name in its textual form (RFC 1035, section 2.3.4).
const LONGEST: usize = 253;
/// The longest label (RFC 1035, section 2.3.4).
const LONGEST_LABEL: usize = 63;

/// What a host's name must look like, as the end of "this is not ...".
const GRAMMAR: &str = "a host name: labels of a-z, 0-9, '-' and '_' with dots between them, at most 253 bytes \
                       (a name with other letters in its xn-- form)";

text_type! {
    /// A host's name: ASCII, lower case, without a dot at the end, and no spelling of an address.
    HostName
}

/// What engines call the node in a container.
const NODES_NAMES: [&str; 3] = [
    "gateway.docker.internal",
    "host.containers.internal",
    "host.docker.internal",
];

impl HostName {
    /// Whether engines call the node so in a container.
    pub fn is_the_nodes(&self) -> bool {
        NODES_NAMES.contains(&self.as_str())
    }

    /// What follows the first label: `example.com` of `www.example.com`.
    pub fn parent(&self) -> Option<&str> {
        self.0.split_once('.').map(|(_, rest)| rest)
    }
}

impl FromStr for HostName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // The dot of the root marks a complete name. All our names are complete.
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.len() <= LONGEST && name.split('.').all(is_label) && !reads_as_address(name) {
            Ok(Self(name.to_ascii_lowercase()))
        } else {
            Err(ValueError::grammar(text, GRAMMAR))
        }
    }
}

string_form!(Host);

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= LONGEST_LABEL
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether inet_aton(3) or a browser would read the name as an IPv4 address in some base: its last label is a number
/// (WHATWG URL, "ends in a number checker").
fn reads_as_address(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let hexadecimal = last
        .strip_prefix("0x")
        .or_else(|| last.strip_prefix("0X"))
        .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    digits(last) || hexadecimal
}

/// The host that a client requests: a name, or an address in its usual form.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    /// A name.
    Name(HostName),
    /// An address. An IPv4 address in IPv6's mapped form is stored as the IPv4 address.
    Address(IpAddr),
}

impl Host {
    /// An address for comparison, without the mapped form.
    pub fn address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl FromStr for Host {
    type Err = ValueError;

    /// A name, four decimal numbers, or an IPv6 address with or without brackets. Zone ids and addresses in other
    /// bases are refused: programs read them differently.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bare {
            return match address.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Self::address(address.into())),
                Err(_) => Err(ValueError::grammar(text, "an IPv6 address in brackets")),
            };
        }
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(Self::address(address.into()));
        }
        match text.parse::<Ipv4Addr>() {
            Ok(address) => Ok(Self::Address(address.into())),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        for (text, name) in [
            ("example.com", "example.com"),
            ("EXAMPLE.com.", "example.com"),
            ("_srv.a-b.example", "_srv.a-b.example"),
            ("postgres", "postgres"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("1password.com", "1password.com"),
            ("0x.example", "0x.example"),
        ] {
            assert_eq!(text.parse::<HostName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn nothing_else_is_a_name() {
        let long = format!("{}.example", "a".repeat(64));
        let longer = vec!["a".repeat(60); 5].join(".");
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "-a.b",
            "a-.b",
            "a b",
            "a\0.example",
            "a%00.example",
            "evil.example\r\nHost: x",
            "user@example.com",
            "bücher.example",
            "ｅxample.com",
            "example.com:443",
            "[::1]",
            "1.2.3.4",
            "0x7f.1",
            "127.1",
            "2130706433",
            "0177.0.0.1",
            "0x7f000001",
            "a.0x7f",
            "fe80::1%eth0",
            "*.example.com",
            &long,
            &longer,
        ] {
            assert!(text.parse::<HostName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_are_read_in_one_spelling_only() {
        let address = |text: &str| match text.parse::<Host>() {
            Ok(Host::Address(address)) => address.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(address("192.0.2.1"), "192.0.2.1");
        assert_eq!(address("[2001:db8::1]"), "2001:db8::1");
        assert_eq!(address("2001:DB8::1"), "2001:db8::1");
        assert_eq!(address("[::ffff:192.0.2.1]"), "192.0.2.1");
        for text in [
            "[192.0.2.1]",
            "[::1",
            "[fe80::1%25lo]",
            "192.0.2.01",
            "192.0.2.1.",
            "3221225985",
            "0xc0.0.2.1",
            "192.0.2",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text}");
        }
    }
}
