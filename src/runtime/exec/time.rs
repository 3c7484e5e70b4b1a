//! `time.exec`: the cgroup and the timekeeper of one `exec`.
//!
//! ```text
//! make: a cgroup of its own --> clone: the process is born in it, and waits --> begin: its timekeeper --> go
//! ```
//!
//! The process waits on a socket of the runtime. If the runtime is killed before the timekeeper exists, the process reads its end and
//! does not execute its program. The timekeeper removes the cgroup when nothing is left in it.
//!
//! On cgroup v1 the cgroup is one of the freezer alone. The container's limits, rules for devices and counts are those of
//! other hierarchies, in which the process is where all others are.

use std::cell::Cell;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oci_spec::runtime::Process;
use rustix::fs::OFlags;
use rustix::net::RecvFlags;

use super::error::ExecError;
use super::timed::{self, ExecRecord};
use crate::audit::LoggedCommand;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::hierarchies::Hierarchies;
use crate::plan::time::ClockState;
use crate::plan::{ExecTime, MOST_TIMED_EXECS, TimePlan};
use crate::policy::Lifetime;
use crate::runtime::clock;
use crate::runtime::error::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::network::companion;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::timekeeper::{
    self, CgroupMembers, EndLines, ExecCgroup, TimekeeperConfig, TimekeeperRecord,
};
use crate::sys::process::Child;
use crate::sys::socket;

/// The cgroup above those of each `exec`, in the container's. It is the timekeepers' user's, who remove cgroups there.
const DIRECTORY: &str = "agentbox-exec";
/// The hierarchy on cgroup v1.
const FREEZER: &str = "freezer";

/// The container's cgroup in which those of each `exec` are.
fn base(controllers: &Controllers) -> Result<&Path, ExecError> {
    let found = controllers.unified().or_else(|| controllers.v1(FREEZER));
    found.ok_or(ExecError::NoFreezer)
}

/// Refuses a container whose node cannot keep `time.exec`.
pub fn check(controllers: &Controllers) -> Result<(), ExecError> {
    base(controllers).map(drop)
}

/// One `exec` with a time limit, until its program runs. Dropping it removes the cgroup, if it is empty by then.
pub(super) struct TimedExec<'a> {
    place: &'a ContainerPaths,
    record: ExecRecord,
    /// Whether the cgroup is v2's.
    unified: bool,
    gate: StartGate,
    /// Whether its timekeeper runs, which removes the cgroup then.
    begun: Cell<bool>,
}

impl<'a> TimedExec<'a> {
    /// Makes its cgroup.
    pub(super) fn make(
        place: &'a ContainerPaths,
        controllers: &Controllers,
        limit: ExecTime,
    ) -> Result<Self, RuntimeError> {
        let base = base(controllers)?;
        let unified = controllers.unified().is_some();
        if unified && hands_on(base) {
            return Err(ExecError::DelegatedCgroup.into());
        }
        if timed::living(place) >= MOST_TIMED_EXECS as usize {
            return Err(ExecError::TooManyTimed.into());
        }
        let parent = base.join(DIRECTORY);
        let failed = |path: &Path| RuntimeError::io(format!("make the cgroup {path:?}"));
        make_directory(&parent).map_err(failed(&parent))?;
        let user = companion::timekeeper_uid(&place.dir());
        chown(&parent, Some(user), None).map_err(failed(&parent))?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(RuntimeError::Random)?;
        let name = format!("{:016x}", u64::from_ne_bytes(random));
        let runtime = i32::try_from(std::process::id()).ok();
        let runtime = runtime.and_then(ProcessId::of);
        let record = ExecRecord {
            cgroup: parent.join(&name),
            name,
            runtime: runtime.ok_or(RuntimeError::NotRunning)?,
            process: None,
            keeper: None,
            command: LoggedCommand::of(Vec::new(), 0, 0),
            plan: limit.of_one(),
        };
        // Before the cgroup, so that the next verb finds one whose maker was killed.
        record.save(place)?;
        let made = Self {
            place,
            record,
            unified,
            gate: StartGate::new()?,
            begun: Cell::new(false),
        };
        let own = &made.record.cgroup;
        fs::create_dir(own).map_err(failed(own))?;
        Ok(made)
    }

    /// On cgroup v1: the file to which the process's helper writes itself.
    pub(super) fn tasks(&self) -> Option<PathBuf> {
        (!self.unified).then(|| self.record.cgroup.join("tasks"))
    }

    /// On cgroup v2: the path below the container's, for the process to be born in.
    pub(super) fn below(&self) -> Option<String> {
        self.unified
            .then(|| format!("{DIRECTORY}/{}", self.record.name))
    }

    /// What the process waits for.
    pub(super) fn gate(&self) -> &StartGate {
        &self.gate
    }

    /// Starts the timekeeper of the process, which waits in its cgroup, and lets it go. Time counts from here on.
    pub(super) fn begin(
        &self,
        container: &Record,
        child: &Child,
        process: Option<&Process>,
    ) -> Result<(), RuntimeError> {
        let pid = child.pid.as_raw_pid();
        self.check_place(pid)?;
        let keeper = self.start_keeper(container, child)?;
        self.begun.set(true);
        let wanted = process.cloned().unwrap_or_default();
        let (arguments, user) = (wanted.args().clone(), wanted.user());
        let record = ExecRecord {
            keeper: Some(keeper),
            process: ProcessId::of(pid),
            command: LoggedCommand::of(arguments.unwrap_or_default(), user.uid(), user.gid()),
            ..self.record.clone()
        };
        // Before the program runs: a verb must find the timekeepers.
        record.save(self.place)?;
        self.gate.open()
    }

    /// Reads back from the kernel where the process is.
    fn check_place(&self, pid: i32) -> Result<(), RuntimeError> {
        let found = Controllers::of(pid)?;
        let found = match self.unified {
            true => found.v2.as_deref(),
            false => found.v1(FREEZER),
        };
        match found == Some(&self.record.cgroup) {
            true => Ok(()),
            false => Err(ExecError::OutsideItsCgroup.into()),
        }
    }

    fn start_keeper(
        &self,
        container: &Record,
        child: &Child,
    ) -> Result<TimekeeperRecord, RuntimeError> {
        let plan: TimePlan = self.record.plan;
        let begun = timekeeper::now(plan.sleep);
        let limit = plan.wall.lifetime().map_or(0, Lifetime::seconds);
        let deadline = begun + Duration::from_secs(limit.into());
        let state = ClockState {
            deadline: clock::millis(deadline),
            cause: None,
            idle_since: None,
        };
        let path = self.record.clock(self.place);
        write_whole(&path, state.to_text().as_bytes())?;
        let clock = clock::opened(&path, OFlags::RDWR)?;
        let exe = clock::opened(&PathBuf::from("/proc/self/exe"), OFlags::PATH)?;
        let (born_in, enters) = clock::sidecars_cgroup(container)?;
        let parent = self.record.cgroup.parent().unwrap_or(Path::new("/"));
        let thawed = match self.unified {
            true => None,
            false => Some(thawed()?),
        };
        let config = TimekeeperConfig {
            id: companion::timekeeper_uid(&self.place.dir()),
            plan,
            init: child.pidfd.as_fd(),
            clock: clock.as_fd(),
            // It has no lines: the next verb writes them.
            log: clock.as_fd(),
            lines: EndLines::default(),
            members: members(&self.record.cgroup)?,
            activity: None,
            exec: Some(ExecCgroup {
                parent: clock::opened(parent, OFlags::DIRECTORY)?,
                name: self.record.name.clone(),
                thawed,
            }),
            born_in: born_in.as_ref().map(AsFd::as_fd),
            enters,
        };
        Ok(timekeeper::start(config, exe.as_fd())?)
    }
}

impl Drop for TimedExec<'_> {
    fn drop(&mut self) {
        if !self.begun.get() {
            self.record.remove_empty(self.place);
        }
    }
}

/// The processes of the cgroup of an `exec`.
pub(super) fn members(cgroup: &Path) -> Result<CgroupMembers, RuntimeError> {
    let freezer = cgroup.join("freezer.state");
    Ok(match freezer.exists() {
        true => CgroupMembers::Listed {
            directory: clock::opened(cgroup, OFlags::DIRECTORY)?,
            freezer: Some(clock::opened(&freezer, OFlags::WRONLY)?),
        },
        false => CgroupMembers::Kill(clock::opened(&cgroup.join("cgroup.kill"), OFlags::WRONLY)?),
    })
}

/// The root of the freezer, which is never frozen.
pub(super) fn thawed() -> Result<OwnedFd, RuntimeError> {
    let hierarchies = Hierarchies::of_node()?;
    let root = hierarchies.v1(FREEZER).ok_or(ExecError::NoFreezer)?;
    clock::opened(&root.join("cgroup.procs"), OFlags::WRONLY)
}

/// Whether a v2 cgroup hands controllers on: then no process may be in it, and the workload's own cgroups are below it.
fn hands_on(cgroup: &Path) -> bool {
    let handed = fs::read_to_string(cgroup.join("cgroup.subtree_control"));
    handed.is_ok_and(|text| !text.trim().is_empty())
}

fn make_directory(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// What the process waits for before its first step in the container: a byte of the runtime. It reads the end of the socket if
/// the runtime is killed.
pub(super) struct StartGate {
    process: OwnedFd,
    runtime: Cell<Option<OwnedFd>>,
}

impl StartGate {
    fn new() -> Result<Self, RuntimeError> {
        let (process, runtime) = socket::pair().map_err(RuntimeError::io("make a socket pair"))?;
        Ok(Self {
            process,
            runtime: Cell::new(Some(runtime)),
        })
    }

    /// For the helper: from here on only the runtime itself has the other end.
    pub(super) fn leave_runtime(&self) {
        drop(self.runtime.take());
    }

    /// For the process.
    pub(super) fn wait(&self) -> Result<(), String> {
        let mut byte = [0];
        match rustix::net::recv(&self.process, &mut byte, RecvFlags::empty()) {
            Ok((1, _)) => Ok(()),
            _ => Err("the runtime ended before the time of the process was kept".to_owned()),
        }
    }

    fn open(&self) -> Result<(), RuntimeError> {
        let runtime = self.runtime.take().ok_or(RuntimeError::NotRunning)?;
        socket::send_now(runtime.as_fd(), b"1").map_err(RuntimeError::io("let the process go"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_waits_until_its_time_is_kept_and_never_goes_without_its_runtime() {
        let gate = StartGate::new().unwrap();
        gate.open().unwrap();
        gate.wait().unwrap();
        // It opens once.
        assert!(gate.wait().is_err());
        // The runtime was killed.
        let gate = StartGate::new().unwrap();
        gate.leave_runtime();
        assert!(gate.wait().unwrap_err().contains("the runtime ended"));
        assert!(gate.open().is_err());
    }

    #[test]
    fn the_freezer_or_cgroup_v2_is_needed() {
        let controllers = |v1: &[&str], v2: Option<&str>| Controllers {
            v1: v1
                .iter()
                .map(|name| ((*name).to_owned(), PathBuf::from("/c").join(name)))
                .collect(),
            v2: v2.map(PathBuf::from),
        };
        assert!(check(&controllers(&["freezer", "pids"], None)).is_ok());
        assert!(check(&controllers(&[], Some("/u"))).is_ok());
        for lacking in [
            controllers(&[], None),
            controllers(&["pids"], None),
            // Beside v1's, that of v2 has no processes of the container.
            controllers(&["pids"], Some("/u")),
        ] {
            let why = check(&lacking).unwrap_err().to_string();
            assert!(why.contains("leave time.exec out"), "{why}");
        }
    }
}
