//! The network wall: an inner namespace with only `lo`, and one decision about every name.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::egress::tried::{
    HTTP, HTTPS, KNOWN_NAME, METADATA_ADDRESS, NOBODYS_ADDRESS, NOBODYS_ADDRESS_6, TriedPorts,
};
use crate::network::{foreign_links, is_fallback};
use crate::sys::netlink::RouteSocket;
use crate::verify::answer::Answers;
use crate::verify::probe::{Attempt, Finding, Probe, ProbedWall};
use crate::verify::promise::Promise;

/// A refusal takes microseconds, because the connection ends on this machine.
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
        wall: ProbedWall::Network,
        threats,
        tried,
        expected,
        means: "the container has a way to the network beside its rules",
        remedy: "stop it, and look at the node's networks and at `agentbox network ID`",
        promised,
        attempt: Attempt::Finds(attempt),
    }
}

/// No route out of this machine, and no program that accepts the connection.
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
/// The sidecar accepted the connection, and closed it without a byte.
const ENDED: Answers = Answers::or_not_tried(&[Errno::CONNRESET, Errno::CONNABORTED, Errno::PIPE]);
const OBEYED_NOT: Answers = Answers::or_not_tried(&[Errno::PERM, Errno::ACCESS]);
/// A file or directory that is absent, or cannot be looked up.
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
        |p| no_byte(p, NOBODYS_ADDRESS, HTTPS, |s| &s.address),
    ),
    probe(
        "unlisted-address-ipv6",
        &["N15"],
        "TCP to [2001:db8::1]:443, which no network has",
        "no connection, or one that ends without a byte",
        |p| is_unlisted(p, NOBODYS_ADDRESS_6),
        |p| no_byte(p, NOBODYS_ADDRESS_6, HTTPS, |s| &s.address6),
    ),
    probe(
        "metadata",
        &["N05"],
        "HTTP to 169.254.169.254:80, the metadata service of clouds",
        "no connection, or one that ends without an answer of a server",
        |p| is_unlisted(p, METADATA_ADDRESS),
        |p| no_byte(p, METADATA_ADDRESS, HTTP, |s| &s.metadata),
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
    let seen =
        RouteSocket::open().and_then(|mut socket| Ok((socket.links()?, socket.links_in_use()?)));
    let (links, used) = match seen {
        Ok(seen) => seen,
        Err(error) => return Finding::not_tried(format!("netlink: {error}")),
    };
    // Tunnel modules add idle devices to each new namespace.
    let others: Vec<String> = foreign_links(&links, &used)
        .into_iter()
        .map(|link| format!("the interface {}", link.name))
        .collect();
    Finding::of_faults(&others, "lo alone")
}

/// Changes nothing: the flag is already set.
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
        // Another attempt checks whether it is idle.
        Ok(entry) if entry.file_name().to_str().is_some_and(is_fallback) => Finding::held("idle"),
        Ok(entry) => {
            let name = entry.file_name();
            Finding::not_held(format!("the interface {}", name.to_string_lossy()))
        }
        Err(error) => Finding::not_tried(format!("{PATH}: {error}")),
    });
    Finding::of_all(found, "lo alone")
}

/// Why a host that waits for approval is not tried.
const ASKS: &str = "the policy asks the operator about unlisted hosts, so no attempt is made";
/// Why an allowed host is not tried.
const REACHED: &str = "the policy lets it through";

/// Why a host is not tried: no wall refuses it, the operator would be asked, or the log would blame the workload.
fn untried(promise: &Promise, host: &str) -> Option<String> {
    let asks = promise.has(|walls| walls.asks) && host != METADATA_ADDRESS;
    let reached = promise.has(|walls| walls.reached.contains(host));
    let why = match (asks, reached) {
        (_, true) => Some(REACHED),
        (true, false) => Some(ASKS),
        (false, false) => promise.untried_network.as_deref(),
    };
    why.map(str::to_owned)
}

/// The sockets for the network attempts, each bound to its own port before the first attempt.
struct Sockets {
    address: BoundSocket,
    address6: BoundSocket,
    metadata: BoundSocket,
    /// With the name server to query.
    name: Result<(BoundSocket, IpAddr), Finding>,
}

/// A socket and its port, or why there is none.
type BoundSocket = rustix::io::Result<(OwnedFd, u16)>;

/// Created once, before the child processes of the attempts, which inherit it.
static SOCKETS: OnceLock<Sockets> = OnceLock::new();

/// Opens the sockets and returns their ports. An attempt whose socket cannot be opened is not made.
pub fn open_sockets(promise: &Promise) -> TriedPorts {
    let v4 = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    let v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let sockets = SOCKETS.get_or_init(|| Sockets {
        address: bound(SocketType::STREAM, v4),
        address6: bound(SocketType::STREAM, v6),
        metadata: bound(SocketType::STREAM, v4),
        name: name_server(promise).map(|server| {
            let any = if server.is_ipv6() { v6 } else { v4 };
            (bound(SocketType::DGRAM, any), server)
        }),
    });
    let port = |bound: &BoundSocket| bound.as_ref().ok().map(|(_, port)| *port);
    let asked = |is_v6: bool| {
        let (bound, server) = sockets.name.as_ref().ok()?;
        port(bound).filter(|_| server.is_ipv6() == is_v6)
    };
    TriedPorts {
        address: port(&sockets.address),
        address6: port(&sockets.address6),
        metadata: port(&sockets.metadata),
        name: asked(false),
        name6: asked(true),
    }
}

/// A socket whose address and port no other socket in this network namespace can share.
fn bound(typ: SocketType, any: IpAddr) -> BoundSocket {
    let family = match any {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, typ, flags, None)?;
    if any.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &SocketAddr::new(any, 0))?;
    let own = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, own.port()))
}

/// Connects with a time limit.
fn connect(socket: OwnedFd, to: SocketAddr) -> std::io::Result<TcpStream> {
    match rustix::net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let mut polled = [PollFd::new(&socket, PollFlags::OUT)];
            let within = Timespec::try_from(WITHIN).map_err(|_| Errno::INVAL)?;
            match rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&within)))? {
                0 => return Err(std::io::ErrorKind::TimedOut.into()),
                _ => rustix::net::sockopt::socket_error(&socket)??,
            }
        }
        Err(errno) => return Err(errno.into()),
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Connects, sends a request if the connection is accepted, and expects no byte back.
fn no_byte(
    promise: &Promise,
    address: &str,
    port: u16,
    from: fn(&Sockets) -> &BoundSocket,
) -> Finding {
    if let Some(why) = untried(promise, address) {
        return Finding::not_tried(why);
    }
    let (Ok(target), Some(sockets)) = (address.parse::<IpAddr>(), SOCKETS.get()) else {
        return Finding::not_tried("the address cannot be read");
    };
    let socket = match from(sockets) {
        Ok((socket, _)) => socket.try_clone(),
        Err(errno) => Err((*errno).into()),
    };
    let mut stream = match socket.and_then(|socket| connect(socket, SocketAddr::new(target, port)))
    {
        Ok(stream) => stream,
        Err(error) => return judge_unconnected(&error),
    };
    let asked = stream
        .set_read_timeout(Some(WITHIN))
        .and_then(|()| stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n"));
    let mut answer = [0; 256];
    let read = asked.and_then(|()| stream.read(&mut answer));
    judge_reply(read.map(|length| &answer[..length]))
}

/// The meaning of a connection that was not made.
fn judge_unconnected(error: &std::io::Error) -> Finding {
    match is_from_a_network(error) {
        true => Finding::not_held(format!("packets leave the container: {error}")),
        false => NO_WAY.of_error("no connection", error),
    }
}

/// The meaning of what an accepted connection sent.
fn judge_reply(reply: std::io::Result<&[u8]>) -> Finding {
    match reply {
        Ok([]) => Finding::held("closed without a byte"),
        Ok(bytes) if is_our_refusal(bytes) => Finding::held("the sidecar's refusal (403)"),
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

/// The name server to query, or the finding if there is none.
fn name_server(promise: &Promise) -> Result<IpAddr, Finding> {
    if let Some(why) = untried(promise, KNOWN_NAME) {
        return Err(Finding::not_tried(why));
    }
    let text = std::fs::read_to_string("/etc/resolv.conf")
        .map_err(|error| ABSENT.of_error("no name server: /etc/resolv.conf", &error))?;
    first_server(&text).ok_or_else(|| Finding::held("no name server in /etc/resolv.conf"))
}

/// The first name server of resolv.conf(5) that has an address.
fn first_server(text: &str) -> Option<IpAddr> {
    text.lines().find_map(|line| {
        let address = line.strip_prefix("nameserver")?.trim();
        address.parse().ok()
    })
}

/// Queries the stub for an address of a public name.
fn name(promise: &Promise) -> Finding {
    if let Some(why) = untried(promise, KNOWN_NAME) {
        return Finding::not_tried(why);
    }
    let (bound, server) = match SOCKETS.get().map(|sockets| &sockets.name) {
        Some(Ok((bound, server))) => (bound, *server),
        Some(Err(finding)) => return finding.clone(),
        None => return Finding::not_tried("no socket was opened"),
    };
    let socket = match bound {
        Ok((socket, _)) => socket.try_clone(),
        Err(errno) => Err((*errno).into()),
    };
    match socket.and_then(|socket| ask(socket, server)) {
        Ok(answer) => judge_answer(&answer),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Finding::not_tried(
            format!("{server} says nothing in {} ms", WITHIN.as_millis()),
        ),
        Err(error) => NO_WAY.of_error(&format!("{server} does not answer"), &error),
    }
}

fn ask(socket: OwnedFd, server: IpAddr) -> std::io::Result<Vec<u8>> {
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(false)?;
    socket.connect((server, 53))?;
    socket.set_read_timeout(Some(WITHIN))?;
    socket.send(&question(KNOWN_NAME))?;
    let mut answer = vec![0; 512];
    let length = socket.recv(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

/// A query for the address (A) of a name (RFC 1035, section 4.1).
fn question(name: &str) -> Vec<u8> {
    // Id, recursion desired, one question, nothing else.
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
