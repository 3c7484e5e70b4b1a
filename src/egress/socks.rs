//! Parses the greeting and the request of a SOCKS5 client (RFC 1928), which may be incomplete.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::rules::Host;

/// The first byte of each client message.
pub const VERSION: u8 = 5;
/// The only supported method (section 3).
pub const NO_AUTHENTICATION: u8 = 0;
/// The only supported command (section 4).
const CONNECT: u8 = 1;
/// The reply "connection not allowed by ruleset" (section 6).
pub const NOT_ALLOWED: u8 = 2;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// A complete message and its length, `None` if bytes are missing, or the reply that refuses the message.
pub type ParseResult<T> = Result<Option<(T, usize)>, u8>;

/// Whether the client offers to skip authentication (section 3).
pub fn methods(bytes: &[u8]) -> ParseResult<bool> {
    let [version, count, rest @ ..] = bytes else {
        return Ok(None);
    };
    if *version != VERSION {
        return Err(NOT_ALLOWED);
    }
    let count = usize::from(*count);
    Ok(rest
        .get(..count)
        .map(|methods| (methods.contains(&NO_AUTHENTICATION), 2 + count)))
}

/// The request (section 4).
pub fn request(bytes: &[u8]) -> ParseResult<(Host, u16)> {
    let [version, command, _, kind, rest @ ..] = bytes else {
        return Ok(None);
    };
    if *version != VERSION {
        return Err(NOT_ALLOWED);
    }
    if *command != CONNECT {
        return Err(COMMAND_NOT_SUPPORTED);
    }
    let (skip, length) = match kind {
        1 => (0, 4),
        4 => (0, 16),
        3 => match rest.first() {
            Some(length) => (1, usize::from(*length)),
            None => return Ok(None),
        },
        _ => return Err(ADDRESS_NOT_SUPPORTED),
    };
    let Some([address @ .., high, low]) = rest.get(skip..skip + length + 2) else {
        return Ok(None);
    };
    let host = host(*kind, address).ok_or(NOT_ALLOWED)?;
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Some(((host, port), 4 + skip + length + 2)))
}

fn host(kind: u8, bytes: &[u8]) -> Option<Host> {
    match kind {
        1 => {
            let octets = <[u8; 4]>::try_from(bytes).ok()?;
            Some(Host::address(IpAddr::V4(Ipv4Addr::from(octets))))
        }
        4 => {
            let octets = <[u8; 16]>::try_from(bytes).ok()?;
            Some(Host::address(IpAddr::V6(Ipv6Addr::from(octets))))
        }
        _ => std::str::from_utf8(bytes).ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
        [&[5, 1, 0, kind][..], address, &port.to_be_bytes()].concat()
    }

    fn name(text: &str) -> Vec<u8> {
        let length = u8::try_from(text.len()).unwrap();
        [&[length], text.as_bytes()].concat()
    }

    #[test]
    fn reads_names_and_addresses_whole_or_not_yet() {
        for (bytes, host, port) in [
            (wish(3, &name("Example.com"), 443), "example.com", 443),
            (wish(1, &[192, 0, 2, 1], 80), "192.0.2.1", 80),
            (wish(3, &name("192.0.2.1"), 80), "192.0.2.1", 80),
            (wish(4, &[0; 16], 80), "::", 80),
        ] {
            for cut in 0..bytes.len() {
                assert_eq!(request(&bytes[..cut]), Ok(None));
            }
            let ((found, at), length) = request(&bytes).unwrap().unwrap();
            assert_eq!(
                (found.to_string().as_str(), at, length),
                (host, port, bytes.len())
            );
            let more = [&bytes[..], b"early"].concat();
            assert_eq!(request(&more).unwrap().unwrap().1, bytes.len());
        }
    }

    #[test]
    fn an_address_in_ipv6s_form_is_the_address() {
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        let ((host, _), _) = request(&wish(4, &mapped, 80)).unwrap().unwrap();
        assert_eq!(host.to_string(), "127.0.0.1");
    }

    #[test]
    fn refuses_other_commands_and_odd_names() {
        assert_eq!(request(&[5, 2, 0, 1]), Err(COMMAND_NOT_SUPPORTED));
        assert_eq!(request(&[5, 3, 0, 1]), Err(COMMAND_NOT_SUPPORTED));
        assert_eq!(request(&[5, 1, 0, 2]), Err(ADDRESS_NOT_SUPPORTED));
        assert_eq!(request(&[4, 1, 0, 1]), Err(NOT_ALLOWED));
        for text in ["", "a\0b", "0x7f.1", "a b", "user@example.com", "::1%lo"] {
            assert_eq!(
                request(&wish(3, &name(text), 80)),
                Err(NOT_ALLOWED),
                "{text:?}"
            );
        }
        assert_eq!(methods(&[5, 1, 2]), Ok(Some((false, 3))));
        assert_eq!(methods(&[5, 2, 2, 0]), Ok(Some((true, 4))));
        assert_eq!(methods(&[5, 2, 2]), Ok(None));
        assert_eq!(methods(&[5, 0]), Ok(Some((false, 2))));
    }
}
