//! The sidecar of a container in another one's network: it answers and logs this container's denied calls. The first
//! container's sidecar serves the network.

use std::os::fd::{AsFd, OwnedFd};

use oci_spec::runtime::Spec;

use super::companion::sidecar_config;
use super::denial_dir;
use super::wall::{open_namespace, open_process, spawn};
use crate::plan::Plan;
use crate::runtime::RuntimeError;
use crate::runtime::network::counted;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::seccomp::NotifyListener;
use crate::sidecar::{AttachRequest, CallsFds, SidecarRecord, StartingSidecar, WatchedMount};

/// Such a sidecar while the container is created.
pub struct MemberSidecar(StartingSidecar);

impl MemberSidecar {
    /// Starts it.
    pub fn begin(plan: &Plan, spec: &Spec, place: &ContainerPaths) -> Result<Self, RuntimeError> {
        let config = sidecar_config(plan, spec, place, NotifyListener::Sidecar);
        Ok(Self(spawn(&config)?))
    }

    /// The socket end through which the init process sends its listener.
    pub fn init_end(&mut self) -> Option<OwnedFd> {
        self.0.take_init_end()
    }

    /// Sends the sidecar its configuration: as late as possible, and before libcontainer begins.
    pub fn configure(&mut self) -> Result<(), RuntimeError> {
        Ok(self.0.configure()?)
    }

    /// What `delete` needs to know of the sidecar.
    pub fn sidecar(&self) -> &SidecarRecord {
        self.0.record()
    }

    /// Gives the sidecar what it needs, and waits until it reports that it is confined.
    pub fn finish(
        self,
        init: ProcessId,
        place: &ContainerPaths,
        record: &mut Record,
        (calls, watched): (CallsFds, Vec<WatchedMount>),
    ) -> Result<(), RuntimeError> {
        let init_pidfd = open_process(init)?;
        // The shared network, which has no way out: the sidecar does not stay in the node's.
        let shared = open_namespace(init.pid, "net")?;
        let attach = AttachRequest {
            netns: Some(shared.as_fd()),
            init_pidfd: init_pidfd.as_fd(),
            inner: None,
            shown: denial_dir::open(record, place)?,
            watched,
            counts: counted::of_limits(record.controllers.as_ref(), record.plan()),
            calls: Some(calls),
            serving: None,
        };
        record.sidecar = Some(self.0.attach(attach)?);
        Ok(())
    }
}
