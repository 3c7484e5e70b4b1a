//! The directories of a container's cgroup, read once at `create` from the kernel's report about its init process
//! (cgroups(7), /proc/pid/cgroup). That process may later move, if it may write to a cgroup mount; its limits stay in
//! these directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CgroupError;
use crate::cgroup::hierarchies::{Hierarchies, ROOT};

/// The v1 hierarchies in which a container has a cgroup: libcontainer's, and the one without a controller.
const KNOWN: [&str; 13] = [
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "hugetlb",
    "memory",
    "pids",
    "perf_event",
    "blkio",
    "net_prio",
    "net_cls",
    "freezer",
    "name=systemd",
];

/// One directory for each controller of cgroup v1, and one for cgroup v2 if it is mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Controllers {
    /// Controller (`memory`, `name=systemd`) -> directory.
    pub v1: BTreeMap<String, PathBuf>,
    /// The directory in the unified hierarchy.
    pub v2: Option<PathBuf>,
}

impl Controllers {
    /// The cgroups of process `pid`, without those that this process shares: hierarchies in which the container has no
    /// cgroup of its own are left out.
    pub fn of(pid: i32) -> Result<Self, CgroupError> {
        let hierarchies = Hierarchies::of_node()?;
        let found = hierarchies.of(&pid.to_string())?;
        Ok(found.without(&hierarchies.of("self")?))
    }

    /// The directories of a container's cgroup with this path (linux.cgroupsPath): in the hierarchies that libcontainer
    /// knows and in systemd's, or in the unified one if it is the only one.
    pub fn at(path: &Path) -> Result<Self, CgroupError> {
        Ok(Self::below(Hierarchies::of_node()?, path))
    }

    fn below(hierarchies: &Hierarchies, path: &Path) -> Self {
        let path = path.strip_prefix("/").unwrap_or(path);
        if hierarchies.is_unified() {
            return Self {
                v2: Some(Path::new(ROOT).join(path)),
                ..Self::default()
            };
        }
        let place = |name: &str| Some((name.to_owned(), hierarchies.v1(name)?.join(path)));
        Self {
            v1: KNOWN.into_iter().filter_map(place).collect(),
            v2: None,
        }
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

    /// The v2 directory, on a node with only v2.
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
        let hierarchies = Hierarchies::parse(mountinfo.as_bytes());
        let found = hierarchies.directories(membership);
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
        let others = hierarchies.directories("2:name=systemd:/outer/a\n0::/\n");
        let own = found.without(&others);
        assert_eq!((own.v1("name=systemd"), own.all().len()), (None, 2));
    }

    #[test]
    fn a_container_has_a_directory_in_every_known_hierarchy() {
        let hybrid = "\
30 1 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:2 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:3 / /sys/fs/cgroup/systemd rw shared:3 - cgroup cgroup rw,xattr,name=systemd
33 30 0:4 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
34 30 0:5 / /sys/fs/cgroup/rdma rw - cgroup cgroup rw,rdma
35 1 0:2 / /elsewhere/cpu rw - cgroup cgroup rw,cpu,cpuacct
";
        let found = Controllers::below(
            &Hierarchies::parse(hybrid.as_bytes()),
            Path::new("docker/1"),
        );
        let names: Vec<&str> = found.v1.keys().map(String::as_str).collect();
        assert_eq!(names, ["cpu", "cpuacct", "name=systemd"]);
        assert_eq!(
            found.v1("cpu"),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/docker/1"))
        );
        assert_eq!(found.v2, None, "libcontainer leaves it out too");
        let unified = b"30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let unified = Controllers::below(&Hierarchies::parse(unified), Path::new("docker/1"));
        assert_eq!(
            unified.unified(),
            Some(Path::new("/sys/fs/cgroup/docker/1"))
        );
    }

    #[test]
    fn a_node_with_cgroup_v2_alone_is_unified() {
        let mountinfo = b"30 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let found = Hierarchies::parse(mountinfo).directories("0::/x\n");
        assert_eq!(found.unified(), Some(Path::new("/sys/fs/cgroup/x")));
    }
}
