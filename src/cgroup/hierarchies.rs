//! The cgroup file systems of this node (cgroups(7)), and a process's place in them. No other code reads
//! /proc/self/mountinfo or /proc/PID/cgroup for that.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::CgroupError;
use crate::cgroup::controllers::Controllers;
use crate::kernel::mountinfo::{MountLine, MountTable, join};
use crate::sys::procfs;

/// Where engines, runc and libcontainer look for them.
pub const ROOT: &str = "/sys/fs/cgroup";

/// The mounts of cgroup file systems that this process sees.
#[derive(Debug, Default)]
pub struct Hierarchies {
    mounts: Vec<MountLine>,
    /// Whether [`ROOT`] is cgroup v2 itself.
    is_unified: bool,
}

impl Hierarchies {
    /// Those of the node, read once: for a verb that begins, whose process stays in its mount namespace. A child that may have left it,
    /// and what runs for hours, reads them again.
    pub fn of_node() -> Result<&'static Self, CgroupError> {
        static NODE: OnceLock<Hierarchies> = OnceLock::new();
        if let Some(known) = NODE.get() {
            return Ok(known);
        }
        let found = Self::read()?;
        Ok(NODE.get_or_init(|| found))
    }

    /// Reads them.
    pub fn read() -> Result<Self, CgroupError> {
        const FILE: &str = "/proc/self/mountinfo";
        let text = procfs::bytes(FILE).map_err(CgroupError::io(format!("read {FILE}")))?;
        Ok(Self::parse(&text))
    }

    /// From the text of mountinfo (proc_pid_mountinfo(5)).
    pub(super) fn parse(mountinfo: &[u8]) -> Self {
        let table = MountTable::parse(mountinfo);
        let at_root = |line: &&MountLine| line.point == Path::new(ROOT);
        let root = table.mounts().iter().rfind(at_root);
        let is_cgroup = |line: &&MountLine| matches!(line.kind.as_str(), "cgroup" | "cgroup2");
        Self {
            is_unified: root.is_some_and(|line| line.kind == "cgroup2"),
            mounts: table.mounts().iter().filter(is_cgroup).cloned().collect(),
        }
    }

    /// Whether the node has only cgroup v2, as engines see it.
    pub fn is_unified(&self) -> bool {
        self.is_unified
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.mounts.is_empty()
    }

    /// The mount points, one for each hierarchy.
    pub fn points(&self) -> Vec<&Path> {
        let each = self.each_once().into_iter();
        each.map(|line| line.point.as_path()).collect()
    }

    /// The mount point of the v1 hierarchy with this controller, or with this name (`name=systemd`).
    pub fn v1(&self, controller: &str) -> Option<&Path> {
        Some(self.v1_mount(controller)?.point.as_path())
    }

    /// The mount point of the v2 hierarchy.
    pub fn v2(&self) -> Option<&Path> {
        Some(self.v2_mount()?.point.as_path())
    }

    /// The v1 mount points directly below /sys/fs/cgroup with one of these controllers; all if none is given.
    pub fn usual_v1(&self, controllers: &[&str]) -> Vec<&Path> {
        let has_one = |line: &&MountLine| {
            controllers.is_empty() || controllers.iter().any(|one| line.has_option(one))
        };
        let v1 = self.mounts.iter().filter(|line| line.kind == "cgroup");
        let points = v1.filter(has_one).map(|line| line.point.as_path());
        let usual = points.filter(|point| point.parent() == Some(Path::new(ROOT)));
        let mut seen = BTreeSet::new();
        usual.filter(|point| seen.insert(*point)).collect()
    }

    /// The cgroups of a process: its pid, or `self`.
    pub fn of(&self, process: &str) -> Result<Controllers, CgroupError> {
        let file = format!("/proc/{process}/cgroup");
        let membership = procfs::text(&file).map_err(CgroupError::io(format!("read {file}")))?;
        Ok(self.directories(&membership))
    }

    /// From the text of a process's cgroup file.
    pub(super) fn directories(&self, membership: &str) -> Controllers {
        let mut found = Controllers::default();
        for line in membership.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, Some(names), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            if names.is_empty() {
                found.v2 = self.v2_mount().and_then(|mount| visible(mount, path));
                continue;
            }
            for name in names.split(',') {
                if let Some(dir) = self.v1_mount(name).and_then(|mount| visible(mount, path)) {
                    found.v1.insert(name.to_owned(), dir);
                }
            }
        }
        found
    }

    fn v1_mount(&self, name: &str) -> Option<&MountLine> {
        let mut all = self.each_once().into_iter();
        all.find(|line| line.kind == "cgroup" && line.has_option(name))
    }

    /// Not a mount elsewhere if there are cgroups below [`ROOT`]: on a node with v1, other programs mount v2 for themselves
    /// (Cilium at /run/cilium/cgroupv2), and unmount it.
    fn v2_mount(&self) -> Option<&MountLine> {
        let elsewhere = !self.mounts.iter().any(is_usual);
        let mut all = self.each_once().into_iter();
        all.find(|line| line.kind == "cgroup2" && (elsewhere || is_usual(line)))
    }

    /// Each hierarchy once, below [`ROOT`] if possible. A second mount of it (in a chroot, in another container's
    /// image) may be read-only, covered, or partial.
    fn each_once(&self) -> Vec<&MountLine> {
        let mut found: Vec<&MountLine> = Vec::new();
        for line in &self.mounts {
            match found.iter_mut().find(|known| known.device == line.device) {
                Some(known) if !is_usual(known) && is_usual(line) => *known = line,
                Some(_) => {}
                None => found.push(line),
            }
        }
        found
    }
}

/// Whether a hierarchy is mounted where engines look for it.
fn is_usual(line: &MountLine) -> bool {
    line.point.starts_with(ROOT)
}

/// The visible path of a cgroup of this hierarchy.
fn visible(mount: &MountLine, path: &str) -> Option<PathBuf> {
    let below = Path::new(path).strip_prefix(&mount.root).ok()?;
    Some(join(&mount.point, below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hierarchy_is_found_once_and_where_it_usually_is() {
        let text = "\
60 21 0:70 / /srv/chroot/sys/fs/cgroup/pids ro - cgroup cgroup rw,pids
61 21 0:71 / /sys/fs/cgroup rw - tmpfs tmpfs rw
62 61 0:70 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
63 61 0:72 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
64 21 0:72 /a /srv/part rw - cgroup2 cgroup2 rw
65 21 0:73 / /srv/only rw - cgroup cgroup rw,name=x
";
        let found = Hierarchies::parse(text.as_bytes());
        assert_eq!(
            found.points(),
            ["/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/srv/only"].map(Path::new)
        );
        assert_eq!(found.v1("pids"), Some(Path::new("/sys/fs/cgroup/pids")));
        assert_eq!(found.v1("name=x"), Some(Path::new("/srv/only")));
        assert_eq!(found.v1("cpu"), None);
        assert_eq!(found.v2(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(found.usual_v1(&[]), [Path::new("/sys/fs/cgroup/pids")]);
        assert!(!found.is_unified() && !found.is_empty());
    }

    #[test]
    fn a_mount_point_with_a_blank_in_it_is_the_directory_of_that_name() {
        let text = "31 30 0:11 / /sys/fs/cgroup rw shared:4 master:1 - cgroup2 cgroup2 rw\n\
                    32 30 0:12 /a /mnt/c\\040d rw - cgroup cgroup rw,cpu,cpuacct\n";
        let found = Hierarchies::parse(text.as_bytes());
        let own = found.directories("2:cpu,cpuacct:/a/b\n1:pids:/x\n0::/\n");
        assert_eq!(own.v1("cpuacct"), Some(Path::new("/mnt/c d/b")));
        assert_eq!(own.v1("pids"), None, "not mounted");
        assert_eq!(own.v2.as_deref(), Some(Path::new("/sys/fs/cgroup")));
        assert!(found.is_unified());
    }

    #[test]
    fn a_cgroup_outside_of_the_mount_has_no_directory() {
        let text = "32 30 0:12 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let found = Hierarchies::parse(text.as_bytes());
        assert_eq!(found.directories("2:cpu:/b\n"), Controllers::default());
        let none = Hierarchies::parse(b"garbage\n1 2 3 - cgroup\n - cgroup2\n");
        assert!(none.is_empty() && !none.is_unified());
    }
}
