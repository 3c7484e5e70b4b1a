//! Mounts that runc refuses, in its words.

use std::path::Path;

use oci_spec::runtime::Mount;

use super::mount::has;
use crate::probe::is_bind;
use crate::runtime::create::error::{CreateError, MountRefusal};
use crate::runtime::error::RuntimeError;

/// The error, for `Err`.
pub(super) fn refused(why: MountRefusal) -> RuntimeError {
    CreateError::from(why).into()
}

/// Refuses `remount` on a new mount, as the kernel and runc do; libcontainer drops it silently. Refuses `idmap` on a
/// new file system too.
pub(super) fn check_remount(mount: &Mount) -> Result<(), RuntimeError> {
    let option = match (has(mount, &["remount"]), is_bind(mount)) {
        (true, _) => "remount",
        (false, false) if has(mount, &["idmap", "ridmap"]) => "idmap",
        _ => return Ok(()),
    };
    Err(refused(MountRefusal::Option {
        option,
        source_path: mount.source().clone().unwrap_or_default(),
        destination: mount.destination().clone(),
        typ: mount.typ().clone().unwrap_or_default(),
    }))
}

/// /dev, /proc and /sys must be real directories of the image: libcontainer works below them by path, and one of them
/// may have become a symbolic link since the bundle was read (CVE-2023-27561).
pub(super) fn check_kernels(asked: &Path, found: &Path) -> Result<(), RuntimeError> {
    let kernels = ["/dev", "/proc", "/sys"]
        .iter()
        .any(|k| asked == Path::new(k));
    if !kernels || asked == found {
        return Ok(());
    }
    Err(refused(MountRefusal::Moved {
        asked: asked.to_owned(),
        found: found.to_owned(),
    }))
}

/// Allows only a procfs at /proc, and below it only what lxcfs emulates (runc's list). A program that reads its own
/// labels and ids from /proc must not get false ones (CVE-2019-16884).
pub(super) fn check_proc(mount: &Mount, destination: &Path) -> Result<(), RuntimeError> {
    const EMULATED: &[&str] = &[
        "/proc/cpuinfo",
        "/proc/diskstats",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/swaps",
        "/proc/uptime",
        "/proc/loadavg",
        "/proc/slabinfo",
        "/proc/net/dev",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/crypto/fips_enabled",
    ];
    let refuse = |why| {
        Err(refused(MountRefusal::Proc {
            source_path: mount.source().clone().unwrap_or_default(),
            destination: destination.to_owned(),
            why,
        }))
    };
    if destination == Path::new("/proc") {
        let proc = mount.typ().as_deref() == Some("proc");
        let bound = is_bind(mount)
            && mount.source().as_ref().is_some_and(|source| {
                let found = rustix::fs::statfs(source);
                found.is_ok_and(|s| s.f_type == libc::PROC_SUPER_MAGIC)
            });
        return match proc || bound {
            true => Ok(()),
            false => refuse("it is not of type proc"),
        };
    }
    let inside = destination.starts_with("/proc");
    if inside && !EMULATED.iter().any(|e| destination == Path::new(e)) {
        return refuse("it is inside /proc");
    }
    Ok(())
}
