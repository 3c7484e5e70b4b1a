//! Heads and whole connections, fed in one piece and byte by byte.

use super::guard::{LONGEST_LINE, WITHOUT_BODY};
use super::*;

fn guard() -> RequestGuard {
    RequestGuard::new("example.com".parse().unwrap(), 80)
}

/// Feeds the text in one piece and byte by byte. The results must be equal.
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

/// N-L1, N34: one server reads it as a body or a trailer, another as the next request.
#[test]
fn bodies_and_trailers_that_servers_pass_over_are_refused() {
    let other = "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let length = other.len();
    let chunk = format!("{length:x}\r\n{other}\r\n0\r\n\r\n");
    let post =
        "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
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
    // CR CR LF inside a head, and more empty lines before one than any client sends.
    for text in [
        "GET / HTTP/1.1\r\nHost: example.com\r\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\nA: b\r\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
    ] {
        assert!(run(text).is_err(), "{text:?}");
    }
}

/// A container must not use up the sidecar's time.
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
        // Reading at each byte would take half the square of the length.
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
fn reads_requests_to_a_proxy() {
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
    let sent = "GET /a?b HTTP/1.1\r\nHost: example.com\r\nAccept: x\r\nConnection: close\r\n\r\n";
    assert_eq!(
        forward,
        Ok(ProxyRequest::Forward(name("example.com"), 80, sent.into()))
    );
}

#[test]
fn a_path_alone_requests_the_proxys_refusals() {
    let get = "GET /denied HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n";
    assert_eq!(asked(get), Ok(ProxyRequest::Refusals));
    for other in [
        "POST /denied",
        "GET /denied/",
        "GET /",
        "GET //denied",
        "GET *",
    ] {
        let text = format!("{other} HTTP/1.1\r\nHost: 127.0.0.1:3128\r\n\r\n");
        let refused = asked(&text);
        assert!(
            matches!(refused, Err(HttpRefusal::Unsupported(_))),
            "{other}: {refused:?}"
        );
    }
}

/// Without a port, the address and the field mean 80.
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
        // Bodies that some servers take for the next request.
        "GET http://example.com/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /",
        "delete http://example.com/ HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /",
        "OPTIONS http://example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "connect http://example.com/ HTTP/1.1\r\n\r\n",
    ] {
        assert!(asked(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_forwarded_request_is_the_last() {
    let mut guard = RequestGuard::after_head("example.com".parse().unwrap(), 80, Body::Length(2));
    let mut out = Vec::new();
    guard.feed(b"ab", &mut out).unwrap();
    assert_eq!(out, b"ab");
    assert!(guard.feed(b"GET", &mut out).is_err());
}

/// The bytes after a request for another protocol are not HTTP until the server has answered.
#[test]
fn nothing_follows_a_request_for_another_protocol_before_its_answer() {
    let upgrade = "GET /x HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\n\r\n";
    let next = "GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let mut out = Vec::new();
    let mut guard = RequestGuard::of_framing();
    let both = format!("{upgrade}{next}");
    assert!(guard.feed(both.as_bytes(), &mut out).is_err());
    assert_eq!(out, upgrade.as_bytes());
    let mut guard = RequestGuard::of_framing();
    out.clear();
    guard.feed(upgrade.as_bytes(), &mut out).unwrap();
    assert!(guard.feed(b"\r\n", &mut out).is_err());
    let mut guard = RequestGuard::of_framing();
    out.clear();
    guard.feed(upgrade.as_bytes(), &mut out).unwrap();
    guard.stays();
    guard.feed(next.as_bytes(), &mut out).unwrap();
    assert_eq!(out, both.as_bytes());
    // The control: two requests without an upgrade.
    out.clear();
    let mut guard = RequestGuard::of_framing();
    let two = next.repeat(2);
    guard.feed(two.as_bytes(), &mut out).unwrap();
    assert_eq!(out, two.as_bytes());
}
