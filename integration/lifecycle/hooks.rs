//! config.md "POSIX-platform Hooks" and the steps of runtime.md "Lifecycle" that run them.
//!
//! The hooks are scripts that write into the container's directory /share.

use serde_json::{Value, json};

use super::trial::Trial;
use super::{ALL, PLAIN, cases};

const MOMENTS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// A script as a hook. The program and its directory have the same paths in both namespaces.
fn hook(script: &str) -> Value {
    json!({ "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"] })
}

/// The path of the shared directory for hooks of this moment.
fn place(t: &Trial, moment: &str) -> String {
    if moment == "startContainer" {
        "/share".to_owned()
    } else {
        t.share("")
    }
}

/// One hook for each moment. `script` gets the shared directory and the moment's name.
fn hooks(t: &Trial, script: impl Fn(&str, &str) -> String) -> Value {
    let each = MOMENTS.map(|moment| {
        let script = script(&place(t, moment), moment);
        (moment.to_owned(), json!([hook(&script)]))
    });
    Value::Object(each.into_iter().collect())
}

/// The input of each hook.
#[track_caller]
fn told(t: &Trial, moment: &str) -> Value {
    let text = t.shared(moment);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{moment}: {e}: {text}"))
}

/// A whole life in which each hook stores its input.
#[track_caller]
fn live(t: &mut Trial) -> Value {
    t.config["hooks"] = hooks(t, |share, moment| format!("cat >{share}/{moment}"));
    t.run();
    let running = t.state();
    t.kill("KILL").ok();
    t.await_status("stopped");
    t.delete().ok();
    running
}

cases! {
    config_md_hooks_must_run_in_order_and_at_their_moment, ALL, |t: &mut Trial| {
        let order = |share: &str, text: &str| format!("echo {text} >>{share}/order");
        t.config["hooks"] = hooks(t, order);
        for moment in MOMENTS {
            let second = hook(&order(&place(t, moment), &format!("{moment}-2")));
            t.config["hooks"][moment].as_array_mut().unwrap().push(second);
        }
        t.script("echo program >>/share/order; exec sleep 100");
        let both = |names: &[&str]| names.iter().map(|n| format!("{n}\n{n}-2\n")).collect::<String>();
        t.create().ok();
        let mut expected = both(&MOMENTS[..3]);
        assert_eq!(t.shared("order"), expected, "create");
        t.start().ok();
        expected += &both(&["startContainer"]);
        let order = t.shared("order");
        assert!(order.starts_with(&expected), "start: {order}");
        // The program may write at any time.
        let rest = order[expected.len()..].replace("program\n", "");
        assert_eq!(rest, both(&["poststart"]), "start returned before: {order}");
        t.kill("KILL").ok();
        t.await_status("stopped");
        let before = t.shared("order");
        assert!(!before.contains("poststop"), "{before}");
        t.delete().ok();
        assert_eq!(t.shared("order"), before + &both(&["poststop"]), "delete");
    };

    // By then the init process has executed its program, so its name has changed.
    config_md_poststart_must_run_after_the_program_began, ALL, |t: &mut Trial| {
        let script = format!("read line; pid=${{line##*'\"pid\":'}}; cat /proc/${{pid%%[,\\}}]*}}/cmdline >{}/name", t.share(""));
        t.config["hooks"] = json!({ "poststart": [hook(&script)] });
        t.run();
        assert_eq!(t.shared("name").replace('\0', " "), "sleep 100 ");
    };

    config_md_hooks_must_be_told_the_state, ALL, |t: &mut Trial| {
        let state = live(t);
        for moment in MOMENTS {
            let told = told(t, moment);
            for field in ["id", "bundle", "annotations"] {
                assert_eq!(told[field], state[field], "{moment}: {field}");
            }
            assert!(told["ociVersion"].as_str().unwrap().starts_with("1."), "{moment}: {told}");
        }
    };

    config_md_hooks_must_be_told_the_status_of_their_moment, ALL, |t: &mut Trial| {
        live(t);
        for (moment, status) in [
            ("prestart", "creating"),
            ("createRuntime", "creating"),
            ("createContainer", "creating"),
            ("startContainer", "created"),
            ("poststart", "running"),
            ("poststop", "stopped"),
        ] {
            assert_eq!(told(t, moment)["status"], status, "{moment}");
        }
    };

    config_md_hooks_must_be_told_the_pid_of_their_namespace, ALL, |t: &mut Trial| {
        let state = live(t);
        for moment in ["prestart", "createRuntime", "poststart"] {
            assert_eq!(told(t, moment)["pid"], state["pid"], "{moment}");
        }
        for moment in ["createContainer", "startContainer"] {
            assert_eq!(told(t, moment)["pid"], 1, "{moment}");
        }
    };

    config_md_hooks_must_run_in_their_namespace, ALL, |t: &mut Trial| {
        t.config["hooks"] = hooks(t, |share, moment| format!("readlink /proc/self/ns/uts >{share}/{moment}"));
        let own = std::fs::read_link("/proc/self/ns/uts").unwrap();
        t.run();
        t.call(&["delete", "--force", &t.id]).ok();
        for moment in MOMENTS {
            let inside = matches!(moment, "createContainer" | "startContainer");
            let seen = t.shared(moment);
            assert_eq!(seen.trim_end() != own.to_str().unwrap(), inside, "{moment}: {seen}");
        }
    };

    // The root is not entered yet, so that the container sees their mounts there.
    config_md_create_runtime_must_run_before_pivot_root, ALL, |t: &mut Trial| {
        let script = |share: &str, moment: &str| format!("[ -e {share} ] && touch {share}/{moment}");
        t.config["hooks"] = hooks(t, script);
        t.create().ok();
        let root = t.config["root"]["path"].as_str().unwrap().to_owned();
        t.shared("createContainer");
        t.call(&["delete", "--force", &t.id]).ok();
        let look = format!(
            "read line; pid=${{line##*'\"pid\":'}}; pid=${{pid%%[,\\}}]*}}; ls -d /proc/$pid/root{root}/bin >{}/seen",
            t.share("")
        );
        t.config["hooks"] = json!({ "prestart": [hook(&look)], "createRuntime": [hook(&look)] });
        t.create().ok();
        assert!(t.shared("seen").contains(&root));
    };

    config_md_hooks_must_get_their_arguments, ALL, |t: &mut Trial| {
        let script = format!("printf '%s|' \"$0\" \"$@\" >{}/arguments", t.share(""));
        t.config["hooks"] = json!({ "createRuntime": [
            { "path": "/bin/sh", "args": ["another name", "-c", script, "zero", "one two", ""] },
        ] });
        t.create().ok();
        assert_eq!(t.shared("arguments"), "zero|one two||");
        t.call(&["delete", "--force", &t.id]).ok();
        // argv[0] is the engine's: busybox depends on it.
        let output = format!("{}/name", t.share(""));
        t.config["hooks"] = json!({ "createRuntime": [
            { "path": "/bin/busybox", "args": ["sh", "-c", format!("echo by its name >{output}")] },
        ] });
        t.create().ok();
        assert_eq!(t.shared("name"), "by its name\n");
    };

    config_md_hooks_must_get_their_environment, ALL, |t: &mut Trial| {
        t.config["hooks"] = hooks(t, |share, moment| format!("env >{share}/{moment}"));
        for moment in MOMENTS {
            t.config["hooks"][moment][0]["env"] = json!(["PATH=/usr/bin:/bin", "KEY=a=b c"]);
        }
        t.run();
        t.call(&["delete", "--force", &t.id]).ok();
        for moment in MOMENTS {
            let seen = t.shared(moment);
            assert!(seen.contains("KEY=a=b c\n"), "{moment}: {seen}");
            assert!(!seen.contains("TERM=") && !seen.contains("INHERITED"), "{moment}: {seen}");
        }
    };

    // The specification does not say it, but runc's and crun's own hooks rely on it.
    config_md_hooks_without_an_environment_get_the_runtimes, PLAIN, |t: &mut Trial| {
        let outside = ["prestart", "createRuntime", "poststart", "poststop"];
        t.config["hooks"] = hooks(t, |share, moment| format!("/usr/bin/env >{share}/{moment}"));
        t.config["hooks"].as_object_mut().unwrap().retain(|moment, _| outside.contains(&moment.as_str()));
        for moment in outside {
            t.config["hooks"][moment][0].as_object_mut().unwrap().remove("env");
        }
        t.run();
        t.call(&["delete", "--force", &t.id]).ok();
        for moment in outside {
            assert!(t.shared(moment).contains("INHERITED=by mistake\n"), "{moment}");
        }
    };

    // Under a policy, no program gets the engine's environment unless it is requested.
    config_md_hooks_must_inherit_nothing, &[super::Runtime::Standard], |t: &mut Trial| {
        t.config["hooks"] = hooks(t, |share, moment| format!("/usr/bin/env >{share}/{moment} || /bin/env >{share}/{moment}"));
        for moment in MOMENTS {
            t.config["hooks"][moment][0].as_object_mut().unwrap().remove("env");
        }
        t.run();
        t.call(&["delete", "--force", &t.id]).ok();
        for moment in MOMENTS {
            let seen = t.shared(moment);
            assert!(!seen.contains("INHERITED"), "{moment}: {seen}");
            // runc does this, and users rely on it.
            assert_eq!(seen.contains("TERM=dumb"), moment == "startContainer", "{moment}: {seen}");
        }
    };

    config_md_hooks_timeout_must_end_them, ALL, |t: &mut Trial| {
        for moment in ["prestart", "createRuntime", "createContainer"] {
            let mut slow = hook("exec sleep 60");
            slow["timeout"] = json!(1);
            t.config["hooks"] = json!({ moment: [slow] });
            let start = std::time::Instant::now();
            let error = t.create().failed();
            assert!(start.elapsed().as_secs() < 8, "{moment}: {:?}", start.elapsed());
            assert!(error.contains("timeout"), "{moment}: {error}");
            assert!(!t.exists());
        }
    };

    config_md_hooks_timeout_must_be_greater_than_zero, ALL, |t: &mut Trial| {
        for timeout in [0, -1] {
            t.config["hooks"] = json!({ "poststop": [{ "path": "/bin/sh", "timeout": timeout }] });
            t.create().failed();
            assert!(!t.exists());
        }
    };

    config_md_hooks_path_must_be_absolute, ALL, |t: &mut Trial| {
        t.config["hooks"] = json!({ "poststop": [{ "path": "bin/sh" }] });
        t.create().failed();
        assert!(!t.exists());
    };

    runtime_md_lifecycle_a_failing_create_hook_must_undo_create, ALL, |t: &mut Trial| {
        for moment in &MOMENTS[..3] {
            let share = t.share("");
            t.config["hooks"] = json!({
                *moment: [hook("true"), hook("echo its words >&2; exit 3"), hook(&format!("touch {share}/later"))],
                "poststop": [hook(&format!("cat >{share}/stopped-{moment}"))],
            });
            let error = t.create().failed();
            assert!(error.contains("hook #1"), "{error}");
            assert!(error.contains("its words") && error.contains("exit status 3"), "{error}");
            assert!(!t.exists(), "{moment}");
            assert!(std::fs::metadata(t.share("later")).is_err(), "{moment}: the rest must not run");
            let told = told(t, &format!("stopped-{moment}"));
            assert_eq!(told["id"], t.id.as_str(), "poststop runs");
        }
    };

    runtime_md_lifecycle_a_hook_that_is_not_there_must_fail, ALL, |t: &mut Trial| {
        t.config["hooks"] = json!({ "prestart": [{ "path": "/bin/sh/no" }] });
        if t.runtime != super::Runtime::Standard {
            let error = t.create().failed();
            assert!(error.contains("not a directory"), "{error}");
        }
        t.config["hooks"] = json!({ "createRuntime": [{ "path": "/no/such/hook" }] });
        t.create().failed();
        assert!(!t.exists());
    };

    runtime_md_lifecycle_a_failing_start_container_hook_must_fail_start, ALL, |t: &mut Trial| {
        t.config["hooks"] = json!({ "startContainer": [hook("echo inside >&2; exit 4")] });
        t.script("touch /share/ran");
        t.create().ok();
        let error = t.start().failed();
        assert!(error.contains("hook #0") && error.contains("inside"), "{error}");
        assert!(std::fs::metadata(t.share("ran")).is_err());
    };

    runtime_md_lifecycle_a_failing_start_hook_must_destroy, ALL, |t: &mut Trial| {
        for moment in ["startContainer", "poststart"] {
            let share = t.share("");
            t.config["hooks"] = json!({
                moment: [hook("exit 1")],
                "poststop": [hook(&format!("cat >{share}/stopped-{moment}"))],
            });
            t.create().ok();
            let pid = t.state()["pid"].as_u64().unwrap();
            t.start().failed();
            assert!(!t.exists(), "{moment}");
            assert!(std::fs::metadata(format!("/proc/{pid}")).is_err(), "{moment}");
            told(t, &format!("stopped-{moment}"));
        }
    };

    runtime_md_lifecycle_a_failing_poststop_hook_must_be_a_warning, ALL, |t: &mut Trial| {
        let share = t.share("");
        t.config["hooks"] = json!({ "poststop": [hook("exit 1"), hook(&format!("touch {share}/second"))] });
        t.script("true");
        t.run();
        t.await_status("stopped");
        let deleted = t.delete();
        assert_eq!(deleted.code, 0, "{deleted}");
        assert!(deleted.stderr.contains("warning") && deleted.stderr.contains("hook #0"), "{deleted}");
        assert!(!t.exists());
        t.shared("second");
    };

    runtime_md_state_must_be_creating_while_hooks_of_create_run, PLAIN, |t: &mut Trial| {
        let root = t.scratch.path("root");
        let program = match t.runtime {
            super::Runtime::Runc => "runc".to_owned(),
            _ => std::env::var("AGENTBOX_BIN").unwrap(),
        };
        let look = format!("{program} --root {root} state {} >{}/seen 2>&1", t.id, t.share(""));
        let mut looking = hook(&look);
        looking["env"] = json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        t.config["hooks"] = json!({ "createRuntime": [looking] });
        t.create().ok();
        let seen: Value = serde_json::from_str(&t.shared("seen")).unwrap();
        assert_eq!(seen["status"], "creating");
    };

    config_md_hooks_what_a_hook_leaves_in_the_background_must_not_hold_it, PLAIN, |t: &mut Trial| {
        let start = std::time::Instant::now();
        t.config["hooks"] = json!({ "createRuntime": [hook("sleep 5 &")] });
        t.create().ok();
        assert!(start.elapsed().as_secs() < 4, "{:?}", start.elapsed());
    };
}
