//! Devices and limits.

use serde_json::json;

use super::*;

#[test]
#[ignore = "needs a rig: hack/test"]
fn without_rules_no_device_of_the_host_can_be_opened() {
    for resources in [None, Some(json!({})), Some(json!({ "devices": [] }))] {
        let text = same(|t| {
            if let Some(resources) = &resources {
                t.config["linux"]["resources"] = resources.clone();
            }
            mount(t, "/dev/fuse", "/dev/fuse", "bind", &["bind"]);
            outcome(
                t,
                "head -c0 </dev/fuse && echo open; head -c1 /dev/zero | wc -c",
            )
        });
        assert!(
            text.contains("not permitted") && !text.contains("open\n"),
            "{text}"
        );
        assert!(text.contains("1\n"), "{text}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn devices_can_be_anywhere() {
    let text = same(|t| {
        own_root(t);
        t.config["linux"]["devices"] = json!([
            { "path": "/node", "type": "b", "major": 10, "minor": 229 },
            { "path": "/below/node/", "type": "c", "major": 1, "minor": 3, "uid": 5, "gid": 6, "fileMode": 0o640 },
            { "path": "/dev/inside", "type": "c", "major": 1, "minor": 5, "uid": 7, "fileMode": 0o157 },
        ]);
        t.config["process"]["user"] = json!({ "uid": 1000, "gid": 1000 });
        outcome(
            t,
            "stat -c '%a %u %g %F %t %T %n' /node /below/node /dev/inside",
        )
    });
    assert_eq!(
        text,
        "666 0 0 block special file a e5 /node\n\
         640 5 6 character special file 1 3 /below/node\n\
         157 7 0 character special file 1 5 /dev/inside\n"
    );
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn the_oom_killer_can_be_switched_off() {
    let text = same(|t| {
        t.config["linux"]["cgroupsPath"] = json!(format!("/{}", t.id));
        t.config["linux"]["resources"]["memory"] =
            json!({ "limit": 64 << 20, "disableOOMKiller": true });
        t.run();
        let path = format!("/sys/fs/cgroup/memory/{}/memory.oom_control", t.id);
        std::fs::read_to_string(path).unwrap()
    });
    assert!(text.contains("oom_kill_disable 1"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn the_hierarchy_of_systemd_has_the_containers_cgroup() {
    const OWN: &str = "grep name=systemd /proc/self/cgroup | cut -d: -f2-";
    let text = same(|t| {
        t.config["linux"]["cgroupsPath"] = json!(format!("/below/{}", t.id));
        let hook = format!("{OWN} >{}", t.share("hook"));
        t.config["hooks"]["createRuntime"] =
            json!([{ "path": "/bin/sh", "args": ["sh", "-c", hook] }]);
        t.script(&format!("{OWN}; sleep 100"));
        t.run();
        let exec = t.call(&["exec", &t.id, "sh", "-c", OWN]).ok();
        let dir = format!("/sys/fs/cgroup/systemd/below/{}", t.id);
        let count = || {
            let procs = std::fs::read_to_string(format!("{dir}/cgroup.procs"));
            procs.map_or(0, |text| text.lines().count())
        };
        let running = count();
        t.call(&["delete", "--force", &t.id]).ok();
        let text = format!(
            "{}{exec}{}{running} {}\n",
            t.output(),
            t.shared("hook"),
            count()
        );
        neutral(t, &text)
    });
    assert_eq!(
        text,
        "name=systemd:/below/ID\nname=systemd:/below/ID\nname=systemd:/\n1 0\n"
    );
    let namespaced = same(|t| {
        t.config["linux"]["cgroupsPath"] = json!(format!("/{}", t.id));
        namespace(t, "cgroup");
        outcome(t, OWN)
    });
    assert_eq!(namespaced, "name=systemd:/\n");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn an_empty_seccomp_profile_is_no_filter() {
    for (profile, expect) in [
        (json!({}), "Seccomp:\t0\n"),
        (
            json!({ "defaultAction": "", "syscalls": [] }),
            "Seccomp:\t0\n",
        ),
        (
            json!({ "defaultAction": "SCMP_ACT_ALLOW" }),
            "Seccomp:\t2\n",
        ),
        (
            json!({ "syscalls": [{ "names": ["chown"], "action": "SCMP_ACT_ERRNO" }] }),
            "refused",
        ),
    ] {
        let text = same(|t| {
            t.config["linux"]["seccomp"] = profile.clone();
            outcome(t, "grep Seccomp: /proc/self/status")
        });
        assert_eq!(text, expect, "{profile}");
    }
}
