//! HTTP/1 requests on their way through the wall: each head must name the decided host, and two programs must not be
//! able to read it differently (RFC 9112, section 11.2: request smuggling).
//!
//! Only the client's side is looked at. What it sends goes to one vetted address, chosen for one name; the answer
//! comes from there and is not ours to judge.

use std::borrow::Cow;
use std::fmt;

use crate::policy::{Host, HostName};

/// The longest request head, in bytes.
pub const LONGEST_HEAD: usize = 32 << 10;
/// The most header fields of a head.
const MOST_FIELDS: usize = 100;
/// The longest line of a chunk's size, in bytes.
const LONGEST_LINE: usize = 4 << 10;
/// Methods whose requests have no content that means anything (RFC 9110, sections 9.3.1, 9.3.2, 9.3.5 and 9.3.8): a server that
/// passes over it takes it for the next request.
const WITHOUT_BODY: [&str; 5] = ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"];

/// Why a request is not passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpRefusal {
    /// It does not begin as a request of HTTP/1 does.
    NotHttp,
    /// The head does not end within [`LONGEST_HEAD`] bytes or has too many fields.
    TooLong,
    /// Two programs could read it differently.
    Ambiguous(&'static str),
    /// It names another host than the connection leads to.
    OtherHost(String),
    /// It asks a proxy for something that is not served.
    Unsupported(&'static str),
}

impl fmt::Display for HttpRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp => f.write_str("this is not a request of HTTP/1"),
            Self::TooLong => f.write_str("the request's head is too long"),
            Self::Ambiguous(what) => write!(f, "the request can be read in two ways: {what}"),
            Self::OtherHost(host) => write!(f, "the request names another host, {host}"),
            Self::Unsupported(what) => f.write_str(what),
        }
    }
}

/// A request's head, checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a str,
    /// The target as it was written.
    pub target: &'a str,
    /// The one Host field, if there is one.
    pub host: Option<&'a str>,
    /// How long the head is, in bytes.
    pub len: usize,
    /// What follows it.
    pub body: Body,
    fields: Vec<(&'a str, &'a [u8])>,
}

/// What follows a request's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// This many bytes.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1).
    Chunked,
}

/// When a head that comes in pieces is read: at the end of each line, of which it may have so many, and where its length is a
/// power of two. However it is cut it is read at the same places, what is no request is refused soon, and a head in single
/// bytes costs little more than one at once (N-L7).
#[derive(Debug, Default)]
pub struct Pieces {
    /// So much has been read already.
    read: usize,
}

impl Pieces {
    /// How much of these bytes to read now, if more than before.
    pub fn due(&mut self, bytes: &[u8]) -> Option<usize> {
        let new = bytes.get(self.read..)?;
        let line = new.iter().rposition(|byte| *byte == b'\n');
        let line = line.map_or(0, |at| self.read + at + 1);
        let power = bytes.len().checked_ilog2().map_or(0, |log| 1 << log);
        let due = if bytes.len() >= LONGEST_HEAD {
            bytes.len()
        } else {
            line.max(power)
        };
        let more = due > self.read;
        self.read = self.read.max(due);
        more.then_some(due)
    }
}

/// Reads a head; `None` while it is not complete.
pub fn head(bytes: &[u8]) -> Result<Option<Head<'_>>, HttpRefusal> {
    // One empty line before a request is passed over (RFC 9112, section 2.2), not any number of them.
    if bytes.starts_with(b"\r\n\r") || bytes.starts_with(b"\n") {
        return Err(HttpRefusal::NotHttp);
    }
    let mut storage = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut storage);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() >= LONGEST_HEAD => {
            return Err(HttpRefusal::TooLong);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HttpRefusal::TooLong),
        Err(_) => return Err(HttpRefusal::NotHttp),
    };
    if len > LONGEST_HEAD {
        return Err(HttpRefusal::TooLong);
    }
    plain_line_ends(&bytes[..len])?;
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(HttpRefusal::NotHttp);
    };
    let fields: Vec<(&str, &[u8])> = request
        .headers
        .iter()
        .map(|field| (field.name, field.value))
        .collect();
    Ok(Some(Head {
        method,
        target,
        host: one_host(&fields)?,
        len,
        body: body(&fields, version)?,
        fields,
    }))
}

/// The parser takes a bare LF for a line's end, as some servers do and others do not.
fn plain_line_ends(head: &[u8]) -> Result<(), HttpRefusal> {
    let bare = head
        .iter()
        .enumerate()
        .any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'));
    if bare {
        return Err(HttpRefusal::Ambiguous("a line that ends with LF alone"));
    }
    Ok(())
}

fn values<'a>(
    fields: &'a [(&'a str, &'a [u8])],
    name: &'a str,
) -> impl Iterator<Item = &'a [u8]> + 'a {
    fields
        .iter()
        .filter(move |(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value)
}

fn one_host<'a>(fields: &[(&'a str, &'a [u8])]) -> Result<Option<&'a str>, HttpRefusal> {
    let mut found = fields
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case("host"))
        .map(|(_, value)| *value);
    let first = found.next();
    if found.next().is_some() {
        return Err(HttpRefusal::Ambiguous("two Host fields"));
    }
    match first.map(std::str::from_utf8) {
        None => Ok(None),
        Some(Ok(host)) => Ok(Some(host)),
        Some(Err(_)) => Err(HttpRefusal::OtherHost("not even text".to_owned())),
    }
}

fn body(fields: &[(&str, &[u8])], version: u8) -> Result<Body, HttpRefusal> {
    let mut coding = values(fields, "transfer-encoding");
    let mut length = values(fields, "content-length");
    match (coding.next(), length.next()) {
        (Some(_), Some(_)) => Err(HttpRefusal::Ambiguous(
            "Content-Length beside Transfer-Encoding",
        )),
        (Some(coding_value), None) => {
            let chunked = coding_value.eq_ignore_ascii_case(b"chunked");
            if !chunked || coding.next().is_some() || version == 0 {
                return Err(HttpRefusal::Ambiguous(
                    "a Transfer-Encoding that is not chunked",
                ));
            }
            Ok(Body::Chunked)
        }
        (None, Some(value)) => {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(value).unwrap_or_default();
            match text.parse() {
                Ok(count) if digits && length.next().is_none() => Ok(Body::Length(count)),
                _ => Err(HttpRefusal::Ambiguous(
                    "a Content-Length that is not one number",
                )),
            }
        }
        (None, None) => Ok(Body::Length(0)),
    }
}

/// A host and a port, as `CONNECT`, an absolute target or a Host field write them; the port may be left out.
pub fn authority(text: &str) -> Result<(Host, Option<u16>), HttpRefusal> {
    let bad = || HttpRefusal::OtherHost(crate::policy::shown(text));
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    // A bare IPv6 address cannot stand before a port.
    if host.contains(':') && !host.starts_with('[') {
        return Err(bad());
    }
    let port = match port {
        None => None,
        Some(port) => {
            let digits =
                !port.is_empty() && port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
            let port = port.parse::<u16>().ok().filter(|port| digits && *port != 0);
            Some(port.ok_or_else(bad)?)
        }
    };
    Ok((host.parse().map_err(|_| bad())?, port))
}

/// What a client asks its proxy for.
#[derive(Debug, PartialEq, Eq)]
pub enum ProxyRequest {
    /// `CONNECT`: a tunnel to this host and port.
    Tunnel(Host, u16),
    /// A request for an `http:` address, and the head to send there.
    Forward(Host, u16, Vec<u8>),
}

/// Reads what a head asks a proxy for. A forwarded request is the last of its connection: the answer to it is not
/// looked at, so nobody here could tell where the next one's begins.
pub fn proxy_request(head: &Head<'_>) -> Result<ProxyRequest, HttpRefusal> {
    if head.method == "CONNECT" {
        let (host, port) = authority(head.target)?;
        let port = port.ok_or(HttpRefusal::Unsupported("CONNECT without a port"))?;
        return Ok(ProxyRequest::Tunnel(host, port));
    }
    let Some(rest) = strip_scheme(head.target) else {
        return Err(HttpRefusal::Unsupported(
            "this is a proxy: it takes CONNECT, and http:// addresses",
        ));
    };
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(at);
    let (host, port) = authority(named)?;
    // A port that is left out is 80 on both sides.
    let same = |(named, named_port): (Host, Option<u16>)| {
        named == host && named_port.unwrap_or(HTTP) == port.unwrap_or(HTTP)
    };
    if let Some(field) = head.host
        && !same(authority(field)?)
    {
        return Err(HttpRefusal::Ambiguous(
            "a Host field that differs from the address",
        ));
    }
    let path = match path.chars().next() {
        None => "/".to_owned(),
        Some('/') => path.to_owned(),
        Some(_) => format!("/{path}"),
    };
    let mut out = format!("{} {path} HTTP/1.1\r\nHost: {named}\r\n", head.method).into_bytes();
    let dropped = [
        "host",
        "connection",
        "proxy-connection",
        "proxy-authorization",
        "keep-alive",
        "upgrade",
    ];
    for (name, value) in &head.fields {
        if !dropped.iter().any(|d| name.eq_ignore_ascii_case(d)) {
            out.extend(name.as_bytes());
            out.extend(b": ");
            out.extend(*value);
            out.extend(b"\r\n");
        }
    }
    out.extend(b"Connection: close\r\n\r\n");
    Ok(ProxyRequest::Forward(host, port.unwrap_or(HTTP), out))
}

/// The port of `http:` addresses.
const HTTP: u16 = 80;

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    scheme.eq_ignore_ascii_case("http").then_some(rest)
}

/// Watches the requests of one connection: passes on what belongs to requests for its host, and refuses the rest.
#[derive(Debug)]
pub struct RequestGuard {
    host: HostName,
    port: u16,
    state: State,
    /// What has come of a head or of a line that is not complete.
    pending: Vec<u8>,
    pieces: Pieces,
    /// Requests that were passed on.
    requests: u64,
    /// No request may follow.
    last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(u64),
    ChunkSize,
    /// The bytes of a chunk with the CRLF behind it.
    Chunk(u64),
    Trailer,
}

impl RequestGuard {
    /// For a connection that leads to this host and port.
    pub fn new(host: HostName, port: u16) -> Self {
        Self {
            host,
            port,
            state: State::Head,
            pending: Vec::new(),
            pieces: Pieces::default(),
            requests: 0,
            last: false,
        }
    }

    /// For a connection whose one head was rewritten and is on its way already.
    pub fn after_head(host: HostName, port: u16, body: Body) -> Self {
        let mut guard = Self::new(host, port);
        guard.last = true;
        guard.begin(body);
        guard
    }

    /// How many requests were passed on.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Takes what the client sent and appends to `out` what may be passed on.
    pub fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), HttpRefusal> {
        while !input.is_empty() {
            match self.state {
                State::Head if self.last => {
                    return Err(HttpRefusal::Unsupported(
                        "a second request on a connection that forwards one",
                    ));
                }
                State::Head => {
                    let mut pending = std::mem::take(&mut self.pending);
                    let before = pending.len();
                    // Copied only where a part had come: many small requests may come at once.
                    let all = match before {
                        0 => Cow::Borrowed(input),
                        _ => {
                            pending.extend_from_slice(input);
                            Cow::Owned(pending)
                        }
                    };
                    let whole = match self.pieces.due(&all) {
                        Some(due) => head(&all[..due])?,
                        None => None,
                    };
                    let Some(head) = whole else {
                        self.pending = all.into_owned();
                        break;
                    };
                    self.pieces = Pieces::default();
                    self.check(&head)?;
                    let (len, body) = (head.len, head.body);
                    out.extend_from_slice(&all[..len]);
                    self.requests += 1;
                    self.begin(body);
                    // It was not complete before: the head ends in this input.
                    input = input.get(len - before..).unwrap_or_default();
                }
                State::Length(left) => {
                    let (now, rest) = take(input, left);
                    out.extend_from_slice(now);
                    input = rest;
                    self.begin(Body::Length(left - now.len() as u64));
                }
                State::Chunk(left) => {
                    let (now, rest) = take(input, left);
                    self.check_chunk_end(now, left)?;
                    out.extend_from_slice(now);
                    input = rest;
                    let left = left - now.len() as u64;
                    self.state = if left == 0 {
                        State::ChunkSize
                    } else {
                        State::Chunk(left)
                    };
                }
                State::ChunkSize | State::Trailer => {
                    input = self.line(input, out)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, body: Body) {
        self.state = match body {
            Body::Length(0) => State::Head,
            Body::Length(count) => State::Length(count),
            Body::Chunked => State::ChunkSize,
        };
    }

    fn check(&self, head: &Head<'_>) -> Result<(), HttpRefusal> {
        // Methods have their case (RFC 9110, section 9.1), and servers that overlook it.
        let is = |method: &str| head.method.eq_ignore_ascii_case(method);
        if is("CONNECT") {
            return Err(HttpRefusal::Unsupported(
                "CONNECT to a server that is no proxy",
            ));
        }
        if head.body != Body::Length(0) {
            if WITHOUT_BODY.into_iter().any(is) {
                return Err(HttpRefusal::Ambiguous(
                    "a body of a request that has none (GET, HEAD, DELETE, OPTIONS, TRACE)",
                ));
            }
            if values(&head.fields, "upgrade").next().is_some() {
                return Err(HttpRefusal::Ambiguous("a body beside Upgrade"));
            }
        }
        let mut named = vec![
            head.host
                .ok_or_else(|| HttpRefusal::OtherHost("none".to_owned()))?,
        ];
        if let Some(rest) = strip_scheme(head.target) {
            named.push(rest.split(['/', '?', '#']).next().unwrap_or(rest));
        } else if !head.target.starts_with('/') && head.target != "*" {
            return Err(HttpRefusal::OtherHost(crate::policy::shown(head.target)));
        }
        for text in named {
            let (host, port) = authority(text)?;
            if host != Host::Name(self.host.clone()) || port.is_some_and(|p| p != self.port) {
                return Err(HttpRefusal::OtherHost(crate::policy::shown(text)));
            }
        }
        Ok(())
    }

    /// Whether the last two bytes of a chunk, where they are here, are its CRLF.
    fn check_chunk_end(&self, now: &[u8], left: u64) -> Result<(), HttpRefusal> {
        let mut rest = left;
        for byte in now {
            let wrong = match rest {
                2 => *byte != b'\r',
                1 => *byte != b'\n',
                _ => false,
            };
            if wrong {
                return Err(HttpRefusal::Ambiguous(
                    "a chunk that is longer than it says",
                ));
            }
            rest -= 1;
        }
        Ok(())
    }

    /// One line of a chunk's size, or the empty one behind the last chunk; returns what follows it.
    fn line<'a>(&mut self, input: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], HttpRefusal> {
        let Some(end) = input.iter().position(|b| *b == b'\n') else {
            self.pending.extend_from_slice(input);
            if self.pending.len() > LONGEST_LINE {
                return Err(HttpRefusal::TooLong);
            }
            return Ok(&[]);
        };
        let mut line = std::mem::take(&mut self.pending);
        line.extend_from_slice(&input[..=end]);
        let Some(content) = line.strip_suffix(b"\r\n") else {
            return Err(HttpRefusal::Ambiguous("a line that ends with LF alone"));
        };
        if content.len() > LONGEST_LINE {
            return Err(HttpRefusal::TooLong);
        }
        self.state = match self.state {
            State::ChunkSize => match chunk_size(content)? {
                0 => State::Trailer,
                size => State::Chunk(size + 2),
            },
            _ if content.is_empty() => State::Head,
            // Servers differ in what they take for a field, and for the end.
            _ => return Err(HttpRefusal::Ambiguous("a trailer behind the last chunk")),
        };
        out.extend_from_slice(&line);
        Ok(&input[end + 1..])
    }
}

fn take(input: &[u8], left: u64) -> (&[u8], &[u8]) {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
    input.split_at(count)
}

/// The size of a chunk: up to 15 hexadecimal digits, and nothing else: no extension is in use, and servers disagree
/// about them.
fn chunk_size(line: &[u8]) -> Result<u64, HttpRefusal> {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let plain = (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(text, 16)
        .ok()
        .filter(|_| plain)
        .ok_or(HttpRefusal::Ambiguous(
            "a chunk's size that is not a plain number",
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> RequestGuard {
        RequestGuard::new("example.com".parse().unwrap(), 80)
    }

    /// Feeds whole and byte by byte: both must say the same.
    fn run(text: &str) -> Result<String, HttpRefusal> {
        let (mut whole, mut out) = (guard(), Vec::new());
        let first = whole.feed(text.as_bytes(), &mut out);
        let (mut bytes, mut slow) = (guard(), Vec::new());
        let second = text
            .bytes()
            .try_for_each(|byte| bytes.feed(&[byte], &mut slow));
        assert_eq!(first, second, "{text:?}");
        first.map(|()| {
            assert_eq!(out, slow);
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn requests_for_the_host_pass_unchanged() {
        for text in [
            "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: EXAMPLE.com:80\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\nGET /b HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        ] {
            assert_eq!(run(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn other_hosts_are_refused_also_later() {
        for text in [
            "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com:8080\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com.evil.test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: user@example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET http://evil.test/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET evil.test HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        ] {
            assert!(
                matches!(run(text), Err(HttpRefusal::OtherHost(_))),
                "{text:?}: {:?}",
                run(text)
            );
        }
        let tunnel = "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com\r\n\r\n";
        assert!(run(tunnel).is_err());
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let with = |fields: &str, rest: &str| {
            format!("POST / HTTP/1.1\r\nHost: example.com\r\n{fields}\r\n\r\n{rest}")
        };
        for text in [
            with(
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                "0\r\n\r\n",
            ),
            with("Content-Length: 5\r\nContent-Length: 6", "hello"),
            with("Content-Length: 5\r\nContent-Length: 5", "hello"),
            with("Content-Length: +5", "hello"),
            with("Content-Length: 5, 5", "hello"),
            with("Content-Length: 0x5", "hello"),
            with("Content-Length:", "hello"),
            with("Content-Length: 99999999999999999999999", ""),
            with("Transfer-Encoding: gzip, chunked", ""),
            with("Transfer-Encoding: xchunked", ""),
            with(
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                "",
            ),
            with(
                "Transfer-Encoding: chunked",
                "5;ext=1\r\nhello\r\n0\r\n\r\n",
            ),
            with("Transfer-Encoding: chunked", "5\nhello\r\n0\r\n\r\n"),
            with("Transfer-Encoding: chunked", "5\r\nhelloworld\r\n0\r\n\r\n"),
            with("Transfer-Encoding: chunked", "-1\r\nhello\r\n"),
            with("Transfer-Encoding: chunked", "\r\nhello\r\n"),
            with("Transfer-Encoding: chunked", "ffffffffffffffffff\r\n"),
            with("Host: example.com", ""),
            "GET / HTTP/1.1\nHost: example.com\n\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: example.com\n\r\n".to_owned(),
        ] {
            assert!(
                matches!(run(&text), Err(HttpRefusal::Ambiguous(_))),
                "{text:?}: {:?}",
                run(&text)
            );
        }
        for text in [
            with("Transfer-Encoding : chunked", ""),
            with(" folded: x", ""),
            with("A: b\r\n c", ""),
            "\u{16}\u{3}\u{1}".to_owned(),
            "SSH-2.0-x\r\n".to_owned(),
            "GET  / HTTP/1.1\r\nHost: example.com\r\n\r\n".to_owned(),
            "GET / HTTP/2.0\r\nHost: example.com\r\n\r\n".to_owned(),
        ] {
            assert!(run(&text).is_err(), "{text:?}");
        }
    }

    /// N-L1, N34: what one server reads as a body or a trailer, and another as the next request.
    #[test]
    fn bodies_and_trailers_that_servers_pass_over_are_refused() {
        let other = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n";
        let length = other.len();
        let chunk = format!("{length:x}\r\n{other}\r\n0\r\n\r\n");
        let post = "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
        let mut shapes = vec![
            format!(
                "POST / HTTP/1.1\r\nHost: example.com\r\nUpgrade: x\r\nContent-Length: {length}\r\n\r\n{other}"
            ),
            format!("{post}A: b\r\n\r\n"),
            format!("{post}{other}"),
            format!("{post}\r\r\n{other}"),
            format!("{post}\r\r\n\r\n"),
            format!("{post} \r\n\r\n"),
        ];
        for method in WITHOUT_BODY.into_iter().chain(["get", "Delete"]) {
            let begin = format!("{method} / HTTP/1.1\r\nHost: example.com\r\n");
            shapes.push(format!("{begin}Content-Length: {length}\r\n\r\n{other}"));
            shapes.push(format!("{begin}Transfer-Encoding: chunked\r\n\r\n{chunk}"));
        }
        for text in shapes {
            assert!(
                matches!(run(&text), Err(HttpRefusal::Ambiguous(_))),
                "{text:?}: {:?}",
                run(&text)
            );
        }
        // CR CR LF inside a head, and more empty lines before one than anybody sends.
        for text in [
            "GET / HTTP/1.1\r\nHost: example.com\r\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\nA: b\r\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        ] {
            assert!(run(text).is_err(), "{text:?}");
        }
    }

    /// N-L7: the sidecar's time is not the container's.
    #[test]
    fn a_head_in_single_bytes_is_not_read_again_and_again() {
        let long = format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\nA: {}\r\n\r\n",
            "a".repeat(30_000)
        );
        let many = format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\n{}\r\n",
            "A: bcdefghijklmnopqrstuvwxyz\r\n".repeat(90)
        );
        for text in [long, many] {
            let (mut pieces, mut read) = (Pieces::default(), 0);
            for end in 1..=text.len() {
                read += pieces.due(&text.as_bytes()[..end]).unwrap_or(0);
            }
            // And not half of the square of its length, as it would be at each byte.
            assert!(read < 60 * text.len(), "{read} of {}", text.len());
            assert_eq!(run(&text).as_deref(), Ok(&*text));
        }
    }

    #[test]
    fn endless_input_is_bounded() {
        let head = format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\nA: {}",
            "a".repeat(LONGEST_HEAD)
        );
        assert_eq!(
            guard().feed(head.as_bytes(), &mut Vec::new()),
            Err(HttpRefusal::TooLong)
        );
        let fields = format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\n{}",
            "A: b\r\n".repeat(200)
        );
        assert_eq!(
            guard().feed(fields.as_bytes(), &mut Vec::new()),
            Err(HttpRefusal::TooLong)
        );
        let trailer = format!(
            "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}",
            "a".repeat(LONGEST_LINE + 1)
        );
        assert_eq!(
            guard().feed(trailer.as_bytes(), &mut Vec::new()),
            Err(HttpRefusal::TooLong)
        );
    }

    fn asked(text: &str) -> Result<ProxyRequest, HttpRefusal> {
        proxy_request(&head(text.as_bytes()).unwrap().unwrap())
    }

    #[test]
    fn reads_what_a_proxy_is_asked() {
        let name = |text: &str| text.parse::<Host>().unwrap();
        assert_eq!(
            asked("CONNECT Example.com:443 HTTP/1.1\r\nHost: whatever\r\n\r\n"),
            Ok(ProxyRequest::Tunnel(name("example.com"), 443))
        );
        assert_eq!(
            asked("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n"),
            Ok(ProxyRequest::Tunnel(name("2001:db8::1"), 443))
        );
        let forward = asked(
            "GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\nAccept: x\r\nProxy-Authorization: secret\r\nConnection: keep-alive\r\n\r\n",
        );
        let sent =
            "GET /a?b HTTP/1.1\r\nHost: example.com\r\nAccept: x\r\nConnection: close\r\n\r\n";
        assert_eq!(
            forward,
            Ok(ProxyRequest::Forward(name("example.com"), 80, sent.into()))
        );
    }

    /// N-L8: a port that is left out is 80, in the address as in the field.
    #[test]
    fn the_port_of_http_may_be_left_out_on_either_side() {
        for (address, field) in [
            ("example.com:80", "example.com"),
            ("example.com", "example.com:80"),
            ("example.com:80", "example.com:80"),
            ("example.com:8080", "example.com:8080"),
        ] {
            let text = format!("GET http://{address}/ HTTP/1.1\r\nHost: {field}\r\n\r\n");
            assert!(asked(&text).is_ok(), "{text:?}: {:?}", asked(&text));
        }
        for (address, field) in [
            ("example.com:8080", "example.com"),
            ("example.com", "example.com:8080"),
        ] {
            let text = format!("GET http://{address}/ HTTP/1.1\r\nHost: {field}\r\n\r\n");
            assert!(asked(&text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn refuses_odd_wishes_to_a_proxy() {
        for text in [
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT example.com:0 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:443:443 HTTP/1.1\r\n\r\n",
            "CONNECT user@example.com:443 HTTP/1.1\r\n\r\n",
            "CONNECT 2130706433:443 HTTP/1.1\r\n\r\n",
            "CONNECT 0x7f.1:443 HTTP/1.1\r\n\r\n",
            "CONNECT [fe80::1%25lo]:443 HTTP/1.1\r\n\r\n",
            "CONNECT example.com%00.evil.test:443 HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
            "GET https://example.com/ HTTP/1.1\r\n\r\n",
            "GET ftp://example.com/ HTTP/1.1\r\n\r\n",
            "GET http://user:pw@example.com/ HTTP/1.1\r\n\r\n",
            "GET http://example.com/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        ] {
            assert!(asked(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_forwarded_request_is_the_last() {
        let mut guard =
            RequestGuard::after_head("example.com".parse().unwrap(), 80, Body::Length(2));
        let mut out = Vec::new();
        guard.feed(b"ab", &mut out).unwrap();
        assert_eq!(out, b"ab");
        assert!(guard.feed(b"GET", &mut out).is_err());
    }
}
