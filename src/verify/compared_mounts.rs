//! PURE. Compares the init process's mounts with its plan: mounts that are not planned, planned mounts that are
//! missing, and missing attributes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::mounted::{MountedLine, RESTRICTING};
use crate::plan::report::DENIED_IN;
use crate::plan::trust::TRUST_IN;
use crate::plan::{
    BindAccess, BindMount, EphemeralContent, EphemeralMount, FilesystemPlan, KernelFileSystem,
    MappedIds, MountKind, NamespaceType, Plan, PlannedMount, PlannedNamespace,
};
use crate::policy::RootAccess;
use crate::text::escape;

/// The mounts that a place may have.
#[derive(Debug, Clone)]
enum ExpectedMount {
    /// A mount of the plan with these attributes, once; of one of these types, if the list is not empty.
    Planned(Vec<String>, &'static [&'static str]),
    /// The same, of a file system that was created for the container.
    Made(Vec<String>, &'static [&'static str]),
    /// The same, if the image has the place.
    Perhaps(Vec<String>),
    /// The place's own content, mounted on itself with these attributes, any number of times.
    Again(Vec<String>),
    /// A mask.
    Mask,
}

fn owned(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

/// Attributes of the runtime's own mounts.
const OWN: [&str; 4] = ["ro", "nosuid", "nodev", "noexec"];
/// The usual device nodes. In a user namespace, they are bind mounts from the node.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Attributes of a private directory.
fn of_ephemeral(dir: &EphemeralMount) -> Vec<String> {
    owned(match dir.content {
        EphemeralContent::EmptyHome => &["nosuid", "nodev", "noexec"],
        EphemeralContent::Empty | EphemeralContent::Image => &["nosuid", "nodev"],
    })
}

/// The owner of a container's pid namespace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Processes {
    Own,
    Shared,
}

fn planned(mount: &PlannedMount, processes: Processes) -> ExpectedMount {
    let all = mount.options();
    let wanted = all
        .iter()
        .filter(|option| RESTRICTING.contains(&option.as_str()));
    let mapped = mount.bind().is_some_and(|bind| bind.ids != MappedIds::Node);
    // The kernel's word (show_mountinfo).
    let mapped = mapped.then(|| "idmapped".to_owned());
    let wanted = wanted.cloned().chain(mapped).collect();
    let kinds: &[&str] = match &mount.kind {
        MountKind::Kernel(kernel) if kernel.what.is_of_cgroups() => &["tmpfs", "cgroup", "cgroup2"],
        MountKind::Kernel(kernel) => match (kernel.what, own_kind(kernel.what)) {
            // Those of the node's own namespaces, or of a pod's.
            (KernelFileSystem::Mqueue, kinds) => kinds,
            (KernelFileSystem::Proc, kinds) if processes == Processes::Shared => kinds,
            (_, kinds) => return ExpectedMount::Made(wanted, kinds),
        },
        MountKind::Tmpfs(_) => return ExpectedMount::Made(wanted, &["tmpfs"]),
        MountKind::Bind(BindMount {
            access: BindAccess::Private,
            ..
        }) => &["overlay"],
        MountKind::Bind(_) => &[],
    };
    ExpectedMount::Planned(wanted, kinds)
}

fn own_kind(what: KernelFileSystem) -> &'static [&'static str] {
    match what {
        KernelFileSystem::Proc => &["proc"],
        KernelFileSystem::Sysfs => &["sysfs"],
        KernelFileSystem::Devpts => &["devpts"],
        KernelFileSystem::Mqueue => &["mqueue"],
        KernelFileSystem::Dev | KernelFileSystem::Shm => &["tmpfs"],
        KernelFileSystem::Cgroup | KernelFileSystem::Cgroup2 => &["cgroup", "cgroup2"],
    }
}

fn processes(plan: &Plan) -> Processes {
    let is_own = |planned: &PlannedNamespace| {
        planned.isolates == NamespaceType::Pid && planned.path.is_none()
    };
    match plan.namespaces.iter().any(is_own) {
        true => Processes::Own,
        false => Processes::Shared,
    }
}

/// The expected mounts of a plan, by place.
struct Expectations(BTreeMap<PathBuf, Vec<ExpectedMount>>);

impl Expectations {
    fn add(&mut self, place: &Path, expected: ExpectedMount) {
        self.0.entry(place.to_owned()).or_default().push(expected);
    }

    fn of(plan: &Plan) -> Self {
        let mut all = Self(BTreeMap::new());
        let files = &plan.filesystem;
        let (root, kinds): (_, &[&str]) = match files.root {
            RootAccess::ReadOnly => (owned(&["ro"]), &[]),
            RootAccess::Ephemeral => (Vec::new(), &["overlay"]),
            RootAccess::Engine => (Vec::new(), &[]),
        };
        all.add(Path::new("/"), ExpectedMount::Planned(root, kinds));
        let processes = processes(plan);
        for mount in &files.mounts {
            all.add(&mount.destination, planned(mount, processes));
        }
        for dir in &files.ephemeral {
            all.add(&dir.path, ExpectedMount::Perhaps(of_ephemeral(dir)));
        }
        for place in &files.replaced {
            all.add(place, ExpectedMount::Planned(owned(&OWN), &[]));
        }
        for exclude in &files.excludes {
            all.add(&exclude.file, ExpectedMount::Perhaps(owned(&OWN)));
        }
        all.add(Path::new(DENIED_IN), ExpectedMount::Perhaps(owned(&OWN)));
        for directory in plan.network.socket_directories() {
            all.add(directory, ExpectedMount::Planned(owned(&OWN), &[]));
        }
        all.covered(files, processes);
        all
    }

    fn covered(&mut self, files: &FilesystemPlan, processes: Processes) {
        let protected = files.protected.iter().map(|one| &one.path);
        for place in files.readonly.iter().chain(protected) {
            self.add(place, ExpectedMount::Again(owned(&["ro"])));
        }
        for place in &files.masked {
            self.add(place, ExpectedMount::Mask);
        }
        for seen in &files.seen {
            self.add(&seen.directory, ExpectedMount::Perhaps(owned(&["ro"])));
            for file in &seen.files {
                let place = seen.directory.join(&file.path);
                self.add(&place, ExpectedMount::Perhaps(owned(&["ro"])));
            }
        }
        for place in &files.pinned {
            // A second mount of a directory, with the attributes of its parent mount.
            let below = files
                .mounts
                .iter()
                .filter(|m| place.starts_with(&m.destination));
            let deepest = below.max_by_key(|m| m.destination.components().count());
            let over = files.ephemeral.iter().filter(|dir| {
                let hides = |mount: &PlannedMount| dir.path.starts_with(&mount.destination);
                place.starts_with(&dir.path) && deepest.is_none_or(hides)
            });
            let over = over.max_by_key(|dir| dir.path.components().count());
            let wanted = match (over, deepest.map(|mount| planned(mount, processes))) {
                (Some(dir), _) => of_ephemeral(dir),
                (
                    None,
                    Some(ExpectedMount::Planned(wanted, _) | ExpectedMount::Made(wanted, _)),
                ) => wanted,
                (None, _) => Vec::new(),
            };
            self.add(place, ExpectedMount::Perhaps(wanted));
        }
    }
}

/// The faults of the mounts, in words. `nodes` are the node's mounts: a mount made for the container is none of these.
pub fn compare(plan: &Plan, lines: &[MountedLine], nodes: &[MountedLine]) -> Vec<String> {
    let mut expected = Expectations::of(plan);
    let mut faults = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        // Holding a path in place, or making it read-only, mounts it on itself and copies all mounts below.
        let is_copy = lines[..number].iter().any(|other| other.is_like(line));
        let around = AllMounts { lines, nodes };
        if let Some(fault) = judge(plan, &mut expected, line, around).filter(|_| !is_copy) {
            faults.push(fault);
        }
    }
    for (place, rest) in &expected.0 {
        let missing = rest
            .iter()
            .any(|one| matches!(one, ExpectedMount::Planned(..) | ExpectedMount::Made(..)));
        let is_there = lines.iter().any(|line| line.place == *place);
        if missing && !is_there {
            let place = escape(&place.display().to_string());
            faults.push(format!("the plan's mount at {place} is missing"));
        }
    }
    faults
}

/// All mounts of the container and of the node.
#[derive(Clone, Copy)]
struct AllMounts<'a> {
    lines: &'a [MountedLine],
    nodes: &'a [MountedLine],
}

impl AllMounts<'_> {
    /// Whether a mount is of a file system that only the container has.
    fn is_made(self, line: &MountedLine, kinds: &[&str]) -> bool {
        let is_nodes = self.nodes.iter().any(|other| other.device == line.device);
        kinds.contains(&line.kind.as_str()) && line.root == Path::new("/") && !is_nodes
    }

    /// Whether a mount shows what its place would show without it.
    fn is_of_itself(self, line: &MountedLine) -> bool {
        let mut others = self.lines.iter().filter(|other| !other.is_like(line));
        others.any(|other| {
            let rest = line.place.strip_prefix(&other.place);
            let same = (&other.device, &other.kind) == (&line.device, &line.kind);
            same && rest.is_ok_and(|rest| match rest.as_os_str().is_empty() {
                true => other.root == line.root,
                false => other.root.join(rest) == line.root,
            })
        })
    }
}

/// The fault of one mount, if any.
fn judge(
    plan: &Plan,
    expected: &mut Expectations,
    line: &MountedLine,
    around: AllMounts<'_>,
) -> Option<String> {
    if is_the_runtimes(plan, line, around.lines) {
        return None;
    }
    let Some(here) = expected.0.get_mut(&line.place) else {
        if is_hidden_below(plan, line, around.lines) {
            return None;
        }
        return Some(format!("{}, which is not in the plan", line.words()));
    };
    let fits = |one: &ExpectedMount| match one {
        ExpectedMount::Planned(wanted, kinds) => {
            line.lacks(wanted).is_empty()
                && (kinds.is_empty() || kinds.contains(&line.kind.as_str()))
        }
        ExpectedMount::Made(wanted, kinds) => {
            line.lacks(wanted).is_empty() && around.is_made(line, kinds)
        }
        ExpectedMount::Perhaps(wanted) => line.lacks(wanted).is_empty(),
        ExpectedMount::Again(wanted) => line.lacks(wanted).is_empty() && around.is_of_itself(line),
        ExpectedMount::Mask => line.is_mask(),
    };
    match here.iter().position(fits) {
        Some(at) => {
            // Each expected mount may appear once.
            if !matches!(here[at], ExpectedMount::Again(_) | ExpectedMount::Mask) {
                here.remove(at);
            }
            None
        }
        None => Some(format!("{}, {}", line.words(), why_not(here, line))),
    }
}

/// Whether a mount below a bind mount is hidden, or hides another. In a user namespace, a bind mount brings the node's
/// mounts below it along.
fn is_hidden_below(plan: &Plan, line: &MountedLine, lines: &[MountedLine]) -> bool {
    let binds = plan.filesystem.mounts.iter().filter(|m| m.bind().is_some());
    let is_below = |place: &Path| {
        let mut around = binds.clone().map(|mount| &mount.destination);
        around.any(|at| place != at && place.starts_with(at))
    };
    line.place.ancestors().filter(|at| is_below(at)).any(|at| {
        let mut there = lines.iter().rev().filter(|one| one.place == *at);
        there.next().is_some_and(MountedLine::is_mask) && there.next().is_some()
    })
}

fn why_not(here: &[ExpectedMount], line: &MountedLine) -> String {
    let wanted = here.iter().find_map(|one| match one {
        ExpectedMount::Planned(wanted, _)
        | ExpectedMount::Made(wanted, _)
        | ExpectedMount::Perhaps(wanted)
        | ExpectedMount::Again(wanted) => Some(line.lacks(wanted)),
        ExpectedMount::Mask => None,
    });
    match wanted {
        Some(missing) if !missing.is_empty() => {
            format!("and is not {}, as planned", missing.join(", "))
        }
        Some(_) => "where the plan has another mount".to_owned(),
        None => "where the plan has no further mount, or hides one".to_owned(),
    }
}

/// Whether the runtime makes this mount: always, or for a terminal, a user namespace, or a certificate authority.
fn is_the_runtimes(plan: &Plan, line: &MountedLine, lines: &[MountedLine]) -> bool {
    let place = &line.place;
    let kind = line.kind.as_str();
    // Hiding more of the kernel's files than requested is harmless; a kernel's link may lead there.
    let hides = ["/proc", "/sys"].iter().any(|top| place.starts_with(top)) && line.is_mask();
    let has_cgroups = plan
        .filesystem
        .mounts
        .iter()
        .any(PlannedMount::shows_cgroups);
    let cgroup = has_cgroups
        && place.parent() == Some(Path::new("/sys/fs/cgroup"))
        && kind.starts_with("cgroup")
        && line.has("ro");
    let console = place == Path::new("/dev/console") && kind == "devpts";
    let name = place.strip_prefix("/dev").ok().and_then(Path::to_str);
    let node = name.is_some_and(|name| {
        let is_given = NODES.contains(&name) || plan.devices.contains(place);
        is_given && line.is_node(name)
    });
    hides || cgroup || console || node || is_trusted(plan, line, lines)
}

/// Whether it is a certificate list from the authority's file system.
fn is_trusted(plan: &Plan, line: &MountedLine, lines: &[MountedLine]) -> bool {
    let own = lines.iter().find(|line| line.place == Path::new(TRUST_IN));
    plan.network.opens().is_some()
        && own.is_some_and(|own| own.device == line.device && own.kind == "tmpfs")
        && line.lacks(&owned(&["ro", "nosuid", "nodev"])).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{
        FileKind, KernelFileSystem, KernelMount, ProgramMode, SourceIdentity, Tmpfs,
    };

    fn mount(destination: &str, kind: MountKind) -> PlannedMount {
        PlannedMount {
            destination: destination.into(),
            kind,
            why: String::new().into(),
        }
    }

    fn bind(access: BindAccess) -> MountKind {
        MountKind::Bind(BindMount {
            source: "/srv/x".into(),
            judged: SourceIdentity {
                dev: 1,
                ino: 2,
                kind: FileKind::Directory,
            },
            access,
            programs: ProgramMode::Run,
            ids: MappedIds::Node,
        })
    }

    fn plan() -> Plan {
        let mut plan = crate::plan::tests::sample();
        plan.devices = ["/dev/fuse".into()].into();
        let files = &mut plan.filesystem;
        files.root = RootAccess::Ephemeral;
        let sysfs = KernelMount {
            what: KernelFileSystem::Sysfs,
            source: "sysfs".into(),
            options: owned(&["nosuid", "noexec", "nodev", "ro"]),
        };
        let proc = KernelMount {
            what: KernelFileSystem::Proc,
            source: "proc".into(),
            options: owned(&["nosuid", "noexec", "nodev"]),
        };
        files.mounts = vec![
            mount("/proc", MountKind::Kernel(proc)),
            mount("/sys", MountKind::Kernel(sysfs)),
            mount(
                "/tmp",
                MountKind::Tmpfs(Tmpfs {
                    source: "tmpfs".into(),
                    options: owned(&["nosuid", "nodev"]),
                }),
            ),
            mount("/work", bind(BindAccess::ReadWrite)),
            mount("/ref", bind(BindAccess::ReadOnly)),
            mount("/cache", bind(BindAccess::Private)),
        ];
        files.ephemeral = vec![EphemeralMount {
            path: "/root".into(),
            content: EphemeralContent::EmptyHome,
        }];
        files.masked = vec!["/proc/keys".into(), "/work/.netrc".into()];
        files.found = ["/work/.netrc".into()].into();
        files.readonly = vec!["/proc/sys".into()];
        files.replaced = ["/etc/hosts".into()].into();
        files.seen = Vec::new();
        files.pinned = ["/work/a".into()].into();
        files.excludes = Vec::new();
        plan
    }

    const NODE: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:44 / /run rw,nosuid,nodev - tmpfs tmpfs rw
24 22 0:21 / /proc rw,nosuid,nodev,noexec - proc proc rw
25 22 0:20 / /sys rw,nosuid,nodev,noexec - sysfs sysfs rw
";

    /// The mounts of a healthy container with that plan, as the kernel lists them.
    const GOOD: &str = "\
117 104 0:66 / / rw,relatime - overlay agentbox rw,lowerdir=/
128 117 0:60 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
116 117 0:70 / /tmp rw,nosuid,nodev,relatime - tmpfs tmpfs rw
101 117 0:56 / /sys ro,nosuid,nodev,noexec,relatime - sysfs sysfs rw
95 117 0:41 /srv/w /work rw,nosuid,nodev,relatime - ext4 /dev/vda rw
94 95 0:41 /srv/w/a /work/a rw,nosuid,nodev,relatime - ext4 /dev/vda rw
96 117 0:41 /srv/ref /ref ro,nosuid,nodev,relatime - ext4 /dev/vda rw
97 117 0:67 / /cache rw,nosuid,nodev,relatime - overlay agentbox rw
118 117 7:0 /0.upper /root rw,nosuid,nodev,noexec,noatime - ext4 /dev/loop0 rw
98 117 0:44 /x/hosts /etc/hosts ro,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw
100 128 0:60 /sys /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc rw
107 128 0:61 /null /proc/keys rw,nosuid,noexec - tmpfs tmpfs rw,size=65536k
114 95 0:61 /null /work/.netrc rw,nosuid,noexec - tmpfs tmpfs rw,size=65536k
105 128 0:65 / /proc/acpi ro,relatime - tmpfs tmpfs ro
52 107 0:61 /0 /dev/console rw,nosuid,noexec,relatime - devpts devpts rw
53 107 0:5 /fuse /dev/fuse rw,nosuid,noexec - devtmpfs udev rw
";

    fn faults(text: &str) -> Vec<String> {
        compare(
            &plan(),
            &MountedLine::parse(text).unwrap(),
            &MountedLine::parse(NODE).unwrap(),
        )
    }

    #[test]
    fn a_healthy_container_has_no_fault() {
        assert_eq!(faults(GOOD), [""; 0]);
    }

    /// As `wrap --policy permissive` shows a home: read-only, and a private overlay over it.
    #[test]
    fn a_pinned_directory_below_a_private_home_is_no_fault() {
        let mut plan = plan();
        let home = mount("/home/a", bind(BindAccess::ReadOnly));
        plan.filesystem.mounts.push(home);
        plan.filesystem.ephemeral.push(EphemeralMount {
            path: "/home/a".into(),
            content: EphemeralContent::Image,
        });
        plan.filesystem.pinned.insert("/home/a/.local".into());
        let shown = "\
160 117 0:41 /home/a /home/a ro,nosuid,nodev,relatime - ext4 /dev/vda rw
161 160 0:79 / /home/a rw,nosuid,nodev,relatime - overlay agentbox rw
";
        let pinned =
            "162 161 0:79 /.local /home/a/.local rw,nosuid,nodev,relatime - overlay agentbox rw\n";
        let faults = |more: &str| {
            let lines = MountedLine::parse(&format!("{GOOD}{more}")).unwrap();
            compare(&plan, &lines, &MountedLine::parse(NODE).unwrap())
        };
        assert_eq!(faults(&format!("{shown}{pinned}")), [""; 0]);
        assert_eq!(faults(shown), [""; 0]);
        let set_id = pinned.replace("nosuid,", "");
        assert_eq!(faults(&format!("{shown}{set_id}")).len(), 1);
        // The home itself is read-only below the overlay.
        let written = shown.replace("/home/a ro", "/home/a rw");
        assert_ne!(faults(&written), [""; 0]);
    }

    #[test]
    fn a_repeated_mount_is_no_fault() {
        let hosts = GOOD
            .lines()
            .find(|line| line.contains("/etc/hosts"))
            .unwrap();
        assert_eq!(faults(&format!("{GOOD}{hosts}\n")), [""; 0]);
    }

    /// In a user namespace it cannot be left out: it is there, but hidden.
    #[test]
    fn a_masked_mount_below_a_bind_is_no_fault() {
        let disk = "150 95 8:1 / /work/data rw - ext4 /dev/sda1 rw\n151 150 8:2 / /work/data/b rw - ext4 /dev/sdb1 rw\n";
        let mask = "152 150 0:65 / /work/data ro,relatime - tmpfs tmpfs ro\n";
        assert_eq!(faults(&format!("{GOOD}{disk}{mask}")), [""; 0]);
        let again = "153 152 8:1 / /work/data rw - ext4 /dev/sda1 rw\n";
        for (text, count) in [
            (format!("{GOOD}{disk}"), 2),
            (format!("{GOOD}{mask}"), 1),
            (format!("{GOOD}{disk}{mask}{again}"), 3),
        ] {
            assert_eq!(faults(&text).len(), count, "{text}");
        }
    }

    #[test]
    fn a_foreign_changed_or_missing_mount_is_found() {
        let foreign = [
            // A socket of an engine, the node's root, /etc, the runtime's state, at any place.
            "200 117 0:44 /docker.sock /tmp/d.sock rw,nosuid,nodev,noexec - tmpfs tmpfs rw",
            "200 117 254:0 / /tmp/host rw,relatime - ext4 /dev/vda rw",
            "200 117 254:0 /etc /work/etc ro,nosuid,nodev,noexec - ext4 /dev/vda rw",
            "200 117 0:44 /agentbox /run/a ro,nosuid,nodev,noexec - tmpfs tmpfs rw",
            // Over a mount of the plan.
            "200 95 254:0 / /work rw,nosuid,nodev,relatime - ext4 /dev/vda rw",
            "200 117 254:0 / / rw,relatime - ext4 /dev/vda rw",
            "200 117 254:0 /etc /etc/hosts ro,nosuid,nodev,noexec - ext4 /dev/vda rw",
            // Read-only, where the plan mounts the kernel's own directory read-only again.
            "200 128 254:0 / /proc/sys ro,nosuid,nodev,noexec - ext4 /dev/vda rw",
            "200 128 0:44 /agentbox /proc/sys ro,nosuid,nodev,noexec - tmpfs tmpfs rw",
            "200 128 0:99 /sys /proc/sys ro,nosuid,nodev,noexec - proc proc rw",
            "200 128 0:60 /bus /proc/sys ro,nosuid,nodev,noexec - proc proc rw",
            // Disguised as a mask, a device, or a runtime's file.
            "200 117 0:44 / /tmp/x ro,relatime - tmpfs tmpfs ro",
            "200 117 0:44 / /proc/keys ro,relatime - tmpfs tmpfs rw",
            "200 117 0:44 /x /proc/keys ro,relatime - tmpfs tmpfs ro",
            "200 117 0:5 /vda /dev/null rw,nosuid - devtmpfs udev rw",
            "200 117 0:5 /kmsg /dev/kmsg rw,nosuid - devtmpfs udev rw",
            "200 117 0:44 /x /run/agentbox rw,nosuid,nodev,noexec - tmpfs tmpfs rw",
            "200 101 0:36 / /sys/fs/cgroup/pids ro,nosuid,nodev,noexec - cgroup cgroup rw",
        ];
        for line in foreign {
            let found = faults(&format!("{GOOD}{line}\n"));
            assert_eq!(found.len(), 1, "{line}: {found:?}");
        }
        for (from, to) in [
            ("/ref ro,", "/ref rw,"),
            ("/work rw,nosuid,nodev,", "/work rw,nodev,"),
            ("/work rw,nosuid,nodev,", "/work rw,nosuid,"),
            ("/root rw,nosuid,nodev,noexec,", "/root rw,nosuid,nodev,"),
            ("/sys ro,", "/sys rw,"),
            (
                "/sys ro,nosuid,nodev,noexec,relatime - sysfs",
                "/sys ro,nosuid,nodev,noexec - tmpfs",
            ),
            ("/proc/sys ro,", "/proc/sys rw,"),
            ("/etc/hosts ro,", "/etc/hosts rw,"),
            ("- overlay agentbox rw\n", "- ext4 /dev/vda rw\n"),
            ("/work/a rw,nosuid,", "/work/a rw,"),
            ("/null /work/.netrc", "/netrc /work/.netrc"),
            // The node's own file system instead of one that was made for the container.
            ("0:56 / /sys ", "0:20 / /sys "),
            (
                "117 104 0:66 / / rw,relatime - overlay agentbox rw,lowerdir=/",
                "117 104 254:0 / / rw - ext4 /dev/vda rw",
            ),
            ("0:70 / /tmp", "0:44 / /tmp"),
            ("0:70 / /tmp", "0:70 /x /tmp"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let found = faults(&GOOD.replacen(from, to, 1));
            assert_eq!(found.len(), 1, "{to}: {found:?}");
        }
        // The node's processes; all mounts of that proc count.
        let found = faults(&GOOD.replace("0:60", "0:21"));
        assert_eq!(found.len(), 1, "{found:?}");
        for place in [" /ref ", " /work ", " /sys ", " /cache ", " /etc/hosts "] {
            let rest: Vec<&str> = GOOD.lines().filter(|line| !line.contains(place)).collect();
            let found = faults(&rest.join("\n"));
            assert_eq!(found.len(), 1, "{place}: {found:?}");
        }
    }

    #[test]
    fn a_writable_root_is_a_fault_and_an_unparsable_line_an_error() {
        let mut plan = plan();
        plan.filesystem.root = RootAccess::ReadOnly;
        let lines = MountedLine::parse(GOOD).unwrap();
        assert_eq!(compare(&plan, &lines, &[]).len(), 1);
        assert!(MountedLine::parse("117 104 0:66\n").is_err());
    }
}
