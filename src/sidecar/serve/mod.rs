//! The allowlist proxy: what the sidecar does once it is confined, under the mode `allowlist`.
//!
//! One thread, one event loop. Everything comes from inside the container's network namespace over listeners that
//! were bound there, and leaves from the engine's, where this process is. Each connection is a task that owns its two
//! sockets; they share a [`wall::Wall`].
//!
//! ```text
//! dns        question ----------> synthetic address, or NXDOMAIN with the reason
//! accept     TCP to any address -> which host is meant -> explicit | transparent
//! explicit   CONNECT, http://, SOCKS5h on loopback
//! sniff      transparent: the first bytes must name the host that was decided on
//! clients    whose a connection is, where strangers reach the port too
//! admission  is the connection, or the name, allowed
//! asks       connections that wait for a person
//! refusal    why a connection does not go on
//! notes      the same for the log and the count
//! shown      refusals that the container reads itself
//! upstream   resolve, vet, dial
//! around     addresses and networks of the node and of the engine's namespace, as they are now
//! proxy      the node's own proxy, where it is the only way out
//! secure     TLS to that proxy
//! relay      bytes both ways
//! requests   plain HTTP to hosts with rules for requests: given to the reader, whose questions are answered
//! long       the same for a stream that does not pause
//! live       connections out that are open
//! denied     answers to denied system calls, between other work
//! inbound    a port of the engine's network -> the same port of the loopback inside
//! guests     connections in that are open
//! attempts   what the kernel refuses inside: connections and datagrams to ports where nobody listens
//! outside    connections from outside that nobody answers
//! counted    what the kernel alone counts
//! tried      attempts of `verify`
//! written    mounts of which a file was written
//! control    questions of the runtime's verbs
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
    /// The node's secrets that its requests get, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<CountedSecret>,
    /// The node's honey values, which are not to leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub honey: Vec<HoneyValue>,
    /// Where TLS is opened so that requests are seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<TlsHosts>,
    /// What may be reached under a policy that is only reported on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audited: Option<AuditedNetwork>,
    /// What may be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<AskRules>,
    /// What it may take.
    pub budget: Budget,
    /// The container, for people who are told what to type.
    pub container: String,
    /// What the log says of it in each line.
    pub context: audit::Context,
    /// What the container itself is called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_names: Vec<String>,
    /// The ports of the listeners inside, in their order; `None`: nothing leads out, and nobody listens there.
    pub ports: Option<Vec<u16>>,
    /// The ports of the engine's network that lead in.
    #[serde(default)]
    pub inbound: BTreeSet<u16>,
    /// Of those the ones that are listened for at these addresses alone; for the others at every address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Ports that the engine publishes and that lead nowhere.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leads_nowhere: BTreeSet<u16>,
    /// The families that the namespace inside has.
    pub families: Families,
    /// The cluster's networks, where rules `service:` lead.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
    /// Whether rules `service:` lead into the networks of the engine's namespace as well.
    pub engine_networks: EngineNetworks,
    /// Nothing leads out, and whoever asks is told that.
    #[serde(default)]
    pub refusing: bool,
}

/// How many connections may lead in at once.
const DIALERS: usize = 64;

impl ServingConfig {
    /// How many sockets of each family there are to dial inside with.
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

    /// How many listeners come from inside: those of DNS and of the proxy, and one for each port.
    pub(super) fn listeners(&self) -> usize {
        let ports = self.ports.as_ref();
        ports.map_or(0, |ports| self.stub().with_proxy() + ports.len())
    }

    /// How many sockets belong to it.
    pub(super) fn sockets(&self) -> usize {
        self.listeners() + (self.dialers() * self.families.count())
    }
}

/// The descriptors that it serves with.
#[derive(Debug)]
pub struct Descriptors {
    /// Who may ask on the control socket.
    pub callers: Callers,
    /// From inside.
    pub listeners: Option<Listeners>,
    /// From outside: each port that leads in, and its listener.
    pub inbound: Vec<(u16, OwnedFd)>,
    /// Sockets of the inner namespace to dial with: half of them IPv4's, or all.
    pub dialers: Vec<OwnedFd>,
    /// They hear of attempts that the kernel refuses inside.
    pub taps: Vec<OwnedFd>,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// What the container is shown of its refusals.
    pub(super) inside: Option<DenialFile>,
    /// /proc/PID/net/snmp of the engine's network.
    pub outside: Option<OwnedFd>,
    /// The warden's log, opened to append; the warden takes it before anything is served.
    pub warden: Option<OwnedFd>,
    /// Where the runtime's verbs connect: a UNIX socket that only root reaches.
    pub control: OwnedFd,
    /// Routing sockets: of the engine's namespace, and of the node's.
    pub routes: [crate::sys::netlink::RouteSocket; 2],
    /// The line to the reader of requests.
    pub reader: Option<OwnedFd>,
}

/// The parts of a proxy that nothing else queries or changes while it runs.
#[derive(Debug)]
pub(super) struct ServingParts {
    /// The proxy's port.
    pub listener: OwnedFd,
    /// Who may come to it.
    pub clients: Clients,
    /// The log, opened to append.
    pub journal: OwnedFd,
    /// What the command is shown of its refusals.
    pub inside: Option<DenialFile>,
    /// Routing sockets, as in [`Descriptors::routes`].
    pub around: [crate::sys::netlink::RouteSocket; 2],
    /// The line to the reader of requests.
    pub reader: Option<OwnedFd>,
}

const NO_LINE: &str = "watch the line to the reader of requests";

/// Serves as a proxy alone, until `guarded` ends.
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
        // Nobody ends the command for it: there is no warden.
        let read = Rc::clone(&wall);
        tokio::task::spawn_local(async move { read.reader_lost().await });
        readable(guarded)
            .await
            .map_err(step("wait for the command's end"))?;
        Ok::<_, SidecarError>(wall)
    })?;
    // With it the connections that were open, which are lines of the log.
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
                // Without it init's listener is not taken, and init does not start.
                let _not = expect_listener(asked.borrow_mut().as_mut(), socket, question);
            }
        });
        tokio::select! {
            ended = readable(init) => ended.map_err(step("wait for the container's end"))?,
            // The warden ends what has lost its sidecar.
            () = wall.traps.caught_to_end() => {}
            () = wall.reader_lost() => {}
        }
        counts.borrow_mut().excuse(verifies.take());
        let rest = counts.borrow_mut().rest(|| taps.hear_all(&wall));
        wall.note_counts(rest);
        Ok::<_, SidecarError>((wall, calls))
    })?;
    // With it the connections that were open, which are lines of the log.
    drop(runtime);
    calls.borrow_mut().iter_mut().for_each(Calls::settle);
    wall.close_log();
    Ok(())
}
