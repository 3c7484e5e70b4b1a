//! Tries whether a mount's ids can be mapped, on a copy that is mounted nowhere.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatVfsMountFlags, StatxFlags};

use super::{HeldSource, SourcesByMount};
use crate::kernel::mount_options::MountReach;
use crate::plan::idmap::IdmapContext;
use crate::plan::ids::IdmapOutcome;
use crate::plan::set_id::is_own_group;
use crate::plan::{BundleFacts, FileKind, FilesystemPlan, MappedIds, SourceFacts};
use crate::sys::mount::{copy, map_ids};
use crate::sys::user::make_namespace;

/// Entries of a directory that are checked for one common owner. This only chooses the more comfortable of two maps,
/// not a safety matter. A project's directory has some dozens.
const ENTRIES: usize = 1024;

/// Tries each mount of the plan for which the policy wants a map. Returns whether the plan must be made again.
pub fn try_all(
    facts: &mut BundleFacts,
    opened: &mut [HeldSource],
    plan: &FilesystemPlan,
    container: IdmapContext<'_>,
) -> bool {
    let mut tried = false;
    let by_mount = SourcesByMount::new(opened);
    for mount in &plan.mounts {
        let Some(number) = by_mount.of(opened, mount) else {
            continue;
        };
        let source = &mut opened[number];
        let of_mount = |facts: &&mut SourceFacts| {
            let judged = (facts.dev, facts.ino);
            mount.bind().is_some_and(|b| b.is_of(&facts.path, judged))
        };
        let all = facts.sources.iter_mut().flatten();
        let mut all = all.flat_map(|facts| match of_mount(&facts) {
            true => Some(facts),
            false => facts.home.as_mut()?.working.as_deref_mut(),
        });
        let Some(found) = all.find(of_mount) else {
            continue;
        };
        if !container.is_to_be_tried(plan, mount, &found.ids) {
            continue;
        }
        tried = true;
        found.ids.mapped = Some(match attempt(source, found) {
            Ok(ids) => IdmapOutcome::To {
                ids,
                own_group: std::fs::read_to_string("/etc/passwd")
                    .is_ok_and(|text| is_own_group(&text, found.ids.uid, found.ids.gid)),
            },
            Err(error) => IdmapOutcome::Cannot(format!(
                "its file system ({}) cannot map ids here: {error}",
                found.file_system.kind
            )),
        });
    }
    tried
}

/// Maps a copy. Keeps the user namespace that has the map.
fn attempt(source: &mut HeldSource, facts: &SourceFacts) -> io::Result<MappedIds> {
    let tree = copy(&source.fd, MountReach::One)?;
    let entries = match facts.kind {
        FileKind::Directory => entries(&tree)?,
        _ => Vec::new(),
    };
    let ids = MappedIds::of(facts.ids.uid, facts.ids.gid, &entries);
    if let Some((users, groups)) = ids.maps() {
        let namespace = make_namespace(&users, &groups)?;
        map_ids(tree.as_fd(), namespace.as_fd(), MountReach::One)?;
        source.map = Some((ids, namespace));
    }
    Ok(ids)
}

/// The owners and groups of a directory's first entries.
fn entries(tree: &OwnedFd) -> io::Result<Vec<(u32, u32)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(tree, ".", flags, Mode::empty())?;
    let mut all = Vec::new();
    for entry in Dir::read_from(&directory)?.take(ENTRIES) {
        let entry = entry?;
        if entry.file_name() == c".." {
            continue;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::UID | StatxFlags::GID;
        match rustix::fs::statx(&directory, entry.file_name(), flags, wanted) {
            Ok(found) => all.push((found.stx_uid, found.stx_gid)),
            // Removed meanwhile.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Whether a descriptor's mount is nosuid.
pub(super) fn is_without_set_id(fd: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(fd).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOSUID))
}
