//! The network wall while `create` raises it: the sidecar and the inner namespace get ready while libcontainer works.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;

use crate::audit;
use crate::egress::names::Families;
use crate::network::{InnerConfig, InnerMode, ListenPorts, Maker, Sysctl, TapScope, spawn_maker};
use crate::plan::{AuditedNetwork, Plan};
use crate::policy::{NetworkMode, Tool};
use crate::runtime::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::launch::has_user_namespace;
use crate::runtime::network::companion::sidecar_config;
use crate::runtime::network::control;
use crate::runtime::network::counted;
use crate::runtime::network::denial_dir;
use crate::runtime::network::engine_networks;
use crate::runtime::network::refused;
use crate::runtime::runs::{self, RunDir};
use crate::runtime::state::census::Namespace;
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::{ContainerPaths, is_of_ordinary_user};
use crate::runtime::unprivileged;
use crate::seccomp::NotifyListener;
use crate::sidecar::{
    self, AttachRequest, CallsFds, EngineNetworks, LatePorts, Loss, ReaderConfig, ServingConfig,
    ServingFds, SidecarConfig, SidecarRecord, WatchedMount,
};

/// The network wall while `create` makes it.
pub struct NetworkWall {
    spawned: sidecar::StartingSidecar,
    maker: Option<Maker>,
    config: Vec<Sysctl>,
    user_namespace: bool,
    /// The sidecar's configuration, and the directory of its files.
    serving: Option<(ServingConfig, PathBuf)>,
    mode: NetworkMode,
    proxy_port: u16,
    /// Who started the container.
    tool: Tool,
    /// Whether the caller has no root's rights.
    persons: bool,
    /// What the sidecar's death means.
    loss: Loss,
}

/// What later steps of `create` need of the inner network namespace.
pub struct FinishedNetwork {
    /// For the index.
    pub namespace: Option<Namespace>,
    /// The counts of its packets, for the timekeeper.
    pub traffic: Vec<OwnedFd>,
}

impl NetworkWall {
    /// Starts the sidecar. Also starts making the inner namespace, unless a user namespace must come first. `reading`
    /// is for the reader of requests.
    pub fn begin(
        plan: &Plan,
        spec: &Spec,
        place: &ContainerPaths,
        (listener, reading): (NotifyListener, Option<&ReaderConfig>),
        tool: Tool,
    ) -> Result<Self, RuntimeError> {
        let sysctls = plan
            .network
            .sysctl
            .iter()
            .map(|(k, v)| Sysctl::parse(k, v))
            .collect::<Result<Vec<_>, _>>()?;
        let user_namespace = has_user_namespace(spec);
        let mode = plan.network.mode;
        let serving = plan
            .network
            .is_served_by_own()
            .then(|| (serving(plan, place), place.dir()));
        let mut config = sidecar_config(plan, spec, place, listener);
        let loss = config.loss;
        let reading = reading.map(ReaderConfig::to_file).transpose();
        let reading = reading.map_err(RuntimeError::io("write the reader's input"))?;
        config.reading = reading.as_ref().map(AsFd::as_fd);
        let spawned = spawn(&config)?;
        let maker = if user_namespace {
            None
        } else {
            Some(spawn_maker(&inner_config(
                &sysctls,
                (mode, tool),
                plan.network.proxy_port,
                serving.as_ref(),
                None,
            ))?)
        };
        Ok(Self {
            spawned,
            maker,
            config: sysctls,
            user_namespace,
            serving,
            mode,
            proxy_port: plan.network.proxy_port,
            tool,
            persons: unprivileged::inside().is_some(),
            loss,
        })
    }

    /// The end of the hand-over socket that the container's init process inherits.
    pub fn init_end(&mut self) -> Option<OwnedFd> {
        self.spawned.take_init_end()
    }

    /// Sends the sidecar its configuration: as late as possible, and before libcontainer begins.
    pub fn configure(&mut self) -> Result<(), RuntimeError> {
        Ok(self.spawned.configure()?)
    }

    /// What `delete` needs to know of the sidecar.
    pub fn sidecar(&self) -> &SidecarRecord {
        self.spawned.record()
    }

    /// Gives the sidecar what it needs, and waits until it reports that it is confined. Returns the inner namespace.
    pub fn finish(
        mut self,
        init: ProcessId,
        place: &ContainerPaths,
        record: &mut Record,
        run: &RunDir,
        (calls, watched): (Option<CallsFds>, Vec<WatchedMount>),
    ) -> Result<FinishedNetwork, RuntimeError> {
        let maker = match self.maker.take() {
            Some(maker) => maker,
            None => {
                let user = open_namespace(init.pid, "user")?;
                spawn_maker(&inner_config(
                    &self.config,
                    (self.mode, self.tool),
                    self.proxy_port,
                    self.serving.as_ref(),
                    self.user_namespace.then(|| user.as_fd()),
                ))?
            }
        };
        let mut inner = maker.finish()?;
        let held = || RuntimeError::io("look at the inner network namespace");
        record.netns_cookie = Some(inner.cookie);
        let netns = File::from(inner.netns.try_clone().map_err(held())?);
        let namespace = Namespace::of("net", &netns.metadata().map_err(held())?);
        let init_pidfd = open_process(init)?;
        let engine = open_namespace(init.pid, "net")?;
        let serving = match &mut self.serving {
            Some((serving, dir)) => {
                let identity = identity::of(record);
                serving.families = inner.families;
                // A caller without root's rights has no engine's network.
                let nodes_own = self.persons || is_own_namespace(engine.as_fd())?;
                let (bundle, annotations) = (&record.bundle, &record.annotations);
                serving.engine_networks = match nodes_own {
                    false if engine_networks::makes_networks(&identity, bundle, annotations) => {
                        EngineNetworks::Beside
                    }
                    _ => EngineNetworks::Closed,
                };
                // Counters of the node's own network are not this container's alone. Init is in the engine's network
                // until `start`.
                let outside = match nodes_own {
                    true => None,
                    false => refused::open(init.pid),
                };
                serving.context = runs::context(record, identity);
                let mut files = serving_files(serving, dir, run)?;
                if self.loss != Loss::Tolerated {
                    files.warden = Some(run.open(audit::WARDEN)?.into());
                }
                files.outside = outside;
                Some(files)
            }
            None => None,
        };
        let mut counts = counted::of_limits(record.controllers.as_ref(), record.plan());
        let counters = std::mem::take(&mut inner.counters);
        let traffic = counters.iter().map(OwnedFd::try_clone);
        let traffic = traffic.collect::<Result<_, _>>().map_err(held())?;
        counts.extend(counted::of_addresses(self.mode, counters));
        let attach = AttachRequest {
            shown: denial_dir::open(record, place)?,
            watched,
            counts,
            calls,
            serving,
            // The sidecar is in the node's network already, which only root can join.
            netns: (!self.persons).then(|| engine.as_fd()),
            init_pidfd: init_pidfd.as_fd(),
            inner: Some(inner),
        };
        record.sidecar = Some(self.spawned.attach(attach)?);
        Ok(FinishedNetwork { namespace, traffic })
    }
}

/// Starts a sidecar from the runtime's own file.
pub(super) fn spawn(config: &SidecarConfig<'_>) -> Result<sidecar::StartingSidecar, RuntimeError> {
    let exe = rustix::fs::open(
        "/proc/self/exe",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(RuntimeError::io("open the runtime's own file"))?;
    Ok(sidecar::spawn(config, exe.as_fd())?)
}

/// The container's init process, for a sidecar to watch.
pub(super) fn open_process(init: ProcessId) -> Result<OwnedFd, RuntimeError> {
    let pid = rustix::process::Pid::from_raw(init.pid).ok_or(RuntimeError::NotRunning)?;
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(RuntimeError::io("open the container's process"))
}

fn serving(plan: &Plan, place: &ContainerPaths) -> ServingConfig {
    let network = &plan.network;
    let listens = network.mode == NetworkMode::Allowlist || network.refusing;
    ServingConfig {
        rules: network.rules.clone(),
        secrets: network.secrets.iter().map(Into::into).collect(),
        honey: network.honey.clone(),
        opened: network.opened.clone(),
        audited: audited_network(plan),
        asking: network.asking.clone(),
        budget: network.budget,
        container: place.id.as_str().to_owned(),
        // Known later, with the engine's files.
        context: audit::Context::default(),
        own_names: network.own_names.clone(),
        ports: listens.then(|| network.ports.iter().copied().collect()),
        inbound: network.inbound.clone(),
        published: network.published.clone(),
        connect: network.connect.clone(),
        leads_nowhere: network.leads_nowhere.keys().copied().collect(),
        families: Families::V4,
        late_ports: match is_of_ordinary_user() {
            true => LatePorts::Impossible,
            false => LatePorts::Possible,
        },
        refusing: network.refusing,
        services: network.services.clone(),
        engine_networks: EngineNetworks::Closed,
    }
}

/// The network of the audited policy, which is only reported on.
fn audited_network(plan: &Plan) -> Option<AuditedNetwork> {
    plan.report.audit.as_ref()?.network.clone()
}

/// The configuration, the log and the control socket, in the container's directory.
fn serving_files(
    serving: &ServingConfig,
    dir: &Path,
    run: &RunDir,
) -> Result<ServingFds, RuntimeError> {
    use rustix::fs::{Mode, OFlags, open};
    let config = dir.join("network.json");
    let text = serde_json::to_vec(serving).map_err(|e| RuntimeError::Input {
        path: config.clone(),
        why: e.to_string(),
    })?;
    write_whole(&config, &text)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let config_fd = open(&config, flags, Mode::empty())
        .map_err(RuntimeError::io(format!("open {config:?}")))?;
    Ok(ServingFds {
        config: config_fd,
        journal: run.open(audit::SIDECAR)?.into(),
        warden: None,
        outside: None,
        control: control::listen(dir)?,
    })
}

fn inner_config<'a>(
    sysctls: &[Sysctl],
    (mode, tool): (NetworkMode, Tool),
    proxy_port: u16,
    serving: Option<&(ServingConfig, PathBuf)>,
    user_namespace: Option<BorrowedFd<'a>>,
) -> InnerConfig<'a> {
    InnerConfig {
        user_namespace,
        mode: match mode {
            NetworkMode::None | NetworkMode::Local => InnerMode::Loopback,
            NetworkMode::Allowlist => InnerMode::AnyIp,
        },
        sysctls: sysctls.to_vec(),
        listen: serving.and_then(|(serving, _)| {
            let ports = serving.ports.clone()?;
            Some(ListenPorts::new(proxy_port, serving.stub(), ports))
        }),
        dialers: serving.map_or(0, |(serving, _)| serving.dialers()),
        // A service of the machine at a port of the loopback is for `wrap` alone (`--connect`).
        heard: match (serving, mode, tool) {
            (None, ..) | (_, NetworkMode::None, _) => TapScope::Nothing,
            (_, NetworkMode::Allowlist, Tool::Wrap) => TapScope::Everywhere,
            (_, NetworkMode::Allowlist, _) => TapScope::Remote,
            (_, NetworkMode::Local, Tool::Wrap) => TapScope::Loopback,
            (_, NetworkMode::Local, _) => TapScope::Nothing,
        },
    }
}

/// Whether a network namespace is the runtime's own: the node's, from the engine's point of view.
pub(super) fn is_own_namespace(namespace: BorrowedFd<'_>) -> Result<bool, RuntimeError> {
    let words = "look at the container's network namespace";
    let own = crate::sys::netns::current().map_err(RuntimeError::io(words))?;
    let own = rustix::fs::fstat(own).map_err(RuntimeError::io(words))?;
    let other = rustix::fs::fstat(namespace).map_err(RuntimeError::io(words))?;
    Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
}

pub(in crate::runtime) fn open_namespace(pid: i32, kind: &str) -> Result<OwnedFd, RuntimeError> {
    let path = format!("/proc/{pid}/ns/{kind}");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        .map_err(RuntimeError::io(format!("open {path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(change: impl FnOnce(&mut Plan)) -> ServingConfig {
        let mut plan = crate::plan::tests::sample();
        plan.network.ports = [22, 443].into();
        change(&mut plan);
        let place = ContainerPaths::new(Path::new("/run/x"), "c1").unwrap();
        serving(&plan, &place)
    }

    #[test]
    fn the_sidecar_listens_inside_only_where_it_decides_or_refuses() {
        for (mode, refusing, expected) in [
            (NetworkMode::Allowlist, false, Some(vec![22, 443])),
            (NetworkMode::Local, true, Some(vec![22, 443])),
            // Inbound ports alone are served outside.
            (NetworkMode::Local, false, None),
            (NetworkMode::None, false, None),
        ] {
            let config = served(|plan| {
                plan.network.mode = mode;
                plan.network.refusing = refusing;
            });
            assert_eq!(config.ports, expected, "{mode:?} {refusing}");
            // Unknown until the engine's files are read.
            assert_eq!(config.engine_networks, EngineNetworks::Closed);
        }
    }

    #[test]
    fn attempts_at_the_loopback_are_heard_for_wrap_alone() {
        let serving = (served(|_| ()), PathBuf::new());
        for (mode, wrap, engine) in [
            (
                NetworkMode::Allowlist,
                TapScope::Everywhere,
                TapScope::Remote,
            ),
            (NetworkMode::Local, TapScope::Loopback, TapScope::Nothing),
            (NetworkMode::None, TapScope::Nothing, TapScope::Nothing),
        ] {
            let heard = |tool| inner_config(&[], (mode, tool), 3128, Some(&serving), None).heard;
            assert_eq!([heard(Tool::Wrap), heard(Tool::Pod)], [wrap, engine]);
        }
    }

    #[test]
    fn only_an_allowlist_gives_addresses_inside() {
        let config = served(|plan| plan.network.mode = NetworkMode::Allowlist);
        let serving = (config, PathBuf::new());
        for (mode, expected) in [
            (NetworkMode::Allowlist, InnerMode::AnyIp),
            (NetworkMode::Local, InnerMode::Loopback),
            (NetworkMode::None, InnerMode::Loopback),
        ] {
            let by = (mode, Tool::Engine);
            let inner = inner_config(&[], by, 3128, Some(&serving), None);
            assert_eq!(inner.mode, expected);
            assert!(inner.listen.is_some());
            let none = inner_config(&[], (mode, Tool::Wrap), 3128, None, None);
            assert!(none.listen.is_none() && none.dialers == 0);
            assert_eq!(none.heard, TapScope::Nothing);
        }
    }
}
