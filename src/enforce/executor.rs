//! The order in which the walls are raised in a process of the container. libcontainer calls [`Executor::validate`]
//! at `create` (after pivot_root, mounts done) and [`Executor::exec`] at `start` or `exec`, as the last thing before
//! execve. The executor is inherited over clone, so it may own descriptors and programs.
//!
//! ```text
//! validate   capabilities of the set-up -> supplementary groups -> kernel file systems, masked -> checked mounts
//!            attached, private directories -> masks -> cgroups read-only -> masks checked again -> program found
//! exec       user namespace (exec processes) -> inner network namespace, checked -> sysfs of it -> groups read back
//!            -> session keyring -> SELinux label -> no_new_privs read back -> the user's namespace, read back
//!            (callers without root's rights) -> (`verify`: another effective group) -> not dumpable, read back
//!            -> capabilities dropped and read back -> filter loaded and read back -> startContainer hooks -> (wrap: a child)
//!            -> execve
//! ```
//!
//! Between the two the process holds the capabilities of [`privileges::for_setup`] and runs only our code. It is not
//! dumpable, and no process can join it: `exec` into a created container is refused under a policy.
//!
//! That is [`PolicyWalls`], below. A container without a policy has runc's order ([`super::unconfined`]).

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use oci_spec::runtime::Spec;

use super::cover::FollowLinks;
use super::error::{EnforceError, WallKind};
use super::hidden::{self, PromisedMounts};
use super::hooks::{HookMoment, PreparedHooks};
use super::leader::Leader;
use super::owner::{GroupsOutcome, Ruler};
use super::report::FailureReport;
use super::rootfs::EarlySysfs;
use super::walls::{
    CommonSetup, FirstProcess, InitWork, InnerNetwork, PolicyWalls, ProcessWalls, Role,
    ScratchSource,
};
use super::{
    devices, home, kernel, keyring, label, privileges, process, program, reaper, rootfs, stdio,
    trust, verify,
};
use crate::network::inner;
use crate::plan::FilesystemPlan;
use crate::plan::scratch::without_disk;
use crate::scratch::handover::{self, DiskAnswer};
use crate::sidecar::SidecarError;
use crate::sidecar::protocol::request_namespace;

/// How long the sidecar may take to answer at `start`; it answers in microseconds.
const HANDOVER_WITHIN: Duration = Duration::from_secs(10);

impl PolicyWalls {
    /// `validate`: everything that needs only the namespaces of `create`. Returns the program.
    fn prepare(&self, spec: &Spec) -> Result<Validation, EnforceError> {
        // Early: nothing of the container is read with the rights of the caller's groups.
        let groups = match &self.role {
            Role::Init(work) => {
                let groups = match work.person() {
                    Some(_) => GroupsOutcome::Persons,
                    None => privileges::set_groups(&self.common.rights.groups)?,
                };
                stdio::make_null_writable()?;
                self.common.make_streams(spec, Ruler::Policy)?;
                make_files(work, spec)?;
                groups
            }
            Role::Exec(work) => {
                let groups = work.joining.set_groups(&self.common.rights.groups)?;
                self.common.make_streams(spec, Ruler::Policy)?;
                groups
            }
        };
        Validation::find_program(spec, groups, &self.common)
    }

    /// `exec`: the walls that confine the process, in the order in which each can still be raised.
    fn raise(&self, spec: &Spec, groups: GroupsOutcome) -> Result<(), EnforceError> {
        match &self.role {
            Role::Init(work) => enter_network(work)?,
            Role::Exec(work) => {
                work.joining.enter_user_namespace()?;
                inner::verify_current(work.cookie)?;
            }
        }
        verify::groups(spec, &self.common.rights.groups, groups, Ruler::Policy)?;
        keyring::join_new()?;
        label::set(spec)?;
        privileges::set_no_new_privs()?;
        verify::no_new_privs()?;
        if let Role::Init(work) = &self.role {
            // The last step that needs rights over the mounts and the network is done; the rest only removes rights.
            if let Some(person) = work.person() {
                privileges::become_person(person)?;
            }
            work.process.die_with_parent()?;
        }
        self.common.program.hide_from_tracers(self.person())?;
        privileges::hide_from_tracers()?;
        verify::hidden_from_tracers()?;
        // Before the filter, which may deny the calls for it.
        self.common.drop_capabilities()?;
        self.filter.raise()
    }
}

/// Makes the init process's mounts, masks and working directory.
fn make_files(work: &InitWork, spec: &Spec) -> Result<(), EnforceError> {
    let InitWork { plan, files, .. } = work;
    let cwd = work.process.cwd.as_deref();
    let mut planned = Cow::Borrowed(&plan.filesystem);
    devices::close_directories(spec)?;
    kernel::make(&files.kernel)?;
    let disk = match &files.scratch {
        ScratchSource::Disk(socket) => wait_for_disk(socket, &mut planned)?,
        ScratchSource::Memory => None,
    };
    let image = (files.user_namespace, files.layers.as_ref());
    rootfs::mount_all(&planned, &files.own, disk.as_ref(), image)
        .map_err(|error| error.with_cure(&planned))?;
    if let Some(cwd) = cwd {
        rootfs::make_working_directory(cwd)?;
    }
    if let Some(trust) = &files.trust {
        trust::add(trust, &process::env(spec))?;
    }
    if let Some(path) = work.cgroup_mount() {
        rootfs::lock_cgroups(path, FollowLinks::Never)?;
    }
    devices::lock(&planned)?;
    hidden::check(spec, &PromisedMounts::from(&files.kernel))?;
    match cwd {
        Some(cwd) => program::enter(cwd),
        None => Ok(()),
    }
}

/// Waits for the disk.
fn wait_for_disk(
    socket: &OwnedFd,
    files: &mut Cow<'_, FilesystemPlan>,
) -> Result<Option<OwnedFd>, EnforceError> {
    let step = "wait for the scratch disk";
    let answer = handover::receive(socket.as_fd()).map_err(EnforceError::step(step))?;
    use_disk(answer, files).map_err(|why| EnforceError::step(step)(std::io::Error::other(why)))
}

/// Without a disk uses memory, if the policy leaves that open. `create` gets the same answer, warns and records it.
fn use_disk(
    answer: DiskAnswer,
    files: &mut Cow<'_, FilesystemPlan>,
) -> Result<Option<OwnedFd>, String> {
    match answer {
        DiskAnswer::Disk(disk) => Ok(Some(disk)),
        DiskAnswer::None(why) => match without_disk(files.to_mut(), &why) {
            Some(_) => Ok(None),
            None => Err(why),
        },
    }
}

/// Moves the init process to its network namespace, and replaces the engine's sysfs by that namespace's.
fn enter_network(work: &InitWork) -> Result<(), EnforceError> {
    let sidecar = match &work.network {
        InnerNetwork::Shared(cookie) => return Ok(inner::verify_current(*cookie)?),
        InnerNetwork::Own(sidecar) => sidecar,
    };
    let handover = request_namespace(sidecar.as_fd(), HANDOVER_WITHIN)
        .map_err(|e| EnforceError::Sidecar(SidecarError::Protocol(e)))?;
    inner::enter(handover.netns.as_fd(), handover.cookie)?;
    match work.plan.network.sysfs {
        true => {
            let before = match work.person() {
                Some(_) => EarlySysfs::None,
                None => EarlySysfs::Engines,
            };
            rootfs::replace_sysfs(&handover.sysfs, &work.plan.filesystem, before)
        }
        false => Ok(()),
    }
}

impl ProcessWalls {
    fn common(&self) -> &CommonSetup {
        match self {
            Self::Policy(walls) => &walls.common,
            Self::Unconfined(parity) => &parity.common,
        }
    }

    /// The uid of the program.
    fn uid(&self, spec: &Spec) -> u32 {
        let person = match self {
            Self::Policy(walls) => walls.person(),
            Self::Unconfined(_) => None,
        };
        person.map_or_else(|| process::uid(spec), |person| person.uid)
    }

    fn first_process(&self) -> Option<&FirstProcess> {
        match self {
            Self::Policy(walls) => match &walls.role {
                Role::Init(work) => Some(&work.process),
                Role::Exec(_) => None,
            },
            Self::Unconfined(parity) => match &parity.role {
                Role::Init(work) => Some(&work.process),
                Role::Exec(_) => None,
            },
        }
    }

    fn prepare(&self, spec: &Spec) -> Result<Validation, EnforceError> {
        self.common().rights.limit()?;
        match self {
            Self::Policy(walls) => walls.prepare(spec),
            Self::Unconfined(parity) => {
                // Later the engine's filter may deny the call. libcontainer has made the mounts.
                process::limit_open_files(spec)?;
                parity.prepare(spec)
            }
        }
    }

    fn raise(&self, spec: &Spec, prepared: &Validation) -> Result<(), EnforceError> {
        match self {
            Self::Policy(walls) => walls.raise(spec, prepared.groups),
            Self::Unconfined(_) if prepared.raised => Ok(()),
            Self::Unconfined(parity) => parity.raise(spec, prepared.groups),
        }
    }
}

/// The results of `validate`, for `exec`.
pub(super) struct Validation {
    program: PathBuf,
    groups: GroupsOutcome,
    /// Without a policy everything may be done by then.
    pub(super) raised: bool,
}

impl Validation {
    /// Relative names start at the working directory, which the process has entered.
    pub(super) fn find_program(
        spec: &Spec,
        groups: GroupsOutcome,
        common: &CommonSetup,
    ) -> Result<Self, EnforceError> {
        let (args, env) = (process::args(spec), process::env(spec));
        let name = args.first().map(String::as_str).unwrap_or_default();
        Ok(Self {
            program: common.program.find(name, &env)?,
            groups,
            raised: false,
        })
    }
}

/// The executor that libcontainer calls.
#[derive(Clone)]
pub struct WallExecutor {
    walls: Rc<ProcessWalls>,
    prepared: Rc<RefCell<Option<Validation>>>,
    added_env: Rc<RefCell<HashMap<String, String>>>,
}

impl WallExecutor {
    /// An executor for one process.
    pub fn new(walls: ProcessWalls) -> Self {
        Self {
            walls: Rc::new(walls),
            prepared: Rc::default(),
            added_env: Rc::default(),
        }
    }

    pub(super) fn walls(&self) -> &ProcessWalls {
        &self.walls
    }

    /// Raises the walls, runs the hooks and executes the program. Returns only the reason why it could not.
    fn run(&self, spec: &Spec) -> EnforceError {
        let prepared = self.prepared.borrow();
        // Its groups are not set, and nothing of the container exists.
        let Some(prepared) = prepared.as_ref() else {
            return EnforceError::Incomplete(WallKind::Privileges);
        };
        if let Err(error) = self.close_ways_out() {
            return error;
        }
        if let Err(error) = process::limit_open_files(spec) {
            return error;
        }
        let mut env = process::env(spec);
        process::add_missing(&mut env, &self.added_env.borrow());
        home::resolve(&mut env, self.walls.uid(spec));
        if let Err(error) = self.raise_and_run_hooks(spec, prepared, &env) {
            return error;
        }
        let program = &self.walls.common().program;
        let execute = || program.execute(&prepared.program, &process::args(spec), &env);
        match self.walls.first_process().map(|first| &first.leader) {
            None | Some(Leader::Program) => execute(),
            Some(Leader::Reaper(channel)) => reaper::become_reaper(channel.as_fd(), || {
                let error = execute();
                self.report(&error);
                FailureReport::from(&error).failed.status()
            }),
        }
    }

    /// Before any path of the container is followed: terminal, home directory, hooks, program. The own program's file
    /// stays.
    pub fn close_ways_out(&self) -> Result<(), EnforceError> {
        let common = self.walls.common();
        let mut kept = vec![common.report.as_fd()];
        kept.extend(common.program.file());
        crate::sys::ways_out::close(&kept)
            .map_err(EnforceError::step("close inherited descriptors"))
    }

    /// startContainer hooks run behind the same walls as the program (runc: after the filter too). Their descriptors
    /// are made before, because a filter may deny that.
    fn raise_and_run_hooks(
        &self,
        spec: &Spec,
        prepared: &Validation,
        env: &[String],
    ) -> Result<(), EnforceError> {
        let hooks = self.walls.first_process().and_then(|p| p.hooks.as_ref());
        let Some((hooks, told)) = hooks else {
            return self.walls.raise(spec, prepared);
        };
        // The pid in the container.
        let pid = i32::try_from(std::process::id()).ok();
        let ready = PreparedHooks::new(HookMoment::StartContainer, hooks, told, pid)?;
        self.walls.raise(spec, prepared)?;
        // Hooks without an environment get the program's, as in runc.
        Ok(ready.run(env, None)?)
    }

    /// Writes the reason to the pipe that `create`, `start` or `exec` reads. The process ends even if that fails.
    pub(super) fn report(&self, error: &EnforceError) -> String {
        self.send(FailureReport::from(error))
    }

    /// Reports a step before the first one here. Returns the exit status.
    pub fn fail(&self, why: &str) -> i32 {
        self.send(FailureReport::step(why));
        1
    }

    fn send(&self, report: FailureReport) -> String {
        if rustix::io::write(&self.walls.common().report, &report.to_bytes()).is_err() {
            log::error!("cannot report: {report}");
        }
        report.text
    }
}

impl Executor for WallExecutor {
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let prepared = self
            .walls
            .prepare(spec)
            .map_err(|e| ExecutorValidationError::ArgValidationError(self.report(&e)))?;
        *self.prepared.borrow_mut() = Some(prepared);
        Ok(())
    }

    fn setup_envs(&self, envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        *self.added_env.borrow_mut() = process::only_added(envs);
        Ok(())
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        Err(ExecutorError::Other(self.report(&self.run(spec))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ScratchStorage;
    use crate::plan::tests::sample;
    use crate::policy::ScratchOn;

    #[test]
    fn private_files_lie_on_the_disk_or_in_memory_and_a_demanded_disk_is_never_missed() {
        let used = |on, answer| {
            let mut files = sample().filesystem;
            files.scratch_on = on;
            files.scratch_place = ScratchStorage::Disk;
            let mut planned = Cow::Borrowed(&files);
            let disk = use_disk(answer, &mut planned)?;
            Ok::<_, String>((disk.is_some(), planned.scratch_place))
        };
        for on in [ScratchOn::Auto, ScratchOn::Disk, ScratchOn::Memory] {
            let disk = std::fs::File::open("/dev/null").unwrap();
            let found = used(on, DiskAnswer::Disk(disk.into()));
            assert_eq!(found, Ok((true, ScratchStorage::Disk)));
        }
        let none = || DiskAnswer::None("full".to_owned());
        for on in [ScratchOn::Auto, ScratchOn::Memory] {
            assert_eq!(used(on, none()), Ok((false, ScratchStorage::Memory)));
        }
        assert_eq!(used(ScratchOn::Disk, none()), Err("full".to_owned()));
    }
}
