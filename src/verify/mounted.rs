//! PURE. Parses the kernel's list of a process's mounts. Compares the init process's mounts with those at the time when
//! its program was executed.
//!
//! A plan only says which mounts a place may have. Some places may have none, and a mount may show another file system
//! than expected. No process in a container can mount, so any difference from the start came from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::kernel::mountinfo;
use crate::text::escape;

/// Attributes that restrict a mount.
pub const RESTRICTING: [&str; 4] = ["ro", "nosuid", "nodev", "noexec"];

/// One line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedLine {
    /// The mount's number, and that of its parent mount.
    pub number: u64,
    pub parent: u64,
    /// The mount point.
    pub place: PathBuf,
    /// The directory of its file system that is mounted.
    pub root: PathBuf,
    /// The file system's number, as text.
    pub device: String,
    /// Its type.
    pub kind: String,
    /// Attributes of the mount. Then the options of the file system.
    attributes: Vec<String>,
    options: String,
}

impl MountedLine {
    /// Parses the file. A line that cannot be parsed is an error: it may be the one that matters.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| Self::read(line).ok_or_else(|| format!("it has the line {line:?}")))
            .collect()
    }

    fn read(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        Some(Self {
            number: fields.first()?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            device: (*fields.get(2)?).to_owned(),
            root: mountinfo::path_of(fields.get(3)?),
            place: mountinfo::path_of(fields.get(4)?),
            attributes: fields.get(5)?.split(',').map(str::to_owned).collect(),
            kind: (*after.first()?).to_owned(),
            options: after.last().copied().unwrap_or_default().to_owned(),
        })
    }

    /// Whether it has an attribute.
    pub fn has(&self, attribute: &str) -> bool {
        self.attributes.iter().any(|own| own == attribute)
    }

    /// Whether both show the same at one place, like a mount and its copy.
    pub fn is_like(&self, other: &Self) -> bool {
        let numbered = Self {
            number: other.number,
            parent: other.parent,
            ..self.clone()
        };
        numbered == *other
    }

    /// The restricting attributes that the mount had and has lost.
    pub fn lost(&self, since: &Self) -> Vec<String> {
        let taken = since.attributes.iter();
        let taken = taken.filter(|one| RESTRICTING.contains(&one.as_str()));
        self.lacks(&taken.cloned().collect::<Vec<_>>())
    }

    /// The attributes of these that it lacks.
    pub fn lacks(&self, wanted: &[String]) -> Vec<String> {
        let missing = wanted.iter().filter(|one| !self.has(one));
        missing.cloned().collect()
    }

    /// Whether it masks what is below: an empty file system that cannot be filled, or the null device.
    pub fn is_mask(&self) -> bool {
        let empty = self.kind == "tmpfs"
            && self.root == Path::new("/")
            && self.has("ro")
            && self.options.split(',').any(|option| option == "ro");
        empty || self.is_node("null")
    }

    /// Whether it is a device node of this name.
    pub fn is_node(&self, name: &str) -> bool {
        let of_devices = ["tmpfs", "devtmpfs"].contains(&self.kind.as_str());
        of_devices && self.root == Path::new("/").join(name)
    }

    /// The mount in words.
    pub fn words(&self) -> String {
        let text = |path: &Path| escape(&path.display().to_string());
        format!(
            "{} shows {} of a {}",
            text(&self.place),
            text(&self.root),
            escape(&self.kind)
        )
    }
}

/// The changes of mounts since the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MountChanges {
    /// The faults, in words.
    pub faults: Vec<String>,
    /// The mounts of now. A mount whose directory was renamed has its old place.
    pub settled: Vec<MountedLine>,
}

/// Compares the mounts of the start with those of now. Another check compares the files at `looked_at` by inode, so a
/// new name of their source is no fault. `is_there` says whether the container has a file at a path.
pub fn since(
    start: &[MountedLine],
    now: &[MountedLine],
    looked_at: &[PathBuf],
    is_there: impl Fn(&Path) -> bool,
) -> MountChanges {
    let by_number: BTreeMap<u64, &MountedLine> =
        start.iter().map(|line| (line.number, line)).collect();
    let was = |line: &MountedLine| by_number.get(&line.number).copied();
    let binds: Vec<Pair<'_>> = now
        .iter()
        .filter_map(|now| Some((was(now)?, now)))
        .filter(|(was, now)| was.place == now.place && looked_at.contains(&was.place))
        .collect();
    let mut found = MountChanges::default();
    for line in now {
        let (fault, settled) = match was(line) {
            None => (Some("was mounted after the start".to_owned()), None),
            Some(was) if is_same((was, line), &binds, &is_there) => {
                let lost = line.lost(was);
                let fault = format!("is no longer {}", lost.join(", "));
                let settled = MountedLine {
                    place: was.place.clone(),
                    root: was.root.clone(),
                    ..line.clone()
                };
                ((!lost.is_empty()).then_some(fault), Some(settled))
            }
            Some(was) => (Some(format!("at the start {}", was.words())), None),
        };
        let fault = fault.map(|why| format!("{}, and {why}", line.words()));
        found.faults.extend(fault);
        found.settled.push(settled.unwrap_or_else(|| line.clone()));
    }
    let is_gone = |was: &&MountedLine| !now.iter().any(|line| line.number == was.number);
    // If nothing is there, nothing is exposed: the file was removed outside, and its mount with it.
    let gone = start.iter().filter(is_gone);
    for was in gone.filter(|was| is_there(&was.place)) {
        let place = escape(&was.place.display().to_string());
        let fault = format!("the mount at {place} was removed after the start");
        found.faults.push(fault);
    }
    found
}

/// A mount at the start and now.
type Pair<'a> = (&'a MountedLine, &'a MountedLine);

/// Whether a number still means the same mount: the kernel reuses numbers.
fn is_same((was, line): Pair<'_>, binds: &[Pair<'_>], is_there: impl Fn(&Path) -> bool) -> bool {
    // Renamed along with the source of another mount that shows it, or within that source.
    let follows = |(then, now): &Pair<'_>| {
        let rest = was.root.strip_prefix(&then.root);
        then.device == was.device && rest.is_ok_and(|rest| now.root.join(rest) == line.root)
    };
    let is_of_itself =
        |(then, now): &Pair<'_>| then.device == was.device && shows(then, was) && shows(now, line);
    let same_root =
        was.root == line.root || binds.iter().any(|pair| follows(pair) || is_of_itself(pair));
    // The container may rename a directory that contains the mount point, but not the mount point itself.
    let same_place = was.place == line.place
        || (was.parent == line.parent
            && was.place.file_name() == line.place.file_name()
            && !is_there(&was.place));
    let same_kind = (&was.device, &was.kind) == (&line.device, &line.kind);
    // An overlay's options name its directories.
    let same_layers = line.kind != "overlay" || was.options == line.options;
    same_root && same_place && same_kind && same_layers
}

/// Whether a mount shows what the other one would show at its place.
fn shows(other: &MountedLine, line: &MountedLine) -> bool {
    let at = line.place.strip_prefix(&other.place);
    let of = line.root.strip_prefix(&other.root);
    at.is_ok_and(|at| of.is_ok_and(|of| at == of))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "\
117 104 0:66 / / rw,relatime - overlay agentbox rw,lowerdir=/
95 117 254:0 /srv/w /work rw,nosuid,nodev - ext4 /dev/vda rw
94 95 254:0 /srv/w/p/.aws /work/p/.aws rw,nosuid,nodev - ext4 /dev/vda rw
96 117 254:0 /srv/ref /ref ro,nosuid,nodev - ext4 /dev/vda rw
97 117 0:67 / /cache rw,nosuid,nodev - overlay agentbox rw,lowerdir=/dev/0.lower
98 117 0:44 /x/hosts /etc/hosts ro,nosuid,nodev,noexec - tmpfs tmpfs rw
114 95 0:61 /null /work/p/.netrc rw,nosuid,noexec - tmpfs tmpfs rw
128 117 0:60 / /proc rw,nosuid,nodev,noexec - proc proc rw
";

    fn found(now: &str, there: &[&str]) -> MountChanges {
        let read = |text: &str| MountedLine::parse(text).unwrap();
        let looked_at = ["/work", "/ref"].map(PathBuf::from);
        let is_there = |place: &Path| there.iter().any(|one| place == Path::new(one));
        since(&read(START), &read(now), &looked_at, is_there)
    }

    const THERE: [&str; 6] = [
        "/work/p/.netrc",
        "/work/p/.aws",
        "/etc/hosts",
        "/ref",
        "/cache",
        "/proc",
    ];

    #[test]
    fn unchanged_mounts_are_no_fault() {
        for (from, to, there) in [
            ("", "", &THERE[..]),
            // The container renamed its own directory, or the workspace was renamed on the node.
            ("/p/", "/q/", &["/etc/hosts", "/ref", "/cache"]),
            ("254:0 /srv/w", "254:0 /srv/v", &THERE),
            ("rw,relatime - overlay", "ro,relatime - overlay", &THERE),
        ] {
            let seen = found(&START.replace(from, to), there);
            assert_eq!(seen.faults, [""; 0], "{to}");
            let places: Vec<_> = seen.settled.into_iter().map(|line| line.place).collect();
            let start = MountedLine::parse(START).unwrap();
            let start: Vec<_> = start.into_iter().map(|line| line.place).collect();
            assert_eq!(places, start, "{to}");
        }
        // The file under a mask was removed on the node.
        let rest: Vec<&str> = START
            .lines()
            .filter(|line| !line.contains(".netrc"))
            .collect();
        assert_eq!(found(&rest.join("\n"), &THERE[1..]).faults, [""; 0]);
    }

    #[test]
    fn added_removed_and_replaced_mounts_are_found() {
        for (from, to) in [
            ("128 117 0:60", "128 117 0:59"),
            ("lowerdir=/dev/0.lower", "lowerdir=/dev/1.lower"),
            ("lowerdir=/\n", "lowerdir=/other\n"),
            ("0:44 /x/hosts", "0:44 /y/hosts"),
            ("/ref ro,", "/ref rw,"),
            ("/cache rw,nosuid,", "/cache rw,"),
            ("/null /work/p", "/netrc /work/p"),
            ("98 117", "99 117"),
            // A new mount with the number of a removed one.
            ("254:0 /srv/w/p/.aws /work", "254:0 /root/.aws /work"),
            (
                "254:0 /srv/w/p/.aws /work/p/.aws",
                "254:0 /root/.aws /work/q/.aws",
            ),
            ("/work/p/.netrc", "/tmp/.netrc"),
            ("/work/p/.netrc", "/work/p/other"),
        ] {
            assert!(START.contains(from), "{from}");
            let faults = found(&START.replacen(from, to, 1), &THERE).faults;
            assert!(!faults.is_empty(), "{to}: {faults:?}");
        }
        for place in THERE {
            let rest: Vec<&str> = START
                .lines()
                .filter(|line| !line.contains(&format!(" {place} ")))
                .collect();
            assert_eq!(found(&rest.join("\n"), &THERE).faults.len(), 1, "{place}");
        }
        let more = "200 117 254:0 /etc /root rw,nosuid,nodev,noexec - ext4 /dev/vda rw\n";
        assert_eq!(found(&format!("{START}{more}"), &THERE).faults.len(), 1);
    }
}
