//! Settings and limits whose effect reaches outside the container.

use super::*;

/// Settings of the whole node. Each is set to its current value, so a runtime that sets it does no harm.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_a_setting_of_the_node_is_refused() {
    let stage = Stage::new();
    for key in ["vm.swappiness", "kernel.panic", "fs/protected_hardlinks"] {
        let value = fs::read_to_string(format!("/proc/sys/{}", key.replace('.', "/"))).unwrap();
        let mut config = stage.config("true");
        config["linux"]["sysctl"] = json!({ key: value.trim() });
        for runtime in [Runtime::Runc, Runtime::Unconfined, Runtime::Standard] {
            let message = stage.run(runtime, &config).failed();
            assert!(
                message.contains("sysctl") && message.contains("namespace"),
                "{message}"
            );
        }
    }
    let mut config = stage.config("cat /proc/sys/kernel/shmmax");
    config["linux"]["sysctl"] = json!({"kernel.shmmax": "12345678"});
    for runtime in [Runtime::Runc, Runtime::Unconfined, Runtime::Standard] {
        assert_eq!(stage.run(runtime, &config).ok().trim(), "12345678");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_a_limit_is_no_path() {
    let stage = Stage::new();
    for name in [
        format!("{}/secret", stage.outside),
        "../cgroup.procs".to_owned(),
    ] {
        let mut config = stage.config("true");
        config["linux"]["resources"]["unified"] = json!({ name: "written" });
        for runtime in OURS {
            let seen = stage.run(runtime, &config);
            stage.assert_outside_untouched(&seen);
            let message = seen.failed();
            assert!(
                message.contains("unified") && message.contains("file name"),
                "{message}"
            );
        }
        let (bundle, id) = stage.bundle(&stage.config("sleep 100"));
        stage
            .call(
                Runtime::Unconfined,
                &["run", "--detach", "--bundle", &bundle, &id],
            )
            .ok();
        let limits = json!({"unified": {"../x": "1"}}).to_string();
        let limits = stage.node.scratch.file("limits.json", &limits);
        let message = stage
            .call(
                Runtime::Unconfined,
                &["update", "--resources", &limits, &id],
            )
            .failed();
        assert!(message.contains("unified"), "{message}");
        stage
            .call(Runtime::Unconfined, &["delete", "--force", &id])
            .ok();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_no_container_under_a_policy_is_put_before_others() {
    let stage = Stage::new();
    let mut config = stage.config(
        "cat /proc/self/oom_score_adj; grep -i -E 'Max realtime|Max nice' /proc/self/limits",
    );
    config["process"]["oomScoreAdj"] = json!(-500);
    config["process"]["scheduler"] = json!({"policy": "SCHED_FIFO", "priority": 50});
    config["process"]["rlimits"] = json!([{"type": "RLIMIT_RTPRIO", "soft": 99, "hard": 99}]);
    let seen = stage.run(Runtime::Standard, &config).ok();
    assert_eq!(seen.lines().next(), Some("0"), "{seen}");
    assert!(!seen.contains("99"), "{seen}");
    config["process"]["oomScoreAdj"] = json!(500);
    let seen = stage.run(Runtime::Standard, &config).ok();
    assert_eq!(seen.lines().next(), Some("500"), "{seen}");
}

/// One id under two `--root`s, without a cgroup path: deleting one must not end the other.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_one_id_under_two_roots_is_two_containers() {
    let stage = Stage::new();
    let (bundle, id) = stage.bundle(&stage.config("sleep 100"));
    let other = stage.node.scratch.path("other-root");
    let call = |root: &str, arguments: &[&str]| {
        let mut command = Command::new(program());
        command
            .args(["--root", root, "--policy", "standard"])
            .args(arguments);
        stage.node.finish(command)
    };
    for root in [&stage.node.root, &other] {
        call(root, &["run", "--detach", "--bundle", &bundle, &id]).ok();
    }
    call(&other, &["delete", "--force", &id]).ok();
    let state: Value = serde_json::from_str(&call(&stage.node.root, &["state", &id]).ok()).unwrap();
    assert_eq!(state["status"], "running");
    call(&stage.node.root, &["exec", &id, "true"]).ok();
    call(&stage.node.root, &["delete", "--force", &id]).ok();
    assert_eq!(stage.node.leftovers(&id), Vec::<String>::new());
}
