//! Takes the kernel file systems that the init process mounts itself out of libcontainer's spec
//! ([`crate::enforce::kernel`]).
//!
//! libcontainer makes the mounts that it needs before our code runs, and those that only it can make: /proc and /dev; a
//! devpts with the terminal, or with a `ptmx` of another owner than the process; /sys of a user namespace, for which
//! the kernel requires another sysfs in sight, as before pivot_root; cgroup mounts of the node. It makes all of them if
//! hooks may look at them before pivot_root.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Mount, Spec};
use rustix::fs::{Mode, OFlags};

use crate::cgroup::CgroupError;
use crate::cgroup::hierarchies::Hierarchies;
use crate::enforce::hooks::HookMoment;
use crate::enforce::kernel::{KernelFiles, KernelMountStep, KernelSource};
use crate::enforce::rootfs::make_mount_point;
use crate::plan::FileKind;
use crate::runtime::error::RuntimeError;

/// Where hierarchies are mounted in a container, as on a node.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Splits the spec, and makes the mount points that lie in the image, which may be read-only when they are mounted.
pub fn split(spec: &mut Spec, rootfs: &Path) -> Result<KernelFiles, RuntimeError> {
    let node = Node::look()?;
    let files = take(spec, &node);
    let mut tops: BTreeSet<&Path> = files.mounts.iter().map(|m| &*m.destination).collect();
    tops.retain(|path| path.parent() == Some(Path::new("/")));
    if tops.is_empty() {
        return Ok(files);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(rootfs, flags, Mode::empty());
    let root = root.map_err(RuntimeError::io(format!(
        "open the root file system {rootfs:?}"
    )))?;
    for path in tops {
        make_mount_point(root.as_fd(), path, FileKind::Directory)?;
    }
    Ok(files)
}

/// What a node's mounts are made of.
#[derive(Default)]
struct Node {
    /// The directories of cgroup v1's hierarchies; none on a node with v2 alone.
    hierarchies: Vec<String>,
    selinux: bool,
}

impl Node {
    fn look() -> Result<Self, CgroupError> {
        let found = Hierarchies::of_node()?;
        let v1 = match found.is_unified() {
            true => Vec::new(),
            false => found.usual_v1(&[]),
        };
        let names = v1.into_iter().filter_map(Path::file_name);
        let hierarchies = names.filter_map(|name| Some(name.to_str()?.to_owned()));
        let hierarchies = hierarchies.collect();
        Ok(Self {
            hierarchies,
            selinux: Path::new("/sys/fs/selinux").exists(),
        })
    }
}

fn take(spec: &mut Spec, node: &Node) -> KernelFiles {
    if hooks_look(spec) {
        return KernelFiles::default();
    }
    let which = OwnMounts::of(spec);
    let mut all = spec.mounts().clone().unwrap_or_default();
    let mounts: Vec<KernelMountStep> = all
        .extract_if(.., |mount| which.is_ours(mount))
        .map(|mount| ours(&mount, node))
        .collect();
    spec.set_mounts(Some(all));
    let mut files = KernelFiles {
        mounts,
        ..KernelFiles::default()
    };
    if let Some(linux) = spec.linux_mut() {
        let paths = |list: Option<Vec<String>>| list.into_iter().flatten().map(PathBuf::from);
        files.masked = paths(linux.masked_paths().clone()).collect();
        files.readonly = paths(linux.readonly_paths().clone()).collect();
        linux.set_masked_paths(None);
        linux.set_readonly_paths(None);
        // For an empty list libcontainer would mount a writable /proc.
        let settings = linux.sysctl().clone().filter(|all| !all.is_empty());
        linux.set_sysctl(settings);
        let label = linux.mount_label().clone();
        files.label = label.filter(|l| node.selinux && !l.is_empty());
    }
    files
}

/// Whether hooks run before pivot_root that may look at the mounts. The engine's own hook only makes a network.
fn hooks_look(spec: &Spec) -> bool {
    let Some(hooks) = spec.hooks() else {
        return false;
    };
    let early = [
        HookMoment::Prestart,
        HookMoment::CreateRuntime,
        HookMoment::CreateContainer,
    ];
    let mut all = early.iter().flat_map(|when| when.of(hooks));
    all.any(|hook| {
        let name = hook.args().iter().flatten().next().map(String::as_str);
        name != Some("libnetwork-setkey")
    })
}

/// Which kernel mounts agentbox makes itself.
struct OwnMounts {
    /// The devpts.
    pts: bool,
    /// Those below a /dev that libcontainer makes.
    dev: bool,
    /// Those at /sys and below.
    sys: bool,
}

impl OwnMounts {
    fn of(spec: &Spec) -> Self {
        let mounts = || spec.mounts().iter().flatten();
        let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
        let has = |typ| namespaces.is_some_and(|all| all.iter().any(|n| n.typ() == typ));
        let process = spec.process().as_ref();
        let (root, terminal) = process.map_or((false, false), |p| {
            let root = (p.user().uid(), p.user().gid()) == (0, 0);
            (root, p.terminal().unwrap_or(false))
        });
        let others = mounts()
            .filter(|m| m.destination().starts_with("/sys"))
            .any(|m| !is_kernels(m));
        // All or none: their order is visible.
        let sys = !others && has(LinuxNamespaceType::Cgroup) && !has(LinuxNamespaceType::User);
        Self {
            pts: sys && root && !terminal,
            dev: sys && mounts().any(|m| m.destination() == Path::new("/dev")),
            sys,
        }
    }

    fn is_ours(&self, mount: &Mount) -> bool {
        let at = mount.destination();
        let below_dev = self.dev && at.starts_with("/dev") && at != Path::new("/dev");
        match mount.typ().as_deref() {
            Some("tmpfs" | "mqueue") => below_dev,
            Some("devpts") => below_dev && self.pts,
            _ => self.sys && is_kernels(mount),
        }
    }
}

fn is_kernels(mount: &Mount) -> bool {
    let at = mount.destination();
    match mount.typ().as_deref() {
        Some("sysfs") => at == Path::new("/sys"),
        Some("cgroup" | "cgroup2") => at == Path::new(CGROUPS),
        _ => false,
    }
}

fn ours(mount: &Mount, node: &Node) -> KernelMountStep {
    let kind = mount.typ().clone().unwrap_or_default();
    let source = mount.source().clone();
    let what = match (kind.as_str(), node.hierarchies.is_empty()) {
        ("cgroup", false) => KernelSource::Hierarchies(node.hierarchies.clone()),
        // Engines say `cgroup` for either version; libcontainer's source of it is the same.
        ("cgroup", true) => KernelSource::FileSystem {
            kind: "cgroup2".to_owned(),
            source: PathBuf::from("cgroup"),
            options: mount.options().clone().unwrap_or_default(),
        },
        _ => KernelSource::FileSystem {
            source: source.unwrap_or_else(|| PathBuf::from(&kind)),
            options: mount.options().clone().unwrap_or_default(),
            kind,
        },
    };
    KernelMountStep {
        destination: mount.destination().clone(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> Spec {
        let mount = |at: &str, typ: &str| serde_json::json!({"destination": at, "type": typ, "source": typ, "options": ["nosuid"]});
        let mut spec = serde_json::json!({
            "ociVersion": "1.2.0",
            "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["true"]},
            "mounts": [
                mount("/proc", "proc"),
                mount("/dev", "tmpfs"),
                mount("/dev/pts", "devpts"),
                mount("/sys", "sysfs"),
                mount("/sys/fs/cgroup", "cgroup"),
                mount("/dev/mqueue", "mqueue"),
                mount("/dev/shm", "tmpfs"),
            ],
            "linux": {
                "namespaces": [{"type": "mount"}, {"type": "cgroup"}],
                "maskedPaths": ["/proc/kcore"],
                "readonlyPaths": ["/proc/sys"],
            },
        });
        change(&mut spec);
        serde_json::from_value(spec).unwrap()
    }

    fn node() -> Node {
        Node {
            hierarchies: vec!["systemd".to_owned(), "cpu,cpuacct".to_owned()],
            selinux: false,
        }
    }

    /// What remains for libcontainer, and what is ours.
    fn parts(mut spec: Spec) -> (Vec<String>, Vec<String>, KernelFiles) {
        let files = take(&mut spec, &node());
        let text = |path: &Path| path.display().to_string();
        let left = spec.mounts().iter().flatten();
        (
            left.map(|m| text(m.destination())).collect(),
            files.mounts.iter().map(|m| text(&m.destination)).collect(),
            files,
        )
    }

    const ALL: [&str; 5] = [
        "/dev/pts",
        "/sys",
        "/sys/fs/cgroup",
        "/dev/mqueue",
        "/dev/shm",
    ];

    #[test]
    fn libcontainer_makes_the_mounts_that_it_needs_and_we_the_rest_in_order() {
        let (left, own, files) = parts(spec(|_| {}));
        assert_eq!(left, ["/proc", "/dev"]);
        assert_eq!(own, ALL);
        assert_eq!(files.masked, [Path::new("/proc/kcore")]);
        assert_eq!(files.readonly, [Path::new("/proc/sys")]);
        let is_sysfs = |mount: &KernelMountStep| mount.is(Path::new("/sys"), "sysfs");
        assert!(files.mounts.iter().any(is_sysfs));
        let cgroup = KernelSource::Hierarchies(node().hierarchies);
        assert_eq!(files.mounts[2].what, cgroup);
    }

    #[test]
    fn a_terminal_and_another_user_keep_libcontainers_devpts() {
        for (key, value) in [
            ("terminal", true.into()),
            ("user", serde_json::json!({"uid": 7, "gid": 0})),
            ("user", serde_json::json!({"uid": 0, "gid": 7})),
        ] {
            let (left, own, _) = parts(spec(|s| s["process"][key] = value));
            assert_eq!(left, ["/proc", "/dev", "/dev/pts"], "{key}");
            assert_eq!(own, ALL[1..], "{key}");
        }
    }

    #[test]
    fn a_user_namespace_and_the_nodes_cgroups_leave_the_mounts_to_libcontainer() {
        let user = serde_json::json!([{"type": "mount"}, {"type": "cgroup"}, {"type": "user"}]);
        let host = serde_json::json!([{"type": "mount"}]);
        for namespaces in [user, host] {
            let (left, own, files) = parts(spec(|s| s["linux"]["namespaces"] = namespaces));
            assert_eq!((left.len(), own.len()), (7, 0));
            assert!(!files.masked.is_empty());
        }
        // As joined_mount.rs leaves it.
        let bind = serde_json::json!({"destination": "/sys/fs/cgroup/cpu", "type": "bind", "source": "/x"});
        let (left, _, _) = parts(spec(|s| s["mounts"][4] = bind));
        assert!(left.contains(&"/sys".to_owned()));
    }

    #[test]
    fn everything_stays_where_a_hook_may_look() {
        let hooks = |name: &str| serde_json::json!({"prestart": [{"path": "/x", "args": [name]}]});
        let (left, own, files) = parts(spec(|s| s["hooks"] = hooks("nvidia")));
        assert_eq!((left.len(), own.len()), (7, 0));
        assert_eq!(files, KernelFiles::default());
        let (_, own, _) = parts(spec(|s| s["hooks"] = hooks("libnetwork-setkey")));
        assert_eq!(own, ALL);
    }

    #[test]
    fn on_version_2_the_mount_is_of_version_2() {
        let mut spec = spec(|_| {});
        let files = take(&mut spec, &Node::default());
        let is_cgroup2 = |mount: &KernelMountStep| mount.is(Path::new(CGROUPS), "cgroup2");
        assert!(files.mounts.iter().any(is_cgroup2));
    }

    #[test]
    fn without_a_dev_of_its_own_nothing_is_made_in_the_images() {
        let (left, own, _) = parts(spec(|s| {
            s["mounts"].as_array_mut().unwrap().remove(1);
        }));
        assert_eq!(left, ["/proc", "/dev/pts", "/dev/mqueue", "/dev/shm"]);
        assert_eq!(own, ["/sys", "/sys/fs/cgroup"]);
    }
}
