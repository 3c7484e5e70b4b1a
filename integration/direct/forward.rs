//! The log shipper of docs/audit.md reads the logs of runs unchanged.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::json;

use super::{Node, Scratch};
use crate::command::awaited;

/// rsyslog with the page's configuration, except for the place of its output.
struct Shipper {
    rsyslog: Child,
    out: String,
}

impl Shipper {
    fn start(scratch: &Scratch) -> Self {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/audit.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, shown) = page.split_once("```rsyslog\n").unwrap();
        let (shown, _) = shown.split_once("```").unwrap();
        let (place, out) = ("/var/log/agentbox.jsonl", scratch.path("out"));
        assert!(shown.contains(place));
        let config = format!(
            "global(workDirectory=\"{}\")\n{}",
            scratch.dir("work"),
            shown.replace(place, &out)
        );
        let config = scratch.file("rsyslog.conf", &config);
        let pid = scratch.path("pid");
        let rsyslog = Command::new("rsyslogd")
            .args(["-n", "-f", &config, "-i", &pid])
            .spawn()
            .unwrap();
        Self { rsyslog, out }
    }

    /// This container's lines so far.
    fn shipped(&self, id: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(&self.out).unwrap_or_default();
        let of = format!("\"container\":\"{id}\"");
        let own = text.lines().filter(|line| line.contains(&of));
        own.map(str::to_owned).collect()
    }

    /// Waits until all lines of these files, and no others, have arrived.
    #[track_caller]
    fn await_all(&self, id: &str, expected: &BTreeSet<String>) {
        awaited("the shipped lines", || match self.shipped(id) {
            lines if lines == *expected => Ok(()),
            lines => Err(format!("{lines:?}, not {expected:?}")),
        });
    }
}

impl Drop for Shipper {
    fn drop(&mut self) {
        self.rsyslog.kill().unwrap();
        self.rsyslog.wait().unwrap();
    }
}

/// The files of a run that the page's pattern matches.
fn files(id: &str) -> Vec<PathBuf> {
    let runs = fs::read_dir("/var/lib/agentbox/runs").unwrap();
    let mut runs = runs.map(|run| run.unwrap().path());
    let end = format!("-{id}");
    let own = runs.find(|run| run.to_string_lossy().ends_with(&end));
    let files = fs::read_dir(own.unwrap()).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|e| e == "jsonl"))
        .collect();
    files.sort();
    files
}

/// A container that makes a denied call and is then deleted.
fn run(node: &Node, name: &str) -> String {
    let id = format!("{name}-{}", std::process::id());
    let mut config = node.config(&["sh", "-c", "mount -t tmpfs none /mnt; exit 0"]);
    config["annotations"] = json!({});
    let bundle = node.bundle(&id, &config);
    node.call(&["run", "--bundle", &bundle, &id]).ok();
    id
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_shipper_gets_each_line_of_each_run_once_and_whole() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let before = run(&node, "before");
    let shipper = Shipper::start(&scratch);
    let after = run(&node, "after");
    for id in [before, after] {
        let files = files(&id);
        let names: Vec<_> = files.iter().filter_map(|file| file.file_name()).collect();
        assert!(names.iter().any(|name| *name == "node.jsonl"), "{names:?}");
        let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
        let text: String = texts.collect();
        assert!(text.contains("\"name\":\"mount\"") && text.ends_with('\n'));
        let lines: BTreeSet<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), text.lines().count());
        shipper.await_all(&id, &lines);
        let all = fs::read_to_string(&shipper.out).unwrap();
        let own = all.lines().filter(|line| lines.contains(*line));
        assert_eq!(own.count(), lines.len(), "once");
    }
}
