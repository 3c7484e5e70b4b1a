//! SHELL. The proxy, which is the command's only way to hosts: its port, and its process.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::PidfdFlags;

use super::place::RunTempDir;
use crate::egress::names::Families;
use crate::plan::{DecidedPlan, Plan};
use crate::runtime::network::resolver;
use crate::sidecar::{
    EngineNetworks, LatePorts, Proxy, ReaderConfig, ServingConfig, SidecarRlimits, bare,
};
use crate::sys::socket;

/// What is missing if the proxy that only refuses cannot start.
const NO_WORDS: &str = "denied hosts are not listed at the end";

/// Opens the proxy's port. The kernel chooses a free one, so no other program listens there. In mode `local` the proxy
/// only says what would allow a host.
pub fn listen(plan: &mut Plan) -> Result<Option<OwnedFd>> {
    if !plan.network.is_served() {
        plan.network.proxy_env = false;
        return Ok(None);
    }
    let step = "listen on the loopback for the proxy";
    let listener = match TcpListener::bind("127.0.0.1:0").context(step) {
        // The loopback interface may be down.
        Err(error) if is_only_words(plan) => {
            log::warn!("{NO_WORDS}: {error:#}");
            plan.network.proxy_env = false;
            return Ok(None);
        }
        bound => bound?,
    };
    listener.set_nonblocking(true).context(step)?;
    plan.network.proxy_port = listener.local_addr().context(step)?.port();
    plan.network.ports.clear();
    Ok(Some(listener.into()))
}

/// The ports that the command connects to. Without a proxy it gets no socket.
pub fn ports(plan: &Plan, proxy: Option<&OwnedFd>) -> Vec<u16> {
    let services = plan.network.connect.keys().copied();
    // To the command's own servers.
    let own = plan.network.inbound.iter().copied();
    let proxy = proxy.map(|_| plan.network.proxy_port);
    proxy.into_iter().chain(services).chain(own).collect()
}

/// Whether the proxy only refuses, and nothing else depends on it.
fn is_only_words(plan: &Plan) -> bool {
    let network = &plan.network;
    network.refusing && network.connect.is_empty() && network.inbound.is_empty()
}

/// The socket that tells the proxy about the command's sockets. The timeout keeps a stuck proxy from blocking calls
/// forever.
pub fn clients() -> Result<(OwnedFd, OwnedFd)> {
    const HEARD_WITHIN: Duration = Duration::from_secs(5);
    let step = "make a socket pair";
    let (ours, theirs) = socket::pair().context(step)?;
    set_socket_timeout(&ours, Timeout::Send, Some(HEARD_WITHIN)).context(step)?;
    Ok((ours, theirs))
}

/// The descriptors and the configuration that the proxy gets.
pub struct ProxyParts {
    /// Its listener.
    pub listener: OwnedFd,
    /// The end of [`clients`] that it reads.
    pub clients: OwnedFd,
    /// Its reader of requests.
    pub reading: Option<ReaderConfig>,
    /// The upstream proxy.
    pub upstream: Option<Proxy>,
}

/// Starts the proxy. Returns its pidfd; `None` if it would only refuse and cannot start. Without it the network is as closed:
/// the command gets no socket.
pub fn serve(
    decided: &DecidedPlan,
    plan: &Plan,
    place: &RunTempDir,
    ProxyParts {
        listener,
        clients,
        reading,
        upstream,
    }: ProxyParts,
) -> Result<Option<OwnedFd>> {
    let network = &plan.network;
    // Dropped before any fork, so that its values are wiped.
    let reading = reading.map(|reading| reading.to_file());
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    let served = bare::spawn(bare::BareSidecar {
        serving: ServingConfig {
            rules: network.rules.clone(),
            secrets: network.secrets.iter().map(Into::into).collect(),
            honey: network.honey.clone(),
            opened: network.opened.clone(),
            audited: None,
            asking: None,
            budget: network.budget,
            container: String::new(),
            context: place.context(decided),
            own_names: Vec::new(),
            ports: Some(Vec::new()),
            // The command's servers listen themselves.
            inbound: Default::default(),
            published: Default::default(),
            // The command connects to services directly.
            connect: Default::default(),
            leads_nowhere: Default::default(),
            families: Families::V4,
            services: network.services.clone(),
            engine_networks: EngineNetworks::Closed,
            // No `update` finds such a run.
            late_ports: LatePorts::Impossible,
            refusing: network.refusing,
        },
        names: resolver::names_of_the_node(&network.rules, upstream)?,
        reading: reading.transpose().context("write the reader's input")?,
        listener,
        clients,
        journal: place.journal()?.into(),
        shows: plan.report.denied,
        guarded: own.context("open our own pidfd")?,
        limits: SidecarRlimits {
            open_files: plan.sidecar.files,
            file_bytes: crate::audit::quota::MOST_BYTES + (1 << 20),
        },
    });
    match served.context("start the network's proxy") {
        Err(error) if is_only_words(plan) => {
            log::warn!("{NO_WORDS}: {error:#}");
            Ok(None)
        }
        served => served.map(Some),
    }
}
