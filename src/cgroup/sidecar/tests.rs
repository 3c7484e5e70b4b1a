//! Finding the cgroup file systems, from texts of /proc/self/mountinfo and /proc/self/cgroup.

use super::*;
use crate::cgroup::CgroupError;

const HYBRID: &str = "\
30 20 0:10 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:11 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:12 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:13 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 30 0:14 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
const UNIFIED: &str =
    "31 30 0:11 / /sys/fs/c\\040group rw shared:4 master:1 - cgroup2 cgroup2 rw\n";

fn config(parent: &str, name: &str) -> CgroupConfig {
    CgroupConfig {
        parent: parent.into(),
        name: name.into(),
        limits: CgroupLimits {
            memory_bytes: 1 << 20,
            pids: 4,
            cpu_quota_us: 50_000,
            cpu_period_us: 100_000,
        },
    }
}

fn set(controllers: &[&str]) -> BTreeSet<String> {
    controllers.iter().map(|one| (*one).to_owned()).collect()
}

fn files(plan: &CgroupPlan) -> Vec<String> {
    let of = |one: &Directory| {
        let path = one.path.clone();
        let name = move |s: &Setting| format!("{}={}", path.join(&s.file).display(), s.value);
        one.settings.iter().map(name).collect::<Vec<_>>()
    };
    plan.directories.iter().flat_map(of).collect()
}

/// Former fault: a start failed where another program unmounted its own v2 hierarchy in that moment.
#[test]
fn a_node_with_v1_uses_no_v2_hierarchy_of_another_program() {
    let others = HYBRID.replace("/sys/fs/cgroup/unified", "/run/other/cgroupv2");
    let node = Hierarchies::parse(others.as_bytes());
    assert_eq!(node.v2(), None);
    let plan = plan_on(&node, &set(&["pids"]), &config("/docker", "s")).unwrap();
    assert_eq!(plan.missing().len(), 1);
}

#[test]
fn a_hybrid_node_takes_v1_first_then_v2_and_reports_the_rest() {
    let node = Hierarchies::parse(HYBRID.as_bytes());
    let plan = plan_on(&node, &set(&["pids"]), &config("/docker", "s")).unwrap();
    assert_eq!(
        files(&plan),
        [
            "/sys/fs/cgroup/cpu,cpuacct/docker/s/cpu.cfs_period_us=100000",
            "/sys/fs/cgroup/cpu,cpuacct/docker/s/cpu.cfs_quota_us=50000",
            "/sys/fs/cgroup/memory/docker/s/memory.limit_in_bytes=1048576",
            "/sys/fs/cgroup/memory/docker/s/memory.memsw.limit_in_bytes=1048576",
            "/sys/fs/cgroup/unified/docker/s/pids.max=4",
        ]
    );
    assert!(plan.missing().is_empty());
    let plan = plan_on(&node, &set(&[]), &config("/docker", "s")).unwrap();
    assert_eq!(plan.missing().len(), 1);
    assert!(
        plan.missing()[0].starts_with("pids:"),
        "{:?}",
        plan.missing()
    );
}

#[test]
fn a_unified_node_has_one_directory_even_without_controllers() {
    let node = Hierarchies::parse(UNIFIED.as_bytes());
    let all = plan_on(&node, &set(&CONTROLLERS), &config("/", "s")).unwrap();
    assert_eq!(all.paths(), [PathBuf::from("/sys/fs/c group/s")]);
    assert_eq!(files(&all).len(), 4);
    let none = plan_on(&node, &set(&[]), &config("/", "s")).unwrap();
    assert_eq!(none.paths(), all.paths());
    assert_eq!(none.missing().len(), 3);
}

#[test]
fn a_node_without_cgroups_is_an_error() {
    let empty = Hierarchies::parse(b"garbage\n1 2 3 - cgroup\n - cgroup2\n");
    let refused = plan_on(&empty, &set(&[]), &config("/docker", "s"));
    assert!(matches!(refused, Err(CgroupError::NoHierarchy)));
}

#[test]
fn refuses_paths_that_leave_the_hierarchy() {
    let node = Hierarchies::parse(UNIFIED.as_bytes());
    for (parent, name) in [
        ("/a/../..", "s"),
        ("/a", ".."),
        ("/a", "b/c"),
        ("/a", ""),
        ("../a", "s"),
    ] {
        let refused = plan_on(&node, &set(&[]), &config(parent, name));
        assert!(
            matches!(refused, Err(CgroupError::BadPath { .. })),
            "{parent} {name}"
        );
    }
}
