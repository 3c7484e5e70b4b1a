//! Paths of the node's system.

use std::path::{Path, PathBuf};

/// Whether a mount of the node's system has only programs and their settings: the system's directories and the listed
/// parts of /etc, which only root writes. They are large and have no credentials.
pub(super) fn is_programs(path: &Path) -> bool {
    const SYSTEM: [&str; 8] = [
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt",
    ];
    (path.starts_with("/etc") && !is_top(path)) || SYSTEM.iter().any(|s| path == Path::new(s))
}

/// Whether a path is `/` or an entry of it.
pub(super) fn is_top(path: &Path) -> bool {
    path.components().count() <= 2
}

/// The directory of the node's settings that contains a root file system. Engines keep images below other refused
/// directories, but never below these.
pub(super) fn below_settings(real: &Path) -> Option<PathBuf> {
    const SETTINGS: [&str; 4] = ["/etc", "/boot", "/proc", "/sys"];
    let found = SETTINGS.iter().find(|s| real.starts_with(s));
    found.map(PathBuf::from)
}
