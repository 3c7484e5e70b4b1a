//! A container is found by its engine's names for it, from any directory and without `--root`.

use serde_json::Value;

use crate::command::{Finished, run};
use crate::direct::program;
use crate::docker::{Docker, runtime};

fn agentbox(arguments: &[&str]) -> Finished {
    run(&program(), arguments)
}

const ALLOW: &str = "dev.agentbox.network.allow=names.example.test";

#[test]
#[ignore = "needs the rig of hack/test"]
fn every_verb_for_users_accepts_dockers_name() {
    let docker = Docker::connect();
    let container = docker.start(
        &[runtime(), "--annotation", ALLOW, "test-musl"],
        &["sleep", "300"],
    );
    let id = container.inspect("{{.Id}}");
    let name = container.name.as_str();
    for words in [
        &["explain", name][..],
        &["network", name],
        &["state", name],
        &["network", &id],
        &["network", &id[..12]],
    ] {
        let said = agentbox(words).ok();
        assert!(said.contains(&id), "{words:?}: {said}");
    }
    let head = format!("container {id} (docker, container {name}, image test-musl): ");
    for verb in ["explain", "network"] {
        let said = agentbox(&[verb, name]).ok();
        assert!(said.starts_with(&head), "{said}");
    }
    let pids = agentbox(&["ps", "--format", "json", name]).ok();
    let pids: Vec<i32> = serde_json::from_str(&pids).unwrap();
    assert!(!pids.is_empty());
    agentbox(&["approvals", name]).ok();
    let check = ["policy", "check", "--container", name, "--host"];
    let answer = agentbox(&[&check[..], &["names.example.test"]].concat()).ok();
    assert!(answer.starts_with("allowed"), "{answer}");
    agentbox(&["exec", name, "true"]).ok();
    agentbox(&["pause", name]).ok();
    agentbox(&["resume", name]).ok();
    agentbox(&["update", "--network-add", "more.example.test", name]).ok();
    agentbox(&["update", "--network-remove", "names.example.test", name]).ok();
    agentbox(&["update", "--pids-limit", "50", name]).ok();
    let json = agentbox(&["network", "--format", "json", name]).ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["identity"]["name"], name);
    // The log stays after the container is deleted.
    let log = std::fs::read_dir("/run/agentbox/index").unwrap();
    let mut log = log.map(|entry| entry.unwrap().path());
    let dir = log
        .find(|path| path.to_string_lossy().ends_with(&id))
        .unwrap();
    let runs = std::fs::read_link(dir.join("run")).unwrap();
    assert!(runs.starts_with("/var/lib/agentbox/runs"), "{runs:?}");
    // No wall is left of it, and its engine notices its end.
    let gone = agentbox(&["delete", "--force", name]);
    assert!(gone.stderr.contains(&id), "{gone}");
    gone.ok();
    assert!(!dir.exists() && runs.join("sidecar.jsonl").exists());
    agentbox(&["state", name]).failed();
}

/// Whole cures, in Docker's words, and no empty answers.
#[test]
#[ignore = "needs the rig of hack/test"]
fn empty_answers_and_errors_say_what_to_do() {
    let docker = Docker::connect();
    let container = docker.start(&[runtime(), "test-musl"], &["sleep", "300"]);
    let listed = agentbox(&["list"]);
    assert!(
        listed.stderr.contains(": agentbox list --all\n"),
        "{listed}"
    );
    assert_eq!(listed.stdout.lines().count(), 1, "{listed}");
    for silent in [&["list", "-q"][..], &["list", "--format", "json"]] {
        assert_eq!(agentbox(silent).stderr, "", "{silent:?}");
    }
    let none = agentbox(&["update", &container.name]);
    assert!(none.stderr.contains("nothing is to be changed"), "{none}");
    none.ok();
    agentbox(&["update", "no-such-container"]).failed();
    let allow = "dev.agentbox.network.allow=@node";
    let words = ["run", "--rm", runtime(), "--annotation", allow, "test-musl"];
    let refused = docker.call(&words).failed();
    for cure in [
        "`agentbox policy presets --detect --write` writes @node for the node, as root; or list hosts: ",
        "--annotation dev.agentbox.network.allow=+,HOST",
    ] {
        assert!(refused.contains(cure), "{refused}");
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_verb_changes_a_container_by_a_short_id_or_of_another_root() {
    let docker = Docker::connect();
    let container = docker.start(&[runtime(), "test-musl"], &["sleep", "300"]);
    let id = container.inspect("{{.Id}}");
    let name = container.name.as_str();
    // As runc: forced deletion of a missing container is no error.
    agentbox(&["delete", "--force", &id[..6]]).ok();
    agentbox(&["kill", &id[..6], "KILL"]).failed();
    for verb in [&["delete", "--force"][..], &["pause"], &["kill"]] {
        let _whatever = agentbox(&[&["--root", "/run/elsewhere"], verb, &[name]].concat());
    }
    container.await_inspect("{{.State.Status}}", "running");
    agentbox(&["kill", &id[..12], "KILL"]).ok();
    container.await_inspect("{{.State.Status}}", "exited");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn list_all_names_the_walls_of_each_container() {
    let docker = Docker::connect();
    let walled = docker.start(
        &[runtime(), "--annotation", ALLOW, "test-musl"],
        &["sleep", "300"],
    );
    let member = docker.start(
        &[
            runtime(),
            "--network",
            &format!("container:{}", walled.name),
            "test-musl",
        ],
        &["sleep", "300"],
    );
    let refused = walled.exec(&[], &["nslookup", "other.example.test"]);
    assert_ne!(refused.code, 0, "{refused}");
    let table = agentbox(&["list", "--all"]).ok();
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        head,
        [
            "ID",
            "ENGINE",
            "NAME",
            "STATUS",
            "POLICY",
            "NETWORK",
            "DENIED",
            "NOT-GRANTED"
        ]
    );
    let row = |name: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.contains(name)).unwrap();
        line.split("   ")
            .map(|cell| cell.trim().to_owned())
            .filter(|cell| !cell.is_empty())
            .collect()
    };
    let id = walled.inspect("{{.Id}}")[..12].to_owned();
    let seen = row(&walled.name);
    assert_eq!(
        seen[..6],
        [
            &id,
            "docker",
            &walled.name,
            "running",
            "standard",
            "allowlist"
        ]
    );
    assert!(seen[6].parse::<u64>().unwrap() > 0, "{table}");
    // It has the number of `audit`: there, a member's lines are those of its pod too.
    for container in [&id, &member.inspect("{{.Id}}")[..12].to_owned()] {
        let audited = agentbox(&["audit", container, "--json"]).ok();
        let lines = audited
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let denied = lines.filter(|line| line["verdict"] == "denied");
        let denied: u64 = denied.map(|line| line["count"].as_u64().unwrap_or(1)).sum();
        let listed = table
            .lines()
            .find(|line| line.starts_with(container.as_str()));
        let listed: Vec<&str> = listed.unwrap().split_whitespace().collect();
        let at = listed.len() - 2;
        assert_eq!(denied.to_string(), listed[at], "{audited}\n{table}");
    }
    let of_member = [&format!("of {id}"), &seen[6], "0"];
    assert_eq!(row(&member.name)[5..], of_member);
    let json = agentbox(&["list", "--all", "--format", "json"]).ok();
    let all: Vec<Value> = serde_json::from_str(&json).unwrap();
    let one = all.iter().find(|one| one["name"] == walled.name.as_str());
    let one = one.unwrap();
    assert_eq!(one["policy"], "standard");
    assert_eq!(one["engine"], "docker");
    assert!(one["refused"].as_u64() > Some(0), "{one}");
    // Without --all it is runc's list: only of this --root.
    let own = agentbox(&["list"]).ok();
    assert!(!own.contains(&id), "{own}");
}
