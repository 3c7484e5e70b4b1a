//! The network wall: an inner namespace with `lo` alone, and one decision about every name.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::io::Errno;

use crate::sys::netlink::RouteSocket;
use crate::verify::answer::Answers;
use crate::verify::probe::{Attempt, Finding, Probe, Wall};
use crate::verify::promise::{
    KNOWN_NAME, METADATA_ADDRESS, NOBODYS_ADDRESS, NOBODYS_ADDRESS_6, Promise,
};

/// A refusal takes microseconds, since the way is closed on this machine.
const WITHIN: Duration = Duration::from_millis(200);

const fn probe(
    id: &'static str,
    threats: &'static [&'static str],
    tried: &'static str,
    expected: &'static str,
    promised: fn(&Promise) -> bool,
    attempt: fn(&Promise) -> Finding,
) -> Probe {
    Probe {
        id,
        wall: Wall::Network,
        threats,
        tried,
        expected,
        means: "the container has a way to the network beside its rules",
        remedy: "stop it, and look at the node's networks and at `agentbox network ID`",
        promised,
        attempt: Attempt::Finds(attempt),
    }
}

/// No way out of this machine, and nobody who takes the connection.
const NO_WAY: Answers = Answers::or_not_tried(&[
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
/// A connection that the sidecar took, and ended without a byte.
const ENDED: Answers = Answers::or_not_tried(&[Errno::CONNRESET, Errno::CONNABORTED, Errno::PIPE]);
const OBEYED_NOT: Answers = Answers::or_not_tried(&[Errno::PERM, Errno::ACCESS]);
/// A file or directory that is not there, or cannot be looked for.
const ABSENT: Answers = Answers::or_not_tried(&[Errno::NOENT, Errno::NOTDIR, Errno::ACCESS]);

fn is_unlisted(promise: &Promise, host: &str) -> bool {
    promise.has(|walls| !walls.reached.contains(host))
}

/// The probes.
pub const PROBES: &[Probe] = &[
    probe(
        "interfaces",
        &["N01", "N17"],
        "the kernel is asked for the network's interfaces (RTM_GETLINK)",
        "lo alone",
        |p| p.walls.is_some(),
        |_| interfaces(),
    ),
    probe(
        "interfaces-in-sysfs",
        &["F19"],
        "/sys/class/net is listed",
        "lo alone, or no such directory",
        |p| p.walls.is_some(),
        |_| in_sysfs(),
    ),
    probe(
        "link-changes",
        &["N17"],
        "lo, which is up, is set up again (RTM_NEWLINK)",
        "EPERM",
        |p| p.walls.is_some(),
        |_| link_changes(),
    ),
    probe(
        "unlisted-address",
        &["N01"],
        "TCP to 192.0.2.1:443, which no network has",
        "no connection, or one that ends without a byte",
        |p| is_unlisted(p, NOBODYS_ADDRESS),
        |p| unlisted(p, NOBODYS_ADDRESS),
    ),
    probe(
        "unlisted-address-ipv6",
        &["N15"],
        "TCP to [2001:db8::1]:443, which no network has",
        "no connection, or one that ends without a byte",
        |p| is_unlisted(p, NOBODYS_ADDRESS_6),
        |p| unlisted(p, NOBODYS_ADDRESS_6),
    ),
    probe(
        "metadata",
        &["N05"],
        "HTTP to 169.254.169.254:80, the metadata service of clouds",
        "no connection, or one that ends without an answer of a server",
        |p| is_unlisted(p, METADATA_ADDRESS),
        |_| no_byte(METADATA_ADDRESS, 80),
    ),
    probe(
        "unlisted-name",
        &["N03", "N14"],
        "the name server of /etc/resolv.conf is asked for example.com",
        "NXDOMAIN, or no answer",
        |p| is_unlisted(p, KNOWN_NAME),
        name,
    ),
];

fn interfaces() -> Finding {
    let links = match RouteSocket::open().and_then(|mut socket| socket.links()) {
        Ok(links) => links,
        Err(error) => return Finding::not_tried(format!("netlink: {error}")),
    };
    let others: Vec<String> = links
        .iter()
        .filter(|link| !link.is_loopback())
        .map(|link| format!("the interface {}", link.name))
        .collect();
    Finding::of_faults(&others, "lo alone")
}

/// Changes nothing: the flag is set already.
fn link_changes() -> Finding {
    let socket = RouteSocket::open().and_then(|mut socket| {
        let links = socket.links()?;
        let lo = links.iter().find(|link| link.is_loopback() && link.is_up());
        Ok((socket, lo.map(|link| link.index)))
    });
    match socket {
        Err(error) => Finding::not_tried(format!("netlink: {error}")),
        Ok((_, None)) => Finding::not_tried("there is no lo that is up"),
        Ok((mut socket, Some(index))) => match socket.set_up(index) {
            Ok(()) => Finding::not_held("the kernel obeyed"),
            Err(error) => OBEYED_NOT.of_error("netlink", &error),
        },
    }
}

fn in_sysfs() -> Finding {
    const PATH: &str = "/sys/class/net";
    let entries = match std::fs::read_dir(PATH) {
        Ok(entries) => entries,
        Err(error) => return ABSENT.of_error(PATH, &error),
    };
    let found = entries.map(|entry| match entry {
        Ok(entry) if entry.file_name() == "lo" => Finding::held("lo"),
        Ok(entry) => {
            let name = entry.file_name();
            Finding::not_held(format!("the interface {}", name.to_string_lossy()))
        }
        Err(error) => Finding::not_tried(format!("{PATH}: {error}")),
    });
    Finding::of_all(found, "lo alone")
}

/// Why a host that would be asked for is not tried.
const ASKS: &str = "the policy asks a person about unlisted hosts, who is left alone";

fn unlisted(promise: &Promise, address: &str) -> Finding {
    match promise.has(|walls| walls.asks) {
        true => Finding::not_tried(ASKS),
        false => no_byte(address, 443),
    }
}

/// Connects, says something if anybody accepts, and waits for a byte.
fn no_byte(address: &str, port: u16) -> Finding {
    let Ok(address) = address.parse::<IpAddr>() else {
        return Finding::not_tried("the address cannot be read");
    };
    let mut stream = match TcpStream::connect_timeout(&SocketAddr::new(address, port), WITHIN) {
        Ok(stream) => stream,
        Err(error) if is_from_a_network(&error) => {
            return Finding::not_held(format!("packets leave the container: {error}"));
        }
        Err(error) => return NO_WAY.of_error("no connection", &error),
    };
    let asked = stream
        .set_read_timeout(Some(WITHIN))
        .and_then(|()| stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n"));
    let mut answer = [0; 256];
    match asked.and_then(|()| stream.read(&mut answer)) {
        Ok(0) => Finding::held("closed without a byte"),
        Ok(length) if is_our_refusal(&answer[..length]) => {
            Finding::held("the sidecar's refusal (403)")
        }
        Ok(length) => Finding::not_held(format!("{length} bytes came back")),
        Err(error) => ENDED.of_error("no byte came back", &error),
    }
}

/// Where there is no way out, the kernel says so at once: nobody is waited for, and no router answers.
fn is_from_a_network(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{HostUnreachable, TimedOut};
    matches!(error.kind(), HostUnreachable | TimedOut)
}

/// What the sidecar answers to plain HTTP.
fn is_our_refusal(answer: &[u8]) -> bool {
    let head = String::from_utf8_lossy(answer);
    head.starts_with("HTTP/1.1 403 ") && head.to_ascii_lowercase().contains("agentbox")
}

/// Asks the stub for an address of a name that the world's servers know.
fn name(promise: &Promise) -> Finding {
    if promise.has(|walls| walls.asks) {
        return Finding::not_tried(ASKS);
    }
    let text = match std::fs::read_to_string("/etc/resolv.conf") {
        Ok(text) => text,
        Err(error) => return ABSENT.of_error("no name server: /etc/resolv.conf", &error),
    };
    let server = text.lines().find_map(|line| {
        let address = line.strip_prefix("nameserver")?.trim();
        address.parse::<IpAddr>().ok()
    });
    let Some(server) = server else {
        return Finding::held("no name server in /etc/resolv.conf");
    };
    match ask(server) {
        Ok(answer) => judge_answer(&answer),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Finding::not_tried(
            format!("{server} says nothing in {} ms", WITHIN.as_millis()),
        ),
        Err(error) => NO_WAY.of_error(&format!("{server} does not answer"), &error),
    }
}

fn ask(server: IpAddr) -> std::io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((server, 53))?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.send(&question(KNOWN_NAME))?;
    let mut answer = vec![0; 512];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

/// A question for the address (A) of a name (RFC 1035, section 4.1).
fn question(name: &str) -> Vec<u8> {
    // Number, recursion desired, one question, nothing else.
    let mut bytes = vec![0xab, 0x0c, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}

fn judge_answer(answer: &[u8]) -> Finding {
    let (Some(code), Some(count)) = (answer.get(3), answer.get(6..8)) else {
        return Finding::not_tried("an answer that is no answer of DNS");
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

    #[test]
    fn a_resolved_name_is_told_from_a_refusal() {
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
    fn only_the_sidecars_own_words_are_a_refusal() {
        assert!(is_our_refusal(
            b"HTTP/1.1 403 Forbidden\r\nServer: agentbox\r\n"
        ));
        assert!(!is_our_refusal(b"HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!is_our_refusal(b"HTTP/1.1 403 Forbidden\r\n\r\n"));
    }
}
