//! Time limits: `time.wall` ends everything in a sandbox, whatever is stopped, frozen or killed; `time.idle` one that does
//! nothing. Each has a control without the limit.

mod engine;
mod exec;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{Finished, all_at_once, at_once, run};
use crate::direct::{Guard, Node, Scratch, program, with_env};
use crate::docker::{Container, Docker, runtime};
use crate::wrap::NodeDir;
use crate::wrap::account::Account;

/// Longer than any limit of these tests takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A container's directory of state.
fn state_dir(id: &str) -> PathBuf {
    let all = fs::read_dir("/run/agentbox/index").unwrap();
    let mut paths = all.map(|entry| entry.unwrap().path());
    let end = format!("-{id}");
    paths
        .find(|path| path.to_string_lossy().ends_with(&end))
        .unwrap()
}

fn record(id: &str) -> Value {
    serde_json::from_slice(&fs::read(state_dir(id).join("record.json")).unwrap()).unwrap()
}

/// The two timekeepers of a container.
fn keepers(id: &str) -> [i32; 2] {
    let record = record(id);
    ["first", "second"].map(|one| {
        let pid = record["timekeeper"][one]["pid"].as_i64();
        i32::try_from(pid.unwrap()).unwrap()
    })
}

fn signal(name: &str, pids: &[i32]) {
    let pids: Vec<String> = pids.iter().map(i32::to_string).collect();
    let script = format!("kill -{name} {}", pids.join(" "));
    run("bash", &["-c", &script]).ok();
}

/// Whether a process with this word in its arguments lives.
fn lives(word: &str) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(word)
    })
}

/// A number that only this call has: as the argument of sleep(1) it marks a process.
fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("3{:06}.{count:03}", std::process::id() % 1_000_000)
}

/// A script that ignores SIGTERM, with a child that is stopped and a daemon.
fn stubborn(mark: &str) -> String {
    format!(
        "trap '' TERM; sleep {mark} & kill -STOP $!; (setsid sleep {mark} &) & echo ready; while :; do sleep 1; done"
    )
}

/// `wrap OPTIONS... -- bash -c SCRIPT` in a project of its own.
fn wraps(scratch: &Scratch, options: &[&str], script: &str) -> Finished {
    let (project, home) = (scratch.dir("home/project"), scratch.path("home"));
    let all = [&["wrap"], options, &["--", "bash", "-c", script]].concat();
    with_env(&program(), &all, &project, &[("HOME", &home)])
}

const OVER: &str = "its time was over (time.wall)";
const IDLE: &str = "it was idle for too long (time.idle)";

fn assert_timed_out(ended: &Finished, mark: &str) {
    assert_ended_by(OVER, ended, mark);
}

fn assert_ended_by(cause: &str, ended: &Finished, mark: &str) {
    assert_eq!(ended.code, 124, "{ended}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.ends_with(cause), "{ended}");
    await_that("its processes are gone", || !lives(mark));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_with_a_timeout_ends_with_124_and_everything_with_it() {
    let _docker = Docker::connect();
    let wrap = |options: &[&str], script: &str| wraps(&Scratch::new(), options, script);
    let mark = mark();
    let limited = ["--timeout", "6s", "--set", "time.grace=1s"];
    // A program that obeys the signal may say what it likes: the status is the limit's.
    let obeys = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done";
    all_at_once(&[
        &|| assert_timed_out(&wrap(&limited, &stubborn(&mark)), &mark),
        &|| {
            let ended = wrap(&["--timeout", "6s"], obeys);
            assert_eq!(ended.stdout, "bye\n", "{ended}");
            assert_timed_out(&ended, &mark);
        },
        // The controls: no limit, a limit that is not reached, and an error.
        &|| assert_eq!(wrap(&[], "sleep 10; exit 7").code, 7),
    ]);
    assert_eq!(wrap(&["--timeout", "1h"], "exit 7").code, 7);
    let bad = wrap(&["--timeout", "1.5h"], "true");
    assert!(bad.code == 125 && bad.stderr.contains("--timeout"), "{bad}");
    let shown = wrap(&["--timeout", "30m", "--dry-run"], "true").ok();
    assert!(shown.contains("ended 30m after"), "{shown}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_and_under_landlock_keeps_time_too() {
    let _docker = Docker::connect();
    let limited = ["--timeout", "5s", "--set", "time.grace=1s"];
    let landlock = ["--walls", "landlock"];
    let both = [&landlock[..], &limited].concat();
    let is_limited = |options: &[&str]| {
        let (person, mark) = (Account::new(), mark());
        assert_timed_out(&person.wraps(options, &stubborn(&mark)), &mark);
    };
    let is_free = |options: &[&str]| {
        let ended = Account::new().wraps(options, "sleep 9; exit 7");
        assert_eq!(ended.code, 7, "{ended}");
    };
    all_at_once(&[
        &|| is_limited(&limited),
        &|| is_free(&[]),
        &|| is_limited(&both),
        &|| is_free(&landlock),
    ]);
    let person = Account::new();
    let shown = person.wraps(&[&both[..], &["--dry-run"]].concat(), "true");
    assert!(
        shown.stdout.contains("there is no pid namespace"),
        "{shown}"
    );
}

/// A container of Docker's with a limit of this many seconds, which has begun to be stubborn.
fn limited<'a>(docker: &'a Docker, seconds: u32, mark: &str) -> (Container<'a>, String) {
    let wall = format!("--annotation=dev.agentbox.time.wall={seconds}s");
    let grace = "--annotation=dev.agentbox.time.grace=1s";
    let options = [runtime(), &wall, grace, "test-musl"];
    let container = docker.start(&options, &["sh", "-c", &stubborn(mark)]);
    container.await_log("ready");
    let id = container.inspect("{{.Id}}");
    (container, id)
}

fn await_end(container: &Container<'_>, mark: &str) {
    await_that("the container has ended", || {
        container.inspect("{{.State.Status}}") == "exited"
    });
    assert_eq!(container.inspect("{{.State.ExitCode}}"), "137");
    await_that("its processes are gone", || !lives(mark));
}

fn log_has(id: &str, words: &str) {
    let mut log = String::new();
    let start = Instant::now();
    // The engine deletes it after its end.
    while !log.contains(words) {
        assert!(start.elapsed() < PATIENCE, "{words}: {log}");
        log = run(&program(), &["audit", id]).ok();
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_docker_a_limit_ends_what_is_stopped_forked_and_executed() {
    let docker = Docker::connect();
    let mark = mark();
    let free = docker.start(&[runtime(), "test-musl"], &["sleep", "300"]);
    let (container, id) = limited(&docker, 16, &mark);
    let of_exec = format!("trap '' TERM; (setsid sleep {mark} &); sleep {mark}");
    container.exec(&["-d"], &["sh", "-c", &of_exec]).ok();
    await_end(&container, &mark);
    log_has(&id, OVER);
    // The control is older, and has no limit.
    assert_eq!(free.inspect("{{.State.Status}}"), "running");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_docker_a_paused_container_ends_too() {
    let docker = Docker::connect();
    let mark = mark();
    let (container, id) = limited(&docker, 16, &mark);
    container.call("pause", &[]).ok();
    await_end(&container, &mark);
    log_has(&id, OVER);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_docker_a_container_never_runs_without_its_timekeepers() {
    let docker = Docker::connect();
    let mark = mark();
    for killed in [0, 1] {
        let (container, id) = limited(&docker, 1000, &mark);
        signal("KILL", &[keepers(&id)[killed]]);
        await_end(&container, &mark);
        log_has(&id, "the process that keeps its time was killed");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn docker_stopped_helpers_stretch_no_limit() {
    let docker = Docker::connect();
    // The first timekeeper, the second, and the sidecar after its warden.
    at_once(&[0, 1, 2], |&stopped| {
        let mark = mark();
        let (container, id) = limited(&docker, 16, &mark);
        let record = record(&id);
        let of = |name: &str| i32::try_from(record["sidecar"][name].as_i64().unwrap()).unwrap();
        let warden = record["sidecar"]["warden"]["pid"].as_i64();
        match stopped {
            2 => {
                signal("STOP", &[i32::try_from(warden.unwrap()).unwrap()]);
                signal("STOP", &[of("pid")]);
            }
            one => signal("STOP", &[keepers(&id)[one]]),
        }
        await_end(&container, &mark);
        log_has(&id, OVER);
    });
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn docker_stop_ends_a_container_with_far_limits_as_one_without() {
    let docker = Docker::connect();
    let far = ["time.wall=1h", "time.idle=1h", "time.exec=1h"];
    let far = far.map(|limit| format!("--annotation=dev.agentbox.{limit}"));
    let options: Vec<&str> = far.iter().map(String::as_str).collect();
    let obeys = "trap 'exit 7' TERM; echo ready; sleep 300 & wait";
    let refuses = "trap '' TERM; echo ready; while :; do sleep 1; done";
    // Time for a signal on a busy machine, and an end by the second one.
    for (script, code, within) in [(obeys, "7", "30"), (refuses, "137", "2")] {
        for options in [&options[..], &[]] {
            let options = [&[runtime()], options, &["test-musl"]].concat();
            let container = docker.start(&options, &["sh", "-c", script]);
            container.await_log("ready");
            let id = container.inspect("{{.Id}}");
            container.call("stop", &["-t", within]).ok();
            assert_eq!(container.inspect("{{.State.ExitCode}}"), code);
            // The timekeepers have ended, and neither has written that a limit was the cause.
            log_has(&id, "deleted");
            let log = run(&program(), &["audit", "--json", &id]).ok();
            let causes = log.lines().map(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                line["cause"].as_str().unwrap_or_default().to_owned()
            });
            let by_limit = causes.filter(|cause| cause.starts_with("time")).count();
            assert_eq!(by_limit, 0, "{log}");
        }
    }
}

/// A node's own container with these annotations, started.
fn started<'a>(node: &'a Node, id: &'a str, options: &[&str], annotations: &Value) -> Guard<'a> {
    let mut config = node.config(&["sleep", "300"]);
    config["annotations"] = annotations.clone();
    let bundle = node.bundle(id, &config);
    let create = [options, &["create", "--bundle", &bundle, id]].concat();
    node.call(&create).ok();
    node.call(&["start", id]).ok();
    Guard(node, id)
}

fn status(node: &Node, id: &str) -> Value {
    serde_json::from_str(&node.call(&["state", id]).ok()).unwrap()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_verb_ends_a_container_that_no_timekeeper_can() {
    let node = Node::new();
    let wall = json!({"dev.agentbox.time.wall": "2s", "dev.agentbox.time.grace": "0s"});
    let id = format!("overdue-{}", std::process::id());
    let _guard = started(&node, &id, &[], &wall);
    signal("STOP", &keepers(&id));
    // Its time and the tolerance pass.
    await_that("a verb ends it", || {
        status(&node, &id)["status"] == "stopped"
    });
    assert_eq!(status(&node, &id)["endedBy"], OVER);
    let refused = node.call(&["exec", &id, "true"]).failed();
    assert!(refused.contains("its time was over"), "{refused}");
}

/// The log's lines about an end by a limit, in all logs of a run.
fn ends(id: &str) -> usize {
    let log = run(&program(), &["audit", id]).ok();
    log.lines().filter(|line| line.contains(OVER)).count()
}

/// The timekeeper writes it: neither a verb nor the sidecar is needed, and nobody else's death hides it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_the_cause_of_an_end_is_in_the_chained_log_before_any_verb() {
    let node = Node::new();
    let wall = json!({"dev.agentbox.time.wall": "8s", "dev.agentbox.time.grace": "0s"});
    at_once(&["nothing", "first", "sidecar", "both"], |&lost| {
        let id = format!("cause-{lost}-{}", std::process::id());
        let guard = started(&node, &id, &[], &wall);
        let record = record(&id);
        let pid = |one: &Value| i32::try_from(one["pid"].as_i64().unwrap()).unwrap();
        match lost {
            "both" => {
                // A verb in their place.
                signal("STOP", &keepers(&id));
                await_that("a verb ends it", || {
                    status(&node, &id)["status"] == "stopped"
                });
                assert_eq!(status(&node, &id)["endedBy"], OVER);
                assert_eq!(ends(&id), 1);
                drop(guard);
                assert_eq!(ends(&id), 1);
                return;
            }
            "first" => signal("STOP", &keepers(&id)[..1]),
            "sidecar" => signal(
                "KILL",
                &[pid(&record["sidecar"]["warden"]), pid(&record["sidecar"])],
            ),
            _ => {}
        }
        let run_dir = fs::read_link(state_dir(&id).join("run")).unwrap();
        let line = || fs::read_to_string(run_dir.join("time.jsonl")).unwrap();
        assert_eq!(line(), "", "the control: it runs");
        let init = format!("/proc/{}/exe", pid(&record["init"]));
        await_that("it has ended", || fs::read_link(&init).is_err());
        // Beside much else, the other timekeeper writes a moment later.
        await_that("its cause is written", || !line().is_empty());
        let said = line();
        assert!(said.contains("\"cause\":\"time.wall\""), "{lost}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        // The first verb, and then the deletion, add no second one.
        assert_eq!(ends(&id), 1, "{lost}");
        drop(guard);
        assert_eq!(ends(&id), 1, "{lost}");
        // It is of the chain: the control of each audit above, which succeeded.
        fs::write(
            run_dir.join("time.jsonl"),
            said.replace("time.wall", "time.idle"),
        )
        .unwrap();
        let changed = run(&program(), &["audit", &id]);
        assert_ne!(changed.code, 0, "{changed}");
    });
}

/// Limits of a few seconds, by annotation.
fn idle_limit(idle: &str, sleep: &str) -> Value {
    json!({
        "dev.agentbox.time.idle": idle,
        "dev.agentbox.time.grace": "1s",
        "dev.agentbox.time.sleep": sleep,
    })
}

/// Waits until what began at `since` has lived longer than a container that ended by its limit after `took`.
fn wait_as_long(since: Instant, took: Duration) {
    let longer = took + Duration::from_secs(2);
    std::thread::sleep(longer.saturating_sub(since.elapsed()));
}

/// Uses a processor at once and whole, without a process that sleep(1) would be.
const WORKS: &str = "while :; do :; done";

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ends_a_command_that_does_nothing() {
    let _docker = Docker::connect();
    let wrap = |options: &[&str], script: &str| wraps(&Scratch::new(), options, script);
    let (idle, works) = (mark(), mark());
    let limited = ["--idle-timeout", "7s", "--set", "time.grace=1s"];
    let both = [&limited[..], &["--timeout", "22s"]].concat();
    let busy = format!("setsid bash -c '{WORKS}' {works} & sleep {works}");
    // A packet now and then, with hardly any of a processor.
    let waits = |each: &str| {
        format!("exec 4<> <(:); for i in {{1..42}}; do {each}; read -t 0.5 -u 4; done; exit 7")
    };
    let sends = "exec 3<>/dev/udp/127.0.0.1/9; ".to_owned() + &waits("echo >&3 || :");
    all_at_once(&[
        &|| assert_ended_by(IDLE, &wrap(&limited, &stubborn(&idle)), &idle),
        // A processor in use is activity, also of a daemon; so the other limit ends it.
        &|| assert_ended_by(OVER, &wrap(&both, &busy), &works),
        &|| assert_eq!(wrap(&limited, &sends).code, 7),
        // The controls: the same without packets, and no limit.
        &|| assert_ended_by(IDLE, &wrap(&limited, &waits(":")), &idle),
        &|| assert_eq!(wrap(&[], &waits(":")).code, 7),
    ]);
    let bad = wrap(&["--idle-timeout", "0s"], "true");
    let named = bad.code == 125 && bad.stderr.contains("--idle-timeout");
    assert!(named, "{bad}");
    let shown = wrap(&["--idle-timeout", "5m", "--dry-run"], "true").ok();
    assert!(shown.contains("after 5m without activity"), "{shown}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_where_idle_time_cannot_be_kept() {
    let _docker = Docker::connect();
    let person = Account::new();
    let limited = ["--idle-timeout", "3s", "--set", "time.grace=1s"];
    let landlock = [&["--walls", "landlock"], &limited[..]].concat();
    let refused = person.wraps(&landlock, "exit 7");
    assert_eq!(refused.code, 125, "{refused}");
    assert!(
        refused.stderr.contains("use time.wall (--timeout)"),
        "{refused}"
    );
    // Without a cgroup it is refused, and with one kept.
    let mark = mark();
    let ended = person.wraps(&limited, &format!("sleep {mark}"));
    match ended.code {
        125 => assert!(ended.stderr.contains("time.idle (set by"), "{ended}"),
        _ => assert_ended_by(IDLE, &ended, &mark),
    }
    assert_eq!(person.wraps(&[], "exit 7").code, 7);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_docker_an_idle_container_ends_and_one_that_works_does_not() {
    let docker = Docker::connect();
    let (waits, works) = (mark(), mark());
    let options = |idle: &'static str| {
        let grace = "--annotation=dev.agentbox.time.grace=1s";
        [runtime(), idle, grace, "-it", "test-musl"]
    };
    let idle = "--annotation=dev.agentbox.time.idle=12s";
    let none = "--annotation=dev.agentbox.time.idle=unlimited";
    let began = Instant::now();
    // Its first process waits at a terminal.
    let waiting = docker.start(&options(idle), &["sh"]);
    let of_exec = format!("trap '' TERM; (setsid sleep {waits} &); sleep {waits}");
    waiting.exec(&["-d"], &["sh", "-c", &of_exec]).ok();
    let script = format!("(setsid sh -c '{WORKS}' {works} &); sleep {works}");
    let working = docker.start(&options(idle), &["sh", "-c", &script]);
    let free = docker.start(&options(none), &["sh"]);
    let all_began = Instant::now();
    let id = waiting.inspect("{{.Id}}");
    await_end(&waiting, &waits);
    log_has(&id, IDLE);
    wait_as_long(all_began, began.elapsed());
    for other in [&working, &free] {
        assert_eq!(other.inspect("{{.State.Status}}"), "running");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_docker_a_stopped_or_killed_timekeeper_makes_no_idle_container_last() {
    let docker = Docker::connect();
    let cases = [
        (0, "STOP", IDLE),
        (1, "STOP", IDLE),
        (0, "KILL", "the process that keeps its time was killed"),
    ];
    at_once(&cases, |&(one, how, cause)| {
        let mark = mark();
        let idle = "--annotation=dev.agentbox.time.idle=16s";
        let grace = "--annotation=dev.agentbox.time.grace=1s";
        let script = stubborn(&mark);
        let container = docker.start(
            &[runtime(), idle, grace, "test-musl"],
            &["sh", "-c", &script],
        );
        container.await_log("ready");
        let id = container.inspect("{{.Id}}");
        signal(how, &[keepers(&id)[one]]);
        await_end(&container, &mark);
        log_has(&id, cause);
    });
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn docker_packets_in_a_shared_network_are_activity() {
    let docker = Docker::connect();
    let sends = "while :; do nc -w 1 127.0.0.1 9 </dev/null; usleep 300000; done";
    let quiet = docker.start(&[runtime(), "test-musl"], &["sleep", "300"]);
    let loud = docker.start(&[runtime(), "test-musl"], &["sh", "-c", sends]);
    let member = |first: &Container<'_>| {
        let network = format!("--network=container:{}", first.inspect("{{.Id}}"));
        let idle = "--annotation=dev.agentbox.time.idle=8s";
        let grace = "--annotation=dev.agentbox.time.grace=1s";
        let options = [runtime(), &network, idle, grace, "test-musl"];
        docker.start(&options, &["sleep", "300"])
    };
    // Both wait; only the packets of their networks differ.
    let began = Instant::now();
    let (waits, lives) = (member(&quiet), member(&loud));
    let both_began = Instant::now();
    await_that("it is idle", || {
        waits.inspect("{{.State.Status}}") == "exited"
    });
    log_has(&waits.inspect("{{.Id}}"), IDLE);
    wait_as_long(both_began, began.elapsed());
    assert_eq!(lives.inspect("{{.State.Status}}"), "running");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_pause_is_idle_unless_time_sleep_pauses() {
    let node = Node::new();
    let ids = ["counts", "pauses"].map(|sleep| format!("paused-{sleep}-{}", std::process::id()));
    let [counts, pauses] = &ids;
    let paused = |id, sleep| {
        let mut limit = idle_limit("10s", sleep);
        limit["dev.agentbox.policy"] = json!("permissive");
        let guard = started(&node, id, &[], &limit);
        node.call(&["pause", id]).ok();
        guard
    };
    let ended = |id| status(&node, id)["status"] == "stopped";
    let began = Instant::now();
    let _counts = paused(counts, "counts");
    let _pauses = paused(pauses, "pauses");
    let both_began = Instant::now();
    await_that("it has ended", || ended(counts));
    wait_as_long(both_began, began.elapsed());
    assert_eq!(status(&node, pauses)["status"], "paused");
    node.call(&["resume", pauses]).ok();
    await_that("it has ended", || ended(pauses));
    for id in &ids {
        assert_eq!(status(&node, id)["endedBy"], IDLE);
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_an_idle_container_is_explained_and_ended_by_a_verb() {
    let node = Node::new();
    let files = NodeDir::new();
    files.file(
        "policies/lab.toml",
        "base = \"permissive\"\ntime.idle = \"2s\"\n",
    );
    let text = format!("ceiling = \"lab\"\npolicy-dir = \"{}\"\n", files.policies());
    let config = files.file("config.toml", &text);
    let options = ["--config", config.as_str()];
    let id = format!("idle-{}", std::process::id());
    // The ceiling's limit holds for a policy without one, and an annotation cannot exceed it.
    let guard = started(
        &node,
        &id,
        &options,
        &json!({"dev.agentbox.time.grace": "0s"}),
    );
    signal("STOP", &keepers(&id));
    let explained = node.call(&["explain", &id]).ok();
    assert!(
        explained.contains("after 2s without activity"),
        "{explained}"
    );
    assert!(explained.contains("if it stays idle"), "{explained}");
    let none = node.call(&["extend", &id, "5m"]).failed();
    assert!(none.contains("no time limit (time.wall)"), "{none}");
    await_that("a verb ends it", || {
        status(&node, &id)["status"] == "stopped"
    });
    assert_eq!(status(&node, &id)["endedBy"], IDLE);
    drop(guard);
    let mut spec = node.config(&["true"]);
    spec["annotations"] = json!({"dev.agentbox.time.idle": "3s"});
    let bundle = node.bundle("exceeds", &spec);
    let refused = node.call(&["--config", &config, "create", "--bundle", &bundle, &id]);
    assert!(refused.failed().contains("time.idle"));
}

/// A file of the node that lets the policy `lab` leave out the pid namespace.
fn without_pid_namespaces(files: &NodeDir) -> String {
    files.file("policies/lab.toml", "base = \"permissive\"\n");
    let text = format!(
        "ceiling = \"lab\"\npolicy-dir = \"{}\"\n[allow]\nnamespaces = [\"pid\"]\n",
        files.policies()
    );
    files.file("config.toml", &text)
}

/// A container in the node's pid namespace: its first process does not take the others with it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_limit_ends_what_outlives_the_first_process() {
    let node = Node::new();
    let files = NodeDir::new();
    let config = without_pid_namespaces(&files);
    let options = ["--config", config.as_str(), "--policy", "lab"];
    // The timekeeper may have 1,024 open files.
    const MANY: u32 = 1100;
    let daemon = |mark: &str| format!("setsid sleep {mark} & sleep 300");
    let many = |mark: &str| {
        format!(
            "trap '' TERM; i=0; while [ $i -lt {MANY} ]; do sleep {mark} & i=$((i+1)); done; while :; do sleep 1; done"
        )
    };
    let marks = [mark(), mark(), mark()];
    let cases = [
        (&marks[0], daemon(&marks[0]), None),
        (&marks[1], daemon(&marks[1]), Some("3s")),
        (&marks[2], many(&marks[2]), Some("20s")),
    ];
    at_once(&cases, |(mark, script, wall)| {
        let mut spec = node.config(&["sh", "-c", script]);
        let namespaces = spec["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|one| one["type"] != "pid");
        spec["annotations"] = json!({"dev.agentbox.time.grace": "1s"});
        if let Some(wall) = wall {
            spec["annotations"]["dev.agentbox.time.wall"] = json!(wall);
        }
        let id = format!("outlives-{mark}");
        let bundle = node.bundle(&id, &spec);
        node.call(&[&options[..], &["create", "--bundle", &bundle, &id]].concat())
            .ok();
        let _guard = Guard(&node, &id);
        node.call(&["start", &id]).ok();
        await_that("its processes are there", || lives(mark));
        let init = record(&id)["init"]["pid"].as_i64().unwrap();
        if wall.is_none() {
            // The control: they outlive it.
            signal("TERM", &[i32::try_from(init).unwrap()]);
            await_that("it is stopped", || {
                status(&node, &id)["status"] == "stopped"
            });
            assert!(lives(mark));
            return;
        }
        await_that("they are gone", || !lives(mark));
    });
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_more_time_is_given_within_the_ceiling_and_logged() {
    let node = Node::new();
    let files = NodeDir::new();
    let ceiling = "base = \"permissive\"\ntime.wall = \"10m\"\n";
    files.file("policies/lab.toml", ceiling);
    let text = format!("ceiling = \"lab\"\npolicy-dir = \"{}\"\n", files.policies());
    let config = files.file("config.toml", &text);
    let options = ["--config", config.as_str()];
    let id = format!("extended-{}", std::process::id());
    let wall = json!({"dev.agentbox.time.wall": "10s", "dev.agentbox.time.grace": "0s"});
    let guard = started(&node, &id, &options, &wall);
    let over = node.call(&["extend", &id, "10m"]).failed();
    assert!(over.contains("the ceiling has 10m"), "{over}");
    let more = node.call(&["extend", &id, "5m"]).ok();
    assert!(more.contains("310s"), "{more}");
    // Beyond the first limit.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(status(&node, &id)["status"], "running");
    let explained = node.call(&["explain", &id]).ok();
    assert!(explained.contains("time left"), "{explained}");
    let log = node.call(&["audit", "--json", &id]).ok();
    assert!(
        log.contains("time.wall=310s") && log.contains("set by uid 0"),
        "{log}"
    );
    drop(guard);
    // Without a limit of its own, the ceiling's holds. An annotation cannot exceed it.
    let guard = started(&node, &id, &options, &json!({}));
    assert!(
        node.call(&["explain", &id])
            .ok()
            .contains("ended 10m after")
    );
    drop(guard);
    let mut spec = node.config(&["true"]);
    spec["annotations"] = json!({"dev.agentbox.time.wall": "11m"});
    let bundle = node.bundle("exceeds", &spec);
    let refused = node.call(&["--config", &config, "create", "--bundle", &bundle, &id]);
    assert!(refused.failed().contains("time.wall"));
    let guard = started(&node, &id, &[], &json!({}));
    let none = node.call(&["extend", &id, "5m"]).failed();
    assert!(none.contains("no time limit"), "{none}");
    drop(guard);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_the_timekeepers_may_end_the_container_and_nothing_else() {
    let node = Node::new();
    for (sleep, clock) in [("counts", "clockid: 7"), ("pauses", "clockid: 1")] {
        let id = format!("kept-{sleep}-{}", std::process::id());
        let annotations = json!({
            "dev.agentbox.policy": "permissive",
            "dev.agentbox.time.wall": "1h",
            "dev.agentbox.time.idle": "1h",
            "dev.agentbox.time.sleep": sleep,
        });
        let _guard = started(&node, &id, &[], &annotations);
        for pid in keepers(&id) {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let field = |name: &str| {
                let mut lines = text.lines();
                let line = lines.find(|line| line.starts_with(&format!("{name}:")));
                line.unwrap().split_once(':').unwrap().1.trim().to_owned()
            };
            assert_eq!(field("Name"), "agentbox-timer");
            let uid: u32 = field("Uid").split('\t').next().unwrap().parse().unwrap();
            assert!(uid > 2_000_000_000, "{uid}");
            assert_eq!(field("Groups"), "");
            for (name, value) in [
                ("CapPrm", "0000000000000020"),
                ("CapEff", "0000000000000020"),
                ("CapBnd", "0000000000000000"),
                ("NoNewPrivs", "1"),
                ("Seccomp", "2"),
            ] {
                assert_eq!(field(name), value, "{name}");
            }
            let root = fs::read_dir(format!("/proc/{pid}/root/")).unwrap();
            assert_eq!(root.count(), 0);
            // The init process's, the other's, the timer, the clock, the cgroup's, the counts of its activity, and its log:
            // nothing else is open.
            let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            assert_eq!(fds.count(), 12);
            for (file, name) in [(8, "snmp"), (9, "snmp6"), (11, "time.jsonl")] {
                let target = fs::read_link(format!("/proc/{pid}/fd/{file}")).unwrap();
                assert!(target.ends_with(name), "{target:?}");
            }
            // No one can set these clocks: CLOCK_BOOTTIME is 7, CLOCK_MONOTONIC 1.
            let timer = fs::read_to_string(format!("/proc/{pid}/fdinfo/3")).unwrap();
            assert!(timer.contains(clock), "{timer}");
            // Neither in the container's cgroup nor in its pid namespace.
            let init = record(&id)["init"]["pid"].as_i64().unwrap();
            for file in ["ns/pid", "ns/net"] {
                let of = |pid: i64| fs::read_link(format!("/proc/{pid}/{file}")).unwrap();
                assert_ne!(of(pid.into()), of(init), "{file}");
            }
            let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
            assert!(cgroups.contains("agentbox-sidecar-"), "{cgroups}");
        }
    }
}
