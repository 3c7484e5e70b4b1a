//! SHELL. Facts about the kernel and the bundle's files, for the pure planner. The only feature detection in the tree.

pub mod disk;
mod held;
mod hosts;
mod links;
mod overlay;
mod search;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Mount, Spec};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::cgroup::hierarchies::Hierarchies;
use crate::plan::never::Never;
use crate::plan::wrapped::Wrapped;
use crate::plan::{BundleFacts, FileKind, FilesystemPlan, HostFacts, PlannedMount, SourceFacts};
use crate::policy::{Filesystem, SearchRule};
use search::{Budget, Unwanted, View};
use source::Judge;

pub use source::is_home;

/// Why the bundle cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// A mount's source cannot be opened.
    #[error("the source {path:?} of the mount at {destination:?}")]
    Source {
        /// The source.
        path: PathBuf,
        /// Mount point in the container.
        destination: PathBuf,
        /// The errno.
        source: io::Error,
    },
    /// The root file system is the node's own, or part of it that is never let in.
    #[error("the root file system {rootfs:?} is the node's {name:?}: use an image")]
    Root {
        /// As the bundle names it.
        rootfs: PathBuf,
        /// What it is.
        name: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("{path:?}")]
    Read {
        /// The path.
        path: PathBuf,
        /// The errno.
        source: io::Error,
    },
}

/// Asks the kernel what it can do.
pub fn host() -> HostFacts {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let version = parse_release(&release);
    let memory = rustix::system::sysinfo();
    let processors = rustix::thread::sched_getaffinity(None);
    HostFacts {
        landlock_abi: crate::sys::process::landlock_abi().unwrap_or(0),
        seccomp: crate::sys::signal::can_kill_by_seccomp(),
        overlayfs: knows_file_system("overlay"),
        controllers: controllers(),
        memory_bytes: memory.totalram.saturating_mul(u64::from(memory.mem_unit)),
        processors: processors.map_or(1, |set| set.count()),
        core_socket: std::fs::read("/proc/sys/kernel/core_pattern")
            .is_ok_and(|pattern| pattern.starts_with(b"@")),
        no_disk: disk::why_not(),
        release,
        version,
    }
}

/// The controllers of the hierarchies that are mounted where engines look for them. What cannot be read has none: a bound
/// that nothing holds is refused.
fn controllers() -> BTreeSet<String> {
    let found = Hierarchies::read().unwrap_or_default();
    if let (true, Some(root)) = (found.is_unified(), found.v2()) {
        // The root of cgroup v2 has this file (cgroups(7)).
        let text = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        return text.split_whitespace().map(str::to_owned).collect();
    }
    ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|name| !found.usual_v1(&[name]).is_empty())
        .map(str::to_owned)
        .collect()
}

/// `6.1.0-37-amd64` -> (6, 1); an unreadable one is the oldest kernel there is, so that it is refused.
fn parse_release(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// fsopen(2) tells whether a file system is there, and loads its module where it is not yet.
fn knows_file_system(name: &str) -> bool {
    rustix::mount::fsopen(name, rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok()
}

/// A bind mount's source, held open since it was judged.
pub struct Opened {
    /// Its path after all symbolic links, for finding it again.
    pub path: PathBuf,
    /// Device number of the inode.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// O_PATH descriptor.
    pub fd: OwnedFd,
}

impl Opened {
    fn of(facts: &SourceFacts, fd: OwnedFd) -> Self {
        Self {
            path: facts.path.clone(),
            dev: facts.dev,
            ino: facts.ino,
            fd,
        }
    }

    /// Whether it is what a mount of the plan is of.
    pub fn is_of(&self, mount: &PlannedMount) -> bool {
        let judged = mount.judged.map(|j| (j.dev, j.ino));
        judged == Some((self.dev, self.ino)) && mount.source == self.path
    }
}

/// Whether a directory can be opened to be judged: by way of no magic link.
pub fn can_be_judged(path: &Path) -> io::Result<()> {
    links::open(path).map(|_| ()).map_err(Into::into)
}

/// Looks at everything that the bundle names on the host, and keeps the sources of bind mounts open.
pub fn bundle(
    spec: &Spec,
    rootfs: &Path,
    wrapped: &Wrapped,
) -> Result<(BundleFacts, Vec<Opened>), ProbeError> {
    let mut judge = Judge::new(spec, rootfs);
    let root = open_path(rootfs, ResolveFlags::empty()).map_err(|e| ProbeError::Read {
        path: rootfs.to_owned(),
        source: e.into(),
    })?;
    let mut names = judge.shown_as(&root)?;
    judge.learn(&root)?;
    let base = real_path(root.as_fd()).map_err(|source| ProbeError::Read {
        path: rootfs.to_owned(),
        source,
    })?;
    names.insert(base.clone());
    let name = judge.hosts.is_one(judge.never, &root);
    let name = name.or_else(|| names.iter().find_map(|n| below_settings(n)));
    if let Some(name) = name.filter(|_| wrapped.is_empty()) {
        return Err(ProbeError::Root {
            rootfs: rootfs.to_owned(),
            name,
        });
    }
    let (mut sources, mut opened, mut destinations) = (Vec::new(), Vec::new(), Vec::new());
    let mut parts = Vec::new();
    for mount in spec.mounts().iter().flatten() {
        destinations.push(destination_in(&root, &base, mount.destination()));
        let Some(found) = judge.source(mount)? else {
            sources.push(None);
            continue;
        };
        opened.push(Opened::of(&found.facts, found.fd));
        let working = found.facts.home.as_ref().and_then(|h| h.working.as_ref());
        if let (Some(facts), Some(fd)) = (working, found.working) {
            parts.push(Opened::of(facts, fd));
        }
        sources.push(Some(found.facts));
    }
    // After those of the mounts, one for each.
    opened.append(&mut parts);
    let facts = BundleFacts {
        sources,
        destinations,
        // The bundle's own directory, whoever read it knows.
        bundle: PathBuf::new(),
        rootfs: rootfs.to_owned(),
        home: home(spec, rootfs),
        wrapped: wrapped.clone(),
        devices: devices(spec),
        engine_hooks: engine_hooks(spec),
        // Of which engine the call is, its `--root` says.
        cri: false,
        // Who is in a namespace, only the runtime's own records say.
        neighbours: BTreeMap::new(),
    };
    Ok((facts, opened))
}

/// Searches what a plan lets in for sockets and credentials. Whether the plan has to be made again with what was found.
pub fn search(
    facts: &mut BundleFacts,
    opened: &[Opened],
    plan: &FilesystemPlan,
    policy: &Filesystem,
) -> bool {
    let (never, meant) = (Never::builtin(), policy.meant());
    let unwanted = Unwanted::new(never, &meant);
    let mut told = false;
    let sources = facts.sources.iter_mut().flatten();
    for (source, found) in sources.zip(opened) {
        let is_it = |m: &&PlannedMount| found.is_of(m);
        let mut mounts = plan.mounts.iter().filter(is_it);
        let wrapped = &facts.wrapped;
        let budget = match mounts
            .clone()
            .any(|m| !wrapped.contains(&m.destination) || !is_top(&m.destination))
        {
            false if policy.search == SearchRule::Partial => Budget::SYSTEM,
            _ => Budget::of(policy.search),
        };
        let wanted = mounts.any(|m| {
            !(is_programs(&m.destination) && wrapped.is_system(never, &m.destination, source))
        });
        if unwanted.is_runtime(source.dev, source.ino) {
            source.runtime = Some(source.path.clone());
            told = true;
        }
        if source.kind != FileKind::Directory || !wanted {
            continue;
        }
        let before = source.inside.len();
        // As the container will see it: what lies below a mount point of the node is hidden here, and not there.
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(&found.fd, "", flags);
        // Without the right to clone it (`explain` by an ordinary user) nothing is mounted either.
        let root = tree.as_ref().unwrap_or(&found.fd);
        let view = view(plan, found, opened);
        search::search(root, &unwanted, budget, &view, source);
        told |=
            source.inside.len() > before || source.unsearched.is_some() || source.runtime.is_some();
    }
    told
}

/// Where in the container a source will be, and the others.
fn view<'a>(plan: &FilesystemPlan, own: &Opened, opened: &'a [Opened]) -> View<'a> {
    let own = plan.mounts.iter().find(|m| own.is_of(m));
    let others = plan.mounts.iter().filter_map(|mount| {
        let source = opened.iter().find(|o| o.is_of(mount))?;
        Some((mount.destination.clone(), source.fd.as_fd()))
    });
    View {
        own: own.map(|m| m.destination.clone()).unwrap_or_default(),
        others: others.collect(),
    }
}

/// Whether a mount of the node's system holds programs and their settings alone: the system's directories and the listed
/// parts of /etc, which root alone writes. Nobody keeps credentials there, and they are large.
fn is_programs(path: &Path) -> bool {
    const SYSTEM: [&str; 8] = [
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
    ];
    (path.starts_with("/etc") && !is_top(path)) || SYSTEM.iter().any(|s| path == Path::new(s))
}

/// Whether a path is one of the root directory's own entries.
fn is_top(path: &Path) -> bool {
    path.components().count() <= 2
}

/// The directory of the node's own settings in which a root file system lies. Engines keep images below others that are
/// never let in, but never here.
fn below_settings(real: &Path) -> Option<PathBuf> {
    const SETTINGS: [&str; 4] = ["/etc", "/boot", "/proc", "/sys"];
    let found = SETTINGS.iter().find(|s| real.starts_with(s));
    found.map(PathBuf::from)
}

fn open_path(path: &Path, resolve: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)
}

/// Where the image's own links lead a destination.
pub fn destination(rootfs: &Path, destination: &Path) -> PathBuf {
    match open_path(rootfs, ResolveFlags::empty()) {
        Ok(root) => match real_path(root.as_fd()) {
            Ok(base) => destination_in(&root, &base, destination),
            Err(_) => destination.to_owned(),
        },
        Err(_) => destination.to_owned(),
    }
}

/// Where the image's own links lead a destination: the part that exists resolved as in the container, the rest as it is.
/// `base` is where the root is on the node.
fn destination_in(root: &OwnedFd, base: &Path, destination: &Path) -> PathBuf {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    for existing in destination.ancestors() {
        let fd = rustix::fs::openat2(root, existing, flags, Mode::empty(), resolve);
        let real = fd.ok().and_then(|fd| real_path(fd.as_fd()).ok());
        let inside = real.and_then(|r| r.strip_prefix(base).map(Path::to_path_buf).ok());
        if let Some(inside) = inside {
            let rest = destination.strip_prefix(existing).unwrap_or(Path::new(""));
            return Path::new("/")
                .join(inside)
                .join(rest)
                .components()
                .collect();
        }
    }
    destination.to_owned()
}

/// Whether libcontainer treats a mount as a bind mount.
pub fn is_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
        || mount
            .options()
            .iter()
            .flatten()
            .any(|o| o == "bind" || o == "rbind")
}

fn real_path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Devices of the spec that the node has under the same path.
fn devices(spec: &Spec) -> BTreeSet<PathBuf> {
    let devices = spec
        .linux()
        .iter()
        .filter_map(|l| l.devices().as_ref())
        .flatten();
    let mut same = BTreeSet::new();
    let mut other = BTreeSet::new();
    for device in devices {
        let set = if is_device(device) {
            &mut same
        } else {
            &mut other
        };
        set.insert(device.path().clone());
    }
    // Of two devices with one name both count.
    &same - &other
}

fn is_device(device: &LinuxDevice) -> bool {
    let Ok(stat) = rustix::fs::stat(device.path()) else {
        return false;
    };
    let typ = match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => {
            [LinuxDeviceType::C, LinuxDeviceType::U].contains(&device.typ())
        }
        FileType::BlockDevice => device.typ() == LinuxDeviceType::B,
        _ => false,
    };
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    typ && (i64::from(major), i64::from(minor)) == (device.major(), device.minor())
}

/// HOME of the process, else the image's passwd entry of its user.
fn home(spec: &Spec, rootfs: &Path) -> Option<PathBuf> {
    let process = spec.process().as_ref()?;
    let given = process
        .env()
        .iter()
        .flatten()
        .rev()
        .find_map(|e| e.strip_prefix("HOME="));
    if let Some(home) = given.filter(|h| !h.is_empty()) {
        return Some(PathBuf::from(home));
    }
    let uid = process.user().uid().to_string();
    let passwd = read_in_root(rootfs, Path::new("etc/passwd"))?;
    let line = passwd
        .lines()
        .find(|l| l.split(':').nth(2) == Some(uid.as_str()))?;
    line.split(':')
        .nth(5)
        .filter(|h| !h.is_empty())
        .map(PathBuf::from)
}

/// A small file of the image, resolved as the container would.
fn read_in_root(rootfs: &Path, path: &Path) -> Option<String> {
    use std::io::Read;
    let root = rustix::fs::open(
        rootfs,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::openat2(
        &root,
        path,
        flags,
        Mode::empty(),
        ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
    )
    .ok()?;
    if rustix::fs::fstat(&fd).map(|s| FileKind::of(s.st_mode)) != Ok(FileKind::File) {
        return None;
    }
    let mut text = String::new();
    std::fs::File::from(fd)
        .take(1 << 20)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// Hook programs that are dockerd's own `libnetwork-setkey`: `/proc/<pid>/exe` of a root-owned `dockerd`.
fn engine_hooks(spec: &Spec) -> Vec<PathBuf> {
    #[allow(deprecated)] // Docker 20.10 to 27 use prestart.
    let prestart = spec
        .hooks()
        .as_ref()
        .and_then(|h| h.prestart().clone())
        .unwrap_or_default();
    let is_setkey = |args: &Option<Vec<String>>| {
        args.iter()
            .flatten()
            .next()
            .is_some_and(|a| a == "libnetwork-setkey")
    };
    prestart
        .iter()
        .filter(|h| is_setkey(h.args()) && is_dockerd(h.path()))
        .map(|h| h.path().clone())
        .collect()
}

fn is_dockerd(path: &Path) -> bool {
    let text = path.to_str().unwrap_or("");
    let pid = text
        .strip_prefix("/proc/")
        .and_then(|t| t.strip_suffix("/exe"))
        .unwrap_or("");
    let Ok(real) = std::fs::read_link(path) else {
        return false;
    };
    let Ok(stat) = rustix::fs::stat(path) else {
        return false;
    };
    let private = stat.st_uid == 0 && stat.st_mode & 0o022 == 0;
    // A process of a container may be called dockerd too, and be root in its own user namespace.
    let same = |kind: &str| {
        let link = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/{kind}")).ok();
        link(pid).is_some() && link(pid) == link("self")
    };
    !pid.is_empty()
        && same("user")
        && same("pid")
        && pid.bytes().all(|b| b.is_ascii_digit())
        && real.file_name().is_some_and(|n| n == "dockerd")
        && private
}

/// A directory that is removed with the value.
#[cfg(test)]
pub(crate) struct TestDir(pub PathBuf);

#[cfg(test)]
impl TestDir {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("agentbox-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

#[cfg(test)]
impl Drop for TestDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_by_its_first_two_numbers() {
        assert_eq!(parse_release("6.1.0-37-amd64"), (6, 1));
        assert_eq!(parse_release("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(parse_release("next"), (0, 0));
    }

    #[test]
    fn a_device_is_known_by_type_and_numbers_not_by_its_name() {
        let spec = |path: &str, typ: &str, major: i64, minor: i64| -> Spec {
            let device =
                serde_json::json!({"path": path, "type": typ, "major": major, "minor": minor});
            serde_json::from_value(
                serde_json::json!({"ociVersion": "1.2.0", "linux": {"devices": [device]}}),
            )
            .unwrap()
        };
        assert_eq!(
            devices(&spec("/dev/null", "c", 1, 3)),
            [PathBuf::from("/dev/null")].into()
        );
        for (path, typ, major, minor) in [
            ("/dev/null", "b", 1, 3),
            ("/dev/null", "c", 8, 0),
            ("/dev/null", "c", 1, 4),
            ("/dev/null", "a", 1, 3),
            ("/dev/no-such", "c", 1, 3),
            ("/etc/passwd", "c", 1, 3),
        ] {
            assert_eq!(
                devices(&spec(path, typ, major, minor)),
                BTreeSet::new(),
                "{path} {typ} {major}:{minor}"
            );
        }
    }
}
