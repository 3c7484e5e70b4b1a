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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn spec_mount(typ: &str, source: &str, options: &[&str]) -> Mount {
        let mut mount = Mount::default();
        mount.set_typ(Some(typ.to_owned()));
        mount.set_source(Some(PathBuf::from(source)));
        let options: Vec<String> = options.iter().map(|one| (*one).to_owned()).collect();
        mount.set_options(Some(options));
        mount
    }

    #[test]
    fn options_that_libcontainer_drops_are_refused() {
        for (typ, options, named) in [
            ("bind", &["bind", "remount"][..], Some("remount")),
            ("tmpfs", &["remount"], Some("remount")),
            ("tmpfs", &["idmap"], Some("idmap")),
            ("tmpfs", &["ridmap"], Some("idmap")),
            ("bind", &["bind", "idmap"], None),
            ("tmpfs", &["nosuid"], None),
        ] {
            let found = check_remount(&spec_mount(typ, "x", options));
            let words = found.err().map(|error| crate::log::chain(&error));
            let expected = named.map(|name| format!("the option {name} is not for a new mount"));
            match (&words, &expected) {
                (Some(words), Some(expected)) => assert!(words.contains(expected), "{words}"),
                (words, expected) => assert_eq!(words, expected, "{typ} {options:?}"),
            }
        }
    }

    #[test]
    fn a_kernels_directory_that_is_a_link_is_refused() {
        let moved = |asked: &str, found: &str| check_kernels(Path::new(asked), Path::new(found));
        assert!(moved("/proc", "/proc").is_ok() && moved("/var/run", "/run").is_ok());
        for kernel in ["/dev", "/proc", "/sys"] {
            assert!(moved(kernel, "/elsewhere").is_err(), "{kernel}");
        }
        // A place below one of them may be a link of the image.
        assert!(moved("/dev/shm", "/run/shm").is_ok());
    }

    #[test]
    fn only_procfs_and_the_emulated_files_are_mounted_at_proc() {
        let at = |mount: &Mount, at: &str| check_proc(mount, Path::new(at)).is_ok();
        let proc = spec_mount("proc", "proc", &[]);
        let memory = spec_mount("tmpfs", "tmpfs", &[]);
        assert!(at(&proc, "/proc") && !at(&memory, "/proc"));
        let bind = |source| spec_mount("bind", source, &["bind"]);
        // This test's own procfs, and a directory.
        assert!(at(&bind("/proc"), "/proc") && !at(&bind("/etc"), "/proc"));
        assert!(at(&bind("/etc"), "/proc/cpuinfo") && at(&memory, "/procfs"));
        for inside in ["/proc/self/attr", "/proc/cpuinfo/x", "/proc/sys"] {
            assert!(!at(&bind("/etc"), inside), "{inside}");
        }
    }
}
