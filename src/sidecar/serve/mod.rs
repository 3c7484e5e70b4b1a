//! The allowlist proxy: the work of a confined sidecar under the mode `allowlist`.
//!
//! One thread, one event loop. Everything comes from the container's network namespace, over listeners that were bound
//! there, and leaves from the engine's, where this process is. Each connection is a task that owns its two sockets; all
//! share a [`wall::Wall`].
//!
//! ```text
//! dns        question ----------> synthetic address, or NXDOMAIN with the reason
//! accept     TCP to any address -> the host that it means -> explicit | transparent
//! explicit   CONNECT, http://, SOCKS5h on loopback
//! sniff      transparent: the first bytes must name the decided host
//! clients    which connections are the command's, if others reach the port too
//! admission  whether a connection or a name is allowed
//! asks       connections that wait for an approval
//! refusal    why a connection is refused
//! notes      refusals in the log and in the counts
//! shown      refusals that the container can read
//! upstream   resolve, vet, dial
//! around     current addresses and networks of the node and of the engine's namespace
//! proxy      the node's own proxy, if it is the only way out
//! secure     TLS to that proxy
//! relay      bytes both ways
//! requests   plain HTTP to hosts with request rules: given to the reader, whose questions it answers
//! long       relay for a stream that does not pause
//! live       open outbound connections
//! denied     answers to denied system calls, between other work
//! inbound    a port of the engine's network -> the same port of the loopback inside
//! guests     open inbound connections
//! attempts   connections and datagrams inside that the kernel refuses: their ports have no listener
//! outside    connections from outside to ports without a listener
//! counted    the kernel's counters
//! tried      attempts of `verify`
//! written    the first write to each watched mount
//! control    requests of the runtime's verbs
//! ```

mod accept;
mod admission;
mod around;
mod asks;
mod attempts;
mod clients;
mod control;
mod counted;
mod denied;
mod dns;
mod explanation;
mod explicit;
mod guests;
mod honey;
mod host_connection;
mod inbound;
mod live;
mod long;
mod notes;
mod outside;
mod proxy;
mod refusal;
mod relay;
mod requests;
mod secure;
mod shown;
mod sniff;
mod socks;
mod tried;
mod upstream;
mod wall;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::SidecarError;
use super::callers::Callers;
use super::calls::Calls;
use super::counts::KernelCounts;
use super::inside::DenialFile;
use super::program::expect_listener;
use super::protocol::Question;
use super::watched::WatchedMount;
use crate::audit;
use crate::egress::names::Families;
use crate::egress::{AskRules, Budget, CountedSecret, EgressRules, TlsHosts};
use crate::network::{Listeners, Stub};
use crate::plan::AuditedNetwork;
use crate::policy::{HoneyValue, NetworkPrefix};
use crate::sys::event::{event_loop, readable};
use wall::Wall;

pub use around::EngineNetworks;
pub(super) use clients::Clients;
pub use control::{AskDecision, AskDecisionTarget, ControlReply, ControlRequest, EngineNames};
pub use proxy::Proxy;
pub use secure::Tls;

/// The sidecar's configuration: a file that the runtime writes and hands over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServingConfig {
    /// What may be reached.
    pub rules: EgressRules,
    /// The node's secrets for its requests, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<CountedSecret>,
    /// The node's honey values, which must not leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// The hosts whose TLS is opened to read requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<TlsHosts>,
    /// What may be reached under a policy in audit mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audited: Option<AuditedNetwork>,
    /// What may be approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskRules>,
    /// Its limits.
    pub budget: Budget,
    /// The container's name, for commands in messages to people.
    pub container: String,
    /// The context of each log line.
    pub context: audit::Context,
    /// The container's own names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_names: Vec<String>,
    /// The ports of the listeners inside, in their order; `None`: nothing leads out, and there are no listeners.
    pub ports: Option<Vec<u16>>,
    /// The inbound ports of the engine's network.
    #[serde(default)]
    pub inbound: BTreeSet<u16>,
    /// Inbound ports that listen only at these addresses. The others listen at every address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Ports that the engine publishes but that lead nowhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leads_nowhere: BTreeSet<u16>,
    /// The address families of the namespace inside.
    pub families: Families,
    /// The cluster's networks, for rules `service:`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Whether rules `service:` also lead into the networks of the engine's namespace.
    pub engine_networks: EngineNetworks,
    /// Nothing leads out, and clients are told so.
    #[serde(default)]
    pub refusing: bool,
}

/// Inbound connections at once.
const DIALERS: usize = 64;

impl ServingConfig {
    /// The number of sockets of each family to dial inside with.
    pub fn dialers(&self) -> usize {
        if self.inbound.is_empty() { 0 } else { DIALERS }
    }

    /// Where the stub listens.
    pub fn stub(&self) -> Stub {
        match self.refusing {
            true => Stub::Refusing,
            false => Stub::Everywhere,
        }
    }

    /// The number of listeners inside: for DNS and the proxy, and one for each port.
    pub(super) fn listeners(&self) -> usize {
        let ports = self.ports.as_ref();
        ports.map_or(0, |ports| self.stub().with_proxy() + ports.len())
    }

    /// The number of its sockets.
    pub(super) fn sockets(&self) -> usize {
        self.listeners() + (self.dialers() * self.families.count())
    }
}

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
    handover: (OwnedFd, impl FnOnce(&OwnedFd) -> Question + 'static),
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
                let _not = expect_listener(asked.borrow_mut().as_mut(), socket, question);
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
    Ok(())
}
