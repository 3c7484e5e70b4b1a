//! The directory of a run on a bad disk. If the node's file requires logs, the container is refused; otherwise there is
//! a warning.
//!
//! Each script has its own mount namespace, with another file system over /var/lib/agentbox.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Node, program};
use crate::command::{Finished, finish};

/// The beginning of each script: a disk with the options of the first parameter, and `call` for the program under test.
const BEGIN: &str = r#"
set -eu
options=$1 root=$2 bundle=$3 id=$4 config=$5 binary=$6
call() { "$binary" --root "$root" --config "$config" --log "$bundle/log" "$@"; }
mkdir -p /var/lib/agentbox
[ -z "$options" ] || mount -t tmpfs -o "$options,mode=711" none /var/lib/agentbox
fill() { head -c 16M /dev/zero >/var/lib/agentbox/fill 2>/dev/null || true; }
"#;

struct Case {
    node: Node,
    id: String,
    bundle: String,
}

impl Case {
    fn new(name: &str) -> Self {
        let node = Node::new();
        let id = format!("{name}-{}", std::process::id());
        let mut config = node.config(&["sleep", "60"]);
        config["annotations"] = json!({});
        let bundle = node.bundle("bundle", &config);
        Self { node, id, bundle }
    }

    /// Runs a script on a disk with these mount(8) options.
    fn script(&self, options: &str, required: bool, script: &str) -> Finished {
        let config = format!("[log]\nrequired = {required}\n");
        let config = self.node.scratch.file("agentbox.toml", &config);
        let (root, text) = (&self.node.root, format!("{BEGIN}\n{script}"));
        let words = [
            "--mount",
            "--propagation",
            "private",
            "bash",
            "-c",
            &text,
            "-",
            options,
            root,
            &self.bundle,
            &self.id,
            &config,
            &program(),
        ];
        let mut command = std::process::Command::new("unshare");
        let finished = finish(command.args(words));
        // In any case.
        self.node.call(&["delete", "--force", &self.id]).ok();
        finished
    }

    /// Takes the runtime's log, which then starts anew.
    fn log(&self) -> String {
        let path = format!("{}/log", self.bundle);
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        text
    }
}

/// Disks that cannot keep a log: full, without free inodes, and read-only.
const BAD: [(&str, &str); 4] = [
    ("size=16k", "mkdir -m 700 /var/lib/agentbox/runs; fill"),
    ("size=8k", "fill"),
    ("size=1m,nr_inodes=3", "mkdir -m 700 /var/lib/agentbox/runs"),
    ("size=1m", "mount -o remount,ro /var/lib/agentbox"),
];

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_logs_that_are_required_but_cannot_be_written_refuse_the_container() {
    let case = Case::new("required");
    for (options, bad) in BAD {
        let script = format!("{bad}\ncall create --bundle \"$bundle\" \"$id\"");
        let said = case.script(options, true, &script).failed();
        assert!(
            said.contains("log.required of the node's file refuses it"),
            "{options}: {said}"
        );
        assert_eq!(case.node.leftovers(&case.id), [""; 0], "{options}");
    }
    // The control: a disk with space.
    let script = "call create --bundle \"$bundle\" \"$id\" </dev/null >/dev/null 2>&1
        call start \"$id\"; call delete --force \"$id\"; ls /var/lib/agentbox/runs/*/";
    let seen = case.script("size=1m", true, script).ok();
    assert!(
        seen.contains("node.jsonl") && seen.contains("record.json"),
        "{seen}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_logs_that_are_not_required_are_lost_on_a_bad_disk() {
    let case = Case::new("lenient");
    for (options, bad) in BAD {
        let script = format!(
            "{bad}
            call create --bundle \"$bundle\" \"$id\" </dev/null >/dev/null 2>&1
            call start \"$id\"
            call exec \"$id\" true
            call audit \"$id\" --json
            call delete --force \"$id\"
            ls /var/lib/agentbox/runs 2>/dev/null || true"
        );
        case.log();
        let seen = case.script(options, false, &script).ok();
        let states: Vec<String> = seen
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|line| Some(line["what"]["state"].as_str()?.to_owned()))
            .collect();
        assert_eq!(
            states,
            ["created", "started", "began", "ended"],
            "{options}: {seen}"
        );
        // No directory of a run is left.
        assert!(seen.trim_end().ends_with('}'), "{options}: {seen}");
        let log = case.log();
        assert_eq!(
            log.matches("goes with the container").count(),
            1,
            "{options}: {log}"
        );
        assert!(!log.contains("lacks this"), "{options}: {log}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_logs_with_a_key_that_others_can_read_only_the_receipt_is_missing() {
    let case = Case::new("openkey");
    let script = |mode: &str| {
        format!(
            "call key >/dev/null; chmod {mode} /var/lib/agentbox/receipt.key
            call create --bundle \"$bundle\" \"$id\" </dev/null >/dev/null 2>&1
            call start \"$id\"; call delete --force \"$id\"; ls /var/lib/agentbox/runs/*/"
        )
    };
    let seen = case.script("size=4m", true, &script("0644")).ok();
    assert!(
        seen.contains("node.jsonl") && !seen.contains("receipt.json"),
        "{seen}"
    );
    let log = case.log();
    assert!(
        log.contains("has no receipt") && log.contains("with mode 0600"),
        "{log}"
    );
    let seen = case.script("size=4m", true, &script("0600")).ok();
    assert!(seen.contains("receipt.json"), "{seen}");
    assert_eq!(case.log().trim(), "");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_logs_ten_thousand_runs_are_removed_in_steps() {
    let case = Case::new("crowd");
    let script = "umask 077; mkdir /var/lib/agentbox/runs; cd /var/lib/agentbox/runs
        touch zzz-a-stray-file 00-another
        for n in $(seq 10000 19999); do echo 20250102T0${n:0:1}${n:1:4}.000Z-old; done | xargs mkdir
        once() {
            call create --bundle \"$bundle\" \"$id\" </dev/null >/dev/null 2>&1
            call start \"$id\"; call delete --force \"$id\"
        }
        once; ls | grep -c old; once; ls | grep -c old; ls | grep -c -- \"-$id\"; ls -d zzz* 00*";
    let begin = Instant::now();
    let seen = case.script("size=64m,nr_inodes=20k", true, script).ok();
    let numbers: Vec<&str> = seen.lines().collect();
    assert_eq!(
        numbers,
        ["9936", "9872", "2", "00-another", "zzz-a-stray-file"],
        "{seen}"
    );
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(case.log().trim(), "");
}
