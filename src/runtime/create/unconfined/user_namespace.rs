//! The container's user namespace, if libcontainer cannot make it or a mount needs it first.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use oci_spec::runtime::{LinuxIdMapping, LinuxNamespaceType, Spec};
use rustix::fs::{Mode, OFlags};

use super::mount::is_id_mapped;
use crate::runtime::error::RuntimeError;
use crate::sys::user::make_namespace;

/// Makes the container's user namespace if libcontainer cannot, or if a mount needs it first. libcontainer calls
/// newuidmap(1) for more than one mapping; root does not need that.
pub(super) fn user_namespace(spec: &mut Spec) -> Result<Option<OwnedFd>, RuntimeError> {
    let mapped = spec.mounts().iter().flatten().any(is_id_mapped);
    let Some(linux) = spec.linux_mut() else {
        return Ok(None);
    };
    let user = |n: &&mut oci_spec::runtime::LinuxNamespace| n.typ() == LinuxNamespaceType::User;
    let uids = linux.uid_mappings().clone().unwrap_or_default();
    let gids = linux.gid_mappings().clone().unwrap_or_default();
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    let Some(namespace) = namespaces.iter_mut().find(user) else {
        return Ok(None);
    };
    if let Some(path) = namespace.path() {
        let step = format!("open the user namespace {path:?}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        return match mapped {
            true => rustix::fs::open(path, flags, Mode::empty())
                .map(Some)
                .map_err(RuntimeError::io(step)),
            false => Ok(None),
        };
    }
    if !mapped && uids.len() <= 1 && gids.len() <= 1 || uids.is_empty() || gids.is_empty() {
        return Ok(None);
    }
    let made = make_namespace(&lines(&uids), &lines(&gids))
        .map_err(RuntimeError::io("make the user namespace"))?;
    // libcontainer's processes are copies of this one, with its descriptors.
    namespace.set_path(Some(PathBuf::from(format!(
        "/proc/self/fd/{}",
        made.as_raw_fd()
    ))));
    linux.set_namespaces(Some(namespaces));
    linux.set_uid_mappings(None);
    linux.set_gid_mappings(None);
    Ok(Some(made))
}

/// The text of /proc/PID/uid_map.
pub(super) fn lines(mappings: &[LinuxIdMapping]) -> String {
    let line = |m: &LinuxIdMapping| format!("{} {} {}\n", m.container_id(), m.host_id(), m.size());
    mappings.iter().map(line).collect()
}
