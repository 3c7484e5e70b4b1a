//! PURE. IPv4 addresses inside IPv6 addresses. A rule for one applies to the other, because a translator or a tunnel on
//! the way may lead there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address without the mapped form, and every IPv4 address inside it.
pub fn spellings(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let address = address.to_canonical();
    let carried = match address {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(v6) => carried(v6),
    };
    std::iter::once(address).chain(carried.into_iter().map(IpAddr::V4))
}

/// The IPv4 addresses inside an IPv6 address, in the standard forms. A translator with a prefix of its own (RFC 6052,
/// section 2.2) cannot be recognized.
pub fn carried(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let octets = address.octets();
    let at = |positions: [usize; 4]| Ipv4Addr::from(positions.map(|at| octets[at]));
    let last = at([12, 13, 14, 15]);
    match address.segments() {
        // IPv4-compatible, mapped (RFC 4291, section 2.5.5) and translated (RFC 7915).
        [0, 0, 0, 0, 0, 0, 1..=u16::MAX, _]
        | [0, 0, 0, 0, 0, 0xffff, _, _]
        | [0, 0, 0, 0, 0xffff, 0, _, _] => {
            vec![last]
        }
        // The well-known prefix (RFC 6052).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => vec![last],
        // The local-use prefix (RFC 8215), with any length that a network has chosen. The ninth octet is not used.
        [0x64, 0xff9b, 1, ..] => vec![
            last,
            at([6, 7, 9, 10]),
            at([7, 9, 10, 11]),
            at([9, 10, 11, 12]),
        ],
        // 6to4 (RFC 3056).
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        // Teredo: the server, and the client's address inverted (RFC 4380, section 4).
        [0x2001, 0, ..] => vec![at([4, 5, 6, 7]), Ipv4Addr::from_bits(!last.to_bits())],
        // ISATAP (RFC 5214, section 6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => vec![last],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_ipv4_addresses_inside_an_address() {
        let inside = |text: &str| {
            let mut all: Vec<String> = spellings(text.parse().unwrap())
                .map(|one| one.to_string())
                .collect();
            all.remove(0);
            all
        };
        for text in [
            "::10.1.2.3",
            "::ffff:0:10.1.2.3",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::10.1.2.3",
            "64:ff9b:1:a01:2:300::",
            "64:ff9b:1:0:a:102:300::",
            "2002:a01:203::1",
            "2001:0:c633:6401::f5fe:fdfc",
            "2001:0:a01:203::1",
            "2001:db8::5efe:a01:203",
            "2001:db8::200:5efe:a01:203",
        ] {
            assert!(
                inside(text).contains(&"10.1.2.3".to_owned()),
                "{text}: {:?}",
                inside(text)
            );
        }
        assert!(inside("::1").is_empty() && inside("::").is_empty());
        assert!(inside("2001:db8::a01:203").is_empty());
        assert!(inside("10.1.2.3").is_empty());
        // The mapped form is the address itself.
        let mapped: Vec<_> = spellings("::ffff:10.1.2.3".parse().unwrap()).collect();
        assert_eq!(mapped, ["10.1.2.3".parse::<IpAddr>().unwrap()]);
    }
}
