//! The cgroup mount of a container that joins another's pid namespace, on cgroup v1.
//!
//! libcontainer takes a process without a parent in its pid namespace for the init process, and looks its pid up in the
//! node's /proc. In a joined namespace that pid is another process's or none. So it gets plain mounts instead: a tmpfs
//! with the container's own cgroup of each controller.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, MountBuilder, Spec};

use crate::cgroup::hierarchies::Hierarchies;

/// The controllers for which libcontainer makes a cgroup.
const CONTROLLERS: [&str; 12] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
];

/// Replaces it. Specs without one, and nodes with cgroup v2, are left alone. `slice:prefix:name` is a directory of that
/// name on cgroup v1, also with `--systemd-cgroup`: libcgroups makes no other.
pub fn replace(spec: &mut Spec) {
    let path = spec.linux().as_ref().and_then(|l| l.cgroups_path().clone());
    let Some(path) = path.filter(|p| !p.as_os_str().is_empty()) else {
        return;
    };
    let hierarchies = Hierarchies::read().unwrap_or_default();
    let hierarchies = hierarchies.usual_v1(&CONTROLLERS);
    let Some(mounts) = spec.mounts_mut() else {
        return;
    };
    let position = |mounts: &[Mount]| {
        let mut kinds = mounts.iter();
        kinds.position(|m| m.typ().as_deref() == Some("cgroup"))
    };
    if let Some(at) = position(mounts).filter(|_| !hierarchies.is_empty()) {
        let plain = plain(&mounts[at], &path, &hierarchies);
        mounts.splice(at..=at, plain);
    }
}

fn plain(mount: &Mount, cgroup: &Path, hierarchies: &[&Path]) -> Vec<Mount> {
    let at = mount.destination();
    let relative = cgroup.strip_prefix("/").unwrap_or(cgroup);
    let build = |destination: PathBuf, typ: &str, source: PathBuf, option: &str| {
        let options = ["nosuid", "noexec", "nodev", option];
        MountBuilder::default()
            .destination(destination)
            .typ(typ)
            .source(source)
            .options(options.map(str::to_owned).to_vec())
            .build()
    };
    let tmpfs = build(at.clone(), "tmpfs", "tmpfs".into(), "mode=755");
    let binds = hierarchies.iter().map(|h| {
        let name = h.file_name().unwrap_or_default();
        build(at.join(name), "bind", h.join(relative), "bind")
    });
    std::iter::once(tmpfs).chain(binds).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
30 20 0:10 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:11 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
32 30 0:12 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:13 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,none,name=systemd
34 20 0:14 / /elsewhere/pids rw - cgroup cgroup rw,pids
35 30 0:15 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn every_controller_shows_the_containers_own_cgroup() {
        let mount = MountBuilder::default()
            .destination("/sys/fs/cgroup")
            .typ("cgroup")
            .build()
            .unwrap();
        let hierarchies = Hierarchies::parse(MOUNTS);
        let used = hierarchies.usual_v1(&CONTROLLERS);
        let plain = plain(&mount, Path::new("/docker/x"), &used);
        let shown: Vec<_> = plain
            .iter()
            .map(|m| {
                let source = m.source().clone().unwrap();
                format!("{} {}", m.destination().display(), source.display())
            })
            .collect();
        assert_eq!(
            shown,
            [
                "/sys/fs/cgroup tmpfs",
                "/sys/fs/cgroup/memory /sys/fs/cgroup/memory/docker/x",
                "/sys/fs/cgroup/cpu,cpuacct /sys/fs/cgroup/cpu,cpuacct/docker/x",
            ]
        );
    }
}
