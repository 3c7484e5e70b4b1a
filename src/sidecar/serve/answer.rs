//! The answers to refused requests.

use tokio::net::TcpStream;

use super::refusal::Refusal;
use super::stream::{FIRST_BYTES_WITHIN, read_some, write_all};
use super::wall::Wall;
use crate::egress::phrase::{RefusalExplanation, RefusalOrigin, phrase};
use crate::policy::Advice;
use crate::rules::Host;

/// The parts of an answer to a refusal.
pub(super) struct HttpAnswer {
    pub status: u16,
    pub phrase: String,
    pub explanation: RefusalExplanation,
}

/// Answers a refusal: 403 with the missing rule, 502 if the network is at fault, or 503 if a retry may help.
pub(super) async fn answer(
    wall: &Wall,
    stream: &TcpStream,
    host: &Host,
    port: u16,
    refusal: &Refusal,
) {
    let HttpAnswer {
        status,
        phrase,
        explanation,
    } = words(wall, host, port, refusal);
    send(stream, status, &phrase, &explanation.json()).await;
}

/// The answer to a refusal.
pub(super) fn words(wall: &Wall, host: &Host, port: u16, refusal: &Refusal) -> HttpAnswer {
    let mut explanation = RefusalExplanation {
        host: Some(host.to_string()),
        port: Some(port),
        ..RefusalExplanation::new(refusal.for_container())
    };
    let status = match refusal.is_violation() {
        true => {
            // A connection whose rule was revoked lacks no rule.
            let missing = refusal
                .missing_rule(host, Some(port))
                .filter(|_| *refusal != Refusal::Revoked);
            if let Some(rule) = missing {
                let waits = matches!(refusal, Refusal::NotApproved(_));
                let waits = waits.then(|| crate::rules::endpoint(host, port));
                let asks = wall.missing_rule(&rule).how_to_ask(waits.as_deref());
                explanation.how_to_ask = Some(asks);
                let written = Some(rule).filter(|rule| Advice::of(rule).can_be_written());
                explanation.missing_rule = written;
            }
            403
        }
        false => {
            explanation.error = RefusalOrigin::Network;
            match refusal {
                Refusal::Busy => 503,
                _ => 502,
            }
        }
    };
    let endpoint = crate::rules::endpoint(host, port);
    HttpAnswer {
        status,
        phrase: phrase(Some(&endpoint), &explanation.reason),
        explanation,
    }
}

pub(super) async fn respond(stream: &TcpStream, status: u16, explanation: &RefusalExplanation) {
    let phrase = phrase(None, &explanation.reason);
    send(stream, status, &phrase, &explanation.json()).await;
}

/// The status line has the reason too: for CONNECT, clients show it and not the body.
async fn send(stream: &TcpStream, status: u16, phrase: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    last_words(stream, &[head.as_bytes(), body].concat()).await;
}

/// Sends a last answer.
pub(super) async fn last_words(stream: &TcpStream, all: &[u8]) {
    // A client that does not read the answer does not need it.
    let _sent = tokio::time::timeout(FIRST_BYTES_WITHIN, write_all(stream, all)).await;
    say_goodbye(stream).await;
}

/// Ends the connection after its last answer.
pub(super) async fn say_goodbye(stream: &TcpStream) {
    let _told = rustix::net::shutdown(stream, rustix::net::Shutdown::Write);
    drain(stream).await;
}

/// Reads and drops what the client still sends: closing with unread bytes resets the connection, and the answer is
/// lost.
async fn drain(stream: &TcpStream) {
    const MOST: usize = 256 << 10;
    let reading = async {
        let mut seen = 0;
        while seen < MOST {
            match read_some(stream).await {
                Ok(bytes) => seen += bytes.len(),
                Err(_) => break,
            }
        }
    };
    let _done = tokio::time::timeout(std::time::Duration::from_secs(2), reading).await;
}
