//! The kernel's file systems of a container under a policy, with the masks and read-only paths in them. The init
//! process makes them itself, in few calls. libcontainer, which makes /proc and /dev because it needs them earlier,
//! looks all of /proc up anew for each mount, some seventy calls.
//!
//! Flags, options and order are libcontainer's: the first mount is the first line of /proc/self/mountinfo.
//! [`super::hidden`] reads back that every mask is in place.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::cover::{FollowLinks, Masks, ReadOnlyScope, attach, read_only};
use super::error::EnforceError;
use super::file_system::NewFileSystem;
use super::rootfs::make_mount_point;
use crate::kernel::mount_options;
use crate::plan::FileKind;

/// The kernel's file systems that the init process makes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KernelFiles {
    /// Mounts, in order.
    pub mounts: Vec<KernelMountStep>,
    /// Paths to be made read-only.
    pub readonly: Vec<PathBuf>,
    /// Paths to be made empty.
    pub masked: Vec<PathBuf>,
    /// linux.mountLabel, if the node has SELinux.
    pub label: Option<String>,
}

/// One mount of a kernel file system.
#[derive(Debug, PartialEq, Eq)]
pub struct KernelMountStep {
    /// Its path in the container.
    pub destination: PathBuf,
    /// Its source.
    pub what: KernelSource,
}

/// The source of such a mount.
#[derive(Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A new file system.
    FileSystem {
        /// Its type.
        kind: String,
        /// Its source in /proc/self/mountinfo.
        source: PathBuf,
        /// Options as mount(8) takes them.
        options: Vec<String>,
    },
    /// A tmpfs with the hierarchies of cgroup v1: the names of their directories, `cpu,cpuacct` or `systemd`.
    Hierarchies(Vec<String>),
}

impl KernelMountStep {
    /// Whether this mounts a file system of this type at this path.
    pub fn is(&self, at: &Path, typ: &str) -> bool {
        let same = matches!(&self.what, KernelSource::FileSystem { kind, .. } if kind == typ);
        same && self.destination == at
    }
}

/// Makes the mounts, then the read-only paths and the masks in them.
pub fn make(files: &KernelFiles) -> Result<(), EnforceError> {
    let label = files.label.as_deref();
    files.mounts.iter().try_for_each(|m| make_one(m, label))?;
    let readonly = |path| read_only(path, FollowLinks::OfTheKernel, ReadOnlyScope::Inert);
    files.readonly.iter().try_for_each(|p| readonly(p))?;
    let mut masks = Masks::new(FollowLinks::OfTheKernel, label);
    files.masked.iter().try_for_each(|p| masks.mask(p))
}

fn make_one(one: &KernelMountStep, label: Option<&str>) -> Result<(), EnforceError> {
    let at = &one.destination;
    let failed = || EnforceError::step(format!("mount over {at:?}"));
    let place = place(at)?;
    match &one.what {
        KernelSource::FileSystem {
            kind,
            source,
            options,
        } => {
            let label = label.filter(|_| kind != "sysfs");
            let made = file_system(kind, source, options, label);
            attach(&made.map_err(failed())?, &place).map_err(failed())
        }
        KernelSource::Hierarchies(names) => hierarchies(&place, names, label).map_err(failed()),
    }
}

/// The mount point, made if it is missing. No symbolic link is followed.
fn place(at: &Path) -> Result<OwnedFd, EnforceError> {
    let failed = || EnforceError::step(format!("make the mount point {at:?}"));
    match FollowLinks::Never.open(at) {
        Ok(place) => return Ok(place),
        Err(Errno::LOOP) => return Err(EnforceError::Link(at.to_owned())),
        Err(Errno::NOENT) => {}
        Err(e) => return Err(failed()(e)),
    }
    if let (Some(above), Some(name)) = (at.parent(), at.file_name())
        && let Ok(above) = FollowLinks::Never.open(above)
    {
        rustix::fs::mkdirat(above, name, Mode::from_raw_mode(0o755)).map_err(failed())?;
    } else {
        let root = FollowLinks::Never.open(Path::new("/")).map_err(failed())?;
        make_mount_point(root.as_fd(), at, FileKind::Directory)?;
    }
    FollowLinks::Never.open(at).map_err(failed())
}

/// A detached file system with its attributes.
fn file_system(
    kind: &str,
    source: &Path,
    options: &[String],
    label: Option<&str>,
) -> rustix::io::Result<OwnedFd> {
    let fs = match kind {
        "tmpfs" => NewFileSystem::tmpfs_of_root(source)?,
        _ => NewFileSystem::begin(kind, source)?,
    };
    fs.set_options(options)?;
    fs.set_label(label)?;
    fs.mount(mount_options::changes(options).one)
}

/// A tmpfs with a directory for each hierarchy, and links if several controllers share one.
fn hierarchies(place: &OwnedFd, names: &[String], label: Option<&str>) -> rustix::io::Result<()> {
    let options = ["noexec", "nosuid", "nodev", "mode=755"];
    let options = options.map(str::to_owned);
    let top = file_system("tmpfs", Path::new("tmpfs"), &options, label)?;
    attach(&top, place)?;
    // mount(2) takes a path: use one that begins at this mount.
    rustix::process::fchdir(&top)?;
    for name in names {
        rustix::fs::mkdirat(CWD, name.as_str(), Mode::from_raw_mode(0o755))?;
        let data = hierarchy_data(name, label);
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
        mount(
            "cgroup",
            name.as_str(),
            "cgroup",
            flags,
            Some(data.as_c_str()),
        )?;
        for one in other_names(name) {
            rustix::fs::symlinkat(name.as_str(), CWD, one)?;
        }
    }
    rustix::process::chdir("/")
}

/// The data of mount(2) for the directory of a hierarchy.
fn hierarchy_data(name: &str, label: Option<&str>) -> String {
    let controllers = match name {
        "systemd" => "none,name=systemd",
        controllers => controllers,
    };
    match label {
        Some(label) => format!("{controllers},context=\"{label}\""),
        None => controllers.to_owned(),
    }
}

/// The names by which programs look up one controller of several.
fn other_names(name: &str) -> impl Iterator<Item = &str> {
    name.split(',').filter(move |one| *one != name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_named_as_the_kernel_knows_it() {
        for (name, label, data) in [
            ("pids", None, "pids"),
            ("cpu,cpuacct", None, "cpu,cpuacct"),
            ("systemd", None, "none,name=systemd"),
            ("pids", Some("a:b"), "pids,context=\"a:b\""),
            ("systemd", Some("a:b"), "none,name=systemd,context=\"a:b\""),
        ] {
            assert_eq!(hierarchy_data(name, label), data);
        }
        assert_eq!(
            other_names("cpu,cpuacct").collect::<Vec<_>>(),
            ["cpu", "cpuacct"]
        );
        assert_eq!(other_names("pids").count(), 0);
    }

    #[test]
    fn a_step_is_known_by_its_place_and_its_type() {
        let step = KernelMountStep {
            destination: "/sys".into(),
            what: KernelSource::FileSystem {
                kind: "sysfs".to_owned(),
                source: "sysfs".into(),
                options: Vec::new(),
            },
        };
        assert!(step.is(Path::new("/sys"), "sysfs"));
        assert!(!step.is(Path::new("/sys"), "tmpfs") && !step.is(Path::new("/x"), "sysfs"));
        let hierarchies = KernelMountStep {
            what: KernelSource::Hierarchies(Vec::new()),
            ..step
        };
        assert!(!hierarchies.is(Path::new("/sys"), "tmpfs"));
    }
}
