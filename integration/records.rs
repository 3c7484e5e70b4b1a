//! Containers that an earlier version of agentbox made: their records are read, and they are shown and ended.
//!
//! `fixtures/records/COMMIT/KIND/` holds what the program of that commit wrote under Docker 26, with paths of a machine taken
//! out: `record.json`, `config.json` and libcontainer's `state.json`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use agentbox::plan::MountKind;
use agentbox::policy::NetworkMode;
use agentbox::runtime::state::record::{FORMAT, ProcessId, Record};
use serde_json::{Value, json};

use crate::alone::alone;
use crate::command::{Finished, run};
use crate::fixtures;

/// Commits whose records are kept: both of the third format.
const COMMITS: [&str; 2] = ["9a4ca38", "ba5b07c"];

/// A container with mounts, one with rules of its network, one without a policy, one in the network of the first.
const KINDS: [&str; 4] = ["policy", "allowlist", "unconfined", "member"];

fn directory(commit: &str, kind: &str) -> PathBuf {
    fixtures::path("fixtures/records").join(commit).join(kind)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn record(commit: &str, kind: &str) -> Record {
    Record::read(&directory(commit, kind)).unwrap()
}

#[test]
fn a_record_of_an_older_format_says_what_it_said() {
    for commit in COMMITS {
        for kind in KINDS {
            let raw = json(&directory(commit, kind).join("record.json"));
            let record = record(commit, kind);
            assert!(record.format < FORMAT, "{commit} {kind}");
            assert_eq!(record.id, raw["id"]);
            assert_eq!(json!(record.init), raw["init"]);
            assert_eq!(json!(record.cgroups), raw["cgroups"]);
            let Some(decided) = &record.decided else {
                assert_eq!((kind, &raw["plan"]), ("unconfined", &Value::Null));
                continue;
            };
            let old = &raw["plan"];
            assert_eq!(decided.resolved.name.as_str(), old["policy"]["name"]);
            assert_eq!(json!(decided.origins), old["origins"]);
            let plan = json!(decided.plan);
            for wall in ["capabilities", "capabilityLimit", "namespaces", "devices"] {
                let sorted = |value: &Value| {
                    let mut text = value.to_string().replace(['[', ']', '{', '}'], ",");
                    text.retain(|c| c != '"');
                    let mut words: Vec<String> = text.split(',').map(str::to_owned).collect();
                    words.sort();
                    words
                };
                assert_eq!(
                    sorted(&plan[wall]),
                    sorted(&old[wall]),
                    "{commit} {kind} {wall}"
                );
            }
            let mounts = old["filesystem"]["mounts"].as_array().unwrap();
            assert_eq!(json!(decided.plan.filesystem.mounts), json!(mounts));
            let rules = &decided.plan.network.rules;
            assert_eq!(json!(rules.allow), old["network"]["rules"]["allow"]);
        }
    }
}

#[test]
fn what_records_of_before_do_not_say_is_as_it_was_then() {
    for commit in COMMITS {
        let policy = record(commit, "policy").decided.unwrap();
        let binds = policy.plan.filesystem.mounts.iter();
        let binds = binds.filter(|m| matches!(m.kind, MountKind::Bind(_)));
        assert_eq!(binds.filter(|m| m.is_writable()).count(), 1);
        // The filter that is kept was compiled with what the policy said.
        let said = policy.resolved.privileges.set_id.to_string();
        assert_eq!(policy.plan.syscalls.set_id.to_string(), said);
        let scratch_on = policy.resolved.filesystem.scratch_on;
        assert_eq!(policy.plan.filesystem.scratch_on, scratch_on);
        let allowlist = record(commit, "allowlist").decided.unwrap();
        assert_eq!(allowlist.plan.network.mode, NetworkMode::Allowlist);
        assert_eq!(allowlist.policy(), allowlist.resolved);
        let first = record(commit, "policy").id;
        let member = record(commit, "member");
        assert_eq!(member.shared_network().unwrap().container, first);
    }
}

#[test]
fn a_record_that_is_read_and_saved_is_of_this_format_and_the_same() {
    let dir = std::env::temp_dir().join(format!("agentbox-records-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    for commit in COMMITS {
        for kind in KINDS {
            let old = record(commit, kind);
            let mut new = old.clone();
            new.format = FORMAT;
            new.save(&dir).unwrap();
            assert_eq!(Record::read(&dir).unwrap(), new, "{commit} {kind}");
            // Nobody saves one in this form under an older number.
            assert!(json(&dir.join("record.json")).get("plan").is_none());
        }
    }
    fs::remove_dir_all(dir).unwrap();
}

/// A container of a record, whose first process is another one, in a process namespace of the test's own.
struct Container {
    record: Value,
    init: Child,
}

impl Container {
    /// Puts the record where the program looks for it, with the number of a process that sleeps.
    fn laid(commit: &str, kind: &str) -> Self {
        let from = directory(commit, kind);
        let init = Command::new("sleep")
            .arg("3600")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = i32::try_from(init.id()).unwrap();
        let mut record = json(&from.join("record.json"));
        record["init"] = json!(ProcessId::of(pid).unwrap());
        // Its sidecar has gone, as if killed.
        let laid = Self { record, init };
        let dir = laid.dir();
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("record.json"), laid.record.to_string()).unwrap();
        fs::copy(from.join("config.json"), dir.join("config.json")).unwrap();
        let mut state = json(&from.join("state.json"));
        state["pid"] = json!(pid);
        let root = laid.root().join(laid.id());
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("state.json"), state.to_string()).unwrap();
        laid
    }

    fn id(&self) -> &str {
        self.record["id"].as_str().unwrap()
    }

    fn root(&self) -> PathBuf {
        self.record["root"].as_str().unwrap().into()
    }

    /// `/run/agentbox/index/HASH-ID`, by the hash of the engine's root that all versions have.
    fn dir(&self) -> PathBuf {
        Path::new("/run/agentbox/index").join(format!("53b1499c8599cc10-{}", self.id()))
    }

    fn call(&self, arguments: &[&str]) -> Finished {
        let root = self.root();
        let all = [&["--root", root.to_str().unwrap()], arguments].concat();
        run(env!("CARGO_BIN_EXE_agentbox"), &all)
    }

    /// Whether the first process ends within a minute.
    fn ends(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            if self.init.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

#[test]
fn a_container_of_an_earlier_version_is_listed_explained_stopped_and_deleted() {
    alone(|| {
        let mounted = run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", "/run"]);
        mounted.ok();
        for commit in COMMITS {
            for kind in KINDS {
                let mut container = Container::laid(commit, kind);
                let id = container.id().to_owned();
                assert!(container.call(&["list"]).ok().contains(&id));
                // As engines show it.
                assert!(container.call(&["list", "--all"]).ok().contains(&id[..12]));
                let state: Value =
                    serde_json::from_str(&container.call(&["state", &id]).ok()).unwrap();
                assert_eq!(
                    (&state["id"], &state["status"]),
                    (&json!(id), &json!("running"))
                );
                let explained = container.call(&["explain", &id]).ok();
                let policy = container.record["plan"]["policy"]["name"].as_str();
                let words =
                    policy.map_or("unconfined".to_owned(), |name| format!("policy '{name}'"));
                assert!(explained.contains(&words), "{explained}");
                let explained = container.call(&["explain", "--json", &id]).ok();
                let explained: Value = serde_json::from_str(&explained).unwrap();
                assert_eq!(explained["plan"]["policy"]["name"].as_str(), policy);
                assert_eq!(
                    explained["plan"]["warnings"],
                    container.record["plan"]["warnings"]
                );
                container.call(&["kill", &id, "KILL"]).ok();
                assert!(container.ends(), "{commit} {kind}");
                container.call(&["delete", &id]).ok();
                assert!(!container.dir().exists(), "{commit} {kind}");
                assert!(!container.call(&["list", "--all"]).ok().contains(&id[..12]));
            }
        }
    });
}

#[test]
fn a_running_container_of_an_earlier_version_is_deleted_by_force() {
    alone(|| {
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", "/run"]).ok();
        for commit in COMMITS {
            for kind in KINDS {
                let mut container = Container::laid(commit, kind);
                let id = container.id().to_owned();
                container.call(&["delete", "--force", &id]).ok();
                assert!(
                    container.ends() && !container.dir().exists(),
                    "{commit} {kind}"
                );
            }
        }
    });
}
