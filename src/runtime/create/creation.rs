//! A container during `create`: what has been made of it so far, and how that is removed again.

use std::os::fd::OwnedFd;

use super::decide::BundleDecision;
use super::record::new_record;
use super::writable::WritableMount;
use crate::cgroup::birthplace::Birthplace;
use crate::cgroup::devices::DeviceAuthority;
use crate::cgroup::path;
use crate::cgroup::systemd_v1;
use crate::cli::{self, GlobalOptions};
use crate::runtime::delete;
use crate::runtime::error::RuntimeError;
use crate::runtime::network::engine_networks;
use crate::runtime::network::member::MemberSidecar;
use crate::runtime::network::wall::NetworkWall;
use crate::runtime::runs::RunDir;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::{ContainerPaths, Lock};
use crate::scratch::maker::DiskMaker;
use crate::sys::owned_child::OwnedChild;

/// What has been made of a container so far. The steps are in `begin.rs`, `process.rs` and `complete.rs`.
pub(super) struct Creation<'a> {
    pub(super) global: &'a GlobalOptions,
    pub(super) args: &'a cli::Create,
    pub(super) place: ContainerPaths,
    pub(super) decision: BundleDecision,
    /// Names everything that outlives this process. Removal goes by it.
    pub(super) record: Record,
    pub(super) running: CreationHelpers,
    /// The cgroup that our own code made for the init process; `None` if libcontainer made it.
    pub(super) born: Option<Birthplace>,
    /// Where its logs are: in the container's directory at first.
    pub(super) run: RunDir,
    lock: Lock,
}

/// Processes and guards that live until the container is created. Dropping this ends them, the newest first.
#[derive(Default)]
pub(super) struct CreationHelpers {
    /// This process's stay in the container's cgroup of `name=systemd`.
    pub(super) visit: Option<systemd_v1::Visit>,
    /// The child that sends the filter's listener to its agent.
    pub(super) listener_child: Option<OwnedChild>,
    /// The sidecar, and the maker of the inner network namespace.
    pub(super) network: Option<NetworkWall>,
    /// Instead of `network`: the sidecar of a container in another container's network.
    pub(super) member: Option<MemberSidecar>,
    /// The counts of packets of the inner network namespace.
    pub(super) traffic: Vec<OwnedFd>,
    /// The writable mounts, if writes are recorded.
    pub(super) writable: Vec<WritableMount>,
    /// The child that makes the scratch disk.
    pub(super) disk: Option<DiskMaker>,
}

/// A container that waits for `start`.
pub struct CreatedContainer {
    /// Its files.
    pub place: ContainerPaths,
    /// Its lock: until it is dropped, no other verb changes the record.
    pub lock: Lock,
    /// Its record, as it is saved.
    pub record: Record,
}

/// Takes the lock of a free id, whose cgroup is empty.
pub(super) fn reserve(
    place: &ContainerPaths,
    decision: &BundleDecision,
) -> Result<Lock, RuntimeError> {
    let lock = place.lock()?;
    if place.libcontainer_dir().exists() {
        return Err(RuntimeError::Exists(place.id.as_str().to_owned()));
    }
    // After the check of the id: an existing container of this name has processes in this cgroup.
    if let Err(error) = path::check(&decision.bundle.spec) {
        lock.remove()?;
        return Err(error.into());
    }
    Ok(lock)
}

impl<'a> Creation<'a> {
    /// Makes the container's directory; from here on there is something to remove.
    pub(super) fn begin(
        global: &'a GlobalOptions,
        args: &'a cli::Create,
        place: ContainerPaths,
        lock: Lock,
        decision: BundleDecision,
    ) -> Result<Self, RuntimeError> {
        place.make_dir()?;
        let mut record = new_record(global, &place, &decision);
        record.no_new_keyring = args.no_new_keyring;
        // Logged too: only those who know that something is missing run `explain`.
        if record.plan().is_some()
            && let Some(why) = engine_networks::unknown_crio(&global.root, &record.annotations)
        {
            log::warn!("{why}");
        }
        let run = RunDir::in_state(&place);
        Ok(Self {
            global,
            args,
            place,
            decision,
            record,
            running: CreationHelpers::default(),
            born: None,
            run,
            lock,
        })
    }

    /// Who sets the device rules.
    pub(super) fn ruler(&self) -> DeviceAuthority {
        match self.decision.plan() {
            Some(_) => DeviceAuthority::Policy,
            None => DeviceAuthority::Engine,
        }
    }

    /// Whether the init process gets a terminal.
    pub(super) fn has_terminal(&self) -> bool {
        self.decision.has_terminal()
    }

    /// Writes the record as it is now.
    pub(super) fn save_record(&self) -> Result<(), RuntimeError> {
        self.record.save(&self.place.dir())
    }

    /// The container is complete.
    pub(super) fn done(self) -> CreatedContainer {
        CreatedContainer {
            place: self.place,
            lock: self.lock,
            record: self.record,
        }
    }

    /// Ends and removes everything that was made. Failures are only logged: the caller gets the error of the failed
    /// step.
    pub(super) fn take_away(self) {
        drop(self.running);
        // A container that was never created leaves no run.
        self.run.discard();
        if let Err(cleanup) = delete::remove_all(&self.place, Some(&self.record)) {
            log::error!("after a failed create: {}", crate::log::chain(&cleanup));
        }
        if let Err(left) = self.lock.remove() {
            log::error!("after a failed create: {}", crate::log::chain(&left));
        }
    }
}
