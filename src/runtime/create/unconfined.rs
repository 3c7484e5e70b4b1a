//! Splits a spec without a policy in two parts: libcontainer 0.7.0 does the first as runc would, and the container's
//! first process does the second itself ([`crate::enforce::unconfined::setup`]). Opens everything for the second part
//! while the host is in sight.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxIdMapping, LinuxNamespaceType, Mount, Spec};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::enforce::unconfined::setup::{Device, Setup, Source, Step};
use crate::kernel::mount_options::{self, Bits, Changes, Propagation, Reach};
use crate::plan::FileKind;
use crate::probe::is_bind;
use crate::runtime::RuntimeError;
use crate::runtime::create::image_root::Root;
use crate::sys::mount::{change, map_ids};
use crate::sys::user::make_namespace;

/// What is left to do, and what must live as long as libcontainer works.
pub struct Split {
    /// For the container's first process.
    pub left: Setup,
    /// A user namespace that was made here; the spec names its descriptor.
    pub user_namespace: Option<OwnedFd>,
}

/// Takes out of `spec` what libcontainer cannot do. `rootfs` is the container's root as the host sees it.
pub fn split(spec: &mut Spec, rootfs: &Path) -> Result<Split, RuntimeError> {
    let user_namespace = user_namespace(spec)?;
    let in_user_namespace = crate::runtime::create::has_user_namespace(spec);
    let root = Root::open(rootfs)?;
    let mut left = Setup::default();
    let propagation = spec
        .linux()
        .as_ref()
        .and_then(|l| l.rootfs_propagation().clone());
    let all = spec.mounts().clone().unwrap_or_default();
    let mut kept = Vec::new();
    let mut places: Vec<PathBuf> = Vec::new();
    let mut late: BTreeSet<PathBuf> = BTreeSet::new();
    for mut mount in all {
        let destination = root.destination(mount.destination(), &places);
        check_kernels(mount.destination(), &destination)?;
        check_proc(&mount, &destination)?;
        check_remount(&mount)?;
        mount.set_destination(destination.clone());
        own_mode(&mut mount, &root, &places);
        let touches =
            |other: &PathBuf| destination.starts_with(other) || other.starts_with(&destination);
        let hidden = in_user_namespace && is_bind(&mount) && !can_reach(&mount);
        if is_special(&mount) || hidden || late.iter().any(touches) {
            if destination == Path::new("/dev") {
                // libcontainer makes its devices somewhere: not in what comes from the host.
                kept.push(stand_in(&destination));
            }
            let source = source(&mount, user_namespace.as_ref(), propagation.as_deref())?;
            let is_tree = matches!(source, Source::Tree(..));
            let changes = mount_options::changes(mount.options().iter().flatten());
            left.steps.push(Step {
                destination: destination.clone(),
                mount: Some(source),
                changes: if is_tree { Changes::default() } else { changes },
            });
            late.insert(destination.clone());
        } else {
            left.dev_read_only |= destination == Path::new("/dev") && is_read_only(&mount);
            left.steps.extend(changes_to(&mut mount));
            kept.push(mount);
        }
        places.push(destination);
    }
    spec.set_mounts(Some(kept));
    left.devices = devices(spec)?;
    rest(spec, &mut left);
    Ok(Split {
        left,
        user_namespace,
    })
}

/// What comes at the end, when everything is mounted.
fn rest(spec: &mut Spec, left: &mut Setup) {
    if let Some(process) = spec.process_mut() {
        left.cwd = process.cwd().clone();
        process.set_cwd(PathBuf::from("/"));
    }
    if let Some(linux) = spec.linux_mut() {
        let mut namespaces = linux.namespaces().iter().flatten();
        let network = namespaces.find(|n| n.typ() == LinuxNamespaceType::Network);
        left.new_network = network.is_some_and(|n| n.path().is_none());
        let paths = |list: &Option<Vec<String>>| list.iter().flatten().map(PathBuf::from).collect();
        left.readonly = paths(linux.readonly_paths());
        left.masked = paths(linux.masked_paths());
        left.mount_label = linux.mount_label().clone();
        linux.set_readonly_paths(None);
        linux.set_masked_paths(None);
    }
    if let Some(root) = spec.root_mut() {
        left.root_read_only = root.readonly().unwrap_or(false);
        root.set_readonly(Some(false));
    }
}

/// Device nodes outside of /dev, which libcontainer refuses. In a user namespace nodes cannot be made, only bound.
fn devices(spec: &mut Spec) -> Result<Vec<Device>, RuntimeError> {
    let bind = crate::runtime::create::has_user_namespace(spec);
    let Some(linux) = spec.linux_mut() else {
        return Ok(Vec::new());
    };
    let all = linux.devices().clone().unwrap_or_default();
    let (inside, outside): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|d| d.path().starts_with("/dev"));
    linux.set_devices(Some(inside));
    let mut devices = Vec::new();
    for spec in outside {
        let node = match bind {
            true => Some(tree(spec.path(), Reach::One)?),
            false => None,
        };
        devices.push(Device { spec, node });
    }
    Ok(devices)
}

fn stand_in(destination: &Path) -> Mount {
    let mut mount = Mount::default();
    mount
        .set_destination(destination.to_owned())
        .set_typ(Some("tmpfs".to_owned()))
        .set_source(Some(PathBuf::from("tmpfs")))
        .set_options(Some(vec!["mode=755".to_owned()]));
    mount
}

fn has(mount: &Mount, names: &[&str]) -> bool {
    let mut options = mount.options().iter().flatten();
    options.any(|o| names.contains(&o.as_str()))
}

fn is_read_only(mount: &Mount) -> bool {
    has(mount, &["ro"])
}

fn is_id_mapped(mount: &Mount) -> bool {
    let some = |m: &Option<Vec<LinuxIdMapping>>| m.as_ref().is_some_and(|m| !m.is_empty());
    has(mount, &["idmap", "ridmap"]) || some(mount.uid_mappings()) || some(mount.gid_mappings())
}

/// Whether libcontainer cannot make a mount, or makes another one.
fn is_special(mount: &Mount) -> bool {
    let bind = is_bind(mount);
    // Options of every file system, which libcontainer takes for attributes of the mount and loses.
    let of_superblock = !bind && has(mount, &["sync", "dirsync", "lazytime", "mand"]);
    let over_dev = bind && mount.destination() == Path::new("/dev");
    is_id_mapped(mount) || has(mount, &["tmpcopyup"]) || of_superblock || over_dev
}

/// Whether everybody can reach the source of a bind mount: libcontainer looks it up as the root of the container's user
/// namespace, an unprivileged user on the node. libcontainer reports a missing source.
fn can_reach(mount: &Mount) -> bool {
    let source = mount.source().clone().unwrap_or_default();
    let Ok(source) = source.canonicalize() else {
        return true;
    };
    let open = |dir: &Path| {
        let stat = rustix::fs::stat(dir);
        stat.is_ok_and(|s| Mode::from_raw_mode(s.st_mode).contains(Mode::XOTH))
    };
    source.ancestors().skip(1).all(open)
}

/// What is to be changed of a mount that libcontainer makes; it passes over these options.
fn changes_to(mount: &mut Mount) -> Option<Step> {
    let options = mount.options().clone().unwrap_or_default();
    let mut changes = mount_options::changes(&options);
    if !is_bind(mount) {
        // A new file system has the attributes already, but for the one that libcontainer hands to the file system.
        let links = |o: &&String| o.ends_with("symfollow");
        let only = mount_options::changes(options.iter().filter(links));
        if !mount_options::take_back(&options) {
            (changes.one, changes.below) = (only.one, Bits::default());
        }
    }
    let plain = |o: &String| !mount_options::is_mistaken_for_data(o);
    mount.set_options(Some(options.into_iter().filter(plain).collect()));
    (!changes.is_empty()).then(|| Step {
        destination: mount.destination().clone(),
        mount: None,
        changes,
    })
}

fn source(
    mount: &Mount,
    container: Option<&OwnedFd>,
    propagation: Option<&str>,
) -> Result<Source, RuntimeError> {
    let options = mount.options().clone().unwrap_or_default();
    let from = mount.source().clone().unwrap_or_default();
    if is_bind(mount) {
        let step = || {
            format!(
                "error mounting {from:?} to rootfs at {:?}",
                mount.destination()
            )
        };
        let reach = if has(mount, &["rbind"]) {
            Reach::Below
        } else {
            Reach::One
        };
        let (tree, kind) = (tree(&from, reach)?, kind_of(&from)?);
        inherit(&tree, propagation).map_err(RuntimeError::io(step()))?;
        map(&tree, mount, container)?;
        apply(&tree, &mount_options::changes(&options)).map_err(RuntimeError::io(step()))?;
        return Ok(Source::Tree(tree, kind));
    }
    let typ = mount.typ().clone().unwrap_or_else(|| "none".to_owned());
    if typ == "cgroup" {
        return Err(RuntimeError::Unsupported(format!(
            "the cgroup mount at {:?} lies over or below a mount that is made after it: put it first",
            mount.destination()
        )));
    }
    if !has(mount, &["tmpcopyup"]) {
        return Ok(Source::FileSystem(typ, from, options));
    }
    if typ != "tmpfs" {
        // runc's rule.
        return Err(RuntimeError::Unsupported(format!(
            "tmpcopyup at {:?} is for a tmpfs alone, not for {typ:?}",
            mount.destination()
        )));
    }
    Ok(Source::CopyUp(options))
}

fn tree(path: &Path, reach: Reach) -> Result<OwnedFd, RuntimeError> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if reach == Reach::Below {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).map_err(RuntimeError::io(format!("open the source {path:?}")))
}

fn kind_of(path: &Path) -> Result<FileKind, RuntimeError> {
    let stat = rustix::fs::stat(path).map_err(RuntimeError::io(format!("look at {path:?}")))?;
    Ok(FileKind::of(stat.st_mode))
}

/// What a copy would have inherited in the container's own mount namespace, whose mounts libcontainer makes slaves of the
/// host's, or private, or keeps shared.
fn inherit(tree: &OwnedFd, propagation: Option<&str>) -> std::io::Result<()> {
    let kind = match propagation {
        Some(shared) if shared.contains("shared") => return Ok(()),
        Some(private) if private.contains("private") => Propagation::Private,
        _ => Propagation::Slave,
    };
    change(tree.as_fd(), Bits::default(), Some(kind), Reach::Below)
}

fn apply(tree: &OwnedFd, changes: &Changes) -> std::io::Result<()> {
    change(tree.as_fd(), changes.one, None, Reach::One)?;
    change(tree.as_fd(), changes.below, None, Reach::Below)?;
    let mut kinds = changes.propagation.iter();
    kinds.try_for_each(|(kind, reach)| change(tree.as_fd(), Bits::default(), Some(*kind), *reach))
}

/// Maps the ids of a bind mount as it asks for: by its own maps, or by those of the container's user namespace.
fn map(tree: &OwnedFd, mount: &Mount, container: Option<&OwnedFd>) -> Result<(), RuntimeError> {
    if !is_id_mapped(mount) {
        return Ok(());
    }
    let at = mount.destination();
    let own = match (
        mount.uid_mappings().as_deref(),
        mount.gid_mappings().as_deref(),
    ) {
        (Some(uids), Some(gids)) if !uids.is_empty() && !gids.is_empty() => {
            let step = format!("make the user namespace of the mount {at:?}");
            Some(make_namespace(&lines(uids), &lines(gids)).map_err(RuntimeError::io(step))?)
        }
        (None | Some([]), None | Some([])) => None,
        _ => {
            return Err(RuntimeError::Unsupported(format!(
                "the mount {at:?} has uidMappings or gidMappings without the other"
            )));
        }
    };
    let namespace = own.as_ref().or(container).ok_or_else(|| {
        RuntimeError::Unsupported(format!(
            "the mount {at:?} asks for mapped ids, but neither it nor the container has a mapping"
        ))
    })?;
    let reach = if has(mount, &["ridmap"]) {
        Reach::Below
    } else {
        Reach::One
    };
    map_ids(tree.as_fd(), namespace.as_fd(), reach)
        .map_err(RuntimeError::io(format!("map the ids of the mount {at:?}")))
}

/// The text of /proc/PID/uid_map.
fn lines(mappings: &[LinuxIdMapping]) -> String {
    let line = |m: &LinuxIdMapping| format!("{} {} {}\n", m.container_id(), m.host_id(), m.size());
    mappings.iter().map(line).collect()
}

/// Makes the container's user namespace where libcontainer could not, or where a mount needs it beforehand:
/// libcontainer calls newuidmap(1) for more than one mapping, which root does not need.
fn user_namespace(spec: &mut Spec) -> Result<Option<OwnedFd>, RuntimeError> {
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

/// A tmpfs without a mode of its own has that of the directory that it covers (runc); the kernel's is 1777.
fn own_mode(mount: &mut Mount, root: &Root, covered: &[PathBuf]) {
    let tmpfs = mount.typ().as_deref() == Some("tmpfs") && !is_bind(mount);
    let options = mount.options().clone().unwrap_or_default();
    if !tmpfs || options.iter().any(|o| o.starts_with("mode=")) {
        return;
    }
    let at = mount.destination().clone();
    if covered.iter().any(|place| at.starts_with(place)) {
        return;
    }
    if let Some(mode) = root.mode(&at) {
        let mode = format!("mode={mode:o}");
        mount.set_options(Some([mode].into_iter().chain(options).collect()));
    }
}

/// `remount` makes no sense for a new mount: the kernel and runc refuse it, libcontainer drops it silently. `idmap` on a new
/// file system is refused too.
fn check_remount(mount: &Mount) -> Result<(), RuntimeError> {
    let refused = match (has(mount, &["remount"]), is_bind(mount)) {
        (true, _) => "remount",
        (false, false) if has(mount, &["idmap", "ridmap"]) => "idmap",
        _ => return Ok(()),
    };
    Err(RuntimeError::Unsupported(format!(
        "error mounting {:?} to rootfs at {:?}: the option {refused} is not for a new mount of type {:?}",
        mount.source().clone().unwrap_or_default(),
        mount.destination(),
        mount.typ().clone().unwrap_or_default(),
    )))
}

/// /dev, /proc and /sys must be real directories of the image: libcontainer works below them by path, and one of them may
/// have become a symlink since the bundle was read (CVE-2023-27561).
fn check_kernels(asked: &Path, found: &Path) -> Result<(), RuntimeError> {
    let kernels = ["/dev", "/proc", "/sys"]
        .iter()
        .any(|k| asked == Path::new(k));
    if !kernels || asked == found {
        return Ok(());
    }
    Err(RuntimeError::Unsupported(format!(
        "the image's {asked:?} leads to {found:?}: use an image where it is a directory and nobody changes it meanwhile"
    )))
}

/// Nothing but a procfs lies at /proc, and below it only what lxcfs emulates (runc's list): a program that reads its own
/// labels and ids from /proc must not be told others (CVE-2019-16884).
fn check_proc(mount: &Mount, destination: &Path) -> Result<(), RuntimeError> {
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
    let refused = |why: &str| {
        Err(RuntimeError::Unsupported(format!(
            "error mounting {:?} to rootfs at {destination:?}: {why}",
            mount.source().clone().unwrap_or_default()
        )))
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
            false => refused("it is not of type proc"),
        };
    }
    let inside = destination.starts_with("/proc");
    if inside && !EMULATED.iter().any(|e| destination == Path::new(e)) {
        return refused("it is inside /proc");
    }
    Ok(())
}
