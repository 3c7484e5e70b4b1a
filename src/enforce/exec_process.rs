//! The steps of an exec process before the Executor's, where this program makes it. A helper takes the first ones, which
//! no process of the container can see, and then makes the process: it begins in the container's namespaces.
//!
//! They are libcontainer's (`container_init_process`), without those of an init process, and without what the Executor does.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libcontainer::syscall::syscall::create_syscall;
use libcontainer::workload::Executor;
use libcontainer::{apparmor, tty};
use oci_spec::runtime::{Process, Spec};

use super::error::{EnforceError, WallKind};
use super::executor::WallExecutor;
use super::scheduling::{self, AffinityMoment};
use super::{process, program};
use crate::sys::setns::{self, Namespaces};
use crate::sys::user;

/// What an exec process gets of its container and of its caller.
pub struct ExecSetup<'a> {
    /// A descriptor of the init process.
    pub init: BorrowedFd<'a>,
    /// The init process's namespaces that it begins in. It joins the user namespace later.
    pub namespaces: Namespaces,
    /// cgroup.procs and tasks files of more cgroups that it begins in.
    pub cgroups: &'a [OwnedFd],
    /// In place of the caller's standard descriptors.
    pub stdio: &'a [Option<OwnedFd>; 3],
    /// The socket that gets its pseudo-terminal, if it has one.
    pub console: Option<BorrowedFd<'a>>,
    /// The first descriptor that its program does not get.
    pub first_closed: u32,
}

impl ExecSetup<'_> {
    /// The helper's first steps: the process gets nothing of the caller that the container's processes could read in /proc.
    pub fn leave_caller(&self, spec: &Spec, executor: &WallExecutor) -> Result<(), EnforceError> {
        scheduling::set_processors(process::of(spec), AffinityMoment::Initial)?;
        crate::sys::process::forget_arguments()
            .map_err(EnforceError::step("forget the arguments"))?;
        rustix::process::setsid().map_err(EnforceError::step("leave the caller's session"))?;
        executor.walls().set_exec_groups()
    }

    /// The helper's last steps: the process begins in the container.
    pub fn join(&self, spec: &Spec) -> Result<(), EnforceError> {
        self.cgroups.iter().try_for_each(|file| {
            rustix::io::write(file, b"0")
                .map(drop)
                .map_err(EnforceError::step("move to the sub-cgroup"))
        })?;
        scheduling::set_processors(process::of(spec), AffinityMoment::Final)?;
        setns::join(self.init, self.namespaces)
            .map_err(EnforceError::step("join the container's namespaces"))
    }

    /// Becomes the program. Returns only if it could not, and has reported why.
    pub fn run(&self, spec: &Spec, executor: &WallExecutor) -> i32 {
        if let Err(error) = self.enter(spec) {
            executor.report(&error);
            return 1;
        }
        i32::from(executor.validate(spec).is_err() || executor.exec(spec).is_err())
    }

    fn enter(&self, spec: &Spec) -> Result<(), EnforceError> {
        let process = process::of(spec).ok_or(EnforceError::Incomplete(WallKind::Privileges))?;
        rustix::process::setsid().map_err(EnforceError::step("begin a session"))?;
        scheduling::set(spec, process)?;
        if self.console.is_none() {
            self.take_streams()
                .map_err(EnforceError::step("take the standard descriptors"))?;
        }
        if let Some(console) = self.console {
            let kernel = create_syscall();
            tty::setup_console(kernel.as_ref(), console.as_raw_fd(), false)
                .map_err(in_words("set up the terminal"))?;
        }
        if let Some(profile) = process.apparmor_profile() {
            apparmor::apply_profile(profile).map_err(in_words("apply the AppArmor profile"))?;
        }
        if let Some(umask) = process.user().umask() {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        }
        become_user(process)?;
        // Late: from here on nothing is opened that the program could get.
        crate::sys::process::close_on_exec_from(self.first_closed)
            .map_err(EnforceError::step("close inherited descriptors"))
    }

    fn take_streams(&self) -> rustix::io::Result<()> {
        let [input, output, error] = self.stdio;
        if let Some(fd) = input {
            rustix::stdio::dup2_stdin(fd)?;
        }
        if let Some(fd) = output {
            rustix::stdio::dup2_stdout(fd)?;
        }
        match error {
            Some(fd) => rustix::stdio::dup2_stderr(fd),
            None => Ok(()),
        }
    }
}

/// Enters the working directory, and changes the ids. Root may enter where the user may not, and on some network file
/// systems the user where root may not: as with runc, either is enough.
fn become_user(process: &Process) -> Result<(), EnforceError> {
    let (user, cwd) = (process.user(), process.cwd());
    let enter = || match cwd.as_os_str().is_empty() {
        true => Ok(()),
        false => program::enter(cwd),
    };
    let entered = enter();
    user::become_user(user.uid(), user.gid()).map_err(EnforceError::step("change the user"))?;
    entered.or_else(|error| enter().map_err(|_| error))
}

/// An error of libcontainer.
pub(super) fn in_words<E: std::error::Error>(step: &'static str) -> impl FnOnce(E) -> EnforceError {
    move |error| EnforceError::step(step)(std::io::Error::other(crate::log::chain(&error)))
}
