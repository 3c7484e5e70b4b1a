//! The walls of a process of a container, in types that cannot express a missing wall.
//!
//! The runtime's `Option`s become walls or errors here, before any process of the container exists.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Hooks, Spec};

use super::error::{EnforceError, WallKind};
use super::hooks::HookState;
use super::image::ImageLayers;
use super::kernel::KernelFiles;
use super::leader::Leader;
use super::listener::{self, ListenerWay};
use super::owner::{GroupsOutcome, Ruler, UserNamespace};
use super::privileges::{self, SetupRights};
use super::program::ContainerProgram;
use super::rootfs::OwnMount;
use super::trust::TrustStore;
use super::unconfined::UnconfinedProcess;
use super::{process, stdio, verify};
use crate::plan::{CapabilitySets, ImageBase, Plan, ScratchStorage};
use crate::policy::RootAccess;
use crate::seccomp::SavedFilter;
use crate::sys::user::JoinedUser;
use crate::sys::user_namespace::Ids;

/// The walls of one process of a container.
pub enum ProcessWalls {
    /// Its policy's.
    Policy(Box<PolicyWalls>),
    /// Its spec's, and none of ours.
    Unconfined(Box<UnconfinedProcess>),
}

impl ProcessWalls {
    /// Sets the supplementary groups of an exec process, early: nothing of the container is entered with its caller's.
    pub(super) fn set_exec_groups(&self) -> Result<(), EnforceError> {
        let (common, joining) = match self {
            Self::Policy(walls) => (&walls.common, walls.role.exec().map(|work| &work.joining)),
            Self::Unconfined(walls) => (&walls.common, walls.role.exec()),
        };
        let joining = joining.ok_or(EnforceError::Incomplete(WallKind::Privileges))?;
        joining.set_groups(&common.rights.groups).map(drop)
    }
}

/// The walls of a policy. no_new_privs and a session keyring of the process's own are always among them.
pub struct PolicyWalls {
    /// The part that every process has.
    pub common: CommonSetup,
    /// The syscall wall.
    pub filter: FilterWall,
    /// Init process or exec process.
    pub role: Role<InitWork, ExecWork>,
}

impl PolicyWalls {
    /// The user that the process becomes, if its caller has no root's rights.
    pub(super) fn person(&self) -> Option<Ids> {
        match &self.role {
            Role::Init(work) => work.person(),
            Role::Exec(work) => work.joining.person,
        }
    }
}

/// Init process or exec process.
pub enum Role<Init, Exec> {
    /// The container's init process.
    Init(Init),
    /// An exec process.
    Exec(Exec),
}

impl<Init, Exec> Role<Init, Exec> {
    fn exec(&self) -> Option<&Exec> {
        match self {
            Self::Init(_) => None,
            Self::Exec(exec) => Some(exec),
        }
    }
}

/// The part of the setup that every process has, with a policy or without.
pub struct CommonSetup {
    /// The capability sets that the program gets.
    pub capabilities: CapabilitySets,
    /// Its rights until then, and its groups.
    pub rights: SetupRights,
    /// Receives the report of a failure; closed by execve.
    pub report: OwnedFd,
    /// The terminal is relayed to the caller's terminal, which makes the carriage returns.
    pub keep_newlines: bool,
    /// The program that it executes.
    pub program: ContainerProgram,
}

impl CommonSetup {
    /// Standard input, output and error.
    pub(super) fn make_streams(&self, spec: &Spec, ruler: Ruler) -> Result<(), EnforceError> {
        stdio::give_to(process::uid(spec), ruler)?;
        stdio::set_size(process::of(spec))?;
        match self.keep_newlines {
            true => stdio::keep_newlines(),
            false => Ok(()),
        }
    }

    pub(super) fn drop_capabilities(&self) -> Result<(), EnforceError> {
        privileges::drop_to(&self.capabilities)?;
        verify::capabilities(&self.capabilities)
    }
}

/// The part that every init process has, with a policy or without.
pub struct FirstProcess {
    /// Working directory to enter once the mounts exist.
    pub cwd: Option<PathBuf>,
    /// Kill the process when the runtime that started it ends; a command of `wrap` must not outlive it.
    pub die_with_parent: bool,
    /// The program, or ours in front of it.
    pub leader: Leader,
    /// The spec's hooks, of which startContainer's run here, and the container's state for them.
    pub hooks: Option<(Hooks, HookState)>,
}

impl FirstProcess {
    /// Call this after the change of user, which would clear it (prctl(2), PR_SET_PDEATHSIG).
    pub(super) fn die_with_parent(&self) -> Result<(), EnforceError> {
        if !self.die_with_parent {
            return Ok(());
        }
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(EnforceError::step("die with the runtime"))
    }
}

/// What an exec process joins last, with a policy or without. It begins in the container's other namespaces.
#[derive(Default)]
pub struct JoinTargets {
    /// The container's user namespace, in which it would have too few rights for the other steps.
    pub user: Option<JoinedUser>,
    /// The user that it becomes there, if its caller has no root's rights.
    pub person: Option<Ids>,
}

impl JoinTargets {
    /// Sets the supplementary groups: none if a user namespace is joined later, where their numbers mean other groups.
    /// Those of a caller without root's rights stay, who has none that the init process has not
    /// (`crate::runtime::own_sandbox`).
    pub(super) fn set_groups(&self, groups: &[u32]) -> Result<GroupsOutcome, EnforceError> {
        if self.person.is_some() {
            return Ok(GroupsOutcome::Persons);
        }
        privileges::set_groups(match &self.user {
            Some(_) => &[],
            None => groups,
        })
    }

    pub(super) fn enter_user_namespace(&self) -> Result<(), EnforceError> {
        if let Some(user) = &self.user {
            crate::sys::user::join(user)
                .map_err(EnforceError::step("join the container's user namespace"))?;
        }
        match (self.person, &self.user) {
            (None, _) => Ok(()),
            (Some(person), Some(_)) => verify::person(person),
            // It would stay root of the namespace that the sandbox's mounts belong to.
            (Some(_), None) => Err(EnforceError::Incomplete(WallKind::Privileges)),
        }
    }
}

/// The syscall wall.
pub struct FilterWall {
    filter: SavedFilter,
    way: Option<ListenerWay>,
}

impl FilterWall {
    /// The program, and where its listener goes: `None` if no rule needs an answer.
    pub fn new(filter: SavedFilter, way: Option<ListenerWay>) -> Self {
        Self { filter, way }
    }

    /// The wall of a container under a policy, which must have a program.
    pub fn planned(
        filter: Option<SavedFilter>,
        way: Option<ListenerWay>,
    ) -> Result<Self, EnforceError> {
        let filter = filter.ok_or(EnforceError::Incomplete(WallKind::Syscalls))?;
        // A listener that stays here could allow every call.
        match filter.has_listener() == way.is_some() {
            true => Ok(Self::new(filter, way)),
            false => Err(EnforceError::Incomplete(WallKind::Syscalls)),
        }
    }

    /// Whether an agent answers some of its rules.
    pub(super) fn has_agent(&self) -> bool {
        matches!(self.way, Some(ListenerWay::Agent(_)))
    }

    /// Loads the program, sends its listener away, and reads back that a filter is loaded.
    pub(super) fn raise(&self) -> Result<(), EnforceError> {
        if let Some(ListenerWay::Sidecar(socket)) = &self.way {
            listener::prepare(socket)?;
        }
        let listener = crate::sys::seccomp::load(&self.filter.program, self.filter.flags)
            .map_err(EnforceError::step("load the seccomp filter"))?;
        match (listener, &self.way) {
            (None, _) => {}
            (Some(listener), Some(way)) => listener::hand_over(listener, way)?,
            (Some(_), None) => return Err(EnforceError::Incomplete(WallKind::Syscalls)),
        }
        verify::seccomp()
    }
}

/// The init process of a container under a policy.
pub struct InitWork {
    /// The part that every init process has.
    pub process: FirstProcess,
    /// The plan.
    pub plan: Plan,
    /// The network wall.
    pub network: InnerNetwork,
    /// The file wall.
    pub files: InitFiles,
}

impl InitWork {
    /// The user that the process becomes, if its caller has no root's rights.
    pub(super) fn person(&self) -> Option<Ids> {
        match self.files.user_namespace {
            UserNamespace::Persons(person) => Some(person),
            UserNamespace::Nodes | UserNamespace::Own => None,
        }
    }

    /// The plan's cgroup mount.
    pub(super) fn cgroup_mount(&self) -> Option<&Path> {
        let mut mounts = self.plan.filesystem.mounts.iter();
        let mount = mounts.find(|m| m.shows_cgroups())?;
        Some(&mount.destination)
    }
}

/// Where the init process gets its network namespace.
pub enum InnerNetwork {
    /// From the sidecar, through this socket: the container has a network of its own.
    Own(OwnedFd),
    /// libcontainer has already put it in another container's, which has this cookie.
    Shared(u64),
}

impl InnerNetwork {
    /// The planned one.
    pub fn planned(plan: &Plan, sidecar: Option<OwnedFd>) -> Result<Self, EnforceError> {
        match (&plan.network.shared, sidecar) {
            (Some(shared), None) => Ok(Self::Shared(shared.cookie)),
            (None, Some(sidecar)) => Ok(Self::Own(sidecar)),
            (Some(_), Some(_)) | (None, None) => Err(EnforceError::Incomplete(WallKind::Network)),
        }
    }
}

/// The mounts of the init process.
pub struct InitFiles {
    /// The kernel's file systems that it mounts itself.
    pub(super) kernel: KernelFiles,
    /// Mounts of checked sources, and private ones, which it makes itself too.
    pub(super) own: Vec<OwnMount>,
    /// The place of private files.
    pub(super) scratch: ScratchSource,
    /// The certificates that programs must also trust, if TLS is opened.
    pub(super) trust: Option<TrustStore>,
    /// Whose user namespace it is in.
    pub(super) user_namespace: UserNamespace,
    /// The layers of the engine's overlay that is the root, if private files lie over them.
    pub(super) layers: Option<ImageLayers>,
}

impl InitFiles {
    /// The planned files. `disk` receives the file system of private files, if they are on a disk ([`crate::scratch::handover`]): a
    /// missing disk must not mean another place than planned.
    pub fn planned(
        plan: &Plan,
        kernel: KernelFiles,
        own: Vec<OwnMount>,
        disk: Option<OwnedFd>,
        user_namespace: UserNamespace,
    ) -> Result<Self, EnforceError> {
        let files = &plan.filesystem;
        let on_disk = files.needs_scratch() && files.scratch_place == ScratchStorage::Disk;
        let scratch = match (on_disk, disk) {
            (true, Some(socket)) => ScratchSource::Disk(socket),
            (false, None) => ScratchSource::Memory,
            (true, None) | (false, Some(_)) => {
                return Err(EnforceError::Incomplete(WallKind::Files));
            }
        };
        Ok(Self {
            kernel,
            own,
            scratch,
            trust: None,
            user_namespace,
            layers: None,
        })
    }

    /// Adds the layers of the image, as planned: over others hard links would break, or more would be visible.
    pub fn over(self, plan: &Plan, layers: Option<ImageLayers>) -> Result<Self, EnforceError> {
        let files = &plan.filesystem;
        let wanted = files.image_below == Some(ImageBase::Layers);
        let (given, nodes) = match &layers {
            Some(layers) => (
                !layers.trees.is_empty(),
                self.user_namespace == UserNamespace::Nodes,
            ),
            None => (false, true),
        };
        let known = files.image_below.is_some();
        match wanted == given && nodes && (known || files.root != RootAccess::Ephemeral) {
            true => Ok(Self { layers, ..self }),
            false => Err(EnforceError::Incomplete(WallKind::Files)),
        }
    }

    /// Adds the certificates to trust, as planned: without them programs would not trust the wall's own TLS.
    pub fn trusting(self, plan: &Plan, trust: Option<TrustStore>) -> Result<Self, EnforceError> {
        match plan.network.opens().is_some() == trust.is_some() {
            true => Ok(Self { trust, ..self }),
            false => Err(EnforceError::Incomplete(WallKind::Files)),
        }
    }
}

/// Where private files lie.
pub(super) enum ScratchSource {
    /// Memory.
    Memory,
    /// A disk, received through this socket.
    Disk(OwnedFd),
}

/// An exec process under a policy.
pub struct ExecWork {
    /// The part that every exec process has.
    pub joining: JoinTargets,
    /// Cookie of the inner network namespace, in which it begins.
    pub cookie: u64,
}

impl ExecWork {
    /// As recorded: a container under a policy has an inner network namespace.
    pub fn planned(joining: JoinTargets, cookie: Option<u64>) -> Result<Self, EnforceError> {
        let cookie = cookie.ok_or(EnforceError::Incomplete(WallKind::Network))?;
        Ok(Self { joining, cookie })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        crate::sys::socket::pair().unwrap().0
    }

    fn joining() -> JoinTargets {
        JoinTargets::default()
    }

    #[test]
    fn an_exec_process_of_a_user_without_root_joins_a_namespace_or_does_not_run() {
        let person = Some(Ids { uid: 7, gid: 7 });
        let joining = JoinTargets { user: None, person };
        assert!(matches!(
            joining.enter_user_namespace(),
            Err(EnforceError::Incomplete(WallKind::Privileges))
        ));
        assert_eq!(joining.set_groups(&[0]).ok(), Some(GroupsOutcome::Persons));
    }

    fn files(plan: &Plan, disk: Option<OwnedFd>) -> Result<InitFiles, EnforceError> {
        let kernel = KernelFiles::default();
        InitFiles::planned(plan, kernel, Vec::new(), disk, UserNamespace::Nodes)
    }

    #[test]
    fn a_plan_without_its_enforcement_is_an_error() {
        let plan = crate::plan::tests::sample();
        for error in [
            InnerNetwork::planned(&plan, None).err(),
            ExecWork::planned(joining(), None).err(),
        ] {
            assert!(matches!(
                error,
                Some(EnforceError::Incomplete(WallKind::Network))
            ));
        }
        assert!(InnerNetwork::planned(&plan, Some(socket())).is_ok());
        assert!(ExecWork::planned(joining(), Some(7)).is_ok());
        let error = FilterWall::planned(None, None).err();
        assert!(matches!(
            error,
            Some(EnforceError::Incomplete(WallKind::Syscalls))
        ));
    }

    #[test]
    fn layers_that_differ_from_the_plan_are_an_error() {
        let mut plan = crate::plan::tests::sample();
        let layers = || {
            Some(ImageLayers {
                trees: vec![socket()],
                metacopy: false,
            })
        };
        let why = || ImageBase::AsItIs(String::new());
        for (root, below, given, right) in [
            (
                RootAccess::Ephemeral,
                Some(ImageBase::Layers),
                layers(),
                true,
            ),
            (RootAccess::Ephemeral, Some(ImageBase::Layers), None, false),
            (
                RootAccess::Ephemeral,
                Some(ImageBase::Directory),
                None,
                true,
            ),
            (
                RootAccess::Ephemeral,
                Some(ImageBase::Directory),
                layers(),
                false,
            ),
            (RootAccess::Ephemeral, Some(why()), None, true),
            (RootAccess::Ephemeral, Some(why()), layers(), false),
            (RootAccess::Ephemeral, None, None, false),
            (RootAccess::ReadOnly, Some(why()), None, true),
            (RootAccess::ReadOnly, None, None, true),
            (RootAccess::ReadOnly, None, layers(), false),
        ] {
            plan.filesystem.root = root;
            plan.filesystem.image_below = below;
            plan.filesystem.scratch_place = ScratchStorage::Memory;
            let made = files(&plan, None).unwrap().over(&plan, given);
            assert_eq!(made.is_ok(), right, "{:?}", plan.filesystem.image_below);
        }
    }

    #[test]
    fn a_disk_that_differs_from_the_plan_is_an_error() {
        let mut plan = crate::plan::tests::sample();
        plan.filesystem.root = crate::policy::RootAccess::Ephemeral;
        for (place, right, wrong) in [
            (ScratchStorage::Disk, Some(socket()), None),
            (ScratchStorage::Memory, None, Some(socket())),
        ] {
            plan.filesystem.scratch_place = place;
            assert!(files(&plan, right).is_ok());
            let error = files(&plan, wrong).err();
            assert!(matches!(
                error,
                Some(EnforceError::Incomplete(WallKind::Files))
            ));
        }
    }
}
