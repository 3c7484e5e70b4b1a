//! Ports that rules name after `create`: bound in the inner namespace of a running container, for its sidecar.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

use crate::network::listen_everywhere;
use crate::runtime::RuntimeError;
use crate::runtime::network::wall::open_namespace;
use crate::runtime::state::record::Record;
use crate::sys::netns;

/// Listens on these ports of every address inside. The caller must be single-threaded; afterwards it is back in its
/// namespace.
pub fn listen(record: &Record, ports: &BTreeSet<u16>) -> Result<Vec<OwnedFd>, RuntimeError> {
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    let init = record.init.filter(|init| init.is_alive());
    let inner = open_namespace(init.ok_or(RuntimeError::NotRunning)?.pid, "net")?;
    let here = netns::current().map_err(RuntimeError::io("open the network namespace"))?;
    let step = || RuntimeError::io("enter the container's network namespace");
    netns::enter_net(inner.as_fd()).map_err(step())?;
    let bound = bind(record, ports);
    netns::enter_net(here.as_fd()).map_err(RuntimeError::io("leave it again"))?;
    bound
}

fn bind(record: &Record, ports: &BTreeSet<u16>) -> Result<Vec<OwnedFd>, RuntimeError> {
    // Before `start` its process may still be in the engine's namespace, and the pid may have been reused.
    let cookie = netns::current_cookie().map_err(RuntimeError::io("look at the namespace"))?;
    if record.netns_cookie != Some(cookie) {
        return Err(RuntimeError::State {
            verb: "open a port of",
            id: record.id.clone(),
            why: "it is not in its network namespace yet: start it first".to_owned(),
        });
    }
    let listen = |port: &u16| {
        listen_everywhere(*port).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => RuntimeError::State {
                verb: "open a port of",
                id: record.id.clone(),
                why: format!(
                    "a program inside has taken the port {port}, where the wall would listen"
                ),
            },
            _ => RuntimeError::io(format!("listen on port {port} inside"))(error),
        })
    };
    ports.iter().map(listen).collect()
}
