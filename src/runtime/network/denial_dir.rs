//! The directory in which a container reads what it was denied, and which of its mounts grant less than requested. The
//! sidecar writes the file of denials.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::audit::{RecentDenials, ReportedDenials};
use crate::plan::Plan;
use crate::plan::report::{DENIED, MOUNTS};
use crate::plan::trust::TRUST;
use crate::runtime::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;

/// The directory inside the container's own. Only this one is mounted in the container, read-only.
pub fn directory(dir: &Path) -> PathBuf {
    dir.join("inside")
}

/// Whether a container has this directory.
pub fn is_there(plan: &Plan) -> bool {
    let network = &plan.network;
    plan.report.denied || network.opens().is_some() || network.signing.is_some()
}

/// Makes the plan's part of it: the file with its first line, and the mount point of the container's trusted
/// certificates.
pub fn make(dir: &Path, plan: &Plan) -> Result<(), RuntimeError> {
    if !is_there(plan) {
        return Ok(());
    }
    let shown = directory(dir);
    make_directory(&shown)?;
    if let Some(shows) = of(plan) {
        let file = shown.join(DENIED);
        write_whole(&file, RecentDenials::of(shows).file().as_bytes())?;
        set_mode(&file, 0o644)?;
        let file = shown.join(MOUNTS);
        write_whole(&file, plan.filesystem.less().as_bytes())?;
        set_mode(&file, 0o644)?;
    }
    match plan.network.opens() {
        Some(_) => make_directory(&shown.join(TRUST)),
        None => Ok(()),
    }
}

/// Readable for every user of the container; the parent directory is only for root.
fn make_directory(path: &Path) -> Result<(), RuntimeError> {
    fs::create_dir_all(path).map_err(RuntimeError::io(format!("make {path:?}")))?;
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), RuntimeError> {
    rustix::fs::chmod(path, Mode::from_raw_mode(mode))
        .map_err(RuntimeError::io(format!("chmod {path:?}")))
}

/// Which denials the container's file lists; `None` if it has no file.
pub fn of(plan: &Plan) -> Option<ReportedDenials> {
    let shows = match plan.network.shared {
        None => ReportedDenials::All,
        Some(_) => ReportedDenials::Calls,
    };
    plan.report.denied.then_some(shows)
}

/// Opens the container's file for writing, if it has one.
pub fn open(
    record: &Record,
    place: &ContainerPaths,
) -> Result<Option<(ReportedDenials, OwnedFd)>, RuntimeError> {
    let Some(shows) = record.plan().and_then(of) else {
        return Ok(None);
    };
    let file = directory(&place.dir()).join(DENIED);
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&file, flags, Mode::empty())
        .map_err(RuntimeError::io(format!("open {file:?}")))?;
    Ok(Some((shows, opened)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SharedNetwork;
    use crate::plan::tests::sample;

    #[test]
    fn a_container_reads_its_own_denials_and_in_anothers_network_only_those_of_calls() {
        let mut plan = sample();
        for (denied, is_shared, expected) in [
            (true, false, Some(ReportedDenials::All)),
            (true, true, Some(ReportedDenials::Calls)),
            (false, false, None),
            (false, true, None),
        ] {
            plan.report.denied = denied;
            plan.network.shared = is_shared.then(|| SharedNetwork {
                container: "c1".to_owned(),
                path: "/proc/7/ns/net".into(),
                cookie: 7,
                sidecar_pid: 7,
                sidecar_start: 7,
            });
            assert_eq!(of(&plan), expected, "{denied} {is_shared}");
            assert_eq!(is_there(&plan), denied);
        }
    }
}
