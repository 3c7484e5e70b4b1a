//! Splits a spec without a policy in two parts. libcontainer 0.7.0 does the first as runc would. The container's init
//! process does the second itself ([`crate::enforce::unconfined::setup`]). Opens everything for the second part while
//! the host is in sight.
//!
//! This folder is for parity with runc only: nothing in it is a wall.

mod image_root;
mod mount;
mod refused;
mod sources;
mod user_namespace;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Mount, Spec};
use rustix::fs::Mode;

use crate::enforce::unconfined::setup::{Device, MountSource, MountStep, UnconfinedSetup};
use crate::kernel::mount_options::{self, Bits, Changes, MountReach};
use crate::probe::is_bind;
use crate::runtime::error::RuntimeError;
use crate::runtime::launch::has_user_namespace;
use image_root::ImageRoot;
use mount::{is_read_only, is_special};
use refused::{check_kernels, check_proc, check_remount};
use sources::{source, tree};
use user_namespace::user_namespace;

/// The remaining work, and guards that must live while libcontainer works.
pub struct UnconfinedParts {
    /// For the container's init process.
    pub for_init: UnconfinedSetup,
    /// A user namespace that was made here; the spec names its descriptor.
    pub user_namespace: Option<OwnedFd>,
}

/// Takes out of `spec` what libcontainer cannot do. `rootfs` is the container's root as the host sees it.
pub fn split(spec: &mut Spec, rootfs: &Path) -> Result<UnconfinedParts, RuntimeError> {
    let user_namespace = user_namespace(spec)?;
    let in_user_namespace = has_user_namespace(spec);
    let root = ImageRoot::open(rootfs)?;
    let mut for_init = UnconfinedSetup::default();
    let propagation = spec
        .linux()
        .as_ref()
        .and_then(|l| l.rootfs_propagation().clone());
    let all = spec.mounts().clone().unwrap_or_default();
    let mut kept = Vec::new();
    let mut places: Vec<PathBuf> = Vec::new();
    let mut ours: BTreeSet<PathBuf> = BTreeSet::new();
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
        if is_special(&mount) || hidden || ours.iter().any(touches) {
            if destination == Path::new("/dev") {
                // libcontainer makes its devices somewhere: not in a directory of the host.
                kept.push(stand_in(&destination));
            }
            let source = source(&mount, user_namespace.as_ref(), propagation.as_deref())?;
            let is_tree = matches!(source, MountSource::Tree(..));
            let changes = mount_options::changes(mount.options().iter().flatten());
            for_init.steps.push(MountStep {
                destination: destination.clone(),
                mount: Some(source),
                changes: if is_tree { Changes::default() } else { changes },
            });
            ours.insert(destination.clone());
        } else {
            for_init.dev_read_only |= destination == Path::new("/dev") && is_read_only(&mount);
            for_init.steps.extend(changes_to(&mut mount));
            kept.push(mount);
        }
        places.push(destination);
    }
    spec.set_mounts(Some(kept));
    for_init.devices = devices(spec)?;
    take_last_steps(spec, &mut for_init);
    Ok(UnconfinedParts {
        for_init,
        user_namespace,
    })
}

/// The last steps, when everything is mounted.
fn take_last_steps(spec: &mut Spec, for_init: &mut UnconfinedSetup) {
    if let Some(process) = spec.process_mut() {
        for_init.cwd = process.cwd().clone();
        process.set_cwd(PathBuf::from("/"));
    }
    if let Some(linux) = spec.linux_mut() {
        let mut namespaces = linux.namespaces().iter().flatten();
        let network = namespaces.find(|n| n.typ() == LinuxNamespaceType::Network);
        for_init.new_network = network.is_some_and(|n| n.path().is_none());
        let paths = |list: &Option<Vec<String>>| list.iter().flatten().map(PathBuf::from).collect();
        for_init.readonly = paths(linux.readonly_paths());
        for_init.masked = paths(linux.masked_paths());
        for_init.mount_label = linux.mount_label().clone();
        linux.set_readonly_paths(None);
        linux.set_masked_paths(None);
    }
    if let Some(root) = spec.root_mut() {
        for_init.root_read_only = root.readonly().unwrap_or(false);
        root.set_readonly(Some(false));
    }
}

/// Device nodes outside of /dev, which libcontainer refuses. In a user namespace nodes can only be bound, not made.
fn devices(spec: &mut Spec) -> Result<Vec<Device>, RuntimeError> {
    let bind = has_user_namespace(spec);
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
            true => Some(tree(spec.path(), MountReach::One)?),
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

/// Whether every user can reach the source of a bind mount: libcontainer looks it up as the root of the container's
/// user namespace, an unprivileged user on the node. libcontainer reports a missing source.
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

/// The changes to a mount that libcontainer makes; it ignores these options.
fn changes_to(mount: &mut Mount) -> Option<MountStep> {
    let options = mount.options().clone().unwrap_or_default();
    let mut changes = mount_options::changes(&options);
    if !is_bind(mount) {
        // A new file system has the attributes already, except the one that libcontainer hands to the file system.
        let links = |o: &&String| o.ends_with("symfollow");
        let only = mount_options::changes(options.iter().filter(links));
        if !mount_options::take_back(&options) {
            (changes.one, changes.below) = (only.one, Bits::default());
        }
    }
    let plain = |o: &String| !mount_options::is_mistaken_for_data(o);
    mount.set_options(Some(options.into_iter().filter(plain).collect()));
    (!changes.is_empty()).then(|| MountStep {
        destination: mount.destination().clone(),
        mount: None,
        changes,
    })
}

/// Gives a tmpfs without a mode the mode of the directory that it covers (runc); the kernel's default is 1777.
fn own_mode(mount: &mut Mount, root: &ImageRoot, covered: &[PathBuf]) {
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
