//! The engine's everyday commands under the default policy: their output, exit codes, and nothing lost.

use std::process::Command;

use super::probe::parse;
use super::{Docker, Policy, runtime};
use crate::command::finish;

#[test]
#[ignore = "needs the rig: hack/test"]
fn run_prints_and_passes_the_exit_code() {
    let docker = Docker::connect();
    let finished = docker.run(
        &[runtime(), "test-probe"],
        &["sh", "-c", "echo out; echo err >&2; exit 42"],
    );
    assert_eq!(
        (
            finished.code,
            finished.stdout.as_str(),
            finished.stderr.as_str()
        ),
        (42, "out\n", "err\n")
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_program_that_exits_at_once_is_never_lost() {
    let docker = Docker::connect();
    for code in 0..15 {
        let finished = docker.run(
            &[runtime(), "test-probe"],
            &["sh", "-c", &format!("exit {code}")],
        );
        assert_eq!(finished.code, code, "{finished}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_program_that_cannot_be_run_gives_dockers_codes() {
    let docker = Docker::connect();
    let missing = docker.run(&[runtime(), "test-probe"], &["/no/such/program"]);
    assert_eq!(missing.code, 127, "{missing}");
    let forbidden = docker.run(&[runtime(), "test-probe"], &["/etc/passwd"]);
    assert_eq!(forbidden.code, 126, "{forbidden}");
    // What `docker exec` makes of runc's messages depends on the engine, so compare with runc.
    let ours = docker.start(&[runtime(), "test-probe"], &["sleep", "300"]);
    let theirs = docker.start(&["--runtime=runc", "test-probe"], &["sleep", "300"]);
    for program in ["/no/such/program", "no-such-program", "/etc/passwd"] {
        let (ours, theirs) = (ours.exec(&[], &[program]), theirs.exec(&[], &[program]));
        assert_eq!(ours.code, theirs.code, "{program}\n{ours}\n{theirs}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_container_in_the_background_logs_runs_more_and_stops() {
    let docker = Docker::connect();
    let script = "trap 'echo bye; exit 3' TERM; echo hello; while :; do sleep 0.1; done";
    let container = docker.start(&[runtime(), "test-probe"], &["sh", "-c", script]);
    assert_eq!(container.inspect("{{.State.Status}}"), "running");
    assert_eq!(
        container.exec(&[], &["sh", "-c", "echo more; exit 7"]).code,
        7
    );
    assert_eq!(
        container.exec(&["-u", "1000"], &["id", "-u"]).ok(),
        "1000\n"
    );
    assert_eq!(
        container
            .exec(&["-w", "/tmp", "-e", "A=b"], &["sh", "-c", "pwd; echo $A"])
            .ok(),
        "/tmp\nb\n"
    );
    container.call("stop", &["-t", "10"]).ok();
    assert_eq!(
        container.inspect("{{.State.Status}} {{.State.ExitCode}}"),
        "exited 3"
    );
    assert_eq!(container.call("logs", &[]).ok(), "hello\nbye\n");
    container.call("start", &[]).ok();
    assert_eq!(container.inspect("{{.State.Status}}"), "running");
    container.call("restart", &["-t", "5"]).ok();
    container.call("kill", &[]).ok();
    container.await_inspect("{{.State.Status}} {{.State.ExitCode}}", "exited 137");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn signals_reach_the_program() {
    let docker = Docker::connect();
    let script =
        "trap 'echo usr1' USR1; trap 'exit 5' HUP; echo ready; while :; do sleep 0.1; done";
    let container = docker.start(&[runtime(), "test-probe"], &["sh", "-c", script]);
    container.await_log("ready");
    container.call("kill", &["-s", "USR1"]).ok();
    container.await_log("usr1");
    container.exec(&[], &["kill", "-HUP", "1"]).ok();
    container.await_inspect("{{.State.Status}} {{.State.ExitCode}}", "exited 5");
    assert_eq!(container.call("logs", &[]).ok(), "ready\nusr1\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn stop_kills_what_does_not_listen() {
    let docker = Docker::connect();
    let container = docker.start(&[runtime(), "test-probe"], &["sleep", "300"]);
    container.call("stop", &["-t", "1"]).ok();
    assert_eq!(container.inspect("{{.State.ExitCode}}"), "137");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn pause_top_update_and_stats_work() {
    let docker = Docker::connect();
    let container = docker.start(&[runtime(), "test-probe"], &["sleep", "300"]);
    container.call("pause", &[]).ok();
    assert_eq!(container.inspect("{{.State.Status}}"), "paused");
    container.call("unpause", &[]).ok();
    assert_eq!(container.inspect("{{.State.Status}}"), "running");
    let top = docker.call(&["top", &container.name]).ok();
    assert!(top.contains("sleep 300"), "{top}");
    container
        .call("update", &["--memory=64m", "--memory-swap=64m"])
        .ok();
    container.call("stats", &["--no-stream"]).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_health_check_becomes_healthy() {
    let docker = Docker::connect();
    let health = [
        "--health-cmd=test -e /tmp/ready",
        "--health-interval=1s",
        "--health-retries=30",
    ];
    let options = [&[runtime()], &health[..], &["test-probe"]].concat();
    let container = docker.start(&options, &["sh", "-c", "touch /tmp/ready; sleep 300"]);
    container.await_inspect("{{.State.Health.Status}}", "healthy");
}

/// Runs a docker command line on a terminal, by script(1).
fn on_a_terminal(line: &str) -> (i32, String) {
    let finished = finish(Command::new("script").args([
        "--quiet",
        "--return",
        "--command",
        line,
        "/dev/null",
    ]));
    // script(1) passes the end of its standard input on, and the terminal may echo it at any moment.
    let seen = finished.stdout.replace('\r', "");
    let seen = seen.replace("^@", "").replace("^D\u{8}\u{8}", "");
    (finished.code, seen)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_terminal_is_passed_through_by_run_and_exec() {
    let docker = Docker::connect();
    // The pause is for the shim: when a process ends, it closes its terminal, even with unread output.
    let ask = "sh -c 'test -t 0 && test -t 1 && tty && sleep 0.3 && exit 9'";
    let (code, seen) = on_a_terminal(&format!(
        "docker run --rm -it {} test-probe {ask}",
        runtime()
    ));
    assert_eq!((code, seen.as_str()), (9, "/dev/pts/0\n"));
    let container = docker.start(&[runtime(), "test-probe"], &["sleep", "300"]);
    let (code, seen) = on_a_terminal(&format!("docker exec -it {} {ask}", container.name));
    assert_eq!((code, seen.as_str()), (9, "/dev/pts/0\n"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn options_of_run_arrive_inside() {
    let docker = Docker::connect();
    let options = [
        runtime(),
        "--hostname=agent",
        "--env=A=b c",
        "--workdir=/tmp",
        "--user=1000:1000",
        "--init",
        "--tmpfs=/scratch",
        "--ulimit=nofile=512:512",
        "--label=x=y",
        "test-probe",
    ];
    let script = "hostname; echo $A; pwd; id -u; cat /proc/1/comm; ulimit -n; touch /scratch/x && echo scratch";
    let seen = docker.run(&options, &["sh", "-c", script]).ok();
    assert_eq!(seen, "agent\nb c\n/tmp\n1000\ndocker-init\n512\nscratch\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn limits_of_memory_and_processes_hold() {
    let docker = Docker::connect();
    let options = [
        runtime(),
        "--memory=32m",
        "--memory-swap=32m",
        "--pids-limit=20",
        "test-probe",
    ];
    let bomb = docker.run(&options, &["sh", "-c", "tail /dev/zero"]);
    assert_ne!(bomb.code, 0, "{bomb}");
    let forks = "for i in $(seq 40); do sleep 5 & done 2>&1 | grep -c -i 'fork'; true";
    let seen = docker.run(&options, &["sh", "-c", forks]).ok();
    assert_ne!(seen, "0\n", "forty processes in a limit of twenty");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn musl_programs_work_as_root_and_as_a_user() {
    let docker = Docker::connect();
    for policy in Policy::ALL {
        for user in ["--user=0", "--user=1000:1000"] {
            let mut options = policy.options();
            options.extend([user, "test-musl"]);
            let report = parse(&docker.run(&options, &["probe", "all"]).ok());
            for (step, answer) in report
                .iter()
                .filter(|(step, _)| step.starts_with("ordinary-"))
            {
                assert_eq!(answer.word, "ok", "{policy:?} {user}: {step}");
            }
            assert_eq!(report["clone3-newuser"].word, "ENOSYS", "{policy:?} {user}");
            assert_eq!(report["links"].detail, "lo", "{policy:?} {user}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn cp_and_diff_and_rm_of_a_running_container_work() {
    let docker = Docker::connect();
    let container = docker.start(&[runtime(), "test-probe"], &["sleep", "300"]);
    let from = format!("{}:/etc/passwd", container.name);
    let passwd = docker.call(&["cp", &from, "-"]).ok();
    assert!(passwd.contains("dev:x:1000"), "{passwd}");
    container.call("diff", &[]).ok();
    // Dropping it runs `rm -f` on the running container.
}
