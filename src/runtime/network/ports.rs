//! Ports of a running container, bound for its sidecar in the namespaces where they belong.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

use crate::network::{dial_sockets, listen_everywhere};
use crate::policy::Field;
use crate::rules::EgressRule;
use crate::runtime::RuntimeError;
use crate::runtime::network::wall::{is_own_namespace, open_namespace};
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::is_of_ordinary_user;
use crate::sidecar::DIALERS;
use crate::sys::netns;
use crate::text::few;

/// What an error says of the attempt.
pub(super) const OPENS: &str = "open a port of";

/// The same of a rule for a port that no rule names yet.
const ADDS: &str = "add the rule to the running";

/// Listens on these ports of every address inside, for rules that name them after `create`. The caller must be
/// single-threaded; afterwards it is back in its namespace. So for the others here.
pub fn listen(
    record: &Record,
    ports: &BTreeSet<u16>,
    rules: &BTreeSet<EgressRule>,
) -> Result<Vec<OwnedFd>, RuntimeError> {
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    if is_of_ordinary_user() {
        let listed: Vec<String> = ports.iter().map(u16::to_string).collect();
        let needs = |rule: &&EgressRule| !rule.ports().is_disjoint(ports);
        let lacking: Vec<String> = (rules.iter().filter(needs).map(ToString::to_string)).collect();
        let lacking: Vec<&str> = lacking.iter().map(String::as_str).collect();
        return Err(RuntimeError::State {
            verb: ADDS,
            id: record.id.clone(),
            why: format!(
                "nothing listens inside on port {}, and only root can listen later; start it again with {}",
                few(&listed, 60),
                identity::tool(record).adds(Field::NetworkAllow, &lacking)
            ),
        });
    }
    inside(record, || bind(record, ports, BindPlace::Inside))
}

/// Sockets inside, with which the sidecar dials the loopback there.
pub fn dialers(record: &Record) -> Result<Vec<OwnedFd>, RuntimeError> {
    let step = || RuntimeError::io("make sockets to dial inside with");
    inside(record, || dial_sockets(DIALERS).map_err(step()))
}

/// Listens on these ports of every address of the engine's network, where the sidecar is.
pub fn listen_outside(
    record: &Record,
    ports: &BTreeSet<u16>,
) -> Result<Vec<OwnedFd>, RuntimeError> {
    if record.call.wrap {
        return Err(refused(
            record,
            "a sandbox of wrap has no network of an engine: name its ports when it begins (wrap --publish)",
        ));
    }
    let sidecar = record.sidecar.as_ref().map(ProcessId::from);
    let sidecar = sidecar.ok_or(RuntimeError::NotRunning)?;
    let engine = open_namespace(sidecar.pid, "net")?;
    // After the namespace is open: the pid was not reused before.
    if !sidecar.is_alive() {
        return Err(RuntimeError::NotRunning);
    }
    if is_own_namespace(engine.as_fd())? {
        return Err(refused(
            record,
            "it has the node's own network, where the port would be open at every address: use `wrap --publish`, or a \
             network of the engine",
        ));
    }
    within(&engine, || bind(record, ports, BindPlace::Outside))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BindPlace {
    Inside,
    Outside,
}

fn inside<T>(
    record: &Record,
    act: impl FnOnce() -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    if is_of_ordinary_user() {
        return Err(refused(
            record,
            "only root can open ports in the network of a running sandbox; start it again with --publish PORT",
        ));
    }
    let init = record.init.filter(|init| init.is_alive());
    let inner = open_namespace(init.ok_or(RuntimeError::NotRunning)?.pid, "net")?;
    within(&inner, || {
        // Before `start` its process may still be in the engine's namespace, and the pid may have been reused.
        let cookie = netns::current_cookie().map_err(RuntimeError::io("look at the namespace"))?;
        match record.netns_cookie == Some(cookie) {
            true => act(),
            false => Err(refused(
                record,
                "it is not in its network namespace yet: start it first",
            )),
        }
    })
}

fn within<T>(
    namespace: &OwnedFd,
    act: impl FnOnce() -> Result<T, RuntimeError>,
) -> Result<T, RuntimeError> {
    let here = netns::current().map_err(RuntimeError::io("open the network namespace"))?;
    let step = || RuntimeError::io("enter the container's network namespace");
    netns::enter_net(namespace.as_fd()).map_err(step())?;
    let done = act();
    netns::enter_net(here.as_fd()).map_err(RuntimeError::io("leave it again"))?;
    done
}

fn bind(
    record: &Record,
    ports: &BTreeSet<u16>,
    place: BindPlace,
) -> Result<Vec<OwnedFd>, RuntimeError> {
    let listen = |port: &u16| {
        listen_everywhere(*port).map_err(|error| match (error.kind(), place) {
            (ErrorKind::AddrInUse, BindPlace::Inside) => {
                let why = "a program inside has taken the port";
                refused(
                    record,
                    &format!("{why} {port}, where the wall would listen"),
                )
            }
            (ErrorKind::AddrInUse, BindPlace::Outside) => {
                let why = "another container in the engine's network listens there, or an earlier update has not ended yet";
                refused(record, &format!("port {port}: {why}"))
            }
            (_, BindPlace::Inside) => {
                RuntimeError::io(format!("listen on port {port} inside"))(error)
            }
            (_, BindPlace::Outside) => {
                RuntimeError::io(format!("listen on port {port} of the engine's network"))(error)
            }
        })
    };
    ports.iter().map(listen).collect()
}

fn refused(record: &Record, why: &str) -> RuntimeError {
    RuntimeError::State {
        verb: OPENS,
        id: record.id.clone(),
        why: why.to_owned(),
    }
}
