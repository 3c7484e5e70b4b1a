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
use crate::sys::user_namespace::Ids;

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
        let way = listener_way(inherited.agent, self.decision.listener(), line);
        let disk = running.disk.as_mut().and_then(DiskMaker::take_end);
        let user_namespace = user_namespace(&self.decision.bundle.spec, unprivileged::inside());
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
                .map(|hooks| (hooks, self.record.hook_state())),
        }
    }
}

/// Who gets the listener of the filter: the engine's agent, if its profile names one, or the sidecar, by this line. `None`
/// for a filter that has a listener is refused later ([`FilterWall::planned`]).
fn listener_way(
    agent: Option<AgentSocket>,
    listener: NotifyListener,
    line: Option<OwnedFd>,
) -> Option<ListenerWay> {
    match (agent, listener, line) {
        (Some(agent), _, _) => Some(ListenerWay::Agent(agent)),
        (None, NotifyListener::Sidecar, Some(line)) => Some(ListenerWay::Sidecar(line)),
        (None, _, _) => None,
    }
}

/// Whose user namespace a container is in; `person` is the caller without root's rights, if there is one.
fn user_namespace(spec: &Spec, person: Option<Ids>) -> UserNamespace {
    match (has_user_namespace(spec), person) {
        (true, _) => UserNamespace::Own,
        (false, Some(person)) => UserNamespace::Persons(person),
        (false, None) => UserNamespace::Nodes,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket;

    fn line() -> OwnedFd {
        socket::pair().unwrap().0
    }

    fn agent() -> AgentSocket {
        AgentSocket {
            near: line(),
            far: None,
        }
    }

    const ALL: [NotifyListener; 3] = [
        NotifyListener::Nobody,
        NotifyListener::Agent,
        NotifyListener::Sidecar,
    ];

    #[test]
    fn the_listener_goes_to_the_engines_agent_or_to_the_sidecar_that_denies() {
        for listener in ALL {
            for line in [None, Some(line())] {
                let way = listener_way(Some(agent()), listener, line);
                assert!(matches!(way, Some(ListenerWay::Agent(_))), "{listener:?}");
            }
            // Nobody waits at the other end of a line that the filter does not name.
            let way = listener_way(None, listener, Some(line()));
            let expected = listener == NotifyListener::Sidecar;
            assert_eq!(
                matches!(way, Some(ListenerWay::Sidecar(_))),
                expected,
                "{listener:?}"
            );
            assert_eq!(way.is_some(), expected, "{listener:?}");
            assert!(listener_way(None, listener, None).is_none(), "{listener:?}");
        }
    }

    fn spec(namespaces: &[&str]) -> Spec {
        let all: Vec<_> = namespaces
            .iter()
            .map(|kind| serde_json::json!({"type": kind}))
            .collect();
        let spec = serde_json::json!({"ociVersion": "1.2.0", "linux": {"namespaces": all}});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_user_namespace_of_the_spec_comes_before_that_of_the_caller() {
        let person = Ids {
            uid: 1000,
            gid: 100,
        };
        let (with, without) = (spec(&["user", "pid"]), spec(&["pid", "network"]));
        for (spec, person, expected) in [
            (&with, None, UserNamespace::Own),
            (&with, Some(person), UserNamespace::Own),
            (&without, Some(person), UserNamespace::Persons(person)),
            (&without, None, UserNamespace::Nodes),
        ] {
            assert_eq!(user_namespace(spec, person), expected);
        }
    }

    #[test]
    fn the_engines_cgroup_mount_is_read_only_if_it_says_so() {
        let spec = |kind: &str, options: &[&str]| -> Spec {
            let mount = serde_json::json!({
                "destination": "/sys/fs/cgroup", "type": kind, "source": "cgroup", "options": options,
            });
            serde_json::from_value(serde_json::json!({"ociVersion": "1.2.0", "mounts": [mount]}))
                .unwrap()
        };
        let mounted = Some(PathBuf::from("/sys/fs/cgroup"));
        for kind in ["cgroup", "cgroup2"] {
            assert_eq!(cgroup_read_only(&spec(kind, &["nosuid", "ro"])), mounted);
            assert_eq!(cgroup_read_only(&spec(kind, &["nosuid"])), None);
        }
        assert_eq!(cgroup_read_only(&spec("tmpfs", &["ro"])), None);
    }
}
