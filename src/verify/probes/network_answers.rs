//! PURE. Which network attempts are made, and the meaning of what they get.

use std::net::IpAddr;

use rustix::io::Errno;

use crate::egress::tried::METADATA_ADDRESS;
use crate::verify::answer::Answers;
use crate::verify::probe::Finding;
use crate::verify::promise::Promise;

/// No route out of this machine, and no program that accepts the connection.
pub(super) const NO_WAY: Answers = Answers::or_not_tried(&[
    Errno::NETUNREACH,
    Errno::NETDOWN,
    Errno::CONNREFUSED,
    Errno::CONNRESET,
    Errno::CONNABORTED,
    Errno::ACCESS,
    Errno::PERM,
    Errno::ADDRNOTAVAIL,
    Errno::AFNOSUPPORT,
]);

/// A file that is absent.
const ABSENT: Answers = Answers::or_not_tried(&[Errno::NOENT, Errno::NOTDIR]);

/// The sidecar accepted the connection, and closed it without a byte.
const ENDED: Answers = Answers::or_not_tried(&[Errno::CONNRESET, Errno::CONNABORTED, Errno::PIPE]);

/// Why a host that waits for approval is not tried.
const ASKS: &str = "the policy asks about unlisted hosts, so verify does not try";

/// Why an allowed host is not tried.
const REACHED: &str = "the policy allows it";

/// Why a host is not tried: no wall refuses it, the operator would be asked, or the log would blame the workload.
pub(super) fn untried(promise: &Promise, host: &str) -> Option<String> {
    let asks = promise.has(|walls| walls.asks) && host != METADATA_ADDRESS;
    let reached = promise.has(|walls| walls.reached.contains(host));
    let why = match (asks, reached) {
        (_, true) => Some(REACHED),
        (true, false) => Some(ASKS),
        (false, false) => promise.untried_network.as_deref(),
    };
    why.map(str::to_owned)
}

/// The meaning of a connection that was not made.
pub(super) fn judge_unconnected(error: &std::io::Error) -> Finding {
    match is_from_a_network(error) {
        true => Finding::not_held(format!("packets leave the container: {error}")),
        false => NO_WAY.of_error("no connection", error),
    }
}

/// The meaning of what an accepted connection sent.
pub(super) fn judge_reply(reply: std::io::Result<&[u8]>) -> Finding {
    match reply {
        Ok([]) => Finding::held("closed without a byte"),
        Ok(bytes) if is_our_refusal(bytes) => Finding::held("the sidecar's denial (403)"),
        Ok(bytes) => Finding::not_held(format!("{} bytes came back", bytes.len())),
        Err(error) => ENDED.of_error("no byte came back", &error),
    }
}

/// Whether the error came from a network. Without a route, the kernel refuses at once.
fn is_from_a_network(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{HostUnreachable, TimedOut};
    matches!(error.kind(), HostUnreachable | TimedOut)
}

/// The sidecar's answer to plain HTTP.
fn is_our_refusal(answer: &[u8]) -> bool {
    let head = String::from_utf8_lossy(answer);
    head.starts_with("HTTP/1.1 403 ") && head.to_ascii_lowercase().contains("agentbox")
}

/// The first name server of resolv.conf(5) that has an address.
pub(super) fn first_server(text: &str) -> Option<IpAddr> {
    text.lines().find_map(|line| {
        let address = line.strip_prefix("nameserver")?.trim();
        address.parse().ok()
    })
}

/// The name server to query. The workload may have another /etc/resolv.conf than the planned one, or none: that is no wall's
/// answer.
pub(super) fn server_to_ask(
    promise: &Promise,
    named: std::io::Result<Option<IpAddr>>,
) -> Result<IpAddr, Finding> {
    const FILE: &str = "/etc/resolv.conf";
    let planned = promise.walls.as_ref().map(|walls| walls.name_server);
    match (planned, named) {
        (Some(Some(stub)), _) => Ok(stub.into()),
        (_, Ok(Some(named))) => Ok(named),
        // The plan has none either.
        (Some(None), Ok(None)) => Err(Finding::held(format!("no name server in {FILE}"))),
        (Some(None), Err(error)) => Err(ABSENT.of_error(FILE, &error)),
        (None, Ok(None)) => Err(Finding::not_tried(format!("no name server in {FILE}"))),
        (None, Err(error)) => Err(Finding::not_tried(format!("{FILE}: {error}"))),
    }
}

/// A query for the address (A) of a name (RFC 1035, section 4.1).
pub(super) fn question(name: &str) -> Vec<u8> {
    // Id, recursion desired, one question, nothing else.
    let mut bytes = vec![0xab, 0x0c, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}

pub(super) fn judge_answer(answer: &[u8]) -> Finding {
    let (Some(code), Some(count)) = (answer.get(3), answer.get(6..8)) else {
        return Finding::not_tried("the answer is not DNS");
    };
    match (code & 0x0f, count) {
        (3, _) => Finding::held("NXDOMAIN"),
        (code, [0, 0]) => Finding::held(format!("no address (code {code})")),
        (_, _) => Finding::not_held("the name was resolved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::probe::Outcome;
    use crate::verify::promise::PromisedWalls;
    use std::io::{Error, ErrorKind};
    use std::net::Ipv4Addr;

    /// A workload that renames /etc kept verify from asking, and was told to hold.
    #[test]
    fn no_name_server_of_the_workload_stands_for_the_sidecars() {
        let stub = Ipv4Addr::new(198, 18, 0, 1);
        let promise = |name_server: Option<Ipv4Addr>| Promise {
            walls: Some(PromisedWalls {
                name_server,
                ..PromisedWalls::default()
            }),
            ..Promise::default()
        };
        let absent = || Err(Error::from(ErrorKind::NotFound));
        let other: IpAddr = "127.0.0.9".parse().unwrap();
        for named in [Ok(None), Ok(Some(other)), absent()] {
            assert_eq!(server_to_ask(&promise(Some(stub)), named), Ok(stub.into()));
        }
        assert_eq!(server_to_ask(&promise(None), Ok(Some(other))), Ok(other));
        let outcome = |promise: &Promise, named| server_to_ask(promise, named).unwrap_err().outcome;
        let (planned, bare) = (promise(None), Promise::default());
        let denied = || Err(Error::from_raw_os_error(13));
        let gone = || Err(Error::from_raw_os_error(2));
        assert_eq!(outcome(&planned, Ok(None)), Outcome::Held);
        assert_eq!(outcome(&planned, gone()), Outcome::Held);
        assert_eq!(outcome(&planned, denied()), Outcome::NotTried);
        assert_eq!(outcome(&bare, Ok(None)), Outcome::NotTried);
        assert_eq!(outcome(&bare, gone()), Outcome::NotTried);
    }
    use crate::egress::tried::{KNOWN_NAME, NOBODYS_ADDRESS};

    #[test]
    fn a_resolved_name_differs_from_a_refusal() {
        let mut answer = question(KNOWN_NAME);
        answer[2] |= 0x80;
        answer[3] = 0x83;
        assert_eq!(judge_answer(&answer).outcome, Outcome::Held);
        answer[3] = 0x80;
        assert_eq!(judge_answer(&answer).outcome, Outcome::Held);
        answer[7] = 1;
        assert_eq!(judge_answer(&answer).outcome, Outcome::NotHeld);
        assert_eq!(judge_answer(&answer[..5]).outcome, Outcome::NotTried);
    }

    #[test]
    fn a_connection_holds_only_if_this_machine_ended_it() {
        let refused = |errno: Errno| judge_unconnected(&errno.into()).outcome;
        for errno in [
            Errno::NETUNREACH,
            Errno::CONNREFUSED,
            Errno::CONNRESET,
            Errno::PERM,
        ] {
            assert_eq!(refused(errno), Outcome::Held, "{errno:?}");
        }
        // A network answered, or swallowed the packets.
        assert_eq!(refused(Errno::HOSTUNREACH), Outcome::NotHeld);
        assert_eq!(refused(Errno::TIMEDOUT), Outcome::NotHeld);
        let silent = std::io::Error::from(std::io::ErrorKind::TimedOut);
        assert_eq!(judge_unconnected(&silent).outcome, Outcome::NotHeld);
        for errno in [Errno::MFILE, Errno::NOBUFS, Errno::INVAL] {
            assert_eq!(refused(errno), Outcome::NotTried, "{errno:?}");
        }
    }

    #[test]
    fn any_byte_but_the_sidecars_refusal_is_a_fault() {
        let outcome = |reply: std::io::Result<&[u8]>| judge_reply(reply).outcome;
        assert_eq!(outcome(Ok(b"")), Outcome::Held);
        let refusal = b"HTTP/1.1 403 Forbidden\r\nServer: agentbox\r\n";
        assert_eq!(outcome(Ok(refusal)), Outcome::Held);
        assert_eq!(outcome(Ok(b"\0")), Outcome::NotHeld);
        assert_eq!(outcome(Ok(b"HTTP/1.1 200 OK\r\n")), Outcome::NotHeld);
        assert_eq!(outcome(Err(Errno::CONNRESET.into())), Outcome::Held);
        // It was accepted, and nothing ended it: unknown.
        assert_eq!(outcome(Err(Errno::AGAIN.into())), Outcome::NotTried);
    }

    #[test]
    fn a_host_is_tried_unless_it_is_allowed_or_an_operator_would_be_asked() {
        let promise = |reached: &[&str], asks: bool, unknown: bool| Promise {
            walls: Some(crate::verify::promise::PromisedWalls {
                reached: reached.iter().map(|host| (*host).to_owned()).collect(),
                asks,
                ..Default::default()
            }),
            untried_network: unknown.then(|| "unknown ports".to_owned()),
            ..Promise::default()
        };
        for (reached, asks, unknown, host, expected) in [
            (&[][..], false, false, KNOWN_NAME, None),
            (&[KNOWN_NAME], false, false, KNOWN_NAME, Some(REACHED)),
            (&[KNOWN_NAME], true, true, KNOWN_NAME, Some(REACHED)),
            (&[KNOWN_NAME], false, false, NOBODYS_ADDRESS, None),
            (&[], true, true, NOBODYS_ADDRESS, Some(ASKS)),
            // Nobody can approve the metadata service.
            (&[], true, false, METADATA_ADDRESS, None),
            (&[], true, true, METADATA_ADDRESS, Some("unknown ports")),
            (&[], false, true, KNOWN_NAME, Some("unknown ports")),
        ] {
            let found = untried(&promise(reached, asks, unknown), host);
            assert_eq!(
                found.as_deref(),
                expected,
                "{reached:?} {asks} {unknown} {host}"
            );
        }
        assert_eq!(untried(&Promise::default(), KNOWN_NAME), None);
    }

    #[test]
    fn the_first_name_server_with_an_address_is_asked() {
        let first = |text: &str| first_server(text).map(|server| server.to_string());
        let text = "# nameserver 192.0.2.1\nsearch a\nnameserver x\nnameserver\t127.0.0.11\nnameserver ::1\n";
        assert_eq!(first(text).as_deref(), Some("127.0.0.11"));
        assert_eq!(first("nameserver ::1").as_deref(), Some("::1"));
        assert_eq!(first("options ndots:0\n"), None);
    }

    #[test]
    fn only_the_sidecars_own_answer_is_a_refusal() {
        assert!(is_our_refusal(
            b"HTTP/1.1 403 Forbidden\r\nServer: agentbox\r\n"
        ));
        assert!(!is_our_refusal(b"HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!is_our_refusal(b"HTTP/1.1 403 Forbidden\r\n\r\n"));
    }
}
