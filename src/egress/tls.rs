//! Which host does a ClientHello name (SNI; RFC 8446, section 4.1.2, RFC 6066, section 3)? Nothing is decrypted.
//!
//! A client sends one ClientHello (here: greeting), or two if the server wants another key share (HelloRetryRequest).
//! Each of its handshake messages before the server's real answer is a greeting and must name the decided host: a
//! server may take the name from the second one. So the client's records are read until the ServerHello. After it,
//! nothing in clear can be a greeting: a client cannot know the answer before, nor greet again after it. Early data
//! does not end this: a server that wants a second greeting ignores it.

use std::fmt;
use std::io::Read;

use rustls::server::Acceptor;

use crate::rules::HostName;
use crate::text::shown;

/// The first byte of a record's version: any of SSL 3.x.
const MAJOR: u8 = 3;
/// An SSLv2 greeting, which servers may still accept for TLS: a length of two bytes with the highest bit set, and its
/// type. It has no extension and names no host.
const OLD_RECORD: u8 = 0x80;
const OLD_GREETING: u8 = 1;
/// Types of records (RFC 8446, section 5.1).
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// The longest record: 2^14 bytes and what encryption adds (RFC 5246, section 6.2.3).
const LONGEST_RECORD: usize = (16 << 10) + 2048;
/// The most content of one record.
const PLAIN_RECORD: usize = 16 << 10;
/// A record's type, version and length.
const RECORD_HEADER: usize = 5;
/// A handshake message's type and length.
const MESSAGE_HEADER: usize = 4;
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
/// A ServerHello's random number. Before it: a header and a version.
const RANDOM: std::ops::Range<usize> = MESSAGE_HEADER + 2..MESSAGE_HEADER + 34;
/// The random number of a HelloRetryRequest (RFC 8446, section 4.1.3).
const ASKS_AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// The most that is held back of an incomplete greeting. With post-quantum key shares, a greeting has 2 KiB.
pub const LONGEST_GREETING: usize = 32 << 10;

/// Why a greeting is refused, in words for the log.
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

/// The protocol of a client's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstBytes {
    /// A TLS record of any type: a server may ignore records before a greeting.
    Tls,
    /// An SSLv2 greeting.
    OldGreeting,
    /// May become an SSLv2 greeting with the next bytes.
    Open,
    /// Something else.
    Other,
}

/// The protocol of a client's first bytes. A lone first byte of TLS counts as TLS; the second byte decides.
pub fn beginning(bytes: &[u8]) -> FirstBytes {
    match bytes {
        [] => FirstBytes::Open,
        [OLD_RECORD..=u8::MAX, _, OLD_GREETING, ..] => FirstBytes::OldGreeting,
        [OLD_RECORD..=u8::MAX] | [OLD_RECORD..=u8::MAX, _] => FirstBytes::Open,
        _ if begins_as_record(bytes) => FirstBytes::Tls,
        _ => FirstBytes::Other,
    }
}

/// Why an SSLv2 greeting is refused.
pub fn old_greeting() -> TlsRefusal {
    TlsRefusal("an SSLv2 greeting, which can name no host (SNI)".to_owned())
}

/// Reads a client's bytes until the server has answered. Holds back a greeting until it is complete and checked, and
/// passes on the rest.
#[derive(Debug)]
pub struct ClientWatch {
    host: HostName,
    /// Records, complete or not, that are held back.
    held: Vec<u8>,
    /// The handshake messages in them, joined.
    message: Vec<u8>,
    /// The type of the current record, and how many of its bytes are left.
    record: Option<(u8, usize)>,
    /// The bytes so far of the next record's header.
    header: Vec<u8>,
    greetings: u32,
    /// The greetings that the last feed completed, without the borders of records.
    unseen: Vec<u8>,
}

impl ClientWatch {
    /// For a connection to this host.
    pub fn new(host: HostName) -> Self {
        Self {
            host,
            held: Vec::new(),
            message: Vec::new(),
            record: None,
            header: Vec::new(),
            greetings: 0,
            unseen: Vec::new(),
        }
    }

    /// Whether a greeting has named the host.
    pub fn has_greeted(&self) -> bool {
        self.greetings > 0
    }

    /// The greetings that the last call of [`Self::feed`] completed, put together out of their records.
    pub fn take_greetings(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unseen)
    }

    /// Takes the next bytes and appends to `out` what may pass. An error for anything but a greeting for this host.
    pub fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), TlsRefusal> {
        self.unseen.clear();
        while !input.is_empty() {
            let Some((kind, left)) = self.record else {
                let (header, rest) =
                    input.split_at(input.len().min(RECORD_HEADER - self.header.len()));
                self.header.extend_from_slice(header);
                input = rest;
                self.begin(out)?;
                continue;
            };
            let (now, rest) = input.split_at(input.len().min(left));
            input = rest;
            let left = left - now.len();
            self.record = (left > 0).then_some((kind, left));
            if kind == HANDSHAKE {
                self.held.extend_from_slice(now);
                self.message.extend_from_slice(now);
                self.judge(out)?;
            } else {
                out.extend_from_slice(now);
            }
        }
        Ok(())
    }

    /// The server has answered. Returns the bytes that were held back; everything after them passes.
    pub fn let_go(&mut self) -> Vec<u8> {
        let mut held = std::mem::take(&mut self.held);
        held.append(&mut self.header);
        held
    }

    /// Checks a record's header, once it is complete.
    fn begin(&mut self, out: &mut Vec<u8>) -> Result<(), TlsRefusal> {
        let [kind, major, _, high, low] = self.header[..] else {
            return match begins_as_record(&self.header) {
                true => Ok(()),
                false => refused("this is not TLS"),
            };
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let known = (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&kind);
        if !known || major != MAJOR || length > LONGEST_RECORD {
            return refused("this is not TLS");
        }
        if kind == HANDSHAKE {
            if length == 0 {
                return refused("this is not TLS: a handshake record with nothing in it");
            }
            self.held.append(&mut self.header);
        } else if !self.message.is_empty() {
            return refused("a TLS greeting with something else in the midst of it");
        } else if !self.has_greeted() {
            return refused("this is not TLS, or does not begin with a greeting");
        } else {
            out.append(&mut self.header);
        }
        self.record = (length > 0).then_some((kind, length));
        Ok(())
    }

    /// Checks every complete message, and releases its records.
    fn judge(&mut self, out: &mut Vec<u8>) -> Result<(), TlsRefusal> {
        while let Some(header) = self.message.first_chunk::<MESSAGE_HEADER>() {
            let [kind, high, middle, low] = *header;
            if kind != CLIENT_HELLO {
                return refused(
                    "this is not TLS, or says something before the server has answered",
                );
            }
            let length = MESSAGE_HEADER + u32::from_be_bytes([0, high, middle, low]) as usize;
            if length > LONGEST_GREETING {
                return refused("the TLS greeting is too long");
            }
            let Some(greeting) = self.message.get(..length) else {
                break;
            };
            check(greeting, &self.host)?;
            self.greetings += 1;
            self.unseen.extend(self.message.drain(..length));
        }
        if self.message.is_empty() {
            out.append(&mut self.held);
        } else if self.held.len() > LONGEST_GREETING {
            return refused("the TLS greeting is too long");
        }
        Ok(())
    }
}

/// Whether these bytes can begin a record's header.
fn begins_as_record(bytes: &[u8]) -> bool {
    let kind = |byte: &u8| (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(byte);
    bytes.first().is_none_or(kind) && bytes.get(1).is_none_or(|major| *major == MAJOR)
}

/// Checks that a greeting, as a handshake message, names the host. The library that reads greetings for servers parses
/// it: each greeting by itself, since the second of a connection has the form of the first.
fn check(greeting: &[u8], host: &HostName) -> Result<(), TlsRefusal> {
    let mut acceptor = Acceptor::default();
    for part in greeting.chunks(PLAIN_RECORD) {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes();
        let record = [&[HANDSHAKE, 3, 1], &length[..], part].concat();
        let mut rest = &record[..];
        while !rest.is_empty() {
            let read = acceptor.read_tls(&mut rest.by_ref());
            match (read, acceptor.accept()) {
                (Ok(1..), Ok(None)) => {}
                (Ok(1..), Ok(Some(accepted))) => {
                    return names(accepted.client_hello().server_name(), host);
                }
                _ => return refused("this is not TLS, or a malformed greeting of it"),
            }
        }
    }
    refused("a malformed TLS greeting")
}

fn names(named: Option<&str>, host: &HostName) -> Result<(), TlsRefusal> {
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

/// Reads a server's bytes until it has answered a greeting.
#[derive(Debug, Default)]
pub struct ServerWatch {
    /// The type of the current record, and how many of its bytes are left.
    record: Option<(u8, usize)>,
    header: Vec<u8>,
    /// The beginning of the current handshake message, and how many bytes to skip.
    message: Vec<u8>,
    left: usize,
}

/// A server's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerReply {
    /// No bytes yet, or only a request for another greeting.
    NoAnswer,
    /// A ServerHello: the server has decided.
    Answer,
    /// No TLS: the server will never answer.
    NotTls,
}

impl ServerWatch {
    /// Takes the next bytes. After anything but [`ServerReply::NoAnswer`], the result is final.
    pub fn feed(&mut self, mut input: &[u8]) -> ServerReply {
        while !input.is_empty() {
            let Some((kind, left)) = self.record else {
                let (header, rest) =
                    input.split_at(input.len().min(RECORD_HEADER - self.header.len()));
                self.header.extend_from_slice(header);
                input = rest;
                if let [kind, major, _, high, low] = self.header[..] {
                    let length = usize::from(u16::from_be_bytes([high, low]));
                    let known = matches!(kind, CHANGE_CIPHER_SPEC | ALERT | HANDSHAKE);
                    if !known || major != MAJOR || length > LONGEST_RECORD {
                        return ServerReply::NotTls;
                    }
                    self.header.clear();
                    self.record = (length > 0).then_some((kind, length));
                } else if !begins_as_record(&self.header) {
                    return ServerReply::NotTls;
                }
                continue;
            };
            let (now, rest) = input.split_at(input.len().min(left));
            input = rest;
            let left = left - now.len();
            self.record = (left > 0).then_some((kind, left));
            if kind == HANDSHAKE {
                let said = self.read(now);
                if said != ServerReply::NoAnswer {
                    return said;
                }
            }
        }
        ServerReply::NoAnswer
    }

    /// Reads handshake messages, and keeps only their beginning.
    fn read(&mut self, bytes: &[u8]) -> ServerReply {
        for byte in bytes {
            if self.left > 0 {
                self.left -= 1;
                continue;
            }
            self.message.push(*byte);
            let Some([kind, high, middle, low]) = self.message.first_chunk::<MESSAGE_HEADER>()
            else {
                continue;
            };
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            match *kind {
                HELLO_REQUEST if length == 0 => self.message.clear(),
                SERVER_HELLO if MESSAGE_HEADER + length >= RANDOM.end => {
                    match self.message.get(RANDOM) {
                        None => {}
                        Some(random) if random == ASKS_AGAIN => {
                            self.left = MESSAGE_HEADER + length - RANDOM.end;
                            self.message.clear();
                        }
                        Some(_) => return ServerReply::Answer,
                    }
                }
                _ => return ServerReply::NotTls,
            }
        }
        ServerReply::NoAnswer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello as in RFC 8446, section 4.1.2, with these extensions.
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

    /// rustls requires them, and so does every server.
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

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[kind, 3, 1], &length[..], content].concat()
    }

    fn records(handshake: &[u8], size: usize) -> Vec<u8> {
        let parts = handshake.chunks(size);
        parts.flat_map(|part| record(HANDSHAKE, part)).collect()
    }

    fn greeting(name: &str) -> Vec<u8> {
        records(&hello(&sni(name)), 4096)
    }

    /// The bytes that pass if these come in pieces of this size, or the reason of a refusal.
    fn passed(bytes: &[u8], size: usize) -> Result<Vec<u8>, String> {
        let mut watch = ClientWatch::new("example.com".parse().unwrap());
        let mut out = Vec::new();
        for piece in bytes.chunks(size) {
            watch
                .feed(piece, &mut out)
                .map_err(|refusal| refusal.to_string())?;
        }
        Ok(out)
    }

    fn named(bytes: &[u8]) -> Result<(), String> {
        let all = passed(bytes, bytes.len().max(1))?;
        assert_eq!(passed(bytes, 1).as_ref(), Ok(&all));
        match all == bytes {
            true => Ok(()),
            false => Err(format!("held back but for {} bytes", all.len())),
        }
    }

    #[test]
    fn the_greeting_must_name_the_host() {
        assert_eq!(named(&greeting("example.com")), Ok(()));
        assert_eq!(named(&greeting("Example.COM")), Ok(()));
        for name in [
            "evil.test",
            "www.example.com",
            "example.com.evil.test",
            "192.0.2.1",
        ] {
            assert!(named(&greeting(name)).is_err(), "{name}");
        }
        let nobody = records(&hello(&[]), 4096);
        assert!(named(&nobody).unwrap_err().contains("names no host"));
    }

    #[test]
    fn one_byte_records_are_put_together() {
        assert_eq!(named(&records(&hello(&sni("example.com")), 1)), Ok(()));
        assert!(named(&records(&hello(&sni("evil.test")), 1)).is_err());
    }

    /// N48: a value in a greeting may cross the border of two records.
    #[test]
    fn n48_a_greeting_is_had_without_the_borders_of_its_records() {
        let hello = hello(&sni("example.com"));
        for size in [1, 7, hello.len()] {
            let mut watch = ClientWatch::new("example.com".parse().unwrap());
            let mut out = Vec::new();
            watch.feed(&records(&hello, size), &mut out).unwrap();
            assert_eq!(watch.take_greetings(), hello, "{size}");
            assert!(watch.take_greetings().is_empty());
            // Two at once.
            let twice = [&hello[..], &hello].concat();
            watch.feed(&records(&twice, size), &mut out).unwrap();
            assert_eq!(watch.take_greetings(), twice, "{size}");
        }
    }

    #[test]
    fn a_greeting_may_be_long_and_not_endless() {
        let padded = |length: u16| {
            let mut extensions = sni("example.com");
            extensions.extend([0, 21]);
            extensions.extend(length.to_be_bytes());
            extensions.resize(extensions.len() + usize::from(length), 0);
            records(&hello(&extensions), 16 << 10)
        };
        assert_eq!(named(&padded(2000)), Ok(()));
        assert_eq!(named(&padded(30_000)), Ok(()));
        assert!(named(&padded(40_000)).unwrap_err().contains("too long"));
        // The held-back part of an endless greeting is bounded too.
        let endless = [&[1, 0, 0x7f, 0][..], &[0; 20_000]].concat();
        assert!(
            named(&records(&endless, 1))
                .unwrap_err()
                .contains("too long")
        );
    }

    #[test]
    fn what_is_not_tls_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"SSH-2.0-x\r\n",
            &[22, 3, 1, 0, 0],
            &[0; 64],
            // An alert, and data, before any greeting.
            &[21, 3, 1, 0, 2, 1, 0],
            &[23, 3, 1, 0, 2, 1, 0],
        ] {
            assert!(named(bytes).is_err(), "{bytes:?}");
        }
        let whole = greeting("example.com");
        for cut in 1..whole.len() {
            assert_eq!(passed(&whole[..cut], cut), Ok(Vec::new()), "cut at {cut}");
        }
        let twice = [sni("example.com"), sni("evil.test")].concat();
        assert!(named(&records(&hello(&twice), 4096)).is_err());
    }

    /// N-H3, N29: a second greeting is checked like the first, in any form.
    #[test]
    fn a_second_greeting_must_name_the_host_too() {
        let (good, evil) = (greeting("example.com"), greeting("evil.test"));
        let nobody = records(&hello(&[]), 4096);
        let spec = record(CHANGE_CIPHER_SPEC, &[1]);
        let early = record(APPLICATION_DATA, &[9; 500]);
        let alert = record(ALERT, &[1, 0]);
        for between in [
            &[][..],
            &[&spec],
            &[&early],
            &[&spec, &early, &early],
            &[&alert, &spec],
            &[&good, &spec],
        ] {
            let between: Vec<u8> = between.iter().flat_map(|one| one.to_vec()).collect();
            let with = |second: &[u8]| named(&[&good[..], &between, second].concat());
            assert_eq!(with(&good), Ok(()));
            assert_eq!(with(&records(&hello(&sni("example.com")), 3)), Ok(()));
            for second in [&evil, &nobody, &records(&hello(&sni("evil.test")), 3)] {
                assert!(with(second).is_err());
            }
        }
        // Both in one record, and one that begins in the first one's record.
        let [first, second] = [hello(&sni("example.com")), hello(&sni("evil.test"))];
        let both = [first.clone(), second.clone()].concat();
        assert!(named(&record(HANDSHAKE, &both)).is_err());
        assert!(named(&records(&both, first.len() + 10)).is_err());
        // No byte of it passes before it is complete.
        let all = [&good[..], &evil].concat();
        for cut in good.len()..all.len() {
            assert_eq!(passed(&all[..cut], 7), Ok(good.clone()), "cut at {cut}");
        }
        // Other clear text before the server's answer, and within a greeting.
        assert!(named(&[&good[..], &record(HANDSHAKE, &[16, 0, 0, 1, 0])].concat()).is_err());
        let midst = [&good[..], &evil[..RECORD_HEADER], &evil[5..]].concat();
        assert!(named(&midst).is_err());
        let split = records(&hello(&sni("example.com")), 20);
        let midst = [&good[..], &split[..25], &spec, &split[25..]].concat();
        assert!(named(&midst).unwrap_err().contains("in the midst"));
    }

    fn server_hello(random: [u8; 32]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend(random);
        body.extend([0, 0x13, 0x01, 0, 0, 6, 0, 43, 0, 2, 3, 4]);
        let length = u8::try_from(body.len()).unwrap();
        [&[SERVER_HELLO, 0, 0, length], &body[..]].concat()
    }

    fn said(bytes: &[u8]) -> ServerReply {
        let whole = ServerWatch::default().feed(bytes);
        let mut slow = ServerWatch::default();
        let mut last = ServerReply::NoAnswer;
        for byte in bytes {
            last = slow.feed(&[*byte]);
            if last != ServerReply::NoAnswer {
                break;
            }
        }
        assert_eq!(whole, last);
        whole
    }

    #[test]
    fn only_a_server_hello_is_an_answer() {
        let again = server_hello(ASKS_AGAIN);
        let answer = server_hello([5; 32]);
        let spec = record(CHANGE_CIPHER_SPEC, &[1]);
        for size in [1, 3, 4096] {
            assert_eq!(said(&records(&again, size)), ServerReply::NoAnswer);
            assert_eq!(said(&records(&answer, size)), ServerReply::Answer);
            let both = [records(&again, size), spec.clone(), records(&answer, size)].concat();
            assert_eq!(said(&both), ServerReply::Answer);
            let one = [again.clone(), again.clone(), answer.clone()].concat();
            assert_eq!(said(&records(&one, size)), ServerReply::Answer);
            let asked = [vec![HELLO_REQUEST, 0, 0, 0], answer.clone()].concat();
            assert_eq!(said(&records(&asked, size)), ServerReply::Answer);
        }
        for bytes in [
            &b"SSH-2.0-OpenSSH"[..],
            b"HTTP/1.1 200 OK\r\n",
            &record(APPLICATION_DATA, &[1; 40]),
            &records(&[11, 0, 0, 1, 0], 100),
            &records(&[SERVER_HELLO, 0, 0, 1, 0], 100),
        ] {
            assert_eq!(said(bytes), ServerReply::NotTls, "{bytes:?}");
        }
        let cut = records(&answer, 4096);
        assert_eq!(said(&cut[..30]), ServerReply::NoAnswer);
    }

    #[test]
    fn elsewhere_only_tls_is_looked_at() {
        assert_eq!(beginning(&greeting("example.com")), FirstBytes::Tls);
        // A record of any type: a server may ignore one before the greeting. The watch accepts none of them.
        for kind in CHANGE_CIPHER_SPEC..=APPLICATION_DATA {
            for bytes in [&[kind][..], &[kind, 3], &record(kind, &[1, 0])] {
                assert_eq!(beginning(bytes), FirstBytes::Tls, "{bytes:?}");
            }
            if kind != HANDSHAKE {
                let all = [record(kind, &[1, 0]), greeting("example.com")].concat();
                assert!(passed(&all, 1).is_err(), "{kind}");
            }
        }
        for bytes in [
            &b"SSH-2.0-OpenSSH"[..],
            &[22, 4],
            &[24, 3],
            &[19, 3],
            &[3, 22],
            &[0x80, 0, 0, 0, 1],
            &[0x7f, 46, 1, 3],
        ] {
            assert_eq!(beginning(bytes), FirstBytes::Other, "{bytes:?}");
        }
        for bytes in [&[][..], &[0x80], &[0x80, 46], &[0xff, 46]] {
            assert_eq!(beginning(bytes), FirstBytes::Open, "{bytes:?}");
        }
        for bytes in [
            &[0x80, 46, 1][..],
            &[0x80, 46, 1, 3, 1],
            &[0xff, 0, 1, 0, 2],
        ] {
            assert_eq!(beginning(bytes), FirstBytes::OldGreeting, "{bytes:?}");
        }
        // The held-back bytes pass with the rest once the server has answered.
        let mut watch = ClientWatch::new("example.com".parse().unwrap());
        let mut out = Vec::new();
        let whole = greeting("example.com");
        watch
            .feed(&[&whole[..], &[22, 3, 3]].concat(), &mut out)
            .unwrap();
        assert_eq!(out, whole);
        assert_eq!(watch.let_go(), [22, 3, 3]);
    }
}
