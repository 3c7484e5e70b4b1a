//! A container that loses its sidecar ends, so that an engine or kubelet restarts it with a network.

use crate::command::run;
use crate::docker::allowlist::{Agent, witness};
use crate::docker::{Docker, runtime};

const ALLOW: &str = "dev.agentbox.network.allow=api.example.test:80";

fn reached(agent: &Agent<'_>) -> bool {
    let got = agent.curl(true, &["-f", "http://api.example.test/"]);
    got.code == 0
}

fn kill_sidecar(agent: &Agent<'_>) {
    let record: serde_json::Value = serde_json::from_str(&agent.kept("record.json")).unwrap();
    let pid = record["sidecar"]["pid"].to_string();
    run("kill", &["-9", &pid]).ok();
}

/// A restart policy restarts the container with its allowlist.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_restart_policy_heals_a_container_that_lost_its_sidecar() {
    let docker = Docker::connect();
    let _turn = witness();
    let restart = "--restart=on-failure:3";
    let agent = Agent::start(&docker, &[runtime(), restart, "--annotation", ALLOW]);
    assert!(reached(&agent), "before");
    for times in ["1", "2"] {
        kill_sidecar(&agent);
        agent.container.await_inspect("{{.RestartCount}}", times);
        agent
            .container
            .await_inspect("{{.State.Status}}", "running");
        assert!(reached(&agent), "{times}: {}", agent.violations());
    }
    // A container that was stopped on request is not restarted.
    agent.container.call("stop", &["--time=0"]).ok();
    agent.container.await_inspect("{{.State.Running}}", "false");
}

/// Without a restart policy it stays ended, and its exit code says how. Started by hand, it works again.
#[test]
#[ignore = "needs the rig of hack/test"]
fn without_a_restart_policy_it_ends_as_killed() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    kill_sidecar(&agent);
    agent.container.await_inspect("{{.State.Running}}", "false");
    let state = agent
        .container
        .inspect("{{.State.ExitCode}} {{.State.OOMKilled}}");
    assert_eq!(state, "137 false");
    agent.container.call("start", &[]).ok();
    assert!(reached(&agent), "after");
}
