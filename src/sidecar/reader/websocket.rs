//! WebSocket (RFC 6455): the handshake, which is an ordinary request, and the traffic after the host has agreed, which
//! is not read.

use data_encoding::BASE64;
use hyper::Request as HttpRequest;
use hyper::body::Bytes;
use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Method, Version};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncWriteExt, copy, split};

use super::stream::ByteStream;

/// A host adds this to the key: its answer then proves that it knows this protocol (section 1.3).
const KNOWS: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const NAME: &str = "websocket";
/// Bytes of a key (section 4.1).
const KEY: usize = 16;

/// A handshake that a host may agree to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handshake {
    /// The answer that the host must send.
    accept: String,
}

/// Whether a request is meant to become a WebSocket, even with a wrong handshake.
pub(super) fn is_meant(headers: &HeaderMap) -> bool {
    headers
        .get_all(UPGRADE)
        .iter()
        .any(|value| has(value, NAME))
}

impl Handshake {
    /// Reads a handshake, or says what is wrong with it.
    pub fn of<B>(message: &HttpRequest<B>) -> Result<Self, &'static str> {
        let headers = message.headers();
        if message.method() != Method::GET || message.version() != Version::HTTP_11 {
            return Err("its handshake is no GET of HTTP/1.1");
        }
        match one(headers, &UPGRADE) {
            Some(value) if value.as_bytes().eq_ignore_ascii_case(NAME.as_bytes()) => {}
            _ => return Err("it requests other protocols (Upgrade) beside WebSocket"),
        }
        let mut connection = headers.get_all(CONNECTION).iter();
        if !connection.any(|value| has(value, "upgrade")) {
            return Err(
                "its Connection field does not name Upgrade, so that some servers pass over it",
            );
        }
        if one(headers, &SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err("its Sec-WebSocket-Version is not 13, to which no host agrees");
        }
        let key = one(headers, &SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
        let key = key.filter(|key| BASE64.decode(key).is_ok_and(|bytes| bytes.len() == KEY));
        let key = key.ok_or("its Sec-WebSocket-Key is not 16 bytes in base64")?;
        let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, KNOWS].concat());
        let accept = BASE64.encode(proof.as_ref());
        Ok(Self { accept })
    }

    /// Whether the head of an answer agrees to the handshake, or what is wrong with it.
    pub fn agrees(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let is_it = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(NAME.as_bytes());
        let mut connection = headers.get_all(CONNECTION).iter();
        if !one(headers, &UPGRADE).is_some_and(is_it)
            || !connection.any(|value| has(value, "upgrade"))
        {
            return Err("it changed the protocol to another one than WebSocket");
        }
        match one(headers, &SEC_WEBSOCKET_ACCEPT) {
            Some(value) if value.as_bytes() == self.accept.as_bytes() => Ok(()),
            _ => Err(
                "it changed the protocol without the proof that it speaks WebSocket (Sec-WebSocket-Accept)",
            ),
        }
    }
}

/// Adds the fields that neighbours need to change the protocol.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(NAME));
}

/// The only value of a field.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut all = headers.get_all(name).iter();
    let first = all.next();
    first.filter(|_| all.next().is_none())
}

/// Whether a list has this word.
fn has(value: &HeaderValue, word: &str) -> bool {
    let mut words = value.as_bytes().split(|byte| *byte == b',');
    words.any(|one| one.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// A connection that has switched to another protocol, with the bytes that were read already.
pub(super) struct SwitchedConnection {
    pub way: Box<dyn ByteStream>,
    pub early: Bytes,
}

/// Copies both directions until the host has ended, or one side is gone. The host's side goes through the sidecar,
/// which counts it and ends it when the rules do.
pub(super) async fn carry(client: SwitchedConnection, host: SwitchedConnection) {
    let (mut from_client, mut to_client) = split(client.way);
    let (mut from_host, mut to_host) = split(host.way);
    let up = async {
        to_host.write_all(&client.early).await?;
        copy(&mut from_client, &mut to_host).await?;
        to_host.shutdown().await
    };
    let down = async {
        to_client.write_all(&host.early).await?;
        copy(&mut from_host, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::pin!(up, down);
    tokio::select! {
        ended = &mut up => if ended.is_ok() {
            // A client that waits for the host's last bytes has ended its own side. The sidecar limits that wait.
            let _ended = down.await;
        },
        _ended = &mut down => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    const REQUEST: [(&str, &str); 4] = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

    fn with(fields: &[(&'static str, &str)], changed: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        for (name, _) in changed {
            headers.remove(*name);
        }
        for (name, value) in changed.iter().filter(|(_, value)| !value.is_empty()) {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn handshake(changed: &[(&'static str, &str)]) -> Result<Handshake, &'static str> {
        let mut message = HttpRequest::new(());
        *message.headers_mut() = with(&REQUEST, changed);
        Handshake::of(&message)
    }

    #[test]
    fn a_handshake_must_be_unambiguous() {
        assert_eq!(handshake(&[]).unwrap().accept, ACCEPT);
        for changed in [
            &[("upgrade", "websocket, h2c")][..],
            &[("upgrade", "websocket"), ("upgrade", "h2c")],
            &[("upgrade", "h2c")],
            &[("connection", "keep-alive")],
            &[("connection", "")],
            &[("sec-websocket-version", "8")],
            &[
                ("sec-websocket-version", "13"),
                ("sec-websocket-version", "8"),
            ],
            &[("sec-websocket-version", "")],
            &[("sec-websocket-key", "")],
            &[("sec-websocket-key", "dGhlIHNhbXBsZQ==")],
            &[("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ")],
        ] {
            assert!(handshake(changed).is_err(), "{changed:?}");
        }
        let mut message = HttpRequest::new(());
        *message.headers_mut() = with(&REQUEST, &[]);
        *message.method_mut() = Method::POST;
        assert!(Handshake::of(&message).is_err());
        *message.method_mut() = Method::GET;
        *message.version_mut() = Version::HTTP_10;
        assert!(Handshake::of(&message).is_err());
    }

    #[test]
    fn every_request_for_a_websocket_is_recognised() {
        for (value, expected) in [
            ("websocket", true),
            ("h2c, WebSocket", true),
            ("h2c", false),
            ("websocket2", false),
        ] {
            let headers = with(&[("upgrade", value)], &[]);
            assert_eq!(is_meant(&headers), expected, "{value}");
        }
    }

    /// A host that answers 101 for another reason does not turn the connection into an unread stream.
    #[test]
    fn a_host_agrees_by_its_proof_alone() {
        let asked = handshake(&[]).unwrap();
        let good = [
            ("upgrade", "websocket"),
            ("connection", "upgrade"),
            ("sec-websocket-accept", ACCEPT),
        ];
        assert_eq!(asked.agrees(&with(&good, &[])), Ok(()));
        for changed in [
            &[("upgrade", "h2c")][..],
            &[("upgrade", "")],
            &[("connection", "")],
            &[("sec-websocket-accept", "")],
            &[("sec-websocket-accept", "dGhlIHNhbXBsZSBub25jZQ==")],
            &[
                ("sec-websocket-accept", ACCEPT),
                ("sec-websocket-accept", "x"),
            ],
        ] {
            assert!(asked.agrees(&with(&good, changed)).is_err(), "{changed:?}");
        }
    }
}
