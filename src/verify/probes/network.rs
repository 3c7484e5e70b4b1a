//! The network wall: an inner namespace with only `lo`, and one decision about every name.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::network_answers::{
    NO_WAY, first_server, judge_answer, judge_reply, judge_unconnected, question, server_to_ask,
    untried,
};
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
        means: "the container can reach the network outside its rules",
        remedy: "stop it, and check the node's networks and `agentbox network ID`",
        promised,
        attempt: Attempt::Finds(attempt),
    }
}

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
        "list the network's interfaces (RTM_GETLINK)",
        "lo alone",
        |p| p.walls.is_some(),
        |_| interfaces(),
    ),
    probe(
        "interfaces-in-sysfs",
        &["F19"],
        "list /sys/class/net",
        "only lo, or no such directory",
        |p| p.walls.is_some(),
        |_| in_sysfs(),
    ),
    probe(
        "link-changes",
        &["N17"],
        "set lo up again (RTM_NEWLINK)",
        "EPERM",
        |p| p.walls.is_some(),
        |_| link_changes(),
    ),
    probe(
        "unlisted-address",
        &["N01"],
        "connect to 192.0.2.1:443, a reserved address",
        "no connection, or one without a byte",
        |p| is_unlisted(p, NOBODYS_ADDRESS),
        |p| no_byte(p, NOBODYS_ADDRESS, HTTPS, |s| &s.address),
    ),
    probe(
        "unlisted-address-ipv6",
        &["N15"],
        "connect to [2001:db8::1]:443, a reserved address",
        "no connection, or one without a byte",
        |p| is_unlisted(p, NOBODYS_ADDRESS_6),
        |p| no_byte(p, NOBODYS_ADDRESS_6, HTTPS, |s| &s.address6),
    ),
    probe(
        "metadata",
        &["N05"],
        "send HTTP to 169.254.169.254:80, the metadata service of clouds",
        "no connection, or one without a server's response",
        |p| is_unlisted(p, METADATA_ADDRESS),
        |p| no_byte(p, METADATA_ADDRESS, HTTP, |s| &s.metadata),
    ),
    probe(
        "unlisted-name",
        &["N03", "N14"],
        "resolve example.com with the sidecar's name server, or else that of /etc/resolv.conf",
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
        Ok((_, None)) => Finding::not_tried("lo is missing or down"),
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

/// The name server to query, or the finding if there is none.
fn name_server(promise: &Promise) -> Result<IpAddr, Finding> {
    if let Some(why) = untried(promise, KNOWN_NAME) {
        return Err(Finding::not_tried(why));
    }
    let text = std::fs::read_to_string("/etc/resolv.conf");
    server_to_ask(promise, text.map(|text| first_server(&text)))
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
            format!("{server} does not answer in {} ms", WITHIN.as_millis()),
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
