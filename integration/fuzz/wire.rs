//! Input from a container to the wall: names, greetings, requests, questions. Nothing panics, the output equals the
//! input, and splitting into packets changes nothing.

use std::net::IpAddr;

use agentbox::egress::dns::{self, NameAnswer};
use agentbox::egress::http::{RequestGuard, authority, head, proxy_request};
use agentbox::egress::names::Families;
use agentbox::egress::names::NameTable;
use agentbox::egress::socks;
use agentbox::egress::tls::{ClientWatch, FirstBytes, ServerReply, ServerWatch, beginning};
use agentbox::rules::{Decision, EgressRules, Host, HostName, NetworkRule};
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RData;

/// The allowed host of all inputs.
const HOST: &str = "api.example.com";

fn meant() -> HostName {
    HOST.parse().unwrap()
}

/// A name in the forms of rules, proxies and questions.
pub fn host(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok((host, _)) = authority(text) {
        plain(&host);
    }
    if let Ok(rule) = text.parse::<NetworkRule>() {
        let again: NetworkRule = rule.to_string().parse().unwrap();
        assert_eq!(again, rule);
    }
    let Ok(host) = text.parse::<Host>() else {
        return;
    };
    plain(&host);
    let rules = EgressRules {
        allow: ["*.example.com", HOST, "192.0.2.0/24"]
            .map(|rule| rule.parse().unwrap())
            .into(),
        ..EgressRules::default()
    };
    // There is only one spelling, so the text can show what the rules should match.
    let text = host.to_string();
    let label = text.strip_suffix(".example.com");
    let expected = label.is_some_and(|label| !label.contains('.'))
        || text.parse::<IpAddr>().is_ok_and(|_| {
            let last = text.strip_prefix("192.0.2.");
            last.is_some_and(|n| n.parse::<u8>().is_ok())
        });
    let decided = matches!(rules.decide(&host, 443), Decision::Allow(_));
    assert_eq!(decided, expected, "{text}");
}

/// The properties of a host, in any spelling.
fn plain(host: &Host) {
    let text = host.to_string();
    assert_eq!(text.parse::<Host>().unwrap(), *host);
    if let Host::Name(name) = host {
        let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
        assert!(name.as_str().bytes().all(ok), "{text}");
        assert!((1..=253).contains(&text.len()) && !text.ends_with('.'));
    }
}

/// A TLS client's bytes until it is answered, whole and in pieces, and the same bytes as from a server.
pub fn hello(data: &[u8]) {
    let fed = |size: usize| {
        let mut watch = ClientWatch::new(meant());
        let mut out = Vec::new();
        let mut pieces = data.chunks(size);
        let fed = pieces.try_for_each(|piece| watch.feed(piece, &mut out));
        fed.map(|()| (watch.has_greeted(), out))
    };
    let whole = fed(data.len().max(1));
    let pieces = fed(1 + data.len() / 5);
    assert_eq!(whole.is_ok(), pieces.is_ok());
    if let (Ok(whole), Ok(pieces)) = (whole, pieces) {
        assert_eq!(whole, pieces);
        let (greeted, out) = whole;
        assert!(data.starts_with(&out) && (greeted || out.is_empty()));
        let named = handshake(data).to_ascii_lowercase();
        assert!(!greeted || named.windows(HOST.len()).any(|w| w == HOST.as_bytes()));
        assert!(!greeted || beginning(data) == FirstBytes::Tls);
    }
    let mut server = ServerWatch::default();
    let mut pieces = data
        .chunks(1 + data.len() / 5)
        .map(|piece| server.feed(piece));
    let said = pieces.find(|said| *said != ServerReply::NoAnswer);
    assert_eq!(
        said.unwrap_or(ServerReply::NoAnswer),
        ServerWatch::default().feed(data)
    );
}

/// The payload of the records.
fn handshake(mut records: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [_, _, _, high, low, rest @ ..] = records {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        out.extend_from_slice(&rest[..length]);
        records = &rest[length..];
    }
    out
}

/// Requests of one connection.
pub fn http(data: &[u8]) {
    if let Ok(Some(head)) = head(data) {
        let _ = proxy_request(&head);
    }
    let feed = |size: usize| {
        let mut guard = RequestGuard::new(meant(), 80);
        let mut out = Vec::new();
        let ended = data
            .chunks(size)
            .try_for_each(|piece| guard.feed(piece, &mut out));
        (ended.is_ok(), out, guard.requests())
    };
    let whole = feed(data.len().max(1));
    assert!(data.starts_with(&whole.1), "what passes is what came");
    for size in [1, 7] {
        assert_eq!(feed(size).0, whole.0, "in pieces of {size}");
        if whole.0 {
            assert_eq!(feed(size), whole, "in pieces of {size}");
        }
    }
    // Every request that passed named the host, in any case and with any port.
    let named = whole.1.to_ascii_lowercase();
    let hosts = named
        .windows(HOST.len())
        .filter(|w| *w == HOST.as_bytes())
        .count();
    assert!(hosts as u64 >= whole.2);
}

/// A question for the DNS stub.
pub fn question(data: &[u8]) {
    let host = meant();
    let mut names = NameTable::new(4);
    let given = names.give(&host).unwrap();
    let decide = |name: &HostName| match *name == host {
        true => NameAnswer::Addresses(given),
        false => NameAnswer::Blocked("no rule matches it".to_owned()),
    };
    let Some((answer, asked)) = dns::respond(data, Families::Both, decide) else {
        return;
    };
    assert!(answer.len() <= 4096);
    let answer = Message::from_vec(&answer).unwrap();
    assert_eq!(answer.id().to_be_bytes(), data[..2]);
    let addresses = answer.answers().iter().filter_map(|r| match r.data() {
        RData::A(a) => Some(IpAddr::V4(a.0)),
        RData::AAAA(a) => Some(IpAddr::V6(a.0)),
        _ => None,
    });
    for address in addresses {
        assert!([IpAddr::V4(given.v4), IpAddr::V6(given.v6)].contains(&address));
        let asked = asked.as_ref().unwrap();
        assert!(asked.name.eq_ignore_ascii_case(HOST) && !asked.blocked);
    }
    if asked.is_some_and(|asked| asked.blocked) {
        assert_eq!(answer.response_code(), ResponseCode::NXDomain);
    }
}

/// SOCKS5.
pub fn socks(data: &[u8]) {
    for length in [data.len(), data.len() / 2] {
        if let Ok(Some((_, taken))) = socks::methods(&data[..length]) {
            assert!(taken <= length);
        }
    }
    let whole = socks::request(data);
    if let Ok(Some(((host, _), taken))) = &whole {
        plain(host);
        assert!(*taken <= data.len());
        assert_eq!(socks::request(&data[..*taken]), whole);
        assert_eq!(socks::request(&data[..*taken - 1]), Ok(None));
    }
}
