//! Gives the container's init process what it needs to raise its walls.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use oci_spec::runtime::Spec;

use super::creation::Creation;
use crate::enforce::executor::WallExecutor;
use crate::enforce::image::ImageLayers;
use crate::enforce::kernel::KernelFiles;
use crate::enforce::leader::Leader;
use crate::enforce::listener::{AgentSocket, ListenerWay};
use crate::enforce::owner::UserNamespace;
use crate::enforce::privileges::SetupRights;
use crate::enforce::program::ContainerProgram;
use crate::enforce::rootfs::OwnMount;
use crate::enforce::unconfined::setup::UnconfinedSetup;
use crate::enforce::unconfined::{ParityInit, UnconfinedProcess};
use crate::enforce::walls::{
    CommonSetup, FilterWall, FirstProcess, InitFiles, InitWork, InnerNetwork, PolicyWalls,
    ProcessWalls, Role,
};
use crate::enforce::{EnforceError, WallKind};
use crate::plan::{CapabilitySets, Plan};
use crate::runtime::error::RuntimeError;
use crate::runtime::launch::{has_user_namespace, keyring};
use crate::runtime::network::member::MemberSidecar;
use crate::runtime::network::wall::NetworkWall;
use crate::runtime::unprivileged;
use crate::scratch::maker::DiskMaker;
use crate::seccomp::{NotifyListener, SavedFilter};

/// What the process inherits that is neither in a record nor in [`Creation`].
pub(super) struct InitInherited {
    /// The way to the seccomp agent.
    pub(super) agent: Option<AgentSocket>,
    /// Where it reports errors.
    pub(super) report: OwnedFd,
    /// The kernel's file systems that it mounts itself.
    pub(super) kernel: KernelFiles,
    /// Its rights during the set-up, and its groups.
    pub(super) rights: SetupRights,
    /// The checked mounts that it mounts itself.
    pub(super) judged_mounts: Vec<OwnMount>,
    /// The layers of its image.
    pub(super) layers: Option<ImageLayers>,
    /// Its work without a policy.
    pub(super) unfinished: Option<UnconfinedSetup>,
    /// Its terminal is relayed to the caller's terminal, which makes the carriage returns.
    pub(super) keep_newlines: bool,
    /// What our process in front of the program does.
    pub(super) leader: Leader,
    /// The program that it executes.
    pub(super) program: ContainerProgram,
}

impl Creation<'_> {
    /// The walls of a container's init process.
    pub(super) fn executor(
        &mut self,
        inherited: InitInherited,
    ) -> Result<WallExecutor, RuntimeError> {
        // As the record is saved.
        let walls = match self.record.plan().cloned() {
            Some(plan) => ProcessWalls::Policy(Box::new(self.policy_walls(plan, inherited)?)),
            None => ProcessWalls::Unconfined(Box::new(self.parity(inherited)?)),
        };
        Ok(WallExecutor::new(walls))
    }

    fn policy_walls(
        &mut self,
        plan: Plan,
        inherited: InitInherited,
    ) -> Result<PolicyWalls, RuntimeError> {
        let running = &mut self.running;
        let network = running.network.as_mut().and_then(NetworkWall::init_end);
        let member = running.member.as_mut().and_then(MemberSidecar::init_end);
        // The socket that also brings its network namespace, if it gets one.
        let line = match &network {
            Some(network) => Some(
                network
                    .try_clone()
                    .map_err(RuntimeError::io("copy the sidecar's socket"))?,
            ),
            None => member,
        };
        let way = match (inherited.agent, self.decision.listener(), line) {
            (Some(agent), _, _) => Some(ListenerWay::Agent(agent)),
            (None, NotifyListener::Sidecar, Some(line)) => Some(ListenerWay::Sidecar(line)),
            (None, _, _) => None,
        };
        let disk = running.disk.as_mut().and_then(DiskMaker::take_end);
        let own = has_user_namespace(&self.decision.bundle.spec);
        let user_namespace = match (own, unprivileged::inside()) {
            (true, _) => UserNamespace::Own,
            (false, Some(person)) => UserNamespace::Persons(person),
            (false, None) => UserNamespace::Nodes,
        };
        let filter = self.filter();
        let (kernel, judged) = (inherited.kernel, inherited.judged_mounts);
        Ok(PolicyWalls {
            common: CommonSetup {
                capabilities: plan.capabilities.clone(),
                rights: inherited.rights,
                report: inherited.report,
                keep_newlines: inherited.keep_newlines,
                program: inherited.program,
            },
            filter: FilterWall::planned(filter, way)?,
            role: Role::Init(InitWork {
                process: self.first_process(inherited.leader),
                network: InnerNetwork::planned(&plan, network)?,
                files: InitFiles::planned(&plan, kernel, judged, disk, user_namespace)?
                    .over(&plan, inherited.layers)?
                    .trusting(&plan, self.decision.given.trust.take())?,
                plan,
            }),
        })
    }

    /// The process of a container without a policy, as with runc.
    fn parity(&self, inherited: InitInherited) -> Result<UnconfinedProcess, RuntimeError> {
        let spec = &self.decision.bundle.spec;
        let process = spec.process().as_ref();
        let given = CapabilitySets::of(process.and_then(|p| p.capabilities().as_ref()));
        let agent = inherited.agent.map(ListenerWay::Agent);
        let unfinished = inherited.unfinished;
        let filter = self.filter();
        Ok(UnconfinedProcess {
            common: CommonSetup {
                capabilities: given,
                rights: inherited.rights,
                report: inherited.report,
                keep_newlines: inherited.keep_newlines,
                program: inherited.program,
            },
            no_new_privs: process.and_then(|p| p.no_new_privileges()).unwrap_or(false),
            keyring: keyring(&self.record),
            filter: filter.map(|filter| FilterWall::new(filter, agent)),
            role: Role::Init(ParityInit {
                process: self.first_process(inherited.leader),
                unfinished: unfinished.ok_or(EnforceError::Incomplete(WallKind::Files))?,
                cgroup_read_only: cgroup_read_only(spec),
            }),
        })
    }

    fn filter(&self) -> Option<SavedFilter> {
        self.decision.filter.as_ref().map(SavedFilter::from)
    }

    fn first_process(&self, leader: Leader) -> FirstProcess {
        let spec = &self.decision.bundle.spec;
        FirstProcess {
            cwd: spec.process().as_ref().map(|p| p.cwd().clone()),
            die_with_parent: self.decision.wrapped,
            leader,
            hooks: spec
                .hooks()
                .clone()
                .map(|hooks| (hooks, self.record.told())),
        }
    }
}

/// The engine's cgroup mount, if it is read-only.
fn cgroup_read_only(spec: &Spec) -> Option<PathBuf> {
    let mount = spec
        .mounts()
        .iter()
        .flatten()
        .find(|m| m.typ().as_deref().is_some_and(|t| t.starts_with("cgroup")))?;
    let asked = mount.options().iter().flatten().any(|o| o == "ro");
    asked.then(|| mount.destination().clone())
}
