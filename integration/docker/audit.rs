//! A run's log: what it says, after the container is gone, to a reader who was not there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use agentbox::audit::LogLine;
use serde_json::{Value, json};

use super::allowlist::{Agent, internet};
use super::{Docker, runtime};
use crate::command::{Finished, run};
use crate::direct::Scratch;

fn agentbox(arguments: &[&str]) -> Finished {
    run(&std::env::var("AGENTBOX_BIN").unwrap(), arguments)
}

/// Prints the number of each line of the second file that the schema in the first one does not accept.
const VALIDATE: &str = r#"
import datetime, json, jsonschema, sys
formats = jsonschema.FormatChecker()
@formats.checks("date-time", raises=(TypeError, ValueError))
def is_time(value):
    return datetime.datetime.fromisoformat(value) is not None
validator = jsonschema.Draft202012Validator(json.load(open(sys.argv[1])), format_checker=formats)
for number, line in enumerate(open(sys.argv[2])):
    if not validator.is_valid(json.loads(line)):
        print(number)
"#;

/// The numbers of the lines that Debian's python3-jsonschema refuses by the published schema.
#[track_caller]
fn refused_by_the_schema(text: &str) -> Vec<usize> {
    let scratch = Scratch::new();
    let schema = scratch.file("schema.json", &agentbox(&["audit", "--schema"]).ok());
    let lines = scratch.file("lines", text);
    let said = run("/usr/bin/python3", &["-c", VALIDATE, &schema, &lines]).ok();
    said.lines().map(|number| number.parse().unwrap()).collect()
}

/// The lines of a log. Each must match the published schema and have no other fields.
#[track_caller]
fn lines(text: &str) -> Vec<LogLine> {
    assert_eq!(refused_by_the_schema(text), [0; 0], "{text}");
    text.lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            let parsed: LogLine = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(&parsed).unwrap(), value, "{line}");
            parsed
        })
        .collect()
}

/// A line with one fault is not of the published form.
#[test]
#[ignore = "needs the rig of hack/test"]
fn the_published_schema_refuses_wrong_lines() {
    let docker = Docker::connect();
    let agent = docker.start(&[runtime(), "test-workloads"], &["sleep", "300"]);
    let text = agentbox(&["audit", "--json", &agent.inspect("{{.Id}}")]).ok();
    let right: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let faults = [
        ("schema", json!("agentbox.event/2")),
        ("time", json!("yesterday")),
        ("prev", json!("zz")),
        ("seq", json!(-1)),
        ("wall", json!("fence")),
        ("verdict", json!("perhaps")),
        ("what", json!({"type": "rumour"})),
        ("what", json!("a string")),
        ("unheard", json!(1)),
    ];
    let mut wrong: Vec<Value> = faults
        .into_iter()
        .map(|(field, value)| {
            let mut line = right.clone();
            line[field] = value;
            line
        })
        .collect();
    for field in ["schema", "time", "prev", "what"] {
        let mut line = right.clone();
        line.as_object_mut().unwrap().remove(field).unwrap();
        wrong.push(line);
    }
    let all: Vec<usize> = (0..wrong.len()).collect();
    let text: Vec<String> = wrong.iter().map(Value::to_string).collect();
    assert_eq!(refused_by_the_schema(&text.join("\n")), all, "{text:#?}");
}

/// The run's directory, which must be the only one.
#[track_caller]
fn only_run(id: &str) -> PathBuf {
    let runs = std::fs::read_dir("/var/lib/agentbox/runs").unwrap();
    let mut of_id = runs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(id));
    let found = of_id.next().unwrap();
    assert_eq!(of_id.next(), None);
    found
}

/// The client hangs up while the sidecar dials, and the container ends. The attempt is in the log.
#[test]
#[ignore = "needs the rig of hack/test"]
fn what_was_dialled_and_given_up_has_a_line() {
    // Routed, but dropped at its destination.
    const HOLE: &str = "hole.example.test";
    let docker = Docker::connect();
    internet();
    let allow = format!("dev.agentbox.network.allow={HOLE}");
    let options = [
        runtime(),
        "--add-host=hole.example.test:198.51.100.77",
        "--annotation",
        &allow,
        "test-workloads",
    ];
    let agent = docker.start(&options, &["sleep", "300"]);
    let id = agent.inspect("{{.Id}}");
    let url = format!("https://{HOLE}/");
    agent.exec(&[], &["curl", "-sS", "-m", "1", &url]).failed();
    let network = agentbox(&["network", "--format", "json", &id]).ok();
    let network: Value = serde_json::from_str(&network).unwrap();
    // The control: the attempt is under way and not in the log.
    assert_eq!(network["connections"][0]["host"], HOLE, "{network}");
    let given_up = |text: &str| {
        let of_host = lines(text)
            .into_iter()
            .filter(|line| line.event.what.host() == Some(HOLE));
        let causes = of_host.map(|line| (line.event.verdict, line.event.cause));
        causes.collect::<Vec<_>>()
    };
    assert_eq!(given_up(&agentbox(&["audit", "--json", &id]).ok()), []);
    drop(agent);
    let text = agentbox(&["audit", "--json", &id]).ok();
    let expected = (agentbox::audit::Verdict::Failed, Some("given-up".into()));
    assert_eq!(given_up(&text), [expected], "{text}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn who_was_not_there_learns_what_a_container_did_when_it_is_gone() {
    use std::os::unix::fs::PermissionsExt;
    let docker = Docker::connect();
    internet();
    let ca = "/srv/internet/authority.crt:/authority.crt:ro";
    let agent = docker.start(
        &[
            runtime(),
            "--cap-add=NET_ADMIN",
            "-v",
            "/etc:/node-etc:ro",
            "-v",
            ca,
            "-e",
            "CURL_CA_BUNDLE=/authority.crt",
            "--annotation",
            "dev.agentbox.network.allow=api.example.test",
            "test-workloads",
        ],
        &["sleep", "300"],
    );
    let (id, name) = (agent.inspect("{{.Id}}"), agent.name.clone());
    let name = name.as_str();
    agent
        .exec(&[], &["curl", "-sS", "-f", "https://api.example.test/x"])
        .ok();
    for _ in 0..5 {
        agent
            .exec(&[], &["curl", "-sS", "https://files.example.test/"])
            .failed();
    }
    agent
        .exec(&["-u", "1000:1000"], &["sh", "-c", "exit 3"])
        .failed();
    agent.exec(&[], &["no-such-program"]).failed();
    assert_eq!(agentbox(&["exec", name, "sh", "-c", "exit 4"]).code, 4);
    agentbox(&["update", "--network-add", "more.example.test", name]).ok();
    drop(agent);
    // By id, by id prefix, and by name; no record of the container is left.
    agentbox(&["state", &id]).failed();
    for who in [&id[..], &id[..12], name] {
        let text = agentbox(&["audit", who]).ok();
        for words in [
            "files.example.test:443 x5: no rule in network.allow matches it",
            "to allow it: --annotation dev.agentbox.network.allow=+,files.example.test for the next container",
            "mount at /node-etc (from /etc): /etc: it holds the host's configuration",
            "NET_ADMIN",
            "api.example.test:443: 1 connection,",
            "command: as 0:0: sleep 300",
            "created, to run as 0:0: sleep 300",
            "exec began as 1000:1000: sh -c exit 3",
            "exec ended with status 4 as 0:0: sh -c exit 4",
            "exec not started as 0:0: no-such-program",
            "added more.example.test",
            "started",
            "deleted",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    // Also the policy, and the network's counts.
    let explained = agentbox(&["explain", name]).ok();
    assert!(
        explained.contains("policy 'standard'") && explained.contains(&id),
        "{explained}"
    );
    let network = agentbox(&["network", "--format", "json", name]).ok();
    let network: Value = serde_json::from_str(&network).unwrap();
    assert!(
        network["denied"]["not-listed"].as_u64() >= Some(5),
        "{network}"
    );
    assert_eq!(
        (&network["allowed"], &network["identity"]["name"]),
        (&1.into(), &name.into())
    );
    let markdown = agentbox(&["audit", "--format", "markdown", name]).ok();
    assert!(
        markdown.contains("Command: `as 0:0: sleep 300`"),
        "{markdown}"
    );
    assert!(markdown.contains("| `files.example.test:443` | 5 | `no rule in network.allow matches it` | `files.example.test` |"), "{markdown}");
    let ocsf = agentbox(&["audit", "--format", "ocsf", "--wall", "network", name]).ok();
    let refuse = |line: &str| serde_json::from_str::<Value>(line).unwrap()["type_uid"] == 400_105;
    assert!(ocsf.lines().any(refuse), "{ocsf}");
    let json = agentbox(&["audit", "--json", name]).ok();
    let all = lines(&json);
    assert!(
        all.iter()
            .all(|line| line.context.container == id && line.context.name.as_deref() == Some(name))
    );
    let denied = lines(&agentbox(&["audit", "--json", "--denied", "--wall", "network", name]).ok());
    assert!(!denied.is_empty() && denied.len() < all.len());
    assert!(
        agentbox(&["audit", "--json", "--since", "2100-01-01T00:00:00Z", name])
            .ok()
            .is_empty()
    );
    // No matter what other tests did to their runs.
    assert!(agentbox(&["audit"]).stdout.contains(name));
    // Readable by root alone.
    let run = only_run(&id);
    for (path, mode) in [
        (run.clone(), 0o700),
        (run.join("node.jsonl"), 0o600),
        (run.join("sidecar.jsonl"), 0o600),
    ] {
        let found = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{path:?}");
    }
}

/// The engine waits for the container's process, not agentbox. The kernel tells the warden how it ended (Linux 6.15).
#[test]
#[ignore = "needs the rig of hack/test"]
fn how_a_container_ended_is_known_under_an_engine() {
    let docker = Docker::connect();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split('.')
        .map(|n| n.parse::<u32>().unwrap_or_default());
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    let policy = "--annotation=dev.agentbox.policy=strict";
    let (ends, killed) = (&["sh", "-c", "exit 7"][..], &["sleep", "300"][..]);
    for (options, command, status) in [
        (&[runtime()][..], ends, 7),
        (&[runtime(), policy], ends, 7),
        (&[runtime(), "--network=none"], ends, 7),
        (&[runtime()], killed, 137),
    ] {
        let options = [options, &["test-workloads"]].concat();
        let container = docker.start(&options, command);
        let id = container.inspect("{{.Id}}");
        if command == killed {
            container.call("kill", &[]).ok();
        }
        container.await_inspect("{{.State.Running}}", "false");
        container.await_inspect("{{.State.ExitCode}}", &status.to_string());
        drop(container);
        let log = agentbox(&["audit", "--json", &id]).ok();
        let exits: Vec<_> = lines(&log)
            .iter()
            .filter_map(|line| serde_json::to_value(&line.event).unwrap()["what"]["exit"].as_i64())
            .collect();
        let known = if kernel >= (6, 15) {
            vec![status]
        } else {
            vec![]
        };
        assert_eq!(exits, known, "{options:?}: {log}");
    }
}

/// A changed line and removed lines are reported with their place.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_changed_log_is_not_believed() {
    let docker = Docker::connect();
    let agent = Agent::start(
        &docker,
        &[
            runtime(),
            "--annotation",
            "dev.agentbox.network.allow=api.example.test",
        ],
    );
    for host in ["a", "b", "c"] {
        agent
            .curl(false, &[&format!("https://{host}.example.test/")])
            .failed();
    }
    let id = agent.container.inspect("{{.Id}}");
    drop(agent);
    agentbox(&["audit", &id]).ok();
    let log = only_run(&id).join("sidecar.jsonl");
    let whole = std::fs::read_to_string(&log).unwrap();
    // Three denials, and the ends of three execs.
    assert_eq!(whole.lines().count(), 6, "{whole}");
    let first = whole.lines().next().unwrap().len();
    for (what, text, words) in [
        (
            "changed",
            whole.replacen("a.example.test", "z.example.test", 1),
            "sidecar.jsonl, line 2: the chain is broken",
        ),
        (
            "cut in a line",
            whole[..whole.len() - 20].to_owned(),
            "it is cut",
        ),
        (
            "cut behind a line",
            whole[..=first].to_owned(),
            "line 1: the log ended with line 6",
        ),
        ("emptied", String::new(), "the log ended with line 6"),
    ] {
        std::fs::write(&log, text).unwrap();
        let said = agentbox(&["audit", &id]);
        assert_eq!(said.code, 3, "{what}: {said}");
        assert!(
            said.stderr.contains("THE LOG IS NOT WHOLE"),
            "{what}: {said}"
        );
        assert!(said.stderr.contains(words), "{what}: {said}");
    }
    std::fs::write(&log, whole).unwrap();
    agentbox(&["audit", &id]).ok();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_run_that_goes_on_is_followed_to_its_end() {
    let docker = Docker::connect();
    let agent = docker.start(&[runtime(), "test-musl"], &["sleep", "300"]);
    let id = agent.inspect("{{.Id}}");
    let follow = std::process::Command::new(std::env::var("AGENTBOX_BIN").unwrap())
        .args(["audit", "--follow", "--json", &id])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    agent.exec(&[], &["echo", "one-more"]).ok();
    agent.call("rm", &["-f"]).ok();
    let said = follow.wait_with_output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(said.status.success(), "{text}");
    let seen = lines(&text);
    assert!(
        text.contains("one-more") && text.contains("\"state\":\"deleted\""),
        "{text}"
    );
    let different: BTreeSet<&str> = text.lines().collect();
    assert_eq!(different.len(), seen.len(), "no line twice: {text}");
}

/// A policy made from a run's denials allows exactly the ones that a rule can allow, and no escape.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_policy_made_of_a_run_gives_its_hosts_and_no_escape() {
    let docker = Docker::connect();
    let script = "import ctypes, socket\n\
        libc = ctypes.CDLL(None)\n\
        libc.syscall(101, 0, 0, 0, 0)\n\
        libc.syscall(165, 0, 0, 0, 0, 0)\n\
        for host in ('wanted.example.com', '169.254.169.254'):\n    \
            try: socket.create_connection((host, 443), 3)\n    \
            except OSError: pass\n";
    let name = format!("suggest-{}", std::process::id());
    let ran = docker.run(
        &[
            runtime(),
            "--name",
            &name,
            "--annotation",
            "dev.agentbox.network.allow=other.example.com",
            "test-workloads",
        ],
        &["python3", "-c", script],
    );
    ran.ok();
    let text = agentbox(&["suggest", &name]).ok();
    assert!(
        text.contains("network.allow=+,wanted.example.com\n"),
        "{text}"
    );
    assert!(text.contains("syscalls.profile=debug\n"), "{text}");
    let (_, left_out) = text.split_once("denied, left out:").unwrap();
    assert!(left_out.contains("mount("), "{text}");
    assert!(left_out.contains("169.254.169.254"), "{text}");

    let check = |host: &str| {
        let words = ["policy", "check", &name, "--host", host, "--port", "443"];
        agentbox(&words).code == 0
    };
    let written = agentbox(&["suggest", &name, "--write", &name]);
    let usage = format!("use it: --annotation dev.agentbox.policy={name}");
    assert!(
        written.code == 0 && written.stderr.contains(&usage),
        "{written}"
    );
    assert!(check("wanted.example.com"));
    for host in ["169.254.169.254", "third.example.com"] {
        assert!(!check(host), "{host}");
    }
    // A file is never overwritten. A file that no container could start with is removed.
    let again = agentbox(&["suggest", &name, "--write", &name]).failed();
    assert!(again.contains("exists"), "{again}");
    agentbox(&["suggest", &name, "--write", "../x"]).failed();
    let refused = agentbox(&["suggest", &name, "--write", "permissive"]).failed();
    assert!(refused.contains("built-in policy"), "{refused}");
    let file = format!("/etc/agentbox/policies/{name}.toml");
    let made = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    // Denials that it leaves out are in a comment at the end, not in the policy.
    let (given, left_out) = made
        .split_once("\n# Refused, and not in this policy:\n")
        .unwrap();
    assert!(
        !given.contains("mount") && !given.contains("169.254"),
        "{made}"
    );
    assert!(
        left_out.contains("mount(") && left_out.contains("169.254.169.254"),
        "{made}"
    );
    assert!(
        left_out
            .lines()
            .all(|line| line.starts_with('#') || line.is_empty()),
        "{made}"
    );
}

/// A user's policy file may have the name of a wider policy, and options may have narrowed the run's.
#[test]
#[ignore = "needs the rig of hack/test"]
fn no_policy_is_made_that_gives_more_than_the_run_had() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    let narrow =
        "base = \"strict\"\n[network]\nmode = \"allowlist\"\nallow = [\"listed.example.test\"]\n";
    let file = crate::wrap::NodeDir::new().file("permissive.toml", narrow);
    let runs = std::cell::Cell::new(0);
    let wrap = |options: &[&str]| {
        runs.set(runs.get() + 1);
        let name = format!("narrowed-{}-{}", std::process::id(), runs.get());
        let ask = "curl -s -o /dev/null https://wanted.example.com/; true";
        let words = [
            &["wrap", "--name", &name],
            options,
            &["--", "sh", "-c", ask],
        ]
        .concat();
        let mut command = std::process::Command::new(std::env::var("AGENTBOX_BIN").unwrap());
        command.args(words).current_dir(&project);
        crate::command::finish(&mut command).ok();
        name
    };
    for options in [
        &["--policy", &file][..],
        &[
            "--allow",
            "listed.example.test",
            "--set",
            "limits.memory=64MiB",
        ],
    ] {
        let name = wrap(options);
        let text = agentbox(&["suggest", &name]).ok();
        assert!(text.contains("wanted.example.com"), "{text}");
        let refused = agentbox(&["suggest", &name, "--write", &name]).failed();
        assert!(
            refused.contains("gives more than this run had"),
            "{refused}"
        );
    }
    // A tampered log is reported, and no policy is made from it.
    let name = wrap(&["--allow", "listed.example.test"]);
    let id = agentbox(&["audit", "--json", &name]).ok();
    let run = only_run(&lines(&id)[0].context.container);
    let log = run.join("sidecar.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(
        &log,
        text.replace("wanted.example.com", "chosen.example.com"),
    )
    .unwrap();
    let changed = agentbox(&["suggest", &name]);
    assert!(
        changed.code == 3 && changed.stderr.contains("NOT WHOLE"),
        "{changed}"
    );
    let refused = agentbox(&["suggest", &name, "--write", &name]).failed();
    assert!(refused.contains("not complete"), "{refused}");
    assert!(!std::path::Path::new(&format!("/etc/agentbox/policies/{name}.toml")).exists());
}
