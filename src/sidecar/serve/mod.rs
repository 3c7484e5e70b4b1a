//! The allowlist proxy: the work of a confined sidecar under the mode `allowlist`.
//!
//! One thread, one event loop. Everything comes from the container's network namespace, over listeners that were bound
//! there, and leaves from the engine's, where this process is. Each connection is a task that owns its two sockets; all
//! share a [`wall::Wall`].
//!
//! ```text
//! dns        question ----------> synthetic address, or NXDOMAIN with the reason
//! config     the sidecar's configuration
//! accept     TCP to any address -> the host that it means -> explicit | transparent
//! explicit   CONNECT, http://, SOCKS5h on loopback
//! tunnel     an allowed connection: first bytes checked, host dialled
//! answer     HTTP's answer to a refusal
//! addition   how to add the rule that a refusal lacks
//! stream     reads and writes of a TCP stream
//! sniff      transparent: the first bytes must name the decided host
//! clients    which connections are the command's, if others reach the port too
//! admission  whether a connection or a name is allowed
//! asks       connections that wait for an approval
//! refusal    why a connection is refused
//! notes      refusals and verify's attempts, in the log and in the counts
//! shown      refusals that the container can read
//! permission a rule, an approval, or learn mode
//! routes     resolver, hosts files and upstream proxy, from the engine
//! upstream   resolve, vet, dial
//! around     current addresses and networks of the node and of the engine's namespace
//! proxy      the node's own proxy, if it is the only way out
//! secure     TLS to that proxy
//! relay      bytes both ways
//! watch      what is still checked in them
//! reader_line  the line to the reader
//! requests   plain HTTP to hosts with request rules: given to the reader, whose questions it answers
//! long       relay for a stream that does not pause
//! share      a connection's share of the budget
//! live       open outbound connections
//! denied     answers to denied system calls, between other work
//! inbound    a port of the engine's network -> the same port of the loopback inside
//! service    a port of the loopback inside -> a service of the machine
//! guests     open inbound connections
//! pool       the sockets that they dial with
//! attempts   connections and datagrams inside that the kernel refuses: their ports have no listener
//! outside    connections from outside to ports without a listener
//! counted    the kernel's counters
//! tried      attempts of `verify`
//! written    the first write to each watched mount
//! control    requests of the runtime's verbs
//! message    their form
//! ```

mod accept;
mod addition;
mod admission;
mod answer;
mod around;
mod asks;
mod attempts;
mod clients;
mod config;
mod control;
mod counted;
mod denial_page;
mod denied;
mod dns;
mod expiry;
mod explicit;
mod guests;
mod honey;
mod host_connection;
mod inbound;
mod live;
mod long;
mod message;
mod notes;
mod outside;
mod permission;
mod pool;
mod proxy;
mod reader_line;
mod refusal;
mod relay;
mod requests;
mod routes;
mod secure;
mod service;
mod share;
mod sniff;
mod socks;
mod stream;
mod tried;
mod tunnel;
mod upstream;
mod wall;
mod watch;
mod written;

use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::callers::Callers;
use super::calls::Calls;
use super::counts::KernelCounts;
use super::error::SidecarError;
use super::first_listener;
use super::inside::DenialFile;
use super::protocol::InitQuestion;
use super::watched::WatchedMount;
use crate::network::Listeners;
use crate::sys::event::{event_loop, readable};
use wall::Wall;

pub use around::EngineNetworks;
pub(super) use clients::Clients;
pub use config::{DIALERS, LatePorts, ServingConfig};
pub use message::{AskDecision, AskDecisionTarget, ControlReply, ControlRequest, EngineNames};
pub use proxy::Proxy;
pub use secure::Tls;

/// The descriptors for serving.
#[derive(Debug)]
pub struct Descriptors {
    /// The accepted callers of the control socket.
    pub callers: Callers,
    /// The listeners inside.
    pub listeners: Option<Listeners>,
    /// The listeners outside, each with its inbound port.
    pub inbound: Vec<(u16, OwnedFd)>,
    /// Sockets of the inner namespace to dial with: half of them for IPv4, or all.
    pub dialers: Vec<OwnedFd>,
    /// Sockets that hear of attempts that the kernel refuses inside.
    pub taps: Vec<OwnedFd>,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// The file that shows the container its denials.
    pub(super) inside: Option<DenialFile>,
    /// /proc/PID/net/snmp of the engine's network.
    pub outside: Option<OwnedFd>,
    /// The warden's log, opened to append; the warden takes it before anything is served.
    pub warden: Option<OwnedFd>,
    /// The UNIX socket for the runtime's verbs, which only root reaches.
    pub control: OwnedFd,
    /// Routing sockets: one of the engine's namespace, one of the node's.
    pub routes: [crate::sys::netlink::RouteSocket; 2],
    /// The line to the reader of requests.
    pub reader: Option<OwnedFd>,
}

/// The parts of a proxy without a control socket.
#[derive(Debug)]
pub(super) struct ServingParts {
    /// The proxy's port.
    pub listener: OwnedFd,
    /// Tells which clients are the command's.
    pub clients: Clients,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// The denials that the command can read.
    pub inside: Option<DenialFile>,
    /// Routing sockets, as in [`Descriptors::routes`].
    pub around: [crate::sys::netlink::RouteSocket; 2],
    /// The line to the reader of requests.
    pub reader: Option<OwnedFd>,
}

const NO_LINE: &str = "watch the line to the reader of requests";

/// Serves only as a proxy, until `guarded` ends.
pub(super) fn run_alone(
    serving: ServingConfig,
    names: EngineNames,
    alone: ServingParts,
    guarded: &OwnedFd,
) -> Result<(), SidecarError> {
    let step = |step| SidecarError::step::<std::io::Error>(step);
    let runtime = event_loop().map_err(step("make the event loop"))?;
    let wall = runtime.block_on(async move {
        let ServingParts {
            listener,
            clients,
            journal,
            inside,
            around,
            reader,
        } = alone;
        let wall = Wall::new(serving, (journal, inside), around);
        let wall = Rc::new(wall.with_reader(reader).map_err(step(NO_LINE))?);
        wall.take_names(names)
            .map_err(|why| step("take the names of the node")(std::io::Error::other(why)))?;
        wall::keep_log(&wall);
        expiry::serve(&wall);
        accept::serve_clients(&wall, listener, clients).map_err(step("listen"))?;
        // No warden ends the command for it.
        let read = Rc::clone(&wall);
        tokio::task::spawn_local(async move { read.reader_lost().await });
        readable(guarded)
            .await
            .map_err(step("wait for the command's end"))?;
        Ok::<_, SidecarError>(wall)
    })?;
    // Drops the open connections, whose ends are logged.
    drop(runtime);
    wall.close_log();
    Ok(())
}

/// What the sidecar watches besides the network.
pub(super) struct Watches {
    pub calls: Option<Calls>,
    pub mounts: Vec<WatchedMount>,
    pub counts: KernelCounts,
}

/// Serves until init ends. `handover` is called when init asks for its namespace.
pub(super) fn run(
    serving: ServingConfig,
    descriptors: Descriptors,
    init: &OwnedFd,
    handover: (OwnedFd, impl FnOnce(&OwnedFd) -> InitQuestion + 'static),
    Watches {
        calls,
        mounts,
        counts,
    }: Watches,
) -> Result<(), SidecarError> {
    let step = |step| SidecarError::step::<std::io::Error>(step);
    let runtime = event_loop().map_err(step("make the event loop"))?;
    let (wall, calls) = runtime.block_on(async move {
        let Descriptors {
            callers,
            listeners,
            inbound,
            dialers,
            taps,
            journal,
            inside,
            outside,
            warden: _,
            control,
            routes,
            reader,
        } = descriptors;
        let wall = Wall::new(serving, (journal, inside), routes);
        let wall = Rc::new(wall.with_reader(reader).map_err(step(NO_LINE))?);
        wall::keep_log(&wall);
        expiry::serve(&wall);
        if let Some(listeners) = listeners {
            dns::serve(&wall, listeners.dns_udp, listeners.dns_tcp).map_err(step("serve DNS"))?;
            accept::serve(&wall, listeners.proxy, listeners.ports).map_err(step("listen"))?;
        }
        inbound::serve(&wall, inbound, dialers).map_err(step("serve the ports that lead in"))?;
        control::serve(&wall, control, callers).map_err(step("serve the control socket"))?;
        if let Some(snmp) = outside {
            outside::serve(&wall, snmp);
        }
        written::serve(&wall, mounts);
        let verifies = calls.as_ref().map(Calls::verifies).unwrap_or_default();
        let taps = attempts::serve(&wall, taps);
        let counts = counted::serve(&wall, counts, Rc::clone(&verifies), Rc::clone(&taps));
        let calls = denied::serve(&wall, calls);
        let (socket, answer) = handover;
        let asked = Rc::clone(&calls);
        tokio::task::spawn_local(async move {
            if readable(&socket).await.is_ok() {
                let question = answer(&socket);
                // Otherwise init's listener is not taken, and init does not start.
                let _not = first_listener::expect(asked.borrow_mut().as_mut(), socket, question);
            }
        });
        tokio::select! {
            ended = readable(init) => ended.map_err(step("wait for the container's end"))?,
            // The warden ends a container that has lost its sidecar.
            () = wall.traps.caught_to_end() => {}
            () = wall.reader_lost() => {}
        }
        counts.borrow_mut().excuse(verifies.take());
        let rest = counts.borrow_mut().rest(|| taps.hear_all(&wall));
        wall.note_counts(rest);
        Ok::<_, SidecarError>((wall, calls))
    })?;
    // Drops the open connections, whose ends are logged.
    drop(runtime);
    calls.borrow_mut().iter_mut().for_each(Calls::settle);
    wall.close_log();
    match wall.traps.have_ended() {
        true => Err(SidecarError::Honeytoken),
        false => Ok(()),
    }
}
