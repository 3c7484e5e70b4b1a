//! The init process's mounts, read by the node: against the plan, against the start, and by the files that they show.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::plan::{BindMount, FileKind, Plan};
use crate::sys::procfs;
use crate::verify::compared_mounts;
use crate::verify::mounted::{self, MountedLine};
use crate::verify::probe::{Attempt, ContainerView, Finding, Probe, ProbedWall};

/// The probes.
pub const PROBES: &[Probe] = &[Probe {
    id: "mounts-of-the-plan",
    wall: ProbedWall::Files,
    threats: &["F01", "F02", "F04"],
    tried: "read the init process's mounts from the node's /proc, and check the bind mounts",
    expected: "only the plan's mounts, with its attributes and unchanged since the start",
    means: "the container can read or write files that its policy does not grant",
    remedy: "recreate the container; `agentbox explain ID` lists the planned mounts",
    promised: |p| p.walls.is_some(),
    attempt: Attempt::Read(mounts),
}];

fn mounts(view: &ContainerView<'_>) -> Finding {
    let Some(plan) = view.plan else {
        return Finding::not_tried("there is no plan");
    };
    match looked_at(view, plan) {
        Ok(finding) => finding,
        Err(why) => Finding::not_tried(why),
    }
}

fn looked_at(view: &ContainerView<'_>, plan: &Plan) -> Result<Finding, String> {
    let mut lines = lines(Path::new(&format!("/proc/{}/mountinfo", view.init)))?;
    let nodes = self::lines(Path::new("/proc/self/mountinfo"))?;
    let shown: Vec<(&PathBuf, &BindMount)> = plan
        .filesystem
        .mounts
        .iter()
        // Under an overlay of the container's own the file cannot be opened.
        .filter(|mount| !mount.is_private() && !is_under_private(plan, &mount.destination))
        .filter_map(|mount| Some((&mount.destination, mount.bind()?)))
        .collect();
    let mut findings = Vec::new();
    let mut against = "the plan";
    // Without a record of the start, there is no comparison.
    if view.mounts.exists() {
        let start = self::lines(view.mounts)?;
        let places: Vec<PathBuf> = shown.iter().map(|(place, _)| (*place).clone()).collect();
        let is_there = |place: &Path| match open_inside(view.init, place) {
            Ok(_) => true,
            // A symlink on the path leads elsewhere. A symlink at its end is a file.
            Err(errno) => ![Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&errno),
        };
        let since = mounted::since(&start, &lines, &places, is_there);
        findings.extend(since.faults.into_iter().map(Finding::not_held));
        lines = since.settled;
        against = "the plan and the start";
    }
    let faults = compared_mounts::compare(plan, &lines, &nodes).into_iter();
    findings.extend(faults.map(Finding::not_held));
    for (place, bind) in shown {
        if let Some(line) = lines.iter().rfind(|line| line.place == *place) {
            findings.push(is_judged(view.init, (place, bind), line, &nodes));
        }
    }
    let held = format!("{} mounts, as in {against}", lines.len());
    Ok(Finding::of_all(findings, held))
}

/// Whether a private directory lies over the whole mount, as over a home that `wrap` shows.
fn is_under_private(plan: &Plan, place: &Path) -> bool {
    let mut private = plan.filesystem.ephemeral.iter();
    private.any(|dir| dir.path == place)
}

fn lines(path: &Path) -> Result<Vec<MountedLine>, String> {
    // Names of sources change with renames, which the container can make.
    let text = procfs::lossy(path).map_err(|error| error.to_string());
    let lines = text.and_then(|text| MountedLine::parse(&text));
    lines.map_err(|why| format!("{}: {why}", path.display()))
}

/// Whether the file at a place is the one that the plan judged.
fn is_judged(
    init: i32,
    (place, bind): (&Path, &BindMount),
    line: &MountedLine,
    nodes: &[MountedLine],
) -> Finding {
    let name = place.display().to_string();
    let (major, minor) = (
        rustix::fs::major(bind.judged.dev),
        rustix::fs::minor(bind.judged.dev),
    );
    // A remote server may not answer, or may renumber its files.
    let is_remote = ["nfs", "fuse", "9p", "cifs", "smb", "virtiofs", "ceph"];
    if is_remote.iter().any(|kind| line.kind.starts_with(kind)) {
        return match line.device == format!("{major}:{minor}") {
            true => Finding::held(name),
            false => Finding::not_held(format!(
                "{name} shows another file system than the checked one"
            )),
        };
    }
    let found = open_inside(init, place).and_then(rustix::fs::fstat);
    judge_file(
        (place, bind),
        found.map(|found| (found.st_dev, found.st_ino)),
        line,
        nodes,
    )
}

/// The meaning of the file that was found at a place: its device and inode.
fn judge_file(
    (place, bind): (&Path, &BindMount),
    found: rustix::io::Result<(u64, u64)>,
    line: &MountedLine,
    nodes: &[MountedLine],
) -> Finding {
    let name = place.display().to_string();
    match found {
        Ok(found) if found == (bind.judged.dev, bind.judged.ino) => Finding::held(name),
        // An overlay renumbers a file at its first write. The mount must then be of the same overlay.
        Ok(_)
            if line.kind == "overlay"
                && bind.judged.kind != FileKind::Directory
                && is_of_source(line, &bind.source, nodes) =>
        {
            Finding::held(name)
        }
        Ok(_) => Finding::not_held(format!("{name} shows another file than the checked one")),
        Err(errno) => Finding::not_tried(format!("{name}: {errno}")),
    }
}

/// Whether a mount is of the file system that contains the source path on the node.
fn is_of_source(line: &MountedLine, source: &Path, nodes: &[MountedLine]) -> bool {
    let above = nodes.iter().filter(|node| source.starts_with(&node.place));
    let nearest = above.max_by_key(|node| node.place.components().count());
    nearest.is_some_and(|node| node.device == line.device)
}

/// Opens a path of the container with O_PATH, through no symlink.
fn open_inside(init: i32, place: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{init}/root"), flags, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(
        root,
        place,
        flags | OFlags::NOFOLLOW,
        Mode::empty(),
        resolve,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{BindAccess, MappedIds, ProgramMode, SourceIdentity};
    use crate::verify::probe::Outcome;

    #[test]
    fn another_file_than_the_judged_one_is_a_fault() {
        let nodes = MountedLine::parse(NODES).unwrap();
        let line = |device: &str, kind: &str| {
            let text = format!("90 80 {device} /f /ref ro - {kind} x rw");
            MountedLine::parse(&text).unwrap().remove(0)
        };
        let bind = |kind| BindMount {
            source: "/srv/f".into(),
            judged: SourceIdentity {
                dev: 7,
                ino: 8,
                kind,
            },
            access: BindAccess::ReadOnly,
            programs: ProgramMode::Run,
            ids: MappedIds::Node,
        };
        let (file, directory) = (bind(FileKind::File), bind(FileKind::Directory));
        for (bind, found, device, kind, expected) in [
            (&file, Ok((7, 8)), "0:9", "ext4", Outcome::Held),
            (&file, Ok((7, 9)), "0:9", "ext4", Outcome::NotHeld),
            (&file, Ok((6, 8)), "0:9", "ext4", Outcome::NotHeld),
            (&file, Err(Errno::ACCESS), "0:9", "ext4", Outcome::NotTried),
            // An overlay renumbers a file at its first write, and no directory.
            (&file, Ok((7, 9)), "0:44", "overlay", Outcome::Held),
            (&file, Ok((7, 9)), "0:45", "overlay", Outcome::NotHeld),
            (&directory, Ok((7, 9)), "0:44", "overlay", Outcome::NotHeld),
        ] {
            let seen = judge_file(
                (Path::new("/ref"), bind),
                found,
                &line(device, kind),
                &nodes,
            );
            assert_eq!(seen.outcome, expected, "{found:?} {device} {kind}");
        }
    }

    const NODES: &str = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:44 / /srv rw - overlay overlay rw
24 23 0:45 / /srv/a rw - overlay overlay rw
";

    #[test]
    fn a_file_of_another_overlay_is_a_fault() {
        let nodes = MountedLine::parse(NODES).unwrap();
        let line = |device: &str| {
            let text = format!("90 80 {device} /f /ref ro - overlay overlay rw");
            MountedLine::parse(&text).unwrap().remove(0)
        };
        let is_it = |device, source| is_of_source(&line(device), Path::new(source), &nodes);
        assert!(is_it("0:44", "/srv/f") && is_it("0:45", "/srv/a/f"));
        assert!(!is_it("0:45", "/srv/f") && !is_it("0:44", "/srv/a/f"));
        assert!(!is_it("0:46", "/srv/f") && !is_it("0:44", "/etc/f"));
    }
}
