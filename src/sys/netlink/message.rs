//! Messages of netlink(7), in bytes: questions, and the kernel's answers. A length that does not fit is an error.

use std::io;

pub(super) const HEADER: usize = 16;
pub(super) const NLMSG_NOOP: u16 = 1;
pub(super) const NLMSG_ERROR: u16 = 2;
pub(super) const NLMSG_DONE: u16 = 3;
pub(super) const NLM_F_DUMP_INTR: u16 = 0x10;
/// The bits above an attribute's type number are flags about its content (linux/netlink.h).
pub(super) const ATTRIBUTE_TYPE: u16 = 0x3fff;

pub(super) fn encode(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(HEADER + body.len()).map_err(|_| malformed("request length"))?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(len.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]); // our port: the kernel fills it in
    message.extend(body);
    Ok(message)
}

/// Appends one attribute. `data` is at most an address, so the length always fits.
pub(super) fn push_attribute(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let len = (4 + data.len()) as u16;
    body.extend(len.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// One message of a datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Takes the next message from `rest`; `None` at the datagram's end.
pub(super) fn next_message<'a>(rest: &mut &'a [u8]) -> io::Result<Option<Message<'a>>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let len = u32_at(rest, 0)? as usize;
    if len < HEADER || len > rest.len() {
        return Err(malformed("a message's length does not fit its datagram"));
    }
    let message = Message {
        kind: u16_at(rest, 4)?,
        flags: u16_at(rest, 6)?,
        sequence: u32_at(rest, 8)?,
        body: &rest[HEADER..len],
    };
    *rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    Ok(Some(message))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Dump {
    Complete,
    More,
}

/// Whether a dump ends with this datagram.
pub(super) fn is_last(datagram: &[u8]) -> bool {
    let mut rest = datagram;
    while let Ok(Some(message)) = next_message(&mut rest) {
        if message.kind == NLMSG_DONE {
            return true;
        }
    }
    false
}

pub(super) fn parse_dump(
    datagram: &[u8],
    sequence: u32,
    wanted: u16,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Dump> {
    let mut rest = datagram;
    if rest.is_empty() {
        return Err(malformed("an empty datagram in the dump"));
    }
    while let Some(message) = next_message(&mut rest)? {
        if message.sequence != sequence {
            return Err(malformed("an answer to another question"));
        }
        if message.flags & NLM_F_DUMP_INTR != 0 {
            let changed = "the list changed while it was read";
            return Err(io::Error::new(io::ErrorKind::Interrupted, changed));
        }
        match message.kind {
            NLMSG_DONE => {
                status(message.body)?;
                return Ok(Dump::Complete);
            }
            NLMSG_ERROR => {
                status(message.body)?;
                return Err(malformed("an acknowledgement inside the dump"));
            }
            NLMSG_NOOP => {}
            kind if kind == wanted => each(message.body)?,
            _ => return Err(malformed("a message that was not asked for")),
        }
    }
    Ok(Dump::More)
}

/// The last attribute of this kind after a header.
pub(super) fn attribute(body: &[u8], header: usize, wanted: u16) -> io::Result<Option<&[u8]>> {
    let mut found = None;
    let mut rest = body
        .get(header..)
        .ok_or_else(|| malformed("a message's header is short"))?;
    // Each turn takes at least four bytes, so the datagram's length bounds this loop.
    while !rest.is_empty() {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)?;
        if len < 4 || len > rest.len() {
            return Err(malformed("an attribute's length does not fit its message"));
        }
        if kind & ATTRIBUTE_TYPE == wanted {
            found = Some(&rest[4..len]);
        }
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
    }
    Ok(found)
}

pub(super) fn parse_acknowledgement(datagram: &[u8], sequence: u32) -> io::Result<()> {
    let mut rest = datagram;
    match next_message(&mut rest)? {
        Some(message) if message.kind == NLMSG_ERROR && message.sequence == sequence => {
            status(message.body)
        }
        Some(_) | None => Err(malformed("not an acknowledgement of the request")),
    }
}

/// The body of the one message that answers a question; `None` for an answer to an earlier one.
pub(super) fn parse_answer(
    datagram: &[u8],
    sequence: u32,
    wanted: u16,
) -> io::Result<Option<&[u8]>> {
    let mut rest = datagram;
    match next_message(&mut rest)? {
        Some(message) if message.sequence != sequence => Ok(None),
        Some(message) if message.kind == NLMSG_ERROR => {
            status(message.body)?;
            Err(malformed("an acknowledgement for an answer"))
        }
        Some(message) if message.kind == wanted => Ok(Some(message.body)),
        Some(_) | None => Err(malformed("a message that was not asked for")),
    }
}

/// The status word at the beginning of `NLMSG_ERROR` and `NLMSG_DONE`: zero or minus an errno.
pub(super) fn status(body: &[u8]) -> io::Result<()> {
    match u32_at(body, 0)? as i32 {
        0 => Ok(()),
        errno @ -4095..=-1 => Err(io::Error::from_raw_os_error(-errno)),
        _ => Err(malformed("a status that is no errno")),
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let two = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    two.map(u16::from_ne_bytes)
        .ok_or_else(|| malformed("a message ends inside a field"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map(u32::from_ne_bytes)
        .ok_or_else(|| malformed("a message ends inside a field"))
}

pub(super) fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
