//! F-H1 (docs/threats.md P04): no command waits for the container's cooperation. An agent that stops, traces and leases
//! all it can see delays only commands on its own container. Every command ends, and so does the container.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::command::{Finished, awaited, run, run_for};
use crate::direct::{Node, Scratch, program};
use crate::docker::{Docker, Policy};

/// Far more than a command needs on a busy machine, and less than the deadline for stuck ones.
const PROMPT: Duration = Duration::from_secs(25);

/// More than the deadline of a half-made process.
const IN_THE_END: Duration = Duration::from_secs(50);

/// A workspace of a user, with the agent and a program to lease.
struct Workspace {
    scratch: Scratch,
}

impl Workspace {
    fn of(user: u32) -> Self {
        let scratch = Scratch::new();
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/integration/review/processes/agent.c"
        );
        let dir = scratch.dir("work");
        let agent = format!("{dir}/agent");
        run("gcc", &["-static", "-O1", "-o", &agent, source]).ok();
        let leased = format!("{dir}/leased");
        fs::copy(&agent, &leased).unwrap();
        fs::set_permissions(&leased, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [&dir, &agent, &leased] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        Self { scratch }
    }

    fn dir(&self) -> String {
        self.scratch.path("work")
    }
}

/// A call in the background, killed when dropped.
struct Background(Child);

impl Background {
    fn start(command: &mut Command) -> Self {
        let quiet = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(quiet.spawn().unwrap())
    }

    fn await_end(&mut self, within: Duration) {
        let start = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < within, "did not end within {within:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Runs `docker ARGUMENTS...` within a time limit.
#[track_caller]
fn prompt(arguments: &[&str]) -> Finished {
    run_for(PROMPT, Command::new("docker").args(arguments))
}

/// The agent's trick, and the program that `exec` then runs.
const TRICKS: [(&str, &str); 3] = [
    ("stop", "/bin/id"),
    ("trace", "/bin/id"),
    ("lease", "/work/leased"),
];

fn docker_verbs(docker: &Docker, policy: Policy, user: u32, trick: (&str, &str)) {
    let workspace = Workspace::of(user);
    let mount = format!("{}:/work", workspace.dir());
    let name = user.to_string();
    let (mode, wanted) = trick;
    let options = [
        &policy.options()[..],
        &["-v", &mount, "-w", "/work", "--user", &name, "test-musl"],
    ]
    .concat();
    let command = ["/work/agent", mode, "/work/leased"];
    let container = docker.start(&options, &command);
    let about = format!("{policy:?} {user} {mode}");
    container.await_log("ready");
    let exec = || {
        let mut command = Command::new("docker");
        command.args(["exec", &container.name, wanted]);
        Background::start(&mut command)
    };
    let mut first = exec();
    std::thread::sleep(Duration::from_millis(500));
    for verb in [
        &["pause"][..],
        &["unpause"],
        &["update", "--pids-limit", "77"],
    ] {
        let call = [verb, &[container.name.as_str()]].concat();
        let seen = prompt(&call);
        assert_eq!(seen.code, 0, "{about}: {seen}");
    }
    let second = exec();
    std::thread::sleep(Duration::from_millis(300));
    let killed = prompt(&["kill", &container.name]);
    assert_eq!(killed.code, 0, "{about}: {killed}");
    let removed = prompt(&["rm", "-f", &container.name]);
    assert_eq!(removed.code, 0, "{about}: {removed}");
    first.await_end(PROMPT);
    drop(second);
    // Dropping `container` removes it again, so it must exist.
    docker
        .call(&["create", "--name", &container.name, "test-musl", "true"])
        .ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h1_every_verb_of_docker_ends_while_exec_is_held_up() {
    let docker = Docker::connect();
    for trick in TRICKS {
        docker_verbs(&docker, Policy::Standard, 0, trick);
        docker_verbs(&docker, Policy::Strict, 1000, trick);
    }
}

/// No `docker exec` is needed: an image's health check runs one.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h1_a_health_check_holds_nothing_up() {
    let docker = Docker::connect();
    let workspace = Workspace::of(0);
    let mount = format!("{}:/work", workspace.dir());
    let health = ["--health-cmd", "id", "--health-interval", "1s"];
    let options = [
        &Policy::Standard.options()[..],
        &health,
        &["-v", &mount, "-w", "/work", "test-musl"],
    ]
    .concat();
    let container = docker.start(&options, &["/work/agent", "stop"]);
    container.await_log("ready");
    std::thread::sleep(Duration::from_secs(3));
    for verb in ["pause", "unpause", "kill"] {
        let seen = prompt(&[verb, &container.name]);
        assert_eq!(seen.code, 0, "{seen}");
    }
}

/// A stuck process is ended, and the error says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h1_exec_has_a_deadline() {
    let docker = Docker::connect();
    let workspace = Workspace::of(0);
    let mount = format!("{}:/work", workspace.dir());
    let options = [
        &Policy::Standard.options()[..],
        &["-v", &mount, "-w", "/work", "test-musl"],
    ]
    .concat();
    let container = docker.start(&options, &["/work/agent", "lease", "/work/leased"]);
    container.await_log("ready");
    let call = ["exec", container.name.as_str(), "/work/leased"];
    let start = Instant::now();
    let seen = run_for(IN_THE_END, Command::new("docker").args(call));
    assert_ne!(seen.code, 0, "{seen}");
    let said = format!("{}{}", seen.stdout, seen.stderr);
    assert!(said.contains("was not ready within 30 s"), "{seen}");
    // The kernel itself ends a lease only after 45 s.
    assert!(start.elapsed() < Duration::from_secs(44), "{seen}");
    // Another program still works.
    container.exec(&[], &["/bin/id"]).ok();
}

/// A container that joins another one's pid namespace is delayed by it at `create`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h1_create_has_a_deadline() {
    let docker = Docker::connect();
    let workspace = Workspace::of(0);
    let mount = format!("{}:/work", workspace.dir());
    let options = [
        &Policy::Standard.options()[..],
        &["-v", &mount, "-w", "/work", "test-musl"],
    ]
    .concat();
    let container = docker.start(&options, &["/work/agent", "stop"]);
    container.await_log("ready");
    let pid = format!("container:{}", container.name);
    let net = pid.clone();
    let call = [
        &["run", "--rm", "--pid", &pid, "--network", &net],
        &Policy::Standard.options()[..],
        &["test-musl", "true"],
    ]
    .concat();
    let mut seen = None;
    // A quick one may escape the agent.
    for _ in 0..5 {
        let ended = run_for(IN_THE_END * 2, Command::new("docker").args(&call));
        let held = ended.stderr.contains("within 30 s");
        seen = Some(ended);
        if held {
            break;
        }
    }
    let seen = seen.unwrap();
    assert!(seen.stderr.contains("within 30 s"), "{seen}");
}

/// All commands at once, run by hand, against an agent that uses all tricks at once.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h1_verbs_race_and_all_end() {
    let node = Node::new();
    let workspace = Workspace::of(0);
    let mut config = node.config(&["/work/agent", "all", "/work/leased"]);
    config["process"]["cwd"] = "/work".into();
    let bind = serde_json::json!({
        "destination": "/work", "type": "bind", "source": workspace.dir(), "options": ["rbind", "rw"],
    });
    config["mounts"].as_array_mut().unwrap().push(bind);
    let id = format!("racing-{}", std::process::id());
    let bundle = node.bundle(&id, &config);
    let start = ["--policy", "standard", "run", "--detach", "--bundle"];
    node.call(&[&start[..], &[&bundle, &id]].concat()).ok();
    let verb = |within: Duration, arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(["--root", &node.root]).args(arguments);
        run_for(within, &mut command)
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let again = |within: Duration, calls: &'static [&'static [&'static str]]| {
            let (over, verb, id) = (&over, &verb, &id);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for call in calls {
                        // `ID` is replaced by the container's id.
                        let call: Vec<&str> = call
                            .iter()
                            .map(|word| if *word == "ID" { id.as_str() } else { word })
                            .collect();
                        verb(within, &call);
                    }
                }
            });
        };
        again(IN_THE_END, &[&["exec", "ID", "/bin/id"]]);
        again(IN_THE_END, &[&["exec", "ID", "/work/leased"]]);
        again(PROMPT, &[&["pause", "ID"], &["resume", "ID"]]);
        again(
            PROMPT,
            &[&["update", "--pids-limit", "99", "ID"], &["state", "ID"]],
        );
        again(PROMPT, &[&["kill", "ID", "0"], &["ps", "ID"]]);
        std::thread::sleep(Duration::from_secs(12));
        over.store(true, Ordering::Relaxed);
        let gone = verb(PROMPT, &["delete", "--force", &id]);
        assert_eq!(gone.code, 0, "{gone}");
    });
    awaited("nothing is left", || match node.leftovers(&id) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    assert!(Path::new(&workspace.dir()).exists());
}
