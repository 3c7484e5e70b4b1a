//! Relays to servers of `wrap`'s user: their sockets for the workload, their logs, their start.

use std::fs::Permissions;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::audit;
use crate::runtime::RuntimeError;
use crate::runtime::network::control;
use crate::runtime::runs::{self, RunDir};
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::user_relay::{self, RelayWork, UserRelay, UserRelayConfig};
use crate::sys::user_namespace::Ids;

/// Starts a relay with the user's ids, for a container that waits for `start`.
pub fn start(
    place: &ContainerPaths,
    record: &Record,
    init: ProcessId,
    ids: Ids,
    work: RelayWork<'_>,
) -> Result<UserRelay, RuntimeError> {
    let journal = RunDir::of(place).open(match &work {
        RelayWork::Sign { .. } => audit::SSH,
    })?;
    let pid = rustix::process::Pid::from_raw(init.pid).ok_or(RuntimeError::NotRunning)?;
    let init = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(RuntimeError::io("open the container's process"))?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let exe = rustix::fs::open("/proc/self/exe", flags, Mode::empty())
        .map_err(RuntimeError::io("open the runtime's own file"))?;
    let config = UserRelayConfig {
        uid: ids.uid,
        gid: ids.gid,
        context: runs::context(record, identity::of(record)),
        journal: journal.as_fd(),
        init: init.as_fd(),
        work,
    };
    Ok(user_relay::start(config, exe.as_fd())?)
}

/// Makes a socket in a directory that the container sees. Only the user may connect, whom the workload runs as.
pub fn listen(dir: &Path, name: &str, ids: Ids) -> Result<UnixListener, RuntimeError> {
    let made = control::short(dir, name, |path| {
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        chown(path, Some(ids.uid), Some(ids.gid))?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    });
    made?.map_err(RuntimeError::io(format!("listen in {dir:?}")))
}
