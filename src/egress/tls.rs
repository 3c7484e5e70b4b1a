//! Which host does a TLS greeting name (SNI; RFC 8446, section 4.1.2, RFC 6066, section 3)? Nothing is decrypted.

use std::fmt;
use std::io::Read;

use rustls::server::Acceptor;

use crate::policy::{HostName, shown};

/// How a TLS connection begins: a handshake record of any version of SSL 3.x.
const HANDSHAKE: [u8; 2] = [22, 3];

/// Why a greeting does not pass, in words for whoever reads the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsRefusal(String);

impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn refused<T>(why: &str) -> Result<T, TlsRefusal> {
    Err(TlsRefusal(why.to_owned()))
}

/// A greeting as it comes in.
#[derive(Default)]
pub struct Greeting {
    acceptor: Acceptor,
}

/// How far a greeting has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// More must come.
    Part,
    /// It is complete, and names the host.
    Whole,
}

impl Greeting {
    /// Takes what came next. An error where it is no greeting, or one for another host.
    pub fn hear(&mut self, mut bytes: &[u8], host: &HostName) -> Result<Heard, TlsRefusal> {
        while !bytes.is_empty() {
            let Ok(taken) = self.acceptor.read_tls(&mut bytes.by_ref()) else {
                return refused("this is not TLS");
            };
            match self.acceptor.accept() {
                Ok(Some(accepted)) => {
                    check(accepted.client_hello().server_name(), host)?;
                    return Ok(Heard::Whole);
                }
                Ok(None) if taken == 0 => break,
                Ok(None) => {}
                Err(_) => return refused("this is not TLS, or a malformed greeting of it"),
            }
        }
        Ok(Heard::Part)
    }
}

/// Makes sure that bytes which begin as TLS does name the host. A greeting that comes in pieces is refused here: on
/// a port that is not HTTPS's, whoever speaks TLS sends it in one.
pub fn check_if_tls(bytes: &[u8], host: &HostName) -> Result<(), TlsRefusal> {
    let begun = !bytes.is_empty() && HANDSHAKE.starts_with(bytes);
    if !begun && !bytes.starts_with(&HANDSHAKE) {
        return Ok(());
    }
    match Greeting::default().hear(bytes, host)? {
        Heard::Whole => Ok(()),
        Heard::Part => refused("a TLS greeting that comes in pieces"),
    }
}

fn check(named: Option<&str>, host: &HostName) -> Result<(), TlsRefusal> {
    let Some(named) = named else {
        return refused("the TLS greeting names no host (SNI)");
    };
    match named.parse::<HostName>() {
        Ok(name) if name == *host => Ok(()),
        _ => Err(TlsRefusal(format!(
            "the TLS greeting names another host, {}",
            shown(named)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello as RFC 8446, section 4.1.2 has it, with these extensions.
    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend([0, 2, 0x13, 0x01, 1, 0]);
        let mut all = signature_algorithms();
        all.extend(extensions);
        body.extend(u16::try_from(all.len()).unwrap().to_be_bytes());
        body.extend(all);
        let mut handshake = vec![1, 0];
        handshake.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        handshake.extend(body);
        handshake
    }

    /// rustls wants them; so does every server.
    fn signature_algorithms() -> Vec<u8> {
        let mut out = vec![0, 13, 0, 4, 0, 2, 4, 3];
        out.extend([0, 10, 0, 4, 0, 2, 0, 29]);
        out.extend([0, 43, 0, 3, 2, 3, 4]);
        out
    }

    fn sni(name: &str) -> Vec<u8> {
        let length = u16::try_from(name.len()).unwrap();
        let mut out = vec![0, 0];
        out.extend((length + 5).to_be_bytes());
        out.extend((length + 3).to_be_bytes());
        out.push(0);
        out.extend(length.to_be_bytes());
        out.extend(name.as_bytes());
        out
    }

    fn records(handshake: &[u8], size: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for part in handshake.chunks(size) {
            out.extend([22, 3, 1]);
            out.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
            out.extend(part);
        }
        out
    }

    fn named(bytes: &[u8]) -> Result<(), String> {
        let host: HostName = "example.com".parse().unwrap();
        match Greeting::default().hear(bytes, &host) {
            Ok(Heard::Whole) => Ok(()),
            Ok(Heard::Part) => Err("incomplete".to_owned()),
            Err(refusal) => Err(refusal.to_string()),
        }
    }

    #[test]
    fn the_greeting_must_name_the_host() {
        let with = |name: &str| records(&hello(&sni(name)), 4096);
        assert_eq!(named(&with("example.com")), Ok(()));
        assert_eq!(named(&with("Example.COM")), Ok(()));
        for name in [
            "evil.test",
            "www.example.com",
            "example.com.evil.test",
            "192.0.2.1",
        ] {
            assert!(named(&with(name)).is_err(), "{name}");
        }
        assert!(
            named(&records(&hello(&[]), 4096))
                .unwrap_err()
                .contains("names no host")
        );
    }

    #[test]
    fn one_byte_records_are_put_together() {
        assert_eq!(named(&records(&hello(&sni("example.com")), 1)), Ok(()));
        assert!(named(&records(&hello(&sni("evil.test")), 1)).is_err());
    }

    #[test]
    fn what_is_not_tls_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
            &[22, 3, 1, 0, 0],
            &[0; 64],
        ] {
            assert!(named(bytes).is_err(), "{bytes:?}");
        }
        let whole = records(&hello(&sni("example.com")), 4096);
        for cut in 1..whole.len() {
            assert!(named(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let twice = [sni("example.com"), sni("evil.test")].concat();
        assert!(named(&records(&hello(&twice), 4096)).is_err());
    }

    #[test]
    fn elsewhere_only_tls_is_looked_at() {
        let host: HostName = "example.com".parse().unwrap();
        assert!(check_if_tls(b"SSH-2.0-OpenSSH\r\n", &host).is_ok());
        assert!(check_if_tls(&records(&hello(&sni("example.com")), 4096), &host).is_ok());
        assert!(check_if_tls(&records(&hello(&sni("evil.test")), 4096), &host).is_err());
        assert!(check_if_tls(&records(&hello(&[]), 4096), &host).is_err());
        // Nobody gets past by sending the first bytes alone.
        let whole = records(&hello(&sni("evil.test")), 4096);
        for cut in 1..whole.len() {
            assert!(check_if_tls(&whole[..cut], &host).is_err(), "cut at {cut}");
        }
        assert!(check_if_tls(b"", &host).is_ok());
    }
}
