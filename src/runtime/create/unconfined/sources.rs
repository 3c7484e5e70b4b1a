//! The sources of mounts that the init process makes itself, opened and changed while the host is in sight.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::Mount;
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::mount::{has, is_id_mapped};
use super::refused::refused;
use super::user_namespace::lines;
use crate::enforce::unconfined::setup::MountSource;
use crate::kernel::mount_options::{self, Bits, Changes, MountReach, Propagation};
use crate::plan::FileKind;
use crate::probe::is_bind;
use crate::runtime::create::error::MountRefusal;
use crate::runtime::error::RuntimeError;
use crate::sys::mount::{change, map_ids};
use crate::sys::user::make_namespace;

pub(super) fn source(
    mount: &Mount,
    container: Option<&OwnedFd>,
    propagation: Option<&str>,
) -> Result<MountSource, RuntimeError> {
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
            MountReach::Below
        } else {
            MountReach::One
        };
        let (tree, kind) = (tree(&from, reach)?, kind_of(&from)?);
        inherit(&tree, propagation).map_err(RuntimeError::io(step()))?;
        map(&tree, mount, container)?;
        apply(&tree, &mount_options::changes(&options)).map_err(RuntimeError::io(step()))?;
        return Ok(MountSource::Tree(tree, kind));
    }
    let typ = mount.typ().clone().unwrap_or_else(|| "none".to_owned());
    if typ == "cgroup" {
        return Err(refused(MountRefusal::CgroupOrder(
            mount.destination().clone(),
        )));
    }
    if !has(mount, &["tmpcopyup"]) {
        return Ok(MountSource::FileSystem(typ, from, options));
    }
    if typ != "tmpfs" {
        // runc's rule.
        let destination = mount.destination().clone();
        return Err(refused(MountRefusal::CopyUp { destination, typ }));
    }
    Ok(MountSource::CopyUp(options))
}

pub(super) fn tree(path: &Path, reach: MountReach) -> Result<OwnedFd, RuntimeError> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if reach == MountReach::Below {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    open_tree(CWD, path, flags).map_err(RuntimeError::io(format!("open the source {path:?}")))
}

fn kind_of(path: &Path) -> Result<FileKind, RuntimeError> {
    let stat = rustix::fs::stat(path).map_err(RuntimeError::io(format!("look at {path:?}")))?;
    Ok(FileKind::of(stat.st_mode))
}

/// Sets the propagation that a copy would have inherited in the container's own mount namespace. libcontainer makes its
/// mounts slaves of the host's, or private, or keeps them shared.
fn inherit(tree: &OwnedFd, propagation: Option<&str>) -> std::io::Result<()> {
    let kind = match propagation {
        Some(shared) if shared.contains("shared") => return Ok(()),
        Some(private) if private.contains("private") => Propagation::Private,
        _ => Propagation::Slave,
    };
    change(tree.as_fd(), Bits::default(), Some(kind), MountReach::Below)
}

fn apply(tree: &OwnedFd, changes: &Changes) -> std::io::Result<()> {
    change(tree.as_fd(), changes.one, None, MountReach::One)?;
    change(tree.as_fd(), changes.below, None, MountReach::Below)?;
    let mut kinds = changes.propagation.iter();
    kinds.try_for_each(|(kind, reach)| change(tree.as_fd(), Bits::default(), Some(*kind), *reach))
}

/// Maps the ids of a bind mount as it requests: by its own maps, or by those of the container's user namespace.
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
            return Err(refused(MountRefusal::HalfMapped(at.clone())));
        }
    };
    let namespace = own
        .as_ref()
        .or(container)
        .ok_or_else(|| refused(MountRefusal::NotMapped(at.clone())))?;
    let reach = if has(mount, &["ridmap"]) {
        MountReach::Below
    } else {
        MountReach::One
    };
    map_ids(tree.as_fd(), namespace.as_fd(), reach)
        .map_err(RuntimeError::io(format!("map the ids of the mount {at:?}")))
}
