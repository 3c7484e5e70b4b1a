//! The steps of `create` before a process of the container exists.

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
use crate::runtime::agent::{self, Moment, SeccompAgent};
use crate::runtime::error::RuntimeError;
use crate::runtime::filter;
use crate::runtime::foreground::notify;
use crate::runtime::hooks::{self, CreateHooks};
use crate::runtime::network::member::MemberSidecar;
use crate::runtime::network::wall::NetworkWall;
use crate::runtime::state::{identity, report};
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

    /// The scratch disk, if the plan has one.
    pub(super) fn begin_disk(&mut self) -> Result<(), RuntimeError> {
        self.running.disk = disk::begin(&self.record, &self.decision.bundle.spec)?;
        Ok(())
    }

    /// Begins the sidecar and the inner network namespace. A container that joins another one's network gets a sidecar
    /// for denied calls only.
    pub(super) fn begin_network(&mut self) -> Result<(), RuntimeError> {
        // Wiped when this function ends, so that processes forked later have no copy of secrets.
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
                let (reader, tool) = ((listener, reading.as_ref()), identity::tool(&self.record));
                let network = NetworkWall::begin(plan, spec, &self.place, reader, tool)?;
                self.running.network.insert(network).sidecar()
            }
        };
        self.record.sidecar = Some(sidecar.clone());
        // Saved before it is used: `delete --force` finds it if this process dies here.
        self.save_record()
    }

    /// The hooks that libcontainer runs at `create`; `None` if the spec has none for it.
    pub(super) fn write_down_hooks(&self) -> Result<Option<CreateHooks>, RuntimeError> {
        CreateHooks::new(
            &self.decision.bundle.spec,
            &self.record.hook_state(),
            &self.decision.bundle.rootfs,
            hooks::default_env(&self.record),
        )
    }

    /// The spec that libcontainer reads, and the files of the network wall.
    pub(super) fn write_shadow(&self, hooks: Option<&CreateHooks>) -> Result<Shadow, RuntimeError> {
        write_shadow(&self.place.dir(), &self.decision, hooks)
    }

    /// The device rules of a node with cgroup v2 only.
    pub(super) fn compile_device_program(
        &self,
        spec: &Spec,
    ) -> Result<Option<DeviceProgram>, RuntimeError> {
        match unprivileged::inside() {
            // In a user namespace a device program cannot be loaded, and none is needed: the kernel refuses mknod(2)
            // there. The container's nodes are the node's harmless ones, with their own modes.
            Some(_) => Ok(None),
            None => Ok(devices::compile(spec, self.ruler())?),
        }
    }

    /// Detached copies of the checked sources, and their mount points in the image.
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

    /// Detached copies of the image's layers, if a private mount lies over them.
    pub(super) fn copy_layers(&mut self) -> Result<Option<ImageLayers>, RuntimeError> {
        // Only the init process inherits the copies.
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

    /// In learn mode: keeps the writable mounts, before the init process has them.
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

    /// The pipe through which the init process reports errors: its end, and ours.
    pub(super) fn make_report_pipe(&self) -> Result<(OwnedFd, OwnedFd), RuntimeError> {
        let path = self.place.report();
        Ok((report::make(&path)?, report::reader(&path)?))
    }

    /// Records the hooks that `start` and `delete` run.
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

    /// The way to the seccomp agent: without a policy a child, now; with a policy `start`, when the filter is loaded.
    pub(super) fn begin_agent(
        &mut self,
        agent: Option<SeccompAgent>,
    ) -> Result<Option<AgentSocket>, RuntimeError> {
        let Some(mut agent) = agent else {
            return Ok(None);
        };
        let socket = if self.decision.plan().is_some() {
            agent.socket_kept_in_init()?
        } else {
            let report = self.place.report();
            let (listener_child, socket) =
                agent::serve_in_child(&agent, &self.record, &report, Moment::Creating)?;
            self.running.listener_child = Some(listener_child);
            socket
        };
        agent.save(&self.place.dir())?;
        Ok(Some(socket))
    }

    /// Sends the sidecar its configuration.
    pub(super) fn configure_sidecar(&mut self) -> Result<(), RuntimeError> {
        match (&mut self.running.network, &mut self.running.member) {
            (Some(network), _) => network.configure(),
            (None, Some(member)) => member.configure(),
            (None, None) => Ok(()),
        }
    }

    /// Enters the cgroup v1 hierarchy that libcontainer does not know. systemd puts its own scopes there.
    pub(super) fn enter_systemd_cgroup(&mut self, spec: &Spec) -> Result<(), RuntimeError> {
        let is_left = !self.global.systemd_cgroup && !first_process::is_ours(self.global, spec);
        if let Some(path) = path::named(spec).filter(|_| is_left) {
            self.running.visit = Some(systemd_v1::Visit::begin(&path)?);
        }
        Ok(())
    }
}
