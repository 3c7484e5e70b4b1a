//! Requests of the runtime's verbs to a running sidecar: one JSON line each way. The socket is in the container's
//! directory, reachable only for root.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;

use super::super::callers::Callers;
use super::message::{ControlReply, ControlRequest};
use super::wall::Wall;
use super::{accept, asks, inbound};
use crate::audit::ConnectionKind;
use crate::rules::EgressRules;
use crate::sys::socket::{Datagram, receive};

/// The longest request: a list of rules and a hosts file, and the certificates to verify a proxy.
const LONGEST: usize = 2 << 20;
const WITHIN: Duration = Duration::from_secs(10);
/// Callers that are served at once, and callers that are connected at once.
const AT_ONCE: usize = 4;
const WAITING: usize = 32;

/// Serves the socket until the program ends. A caller without the right is refused at once, and not a byte of it is
/// read.
pub(super) fn serve(wall: &Rc<Wall>, socket: OwnedFd, callers: Callers) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.into())?;
    let wall = Rc::clone(wall);
    // A waiting caller costs a descriptor, a served one memory too. Further callers wait in the kernel.
    let places = Arc::new(Semaphore::new(WAITING));
    let asking = Rc::new(Semaphore::new(AT_ONCE));
    spawn_local(async move {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            if let Some(why) = callers.refuse(stream.as_fd()) {
                send_away(&wall, &stream, &why);
                continue;
            }
            let (wall, asking) = (Rc::clone(&wall), Rc::clone(&asking));
            spawn_local(async move {
                let conversation = async {
                    let _turn = asking.acquire().await;
                    converse(&wall, stream, callers).await
                };
                // A verb that is gone needs no answer.
                let _done = tokio::time::timeout(WITHIN, conversation).await;
                drop(place);
            });
        }
    });
    Ok(())
}

/// Sends the refusal, as far as the socket's buffer takes it. Received data is dropped with the socket, descriptors
/// too.
fn send_away(wall: &Wall, stream: &UnixStream, why: &str) {
    wall.note(ConnectionKind::Control, "", None, "control-socket", why);
    let reply = ControlReply::Failed(format!("the sidecar answers only the node: {why}"));
    if let Ok(mut bytes) = serde_json::to_vec(&reply) {
        bytes.push(b'\n');
        // A caller that does not wait need not know.
        let _said = rustix::io::write(stream, &bytes);
    }
}

async fn converse(wall: &Rc<Wall>, mut stream: UnixStream, callers: Callers) -> io::Result<()> {
    let (line, descriptors) = match hear(&stream, callers).await? {
        Ok(heard) => heard,
        Err(why) => {
            send_away(wall, &stream, &why);
            return Ok(());
        }
    };
    let reply = match serde_json::from_slice(&line) {
        Ok(request) => answer(wall, request, descriptors),
        Err(error) => ControlReply::Failed(format!("this is no request: {error}")),
    };
    let mut bytes = serde_json::to_vec(&reply)?;
    bytes.push(b'\n');
    stream.write_all(&bytes).await
}

/// Reads one line, and its descriptors except the first, which proves the caller's right. Without it no more is read.
async fn hear(
    stream: &UnixStream,
    callers: Callers,
) -> io::Result<Result<(Vec<u8>, Vec<OwnedFd>), String>> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    let mut chunk = vec![0; 16 << 10];
    while line.last() != Some(&b'\n') && line.len() < LONGEST {
        stream.readable().await?;
        let heard = stream.try_io(Interest::READABLE, || receive(stream.as_fd(), &mut chunk));
        match heard {
            Ok(Datagram { len: 0, .. }) => break,
            Ok(Datagram { len, fds }) => {
                if line.is_empty()
                    && let Some(why) = callers.refuse_proof(fds.first())
                {
                    return Ok(Err(why));
                }
                line.extend_from_slice(&chunk[..len]);
                descriptors.extend(fds);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    descriptors.drain(..descriptors.len().min(1));
    Ok(Ok((line, descriptors)))
}

fn answer(wall: &Rc<Wall>, request: ControlRequest, descriptors: Vec<OwnedFd>) -> ControlReply {
    match request {
        ControlRequest::Hosts(hosts) => match wall.add_hosts(hosts) {
            Ok(()) => ControlReply::Done,
            Err(why) => ControlReply::Failed(why),
        },
        ControlRequest::EngineNames(names) => match wall.take_names(names) {
            Ok(()) => ControlReply::Done,
            Err(why) => ControlReply::Failed(why),
        },
        ControlRequest::Decide(decision) => asks::decide(wall, decision),
        ControlRequest::Rules { rules, ports } => change(wall, rules, &ports, descriptors),
        ControlRequest::Inbound(ports) => match inbound::open(wall, ports, descriptors) {
            Ok(()) => ControlReply::Done,
            Err(error) => ControlReply::Failed(format!("cannot open the inbound ports: {error}")),
        },
        ControlRequest::Tried(from) => {
            wall.expect_tried(from);
            ControlReply::Done
        }
        ControlRequest::Status => ControlReply::Status(Box::new(wall.status())),
    }
}

fn change(
    wall: &Rc<Wall>,
    rules: EgressRules,
    ports: &BTreeSet<u16>,
    descriptors: Vec<OwnedFd>,
) -> ControlReply {
    if let Some(why) = wall.cannot_hold(&rules) {
        return ControlReply::Failed(why);
    }
    match listen(wall, ports, descriptors) {
        Ok(()) => ControlReply::Changed {
            closed: wall.change(rules),
        },
        Err(error) => {
            ControlReply::Failed(format!("cannot listen on the new rules' ports: {error}"))
        }
    }
}

/// Listens on each port, before a rule names it.
fn listen(wall: &Rc<Wall>, ports: &BTreeSet<u16>, listeners: Vec<OwnedFd>) -> io::Result<()> {
    if ports.len() != listeners.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (port, listener) in ports.iter().zip(listeners) {
        accept::serve_port(wall, listener, *port)?;
    }
    Ok(())
}
