//! A message for the other connection: a request in canonical form, and an answer without the fields of its connection.
//!
//! All additions to requests and removals from answers happen here, between the decision and the host.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Request as HttpRequest, Response, StatusCode, Uri, Version};

use super::secrets::{Answers, Secrets};
use super::websocket::{self, Handshake};

use crate::egress::http::{HttpRefusal, KnownFields, stays_behind};
use crate::egress::request::{RequestHead, of_said};
use crate::rules::Host;
use crate::rules::request::decide::FullRequest;
use crate::rules::request::{Method, Scheme};

/// Reads a request to this host. The client speaks the scheme `inside`, the host `scheme`.
pub(super) fn read<B>(
    message: &HttpRequest<B>,
    inside: Scheme,
    scheme: Scheme,
    to: (Host, u16),
) -> Result<FullRequest, HttpRefusal> {
    let mut hosts = message.headers().get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::to_str).transpose();
    let host = host.map_err(|_| HttpRefusal::Ambiguous("a Host field that is not ASCII"))?;
    if hosts.next().is_some() {
        return Err(HttpRefusal::Ambiguous("two Host fields"));
    }
    // Without TLS, 80 stands for HTTPS's own port.
    let plain = match (inside, to.1 == Scheme::Https.port()) {
        (Scheme::Http, true) => ":80",
        (Scheme::Http, false) | (Scheme::Https, _) => "",
    };
    let without_port = |named: &str| named.strip_suffix(plain).unwrap_or(named).to_owned();
    let host = host.map(without_port);
    let mut target = message.uri().to_string();
    if let Some((Scheme::Http, rest)) = Scheme::split(&target) {
        let (named, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        target = format!("http://{}{path}", without_port(named));
    }
    let method = match message.method().as_str() {
        Method::WEBSOCKET => {
            let word = "WEBSOCKET is a word of rules for a handshake, and no method";
            return Err(HttpRefusal::Unsupported(word));
        }
        _ if websocket::is_meant(message.headers()) => Method::WEBSOCKET,
        method => method,
    };
    let said = RequestHead {
        method,
        target: &target,
        host: host.as_deref(),
    };
    of_said(said, scheme, to)
}

/// What the reader knows about the answer to a request that it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedAnswer {
    pub answers: Answers,
    /// If it may begin a WebSocket.
    pub handshake: Option<Handshake>,
}

/// The request for the host, or why it is not sent.
pub(super) fn request<B>(
    asked: &FullRequest,
    message: HttpRequest<B>,
    (secrets, known): (&Secrets, &KnownFields),
) -> Result<(HttpRequest<B>, ExpectedAnswer), String> {
    let is_websocket = asked.request.method.is_websocket();
    let handshake = is_websocket.then(|| Handshake::of(&message)).transpose()?;
    let (mut parts, body) = message.into_parts();
    head(asked, &mut parts)?;
    let mut query = asked.query.clone();
    let answers = secrets.put(&asked.request, &mut query, &mut parts.headers)?;
    check_fields(&parts.headers, (secrets, known))?;
    let target = target(asked, query.as_deref());
    parts.uri = Uri::try_from(target).map_err(|_| "its path is not one that can be sent")?;
    let expected = ExpectedAnswer { answers, handshake };
    Ok((HttpRequest::from_parts(parts, body), expected))
}

/// Checks and rewrites its head.
fn head(asked: &FullRequest, parts: &mut Parts) -> Result<(), &'static str> {
    let is_websocket = asked.request.method.is_websocket();
    if parts.headers.contains_key(UPGRADE) && !is_websocket {
        return Err("it requests another protocol (Upgrade), whose requests cannot be checked");
    }
    let is_continue = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if !parts.headers.get_all(EXPECT).iter().all(is_continue) {
        return Err("its Expect field is not 100-continue");
    }
    leave_behind(&mut parts.headers)?;
    let host =
        HeaderValue::try_from(host(asked)).map_err(|_| "its host is not one that can be sent")?;
    parts.headers.insert(HOST, host);
    if is_websocket {
        websocket::ask(&mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    Ok(())
}

/// Refuses fields that are not known to be harmless. Fields with secrets are the node's own.
fn check_fields(
    headers: &HeaderMap,
    (secrets, known): (&Secrets, &KnownFields),
) -> Result<(), String> {
    // The connection's fields are the reader's own by now.
    let is_known = |name: &&HeaderName| {
        stays_behind(name.as_str()) || known.has(name.as_str()) || secrets.have(name)
    };
    match headers.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "its field {name} is unknown and could change method, path or host: leave it out, or list it in request-fields under \
             [network] of /etc/agentbox/config.toml"
        )),
    }
}

/// The Host field in canonical form.
fn host(asked: &FullRequest) -> String {
    let request = &asked.request;
    let host = match &request.host {
        Host::Address(address) if address.is_ipv6() => format!("[{address}]"),
        Host::Address(_) | Host::Name(_) => request.host.to_string(),
    };
    match request.port == request.scheme.port() {
        true => host,
        false => format!("{host}:{}", request.port),
    }
}

/// The target in canonical form, with this query.
fn target(asked: &FullRequest, query: Option<&str>) -> String {
    let path = &asked.request.path;
    query.map_or_else(|| path.to_string(), |query| format!("{path}?{query}"))
}

/// The head of the answer for a client of this scheme, without the node's secrets, or why it is refused.
pub(super) fn answer<B>(
    (asked, inside): (&FullRequest, Scheme),
    message: Response<B>,
    (secrets, expected): (&Secrets, &ExpectedAnswer),
) -> Result<Response<B>, &'static str> {
    let (mut parts, body) = message.into_parts();
    if expected.answers == Answers::Cleaned {
        secrets.clean(&mut parts.headers)?;
        // The phrase after the status.
        parts.extensions.clear();
    }
    let switches = parts.status == StatusCode::SWITCHING_PROTOCOLS;
    if switches {
        let handshake = expected.handshake.as_ref();
        let handshake = handshake.ok_or("it changed the protocol without a request")?;
        handshake.agrees(&parts.headers)?;
    }
    // The reader decodes chunks. Another coding would stay undecoded (RFC 9112, section 6.1).
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    if !codings.all(chunked) {
        return Err("its answer has another transfer coding than chunks");
    }
    let length = parts.headers.get(CONTENT_LENGTH).cloned();
    // Beside chunks a length means nothing (RFC 9112, section 6.3), but the client would believe it.
    let length = length.filter(|_| !parts.headers.contains_key(TRANSFER_ENCODING));
    leave_behind(&mut parts.headers)?;
    // An answer to HEAD has the length of the one to GET. A switch of the protocol has none (RFC 9110, section 8.6).
    if let Some(length) = length.filter(|_| !switches) {
        parts.headers.insert(CONTENT_LENGTH, length);
    }
    if switches {
        websocket::ask(&mut parts.headers);
    }
    if let Some(plain) = parts
        .headers
        .get(LOCATION)
        .filter(|_| inside == Scheme::Http)
        .and_then(|to| plain_location(asked, to))
    {
        parts.headers.insert(LOCATION, plain);
    }
    parts.version = Version::HTTP_11;
    Ok(Response::from_parts(parts, body))
}

/// The plain address for a redirect to the host's own `https://`, which a client of `http://` could not follow here.
fn plain_location(asked: &FullRequest, to: &HeaderValue) -> Option<HeaderValue> {
    let request = &asked.request;
    let (Scheme::Https, rest) = Scheme::split(to.to_str().ok()?)? else {
        return None;
    };
    let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (named, port) = crate::egress::http::authority(&rest[..at]).ok()?;
    let same = request.scheme == Scheme::Https
        && named == request.host
        && port.unwrap_or(Scheme::Https.port()) == request.port;
    // HTTPS's own port is left out: without TLS, 80 stands for it.
    let text = format!("http://{}{}", host(asked), &rest[at..]);
    same.then(|| HeaderValue::try_from(text).ok()).flatten()
}

/// Removes the fields of the connection that a message came over.
fn leave_behind(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut named = Vec::new();
    for value in headers.get_all(CONNECTION) {
        let text = value
            .to_str()
            .map_err(|_| "its Connection field is not ASCII")?;
        for name in text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            named.push(
                HeaderName::try_from(name)
                    .map_err(|_| "its Connection field is no list of names")?,
            );
        }
    }
    let all: Vec<HeaderName> = headers
        .keys()
        .filter(|name| stays_behind(name.as_str()))
        .cloned()
        .collect();
    for name in named.into_iter().chain(all) {
        headers.remove(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(method: &str, target: &str, fields: &[(&str, &str)]) -> HttpRequest<()> {
        let mut builder = HttpRequest::builder().method(method).uri(target);
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap()
    }

    fn sent(target: &str, fields: &[(&str, &str)]) -> Result<HttpRequest<()>, String> {
        let message = message("GET", target, fields);
        let to = ("a.test".parse().unwrap(), 443);
        let asked =
            read(&message, Scheme::Http, Scheme::Https, to).map_err(|why| why.to_string())?;
        let none = Secrets::new(Vec::new());
        let known = KnownFields::new(["x-acme-*".parse().unwrap()].into());
        request(&asked, message, (&none, &known)).map(|(message, _)| message)
    }

    fn answered(asked: &FullRequest, answer: Response<()>) -> Result<Response<()>, &'static str> {
        let expected = ExpectedAnswer {
            answers: Answers::AsTheyCome,
            handshake: None,
        };
        super::answer(
            (asked, Scheme::Http),
            answer,
            (&Secrets::new(Vec::new()), &expected),
        )
    }

    #[test]
    fn a_request_is_sent_in_canonical_form() {
        let plain = ("Host", "A.test");
        for (target, expected) in [
            ("/x/../%61?q=%61", "/a?q=%61"),
            ("http://a.TEST/a", "/a"),
            ("http://a.test:80/a", "/a"),
            ("/", "/"),
        ] {
            let fields = [
                plain,
                ("Accept", "x"),
                ("Connection", "keep-alive, X-Hop"),
                ("X-Hop", "y"),
                ("Expect", "100-continue"),
            ];
            let sent = sent(target, &fields).unwrap_or_else(|why| panic!("{target}: {why}"));
            assert_eq!(sent.uri().to_string(), expected);
            let names: Vec<&str> = sent.headers().keys().map(HeaderName::as_str).collect();
            assert_eq!(names, ["accept", "host"], "{target}");
            assert_eq!(sent.headers()[HOST], "a.test");
        }
        // The client's framing is not repeated, whatever its Connection field names.
        let odd = sent("/", &[plain, ("Connection", "Host, close")]).unwrap();
        assert_eq!(odd.headers()[HOST], "a.test");
    }

    /// For the rules it is another method. Its fields arrive, whatever else the Connection field names.
    #[test]
    fn a_handshake_of_a_websocket_is_a_method_of_its_own() {
        let fields = [
            ("Host", "a.test"),
            ("Connection", "Upgrade, X-Hop"),
            ("X-Hop", "y"),
            ("Upgrade", "WebSocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let to = ("a.test".parse().unwrap(), 443);
        let read = |method: &str, fields: &[(&str, &str)]| {
            let message = message(method, "/x", fields);
            read(&message, Scheme::Http, Scheme::Https, to.clone()).map(|asked| asked.to_string())
        };
        let asked = "WEBSOCKET https://a.test/x";
        assert_eq!(read("GET", &fields).as_deref(), Ok(asked));
        assert_eq!(
            read("GET", &fields[..1]).as_deref(),
            Ok("GET https://a.test/x")
        );
        // The rules' word is no method, with or without the fields of a handshake.
        assert!(read("WEBSOCKET", &fields).is_err());
        assert!(read("WEBSOCKET", &fields[..1]).is_err());
        let sent = sent("/x", &fields).unwrap();
        assert_eq!(sent.method(), "GET");
        assert_eq!(sent.headers()[CONNECTION], "Upgrade");
        assert_eq!(sent.headers()[UPGRADE], "websocket");
        assert!(sent.headers().contains_key("sec-websocket-key"));
        assert!(!sent.headers().contains_key("x-hop"));
    }

    #[test]
    fn what_could_make_another_request_is_refused() {
        let plain = ("Host", "a.test");
        for field in [
            ("Upgrade", "h2c"),
            ("Upgrade", "websocket"),
            ("Upgrade", "websocket, h2c"),
            ("X-HTTP-Method-Override", "DELETE"),
            ("X_Original_URL", "/x"),
            ("SCRIPT_NAME", "/x"),
            ("x-amz-copy-source", "/x"),
            ("Transfer_Encoding", "chunked"),
            ("X.Acme.Trace", "1"),
            ("Expect", "200-maybe"),
            ("Connection", "a b"),
        ] {
            assert!(sent("/", &[plain, field]).is_err(), "{field:?}");
        }
        for (target, host) in [
            ("/", "b.test"),
            ("/", "a.test:8443"),
            ("http://b.test/", "a.test"),
            ("http://a.test/", "b.test"),
            ("http://a.test:8443/", "a.test"),
            ("*", "a.test"),
            ("//x", "a.test"),
        ] {
            assert!(sent(target, &[("Host", host)]).is_err(), "{target} {host}");
        }
        assert!(sent("/", &[]).is_err());
        assert!(sent("/", &[plain, plain]).is_err());
        // The refusal names the field; a field of the node's file is sent on.
        let why = sent("/", &[plain, ("X-Odd", "1")]).unwrap_err();
        assert!(
            why.contains("x-odd") && why.contains("request-fields"),
            "{why}"
        );
        assert!(sent("/", &[plain, ("X-Acme-Trace", "1")]).is_ok());
    }

    #[test]
    fn an_answer_keeps_the_hosts_fields_and_redirects_stay_plain() {
        let message = message("GET", "/", &[("Host", "a.test")]);
        let asked = read(
            &message,
            Scheme::Http,
            Scheme::Https,
            ("a.test".parse().unwrap(), 443),
        )
        .unwrap();
        for (to, expected) in [
            ("https://a.test/x?y", "http://a.test/x?y"),
            ("https://A.test:443", "http://a.test"),
            ("https://a.test:8443/x", "https://a.test:8443/x"),
            ("https://b.test/x", "https://b.test/x"),
            ("https://a.test@b.test/x", "https://a.test@b.test/x"),
            ("/x", "/x"),
        ] {
            let redirect = Response::builder()
                .status(301)
                .header(LOCATION, to)
                .header("Connection", "close")
                .header("Content-Length", "3")
                .header("Set-Cookie", "a")
                .body(())
                .unwrap();
            let answer = answered(&asked, redirect).unwrap();
            assert_eq!(answer.headers()[LOCATION], expected);
            assert!(answer.headers().get(CONNECTION).is_none());
            assert_eq!(answer.headers()["content-length"], "3");
            assert_eq!(answer.headers()["set-cookie"], "a");
        }
        let both = Response::builder()
            .header("Content-Length", "3")
            .header("Transfer-Encoding", "chunked")
            .body(())
            .unwrap();
        assert!(answered(&asked, both).unwrap().headers().is_empty());
        for (coding, good) in [("Chunked", true), ("gzip, chunked", false), ("gzip", false)] {
            let coded = Response::builder()
                .header("Transfer-Encoding", coding)
                .body(())
                .unwrap();
            assert_eq!(answered(&asked, coded).is_ok(), good, "{coding}");
        }
        let switched = Response::builder().status(101).body(()).unwrap();
        assert!(answered(&asked, switched).is_err());
    }
}
