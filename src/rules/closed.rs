//! PURE. Addresses at which clouds serve credentials and instructions: `policies/closed.toml` as a table, so that a
//! sidecar reads no file. The file has the owner and the source of each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::connection::contains;
use super::embedded::spellings;
use super::host::HostName;

/// Names under which clouds serve a machine's own credentials. No wildcard covers them.
const METADATA_NAMES: [&str; 6] = [
    "metadata.google.internal",
    "metadata.goog",
    "metadata",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.azure.internal",
];

/// Whether clouds serve credentials under this name.
pub fn is_metadata(name: &HostName) -> bool {
    METADATA_NAMES.contains(&name.as_str())
}

/// The entries of the file, in its order; a test compares them.
const CLOSED: &[(IpAddr, u8)] = &[
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
        128,
    ),
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    (IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 32),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200)),
        128,
    ),
    (IpAddr::V4(Ipv4Addr::new(100, 96, 0, 96)), 32),
    (IpAddr::V4(Ipv4Addr::new(100, 80, 80, 80)), 32),
    (IpAddr::V4(Ipv4Addr::new(100, 88, 222, 5)), 32),
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)), 32),
    (IpAddr::V4(Ipv4Addr::new(192, 80, 8, 124)), 32),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0)),
        32,
    ),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
        128,
    ),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
        128,
    ),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
        128,
    ),
    (
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1)),
        128,
    ),
];

/// Whether a cloud serves credentials or instructions at this address, in any form of it.
pub fn is_closed(address: IpAddr) -> bool {
    spellings(address).any(|one| CLOSED.iter().any(|(net, bits)| contains(*net, *bits, one)))
}

/// Whether any part of a prefix is such an address.
pub fn touches(net: IpAddr, bits: u8) -> bool {
    let mut closed = CLOSED.iter();
    is_closed(net) || closed.any(|(base, _)| contains(net, bits, *base))
}

/// Whether clouds serve credentials under a name below this one.
pub fn is_above_metadata(name: &HostName) -> bool {
    METADATA_NAMES.iter().any(|known| {
        let rest = known.strip_suffix(name.as_str());
        rest.is_some_and(|rest| rest.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::RuleTarget;
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Entry {
        net: String,
        who: String,
        source: String,
    }

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        address: Vec<Entry>,
    }

    #[test]
    fn the_table_is_the_file_and_every_entry_has_its_source() {
        let file: File = toml::from_str(include_str!("../../policies/closed.toml")).unwrap();
        let parsed = file
            .address
            .iter()
            .map(|entry| match RuleTarget::parse(&entry.net) {
                Some(RuleTarget::Addresses(net, bits)) => (net, bits),
                other => panic!("{entry:?}: {other:?}"),
            });
        assert_eq!(parsed.collect::<Vec<_>>(), CLOSED);
        for Entry { net, who, source } in &file.address {
            assert!(who.len() > 10, "{net}");
            assert!(source.contains("https://"), "{net} has no source");
        }
    }

    #[test]
    fn closed_addresses_are_recognized_in_every_form() {
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
