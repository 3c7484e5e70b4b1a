//! The steps of `create` before there is a process of the container.

use std::os::fd::OwnedFd;

use oci_spec::runtime::{Hooks, Spec};

use super::creation::Creation;
use super::disk;
use super::first_process;
use super::judged_mounts;
use super::shadow::{Shadow, write_shadow};
use super::writable;
use crate::cgroup::devices;
use crate::cgroup::path;
use crate::cgroup::systemd_v1;
use crate::devices::DeviceProgram;
use crate::enforce::image::ImageLayers;
use crate::enforce::listener::AgentSocket;
use crate::enforce::rootfs::OwnMount;
use crate::kernel::mount_options::{Bits, MountReach};
use crate::policy::RootAccess;
use crate::runtime::RuntimeError;
use crate::runtime::agent::{Agent, ListenerChild, Moment};
use crate::runtime::filter;
use crate::runtime::foreground::notify;
use crate::runtime::hooks::{self, CreateHooks};
use crate::runtime::network::member::MemberSidecar;
use crate::runtime::network::wall::NetworkWall;
use crate::runtime::state::report;
use crate::runtime::unprivileged;
use crate::seccomp::NotifyListener;

impl Creation<'_> {
    /// sd_notify(3) for a container without a policy.
    pub(super) fn mount_readiness_socket(&mut self) -> Result<(), RuntimeError> {
        match notify::host() {
            Some(_) if self.decision.plan().is_none() => {
                notify::prepare(&self.place, &mut self.decision.bundle.spec)
            }
            _ => Ok(()),
        }
    }

    /// The disk for what is thrown away, where the plan wants one.
    pub(super) fn begin_disk(&mut self) -> Result<(), RuntimeError> {
        self.running.disk = disk::begin(&self.record, &self.decision.bundle.spec)?;
        Ok(())
    }

    /// The sidecar and the inner network namespace; or another container's, which is joined, and a sidecar for denied calls alone.
    pub(super) fn begin_network(&mut self) -> Result<(), RuntimeError> {
        // Wiped at this function's end: what is forked later has no copy of secrets.
        let reading = self.decision.given.reading.take();
        let Some(plan) = self.decision.plan() else {
            return Ok(());
        };
        let (spec, listener) = (&self.decision.bundle.spec, self.decision.listener());
        let sidecar = match &plan.network.shared {
            Some(shared) => {
                self.record.netns_cookie = Some(shared.cookie);
                if listener != NotifyListener::Sidecar {
                    return Ok(());
                }
                let member = MemberSidecar::begin(plan, spec, &self.place)?;
                self.running.member.insert(member).sidecar()
            }
            None => {
                let network =
                    NetworkWall::begin(plan, spec, &self.place, (listener, reading.as_ref()))?;
                self.running.network.insert(network).sidecar()
            }
        };
        self.record.sidecar = Some(sidecar.clone());
        // Before it is used: `delete --force` finds it if this process dies here.
        self.save_record()
    }

    /// The hooks that libcontainer is to run at `create`; none where the spec has none of them.
    pub(super) fn write_down_hooks(&self) -> Result<Option<CreateHooks>, RuntimeError> {
        let none = Hooks::default();
        CreateHooks::new(
            self.decision.bundle.spec.hooks().as_ref().unwrap_or(&none),
            &self.record.told(),
            &self.decision.bundle.rootfs,
            hooks::default_env(&self.record),
        )
    }

    /// The spec that libcontainer reads, and the files of the network wall.
    pub(super) fn write_shadow(&self, hooks: Option<&CreateHooks>) -> Result<Shadow, RuntimeError> {
        write_shadow(&self.place.dir(), &self.decision, hooks)
    }

    /// The device rules of a node that has cgroup v2 alone.
    pub(super) fn compile_device_program(
        &self,
        spec: &Spec,
    ) -> Result<Option<DeviceProgram>, RuntimeError> {
        match unprivileged::inside() {
            // It may not load one, and needs none: the kernel lets nobody make a node in a user namespace (mknod(2)), and those
            // of the container are the node's harmless ones, with their own modes.
            Some(_) => Ok(None),
            None => Ok(devices::compile(spec, self.ruler())?),
        }
    }

    /// Detached copies of what was judged, and the places in the image where they go.
    pub(super) fn open_judged_mounts(&self) -> Result<Vec<OwnMount>, RuntimeError> {
        let Some(plan) = self.decision.plan() else {
            return Ok(Vec::new());
        };
        let decision = &self.decision;
        let mounts = judged_mounts::prepare(plan, &decision.sources, &self.place.dir())?;
        let plan = &plan.filesystem;
        if plan.root == RootAccess::ReadOnly {
            judged_mounts::make_mount_points(&decision.bundle.rootfs, plan, &mounts)?;
        }
        Ok(mounts)
    }

    /// Detached copies of the image's layers, where something private lies over them.
    pub(super) fn copy_layers(&mut self) -> Result<Option<ImageLayers>, RuntimeError> {
        // The first process inherits the copies alone.
        let image = self.decision.image.take();
        let Some(image) = image.filter(|image| !image.layers.is_empty()) else {
            return Ok(None);
        };
        let attributes = Bits::READ_ONLY.and(Bits::NO_PRIVILEGE);
        let trees = image.layers.iter();
        let trees = trees.map(|layer| judged_mounts::copy(layer, attributes, MountReach::One));
        let trees = trees
            .collect::<Result<_, _>>()
            .map_err(RuntimeError::io("copy the mounts of the image's layers"))?;
        Ok(Some(ImageLayers {
            trees,
            metacopy: image.metacopy,
        }))
    }

    /// In learn mode the mounts that may be written, before the first process has them.
    pub(super) fn keep_writable(&mut self, mounts: &[OwnMount]) -> Result<(), RuntimeError> {
        if let Some(decided) = &self.decision.decided {
            self.running.writable = writable::keep(decided, mounts)?;
        }
        Ok(())
    }

    /// The syscall wall's program, as bytes.
    pub(super) fn keep_filter(&self) -> Result<(), RuntimeError> {
        match &self.decision.filter {
            Some(filter) => filter::save(&self.place.filter(), filter),
            None => Ok(()),
        }
    }

    /// The pipe by which the first process says what fails: its end, and ours.
    pub(super) fn make_report_pipe(&self) -> Result<(OwnedFd, OwnedFd), RuntimeError> {
        let path = self.place.report();
        Ok((report::make(&path)?, report::reader(&path)?))
    }

    /// The hooks that `start` and `delete` are to run.
    pub(super) fn record_hooks(&mut self) -> Result<(), RuntimeError> {
        self.record.hooks = self
            .decision
            .bundle
            .spec
            .hooks()
            .clone()
            .unwrap_or_default();
        if self.record.hooks == Hooks::default() {
            return Ok(());
        }
        self.save_record()
    }

    /// The way to the seccomp agent: without a policy by a child, now; under one by `start`, when the filter is loaded.
    pub(super) fn begin_agent(
        &mut self,
        agent: Option<Agent>,
    ) -> Result<Option<AgentSocket>, RuntimeError> {
        let Some(mut agent) = agent else {
            return Ok(None);
        };
        let socket = if self.decision.plan().is_some() {
            agent.socket_kept_in_init()?
        } else {
            let report = self.place.report();
            let (listener_child, socket) =
                ListenerChild::spawn(&agent, &self.record, &report, Moment::Creating)?;
            self.running.listener_child = Some(listener_child);
            socket
        };
        agent.save(&self.place.dir())?;
        Ok(Some(socket))
    }

    /// Tells the sidecar what it is to be.
    pub(super) fn configure_sidecar(&mut self) -> Result<(), RuntimeError> {
        match (&mut self.running.network, &mut self.running.member) {
            (Some(network), _) => network.configure(),
            (None, Some(member)) => member.configure(),
            (None, None) => Ok(()),
        }
    }

    /// The hierarchy of cgroup v1 that libcontainer does not know. systemd puts its own scopes there.
    pub(super) fn enter_systemd_cgroup(&mut self, spec: &Spec) -> Result<(), RuntimeError> {
        let is_left = !self.global.systemd_cgroup && !first_process::is_ours(self.global, spec);
        if let Some(path) = path::named(spec).filter(|_| is_left) {
            self.running.visit = Some(systemd_v1::Visit::begin(&path)?);
        }
        Ok(())
    }
}
