//! An exec process that this program makes, in place of libcontainer, as runc does it. A helper, which no process of the
//! container can see, enters the cgroups, the limits and the namespaces of the init process. It makes the process as a
//! child of the runtime and ends. So nothing of the node is in the process when the container first sees it.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, Process, Spec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::error::ExecError;
use super::execution::Execution;
use super::sub_cgroup::SubCgroup;
use super::time::StartGate;
use crate::cgroup::birthplace::Birthplace;
use crate::enforce::EnforceError;
use crate::enforce::exec_process::ExecSetup;
use crate::enforce::executor::WallExecutor;
use crate::enforce::process::limit_open_files;
use crate::enforce::report::FailureReport;
use crate::runtime::child;
use crate::runtime::error::RuntimeError;
use crate::runtime::launch::Streams;
use crate::runtime::network::control::short;
use crate::runtime::state::record::ProcessId;
use crate::runtime::state::report;
use crate::sys::process::{self, Birth, Child};
use crate::sys::process_id;
use crate::sys::setns::Namespaces;
use crate::sys::sibling::{self, SiblingNumber};

/// The namespaces of a container.
fn kinds(shadow: &Spec) -> impl Iterator<Item = LinuxNamespaceType> {
    let linux = shadow.linux().as_ref();
    let all = linux.and_then(|l| l.namespaces().as_ref());
    all.into_iter().flatten().map(|n| n.typ())
}

/// Those that the process begins in.
fn joined(shadow: &Spec) -> Namespaces {
    let flag = |kind| match kind {
        LinuxNamespaceType::Mount => Namespaces::MOUNT,
        LinuxNamespaceType::Cgroup => Namespaces::CONTROL_GROUP,
        LinuxNamespaceType::Uts => Namespaces::HOST_NAME_AND_NIS_DOMAIN_NAME,
        LinuxNamespaceType::Ipc => Namespaces::INTER_PROCESS_COMMUNICATION,
        LinuxNamespaceType::Network => Namespaces::NETWORK,
        LinuxNamespaceType::Pid => Namespaces::PROCESS_ID,
        LinuxNamespaceType::Time => Namespaces::TIME,
        // The Executor joins it.
        LinuxNamespaceType::User => Namespaces::empty(),
    };
    kinds(shadow).map(flag).collect()
}

impl Execution<'_> {
    /// Starts the process; returns its pid once it has executed its program.
    pub(super) fn run(
        &self,
        streams: Streams<'_>,
        executor: WallExecutor,
        cgroup: &SubCgroup,
        process: Process,
        reports: &OwnedFd,
    ) -> Result<i32, RuntimeError> {
        let mut spec = self.target.shadow.clone();
        spec.set_process(Some(process));
        let init = open_init(self.living_init()?)?;
        let below = cgroup.below.as_deref();
        let born = Birthplace::existing(self.target.record.controllers()?, below)?;
        let console = streams.console.map(connect_console).transpose()?;
        let mut namespaces = joined(&spec);
        if self.target.person().is_some() {
            // The spec of a sandbox without root's rights has none: the init process entered the inner one itself.
            namespaces |= Namespaces::NETWORK;
        }
        let setup = ExecSetup {
            init: init.as_fd(),
            namespaces,
            cgroups: &cgroup.descriptors,
            stdio: &streams.stdio,
            console: console.as_ref().map(AsFd::as_fd),
            first_closed: 3_u32.saturating_add_signed(self.args.preserve_fds),
        };
        let parts = ProcessParts {
            setup: &setup,
            born: &born,
            spec: &spec,
            gate: self.gate(),
        };
        child::prepare()?;
        self.within_limit(|deadline| {
            let number = SiblingNumber::new().map_err(RuntimeError::io("share memory"))?;
            let helper = parts.begin(&executor, &number)?;
            // The process alone holds the report's end from here on; execve(2) closes it.
            drop(executor);
            let child = child::made_by(&helper, &number).map_err(|error| {
                // The helper's own words are nearer to the cause.
                report::pending(reports).map_or(error, RuntimeError::Init)
            })?;
            self.begin_time(&child, spec.process().as_ref())
                .inspect_err(|_| child::end(&child))?;
            report::wait(reports, Some(child.pidfd.as_fd()), || deadline.has_passed())
                .and_then(|()| check_executed(&child))
                .inspect_err(|_| child::end(&child))?;
            Ok(child.pid.as_raw_pid())
        })
    }
}

/// The init process, and no other that has its number by now.
fn open_init(init: ProcessId) -> Result<OwnedFd, RuntimeError> {
    let pid = Pid::from_raw(init.pid).ok_or(RuntimeError::NotRunning)?;
    let opened = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| RuntimeError::NotRunning)?;
    match init.is_alive() {
        true => Ok(opened),
        false => Err(RuntimeError::NotRunning),
    }
}

/// The caller's socket for the pseudo-terminal.
fn connect_console(path: &Path) -> Result<OwnedFd, RuntimeError> {
    let failed = || RuntimeError::io(format!("connect to the console socket {path:?}"));
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| failed()(rustix::io::Errno::INVAL))?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket =
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(failed())?;
    short(dir.unwrap_or(Path::new(".")), name, |path| {
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
    })?
    .map_err(failed())?;
    Ok(socket)
}

/// What a process is made of.
struct ProcessParts<'a> {
    setup: &'a ExecSetup<'a>,
    born: &'a Birthplace,
    spec: &'a Spec,
    gate: Option<&'a StartGate>,
}

impl ProcessParts<'_> {
    /// Starts the helper.
    fn begin(
        &self,
        executor: &WallExecutor,
        number: &SiblingNumber,
    ) -> Result<Child, RuntimeError> {
        let birth = Birth {
            namespaces: 0,
            cgroup: self.born.born_in(),
        };
        process::fork_at(birth, || match self.help(executor, number) {
            Ok(()) => 0,
            Err(why) => executor.fail(&why),
        })
        .map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied if birth.cgroup.is_some() => ExecError::ClosedCgroup.into(),
            _ => RuntimeError::io("clone the helper of the exec process")(error),
        })
    }

    /// The helper. Its last step before the clone is the pid namespace.
    fn help(&self, executor: &WallExecutor, number: &SiblingNumber) -> Result<(), String> {
        let words = |error: EnforceError| crate::log::chain(&error);
        self.gate.into_iter().for_each(StartGate::leave_runtime);
        self.setup
            .leave_caller(self.spec, executor)
            .map_err(words)?;
        child::settle(self.spec.process().as_ref(), self.born)?;
        // It opens no mounts, and the container sees its limits once it is born (P08).
        limit_open_files(self.spec).map_err(words)?;
        self.setup.join(self.spec).map_err(words)?;
        // The process opens the container's /dev/ptmx, as root and through links, if it has a terminal.
        executor.close_ways_out().map_err(words)?;
        let wait = || self.gate.map_or(Ok(()), StartGate::wait);
        let work = || match child::take_name().and_then(|()| wait()) {
            Ok(()) => self.setup.run(self.spec, executor),
            Err(why) => executor.fail(&why),
        };
        sibling::fork_sibling(number, work)
            .map_err(|error| format!("clone the exec process: {error}"))
    }
}

/// A process that was killed before execve(2) has closed the pipe, and ended, too.
fn check_executed(child: &Child) -> Result<(), RuntimeError> {
    match process_id::has_executed(child.pid.as_raw_pid()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(FailureReport::step("the process ended before it executed its program").into())
        }
        Err(error) => Err(RuntimeError::io("look at the exec process")(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    fn shadow(kinds: &[&str]) -> Spec {
        let namespaces: Vec<_> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        let linux = json!({ "namespaces": namespaces });
        serde_json::from_value(json!({ "ociVersion": "1.0.2", "linux": linux })).unwrap()
    }

    #[test]
    fn a_process_joins_the_namespaces_of_its_container_and_no_others() {
        let all = ["mount", "cgroup", "uts", "ipc", "network", "pid", "user"];
        let expected = Namespaces::MOUNT
            | Namespaces::CONTROL_GROUP
            | Namespaces::HOST_NAME_AND_NIS_DOMAIN_NAME
            | Namespaces::INTER_PROCESS_COMMUNICATION
            | Namespaces::NETWORK
            | Namespaces::PROCESS_ID;
        assert_eq!(joined(&shadow(&all)), expected);
        let some = shadow(&["mount", "user", "time"]);
        assert_eq!(joined(&some), Namespaces::MOUNT | Namespaces::TIME);
        assert_eq!(joined(&shadow(&[])), Namespaces::empty());
    }

    #[test]
    fn the_init_process_is_the_recorded_one() {
        let own = i32::try_from(std::process::id()).unwrap();
        let init = ProcessId::of(own).unwrap();
        assert!(open_init(init).is_ok());
        let earlier = ProcessId {
            start_time: init.start_time - 1,
            ..init
        };
        assert!(matches!(open_init(earlier), Err(RuntimeError::NotRunning)));
    }

    #[test]
    fn a_console_socket_may_have_a_long_path() {
        let base = std::env::temp_dir().join(format!("agentbox-console-{}", std::process::id()));
        let dir = base.join("d".repeat(120));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(connect_console(&dir.join("none")).is_err());
        let listener = short(&dir, "s", |path| UnixListener::bind(path))
            .unwrap()
            .unwrap();
        connect_console(&dir.join("s")).unwrap();
        drop(listener);
        std::fs::remove_dir_all(base).unwrap();
    }
}
