//! The order in which the walls are raised in a process of the container. libcontainer calls
//! [`Executor::validate`] at `create` (after pivot_root, mounts done) and [`Executor::exec`] at `start` or `exec`,
//! as the last thing before execve; it is inherited over clone, so it may own descriptors and programs.
//!
//! ```text
//! validate   supplementary groups -> the kernel's file systems, masked -> judged mounts attached, private directories, masks
//!            -> cgroups read-only -> masks looked at again -> program found
//! exec       user namespace (tenants) -> inner network namespace, checked -> sysfs of it -> groups read back
//!            -> session keyring -> SELinux label -> no_new_privs read back -> not dumpable, read back -> capabilities
//!            dropped and read back -> filter loaded and read back -> startContainer hooks -> execve
//! ```
//!
//! Between the two the process holds the capabilities of [`privileges::for_setup`], runs no code but ours, is not
//! dumpable, and nobody can join it: `exec` into a created container is refused under a policy.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use oci_spec::runtime::{Hooks, Process, Spec};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::disk::{self, Arrived};
use super::hooks::{Ready, Told, When};
use super::kernel::{self, KernelFiles};
use super::listener::{self, AgentSocket};
use super::privileges::GroupsSet;
use super::report::Report;
use super::rootfs::LateMount;
use super::unconfined::setup::{self, Unfinished};
use super::{EnforceError, hidden, home, privileges, program, rootfs, stdio, verify};
use crate::plan::scratch::in_memory_instead;
use crate::plan::{CapabilitySets, FilesystemPlan, Plan, ScratchPlace};
use crate::policy::ScratchOn;
use crate::seccomp::SavedFilter;
use crate::sidecar::SidecarError;
use crate::sys::user::JoinedUser;
use crate::sys::user::with_files_of_root;

/// How long the sidecar may take to answer at `start`; it answers in microseconds.
const HANDOVER_WITHIN: Duration = Duration::from_secs(10);

/// What a process of a container needs to raise its walls.
pub struct Walls {
    /// First process or a later one.
    pub role: Role,
    /// The plan; `None` under `unconfined`.
    pub plan: Option<Plan>,
    /// The capability sets to end with.
    pub capabilities: CapabilitySets,
    /// Whether no_new_privs must be on.
    pub no_new_privs: bool,
    /// The program to load; `None` when neither the policy nor the engine has one.
    pub filter: Option<SavedFilter>,
    /// The way to the engine's seccomp agent; `None` where no rule of the filter asks one.
    pub agent: Option<AgentSocket>,
    /// Receives the text of what went wrong; closed by execve.
    pub report: OwnedFd,
    /// The process's session keyring.
    pub keyring: Keyring,
    /// Whether the container has a user namespace.
    pub user_namespace: bool,
    /// Working directory to enter once the mounts are there; `None` where libcontainer has entered it.
    pub cwd: Option<PathBuf>,
    /// The kernel's file systems that the first process mounts itself.
    pub kernel: KernelFiles,
    /// Mounts of judged sources, and private ones, which it makes itself too.
    pub late_mounts: Vec<LateMount>,
    /// Where the file system of what is thrown away arrives, if that lies on a disk ([`super::disk`]).
    pub disk: Option<OwnedFd>,
    /// What else the first process does of a spec without a policy.
    pub unfinished: Option<Unfinished>,
    /// The terminal is relayed to the caller, whose own makes carriage returns.
    pub keep_newlines: bool,
    /// cgroup mount to make read-only.
    pub cgroup_read_only: Option<PathBuf>,
    /// cgroup.procs and tasks files of cgroups to move to.
    pub cgroups: Vec<OwnedFd>,
    /// Kill the process when the runtime ends that started it: a command of `wrap` does not outlive it.
    pub die_with_parent: bool,
    /// The spec's hooks, of which startContainer's are run here, and what they are told of the container.
    pub hooks: Option<(Hooks, Told)>,
}

impl Walls {
    /// As runc does it: an agent hears of a container while that is being created. Under a policy it is later, because the
    /// other walls go up before, and those at `start`.
    fn filter_comes_at_create(&self) -> bool {
        matches!(self.role, Role::Init { .. }) && self.plan.is_none() && self.agent.is_some()
    }

    /// The supplementary groups until the namespaces are joined: none of a user namespace that the process joins later,
    /// where its numbers mean others.
    fn groups_now<'a>(&self, spec: &'a Spec) -> &'a [u32] {
        match &self.role {
            Role::Tenant { user: Some(_), .. } => &[],
            _ => groups(spec),
        }
    }

    /// Under a plan nothing that enforces it may be missing: an absent value must never mean an absent wall.
    fn check_complete(&self) -> Result<(), EnforceError> {
        if self.plan.is_none() {
            return Ok(());
        }
        let network = match &self.role {
            // One or the other: a network of its own, or another container's.
            Role::Init { sidecar, shared } => sidecar.is_some() != shared.is_some(),
            Role::Tenant { cookie, .. } => cookie.is_some(),
        };
        let all = [
            ("network", network),
            ("syscall", self.filter.is_some()),
            (
                "privilege",
                self.no_new_privs && self.keyring == Keyring::New,
            ),
        ];
        match all.iter().find(|(_, there)| !there) {
            Some((wall, _)) => Err(EnforceError::Incomplete(wall)),
            None => Ok(()),
        }
    }
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

/// First process or a later one.
pub enum Role {
    /// The container's first process; the socket leads to the sidecar (none under `unconfined`).
    Init {
        /// Where the inner namespace comes from.
        sidecar: Option<OwnedFd>,
        /// Cookie of another container's, in which libcontainer has already put it.
        shared: Option<u64>,
    },
    /// A process of `exec`.
    Tenant {
        /// Cookie of the inner namespace, in which libcontainer has already put it.
        cookie: Option<u64>,
        /// The container's user namespace, which libcontainer does not join.
        user: Option<JoinedUser>,
    },
}

/// The executor that libcontainer calls.
#[derive(Clone)]
pub struct WallExecutor {
    walls: Rc<Walls>,
    found: Rc<RefCell<Found>>,
}

/// What `validate` and `setup_envs` learned for `exec`.
#[derive(Default)]
struct Found {
    program: PathBuf,
    /// The walls stand since `create`.
    enforced: bool,
    groups: Option<GroupsSet>,
    added_env: HashMap<String, String>,
}

impl WallExecutor {
    /// An executor for one process.
    pub fn new(walls: Walls) -> Self {
        Self {
            walls: Rc::new(walls),
            found: Rc::default(),
        }
    }

    fn prepare(&self, spec: &Spec) -> Result<(), EnforceError> {
        let walls = &self.walls;
        // First: nothing of the container is looked at with the rights of the caller's groups.
        self.found.borrow_mut().groups = Some(privileges::set_groups(walls.groups_now(spec))?);
        if let Role::Init { .. } = &walls.role {
            stdio::make_null_writable()?;
        }
        for procs in &walls.cgroups {
            rustix::io::write(procs, b"0").map_err(EnforceError::step("move to the sub-cgroup"))?;
        }
        stdio::give_to(
            process(spec).map_or(0, |p| p.user().uid()),
            walls.plan.is_some(),
        )?;
        stdio::set_size(process(spec))?;
        if walls.keep_newlines {
            stdio::keep_newlines()?;
        }
        if let (Role::Init { .. }, Some(plan)) = (&walls.role, &walls.plan) {
            self.mount_all(plan)?;
        }
        if let Some(left) = &walls.unfinished {
            setup::make(left)?;
        }
        if let (Role::Init { .. }, Some(path)) = (&walls.role, &walls.cgroup_read_only) {
            rootfs::lock_cgroups(path)?;
        }
        if let Some(left) = &walls.unfinished {
            setup::seal(left)?;
        }
        if let Role::Init { .. } = &walls.role {
            hidden::check(spec, walls.unfinished.as_ref(), &walls.kernel)?;
        }
        match (&walls.cwd, &walls.unfinished) {
            (None, _) => {}
            (Some(cwd), None) => program::enter(cwd)?,
            // runc enters it before it becomes the user, who may not be able to.
            (Some(cwd), Some(_)) => with_files_of_root(|| program::enter(cwd))?,
        }
        let (args, env) = (args(spec), env(spec));
        let name = args.first().map(String::as_str).unwrap_or_default();
        // Names are looked up from the working directory, where the process is by now.
        self.found.borrow_mut().program = program::find(name, &env)?;
        if walls.filter_comes_at_create() {
            self.enforce(spec)?;
            self.found.borrow_mut().enforced = true;
        }
        Ok(())
    }

    fn mount_all(&self, plan: &Plan) -> Result<(), EnforceError> {
        let walls = &self.walls;
        let mut files = Cow::Borrowed(&plan.filesystem);
        // An absent disk must never mean another one than was planned.
        let on_disk = files.needs_scratch() && files.scratch_place == ScratchPlace::Disk;
        if walls.disk.is_some() != on_disk {
            return Err(EnforceError::Incomplete("file system"));
        }
        kernel::make(&walls.kernel)?;
        let disk = match &walls.disk {
            Some(socket) => self.wait_for_disk(socket, plan, &mut files)?,
            None => None,
        };
        let user_namespace = walls.user_namespace;
        rootfs::mount_all(&files, &walls.late_mounts, disk.as_ref(), user_namespace)?;
        match &walls.cwd {
            Some(cwd) => rootfs::make_working_directory(&files, cwd),
            None => Ok(()),
        }
    }

    /// The disk; or what lies in memory instead, where the policy leaves that open. `create` is told the same and writes
    /// that down.
    fn wait_for_disk(
        &self,
        socket: &OwnedFd,
        plan: &Plan,
        files: &mut Cow<'_, FilesystemPlan>,
    ) -> Result<Option<OwnedFd>, EnforceError> {
        let step = "wait for the disk for what is thrown away";
        let arrived = disk::receive(socket.as_fd()).map_err(EnforceError::step(step))?;
        match (arrived, plan.policy.filesystem.scratch_on) {
            (Arrived::Disk(disk), _) => Ok(Some(disk)),
            (Arrived::None(why), ScratchOn::Disk) => {
                Err(EnforceError::step(step)(std::io::Error::other(why)))
            }
            (Arrived::None(why), ScratchOn::Auto | ScratchOn::Memory) => {
                // The warning is `create`'s to give.
                in_memory_instead(files.to_mut(), &why);
                Ok(None)
            }
        }
    }

    fn enforce(&self, spec: &Spec) -> Result<(), EnforceError> {
        let walls = &self.walls;
        walls.check_complete()?;
        self.join_namespaces()?;
        self.verify_groups(spec)?;
        join_keyring(&walls.keyring)?;
        set_selinux_label(spec)?;
        if walls.no_new_privs {
            // libcontainer throws the result away; setting it twice is harmless.
            rustix::thread::set_no_new_privs(true)
                .map_err(EnforceError::step("set no_new_privs"))?;
        }
        verify::no_new_privs(walls.no_new_privs)?;
        if walls.die_with_parent {
            // After the change of user, which would have cleared it (prctl(2), PR_SET_PDEATHSIG).
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
                .map_err(EnforceError::step("die with the runtime"))?;
        }
        if walls.plan.is_some() {
            privileges::hide_from_tracers()?;
            verify::hidden_from_tracers()?;
        }
        if walls.no_new_privs {
            // Drop first: the filter may deny what the drop needs.
            self.drop_capabilities()?;
            self.load_filter()
        } else {
            // Without no_new_privs loading a filter needs SYS_ADMIN, so the drop comes after.
            self.load_filter()?;
            self.drop_capabilities()
        }
    }

    /// startContainer hooks are behind the same walls as the program (runc: after the filter too); what they need is
    /// made before, because a filter may deny it.
    fn enforce_and_run_hooks(&self, spec: &Spec, env: &[String]) -> Result<(), EnforceError> {
        let Some((hooks, told)) = &self.walls.hooks else {
            return self.enforce_once(spec);
        };
        // As the container sees it.
        let pid = i32::try_from(std::process::id()).ok();
        let ready = Ready::new(When::StartContainer, hooks, told, pid)?;
        self.enforce_once(spec)?;
        // Without an environment of their own they get the program's, as runc's do.
        Ok(ready.run(env, None)?)
    }

    /// [`Self::enforce`], unless that was done at `create`.
    fn enforce_once(&self, spec: &Spec) -> Result<(), EnforceError> {
        if self.found.borrow().enforced {
            return Ok(());
        }
        self.enforce(spec)
    }

    fn join_namespaces(&self) -> Result<(), EnforceError> {
        match &self.walls.role {
            Role::Init {
                sidecar: None,
                shared: None,
            } => Ok(()),
            Role::Init {
                sidecar: None,
                shared: Some(cookie),
            } => Ok(crate::network::inner::verify_current(*cookie)?),
            Role::Init {
                sidecar: Some(socket),
                shared: _,
            } => {
                let handover =
                    crate::sidecar::protocol::request_namespace(socket.as_fd(), HANDOVER_WITHIN)
                        .map_err(|e| EnforceError::Sidecar(SidecarError::Protocol(e)))?;
                crate::network::inner::enter(handover.netns.as_fd(), handover.cookie)?;
                match &self.walls.plan {
                    Some(plan) if plan.network.sysfs => {
                        rootfs::replace_sysfs(&handover.sysfs, &plan.filesystem)
                    }
                    _ => Ok(()),
                }
            }
            Role::Tenant { cookie, user } => {
                if let Some(user) = user {
                    crate::sys::user::join(user)
                        .map_err(EnforceError::step("join the container's user namespace"))?;
                }
                match cookie {
                    Some(cookie) => Ok(crate::network::inner::verify_current(*cookie)?),
                    None => Ok(()),
                }
            }
        }
    }

    fn verify_groups(&self, spec: &Spec) -> Result<(), EnforceError> {
        let set = self.found.borrow().groups;
        let set = set.ok_or(EnforceError::Incomplete("privilege"))?;
        let own = process(spec).map_or(0, |p| p.user().gid());
        verify::groups(groups(spec), own, set, self.walls.plan.is_some())
    }

    fn drop_capabilities(&self) -> Result<(), EnforceError> {
        privileges::drop_to(&self.walls.capabilities)?;
        verify::capabilities(&self.walls.capabilities)
    }

    fn load_filter(&self) -> Result<(), EnforceError> {
        let Some(filter) = &self.walls.filter else {
            return Ok(());
        };
        let listener = crate::sys::seccomp::load(&filter.program, filter.flags)
            .map_err(EnforceError::step("load the seccomp filter"))?;
        match (listener, &self.walls.agent) {
            (None, _) => {}
            (Some(listener), Some(agent)) => listener::hand_over(listener, agent)?,
            (Some(_), None) => return Err(EnforceError::Incomplete("syscall")),
        }
        verify::seccomp()
    }

    /// Writes the reason to the pipe that `create`, `start` or `exec` reads. Failing to is no reason to go on.
    fn report(&self, error: &EnforceError) -> String {
        let report = Report::from(error);
        if rustix::io::write(&self.walls.report, &report.to_bytes()).is_err() {
            tracing::error!("cannot report: {report}");
        }
        report.text
    }
}

impl Executor for WallExecutor {
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        self.prepare(spec)
            .map_err(|e| ExecutorValidationError::ArgValidationError(self.report(&e)))
    }

    fn setup_envs(&self, envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        // Only what libcontainer added: the map has lost the order and the duplicates of the spec's own list.
        let added = ["LISTEN_FDS", "LISTEN_PID"];
        self.found.borrow_mut().added_env = envs
            .into_iter()
            .filter(|(k, _)| added.contains(&k.as_str()))
            .collect();
        Ok(())
    }

    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let found = self.found.borrow();
        let mut env = env(spec);
        for (key, value) in &found.added_env {
            if !env.iter().any(|e| e.starts_with(&format!("{key}="))) {
                env.push(format!("{key}={value}"));
            }
        }
        let uid = process(spec).map_or(0, |p| p.user().uid());
        home::resolve(&mut env, uid);
        let args = args(spec);
        let error = match self.enforce_and_run_hooks(spec, &env) {
            Ok(()) => program::execute(&found.program, &args, &env),
            Err(error) => error,
        };
        Err(ExecutorError::Other(self.report(&error)))
    }
}

fn join_keyring(keyring: &Keyring) -> Result<(), EnforceError> {
    use crate::sys::keyring::{join_new_session_keyring, join_session_keyring};
    match keyring {
        Keyring::Inherited => Ok(()),
        Keyring::New => {
            join_new_session_keyring().map_err(EnforceError::step("join a new session keyring"))
        }
        Keyring::Named(name) => match join_session_keyring(name) {
            // Nothing to keep apart in a kernel without keys (runc).
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            other => other.map_err(EnforceError::step(format!("join the keyring {name:?}"))),
        },
    }
}

fn process(spec: &Spec) -> Option<&Process> {
    spec.process().as_ref()
}

/// process.user.additionalGids
fn groups(spec: &Spec) -> &[u32] {
    let groups = process(spec).and_then(|p| p.user().additional_gids().as_deref());
    groups.unwrap_or_default()
}

fn args(spec: &Spec) -> Vec<String> {
    process(spec)
        .and_then(|p| p.args().clone())
        .unwrap_or_default()
}

/// The environment, each name once. The last one counts, as with runc: a C library would take the first.
fn env(spec: &Spec) -> Vec<String> {
    let all = process(spec)
        .and_then(|p| p.env().clone())
        .unwrap_or_default();
    let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
    let mut seen = HashSet::new();
    let mut kept: Vec<String> = all
        .into_iter()
        .rev()
        .filter(|e| seen.insert(name(e)))
        .collect();
    kept.reverse();
    // libcontainer has looked up the user's.
    kept.retain(|e| e != "HOME=");
    kept
}

/// Sets the label that execve will give the program; libcontainer does not (selinux(8), proc(5) attr/exec).
fn set_selinux_label(spec: &Spec) -> Result<(), EnforceError> {
    let Some(label) = process(spec)
        .and_then(|p| p.selinux_label().as_ref())
        .filter(|l| !l.is_empty())
    else {
        return Ok(());
    };
    let step = || format!("set the SELinux label {label:?}");
    let file = own_attribute("attr/exec").map_err(EnforceError::step(step()))?;
    rustix::io::write(&file, label.as_bytes()).map_err(EnforceError::step(step()))?;
    Ok(())
}

/// A file of this thread in procfs, and in nothing else: the container's mounts decide what lies at /proc, and a label
/// written to another file is a process without one (CVE-2019-16884, CVE-2025-52881).
fn own_attribute(name: &str) -> rustix::io::Result<OwnedFd> {
    const ROOT: u64 = 1;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
    let is_procfs = rustix::fs::fstatfs(&proc)?.f_type == libc::PROC_SUPER_MAGIC;
    if !is_procfs || rustix::fs::fstat(&proc)?.st_ino != ROOT {
        return Err(rustix::io::Errno::XDEV);
    }
    // No other mount below it either.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let path = format!("thread-self/{name}");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat2(&proc, path, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walls(role: Role, plan: Option<Plan>) -> Walls {
        let (report, _other) = crate::sys::socket::pair().unwrap();
        Walls {
            role,
            plan,
            capabilities: CapabilitySets::default(),
            no_new_privs: true,
            filter: None,
            agent: None,
            report,
            keyring: Keyring::New,
            user_namespace: false,
            cwd: None,
            kernel: KernelFiles::default(),
            late_mounts: Vec::new(),
            disk: None,
            unfinished: None,
            keep_newlines: false,
            cgroup_read_only: None,
            cgroups: Vec::new(),
            die_with_parent: false,
            hooks: None,
        }
    }

    #[test]
    fn an_attribute_is_written_in_procfs_of_this_thread() {
        // CONFIG_PROC_FS has oom_score_adj in every kernel, attr/exec only where a security module is.
        let file = own_attribute("oom_score_adj").unwrap();
        let magic = rustix::fs::fstatfs(&file).unwrap().f_type;
        assert_eq!(magic, libc::PROC_SUPER_MAGIC);
        for outside in [
            "../../../etc/hostname",
            "cwd/Cargo.toml",
            "root/etc/hostname",
        ] {
            assert!(own_attribute(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn a_plan_without_what_enforces_it_is_an_error() {
        let plan = crate::plan::tests::sample();
        for role in [
            Role::Init {
                sidecar: None,
                shared: None,
            },
            Role::Tenant {
                cookie: None,
                user: None,
            },
        ] {
            let error = walls(role, Some(plan.clone())).check_complete();
            assert!(matches!(error, Err(EnforceError::Incomplete("network"))));
        }
        let tenant = Role::Tenant {
            cookie: Some(7),
            user: None,
        };
        let error = walls(tenant, Some(plan)).check_complete();
        assert!(matches!(error, Err(EnforceError::Incomplete("syscall"))));
        let nothing_asked = walls(
            Role::Init {
                sidecar: None,
                shared: None,
            },
            None,
        )
        .check_complete();
        assert!(nothing_asked.is_ok());
    }
}
