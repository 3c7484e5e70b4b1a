//! Settings that a policy removes.

use super::*;
use crate::plan::neutral;
use crate::plan::process::confine;
use oci_spec::runtime::{Linux, Process};

fn process(key: &str, value: Value) -> Process {
    let mut process = json!({"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}});
    process[key] = value;
    serde_json::from_value(process).unwrap()
}

#[test]
fn no_process_gets_priority_over_others() {
    let plan = sample();
    for (key, urgent, word) in [
        ("oomScoreAdj", json!(-997), "oomScoreAdj"),
        (
            "scheduler",
            json!({"policy": "SCHED_FIFO", "priority": 10}),
            "scheduler",
        ),
        (
            "scheduler",
            json!({"policy": "SCHED_DEADLINE", "runtime": 1, "deadline": 2, "period": 2}),
            "scheduler",
        ),
        (
            "scheduler",
            json!({"policy": "SCHED_OTHER", "nice": -1}),
            "scheduler",
        ),
        (
            "ioPriority",
            json!({"class": "IOPRIO_CLASS_RT", "priority": 7}),
            "ioPriority",
        ),
        (
            "ioPriority",
            json!({"class": "IOPRIO_CLASS_BE", "priority": 0}),
            "ioPriority",
        ),
        (
            "rlimits",
            json!([{"type": "RLIMIT_RTPRIO", "soft": 99, "hard": 99}]),
            "RTPRIO",
        ),
        (
            "rlimits",
            json!([{"type": "RLIMIT_NICE", "soft": 40, "hard": 40}]),
            "NICE",
        ),
    ] {
        let asked = process(key, urgent.clone());
        let got = serde_json::to_value(confine(asked, &plan)).unwrap();
        let text = got[key].to_string();
        assert!(
            got[key].is_null() || text == "0" || !text.contains(word),
            "{key}: {text}"
        );
        let not_given = under("standard")
            .set("/process", key, urgent)
            .plan()
            .not_given;
        assert!(
            not_given
                .iter()
                .any(|thing| thing.to_string().contains(word)),
            "{key}: {not_given:?}"
        );
    }
}

#[test]
fn a_lower_priority_is_kept() {
    let plan = sample();
    for (key, modest) in [
        ("oomScoreAdj", json!(500)),
        ("oomScoreAdj", json!(0)),
        ("scheduler", json!({"policy": "SCHED_BATCH", "nice": 5})),
        (
            "ioPriority",
            json!({"class": "IOPRIO_CLASS_IDLE", "priority": 0}),
        ),
        (
            "ioPriority",
            json!({"class": "IOPRIO_CLASS_BE", "priority": 6}),
        ),
    ] {
        let got = confine(process(key, modest.clone()), &plan);
        assert_eq!(serde_json::to_value(got).unwrap()[key], modest, "{key}");
        let case = under("standard").set("/process", key, modest);
        assert!(case.plan().warnings.is_empty());
    }
}

#[test]
fn settings_that_no_wall_covers_are_removed() {
    let linux = json!({
        "personality": {"domain": "LINUX32"},
        "intelRdt": {"closID": "gold"},
        "timeOffsets": {"boottime": {"secs": 5}},
        "memoryPolicy": {"mode": "MPOL_BIND", "nodes": "0"},
        "resources": {
            "unified": {
                "memory.max": "1", "hugetlb.2MB.max": "1", "memory.min": "1", "cgroup.kill": "1",
                "cpuset.cpus.partition": "root", "hugetlb./../x.max": "1"
            },
            "cpu": {"shares": 2, "realtimeRuntime": 3, "realtimePeriod": 4},
            "network": {"classID": 5},
            "pids": {"limit": 6}
        }
    });
    let mut linux: Linux = serde_json::from_value(linux).unwrap();
    let taken = neutral::linux(&mut linux);
    assert_eq!(taken.len(), 10, "{taken:#?}");
    let left = serde_json::to_value(&linux).unwrap();
    for key in ["personality", "intelRdt", "timeOffsets", "memoryPolicy"] {
        assert!(left.get(key).is_none(), "{left}");
    }
    assert_eq!(
        left["resources"]["unified"],
        json!({"memory.max": "1", "hugetlb.2MB.max": "1"})
    );
    assert_eq!(left["resources"]["cpu"], json!({"shares": 2}));
    assert!(left["resources"].get("network").is_none());
    assert_eq!(left["resources"]["pids"]["limit"], json!(6));
    assert_eq!(neutral::linux(&mut linux), Vec::<String>::new());
}
