//! `exec`: every flag, with the same output as runc's.

use serde_json::json;

use super::{BOTH, Running, Runtime, same, sleeper};
use crate::command::await_that;
use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_exec_does_what_runcs_does() {
    let node = Node::new();
    let mut config = sleeper(&node);
    let env = json!([
        "PATH=/usr/bin:/bin",
        "A=of the container",
        "B=first",
        "B=second"
    ]);
    config["process"]["env"] = env;
    let containers = BOTH.map(|r| Running::start(&node, r, "exec", &config));
    let status = "grep -E '^(Cap|NoNewPrivs|Groups|Uid|Gid)' /proc/self/status";
    let cases: &[(&[&str], &str)] = &[
        (&[], "env | sort; pwd; id"),
        (
            &["--env", "A=of the flag", "--env", "A=the last"],
            "env | sort",
        ),
        (&["--cwd", "/usr"], "pwd"),
        (&["--user", "1000"], "id; env | grep HOME"),
        (&["--user", "4711"], "id; env | grep HOME"),
        (&["--user", "1000:100", "-g", "7", "-g", "8"], status),
        (&[], status),
        (&["--cap", "CAP_SYS_ADMIN"], status),
        (&["--cap", "CAP_SYS_ADMIN", "--no-new-privs"], status),
        (&[], "exit 42"),
        (&[], "kill -KILL $$"),
        (&[], "kill -TERM $$"),
        (&["--user", "1000"], "echo written >/dev/stdout"),
    ];
    for (options, script) in cases {
        let verb = [&["exec"], *options].concat();
        let command = ["sh", "-c", script];
        same(
            script,
            containers.each_ref().map(|c| c.call(&verb, &command)),
        );
    }
    for command in [&["/nope"][..], &["nope"], &["/etc"]] {
        let answer = same(
            "a program",
            containers.each_ref().map(|c| c.call(&["exec"], command)),
        );
        assert_eq!(answer.code, 255, "{answer}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_exec_reads_process_json_and_writes_the_pid_file() {
    let node = Node::new();
    let config = sleeper(&node);
    let process = json!({
        "args": ["sh", "-c", "echo $0 $X; id -u; pwd", "zero"], "env": ["PATH=/bin", "X=y"], "cwd": "/usr",
    });
    let file = node.scratch.file("process.json", &process.to_string());
    let containers = BOTH.map(|r| Running::start(&node, r, "process", &config));
    let answer = same(
        "process.json",
        containers
            .each_ref()
            .map(|c| c.call(&["exec", "--process", &file], &[])),
    );
    assert_eq!(answer.stdout, "zero y\n0\n/usr\n");
    for container in &containers {
        let path = node.scratch.path(&container.runtime.id("pid"));
        let verb = ["exec", "--detach", "--pid-file", &path];
        container.call(&verb, &["sleep", "200"]).ok();
        let pid = std::fs::read_to_string(&path).unwrap();
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        // runc's returns before the program runs.
        await_that("the program", || name() == "sleep\n");
        let refused = container.call(&["exec", "--pid-file", "/nope/pid"], &["sleep", "200"]);
        assert_eq!(refused.code, 255, "{refused}");
        let sleepers = container.call(&["ps"], &["-o", "pid,args"]).ok();
        assert_eq!(
            sleepers.matches("sleep 200").count(),
            1,
            "none without its pid file: {sleepers}"
        );
    }
}

/// runc of Debian 12 knows none of them, so there is no control but a process without them.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_exec_sets_scheduling_personality_and_the_clocks() {
    let node = Node::new();
    let mut config = sleeper(&node);
    config["linux"]["personality"] = json!({ "domain": "LINUX32" });
    config["linux"]["timeOffsets"] = json!({ "boottime": { "secs": 500_000_000_u64 } });
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.push(json!({ "type": "time" }));
    let container = Running::start(&node, Runtime::Agentbox, "scheduling", &config);
    // Fields 19 and 41: nice value, and policy.
    let script = "uname -m; cut -d' ' -f19,41 /proc/self/stat; cut -c1 /proc/uptime; ionice -p $$; \
         grep Cpus_allowed_list /proc/self/status | tr -d '\\t'";
    let mut process = json!({
        "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"], "cwd": "/",
        "scheduler": { "policy": "SCHED_BATCH", "nice": 5 },
        "ioPriority": { "class": "IOPRIO_CLASS_IDLE", "priority": 0 },
        "execCPUAffinity": { "initial": "0-1", "final": "0" },
    });
    let file = node.scratch.file("process.json", &process.to_string());
    let seen = container.call(&["exec", "--process", &file], &[]).ok();
    assert_eq!(seen, "i686\n5 3\n5\nidle\nCpus_allowed_list:0\n");
    for field in ["scheduler", "ioPriority", "execCPUAffinity"] {
        process.as_object_mut().unwrap().remove(field);
    }
    let file = node.scratch.file("plain.json", &process.to_string());
    let plain = container.call(&["exec", "--process", &file], &[]).ok();
    assert!(plain.starts_with("i686\n0 0\n5\n"), "{plain}");
    assert!(!plain.ends_with("list:0\n"), "one processor? {plain}");
    process["scheduler"] = json!({ "policy": "SCHED_FIFO", "priority": 1000 });
    let file = node.scratch.file("wrong.json", &process.to_string());
    let refused = container.call(&["exec", "--process", &file], &[]).failed();
    assert!(refused.contains("set the scheduler"), "{refused}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_exec_enters_a_created_container_and_its_sub_cgroups() {
    let node = Node::new();
    let config = sleeper(&node);
    for runtime in BOTH {
        let id = runtime.id("created");
        let bundle = node.bundle(&id, &config);
        runtime
            .call(&node, &["create", "--bundle", &bundle, &id])
            .ok();
        let container = Running {
            node: &node,
            runtime,
            id,
        };
        let seen = container.call(&["exec"], &["hostname"]).ok();
        assert_eq!(seen.trim(), config["hostname"], "{runtime:?}");
        assert_eq!(container.state()["status"], "created", "{runtime:?}");
        container.call(&["start"], &[]).ok();

        let pid = container.pid();
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let line = text.lines().find(|l| l.contains(":pids:")).unwrap();
        let path = line.rsplit(':').next().unwrap();
        std::fs::create_dir(format!("/sys/fs/cgroup/pids{path}/sub")).unwrap();
        let others = format!("/sys/fs/cgroup/systemd/others-{}", runtime.id("created"));
        std::fs::create_dir(&others).unwrap();
        let verb = ["exec", "--cgroup", "pids:sub"];
        let seen = container.call(&verb, &["cat", "/proc/self/cgroup"]).ok();
        assert!(
            seen.contains(":pids:") && seen.contains("/sub\n"),
            "{runtime:?}: {seen}"
        );
        for (bad, words) in [
            ("..", "is not a sub cgroup path"),
            ("pids:nope", "no such file or directory"),
            ("nope:/", "unknown controller"),
        ] {
            let refused = container
                .call(&["exec", "--cgroup", bad], &["true"])
                .failed();
            assert!(refused.contains(words), "{runtime:?}: {refused}");
        }
        drop(container);
        std::fs::remove_dir(others).expect("what is not the container's stays");
        assert!(!std::path::Path::new(&format!("/sys/fs/cgroup/pids{path}")).exists());
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_a_policy_refuses_exec_into_a_created_container() {
    let node = Node::new();
    let id = Runtime::Agentbox.id("confined");
    let bundle = node.bundle(&id, &node.config(&["sleep", "300"]));
    node.call(&["create", "--bundle", &bundle, &id]).ok();
    let refused = node.call(&["exec", &id, "true"]);
    assert!(
        refused.code == 255 && refused.stderr.contains("not started"),
        "{refused}"
    );
    node.call(&["delete", "--force", &id]).ok();
}
