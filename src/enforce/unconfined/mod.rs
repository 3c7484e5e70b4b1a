//! The processes of a container without a policy: its order of steps, and the parts of its spec that libcontainer 0.7.0
//! does not do, or does differently than runc. There is no wall here: reviewers of the walls need not read it.

mod copy_up;
pub mod setup;

use std::ffi::CString;
use std::path::PathBuf;

use oci_spec::runtime::Spec;

use self::setup::UnconfinedSetup;
use super::cover::FollowLinks;
use super::error::EnforceError;
use super::executor::Validation;
use super::hidden::{self, PromisedMounts};
use super::owner::{GroupsOutcome, Ruler};
use super::walls::{CommonSetup, FilterWall, FirstProcess, JoinTargets, Role};
use super::{devices, keyring, label, privileges, program, rootfs, stdio, verify};
use crate::sys::user::with_files_of_root;

/// A process of a container without a policy, set up as by runc.
pub struct UnconfinedProcess {
    /// The part that every process has.
    pub common: CommonSetup,
    /// Whether the spec requests no_new_privs.
    pub no_new_privs: bool,
    /// The process's session keyring.
    pub keyring: Keyring,
    /// The engine's seccomp profile, compiled.
    pub filter: Option<FilterWall>,
    /// Init process or exec process.
    pub role: Role<ParityInit, JoinTargets>,
}

/// The init process of a container without a policy.
pub struct ParityInit {
    /// The part that every init process has.
    pub process: FirstProcess,
    /// The parts of the spec that libcontainer does not do.
    pub unfinished: UnconfinedSetup,
    /// A cgroup mount to make read-only.
    pub cgroup_read_only: Option<PathBuf>,
}

/// Which session keyring a process gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keyring {
    /// The one that it inherits.
    Inherited,
    /// One of its own, without a name.
    New,
    /// One that the processes of the container share.
    Named(CString),
}

impl UnconfinedProcess {
    /// At `create`, and for exec processes: everything up to the program.
    pub(super) fn prepare(&self, spec: &Spec) -> Result<Validation, EnforceError> {
        let groups = match &self.role {
            Role::Init(work) => {
                let groups = privileges::set_groups(&self.common.rights.groups)?;
                stdio::make_null_writable()?;
                self.common.make_streams(spec, Ruler::Engine)?;
                work.make_files(spec)?;
                groups
            }
            Role::Exec(joining) => {
                let groups = joining.set_groups(&self.common.rights.groups)?;
                self.common.make_streams(spec, Ruler::Engine)?;
                groups
            }
        };
        let mut prepared = Validation::find_program(spec, groups, &self.common)?;
        if self.agent_is_told_at_create() {
            self.raise(spec, groups)?;
            prepared.raised = true;
        }
        Ok(prepared)
    }

    /// Without a policy the agent gets the listener during `create`, as with runc. Under a policy it gets it at
    /// `start`, because the filter is loaded after the other walls.
    fn agent_is_told_at_create(&self) -> bool {
        let agent = self.filter.as_ref().is_some_and(FilterWall::has_agent);
        agent && matches!(self.role, Role::Init(_))
    }

    /// The last steps before the program.
    pub(super) fn raise(&self, spec: &Spec, groups: GroupsOutcome) -> Result<(), EnforceError> {
        if let Role::Exec(joining) = &self.role {
            joining.enter_user_namespace()?;
        }
        verify::groups(spec, &self.common.rights.groups, groups, Ruler::Engine)?;
        match &self.keyring {
            Keyring::Inherited => {}
            Keyring::New => keyring::join_new()?,
            Keyring::Named(name) => keyring::join_named(name)?,
        }
        label::set(spec)?;
        if self.no_new_privs {
            privileges::set_no_new_privs()?;
            verify::no_new_privs()?;
        }
        if let Role::Init(work) = &self.role {
            work.process.die_with_parent()?;
        }
        // Before the filter too: nothing makes the process dumpable again until it executes its program.
        privileges::hide_from_tracers()?;
        if self.no_new_privs {
            // Before the filter, which may deny the calls for it.
            self.common.drop_capabilities()?;
            self.load_filter()
        } else {
            // Without no_new_privs loading a filter needs SYS_ADMIN.
            self.load_filter()?;
            self.common.drop_capabilities()
        }
    }

    fn load_filter(&self) -> Result<(), EnforceError> {
        self.filter.as_ref().map_or(Ok(()), FilterWall::raise)
    }
}

impl ParityInit {
    fn make_files(&self, spec: &Spec) -> Result<(), EnforceError> {
        devices::close_directories(spec)?;
        setup::make(&self.unfinished)?;
        if let Some(path) = &self.cgroup_read_only {
            rootfs::lock_cgroups(path, FollowLinks::AsTheProgramWould)?;
        }
        setup::seal(&self.unfinished)?;
        hidden::check(spec, &PromisedMounts::from(&self.unfinished))?;
        match &self.process.cwd {
            // runc enters it before it becomes the user, who may not be able to.
            Some(cwd) => with_files_of_root(|| program::enter(cwd)),
            None => Ok(()),
        }
    }
}
