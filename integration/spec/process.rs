//! The process: capabilities, ids, environment, working directory; namespaces and their users.

use serde_json::json;

use super::*;

const CAPABILITIES: &str = "grep ^Cap /proc/self/status";

/// The output of `exec`, after the container's init process has started.
fn exec(t: &Trial, options: &[&str], script: &str) -> String {
    let arguments = [&["exec"], options, &[&t.id, "sh", "-c", script]].concat();
    let finished = t.call(&arguments);
    neutral(t, &finished.stdout)
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn exec_starts_with_the_capabilities_of_the_init_process() {
    let text = same(|t| {
        let kill = json!(["CAP_KILL"]);
        t.config["process"]["capabilities"] =
            json!({ "bounding": kill, "effective": kill, "permitted": kill });
        t.run();
        let unknown = ["--cap", "CAP_UNKNOWN"];
        let added = ["--cap", "CAP_NET_RAW"];
        exec(t, &[], CAPABILITIES)
            + &exec(t, &unknown, CAPABILITIES)
            + &exec(t, &added, CAPABILITIES)
    });
    assert_eq!(
        text.matches("CapBnd:\t0000000000000020").count(),
        2,
        "{text}"
    );
    assert!(text.contains("CapEff:\t0000000000002020"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn impossible_capabilities_are_left_out() {
    let text = same(|t| {
        let some = json!(["CAP_KILL", "CAP_BOGUS"]);
        t.config["process"]["capabilities"] =
            json!({ "bounding": some, "effective": some, "permitted": some, "ambient": some });
        outcome(t, CAPABILITIES)
            .lines()
            .filter(|l| l.starts_with("Cap"))
            .collect()
    });
    assert!(text.contains("CapEff:\t0000000000000020"), "{text}");
    assert!(text.contains("CapAmb:\t0000000000000000"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_missing_working_directory_is_created_and_a_closed_one_entered() {
    for (cwd, expect) in [("/not/there", "/not/there\n"), ("/closed", "/closed\n")] {
        let text = same(|t| {
            let root = own_root(t);
            run("mkdir", &["-m", "700", &format!("{root}/closed")]).ok();
            t.config["root"]["readonly"] = json!(true);
            t.config["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
            t.config["process"]["cwd"] = json!(cwd);
            outcome(t, "pwd; stat -c '%a %u' .")
        });
        assert!(text.starts_with(expect), "{text}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn home_is_the_users_or_the_root_directory() {
    for (uid, set, expect) in [
        (0, None, "/root\n"),
        (101_010, None, "/\n"),
        (0, Some("HOME="), "/root\n"),
        (0, Some("HOME=/x"), "/x\n"),
    ] {
        let text = same(|t| {
            t.config["process"]["user"] = json!({ "uid": uid, "gid": uid });
            if let Some(set) = set {
                let env = t.config["process"]["env"].as_array_mut().unwrap();
                env.push(json!(set));
            }
            outcome(t, "echo $HOME")
        });
        assert_eq!(text, expect, "{uid} {set:?}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn specs_that_runc_refuses_are_refused() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 5] = [
        ("relative cwd", |c| c["process"]["cwd"] = json!("etc")),
        ("empty cwd", |c| c["process"]["cwd"] = json!("")),
        ("no value", |c| c["process"]["env"] = json!(["NAME"])),
        ("namespace twice", |c| {
            let all = c["linux"]["namespaces"].as_array_mut().unwrap();
            all.push(json!({ "type": "pid" }));
        }),
        ("unified limits on v1", |c| {
            c["linux"]["resources"]["unified"] = json!({ "memory.high": "1000000" });
        }),
    ];
    for (name, change) in cases {
        let text = same(|t| {
            change(&mut t.config);
            outcome(t, "echo it ran")
        });
        assert_eq!(text, "refused", "{name}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn an_empty_path_is_a_new_namespace() {
    let text = same(|t| {
        t.config["linux"]["namespaces"][4]["path"] = json!("");
        outcome(
            t,
            "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | cut -d: -f1",
        )
    });
    assert_eq!(text.trim(), "lo");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_user_namespace_may_have_several_mappings() {
    let text = same(|t| {
        user_namespace(t, &[(0, 1, 1), (1, 0, 1), (2, 2, u32::MAX - 2)]);
        outcome(t, "id -u; cat /proc/self/uid_map")
    });
    assert!(text.starts_with("0\n"), "{text}");
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn exec_has_its_groups_in_a_user_namespace() {
    let text = same(|t| {
        user_namespace(t, &[(0, 100_000, 65536)]);
        t.run();
        let options = ["--user", "1000:1001", "--additional-gids", "44"];
        exec(
            t,
            &options,
            "id -u; id -g; grep ^Groups /proc/self/status; cat /proc/self/uid_map",
        ) + &exec(t, &[], "grep -E '^(Cap|Groups|Uid)' /proc/self/status")
    });
    assert!(text.contains("Groups:\t44"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_pid_namespace_can_be_joined_with_cgroups_mounted() {
    let text = same(|t| {
        let host = Trial::new(t.runtime);
        host.run();
        let pid = host.state()["pid"].as_u64().unwrap();
        t.config["linux"]["namespaces"][0]["path"] = json!(format!("/proc/{pid}/ns/pid"));
        t.config["linux"]["cgroupsPath"] = json!(format!("/{}", t.id));
        mount(t, "/sys", "sysfs", "sysfs", &["ro"]);
        mount(
            t,
            "/sys/fs/cgroup",
            "cgroup",
            "cgroup",
            &["nosuid", "noexec", "nodev", "ro"],
        );
        outcome(
            t,
            "cat /proc/1/comm; grep -c . /sys/fs/cgroup/pids/cgroup.procs; \
             mkdir /sys/fs/cgroup/pids/x 2>&1 | grep -o Read-only",
        )
    });
    assert!(text.starts_with("sleep\n"), "{text}");
    assert!(text.ends_with("Read-only\n"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn the_processes_of_a_container_share_a_named_keyring() {
    let text = same(|t| {
        t.run();
        exec(
            t,
            &[],
            &format!("grep -o '_ses.{}:.*' /proc/keys | sort -u", t.id),
        )
    });
    assert_eq!(text, "_ses.ID: empty\n");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_failure_tells_its_cause() {
    type Change = fn(&mut Trial);
    let cases: [(&str, Change); 5] = [
        ("/does/not/exist", |t| {
            mount(t, "/mnt", "/does/not/exist", "bind", &["bind"])
        }),
        ("no-such-type", |t| {
            mount(t, "/mnt", "x", "no-such-type", &[])
        }),
        ("AppArmor", |t| {
            t.config["process"]["apparmorProfile"] = json!("docker-default")
        }),
        ("selinux", |t| {
            t.config["process"]["selinuxLabel"] = json!("a:b:c:s0")
        }),
        ("/no/namespace", |t| {
            t.config["linux"]["namespaces"][4]["path"] = json!("/no/namespace");
        }),
    ];
    for (cause, change) in cases {
        let mut t = Trial::new(Runtime::Unconfined);
        change(&mut t);
        let failed = t.create();
        assert_ne!(failed.code, 0, "{cause}");
        assert!(failed.stderr.contains(cause), "{cause}: {failed}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_process_without_a_user_is_roots() {
    let text = same(|t| {
        t.config["process"].as_object_mut().unwrap().remove("user");
        outcome(t, "id -u; id -g")
    });
    assert_eq!(text, "0\n0\n");
}
