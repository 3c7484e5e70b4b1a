//! The upstream proxy: a tunnel through it by CONNECT (RFC 9110, section 9.3.6).

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::refusal::Refusal;
use super::secure::{Greeter, Server, Tls};
use super::stream::{connect, write_all};
use crate::policy::{DirectHost, Secret};
use crate::rules::{Host, HostName};
use crate::sidecar::tls::what_is_wrong;

/// The proxy's time limit to reach a host and to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The longest head of an answer.
const LONGEST: usize = 8 << 10;
const HEADERS: usize = 64;
const ENDLESS: &str = "answers with an endless head";

/// The upstream proxy, for the sidecar only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proxy {
    /// Its addresses, exempt from the checks of every other address.
    pub addresses: BTreeSet<IpAddr>,
    /// Its port.
    pub port: u16,
    /// Our credentials for it.
    pub authorization: Option<Secret>,
    /// Whether it receives names, and resolves them itself.
    pub send_names: bool,
    /// Hosts that are dialled without it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub direct: BTreeSet<DirectHost>,
    /// How to verify it, if it speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// The host of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProxyTarget {
    /// A vetted address.
    Address(IpAddr),
    /// A name.
    Name(HostName),
}

impl fmt::Display for ProxyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// The proxy, ready to be dialled.
pub(super) struct Gate {
    proxy: Proxy,
    greeter: Option<Greeter>,
}

impl Gate {
    /// An error if there is no certificate to trust.
    pub fn new(proxy: Proxy) -> Result<Self, String> {
        let greeter = proxy.tls.as_ref().map(Greeter::new).transpose();
        Ok(Self {
            greeter: greeter.map_err(|why| format!("the upstream proxy: {why}"))?,
            proxy: Proxy { tls: None, ..proxy },
        })
    }

    /// Whether it resolves names itself.
    pub fn sends_names(&self) -> bool {
        self.proxy.send_names
    }

    /// Whether this host is dialled without it.
    pub fn leaves_out(&self, host: &Host) -> bool {
        self.proxy.direct.iter().any(|direct| direct.covers(host))
    }

    /// Opens a connection to the target, as if it were direct.
    pub async fn tunnel(&self, target: &ProxyTarget, port: u16) -> Result<Server, Refusal> {
        let mut last = "it has no address".to_owned();
        for address in &self.proxy.addresses {
            match connect(SocketAddr::new(*address, self.proxy.port)).await {
                Ok(stream) => {
                    let asked = self.ask(stream, target, port);
                    return match tokio::time::timeout(ANSWER_WITHIN, asked).await {
                        Ok(outcome) => outcome,
                        Err(_) => Err(away("does not answer in time")),
                    };
                }
                Err(why) => last = why,
            }
        }
        Err(away(&format!("is not reached: {last}")))
    }

    async fn ask(
        &self,
        stream: TcpStream,
        target: &ProxyTarget,
        port: u16,
    ) -> Result<Server, Refusal> {
        let request = self.proxy.request(target, port);
        let Some(greeter) = &self.greeter else {
            write_all(&stream, &request).await?;
            judge(&read_head(&stream).await?, target, port)?;
            return Ok(Server::Plain(stream));
        };
        let greeted = greeter.greet(stream).await;
        let mut stream = greeted.map_err(|why| away(&why))?;
        let broken = |error| away(&what_is_wrong(&error));
        stream.write_all(&request).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let mut head = Vec::new();
        // Byte by byte, from decrypted data: the rest is from the server, which may speak first.
        while end_of_head(&head).is_none() {
            if head.len() > LONGEST {
                return Err(away(ENDLESS));
            }
            head.push(stream.read_u8().await.map_err(broken)?);
        }
        judge(&head, target, port)?;
        Ok(Server::Secured(Box::new(stream)))
    }
}

impl Proxy {
    fn request(&self, target: &ProxyTarget, port: u16) -> Vec<u8> {
        let mut request = format!("CONNECT {target}:{port} HTTP/1.1\r\nHost: {target}:{port}\r\n");
        if let Some(secret) = &self.authorization {
            request.push_str(&format!("Proxy-Authorization: {}\r\n", secret.basic()));
        }
        request.push_str("\r\n");
        request.into_bytes()
    }
}

/// Whether the answer opens the tunnel.
fn judge(head: &[u8], target: &ProxyTarget, port: u16) -> Result<(), Refusal> {
    match status(head) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(away(
            "wants other credentials (407): see upstream-credentials of the node's file, or HTTPS_PROXY",
        )),
        Some(code) => Err(away(&format!("answers {code} for {target}, port {port}"))),
        None => Err(away("answers something that is not HTTP")),
    }
}

fn away(what: &str) -> Refusal {
    Refusal::Unreachable(format!("the upstream proxy {what}"))
}

/// Reads the head of the answer and not one byte more: the rest is from the server, which may speak first.
async fn read_head(stream: &TcpStream) -> Result<Vec<u8>, Refusal> {
    let broken = |error: std::io::Error| away(&format!("broke the connection: {}", error.kind()));
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let seen = stream.peek(&mut buffer).await.map_err(broken)?;
        if seen == 0 {
            return Err(away("closed the connection"));
        }
        let before = head.len();
        head.extend_from_slice(&buffer[..seen]);
        let end = end_of_head(&head);
        let taken = end.map_or(seen, |end| end - before);
        // These bytes are there: they were only peeked at.
        let mut left = taken;
        while left > 0 {
            stream.readable().await.map_err(broken)?;
            match stream.try_read(&mut buffer[..left]) {
                Ok(0) => return Err(away("closed the connection")),
                Ok(length) => left -= length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(broken(error)),
            }
        }
        if let Some(end) = end {
            head.truncate(end);
            return Ok(head);
        }
        if head.len() > LONGEST {
            return Err(away(ENDLESS));
        }
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    const END: &[u8] = b"\r\n\r\n";
    let at = bytes.windows(END.len()).position(|four| four == END)?;
    Some(at + END.len())
}

fn status(head: &[u8]) -> Option<u16> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => response.code,
        Ok(httparse::Status::Partial) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn proxy(port: u16) -> Proxy {
        Proxy {
            addresses: [IpAddr::V4(Ipv4Addr::LOCALHOST)].into(),
            port,
            authorization: Secret::from_file("Aladdin:open sesame"),
            send_names: false,
            direct: BTreeSet::new(),
            tls: None,
        }
    }

    /// A proxy that answers in these pieces. Returns its request, and the first bytes after the answer's head.
    fn answered(pieces: &'static [&'static [u8]]) -> (String, Result<Vec<u8>, Refusal>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 1024];
            let length = stream.read(&mut asked).unwrap();
            for piece in pieces {
                stream.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            String::from_utf8(asked[..length].to_vec()).unwrap()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let outcome = runtime.block_on(async {
            let target = ProxyTarget::Address("2001:db8::1".parse().unwrap());
            let gate = Gate::new(proxy(port)).unwrap();
            match gate.tunnel(&target, 443).await? {
                Server::Plain(stream) => super::super::stream::read_some(&stream).await,
                Server::Secured(_) => panic!("nobody asked for TLS"),
            }
        });
        (server.join().unwrap(), outcome)
    }

    #[test]
    fn the_request_follows_the_specification_and_the_servers_first_bytes_are_kept() {
        let whole: &[&[u8]] = &[b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\nSSH-2.0"];
        let pieces: &[&[u8]] = &[
            b"HTTP/1.0 200 Connection established\r",
            b"\n\r",
            b"\nSSH-2.0",
        ];
        for answer in [whole, pieces] {
            let (asked, outcome) = answered(answer);
            assert_eq!(outcome.unwrap(), b"SSH-2.0");
            assert_eq!(
                asked,
                "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\
                 Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n"
            );
        }
    }

    #[test]
    fn every_other_answer_is_an_error_without_the_password() {
        const LONG: &[u8] = &[b'x'; 9000];
        const ANSWERS: [(&[&[u8]], &str); 6] = [
            (&[b"HTTP/1.1 407 Who\r\n\r\n"], "407"),
            (
                &[b"HTTP/1.1 403 No\r\n\r\n"],
                "answers 403 for [2001:db8::1]",
            ),
            (&[b"SSH-2.0-x\r\n\r\n"], "not HTTP"),
            (&[b"HTTP/1.1 200 OK\r\n"], "closed"),
            (&[], "closed"),
            (&[b"HTTP/1.1 200 OK\r\nX: ", LONG], "endless"),
        ];
        for (answer, part) in ANSWERS {
            let (_, outcome) = answered(answer);
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains(part), "{part}: {text}");
            assert!(!text.contains("sesame") && !text.contains("QWxh"), "{text}");
        }
    }
}
