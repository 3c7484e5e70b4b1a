//! Synthetic addresses: one for each name that the stub answers, so that a TCP connection to it reveals the name, on
//! any port. An address never changes its name while the container lives.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::rules::HostName;

/// The IPv4 range 198.18.0.0/15 (RFC 2544: routed nowhere). Its first 256 addresses are the sidecar's own.
const V4: u32 = Ipv4Addr::new(198, 18, 0, 0).to_bits();
const V4_COUNT: u32 = 1 << 17;
/// The IPv6 range: unique local.
const V6: u128 = Ipv6Addr::new(0xfd00, 0x5afe, 0, 0, 0, 0, 0, 0).to_bits();
/// The index of the first name in both ranges.
const FIRST: u32 = 256;

/// The address of the stub that refuses every name. The container then has only the loopback interface.
pub const REFUSING_STUB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);

/// The address of `lo` in the inner namespace, where every address is local. The first of the range that RFC 2544
/// reserves for benchmarks and that no network routes.
pub const SYNTHETIC_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The same for IPv6, from the range of unique local addresses.
pub const SYNTHETIC_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x5afe, 0, 0, 0, 0, 0, 1);

/// The most names that a container can look up: the number of addresses.
pub const MOST_NAMES: u32 = V4_COUNT - FIRST;

/// A network's address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Families {
    /// IPv4 only: IPv6 is disabled in the kernel.
    V4,
    /// IPv4 and IPv6.
    Both,
}

impl Families {
    /// Whether IPv6 is included.
    pub fn has_v6(self) -> bool {
        self == Self::Both
    }

    /// Their number.
    pub fn count(self) -> usize {
        match self {
            Self::V4 => 1,
            Self::Both => 2,
        }
    }
}

/// The addresses of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticAddresses {
    /// For an A query.
    pub v4: Ipv4Addr,
    /// For an AAAA query.
    pub v6: Ipv6Addr,
}

/// Names and their synthetic addresses.
#[derive(Debug)]
pub struct NameTable {
    most: usize,
    by_name: HashMap<HostName, u32>,
    by_index: Vec<HostName>,
}

impl NameTable {
    /// A table for at most `most` names, and at most 130,816, the size of the range.
    pub fn new(most: u32) -> Self {
        let most = most.min(MOST_NAMES);
        Self {
            most: usize::try_from(most).unwrap_or(usize::MAX),
            by_name: HashMap::new(),
            by_index: Vec::new(),
        }
    }

    /// The addresses of a name; `None` if the table is full.
    pub fn give(&mut self, name: &HostName) -> Option<SyntheticAddresses> {
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None if self.len() >= self.most => return None,
            None => {
                let index = u32::try_from(self.by_index.len()).ok()?;
                self.by_index.push(name.clone());
                self.by_name.insert(name.clone(), index);
                index
            }
        };
        let offset = index + FIRST;
        Some(SyntheticAddresses {
            v4: Ipv4Addr::from_bits(V4 + offset),
            v6: Ipv6Addr::from_bits(V6 + u128::from(offset)),
        })
    }

    /// Whether a name has an address.
    pub fn has(&self, name: &HostName) -> bool {
        self.by_name.contains_key(name)
    }

    /// The name of an address from this table.
    pub fn name_of(&self, address: IpAddr) -> Option<&HostName> {
        let offset = match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_bits().checked_sub(V4)?,
            IpAddr::V6(v6) => u32::try_from(v6.to_bits().checked_sub(V6)?).ok()?,
        };
        self.by_index
            .get(usize::try_from(offset.checked_sub(FIRST)?).ok()?)
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.by_index.len()
    }

    /// Whether there are no names yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_means_one_name_for_ever() {
        let mut names = NameTable::new(1000);
        let one = names.give(&name("a.test")).unwrap();
        let two = names.give(&name("b.test")).unwrap();
        assert_ne!(one, two);
        assert_eq!(names.give(&name("A.test.")).unwrap(), one);
        assert_eq!(one.v4.to_string(), "198.18.1.0");
        assert_eq!(names.name_of(one.v4.into()), Some(&name("a.test")));
        assert_eq!(names.name_of(two.v6.into()), Some(&name("b.test")));
        assert_eq!(
            names.name_of(two.v4.to_ipv6_mapped().into()),
            Some(&name("b.test"))
        );
        assert_eq!(names.len(), 2);
    }

    #[test]
    fn other_addresses_have_no_name() {
        let mut names = NameTable::new(1000);
        names.give(&name("a.test")).unwrap();
        for text in [
            "198.18.0.0",
            "198.18.0.1",
            "198.18.1.1",
            "198.17.255.255",
            "203.0.113.1",
            "0.0.0.0",
            "255.255.255.255",
            "::",
            "fd00:5afe::1",
            "fd00:5afe::101",
            "fd00:5afe:1::100",
            "ffff::",
        ] {
            assert_eq!(names.name_of(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_it_has() {
        let mut names = NameTable::new(2);
        let one = names.give(&name("a.test")).unwrap();
        names.give(&name("b.test")).unwrap();
        assert_eq!(names.give(&name("c.test")), None);
        assert_eq!(names.give(&name("a.test")), Some(one));
        assert!(NameTable::new(u32::MAX).most < 1 << 17);
    }
}
