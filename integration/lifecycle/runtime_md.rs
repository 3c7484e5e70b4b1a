//! runtime.md: state, lifecycle, and the five operations.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::json;

use super::trial::Trial;
use super::{ALL, PLAIN, cases};
use crate::command::{await_that, awaited};

cases! {
    runtime_md_state_must_have_its_properties, ALL, |t: &mut Trial| {
        t.create().ok();
        let state = t.state();
        assert!(state["ociVersion"].as_str().unwrap().starts_with("1."), "{state}");
        assert_eq!(state["id"], t.id.as_str());
        assert_eq!(state["bundle"], t.bundle().as_str());
        assert_eq!(state["annotations"]["org.example.key"], "value");
    };

    runtime_md_state_must_name_the_bundle_absolutely, ALL, |t: &mut Trial| {
        t.write();
        let relative = format!("{}/../bundle/.", t.bundle());
        t.call(&["create", "--bundle", &relative, &t.id]).ok();
        assert_eq!(t.state()["bundle"], t.bundle().as_str());
    };

    runtime_md_state_pid_must_be_the_hosts, ALL, |t: &mut Trial| {
        t.script("echo $$; exec sleep 100");
        t.run();
        let pid = t.state()["pid"].as_u64().unwrap();
        let line = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ids = line.lines().find(|l| l.starts_with("NSpid:")).unwrap().to_owned();
        assert_eq!(ids.split_whitespace().nth(1), Some(pid.to_string().as_str()));
        assert_eq!(ids.split_whitespace().nth(2), Some("1"), "its own namespace");
    };

    runtime_md_state_status_must_follow_the_container, ALL, |t: &mut Trial| {
        t.create().ok();
        let created = t.state();
        assert_eq!(created["status"], "created");
        t.start().ok();
        let running = t.state();
        assert_eq!(running["status"], "running");
        assert_eq!(running["pid"], created["pid"]);
        t.kill("KILL").ok();
        let stopped = t.await_status("stopped");
        assert_eq!(stopped["pid"], 0, "there is no process any more");
    };

    runtime_md_query_state_must_error_without_an_id, ALL, |t: &mut Trial| {
        t.call(&["state"]).failed();
    };

    runtime_md_query_state_must_error_on_an_unknown_id, ALL, |t: &mut Trial| {
        let error = t.call(&["state", &t.id]).failed();
        assert!(error.contains("does not exist"), "{error}");
    };

    runtime_md_create_must_error_without_an_id, ALL, |t: &mut Trial| {
        t.write();
        t.call(&["create", "--bundle", &t.bundle()]).failed();
        assert!(!t.exists());
    };

    runtime_md_create_must_error_without_a_bundle, ALL, |t: &mut Trial| {
        let missing = t.scratch.path("missing");
        t.call(&["create", "--bundle", &missing, &t.id]).failed();
        let empty = t.scratch.dir("empty");
        t.call(&["create", "--bundle", &empty, &t.id]).failed();
        assert!(!t.exists());
    };

    runtime_md_create_must_error_on_a_used_id, ALL, |t: &mut Trial| {
        t.create().ok();
        let before = t.state();
        let error = t.create().failed();
        assert!(error.contains("exist"), "{error}");
        assert_eq!(t.state(), before, "the first one is as it was");
        t.start().ok();
        t.create().failed();
        assert_eq!(t.state()["status"], "running");
    };

    runtime_md_create_must_error_on_an_invalid_id, ALL, |t: &mut Trial| {
        t.write();
        for id in ["", ".", "..", "a/b", "../escape", "/absolute", "a b", "a\nb", "a:b"] {
            let refused = t.call(&["create", "--bundle", &t.bundle(), id]);
            refused.failed();
            assert!(!std::path::Path::new(&t.scratch.path("escape")).exists());
        }
    };

    runtime_md_create_must_error_on_a_config_that_is_none, ALL, |t: &mut Trial| {
        for text in ["", "{", "[]", "\"ociVersion\""] {
            t.scratch.file("bundle/config.json", text);
            t.call(&["create", "--bundle", &t.bundle(), &t.id]).failed();
            assert!(!t.exists(), "{text}");
        }
    };

    runtime_md_create_must_not_run_the_program, ALL, |t: &mut Trial| {
        t.script("touch /share/ran; sleep 100");
        t.create().ok();
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(fs::metadata(t.share("ran")).is_err());
        t.start().ok();
        await_that("start runs it", || fs::metadata(t.share("ran")).is_ok());
    };

    runtime_md_lifecycle_changes_of_the_config_must_not_matter, ALL, |t: &mut Trial| {
        t.script("echo before; hostname");
        t.create().ok();
        t.script("echo after");
        t.config["hostname"] = json!("changed");
        t.write();
        t.start().ok();
        t.await_status("stopped");
        assert_eq!(t.output(), "before\nspec\n");
    };

    runtime_md_errors_must_leave_nothing_of_a_failed_create, ALL, |t: &mut Trial| {
        let good = t.config.clone();
        let cgroup = format!("/spec/{}", t.id);
        for (field, value) in [
            ("root/path", json!("/no/such/root")),
            ("process/args", json!(["/no/such/program"])),
            ("process/args", json!([])),
            ("linux/namespaces/0/type", json!("nonsense")),
        ] {
            t.config = good.clone();
            t.config["linux"]["cgroupsPath"] = json!(cgroup);
            *t.config.pointer_mut(&format!("/{field}")).unwrap() = value.clone();
            t.create().failed();
            assert!(!t.exists(), "{field} = {value}");
            assert_eq!(cgroups_named(&t.id), Vec::<String>::new(), "{field} = {value}");
        }
        t.config = good;
        t.create().ok();
    };

    runtime_md_start_must_error_without_an_id, ALL, |t: &mut Trial| {
        t.call(&["start"]).failed();
    };

    runtime_md_start_must_error_on_an_unknown_id, ALL, |t: &mut Trial| {
        let error = t.start().failed();
        assert!(error.contains("does not exist"), "{error}");
    };

    runtime_md_start_must_error_on_a_started_container, ALL, |t: &mut Trial| {
        t.script("echo once >>/share/runs; exec sleep 100");
        t.run();
        let before = t.state();
        t.start().failed();
        assert_eq!(t.state(), before, "nothing happened to it");
        t.kill("KILL").ok();
        t.await_status("stopped");
        t.start().failed();
        assert_eq!(t.shared("runs"), "once\n");
    };

    runtime_md_start_must_run_the_program, ALL, |t: &mut Trial| {
        assert_eq!(t.output_of("echo it runs"), "it runs\n");
    };

    runtime_md_kill_must_error_without_an_id, ALL, |t: &mut Trial| {
        t.call(&["kill"]).failed();
    };

    runtime_md_kill_must_error_on_an_unknown_id, ALL, |t: &mut Trial| {
        let error = t.kill("TERM").failed();
        assert!(error.contains("does not exist"), "{error}");
    };

    runtime_md_kill_must_error_on_an_unknown_signal, ALL, |t: &mut Trial| {
        t.run();
        for signal in ["SIGNOPE", "1000", "-1"] {
            t.kill(signal).failed();
        }
        assert_eq!(t.state()["status"], "running");
    };

    runtime_md_kill_must_error_on_a_stopped_container, ALL, |t: &mut Trial| {
        t.script("true");
        t.run();
        let before = t.await_status("stopped");
        let error = t.kill("KILL").failed();
        assert!(error.contains("not running"), "{error}");
        assert_eq!(t.state(), before);
    };

    runtime_md_kill_must_send_the_signal_that_was_named, ALL, |t: &mut Trial| {
        let script = "for s in HUP USR1 USR2 TERM; do trap \"echo $s >>/share/got\" $s; done; \
            echo ready >/share/ready; while :; do sleep 0.02; done";
        t.script(script);
        t.run();
        await_file(t, "ready", "ready");
        let mut expected = String::new();
        for (word, name) in [("HUP", "HUP"), ("SIGUSR1", "USR1"), ("12", "USR2"), ("sigterm", "TERM")] {
            t.kill(word).ok();
            expected += &format!("{name}\n");
            await_file(t, "got", expected.trim_end());
        }
        assert_eq!(t.state()["status"], "running", "a signal that is caught ends nothing");
    };

    runtime_md_kill_must_reach_a_created_container, ALL, |t: &mut Trial| {
        t.create().ok();
        t.kill("KILL").ok();
        t.await_status("stopped");
        t.start().failed();
    };

    runtime_md_delete_must_error_without_an_id, ALL, |t: &mut Trial| {
        t.call(&["delete"]).failed();
    };

    runtime_md_delete_must_error_on_an_unknown_id, ALL, |t: &mut Trial| {
        let error = t.delete().failed();
        assert!(error.contains("does not exist"), "{error}");
    };

    runtime_md_delete_must_error_on_a_running_container, ALL, |t: &mut Trial| {
        t.run();
        let before = t.state();
        let error = t.delete().failed();
        assert!(error.contains("is not stopped: running"), "{error}");
        assert_eq!(t.state(), before, "nothing happened to it");
    };

    runtime_md_delete_must_error_unless_stopped, ALL, |t: &mut Trial| {
        t.create().ok();
        t.delete().failed();
    };

    runtime_md_delete_must_undo_create_and_nothing_else, ALL, |t: &mut Trial| {
        let cgroup = format!("/spec/{}", t.id);
        t.config["linux"]["cgroupsPath"] = json!(cgroup);
        t.run();
        let pid = t.state()["pid"].as_u64().unwrap();
        assert!(!cgroups_named(&t.id).is_empty());
        t.kill("KILL").ok();
        t.await_status("stopped");
        fs::write(t.share("kept"), "").unwrap();
        t.delete().ok();
        assert!(!t.exists());
        assert_eq!(cgroups_named(&t.id), Vec::<String>::new());
        assert!(fs::metadata(format!("/proc/{pid}")).is_err());
        let left = fs::read_dir(t.scratch.path("root")).into_iter().flatten().count();
        assert_eq!(left, 0, "files of the container in --root");
        for kept in [t.share("kept"), format!("{}/config.json", t.bundle())] {
            assert!(fs::metadata(&kept).is_ok(), "{kept} was not the runtime's");
        }
    };

    // Under a policy, another container's namespaces are never joined.
    runtime_md_delete_must_leave_a_joined_namespace, PLAIN, |t: &mut Trial| {
        let mut guest = Trial::new(t.runtime);
        t.run();
        let namespace = format!("/proc/{}/ns/net", t.state()["pid"]);
        guest.config["linux"]["namespaces"][4]["path"] = json!(namespace);
        guest.run();
        let of_guest = format!("/proc/{}/ns/net", guest.state()["pid"]);
        let inode = |path: &str| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&of_guest), inode(&namespace), "it was joined");
        guest.kill("KILL").ok();
        guest.await_status("stopped");
        guest.delete().ok();
        assert_eq!(t.state()["status"], "running");
        assert_eq!(t.call(&["exec", &t.id, "cat", "/proc/net/dev"]).ok().lines().count(), 3);
    };

    runtime_md_delete_must_free_the_id, ALL, |t: &mut Trial| {
        for round in ["first", "second"] {
            assert_eq!(t.output_of(&format!("echo {round}")), format!("{round}\n"));
            t.delete().ok();
            assert!(!t.exists());
        }
    };
}

/// Waits until a shared file has this content.
#[track_caller]
fn await_file(t: &Trial, name: &str, content: &str) {
    awaited(name, || {
        let found = fs::read_to_string(t.share(name)).unwrap_or_default();
        match found.trim_end() == content {
            true => Ok(()),
            false => Err(format!("{found:?}, not {content:?}")),
        }
    });
}

/// Cgroups of this name in any hierarchy.
fn cgroups_named(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().ends_with(name) {
                found.push(entry.path().display().to_string());
            }
            directories.push(entry.path());
        }
    }
    found
}
