//! The first hour with Docker: a terminal in a container by its full id, and a published port.

use super::{Docker, runtime};
use crate::command::run;
use crate::direct::program;

/// Runs `agentbox ARGUMENTS...` at a terminal. Returns what it prints.
fn at_terminal(line: &str) -> crate::command::Finished {
    run(
        "script",
        &["--quiet", "--return", "--command", line, "/dev/null"],
    )
}

/// NEWCOMER 1.3: names in the container's directory have 16 and 64 digits, and a socket address has room for 108 bytes.
#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_gets_a_terminal_in_a_container_of_dockers() {
    let docker = Docker::connect();
    let agent = docker.start(&[runtime(), "test-workloads"], &["sleep", "60"]);
    let id = agent.inspect("{{.Id}}");
    assert_eq!(id.len(), 64);
    let line = format!(
        "{} exec -t {id} sh -c 'test -t 0 -a -t 1 && tty && exit 3'",
        program()
    );
    let seen = at_terminal(&line);
    assert_eq!(seen.code, 3, "{seen}");
    assert!(seen.stdout.contains("/dev/pts/"), "{seen}");
    // The control: without -t there is none.
    let bare = format!("{} exec {id} sh -c 'test -t 0 || exit 4'", program());
    assert_eq!(at_terminal(&bare).code, 4);
}

/// NEWCOMER 1.5: nothing warned that the port leads nowhere.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_published_port_that_leads_nowhere_is_named() {
    let docker = Docker::connect();
    let inbound = "dev.agentbox.network.inbound=8000";
    let publish = ["-p", "127.0.0.1:28088:8000", "-p", "127.0.0.1:28053:53/udp"];
    let start = |more: &[&str]| {
        let options = [runtime()];
        let options = [&options[..], &publish, more, &["test-workloads"]].concat();
        docker.start(&options, &["python3", "-m", "http.server", "8000"])
    };
    let told = |id: &str| {
        ["explain", "audit", "suggest"].map(|verb| (verb, run(&program(), &[verb, id]).ok()))
    };
    let agent = start(&[]);
    for (verb, said) in told(&agent.inspect("{{.Id}}")) {
        assert!(
            said.contains("dev.agentbox.network.inbound="),
            "{verb}: {said}"
        );
        assert!(
            said.contains("8000") && (verb == "suggest" || said.contains("28088")),
            "{verb}: {said}"
        );
        assert!(!said.contains("28053"), "{verb}: {said}");
    }
    drop(agent);
    // The control: a working port is not mentioned.
    let agent = start(&["--annotation", inbound]);
    for (verb, said) in told(&agent.inspect("{{.Id}}")) {
        assert!(!said.contains("leads nowhere"), "{verb}: {said}");
    }
}
