//! `agentbox verify`: which walls hold, which do not, and that it notices a missing wall.

mod apart;
mod mutations;
mod plan;
mod running;

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::command::run;
use crate::direct::{Node, program};
use running::Running;

/// Only one test at a time may check for leftovers.
static TURN: Mutex<()> = Mutex::new(());

/// The answer of `verify ARGUMENTS... --json`, and its exit status.
fn verify(arguments: &[&str]) -> (i32, Value) {
    let finished = run(&program(), &[&["verify", "--json"], arguments].concat());
    let json = serde_json::from_str(&finished.stdout);
    (
        finished.code,
        json.unwrap_or_else(|e| panic!("{e}: {finished}")),
    )
}

/// The source of the attempt and the probe, mapped to verdict and outcome.
type Entries = BTreeMap<(String, String), (String, String)>;

/// The result of each of a report's entries.
fn entries(report: &Value) -> Entries {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |e: &Value| {
        let found = text(&e["found"]["outcome"]);
        (
            (text(&e["by"]), text(&e["id"])),
            (text(&e["verdict"]), found),
        )
    };
    report["probes"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect()
}

/// Leftovers of `verify` below /run/agentbox, and among the runs.
fn left() -> Vec<String> {
    let mut found = Vec::new();
    let state =
        ["containers", "index", "locks", "wrap"].map(|name| format!("/run/agentbox/{name}"));
    for directory in state
        .into_iter()
        .chain(["/var/lib/agentbox/runs".to_owned()])
    {
        let entries = fs::read_dir(directory);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("verify-") {
                found.push(name);
            }
        }
    }
    found
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_says_that_every_policy_holds_and_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for policy in ["strict", "standard", "permissive"] {
        let (code, report) = verify(&["--policy", policy]);
        assert_eq!(code, 0, "{policy}: {report:#}");
        assert_eq!(report["result"], "held");
        let entries = entries(&report);
        for by in ["init", "exec"] {
            let (verdict, _) = &entries[&(by.to_owned(), "io-uring".to_owned())];
            assert_eq!(verdict, "held", "{policy} by {by}");
        }
        let (verdict, _) = &entries[&("node".to_owned(), "as-the-node-sees-it".to_owned())];
        assert_eq!(verdict, "held", "{policy}");
    }
    assert!(left().is_empty(), "{:?}", left());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_says_that_unconfined_has_no_wall() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (code, report) = verify(&["--policy", "unconfined"]);
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["promised"], false);
    let absent = |id: &str| {
        for by in ["init", "exec"] {
            let (verdict, found) = &entries(&report)[&(by.to_owned(), id.to_owned())];
            assert_eq!(
                (verdict.as_str(), found.as_str()),
                ("not-promised", "not-held"),
                "{id}"
            );
        }
    };
    for id in [
        "interfaces",
        "seccomp-mode",
        "io-uring",
        "capabilities",
        "core-files",
    ] {
        absent(id);
    }
    assert!(left().is_empty(), "{:?}", left());
}

/// Typed by a user: the container gets no part of the terminal, and the report is printed there.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_runs_at_a_terminal() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for arguments in ["", "--policy strict", "--json"] {
        let line = format!("{} verify {arguments}", program());
        let at_terminal = ["--quiet", "--return", "--command", &line, "/dev/null"];
        let finished = run("script", &at_terminal);
        assert_eq!(finished.code, 0, "{arguments}: {finished}");
        assert!(finished.stdout.contains("held"), "{finished}");
    }
    // The control: this is a terminal.
    let control = run(
        "script",
        &[
            "--quiet",
            "--return",
            "--command",
            "test -t 0 -a -t 1 -a -t 2",
            "/dev/null",
        ],
    );
    assert_eq!(control.code, 0, "{control}");
    assert!(left().is_empty(), "{:?}", left());
}

/// The container gets no part of the file either, although it can make set-user-ID files.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_writes_its_report_to_a_file() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let node = Node::new();
    let id = format!("verified-{}-file", std::process::id());
    let bundle = node.bundle(&id, &node.config(&["sleep", "300"]));
    let agentbox = format!("{} --root {}", program(), node.root);
    let shell = |line: String| run("sh", &["-c", &line]).code;
    // A file as its output would be the cause that it can make none.
    let line = format!(
        "{agentbox} --policy standard run --detach --bundle {bundle} {id} </dev/null >/dev/null 2>&1"
    );
    assert_eq!(shell(line), 0);
    let container = Running { node: &node, id };
    let explained = node.call(&["explain", &container.id]).ok();
    let can = "set-group-ID files can be made";
    assert!(explained.contains(can), "{explained}");
    let file = node.scratch.path("report");
    for arguments in [&container.id, "--policy standard"] {
        let code = shell(format!("{agentbox} verify {arguments} >{file} 2>&1"));
        let report = fs::read_to_string(&file).unwrap();
        assert_eq!(code, 0, "{arguments}: {report}");
        assert!(!report.contains("not tried"), "{arguments}: {report}");
    }
}

#[test]
fn verify_of_what_is_not_there_is_no_answer() {
    for arguments in [&["verify", "no-such-container"][..], &["verify", "--nope"]] {
        let finished = run(&program(), arguments);
        assert_eq!(finished.code, 2, "{finished}");
    }
}
