//! PURE. Addresses at which clouds serve credentials and orders: `policies/closed.toml`.

use std::net::IpAddr;
use std::sync::LazyLock;

use serde::Deserialize;

use super::embedded::spellings;
use super::rule::{Target, contains};

/// One entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    net: String,
    /// Whose, and what is there.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    who: String,
    /// Where that is written.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    address: Vec<Entry>,
}

/// The built-in list, read when it is first needed: most containers never do.
static CLOSED: LazyLock<Vec<(IpAddr, u8)>> = LazyLock::new(|| {
    let parsed = file().address.into_iter().map(|entry| net(&entry.net));
    parsed
        .collect::<Option<_>>()
        .expect("a test parses the built-in list")
});

fn file() -> File {
    toml::from_str(include_str!("../../policies/closed.toml"))
        .expect("a test parses the built-in list")
}

fn net(text: &str) -> Option<(IpAddr, u8)> {
    match Target::parse(text)? {
        Target::Addresses(net, bits) => Some((net, bits)),
        Target::Name(_) | Target::Below(_) | Target::Any => None,
    }
}

/// Whether a cloud serves credentials or orders there, by whatever spelling of the address it is reached.
pub fn is_closed(address: IpAddr) -> bool {
    spellings(address).any(|one| CLOSED.iter().any(|(net, bits)| contains(*net, *bits, one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_names_its_cloud_and_its_source() {
        assert!(CLOSED.len() >= 14);
        for entry in file().address {
            assert!(entry.who.len() > 10, "{entry:?}");
            assert!(
                entry.source.contains("https://"),
                "{} has no source",
                entry.net
            );
        }
    }

    #[test]
    fn knows_them_by_every_spelling() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.42.42",
            "168.63.129.16",
            "100.100.100.200",
            "100.96.0.96",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
            "fd00:a9fe:a9fe::1",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "64:ff9b:1::a83f:8110",
            "2002:a83f:8110::1",
            "2001:db8::5efe:a83f:8110",
        ] {
            assert!(is_closed(text.parse().unwrap()), "{text}");
        }
        for text in ["168.63.129.15", "100.100.100.201", "10.0.0.1", "fd00::1"] {
            assert!(!is_closed(text.parse().unwrap()), "{text}");
        }
    }
}
