//! A process of `exec` before it runs its program: the steps, and what exists meanwhile.

use std::os::fd::OwnedFd;

use oci_spec::runtime::{Process, User};
use rustix::fs::OFlags;

use super::error::ExecError;
use super::files::ReportFile;
use super::sub_cgroup::{self, SubCgroup};
use super::target::ExecTarget;
use super::time::{StartGate, TimedExec};
use crate::audit::Actor;
use crate::cli;
use crate::enforce::executor::WallExecutor;
use crate::enforce::home;
use crate::enforce::listener::{AgentSocket, ListenerWay};
use crate::enforce::privileges::{self, SetupRights};
use crate::enforce::program::ContainerProgram;
use crate::enforce::unconfined::UnconfinedProcess;
use crate::enforce::walls::{
    CommonSetup, ExecWork, FilterWall, JoinTargets, PolicyWalls, ProcessWalls, Role,
};
use crate::plan::{CapabilitySets, ExecTime};
use crate::runtime::agent::{self, Moment, SeccompAgent};
use crate::runtime::clock;
use crate::runtime::error::RuntimeError;
use crate::runtime::files::write_pid;
use crate::runtime::filter;
use crate::runtime::launch::{self, has_user_namespace};
use crate::runtime::network::calls;
use crate::runtime::own_sandbox;
use crate::runtime::pidfd;
use crate::runtime::state::half_made::{self, FreezerFile};
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::report;
use crate::runtime::state::store::ContainerPaths;
use crate::seccomp::SavedFilter;
use crate::sys::deadline::Deadline;
use crate::sys::owned_child::OwnedChild;
use crate::sys::process::Child;
use crate::sys::user::JoinedUser;
use crate::sys::user_namespace::of_process;

/// What exists until the process executes its program. Dropping it ends the child first, then removes the pipe.
pub(super) struct Execution<'a> {
    pub(super) place: &'a ContainerPaths,
    pub(super) args: &'a cli::Exec,
    pub(super) target: &'a ExecTarget,
    /// Who starts the process, if it is neither the engine nor a user.
    by: Option<Actor>,
    /// The child that sends the filter's listener to its agent.
    listener_child: Option<OwnedChild>,
    /// The line to the sidecar, by which it learns of a process that this program does not wait for.
    line: Option<OwnedFd>,
    report: ReportFile,
    /// Its time limit, if it has one.
    timed: Option<TimedExec<'a>>,
}

/// What the process inherits that is in no record.
pub(super) struct ExecInherited {
    /// The syscall wall's program.
    pub(super) filter: Option<SavedFilter>,
    /// Where its listener goes.
    pub(super) way: Option<ListenerWay>,
    /// Where it reports errors.
    pub(super) report: OwnedFd,
    /// The user namespace that it joins itself.
    pub(super) joining: JoinTargets,
    /// Its terminal is relayed to the caller's terminal, which makes the carriage returns.
    pub(super) keep_newlines: bool,
    /// The program that it executes.
    pub(super) program: ContainerProgram,
}

impl<'a> Execution<'a> {
    /// Makes nothing yet.
    pub(super) fn begin(
        place: &'a ContainerPaths,
        args: &'a cli::Exec,
        target: &'a ExecTarget,
        by: Option<Actor>,
    ) -> Result<Self, RuntimeError> {
        Ok(Self {
            place,
            args,
            target,
            by,
            listener_child: None,
            line: None,
            report: ReportFile::new(place)?,
            timed: None,
        })
    }

    /// The container's init process, whose namespaces and cgroup the new process joins.
    pub(super) fn living_init(&self) -> Result<ProcessId, RuntimeError> {
        let init = self.target.record.init.filter(|i| i.is_alive());
        init.ok_or(RuntimeError::NotRunning)
    }

    /// The syscall wall's program, as `create` saved it.
    pub(super) fn read_filter(&self) -> Result<Option<SavedFilter>, RuntimeError> {
        let record = &self.target.record;
        let saved = filter::read(&self.place.filter(), record.filter_hash.as_deref())?;
        check_filter(record, saved)
    }

    /// Opens the cgroup of the container that the process joins: one of its own, under `time.exec`.
    pub(super) fn open_cgroup(&mut self, init: ProcessId) -> Result<SubCgroup, RuntimeError> {
        let controllers = self.target.record.controllers()?;
        let mut cgroup = sub_cgroup::open(&self.args.cgroup, &controllers, init)?;
        let Some(limit) = time_limit(&self.target.record, self.args, self.by)? else {
            return Ok(cgroup);
        };
        let timed = TimedExec::make(self.place, &controllers, limit)?;
        if let Some(tasks) = timed.tasks() {
            cgroup
                .descriptors
                .push(clock::opened(&tasks, OFlags::WRONLY)?);
        }
        cgroup.below = timed.below().or(cgroup.below);
        self.timed = Some(timed);
        Ok(cgroup)
    }

    /// What the process waits for, if it has a time limit.
    pub(super) fn gate(&self) -> Option<&StartGate> {
        self.timed.as_ref().map(TimedExec::gate)
    }

    /// Starts the timekeeper of a process that waits, and lets it go.
    pub(super) fn begin_time(
        &self,
        child: &Child,
        process: Option<&Process>,
    ) -> Result<(), RuntimeError> {
        match &self.timed {
            Some(timed) => timed.begin(&self.target.record, child, process),
            None => Ok(()),
        }
    }

    /// The pipe through which the process reports errors: its end, and ours.
    pub(super) fn make_report_pipe(&self) -> Result<(OwnedFd, OwnedFd), RuntimeError> {
        let path = self.report.path();
        Ok((report::make(path)?, report::reader(path)?))
    }

    /// Where the filter's listener goes, if it has one.
    pub(super) fn open_listener_way(
        &mut self,
        filter: Option<&SavedFilter>,
    ) -> Result<Option<ListenerWay>, RuntimeError> {
        if let Some(agent) = self.begin_agent()? {
            return Ok(Some(ListenerWay::Agent(agent)));
        }
        match filter.is_some_and(SavedFilter::has_listener) {
            true => {
                let socket = calls::connect(self.place, &self.target.record, self.by)?;
                if self.args.detach && self.by.is_none() {
                    let copy = socket.try_clone();
                    self.line =
                        Some(copy.map_err(RuntimeError::io("keep the connection to the sidecar"))?);
                }
                Ok(Some(ListenerWay::Sidecar(socket)))
            }
            false => Ok(None),
        }
    }

    /// Starts the child that serves the process while this one is busy, if the filter has an agent.
    fn begin_agent(&mut self) -> Result<Option<AgentSocket>, RuntimeError> {
        let Some(agent) = SeccompAgent::read(&self.place.dir())? else {
            return Ok(None);
        };
        let (record, report) = (&self.target.record, self.report.path());
        let (listener_child, socket) =
            agent::serve_in_child(&agent, record, report, Moment::Running)?;
        self.listener_child = Some(listener_child);
        Ok(Some(socket))
    }

    /// The process begins in the runtime's user namespace; the executor joins the container's.
    pub(super) fn open_user_namespace(
        &self,
        init: ProcessId,
        process: &mut Process,
    ) -> Result<JoinTargets, RuntimeError> {
        let person = self.target.person();
        let namespace = match (person, has_user_namespace(&self.target.shadow)) {
            (Some(_), _) => own_sandbox::inner(init)?,
            (None, true) => of_process(init.pid).map_err(RuntimeError::io(format!(
                "open the user namespace of process {}",
                init.pid
            )))?,
            (None, false) => return Ok(JoinTargets::default()),
        };
        let user = process.user();
        let user = JoinedUser {
            namespace,
            uid: user.uid(),
            gid: user.gid(),
            groups: user.additional_gids().clone().unwrap_or_default(),
        };
        if person.is_some() {
            // Until then it is root, as the init process was.
            let mut root = User::default();
            root.set_umask(process.user().umask());
            process.set_user(root);
        }
        Ok(JoinTargets {
            user: Some(user),
            person,
        })
    }

    /// Raises the walls in the process: the init process's walls, except for what `create` has made. It also sets the
    /// rights, which the process has no more then.
    pub(super) fn executor(
        &self,
        process: &mut Process,
        inherited: ExecInherited,
    ) -> Result<WallExecutor, RuntimeError> {
        let record = &self.target.record;
        let sets = process.capabilities().clone().unwrap_or_default();
        process.set_capabilities(Some(privileges::for_setup(&sets, &[])));
        home::settle(process);
        let common = CommonSetup {
            capabilities: CapabilitySets::of(Some(&sets)),
            rights: SetupRights::take(process),
            report: inherited.report,
            keep_newlines: inherited.keep_newlines,
            program: inherited.program,
        };
        let (filter, way, joining) = (inherited.filter, inherited.way, inherited.joining);
        Ok(WallExecutor::new(match record.plan() {
            Some(_) => ProcessWalls::Policy(Box::new(PolicyWalls {
                common,
                filter: FilterWall::planned(filter, way)?,
                role: Role::Exec(ExecWork::planned(joining, record.netns_cookie)?),
            })),
            None => ProcessWalls::Unconfined(Box::new(UnconfinedProcess {
                common,
                no_new_privs: process.no_new_privileges().unwrap_or(false),
                keyring: launch::keyring(record),
                filter: filter.map(|filter| FilterWall::new(filter, way)),
                role: Role::Exec(joining),
            })),
        }))
    }

    /// The line to the sidecar, for [`NotedProcess::entrust`].
    pub(super) fn take_line(&mut self) -> Option<OwnedFd> {
        self.line.take()
    }

    /// Begins the process within the time limit. One in a frozen cgroup waits for `resume`.
    pub(super) fn within_limit<T>(
        &self,
        begin: impl FnOnce(&Deadline<'_>) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let frozen = FreezerFile::of(&self.target.record.controllers()?);
        let halt = frozen.as_ref().map(FreezerFile::halt);
        let (what, within) = ("exec process", half_made::WITHIN);
        half_made::limited(what, within, self.report.path(), halt, begin)
    }
}

/// The limit of `time.exec` for a process that this actor starts.
fn time_limit(
    record: &Record,
    args: &cli::Exec,
    by: Option<Actor>,
) -> Result<Option<ExecTime>, ExecError> {
    // `verify` ends its own in time. The container's author must not choose how much of it runs.
    if by == Some(Actor::Verify) {
        return Ok(None);
    }
    match record.plan().and_then(|plan| plan.exec_time) {
        Some(_) if !args.cgroup.is_empty() => Err(ExecError::TimedSubCgroup),
        limit => Ok(limit),
    }
}

/// The saved program, if the container has one by its record. A missing program must not mean a missing wall.
fn check_filter(
    record: &Record,
    saved: Option<SavedFilter>,
) -> Result<Option<SavedFilter>, RuntimeError> {
    if saved.is_some() == record.filtered {
        return Ok(saved);
    }
    Err(RuntimeError::State {
        verb: "exec in",
        id: record.id.clone(),
        why: "its seccomp filter is gone from the state directory".to_owned(),
    })
}

/// Reports the process to the caller. A failure ends it: the caller would not know of it.
pub(super) fn announce(args: &cli::Exec, pid: i32) -> Result<(), RuntimeError> {
    tell(args, pid).inspect_err(|_| end(pid))
}

fn tell(args: &cli::Exec, pid: i32) -> Result<(), RuntimeError> {
    if let Some(path) = &args.pid_file {
        write_pid(path, pid)?;
    }
    match &args.pidfd_socket {
        Some(socket) => pidfd::send(socket, pid),
        None => Ok(()),
    }
}

fn end(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    let ended = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)
        .and_then(|()| nix::sys::wait::waitpid(pid, None));
    if let Err(e) = ended {
        log::debug!("end process {pid}: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments;
    use super::*;
    use crate::plan::tests::sample;
    use crate::policy::SleepRule;

    /// A program that allows every call.
    fn filter() -> SavedFilter {
        let allow = crate::seccomp::Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0x7fff_0000,
        };
        SavedFilter {
            program: crate::seccomp::FilterProgram::new(vec![allow]).unwrap(),
            flags: 0,
        }
    }

    #[test]
    fn a_missing_filter_is_an_error_and_no_process_without_one() {
        let mut record = Record::bare("c1");
        assert!(check_filter(&record, None).unwrap().is_none());
        // The record names no program, so this one is not the container's.
        assert!(check_filter(&record, Some(filter())).is_err());
        record.filtered = true;
        assert!(check_filter(&record, Some(filter())).unwrap().is_some());
        assert_eq!(
            check_filter(&record, None).unwrap_err().to_string(),
            "cannot exec in container c1: its seccomp filter is gone from the state directory"
        );
    }

    #[test]
    fn time_exec_limits_every_process_but_those_of_verify() {
        let limit = ExecTime {
            limit: "2m".parse().unwrap(),
            grace: "5s".parse().unwrap(),
            sleep: SleepRule::Counts,
        };
        let mut plan = sample();
        plan.exec_time = Some(limit);
        let timed = Record::with_plan("c1", plan);
        let (plain, inside) = (arguments(""), arguments("--cgroup /a"));
        assert_eq!(time_limit(&timed, &plain, None).unwrap(), Some(limit));
        assert!(matches!(
            time_limit(&timed, &inside, None),
            Err(ExecError::TimedSubCgroup)
        ));
        let verify = Some(Actor::Verify);
        for args in [&plain, &inside] {
            assert_eq!(time_limit(&timed, args, verify).unwrap(), None);
            for record in [Record::with_plan("c1", sample()), Record::bare("c1")] {
                assert_eq!(time_limit(&record, args, None).unwrap(), None);
            }
        }
    }
}
