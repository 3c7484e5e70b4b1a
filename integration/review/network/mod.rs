//! The network wall: deny rules, metadata, second greetings, approvals, neighbours (N).

mod addresses;
mod approvals;
mod budgets;
mod control;
mod greetings;
mod inbound;
mod requests;

use crate::command::{Finished, run};
use crate::docker::allowlist::Agent;
use crate::docker::{Docker, runtime};

fn agentbox(arguments: &[&str]) -> Finished {
    run("agentbox", arguments)
}

/// An agent under these annotations, without their common prefix.
#[track_caller]
fn under<'a>(docker: &'a Docker, fields: &[&str]) -> Agent<'a> {
    under_with(docker, &[], fields)
}

/// The same, after other options of `docker run`.
#[track_caller]
fn under_with<'a>(docker: &'a Docker, options: &[&str], fields: &[&str]) -> Agent<'a> {
    let fields: Vec<String> = fields
        .iter()
        .map(|field| format!("dev.agentbox.{field}"))
        .collect();
    let mut all = vec![runtime()];
    all.extend(options);
    for field in &fields {
        all.extend(["--annotation", field]);
    }
    Agent::start(docker, &all)
}

/// A request by a client without the proxy, and by one with it.
fn both_ways(agent: &Agent<'_>, url: &str) -> [Finished; 2] {
    [true, false].map(|direct| agent.curl(direct, &["-f", "--max-time", "8", url]))
}

#[track_caller]
fn assert_reached(agent: &Agent<'_>, url: &str) {
    for got in both_ways(agent, url) {
        assert_eq!(got.code, 0, "{url}: {got}");
    }
}

#[track_caller]
fn assert_refused(agent: &Agent<'_>, url: &str) {
    for got in both_ways(agent, url) {
        assert_ne!(got.code, 0, "{url}: {got}");
    }
}
