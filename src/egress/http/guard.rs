//! The requests of one connection in sequence: each must be for the decided host.

use std::borrow::Cow;

use super::{Body, Head, HttpRefusal, Pieces, authority, head, strip_scheme, values};
use crate::rules::{Host, HostName};

/// The longest line of a chunk's size, in bytes.
pub(super) const LONGEST_LINE: usize = 4 << 10;
/// Methods whose content has no meaning (RFC 9110, sections 9.3.1, 9.3.2, 9.3.5 and 9.3.8). A server that ignores it
/// would read it as the next request.
pub(super) const WITHOUT_BODY: [&str; 5] = ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"];

/// Checks the requests of one connection: passes on those for its host, and refuses the rest.
#[derive(Debug)]
pub struct RequestGuard {
    /// The host and port that each request must name. `None` if the next reader checks them.
    to: Option<(HostName, u16)>,
    state: State,
    /// The bytes so far of an incomplete head or line.
    pending: Vec<u8>,
    pieces: Pieces,
    /// Requests that were passed on.
    requests: u64,
    /// No request may follow.
    last: bool,
    /// The last request asks for another protocol, so what follows has no meaning before the answer.
    waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(u64),
    ChunkSize,
    /// The bytes of a chunk and its CRLF.
    Chunk(u64),
    Trailer,
}

impl RequestGuard {
    /// For a connection to this host and port.
    pub fn new(host: HostName, port: u16) -> Self {
        Self::to(Some((host, port)))
    }

    /// Checks only that requests have one framing. The next reader checks their hosts.
    pub fn of_framing() -> Self {
        Self::to(None)
    }

    fn to(to: Option<(HostName, u16)>) -> Self {
        Self {
            to,
            state: State::Head,
            pending: Vec::new(),
            pieces: Pieces::default(),
            requests: 0,
            last: false,
            waits: false,
        }
    }

    /// For a connection whose only head was rewritten and already sent.
    pub fn after_head(host: HostName, port: u16, body: Body) -> Self {
        let mut guard = Self::new(host, port);
        guard.last = true;
        guard.begin(body);
        guard
    }

    /// The answer to a request for another protocol keeps HTTP, so requests may follow.
    pub fn stays(&mut self) {
        self.waits = false;
    }

    /// The number of requests that were passed on.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Takes the client's bytes and appends to `out` what may pass.
    pub fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), HttpRefusal> {
        while !input.is_empty() {
            match self.state {
                State::Head if self.last => {
                    return Err(HttpRefusal::Unsupported(
                        "a second request on a connection that forwards one",
                    ));
                }
                State::Head if self.waits => {
                    return Err(HttpRefusal::Ambiguous(
                        "data after an Upgrade request, before the response",
                    ));
                }
                State::Head => {
                    let mut pending = std::mem::take(&mut self.pending);
                    let before = pending.len();
                    // Copied only after a partial head: many small requests may come at once.
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
                    // If only hosts are checked, no answers are read.
                    self.waits = self.to.is_none() && has_upgrade(&head);
                    self.begin(body);
                    // The head was incomplete before, so it ends in this input.
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
        check_method(head)?;
        if head.body != Body::Length(0) && has_upgrade(head) {
            return Err(HttpRefusal::Ambiguous("a body beside Upgrade"));
        }
        let Some((decided, decided_port)) = &self.to else {
            return Ok(());
        };
        let mut named = vec![
            head.host
                .ok_or_else(|| HttpRefusal::OtherHost("none".to_owned()))?,
        ];
        if let Some(rest) = strip_scheme(head.target) {
            named.push(rest.split(['/', '?', '#']).next().unwrap_or(rest));
        } else if !head.target.starts_with('/') && head.target != "*" {
            return Err(HttpRefusal::OtherHost(crate::text::shown(head.target)));
        }
        for text in named {
            let (host, port) = authority(text)?;
            if host != Host::Name(decided.clone()) || port.is_some_and(|p| p != *decided_port) {
                return Err(HttpRefusal::OtherHost(crate::text::shown(text)));
            }
        }
        Ok(())
    }

    /// Checks that the last two bytes of a chunk, as far as they are here, are its CRLF.
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

    /// Reads one line with a chunk's size, or the empty line after the last chunk. Returns the rest.
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
            // Servers disagree about which lines are fields, and about the end.
            _ => return Err(HttpRefusal::Ambiguous("a trailer after the last chunk")),
        };
        out.extend_from_slice(&line);
        Ok(&input[end + 1..])
    }
}

/// Refuses CONNECT, and a body that servers pass over: they would take it for the next request (N34).
pub(super) fn check_method(head: &Head<'_>) -> Result<(), HttpRefusal> {
    // Methods are case-sensitive (RFC 9110, section 9.1), but some servers ignore case.
    let is = |method: &str| head.method.eq_ignore_ascii_case(method);
    if is("CONNECT") {
        return Err(HttpRefusal::Unsupported(
            "CONNECT to a server that is not a proxy",
        ));
    }
    if head.body != Body::Length(0) && WITHOUT_BODY.into_iter().any(is) {
        return Err(HttpRefusal::Ambiguous(
            "a body of a request that has none (GET, HEAD, DELETE, OPTIONS, TRACE)",
        ));
    }
    Ok(())
}

fn has_upgrade(head: &Head<'_>) -> bool {
    values(&head.fields, "upgrade").next().is_some()
}

fn take(input: &[u8], left: u64) -> (&[u8], &[u8]) {
    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
    input.split_at(count)
}

/// The size of a chunk: up to 15 hexadecimal digits, without extensions. None is in use, and servers disagree about
/// them.
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
