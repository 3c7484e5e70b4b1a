//! MCP messages: read from a request before its decision, and lists in answers.
//!
//! The sent message is the canonical form of [`crate::egress::mcp`]. Lists in answers are reduced to the allowed items,
//! in JSON or in a stream of events.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body_util::Either;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap,
    HeaderValue, IF_RANGE, RANGE,
};
use hyper::{Method, Request as HttpRequest, Response};

use super::held_body::{HoldError, Room, Sender, Share, Slices};
use super::redaction::RedactedBody;
use crate::egress::mcp::{self, LONGEST, McpMessage};
use crate::rules::request::calls::McpLists;

/// The body of a request: the client's own, or an MCP message in canonical form.
pub(super) type SentBody = Either<Incoming, Slices>;
/// The body of an answer.
pub(super) type AnswerBody = Either<Incoming, RedactedBody>;
/// The body of an answer that can contain MCP lists.
pub(super) type FilteredBody = Either<AnswerBody, Either<Slices, EventStream<AnswerBody>>>;

/// Replaces a request's message with its canonical form, held in this room. The error is why no decision is possible.
pub(super) async fn take(
    message: HttpRequest<SentBody>,
    room: &Room,
) -> Result<(HttpRequest<SentBody>, McpMessage), HoldError> {
    let (parts, mut body) = message.into_parts();
    let taken = match parts.method {
        Method::POST => {
            is_one(&parts.headers).map_err(HoldError::Unfit)?;
            let (bytes, share) = room.whole(&mut body, Sender::Client).await?;
            let read = mcp::read(&bytes);
            drop(bytes);
            let mut taken = read
                .map_err(|why| HoldError::Unfit(format!("its body is no message of MCP: {why}")))?;
            says_the_same(&parts.headers, &taken).map_err(HoldError::Unfit)?;
            let mut form = std::mem::take(&mut taken.bytes);
            form.shrink_to_fit();
            let share = room.change(share, form.len())?;
            body = Either::Right(Slices::new(form, share));
            taken
        }
        _ => {
            if !body.is_end_stream() {
                let why = "it has a body, which no message of MCP has by this method";
                return Err(HoldError::Unfit(why.to_owned()));
            }
            without_message(&parts.method, &parts.headers).map_err(HoldError::Unfit)?;
            McpMessage {
                stream: true,
                ..McpMessage::default()
            }
        }
    };
    Ok((HttpRequest::from_parts(parts, body), taken))
}

/// Whether a body is uncompressed JSON.
fn is_one(headers: &HeaderMap) -> Result<(), String> {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let is_json = types.next().is_some_and(|value| is_type(value, JSON)) && types.next().is_none();
    if !is_json {
        return Err(format!(
            "its Content-Type is not {JSON}, which a message of MCP has"
        ));
    }
    match is_plain(headers) {
        true => Ok(()),
        false => Err("its body is compressed, so the message cannot be checked".to_owned()),
    }
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Whether a field names this type, with the only character encoding of JSON.
fn is_type(value: &HeaderValue, known: &str) -> bool {
    let Ok(text) = value.to_str() else {
        return false;
    };
    let mut parts = text.split(';').map(str::trim);
    let named = parts.next().unwrap_or_default();
    let is_utf8 = |part: &str| {
        let part = part.to_ascii_lowercase().replace('"', "");
        part == "charset=utf-8"
    };
    named.eq_ignore_ascii_case(known) && parts.all(is_utf8)
}

fn is_plain(headers: &HeaderMap) -> bool {
    let plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    headers.get_all(CONTENT_ENCODING).iter().all(plain)
}

/// The other requests of a client: the stream of events, and the end of a session.
fn without_message(method: &Method, headers: &HeaderMap) -> Result<(), String> {
    let has = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
        text.contains(EVENTS)
    };
    if *method == Method::GET && !headers.get_all(ACCEPT).iter().any(has) {
        return Err(format!(
            "it does not ask for {EVENTS}, which is all that MCP has by GET"
        ));
    }
    if *method == Method::DELETE && headers.get_all("mcp-session-id").iter().count() != 1 {
        return Err(
            "it names no session (Mcp-Session-Id), which is all that MCP has by DELETE".to_owned(),
        );
    }
    Ok(())
}

/// Some servers also receive the call in header fields, and may trust those.
fn says_the_same(headers: &HeaderMap, message: &McpMessage) -> Result<(), String> {
    for (name, value) in headers {
        let call = match message.calls.as_slice() {
            [call] if !message.batch => Some(call),
            _ => None,
        };
        let said = match name.as_str().replace('_', "-").as_str() {
            "mcp-method" => call.map(|call| call.method.as_str()),
            "mcp-name" => call.and_then(|call| call.name.as_deref()),
            _ => continue,
        };
        if said.map(str::as_bytes) != Some(value.as_bytes()) {
            return Err(format!(
                "its field {name} says something else than its body"
            ));
        }
    }
    Ok(())
}

/// Requests an uncompressed, whole answer.
pub(super) fn ask_plain(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
}

/// The answer with filtered lists, or why it is refused.
pub(super) async fn shown(
    answer: Response<AnswerBody>,
    lists: McpLists,
    room: &Room,
) -> Result<Response<FilteredBody>, String> {
    // Clients read no list from another answer.
    if !answer.status().is_success() {
        return Ok(answer.map(Either::Left));
    }
    let (mut parts, mut body) = answer.into_parts();
    if !is_plain(&parts.headers) {
        return Err("its answer is compressed although plain text was requested, so its tools cannot be filtered".to_owned());
    }
    let mut types = parts.headers.get_all(CONTENT_TYPE).iter();
    let kind = types.next().filter(|_| types.next().is_none());
    if kind.is_some_and(|kind| is_type(kind, EVENTS)) {
        parts.headers.remove(CONTENT_LENGTH);
        let events = EventStream::new(body, lists, room.clone());
        return Ok(Response::from_parts(
            parts,
            Either::Right(Either::Right(events)),
        ));
    }
    let is_json = kind.is_some_and(|kind| is_type(kind, JSON));
    let held = room.whole(&mut body, Sender::Host).await;
    let (bytes, share) = held.map_err(HoldError::into_reason)?;
    parts.headers.remove(CONTENT_LENGTH);
    let bytes = match (bytes.is_empty(), is_json) {
        (true, _) => bytes,
        (false, true) => lists
            .filtered(&bytes)
            .map_err(|why| format!("its answer is no message of MCP: {why}"))?,
        (false, false) => {
            return Err(format!(
                "its answer is neither {JSON} nor {EVENTS}, so it cannot be filtered"
            ));
        }
    };
    let share = room.change(share, bytes.len());
    let share = share.map_err(HoldError::into_reason)?;
    let body = Either::Right(Either::Left(Slices::new(bytes, share)));
    Ok(Response::from_parts(parts, body))
}

/// A stream of server-sent events, each an MCP message.
pub(super) struct EventStream<B> {
    body: B,
    parser: Parser,
}

impl<B> EventStream<B> {
    fn new(body: B, lists: McpLists, room: Room) -> Self {
        let parser = Parser {
            lists,
            room,
            ..Parser::default()
        };
        Self { body, parser }
    }
}

impl<B> Body for EventStream<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                // An event without its end is dropped.
                None => return Poll::Ready(None),
            };
            if let Ok(data) = frame.into_data() {
                match self.parser.feed(&data) {
                    Ok(events) if events.is_empty() => {}
                    Ok(events) => return Poll::Ready(Some(Ok(Frame::data(events.into())))),
                    Err(why) => return Poll::Ready(Some(Err(io::Error::other(why)))),
                }
            }
        }
    }
}

/// Reads lines of events (HTML, "Server-sent events"), which end in CR, LF or both.
#[derive(Default)]
struct Parser {
    lists: McpLists,
    line: Vec<u8>,
    /// The lines of one event other than data, in canonical form.
    fields: Vec<u8>,
    data: Option<Vec<u8>>,
    /// The last byte was a CR: a line feed now belongs to it.
    returned: bool,
    /// For a long event, and its share.
    room: Room,
    share: Option<Share>,
}

impl Parser {
    /// Returns the complete events.
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        for byte in bytes {
            let is_second = std::mem::take(&mut self.returned) && *byte == b'\n';
            match byte {
                b'\n' if is_second => {}
                b'\r' | b'\n' => {
                    self.returned = *byte == b'\r';
                    self.end_line(&mut out)?;
                }
                byte => self.line.push(*byte),
            }
            let data = self.data.as_ref().map_or(0, Vec::len);
            let held = self.line.len() + self.fields.len() + data;
            if held > LONGEST {
                return Err(format!("an event of more than {LONGEST} bytes"));
            }
            if held == 0 {
                self.share = None;
            } else if self.share.is_none() && !Room::has_always(held) {
                let share = self.room.change(Share::default(), LONGEST);
                self.share = Some(share.map_err(HoldError::into_reason)?);
            }
        }
        Ok(out)
    }

    fn end_line(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.end_event(out);
        }
        let at = line.iter().position(|byte| *byte == b':');
        let (field, value) = match at {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (&line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            // Comments keep a connection open. Other fields mean nothing.
            b"" | b"event" | b"id" | b"retry" => {
                self.fields
                    .extend([field, b": ".as_slice(), value, b"\n"].concat());
            }
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let fields = std::mem::take(&mut self.fields);
        let data = match self.data.take() {
            None if fields.is_empty() => return Ok(()),
            None => Vec::new(),
            Some(data) if data.is_empty() => b"data:\n".to_vec(),
            Some(data) => {
                let json = self.lists.filtered(&data)?;
                [b"data: ".as_slice(), &json, b"\n"].concat()
            }
        };
        out.extend([fields, data, b"\n".to_vec()].concat());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> McpLists {
        let mut lists = McpLists::default();
        lists.tools.allow = vec!["search_*".parse().unwrap()];
        lists
    }

    #[test]
    fn a_list_in_events_is_filtered_however_it_is_cut() {
        let text = b"\xef\xbb\xbfdata: {\"result\":{\"tools\":[{\"name\":\"delete\"}]}}\n\n: keep\r\rid:7\r\nevent: message\r\ndata:{\"result\":\r\n\
                     data: {\"tools\":[{\"name\":\"delete\"},{\"name\":\"search_a\"}]}}\r\nx: y\r\n\r\nid: 8\ndata\n\nretry:5\n\ndata: {\"result\":{\"tools\":[]";
        let expected = ": keep\n\nid: 7\nevent: message\ndata: {\"result\":{\"tools\":[{\"name\":\"search_a\"}]}}\n\nid: 8\ndata:\n\nretry: 5\n\n";
        for piece in 1..text.len() {
            let mut parser = Parser {
                lists: lists(),
                ..Parser::default()
            };
            let all = text.chunks(piece).map(|piece| parser.feed(piece).unwrap());
            let all = all.collect::<Vec<_>>().concat();
            assert_eq!(String::from_utf8(all).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn unreadable_events_end_the_stream() {
        let long = format!("data: {}", "x".repeat(LONGEST));
        for text in ["data: x\n\n", "data: {\"a\":1,\"a\":2}\n\n", &long] {
            let mut parser = Parser::default();
            assert!(parser.feed(text.as_bytes()).is_err(), "{text:.40}");
        }
    }

    #[test]
    fn the_head_must_agree_with_the_body() {
        let headers = |fields: &[(&'static str, &'static str)]| {
            let pairs = fields.iter().map(|(name, value)| {
                let name = name.parse::<hyper::header::HeaderName>().unwrap();
                (name, HeaderValue::from_static(value))
            });
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value);
            }
            headers
        };
        for (fields, fits) in [
            (&[("content-type", "application/json")][..], true),
            (
                &[("content-type", "Application/JSON; charset=\"UTF-8\"")],
                true,
            ),
            (
                &[("content-type", "application/json; charset=utf-16")],
                false,
            ),
            (&[("content-type", "text/plain")], false),
            (&[], false),
            (
                &[
                    ("content-type", "application/json"),
                    ("content-type", "application/json"),
                ],
                false,
            ),
            (
                &[
                    ("content-type", "application/json"),
                    ("content-encoding", "gzip"),
                ],
                false,
            ),
        ] {
            assert_eq!(is_one(&headers(fields)).is_ok(), fits, "{fields:?}");
        }
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
        let call = mcp::read(body).unwrap();
        for (fields, fits) in [
            (&[("mcp-method", "tools/call"), ("mcp-name", "a")][..], true),
            (&[("mcp-name", "b")], false),
            (&[("mcp_method", "ping")], false),
        ] {
            assert_eq!(
                says_the_same(&headers(fields), &call).is_ok(),
                fits,
                "{fields:?}"
            );
        }
        let stream = headers(&[("accept", "application/json, text/event-stream")]);
        assert!(without_message(&Method::GET, &stream).is_ok());
        assert!(without_message(&Method::GET, &headers(&[])).is_err());
        assert!(without_message(&Method::DELETE, &stream).is_err());
        let session = headers(&[("mcp-session-id", "x")]);
        assert!(without_message(&Method::DELETE, &session).is_ok());
    }
}
