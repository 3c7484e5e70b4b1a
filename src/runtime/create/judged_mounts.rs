//! Prepares the mounts that the init process makes itself, while the host's file system is in sight: detached copies of
//! the checked sources with their attributes, and mount points in the image.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::error::CreateError;
use super::excludes;
use crate::enforce::rootfs::{OwnMount, OwnSource, make_mount_point};
use crate::kernel::mount_options::{Bits, MountReach, Propagation};
use crate::plan::report::DENIED_IN;
use crate::plan::wrap_plan::layer_of;
use crate::plan::{
    BindAccess, BindMount, EphemeralMount, FileKind, FilesystemPlan, MappedIds, MountKind, Plan,
    ProgramMode,
};
use crate::probe::{HeldSource, SourcesByMount};
use crate::runtime::error::RuntimeError;
use crate::runtime::network::denial_dir;
use crate::runtime::unprivileged;
use crate::runtime::user_relay;
use crate::sys::mount::{self, change, map_ids};

/// Copies every source that the plan mounts late, the network wall's files, and git's exclude files.
pub fn prepare(
    plan: &Plan,
    sources: &[HeldSource],
    files: &Path,
) -> Result<Vec<OwnMount>, RuntimeError> {
    let shows = denial_dir::is_there(plan);
    let network = &plan.network;
    let plan = &plan.filesystem;
    let mut all = Vec::new();
    let by_mount = SourcesByMount::new(sources);
    for (index, mount) in plan.mounts.iter().enumerate() {
        let source = match &mount.kind {
            // Made before, by libcontainer or our own code.
            MountKind::Kernel(_) => continue,
            MountKind::Tmpfs(tmpfs) => OwnSource::Tmpfs(tmpfs.options.clone()),
            MountKind::Bind(bind) => {
                let source = by_mount.of(sources, mount).map(|number| &sources[number]);
                let (tree, reach) = tree(bind, source)?;
                match bind.access {
                    BindAccess::Private => OwnSource::Private {
                        tree,
                        name: format!("volume-{index}"),
                        attributes: attributes(bind),
                        kept: match &plan.kept {
                            Some(dir) => {
                                Some(open_kept_dir(&dir.join(layer_of(&mount.destination)))?)
                            }
                            None => None,
                        },
                    },
                    BindAccess::ReadOnly | BindAccess::ReadWrite => OwnSource::Tree {
                        tree,
                        kind: bind.judged.kind,
                        reach,
                    },
                }
            }
        };
        all.push(OwnMount {
            destination: mount.destination.clone(),
            source,
        });
    }
    let own = plan.replaced.iter().map(|destination| {
        let name = destination.file_name().unwrap_or_default();
        (destination.as_path(), files.join(name))
    });
    let of_git = excludes::write(plan, sources, files)
        .map_err(RuntimeError::io("write what git is told"))?;
    let own = own
        .chain(of_git)
        .map(|(at, path)| (at, path, FileKind::File));
    let shown = shows.then(|| {
        let at = Path::new(DENIED_IN);
        (at, denial_dir::directory(files), FileKind::Directory)
    });
    let sockets = user_relay::socket_directories(network, files);
    let sockets = sockets.map(|(at, path)| (at, path, FileKind::Directory));
    for (destination, path, kind) in own.chain(shown).chain(sockets) {
        let step = || format!("copy the mount of {path:?}");
        let file = rustix::fs::open(
            &path,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(RuntimeError::io(step()))?;
        let attributes = Bits::READ_ONLY
            .and(Bits::NO_PRIVILEGE)
            .and(Bits::NO_PROGRAM);
        all.push(OwnMount {
            destination: destination.to_owned(),
            source: OwnSource::Tree {
                tree: copy(&file, attributes, MountReach::One).map_err(RuntimeError::io(step()))?,
                kind,
                reach: MountReach::One,
            },
        });
    }
    Ok(all)
}

/// Copies the very source that was checked: found by inode and name among the open ones, never by opening a path. In a
/// user namespace the kernel copies no mount without the node's mounts below it (EINVAL, mount_namespaces(7)). They
/// come along, and the init process covers them.
fn tree(
    bind: &BindMount,
    source: Option<&HeldSource>,
) -> Result<(OwnedFd, MountReach), RuntimeError> {
    let step = || format!("copy the mount of {:?}", bind.source);
    let source = source.ok_or_else(|| CreateError::NotJudged(bind.source.clone()))?;
    let copied = |reach| copy(&source.fd, attributes(bind), reach).map(|tree| (tree, reach));
    let locked = |error: &std::io::Error| {
        error.raw_os_error() == Some(libc::EINVAL) && unprivileged::inside().is_some()
    };
    let (tree, reach) = match copied(MountReach::One) {
        Err(error) if locked(&error) => copied(MountReach::Below),
        other => other,
    }
    .map_err(RuntimeError::io(step()))?;
    if bind.ids != MappedIds::Node {
        let map = source.map.as_ref().filter(|(ids, _)| *ids == bind.ids);
        let (_, namespace) = map.ok_or_else(|| CreateError::NotJudged(bind.source.clone()))?;
        // The copy is not mounted yet, as the kernel requires.
        map_ids(tree.as_fd(), namespace.as_fd(), MountReach::One).map_err(RuntimeError::io(
            format!("map the ids of {:?}", bind.source),
        ))?;
    }
    Ok((tree, reach))
}

/// The directory of a kept overlay, with its upper directory and a new working directory for this run. The working
/// directory of an earlier run says that it was not written to the disk as a whole (`volatile`), which the kernel takes
/// for a crash.
fn open_kept_dir(dir: &Path) -> Result<OwnedFd, RuntimeError> {
    let step = |what: &str| format!("{what} {dir:?}, in which a cache is kept");
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, dir, flags, Mode::empty(), resolve);
    let opened = opened.map_err(RuntimeError::io(step("open")))?;
    // Through the descriptor, so no name on the way is resolved again.
    let work = format!("/proc/self/fd/{}/work", opened.as_raw_fd());
    match std::fs::remove_dir_all(&work) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(RuntimeError::io(step("clear"))(error));
        }
        _ => {}
    }
    rustix::fs::mkdirat(&opened, "work", Mode::from_raw_mode(0o700))
        .map_err(RuntimeError::io(step("prepare")))?;
    copy(&opened, Bits::NO_PRIVILEGE, MountReach::One)
        .map_err(RuntimeError::io(step("copy the mount of")))
}

/// The restrictions of a bind mount. A private mount is written through an overlay, not directly.
fn attributes(bind: &BindMount) -> Bits {
    let writes = match bind.access {
        BindAccess::ReadOnly => Bits::READ_ONLY,
        BindAccess::ReadWrite | BindAccess::Private => Bits::default(),
    };
    let programs = match bind.programs {
        ProgramMode::Run => Bits::default(),
        ProgramMode::Refused => Bits::NO_PROGRAM,
    };
    Bits::NO_PRIVILEGE.and(writes).and(programs)
}

/// Copies a mount and adds attributes. Mounts do not propagate in or out.
pub(super) fn copy(
    source: &OwnedFd,
    attributes: Bits,
    reach: MountReach,
) -> std::io::Result<OwnedFd> {
    let tree = mount::copy(source, reach)?;
    let private = Some(Propagation::Private);
    change(tree.as_fd(), attributes, private, reach)?;
    Ok(tree)
}

/// Makes the mount points that lie in the image itself, as every runtime does. Others are made when their parent is
/// mounted. A read-only image must have them already.
pub fn make_mount_points(
    rootfs: &Path,
    plan: &FilesystemPlan,
    mounts: &[OwnMount],
) -> Result<(), RuntimeError> {
    let root = rustix::fs::openat(
        CWD,
        rootfs,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(RuntimeError::io(format!(
        "open the root file system {rootfs:?}"
    )))?;
    let own = plan.mounted_by_init();
    let inside_another = |path: &PathBuf| {
        let parent = path.parent().unwrap_or(path);
        parent.starts_with("/dev") || own.hold(parent)
    };
    // A private directory that the image lacks is left out, and a mount below it would have no place.
    let has_mounts = |dir: &&EphemeralMount| {
        let below =
            |m: &OwnMount| m.destination != dir.path && m.destination.starts_with(&dir.path);
        mounts.iter().any(below)
    };
    let private = plan.ephemeral.iter().filter(has_mounts);
    for dir in private.filter(|dir| !inside_another(&dir.path)) {
        make_mount_point(root.as_fd(), &dir.path, FileKind::Directory)?;
    }
    for mount in mounts.iter().filter(|m| !inside_another(&m.destination)) {
        let kind = match &mount.source {
            OwnSource::Tree { kind, .. } => *kind,
            OwnSource::Private { .. } | OwnSource::Tmpfs(_) => FileKind::Directory,
        };
        make_mount_point(root.as_fd(), &mount.destination, kind)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SourceIdentity;

    #[test]
    fn a_bind_mount_has_the_restrictions_of_its_plan_and_never_a_privilege() {
        use BindAccess::{Private, ReadOnly, ReadWrite};
        let plain = Bits::NO_PRIVILEGE;
        let (read_only, no_program) = (plain.and(Bits::READ_ONLY), plain.and(Bits::NO_PROGRAM));
        for (access, programs, expected) in [
            (ReadOnly, ProgramMode::Run, read_only),
            (
                ReadOnly,
                ProgramMode::Refused,
                read_only.and(Bits::NO_PROGRAM),
            ),
            (ReadWrite, ProgramMode::Run, plain),
            (ReadWrite, ProgramMode::Refused, no_program),
            // Written through an overlay, which needs a source without `ro`.
            (Private, ProgramMode::Run, plain),
            (Private, ProgramMode::Refused, no_program),
        ] {
            let bind = BindMount {
                source: "/srv/data".into(),
                judged: SourceIdentity {
                    dev: 1,
                    ino: 2,
                    kind: FileKind::Directory,
                },
                access,
                programs,
                ids: MappedIds::Node,
            };
            assert_eq!(attributes(&bind), expected, "{access:?} {programs:?}");
        }
    }
}
