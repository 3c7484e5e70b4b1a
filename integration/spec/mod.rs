//! The runtime specification under `unconfined`, beyond its MUSTs: the same bundle must give the same output on
//! agentbox and on Debian's runc. Features that runc 1.1 lacks are compared with an expected output.
//!
//! Each case fails without our correction of libcontainer.

mod mounts;
mod options;
mod process;
mod resources;

use std::path::Path;

use serde_json::{Value, json};

use crate::command::run;
use crate::lifecycle::trial::{Runtime, Trial};

/// Gives the container a writable root file system of its own.
fn own_root(t: &mut Trial) -> String {
    let root = t.scratch.path("rootfs");
    let shared = t.config["root"]["path"].as_str().unwrap().to_owned();
    run("cp", &["-a", &shared, &root]).ok();
    t.config["root"] = json!({ "path": root, "readonly": false });
    root
}

/// Adds a mount.
fn mount(t: &mut Trial, destination: &str, source: &str, kind: &str, options: &[&str]) {
    let mount = json!({
        "destination": destination, "source": source, "type": kind, "options": options,
    });
    t.config["mounts"].as_array_mut().unwrap().push(mount);
}

/// Adds a namespace.
fn namespace(t: &mut Trial, kind: &str) {
    let all = t.config["linux"]["namespaces"].as_array_mut().unwrap();
    all.push(json!({ "type": kind }));
}

/// Runs a container as far as possible. Returns its output, or `refused`.
fn outcome(t: &mut Trial, script: &str) -> String {
    t.script(script);
    let created = t.create();
    if created.code != 0 {
        return "refused".to_owned();
    }
    t.start().ok();
    t.await_status("stopped");
    neutral(t, &t.output())
}

/// Without paths of this container.
fn neutral(t: &Trial, text: &str) -> String {
    text.replace(&t.scratch.path(""), "SCRATCH/")
        .replace(&t.id, "ID")
}

/// The outcome of a case on a runtime.
fn on(runtime: Runtime, case: impl Fn(&mut Trial) -> String) -> String {
    let mut trial = Trial::new(runtime);
    case(&mut trial)
}

/// The outcome, which must be the same on both.
#[track_caller]
fn same(case: impl Fn(&mut Trial) -> String) -> String {
    let runc = on(Runtime::Runc, &case);
    let ours = on(Runtime::Unconfined, &case);
    assert_eq!(ours, runc, "agentbox on the left, runc on the right");
    ours
}

/// A file system in memory on the rig, unmounted with the value.
struct HostMount(String);

impl HostMount {
    fn new(path: &str, kind: &str) -> Self {
        std::fs::create_dir_all(path).unwrap();
        run("mount", &["-t", "tmpfs", "tmpfs", path]).ok();
        run("mount", &[kind, path]).ok();
        Self(path.to_owned())
    }
}

impl Drop for HostMount {
    fn drop(&mut self) {
        let gone = run("umount", &["--lazy", &self.0]);
        if !std::thread::panicking() {
            gone.ok();
        }
    }
}

/// A user namespace with these mappings.
fn user_namespace(t: &mut Trial, mappings: &[(u32, u32, u32)]) {
    namespace(t, "user");
    let all: Vec<Value> = mappings
        .iter()
        .map(|(inside, outside, size)| {
            json!({ "containerID": inside, "hostID": outside, "size": size })
        })
        .collect();
    t.config["linux"]["uidMappings"] = json!(all);
    t.config["linux"]["gidMappings"] = json!(all);
    // The container's root must be able to reach its root file system.
    let mut dir = Path::new(&t.scratch.path("x")).to_owned();
    while dir.pop() && dir != Path::new("/") {
        run("chmod", &["a+rx", dir.to_str().unwrap()]).ok();
    }
}
