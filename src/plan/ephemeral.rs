//! PURE. Which directories are private, writable and thrown away.

use std::path::{Component, Path, PathBuf};

use super::facts::BundleFacts;
use super::filesystem::{EphemeralContent, EphemeralMount};
use super::mount::PlannedMount;
use crate::policy::{EphemeralDir, Policy, RootAccess};

/// The private directories of a container, in mount order.
pub(super) fn ephemeral(
    policy: &Policy,
    root: RootAccess,
    bundle: &BundleFacts,
    kept: &[PlannedMount],
) -> Vec<EphemeralMount> {
    // A root that is writable as a whole needs only what a mount covers, and an empty /tmp. With the engine's root,
    // /tmp is the engine's too.
    let by_root = |path: &Path, empty: bool| {
        let written = match root {
            RootAccess::ReadOnly => false,
            RootAccess::Ephemeral => !empty,
            RootAccess::Engine => true,
        };
        written
            && !kept
                .iter()
                .any(|m| m.bind().is_some() && path.starts_with(&m.destination))
    };
    let home = bundle.home.as_deref().filter(|home| is_home_like(home));
    let home = home.map(|home| home.components().collect::<PathBuf>());
    let dirs = &policy.filesystem.ephemeral;
    let mut out: Vec<EphemeralMount> = Vec::new();
    for dir in dirs {
        let (path, content) = match (dir, &home) {
            (EphemeralDir::Tmp, _) => (PathBuf::from("/tmp"), EphemeralContent::Empty),
            (EphemeralDir::Run, _) => (PathBuf::from("/run"), EphemeralContent::Image),
            (EphemeralDir::Var, _) => (PathBuf::from("/var"), EphemeralContent::Image),
            (EphemeralDir::EmptyHome, Some(_)) if dirs.contains(&EphemeralDir::Home) => continue,
            (EphemeralDir::EmptyHome, Some(home)) => (home.clone(), EphemeralContent::EmptyHome),
            (EphemeralDir::Home, Some(home)) => (home.clone(), EphemeralContent::Image),
            (EphemeralDir::Home | EphemeralDir::EmptyHome, None) => continue,
        };
        let empty = content != EphemeralContent::Image;
        if is_mounted(&path, bundle, kept) || by_root(&path, empty) {
            continue;
        }
        out.push(EphemeralMount { path, content });
    }
    // A home below /var is private with /var, in any order of the names: the kernel stacks two overlays at most, and
    // the image's own is one (FILESYSTEM_MAX_STACK_DEPTH).
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out.dedup_by(|later, earlier| later.path.starts_with(&earlier.path));
    out
}

/// A mount of the engine is at the path, or a writable one above it: writes there must stay.
fn is_mounted(path: &Path, bundle: &BundleFacts, kept: &[PlannedMount]) -> bool {
    let above = kept
        .iter()
        .filter(|m| path.starts_with(&m.destination) && !bundle.wrapped.contains(&m.destination));
    let nearest = above.max_by_key(|m| m.destination.components().count());
    nearest.is_some_and(|m| m.destination == path || m.is_writable())
}

/// Whether an overlay may cover the directory without hiding parts of the system.
pub(super) fn is_home_like(home: &Path) -> bool {
    let exactly = ["/", "/tmp", "/var"];
    // These contain programs and settings: even a temporary write there can plant one (F07).
    let system = [
        "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc",
        "/run", "/sbin", "/sys", "/usr",
    ];
    // The overlay file system reads `:` and `\\` in the name of its lower directory.
    let nameable = home.to_str().is_some_and(|h| !h.contains([':', '\\']));
    home.is_absolute()
        && !exactly.iter().any(|s| home == Path::new(s))
        && !system.iter().any(|s| home.starts_with(s))
        && is_plain(home)
        && nameable
}

pub(super) fn is_plain(path: &Path) -> bool {
    path.components()
        .all(|c| matches!(c, Component::RootDir | Component::Normal(_)))
}
