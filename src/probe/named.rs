//! The parts of a bundle's spec besides its mounts: devices, a home directory, the engine's own hooks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Spec};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::plan::{FileKind, passwd};

/// Devices of the spec that the node has under the same path.
pub(super) fn devices(spec: &Spec) -> BTreeSet<PathBuf> {
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
    // A name is dropped if any device with it differs from the node's.
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

/// HOME of the process, or the home of its user in the image's passwd file.
pub(super) fn home(spec: &Spec, rootfs: &Path) -> Option<PathBuf> {
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
    let text = read_in_root(rootfs, Path::new("etc/passwd"))?;
    let user = passwd::lines(&text).find(|user| user.uid == process.user().uid())?;
    (!user.home.is_empty()).then(|| PathBuf::from(user.home))
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
pub(super) fn engine_hooks(spec: &Spec) -> Vec<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
