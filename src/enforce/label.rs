//! The SELinux label of the program.

use std::os::fd::OwnedFd;

use oci_spec::runtime::Spec;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::error::EnforceError;
use super::process;

/// Sets the label for execve, which libcontainer does not (selinux(8), proc(5) attr/exec).
pub fn set(spec: &Spec) -> Result<(), EnforceError> {
    let Some(label) = process::of(spec)
        .and_then(|p| p.selinux_label().as_ref())
        .filter(|l| !l.is_empty())
    else {
        return Ok(());
    };
    let step = || format!("set the SELinux label {label:?}");
    let file = own_attribute("attr/exec").map_err(EnforceError::step(step()))?;
    rustix::io::write(&file, label.as_bytes()).map_err(EnforceError::step(step()))?;
    Ok(())
}

/// A file of this thread in procfs, and in no other file system. The container's mounts decide what lies at /proc, and
/// a label written to another file leaves the process without one (CVE-2019-16884, CVE-2025-52881).
fn own_attribute(name: &str) -> rustix::io::Result<OwnedFd> {
    const ROOT: u64 = 1;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
    let is_procfs = rustix::fs::fstatfs(&proc)?.f_type == libc::PROC_SUPER_MAGIC;
    if !is_procfs || rustix::fs::fstat(&proc)?.st_ino != ROOT {
        return Err(rustix::io::Errno::XDEV);
    }
    // Nor in another mount below it.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let path = format!("thread-self/{name}");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat2(&proc, path, flags, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_written_in_procfs_of_this_thread() {
        // oom_score_adj exists in every kernel with CONFIG_PROC_FS, attr/exec only with a security module.
        let file = own_attribute("oom_score_adj").unwrap();
        let magic = rustix::fs::fstatfs(&file).unwrap().f_type;
        assert_eq!(magic, libc::PROC_SUPER_MAGIC);
        for outside in [
            "../../../etc/hostname",
            "cwd/Cargo.toml",
            "root/etc/hostname",
        ] {
            assert!(own_attribute(outside).is_err(), "{outside}");
        }
    }
}
