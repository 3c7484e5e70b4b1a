//! SHELL. Facts about the kernel and the bundle's files, for the pure planner. The only feature detection in the tree.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Mount, Spec};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::plan::never::Never;
use crate::plan::{BundleFacts, FileKind, HostFacts, Inside, SourceFacts};

/// Entries looked at inside one mount's source, and how deep: enough for a home directory or a project's top, and
/// a bounded share of the start time for a large one.
const SEARCH_ENTRIES: usize = 4096;
const SEARCH_DEPTH: usize = 3;

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
    HostFacts {
        landlock_abi: crate::sys::process::landlock_abi().unwrap_or(0),
        seccomp: crate::sys::signal::can_kill_by_seccomp(),
        overlayfs: knows_file_system("overlay"),
        release,
        version,
    }
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

/// Looks at everything that the bundle names on the host. `system` are the mount points of `wrap`'s own mounts.
pub fn bundle(
    spec: &Spec,
    rootfs: &Path,
    system: &BTreeSet<PathBuf>,
) -> Result<BundleFacts, ProbeError> {
    let never = Never::builtin();
    let hosts = known_inodes(&never);
    let mounts = spec.mounts().as_deref().unwrap_or_default();
    let sources = mounts
        .iter()
        .map(|m| source(m, &never, &hosts, system))
        .collect::<Result<_, _>>()?;
    Ok(BundleFacts {
        sources,
        home: home(spec, rootfs),
        system: system.clone(),
        devices: devices(spec),
        engine_hooks: engine_hooks(spec),
    })
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

fn source(
    mount: &Mount,
    never: &Never,
    hosts: &[(u64, u64, PathBuf)],
    system: &BTreeSet<PathBuf>,
) -> Result<Option<SourceFacts>, ProbeError> {
    if !is_bind(mount) {
        return Ok(None);
    }
    let path = mount.source().clone().unwrap_or_default();
    let fail = |e: rustix::io::Errno| ProbeError::Source {
        path: path.clone(),
        destination: mount.destination().clone(),
        source: e.into(),
    };
    // No magic links: /proc/<pid>/root and /proc/self/fd lead out of what a path can be judged by.
    let fd = rustix::fs::openat2(
        CWD,
        &path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(fail)?;
    let stat = rustix::fs::fstat(&fd).map_err(fail)?;
    let real = real_path(fd.as_fd()).map_err(|source| ProbeError::Read {
        path: path.clone(),
        source,
    })?;
    let kind = kind_of(stat.st_mode);
    let same_as = hosts
        .iter()
        .find(|(dev, ino, name)| (*dev, *ino) == (stat.st_dev, stat.st_ino) && *name != real);
    let mut facts = SourceFacts {
        path: real,
        dev: stat.st_dev,
        ino: stat.st_ino,
        kind,
        same_as: same_as.map(|(_, _, name)| name.clone()),
        inside: Vec::new(),
        search_incomplete: false,
    };
    // What is refused anyway is not searched.
    if kind == FileKind::Directory
        && facts.same_as.is_none()
        && never.refuses(&facts.path).is_none()
        && !(system.contains(mount.destination()) && is_programs(mount.destination()))
    {
        search(&fd, never, &mut facts);
    }
    Ok(Some(facts))
}

/// Whether one of `wrap`'s own mounts holds programs alone: the system's directories, listed parts of /etc, and
/// toolchains, which are all named deeper than the top level. Nobody keeps credentials there, and they are large.
fn is_programs(path: &Path) -> bool {
    const SYSTEM: [&str; 8] = [
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
    ];
    path.components().count() > 2 || SYSTEM.iter().any(|s| path == Path::new(s))
}

fn real_path(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Inodes of the host paths that are never let in, so that a bind mount or hard link of one is known as it.
fn known_inodes(never: &Never) -> Vec<(u64, u64, PathBuf)> {
    let stat = |p: &PathBuf| {
        rustix::fs::stat(p)
            .ok()
            .map(|s| (s.st_dev, s.st_ino, p.clone()))
    };
    never.host.iter().filter_map(|h| stat(&h.path)).collect()
}

/// Sockets and credentials inside a directory, breadth first, within the bounds.
fn search(root: &OwnedFd, never: &Never, facts: &mut SourceFacts) {
    let mut queue = std::collections::VecDeque::from([(PathBuf::new(), 0)]);
    let mut seen = 0;
    while let Some((relative, depth)) = queue.pop_front() {
        let name = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &relative
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Unreadable for root means that it is unreadable in the container as well.
        let Ok(fd) = rustix::fs::openat2(
            root,
            name,
            flags,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        ) else {
            continue;
        };
        let Ok(entries) = Dir::new(fd) else { continue };
        for entry in entries.flatten() {
            let file = entry.file_name().to_bytes();
            if file == b"." || file == b".." {
                continue;
            }
            seen += 1;
            if seen > SEARCH_ENTRIES {
                facts.search_incomplete = true;
                return;
            }
            let path = relative.join(std::ffi::OsStr::from_bytes(file));
            if let Some(why) = unwanted(never, &path, entry.file_type()) {
                facts.inside.push(Inside { path, why });
            } else if entry.file_type() == FileType::Directory && depth + 1 < SEARCH_DEPTH {
                queue.push_back((path, depth + 1));
            }
        }
    }
}

fn unwanted(never: &Never, path: &Path, kind: FileType) -> Option<String> {
    match kind {
        FileType::Socket => Some("it is a socket".to_owned()),
        _ => never.credential(path).map(ToOwned::to_owned),
    }
}

/// The type bits of `st_mode` (inode(7)).
pub fn kind_of(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice => FileKind::Device,
        FileType::Fifo => FileKind::Fifo,
        FileType::RegularFile | FileType::Symlink | FileType::Unknown => FileKind::File,
    }
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
    if rustix::fs::fstat(&fd).map(|s| kind_of(s.st_mode)) != Ok(FileKind::File) {
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
    !pid.is_empty()
        && pid.bytes().all(|b| b.is_ascii_digit())
        && real.file_name().is_some_and(|n| n == "dockerd")
        && private
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
