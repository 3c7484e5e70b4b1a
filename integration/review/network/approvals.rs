//! An approval is for the connection that was shown, and for no other that waits (N-M7; N33 of docs/threats.md).

use std::time::Duration;

use super::{agentbox, under};
use crate::command::{await_that, awaited};
use crate::docker::Docker;
use crate::docker::allowlist::{Agent, arrived, witness};

/// Requests a tunnel that waits in the background.
#[track_caller]
fn ask(agent: &Agent<'_>, port: u16) {
    let program = format!(
        "import socket\n\
         s = socket.create_connection(('127.0.0.1', 3128), 10); s.settimeout(60)\n\
         s.sendall(b'CONNECT other.example.test:{port} HTTP/1.1\\r\\n\\r\\n')\n\
         s.recv(1000)\n"
    );
    agent
        .container
        .exec(&["-d"], &["python3", "-c", &program])
        .ok();
}

#[track_caller]
fn listed(id: &str, port: u16) -> String {
    let number = awaited("a waiting connection", || {
        let text = agentbox(&["approvals", "--format", "json", id]).ok();
        let all: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let one = all.iter().find(|one| one["port"] == port);
        one.map(|one| one["id"].to_string())
            .ok_or(format!("nothing on port {port}"))
    });
    let table = agentbox(&["approvals", id]).ok();
    let row = table.lines().find(|row| row.contains(&format!(":{port}")));
    let first = row.and_then(|row| row.split_whitespace().next());
    assert_eq!(first, Some(&*number), "{table}");
    number
}

#[track_caller]
fn gone(id: &str, number: &str) {
    await_that("it waits no more", || {
        let text = agentbox(&["approvals", "--format", "json", id]).ok();
        let all: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let ids: Vec<String> = all.iter().map(|one| one["id"].to_string()).collect();
        !ids.iter().any(|id| id == number)
    });
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn an_approval_grants_what_was_shown() {
    let docker = Docker::alone();
    let _turn = witness();
    let agent = under(
        &docker,
        &[
            "network.allow=api.example.test",
            "network.on-unknown=ask",
            "network.ask-seconds=18",
        ],
    );
    let id = agent.container.inspect("{{.Id}}");
    let at_port = |port: u16| arrived(&["\"tcp\"", &format!("\"port\": {port}"), "198.51.100.12"]);
    let before = (at_port(443), at_port(22));
    ask(&agent, 443);
    let shown = listed(&id, 443);
    // It times out, and the workload requests another port of the same name.
    gone(&id, &shown);
    ask(&agent, 22);
    let other = listed(&id, 22);
    assert_ne!(shown, other);
    let said = agentbox(&["approve", &id, &shown]).failed();
    assert!(said.contains("any more"), "{said}");
    let said = agentbox(&["approve", &id, "other.example.test"]).failed();
    assert!(said.contains("other.example.test:22"), "{said}");
    let said = agentbox(&["deny", &id, "other.example.test"]).failed();
    assert!(said.contains("say which port"), "{said}");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!((at_port(443), at_port(22)), before, "nothing was granted");
    // By its number, and by its host and port.
    ask(&agent, 22);
    let said = agentbox(&["approve", &id, &listed(&id, 22)]).ok();
    assert!(
        said.starts_with("approved: other.example.test:22\ncontainer "),
        "{said}"
    );
    let said = agentbox(&["approve", &id, "other.example.test:443"]).ok();
    assert!(
        said.starts_with("approved: other.example.test:443\ncontainer "),
        "{said}"
    );
    // `explain` has it with what is left of it.
    let ends = ["approve", &id, "files.example.test:443", "--for", "10m"];
    agentbox(&ends).ok();
    let said = agentbox(&["explain", &id]).ok();
    assert!(
        said.contains("approved: other.example.test:443\n"),
        "{said}"
    );
    let until = "approved: files.example.test:443 until ";
    let line = said.lines().find(|line| line.contains(until));
    assert!(line.is_some_and(|line| line.ends_with(" s left")), "{said}");
}
