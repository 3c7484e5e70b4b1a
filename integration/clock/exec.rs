//! `time.exec` ends everything that an `exec` has started, and nothing else. Each attack has a control without the limit.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::command::await_that;

const OVER: &str = "its time was over (time.exec)";
const LOST: &str = "the process that keeps its time was killed (time.exec)";

fn limit(exec: &str) -> Value {
    json!({"dev.agentbox.time.exec": exec, "dev.agentbox.time.grace": "1s"})
}

/// What is kept of each `exec` with a time limit.
fn records(id: &str) -> Vec<Value> {
    let files = fs::read_dir(state_dir(id)).unwrap().flatten();
    let paths = files.map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("exec-") && name.ends_with(".json")
    });
    paths
        .map(|path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
        .collect()
}

/// The timekeepers of the only `exec` with one.
fn keepers_of_exec(id: &str) -> [i32; 2] {
    let all = records(id);
    assert_eq!(all.len(), 1, "{all:?}");
    ["first", "second"].map(|one| {
        let pid = all[0]["keeper"][one]["pid"].as_i64();
        i32::try_from(pid.unwrap()).unwrap()
    })
}

/// The cgroup above those of each `exec`.
fn cgroup(id: &str) -> PathBuf {
    let controllers = &record(id)["controllers"];
    let own = controllers["v1"]["freezer"].as_str();
    let own = own.or(controllers["v2"].as_str()).unwrap();
    PathBuf::from(own).join("agentbox-exec")
}

fn is_empty(cgroup: &std::path::Path) -> bool {
    let mut below = fs::read_dir(cgroup).unwrap().flatten();
    !below.any(|entry| entry.file_type().unwrap().is_dir())
}

/// `agentbox exec OPTIONS... ID sh -c SCRIPT`, with streams that lead to no file of the node.
fn begun(node: &Node, options: &[&str], id: &str, script: &str) -> Child {
    let mut command = Command::new(program());
    command.args(["--root", &node.root, "exec"]).args(options);
    command.args([id, "sh", "-c", script]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn detached(node: &Node, id: &str, script: &str) {
    let mut command = Command::new(program());
    command.args(["--root", &node.root, "exec", "--detach"]);
    command.args([id, "sh", "-c", script]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_direct_an_exec_ends_with_everything_that_it_has_started() {
    let node = Node::new();
    let (timed, control) = (mark(), mark());
    let ids = ["timed", "free"].map(|name| format!("{name}-{}", std::process::id()));
    let [id, free] = &ids;
    let guard = started(&node, id, &[], &limit("8s"));
    let _free = started(&node, free, &[], &json!({}));
    for (id, mark) in [(free, &control), (id, &timed)] {
        detached(&node, id, &stubborn(mark));
        await_that("its processes are there", || lives(mark));
    }
    let listed = node.call(&["ps", id]).ok();
    assert!(listed.contains(&timed), "{listed}");
    await_that("they are gone", || !lives(&timed));
    // The control is older. Without a limit there is neither a cgroup nor a timekeeper.
    assert!(lives(&control));
    assert!(!cgroup(free).exists());
    assert!(records(free).is_empty());
    assert_eq!(status(&node, id)["status"], "running");
    await_that("its cgroup is gone", || is_empty(&cgroup(id)));
    node.call(&["exec", id, "true"]).ok();
    log_has(id, OVER);
    // A daemon that it leaves has the same limit.
    let left = mark();
    detached(&node, id, &format!("(setsid sleep {left} &) ; sleep 0.1"));
    await_that("it is there", || lives(&left));
    assert!(!is_empty(&cgroup(id)));
    await_that("the daemon is gone", || !lives(&left));
    drop(guard);
    assert_eq!(node.leftovers(id), [""; 0]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_docker_an_exec_ends_alone_and_also_in_a_paused_container() {
    let docker = Docker::connect();
    let exec = "--annotation=dev.agentbox.time.exec=10s";
    let grace = "--annotation=dev.agentbox.time.grace=1s";
    let timed = docker.start(&[runtime(), exec, grace, "test-musl"], &["sleep", "300"]);
    let free = docker.start(&[runtime(), "test-musl"], &["sleep", "300"]);
    let id = timed.inspect("{{.Id}}");
    let start = |container: &Container<'_>, mark: &str| {
        let script = stubborn(mark);
        container.exec(&["-d"], &["sh", "-c", &script]).ok();
        await_that("its processes are there", || lives(mark));
    };
    let (control, first, second) = (mark(), mark(), mark());
    start(&free, &control);
    start(&timed, &first);
    std::thread::sleep(Duration::from_secs(7));
    start(&timed, &second);
    await_that("the first one is gone", || !lives(&first));
    assert!(lives(&second) && lives(&control));
    for container in [&timed, &free] {
        container.call("pause", &[]).ok();
    }
    await_that("the second one is gone", || !lives(&second));
    assert!(lives(&control));
    assert_eq!(timed.inspect("{{.State.Status}}"), "paused");
    for container in [&timed, &free] {
        container.call("unpause", &[]).ok();
    }
    // The engine gets the status, and the container goes on.
    let killed = timed.exec(&[], &["sleep", "300"]);
    assert_eq!(killed.code, 143, "{killed}");
    assert_eq!(timed.inspect("{{.State.Status}}"), "running");
    log_has(&id, OVER);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_direct_a_lost_timekeeper_ends_the_exec_and_not_the_container() {
    let node = Node::new();
    let cases = [
        ("STOP", &[0][..], "12s", OVER),
        ("STOP", &[1][..], "12s", OVER),
        ("KILL", &[0][..], "1h", LOST),
        ("KILL", &[1][..], "1h", LOST),
        // Both: the next verb ends it.
        ("KILL", &[0, 1][..], "1h", LOST),
        ("STOP", &[0, 1][..], "12s", OVER),
    ];
    at_once(&cases, |&(how, which, exec, cause)| {
        let id = format!("lost-{how}-{}-{}", which.len(), mark());
        let guard = started(&node, &id, &[], &limit(exec));
        let mark = mark();
        detached(&node, &id, &stubborn(&mark));
        await_that("its processes are there", || lives(&mark));
        let keepers = keepers_of_exec(&id);
        // At once, before the other one acts.
        let lost: Vec<i32> = which.iter().map(|one| keepers[*one]).collect();
        signal("STOP", &lost);
        signal(how, &lost);
        if which.len() == 2 && how == "STOP" {
            std::thread::sleep(Duration::from_secs(22));
            assert!(lives(&mark), "the control: nobody keeps its time");
        }
        await_that("they are gone", || {
            if which.len() == 2 {
                status(&node, &id);
            }
            !lives(&mark)
        });
        assert_eq!(status(&node, &id)["status"], "running", "{how} {which:?}");
        node.call(&["exec", &id, "true"]).ok();
        drop(guard);
        log_has(&id, cause);
        assert_eq!(node.leftovers(&id), [""; 0]);
        let left = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        assert!(!keepers.iter().any(left), "{how} {which:?}");
    });
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_killed_exec_stretches_no_limit_and_a_living_one_says_why() {
    let node = Node::new();
    let id = format!("foreground-{}", std::process::id());
    let _guard = started(&node, &id, &[], &limit("4s"));
    let killed = mark();
    let mut verb = begun(&node, &[], &id, &stubborn(&killed));
    // The verb itself has the script among its arguments.
    let killed = format!("sleep\0{killed}");
    await_that("its processes are there", || lives(&killed));
    verb.kill().unwrap();
    verb.wait().unwrap();
    assert!(lives(&killed), "the control: it outlives the verb");
    await_that("they are gone", || !lives(&killed));
    let ended = begun(&node, &[], &id, "sleep 300").wait_with_output();
    let ended = ended.unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(said, format!("agentbox: the process was ended: {OVER}\n"));
    assert_eq!(ended.status.code(), Some(143));
    // One that ends by itself has no other status and no words.
    let quick = begun(&node, &[], &id, "exit 7").wait_with_output().unwrap();
    assert_eq!((quick.status.code(), quick.stderr.len()), (Some(7), 0));
    // A program that does not exist leaves nothing.
    node.call(&["exec", &id, "/nonexistent"]).failed();
    await_that("its cgroup is gone", || is_empty(&cgroup(&id)));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn time_exec_is_refused_where_it_cannot_be_kept() {
    let node = Node::new();
    let (id, free) = (
        format!("refused-{}", std::process::id()),
        format!("allowed-{}", std::process::id()),
    );
    let _guard = started(&node, &id, &[], &limit("1h"));
    let _free = started(&node, &free, &[], &json!({}));
    let refused = node.call(&["exec", "--cgroup", "/", &id, "true"]).failed();
    assert!(refused.contains("time.exec cannot be kept"), "{refused}");
    node.call(&["exec", "--cgroup", "/", &free, "true"]).ok();
    assert!(records(&id).is_empty());
    let explained = node.call(&["explain", &id]).ok();
    assert!(explained.contains("each ended 1h after"), "{explained}");
    // Without root's rights, and under Landlock.
    let person = Account::new();
    for walls in ["namespaces", "landlock"] {
        let options = ["--walls", walls, "--set", "time.exec=1h"];
        let refused = person.wraps(&options, "exit 7");
        assert_eq!(refused.code, 125, "{refused}");
        assert!(refused.stderr.contains("time.exec"), "{refused}");
        assert_eq!(person.wraps(&options[..2], "exit 7").code, 7);
    }
}

/// A container in the node's pid namespace: no namespace's end takes them along.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_direct_the_containers_limit_ends_what_a_timed_exec_has_started() {
    let node = Node::new();
    let files = NodeDir::new();
    let config = without_pid_namespaces(&files);
    let mut spec = node.config(&["sleep", "300"]);
    let namespaces = spec["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|one| one["type"] != "pid");
    spec["annotations"] = limit("1h");
    spec["annotations"]["dev.agentbox.time.wall"] = json!("8s");
    let id = format!("wall-of-exec-{}", std::process::id());
    let bundle = node.bundle("wall-of-exec", &spec);
    let options = ["--config", config.as_str(), "--policy", "lab"];
    node.call(&[&options[..], &["create", "--bundle", &bundle, &id]].concat())
        .ok();
    let _guard = Guard(&node, &id);
    node.call(&["start", &id]).ok();
    let mark = mark();
    detached(&node, &id, &stubborn(&mark));
    await_that("its processes are there", || lives(&mark));
    let keepers = keepers_of_exec(&id);
    await_that("they are gone", || !lives(&mark));
    let left = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok();
    await_that("its timekeepers are gone", || !keepers.iter().any(left));
}

/// The container's author may tighten the limit, and must not choose how much of `verify` runs.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verify_tries_everything_however_short_an_exec_may_be() {
    let node = Node::new();
    let id = &format!("verified-{}", std::process::id());
    let _guard = started(&node, id, &[], &limit("1s"));
    let cut = node.call(&["exec", id, "sleep", "20"]);
    assert_ne!(cut.code, 0, "the control: {cut}");
    // It waits for time limits of its own, so it takes longer than that.
    let said = node.call(&["verify", id]).ok();
    assert!(!said.contains("not tried:"), "{said}");
}
