//! The directories of a container's cgroup, read once at `create` from where the kernel says its first process is
//! (cgroups(7), /proc/pid/cgroup). That process may later move, where it may write to a cgroup mount; its limits stay
//! where they were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupError;
use crate::sys::procfs;

/// One directory for each controller of cgroup v1, and the one of cgroup v2 where that is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controllers {
    /// Controller (`memory`, `name=systemd`) -> directory.
    pub v1: BTreeMap<String, PathBuf>,
    /// The directory in the unified hierarchy.
    pub v2: Option<PathBuf>,
}

impl Controllers {
    /// The cgroups of process `pid`, without those that this process shares: a hierarchy in which the container has no
    /// cgroup of its own is left out.
    pub fn of(pid: i32) -> Result<Self, CgroupError> {
        let read =
            |path: String| procfs::text(&path).map_err(CgroupError::io(format!("read {path}")));
        let mountinfo = read("/proc/self/mountinfo".to_owned())?;
        let found = Self::parse(&mountinfo, &read(format!("/proc/{pid}/cgroup"))?);
        let ours = Self::parse(&mountinfo, &read("/proc/self/cgroup".to_owned())?);
        Ok(found.without(&ours))
    }

    /// Where a hierarchy of v1 is mounted, and this process's cgroup in it; `None` if it is not mounted.
    pub fn place_of_self(name: &str) -> Result<Option<(PathBuf, PathBuf)>, CgroupError> {
        let read = |path: &str| procfs::text(path).map_err(CgroupError::io(format!("read {path}")));
        let mountinfo = read("/proc/self/mountinfo")?;
        let mut mounts = mountinfo.lines().filter_map(Mount::parse);
        let Some(mount) = mounts.find(|m| m.kind == "cgroup" && m.options.contains(&name)) else {
            return Ok(None);
        };
        let own = Self::parse(&mountinfo, &read("/proc/self/cgroup")?);
        let own = own.v1(name).map(Path::to_owned);
        Ok(own.map(|own| (PathBuf::from(mount.point), own)))
    }

    fn without(mut self, other: &Self) -> Self {
        self.v1.retain(|name, dir| other.v1.get(name) != Some(dir));
        self.v2 = self.v2.filter(|dir| other.v2.as_ref() != Some(dir));
        self
    }

    /// The directory of a v1 controller.
    pub fn v1(&self, controller: &str) -> Option<&Path> {
        self.v1.get(controller).map(PathBuf::as_path)
    }

    /// The directory of cgroup v2 on a node that has nothing else.
    pub fn unified(&self) -> Option<&Path> {
        self.v2.as_deref().filter(|_| self.v1.is_empty())
    }

    /// Every directory, each once.
    pub fn all(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = self
            .v1
            .values()
            .chain(&self.v2)
            .map(PathBuf::as_path)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// From the text of mountinfo (proc_pid_mountinfo(5)) and of a process's cgroup file.
    fn parse(mountinfo: &str, membership: &str) -> Self {
        let mounts: Vec<Mount<'_>> = mountinfo.lines().filter_map(Mount::parse).collect();
        let mut found = Self::default();
        for line in membership.lines() {
            let mut fields = line.splitn(3, ':');
            let (_, Some(names), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            if names.is_empty() {
                let mount = mounts.iter().find(|m| m.kind == "cgroup2");
                found.v2 = mount.and_then(|m| m.place(path));
                continue;
            }
            for name in names.split(',') {
                let holds = |m: &&Mount<'_>| m.kind == "cgroup" && m.options.contains(&name);
                if let Some(dir) = mounts.iter().find(holds).and_then(|m| m.place(path)) {
                    found.v1.insert(name.to_owned(), dir);
                }
            }
        }
        found
    }
}

/// A line of mountinfo, of which only cgroup mounts matter.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: Vec<&'a str>,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        let kind = after.next().filter(|k| k.starts_with("cgroup"))?;
        Some(Self {
            root: before.get(3)?,
            point: before.get(4)?,
            kind,
            options: after.nth(1)?.split(',').collect(),
        })
    }

    /// Where a cgroup of this hierarchy is visible.
    fn place(&self, path: &str) -> Option<PathBuf> {
        let below = Path::new(path).strip_prefix(self.root).ok()?;
        Some(Path::new(self.point).join(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_has_its_directory() {
        let mountinfo = "\
30 1 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:2 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:3 /outer /sys/fs/cgroup/systemd rw shared:3 - cgroup cgroup rw,xattr,name=systemd
33 30 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let membership = "3:cpu,cpuacct:/a/b\n2:name=systemd:/outer/a\n1:pids:/a\n0::/a\n";
        let found = Controllers::parse(mountinfo, membership);
        assert_eq!(
            found.v1("cpuacct"),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/a/b"))
        );
        assert_eq!(
            found.v1("name=systemd"),
            Some(Path::new("/sys/fs/cgroup/systemd/a"))
        );
        assert_eq!(found.v1("pids"), None, "not mounted");
        assert_eq!(found.v2, Some("/sys/fs/cgroup/unified/a".into()));
        assert_eq!((found.unified(), found.all().len()), (None, 3));
        let others = Controllers::parse(mountinfo, "2:name=systemd:/outer/a\n0::/\n");
        let own = found.without(&others);
        assert_eq!((own.v1("name=systemd"), own.all().len()), (None, 2));
    }

    #[test]
    fn a_node_with_cgroup_v2_alone_is_unified() {
        let found = Controllers::parse(
            "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "0::/x\n",
        );
        assert_eq!(found.unified(), Some(Path::new("/sys/fs/cgroup/x")));
    }
}
