//! HTTP/1 requests through the sidecar: each head must name the decided host, and no two programs may read it
//! differently (RFC 9112, section 11.2: request smuggling).
//!
//! Only the client's side is read. Its bytes go to one vetted address, chosen for one name. The answer comes from there
//! and needs no check.

mod fields;
mod guard;

use std::fmt;

use crate::rules::Host;

pub use fields::{KnownFields, stays_behind};
pub use guard::RequestGuard;

/// The longest request head, in bytes.
pub const LONGEST_HEAD: usize = 32 << 10;
/// The path at which the proxy itself lists its refusals.
const REFUSALS: &str = "/denied";
/// The most header fields of a head.
const MOST_FIELDS: usize = 100;
/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpRefusal {
    /// It does not begin like an HTTP/1 request.
    NotHttp,
    /// The head does not end within [`LONGEST_HEAD`] bytes or has too many fields.
    TooLong,
    /// Two programs could read it differently.
    Ambiguous(&'static str),
    /// It names another host than the connection's.
    OtherHost(String),
    /// It requests something that this proxy does not support.
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

/// A request's head, after the checks.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method.
    pub method: &'a str,
    /// The target as written.
    pub target: &'a str,
    /// The one Host field, if there is one.
    pub host: Option<&'a str>,
    /// The length of the head in bytes.
    pub len: usize,
    /// The body after it.
    pub body: Body,
    fields: Vec<(&'a str, &'a [u8])>,
}

/// The body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// This many bytes.
    Length(u64),
    /// Chunks (RFC 9112, section 7.1).
    Chunked,
}

/// When to parse a head that comes in pieces: at the end of each line, and at each length that is a power of two. So
/// the cuts do not matter, a bad request is refused early, and a head in single bytes costs little more than one in a
/// single piece.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The length that was parsed last.
    read: usize,
}

impl Pieces {
    /// How many of these bytes to parse now, if more than before.
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
    // Only one empty line before a request is ignored (RFC 9112, section 2.2).
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

/// The parser accepts a bare LF as a line end. Some servers do too, others do not.
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

/// Parses a host and an optional port, as in `CONNECT`, an absolute target or a Host field.
pub fn authority(text: &str) -> Result<(Host, Option<u16>), HttpRefusal> {
    let bad = || HttpRefusal::OtherHost(crate::text::shown(text));
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    // An IPv6 address needs brackets before a port.
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

/// A client's request to its proxy.
#[derive(Debug, PartialEq, Eq)]
pub enum ProxyRequest {
    /// `CONNECT`: a tunnel to this host and port.
    Tunnel(Host, u16),
    /// A request for an `http:` address, and the head to send to it.
    Forward(Host, u16, Vec<u8>),
    /// A path alone: a request to the proxy itself, for its refusals.
    Refusals,
}

/// Reads the request to a proxy from a head. A forwarded request is the last of its connection: the answer is not read,
/// so the start of the next one's would be unknown.
pub fn proxy_request(head: &Head<'_>) -> Result<ProxyRequest, HttpRefusal> {
    if head.method == "CONNECT" {
        let (host, port) = authority(head.target)?;
        let port = port.ok_or(HttpRefusal::Unsupported("CONNECT without a port"))?;
        return Ok(ProxyRequest::Tunnel(host, port));
    }
    if head.method == "GET" && head.target == REFUSALS {
        return Ok(ProxyRequest::Refusals);
    }
    let Some(rest) = strip_scheme(head.target) else {
        return Err(HttpRefusal::Unsupported(
            "this is a proxy: it takes CONNECT, and http:// addresses",
        ));
    };
    guard::check_method(head)?;
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(at);
    let (host, port) = authority(named)?;
    // Without a port, both sides mean 80.
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

#[cfg(test)]
mod tests;
