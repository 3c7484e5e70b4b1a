//! Time limits: which containers get one, and who cannot have one.

use super::*;
use crate::plan::time::CgroupRights;
use crate::plan::wrap_plan::WrapEnforcement;

/// The limits of a container with `time.idle`, in words.
fn limits(case: &Case) -> Option<(String, String)> {
    let time = case.plan().time?;
    Some((time.wall.to_string(), time.idle.to_string()))
}

fn pair(wall: &str, idle: &str) -> Option<(String, String)> {
    Some((wall.to_owned(), idle.to_owned()))
}

#[test]
fn a_limit_is_planned_if_the_policy_has_one() {
    assert_eq!(limits(&under("standard")), None);
    let idle = under("standard").annotation("time.idle", "5m");
    assert_eq!(limits(&idle), pair("unlimited", "5m"));
    let wall = under("standard").annotation("time.wall", "2h");
    assert_eq!(limits(&wall), pair("2h", "unlimited"));
    let both = wall.annotation("time.idle", "5m");
    assert_eq!(limits(&both), pair("2h", "5m"));
}

#[test]
fn a_pods_sandbox_waits_and_is_never_idle() {
    let of = |role: &str, cri: bool| {
        let mut case = under("standard").annotation("time.idle", "5m");
        case.spec["annotations"] = json!({"io.kubernetes.cri.container-type": role});
        case.facts.cri = cri;
        case
    };
    assert_eq!(limits(&of("sandbox", true)), None);
    assert_eq!(limits(&of("container", true)), pair("unlimited", "5m"));
    // Any caller of Docker can set that annotation.
    assert_eq!(limits(&of("sandbox", false)), pair("unlimited", "5m"));
    let both = of("sandbox", true).annotation("time.wall", "2h");
    assert_eq!(limits(&both), pair("2h", "unlimited"));
}

#[test]
fn idle_time_needs_a_cgroup() {
    let on = |cgroup| HostFacts {
        person: Some(PersonFacts { groups: 0, cgroup }),
        controllers: BTreeSet::new(),
        ..host()
    };
    let case = |idle: &str| under("standard").annotation("time.idle", idle);
    for (cgroup, why) in [
        (PersonsCgroup::NotGiven, "busctl --user"),
        (PersonsCgroup::Version1, "cgroup v1"),
    ] {
        let refused = case("5m").plan_on(&on(cgroup)).unwrap_err().to_string();
        let named = refused.starts_with("time.idle (set by ");
        assert!(named && refused.contains(why), "{refused}");
        // The controls.
        assert!(under("standard").plan_on(&on(cgroup)).is_ok());
        let wall = under("standard").annotation("time.wall", "5m");
        assert!(wall.plan_on(&on(cgroup)).is_ok());
    }
    // Processor time is counted without a controller.
    assert!(case("5m").plan_on(&on(PersonsCgroup::Given)).is_ok());
    // `--walls landlock` refuses it with words of its own.
    let mut rules = case("5m");
    rules.facts.wrapped.by = WrapEnforcement::Rules;
    assert!(rules.plan_on(&on(PersonsCgroup::NotGiven)).is_ok());
}

#[test]
fn the_time_of_an_exec_is_planned_apart_from_the_containers() {
    let case = under("standard").annotation("time.exec", "2m");
    let plan = case.plan();
    assert_eq!(plan.exec_time.unwrap().limit.to_string(), "2m");
    assert!(plan.time.is_none(), "no timekeeper of the container");
    let alone = under("standard").plan();
    assert_eq!(alone.exec_time, None);
    // Its timekeepers are in the sidecar's cgroup.
    assert!(plan.sidecar.pids > alone.sidecar.pids);
    assert!(plan.sidecar.memory_bytes > alone.sidecar.memory_bytes);
}

#[test]
fn the_time_of_an_exec_needs_a_cgroup_that_is_roots() {
    let on = |cgroup| HostFacts {
        person: Some(PersonFacts { groups: 0, cgroup }),
        controllers: BTreeSet::new(),
        ..host()
    };
    let case = under("standard").annotation("time.exec", "2m");
    for cgroup in [
        PersonsCgroup::NotGiven,
        PersonsCgroup::Version1,
        PersonsCgroup::Given,
    ] {
        let refused = case.plan_on(&on(cgroup)).unwrap_err().to_string();
        assert!(refused.starts_with("time.exec (set by "), "{refused}");
        assert!(refused.contains("run with sudo"), "{refused}");
        // The control.
        assert!(under("standard").plan_on(&on(cgroup)).is_ok());
    }
    // `--walls landlock` refuses it with words of its own.
    let mut rules = case;
    rules.facts.wrapped.by = WrapEnforcement::Rules;
    assert!(rules.plan_on(&on(PersonsCgroup::NotGiven)).is_ok());
}

#[test]
fn a_workload_that_may_write_its_cgroups_gets_no_time_of_an_exec() {
    let names = |all: &[&str]| all.iter().map(|name| name.parse().unwrap()).collect();
    let syscalls = |allow: &[&str], deny: &[&str]| SyscallPlan {
        allow: names(allow),
        deny: names(deny),
        ..under("standard").plan().syscalls
    };
    let plain = syscalls(&[], &[]);
    let none = BTreeSet::new();
    let admin = BTreeSet::from(["CAP_SYS_ADMIN".parse().unwrap()]);
    let right = |syscalls: &SyscallPlan, capabilities: &BTreeSet<Capability>| {
        CgroupRights::of(syscalls, capabilities).writes_cgroups()
    };
    assert_eq!(right(&plain, &none), None);
    assert_eq!(right(&plain, &admin).as_deref(), Some("CAP_SYS_ADMIN"));
    let mounts = syscalls(&["mount", "ptrace"], &[]);
    assert_eq!(right(&mounts, &none).as_deref(), Some("mount"));
    let clones = syscalls(&["clone3"], &[]);
    assert_eq!(right(&clones, &none).as_deref(), Some("clone3"));
    assert_eq!(right(&syscalls(&["mount"], &["mount"]), &none), None);
    assert_eq!(right(&syscalls(&["ptrace"], &[]), &none), None);
}
