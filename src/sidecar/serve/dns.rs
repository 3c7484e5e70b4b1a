//! The DNS stub: over UDP and TCP, on every address.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::spawn_local;

use super::refusal::Refusal;
use super::wall::Wall;
use crate::audit::ConnectionKind;
use crate::egress::dns::{NameAnswer, respond};
use crate::egress::own::address_of;
use crate::rules::Host;

/// A question has one name, which needs no more (RFC 6891 allows EDNS to be longer).
const LONGEST: usize = 1232;
/// Questions over TCP at once, and the time limit for each.
const TCP_AT_ONCE: usize = 32;
const TCP_WITHIN: Duration = Duration::from_secs(10);

/// Serves both protocols until the program ends.
pub(super) fn serve(wall: &Rc<Wall>, udp: OwnedFd, tcp: Option<OwnedFd>) -> io::Result<()> {
    let udp = UdpSocket::from_std(udp.into())?;
    let for_udp = Rc::clone(wall);
    spawn_local(async move {
        loop {
            // A failed answer to one datagram must not affect others.
            let served = udp
                .async_io(Interest::READABLE, || one(&for_udp, &udp))
                .await;
            if served.is_err() {
                tokio::task::yield_now().await;
            }
        }
    });
    let Some(tcp) = tcp else {
        return Ok(());
    };
    let tcp = TcpListener::from_std(tcp.into())?;
    let wall = Rc::clone(wall);
    spawn_local(async move {
        let places = std::sync::Arc::new(tokio::sync::Semaphore::new(TCP_AT_ONCE));
        loop {
            let Ok(place) = std::sync::Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match tcp.accept().await {
                Ok((stream, _)) => {
                    let wall = Rc::clone(&wall);
                    spawn_local(async move {
                        let conversation = converse(&wall, stream);
                        let _ended = tokio::time::timeout(TCP_WITHIN, conversation).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    Ok(())
}

/// Receives one datagram and answers it from the address that it was sent to.
fn one(wall: &Wall, socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; LONGEST];
    let mut space = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::in_pktinfo);
    let fd = socket.as_raw_fd();
    let (length, from, asked_at) = {
        let mut slices = [IoSliceMut::new(&mut buffer)];
        let message =
            recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
        let info = message.cmsgs()?.find(|one| {
            matches!(
                one,
                ControlMessageOwned::Ipv4PacketInfo(_) | ControlMessageOwned::Ipv6PacketInfo(_)
            )
        });
        (message.bytes, message.address, info)
    };
    let (Some(from), Some(asked_at)) = (from, asked_at) else {
        return Ok(());
    };
    let v4 = from
        .as_sockaddr_in()
        .map(|from| SocketAddr::from((from.ip(), from.port())));
    let v6 = from
        .as_sockaddr_in6()
        .map(|from| SocketAddr::from((from.ip(), from.port())));
    let Some(answer) = answer(wall, &buffer[..length], v4.or(v6)) else {
        return Ok(());
    };
    let slices = [IoSlice::new(&answer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    // If the answer cannot be sent, the client asks again.
    let _sent = match asked_at {
        ControlMessageOwned::Ipv4PacketInfo(mut info) => {
            info.ipi_ifindex = 0;
            info.ipi_spec_dst = info.ipi_addr;
            sendmsg(
                fd,
                &slices,
                &[ControlMessage::Ipv4PacketInfo(&info)],
                flags,
                Some(&from),
            )
        }
        ControlMessageOwned::Ipv6PacketInfo(mut info) => {
            info.ipi6_ifindex = 0;
            sendmsg(
                fd,
                &slices,
                &[ControlMessage::Ipv6PacketInfo(&info)],
                flags,
                Some(&from),
            )
        }
        _ => return Ok(()),
    };
    Ok(())
}

/// Answers several questions on one connection, each with its length before it (RFC 1035, section 4.2.2).
async fn converse(wall: &Wall, mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; LONGEST];
    loop {
        let length = usize::from(stream.read_u16().await?);
        let Some(question) = buffer.get_mut(..length) else {
            return Ok(());
        };
        stream.read_exact(question).await?;
        let Some(answer) = answer(wall, question, None) else {
            return Ok(());
        };
        let Ok(length) = u16::try_from(answer.len()) else {
            return Ok(());
        };
        stream
            .write_all(&[&length.to_be_bytes(), &answer[..]].concat())
            .await?;
    }
}

/// `from` is the sender of a datagram.
fn answer(wall: &Wall, question: &[u8], from: Option<SocketAddr>) -> Option<Vec<u8>> {
    let mut refused = None;
    let (bytes, asked) = respond(question, wall.families, |name| {
        // Most programs know these names from the hosts file; some only ask a resolver.
        if let Some(own) = address_of(name, &wall.own_names) {
            return NameAnswer::Addresses(own);
        }
        let looked = wall.traps.look_at_name(name.as_str());
        match looked.and_then(|()| wall.resolve(name)) {
            Ok(addresses) => NameAnswer::Addresses(addresses),
            Err(refusal) => {
                let why = refusal.for_container();
                refused = Some(refusal);
                NameAnswer::Blocked(why)
            }
        }
    })?;
    if let Some(asked) = asked.filter(|asked| asked.blocked) {
        let by = wall.actor_of_question(from, &asked.name);
        wall.tried
            .on_behalf(by, || note(wall, &asked.name, refused));
    }
    Some(bytes)
}

/// Logs a refused name.
fn note(wall: &Wall, name: &str, refused: Option<Refusal>) {
    // A name that is no host's was not searched before.
    if let Err(caught) = wall.traps.look_at_name(name) {
        wall.note_honey(ConnectionKind::Dns, name, &caught);
        return;
    }
    if is_search_artefact(name) {
        return;
    }
    match (refused, name.parse()) {
        (Some(refusal), Ok(host)) => {
            wall.note_refusal(ConnectionKind::Dns, &Host::Name(host), None, &refusal);
        }
        (Some(refusal), Err(_)) => {
            wall.note(
                ConnectionKind::Dns,
                name,
                None,
                refusal.kind(),
                &refusal.to_string(),
            );
        }
        (None, _) => {
            let why = "this is no name of a host";
            wall.note(ConnectionKind::Dns, name, None, "malformed-name", why);
        }
    }
}

/// A resolver makes these from an allowed name with a search list: no program tried them.
pub(super) fn is_search_artefact(name: &str) -> bool {
    [".svc.cluster.local", ".cluster.local"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The name that a synthetic address stands for, or the address itself.
pub(super) fn host_of_address(wall: &Wall, address: IpAddr) -> crate::rules::Host {
    match wall.names.borrow().name_of(address) {
        Some(name) => crate::rules::Host::Name(name.clone()),
        None => crate::rules::Host::address(address),
    }
}

/// Replaces a synthetic address with its name.
pub(super) fn meant_host(wall: &Wall, host: &Host) -> Host {
    match host {
        Host::Address(address) => host_of_address(wall, *address),
        Host::Name(_) => host.clone(),
    }
}
