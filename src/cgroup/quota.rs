//! The CPU time that parent cgroups leave for a sidecar. cgroup v1 refuses a quota above a parent's
//! (`tg_cfs_schedulable_down`, kernel/sched/core.c), so a pod of 100m could have no sidecar of 500m. v2 accepts
//! it, and the smaller quota counts.

use std::fs;
use std::path::Path;

/// Whether a v1 cgroup between the hierarchy's mount point and `path`, not `path` itself, has a quota. That quota then
/// limits the sidecar too: its own would be refused if it is larger, now or when a pod is made smaller later.
pub(crate) fn is_set_above(path: &Path, mount: &Path) -> bool {
    let above = path.ancestors().skip(1);
    let mut above = above.take_while(|cgroup| cgroup.starts_with(mount));
    above.any(|cgroup| {
        let text = fs::read_to_string(cgroup.join("cpu.cfs_quota_us"));
        // Missing at the root of a hierarchy; -1 without a limit.
        text.is_ok_and(|text| text.trim().parse::<i64>().is_ok_and(|quota| quota > 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_counts_in_every_parent_and_not_in_the_cgroup_itself() {
        let mount = std::env::temp_dir().join(format!("agentbox-quota-{}", std::process::id()));
        let pod = mount.join("kubepods/burstable/pod");
        let own = pod.join("sidecar");
        fs::create_dir_all(&own).unwrap();
        let set = |cgroup: &Path, quota: &str| {
            fs::write(cgroup.join("cpu.cfs_quota_us"), format!("{quota}\n")).unwrap();
        };
        set(&own, "50000");
        for cgroup in [&pod, &mount.join("kubepods"), &mount] {
            set(cgroup, "-1");
        }
        assert!(!is_set_above(&own, &mount));
        for cgroup in [&pod, &mount.join("kubepods"), &mount] {
            set(cgroup, "10000");
            assert!(is_set_above(&own, &mount), "{cgroup:?}");
            set(cgroup, "-1");
        }
        // Above the mount point is another hierarchy, or none.
        set(&mount, "10000");
        assert!(!is_set_above(&own, &mount.join("kubepods")));
        fs::remove_dir_all(&mount).unwrap();
    }
}
