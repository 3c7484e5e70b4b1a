//! The steps of `create` after the process exists, while it waits for `start`.

use libcontainer::container::Container;
use oci_spec::runtime::Spec;

use super::creation::Creation;
use super::error::CreateError;
use super::{disk, neighbours, writable};
use crate::audit::Event;
use crate::cgroup::CgroupError;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::devices;
use crate::cgroup::path;
use crate::cgroup::systemd_v1;
use crate::devices::DeviceProgram;
use crate::runtime::clock;
use crate::runtime::error::RuntimeError;
use crate::runtime::exec::time;
use crate::runtime::files::write_pid;
use crate::runtime::input::descriptors::StandardStreams;
use crate::runtime::input::node_files;
use crate::runtime::launch::{RunRetention, StandardError, Streams};
use crate::runtime::network::calls;
use crate::runtime::network::counted;
use crate::runtime::pidfd;
use crate::runtime::runs::{self, RunDir, RunStart};
use crate::runtime::state::census::{Census, Namespace};
use crate::runtime::state::identity;
use crate::runtime::state::record::ProcessId;
use crate::runtime::unprivileged;
use crate::seccomp::NotifyListener;
use crate::sidecar::WatchedMount;

impl Creation<'_> {
    /// Waits for the child that makes the disk, and records it if memory is used instead.
    pub(super) fn settle_disk(&mut self) -> Result<(), RuntimeError> {
        disk::settle(&mut self.record, self.running.disk.take())
    }

    /// Takes this process out of the container's cgroup.
    pub(super) fn leave_systemd_cgroup(&mut self) -> Result<(), RuntimeError> {
        let visit = self.running.visit.take();
        Ok(visit.map_or(Ok(()), systemd_v1::Visit::end)?)
    }

    /// Ends the child that served the init process while libcontainer kept this process busy.
    pub(super) fn end_agents_child(&mut self) {
        drop(self.running.listener_child.take());
    }

    /// Finds the process and its cgroups, and writes them down.
    pub(super) fn record_process(
        &mut self,
        container: &Container,
    ) -> Result<ProcessId, RuntimeError> {
        let pid = container.pid().map(nix::unistd::Pid::as_raw);
        path::keep_from_oom_killer(&self.decision.bundle.spec)?;
        self.record.init = pid.and_then(ProcessId::of);
        let Some(init) = self.record.init else {
            return Err(CreateError::Ended.into());
        };
        self.record.controllers = Some(Controllers::of(init.pid)?);
        self.save_record()?;
        Ok(init)
    }

    /// Checks with the kernel that the init process is in the cgroup made for it.
    pub(super) fn check_cgroup(&self) -> Result<(), RuntimeError> {
        let controllers = self.record.controllers()?;
        match &self.born {
            Some(born) if !born.holds(&controllers) => {
                Err(CgroupError::NoneOfItsOwn(controllers.clone()).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the process joined the namespaces that were checked, wherever their paths lead now.
    pub(super) fn check_joined_namespaces(&self, init: ProcessId) -> Result<(), RuntimeError> {
        neighbours::verify(&self.decision.joined, init, self.record.shared_network())
    }

    /// Applies the device rules. On v1, under a policy, takes back what libcontainer added to its own.
    pub(super) fn limit_devices(
        &self,
        program: Option<&DeviceProgram>,
        spec: &Spec,
    ) -> Result<(), RuntimeError> {
        let controllers = self.record.controllers()?;
        // A user's own containers need none: no user may make nodes, and the image is the user's.
        let needs_some = self.record.plan().is_some() && unprivileged::inside().is_none();
        if program.is_none() && needs_some && controllers.v1("devices").is_none() {
            return Err(CgroupError::NoDevices.into());
        }
        match (program, &self.born) {
            (Some(program), _) => devices::attach(program, &controllers)?,
            (None, Some(_)) => devices::write(spec, self.ruler(), &controllers)?,
            // libcontainer has written them.
            (None, None) if self.record.plan().is_some() => devices::take_back(spec, &controllers)?,
            (None, None) => {}
        }
        Ok(())
    }

    /// In learn mode: from now on only the container writes to these mounts. Its init process has made all of them.
    pub(super) fn watch_writes(&mut self) -> (Vec<WatchedMount>, Vec<Event>) {
        let all = std::mem::take(&mut self.running.writable);
        match (&self.running.network, &self.running.member) {
            (None, None) => (Vec::new(), writable::not_watched(all)),
            _ => writable::watch(all),
        }
    }

    /// Makes the run's directory, with `events` among the first lines of its log.
    pub(super) fn begin_run(
        &mut self,
        leaves: RunRetention,
        events: Vec<Event>,
    ) -> Result<(), RuntimeError> {
        if leaves == RunRetention::Nothing {
            // The log has been in the container's own directory from the beginning.
            return Ok(());
        }
        let mounts = self.decision.plan().map(|plan| &plan.filesystem.mounts[..]);
        let config = node_files::config(self.global);
        let process = self.decision.bundle.spec.process().as_ref();
        let first = RunStart {
            context: runs::context(&self.record, identity::of(&self.record)),
            events: runs::events::created(process, &self.record)
                .into_iter()
                .chain(events)
                .collect(),
            record: &self.record,
        };
        self.run = RunDir::begin(&self.place, mounts.unwrap_or_default(), config, &first)?;
        Ok(())
    }

    /// The container is complete: keeps its record beside its log.
    pub(super) fn keep_record(&self) -> Result<(), RuntimeError> {
        let config = node_files::config(self.global);
        self.run.keep_complete(&self.record, config)
    }

    /// Gives the sidecar the inner network namespace and the listener of denied calls. The sidecar then reports that it
    /// is confined.
    pub(super) fn finish_network(
        &mut self,
        init: ProcessId,
        watched: Vec<WatchedMount>,
    ) -> Result<Option<Namespace>, RuntimeError> {
        let calls = || calls::open(&self.place, &self.record, &self.run);
        if let Some(member) = self.running.member.take() {
            let calls = calls()?;
            member.finish(init, &self.place, &mut self.record, (calls, watched))?;
            return Ok(None);
        }
        let Some(network) = self.running.network.take() else {
            return Ok(None);
        };
        let answers = self.decision.listener() == NotifyListener::Sidecar;
        let calls = answers.then(calls).transpose()?;
        let finished = network.finish(
            init,
            &self.place,
            &mut self.record,
            &self.run,
            (calls, watched),
        )?;
        self.running.traffic = finished.traffic;
        Ok(finished.namespace)
    }

    /// Starts the processes that keep the container's time, if it has a limit.
    pub(super) fn begin_clock(&mut self, init: ProcessId) -> Result<(), RuntimeError> {
        let plan = self.record.plan();
        if plan.is_some_and(|plan| plan.exec_time.is_some()) {
            time::check(&self.record.controllers()?)?;
        }
        let Some(time) = plan.and_then(|plan| plan.time) else {
            return Ok(());
        };
        let traffic = match self.record.shared_network() {
            // The init process is in that network already; in its own it is from `start` on.
            Some(_) => counted::of_traffic(init),
            None => std::mem::take(&mut self.running.traffic),
        };
        let begun = clock::begin(&self.place, &self.record, time, init, traffic)?;
        self.record.timekeeper = Some(begun);
        self.save_record()
    }

    /// Adds the container's namespaces to the index in which joining containers find it.
    pub(super) fn enter_index(
        &self,
        init: ProcessId,
        inner_network: Option<Namespace>,
    ) -> Result<(), RuntimeError> {
        let inside = neighbours::inside(init, &self.decision.joined, inner_network)?;
        Census::of_node().enter(&self.place, &inside)
    }

    /// Whether the container's standard error is this process's.
    pub(super) fn tells(&self, streams: &Streams<'_>) -> Option<StandardError> {
        let own = streams.standard() == StandardStreams::Callers && !self.decision.wrapped;
        (own && streams.leaves == RunRetention::Run && !self.has_terminal())
            .then_some(StandardError)
    }

    /// Begins the container's standard error with the requests that were not granted, if there are any. Nothing of the
    /// container has run.
    pub(super) fn tell_caller(&self, stderr: Option<StandardError>) -> Result<(), RuntimeError> {
        let notice = self
            .record
            .plan()
            .and_then(|plan| plan.notice(&self.record.id, identity::tool(&self.record)));
        if let (Some(stderr), Some(line)) = (stderr, notice) {
            stderr.begin(&line);
        }
        Ok(())
    }

    /// Reports the process to the caller. A failure fails `create`: libcontainer would go on, and the caller would not
    /// know of the process.
    pub(super) fn announce(&self, init: ProcessId) -> Result<(), RuntimeError> {
        if let Some(path) = &self.args.pid_file {
            write_pid(path, init.pid)?;
        }
        match &self.args.pidfd_socket {
            Some(socket) => pidfd::send(socket, init.pid),
            None => Ok(()),
        }
    }
}
