//! `verify ID` in a running container: it disturbs nothing, and gives the container nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Entries, entries};
use crate::command::run;
use crate::direct::{Node, program};

/// A running container, deleted when dropped.
pub(super) struct Running<'a> {
    pub(super) node: &'a Node,
    pub(super) id: String,
}

impl<'a> Running<'a> {
    pub(super) fn start(
        node: &'a Node,
        name: &str,
        policy: &str,
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let id = format!("verified-{}-{name}", std::process::id());
        let mut config = node.config(&["sleep", "300"]);
        change(&mut config);
        let bundle = node.bundle(&id, &config);
        let options = ["--policy", policy, "run", "--detach", "--bundle"];
        node.call(&[&options[..], &[&bundle, &id]].concat()).ok();
        Self { node, id }
    }

    /// `verify ID --json`: its exit status, entries and report.
    pub(super) fn verify(&self) -> (i32, Entries, Value) {
        let finished = self.node.call(&["verify", &self.id, "--json"]);
        let report = serde_json::from_str(&finished.stdout);
        let report: Value = report.unwrap_or_else(|e| panic!("{e}: {finished}"));
        (finished.code, entries(&report), report)
    }

    pub(super) fn exec(&self, script: &str) -> String {
        self.node.call(&["exec", &self.id, "sh", "-c", script]).ok()
    }

    /// The init process's pid on the node.
    pub(super) fn pid(&self) -> String {
        let state = self.node.call(&["state", &self.id]).ok();
        let state: Value = serde_json::from_str(&state).unwrap();
        state["pid"].to_string()
    }

    fn processes(&self) -> usize {
        let listed = self.node.call(&["ps", "--format", "json", &self.id]).ok();
        serde_json::from_str::<Vec<i32>>(&listed).unwrap().len()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let gone = self.node.call(&["delete", "--force", &self.id]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// Finds files that are newer than an existing one.
const FILES: &str = "find / \\( -path /proc -o -path /sys \\) -prune -o -newer /tmp/before -type f -print 2>/dev/null; true";

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_of_a_running_container_holds_for_root_and_others_and_leaves_nothing() {
    let node = Node::new();
    for (policy, uid) in [
        ("strict", 0),
        ("standard", 0),
        ("standard", 1000),
        ("permissive", 0),
    ] {
        let name = format!("{policy}-{uid}");
        let container = Running::start(&node, &name, policy, |config| {
            config["process"]["user"] = json!({"uid": uid, "gid": uid});
        });
        container.exec("touch /tmp/before; sleep 1.1");
        let (code, entries, report) = container.verify();
        assert_eq!(code, 0, "{name}: {report:#}");
        for id in [
            "capabilities",
            "io-uring",
            "interfaces",
            "hidden-paths",
            "descriptors",
        ] {
            assert_eq!(
                entries[&("exec".to_owned(), id.to_owned())].0,
                "held",
                "{name}: {id}"
            );
        }
        assert_eq!(container.processes(), 1, "{name}");
        assert_eq!(container.exec(FILES).trim(), "", "{name}");
        // The search finds a new file.
        let control = container.exec(&format!("touch /tmp/after; {FILES}"));
        assert_eq!(control.trim(), "/tmp/after", "{name}");
    }
}

/// The directory of a container's pids limit, by the end of its name.
fn pids_of(dir: &Path, id: &str) -> Option<PathBuf> {
    directory_with("pids.max", dir, id)
}

/// The container's directory in a controller's hierarchy of cgroup v1.
fn place_of(controller: &str, id: &str) -> Option<PathBuf> {
    let dir = Path::new("/sys/fs/cgroup").join(controller);
    directory_with(&format!("{controller}.list"), &dir, id)
}

fn directory_with(file: &str, dir: &Path, id: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(dir)
        .ok()?
        .flatten()
        .filter(|e| e.path().is_dir())
    {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        // The sidecar's is beside it.
        let is_its = name.ends_with(id) && !name.contains("sidecar");
        if is_its && path.join(file).exists() {
            return Some(path);
        }
        if let Some(found) = directory_with(file, &path, id) {
            return Some(found);
        }
    }
    None
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_a_limit_that_was_taken_away() {
    let node = Node::new();
    let container = Running::start(&node, "limit", "standard", |_| ());
    let limit = ("node".to_owned(), "limit-of-processes".to_owned());
    let (code, entries, report) = container.verify();
    assert_eq!(
        (code, entries[&limit].0.as_str()),
        (0, "held"),
        "{report:#}"
    );
    let cgroup = pids_of(Path::new("/sys/fs/cgroup"), &container.id).unwrap();
    fs::write(cgroup.join("pids.max"), "max").unwrap();
    let (code, entries, report) = container.verify();
    assert_eq!(
        (code, entries[&limit].0.as_str()),
        (1, "not-held"),
        "{report:#}"
    );
}

/// Detaches the device program from a container's cgroup v2.
fn detach_devices(id: &str) {
    use std::os::fd::AsFd;
    let path = directory_with("cgroup.procs", Path::new("/sys/fs/cgroup"), id).unwrap();
    let cgroup = fs::File::open(path).unwrap();
    let programs = agentbox::sys::bpf::device_programs(cgroup.as_fd()).unwrap();
    assert!(!programs.is_empty());
    for program in programs {
        agentbox::sys::bpf::detach_device_program(cgroup.as_fd(), program.as_fd()).unwrap();
    }
}

/// Changes by root on the node, or by a broken engine, to a running container, which only the node's probes find.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_device_rules_cgroups_and_mounts_that_were_changed() {
    let node = Node::new();
    let verdict = |container: &Running<'_>, id: &str| {
        let (code, entries, _) = container.verify();
        let (verdict, found) = entries[&("node".to_owned(), id.to_owned())].clone();
        (code, verdict, found)
    };
    let held = (0, "held".to_owned(), "held".to_owned());
    let gone = (1, "not-held".to_owned(), "not-held".to_owned());

    let container = Running::start(&node, "devices", "standard", |_| ());
    assert_eq!(verdict(&container, "device-rules"), held);
    match place_of("devices", &container.id) {
        Some(cgroup) => fs::write(cgroup.join("devices.allow"), "c 1:11 r").unwrap(),
        None => detach_devices(&container.id),
    }
    assert_eq!(verdict(&container, "device-rules"), gone);

    let container = Running::start(&node, "moved", "standard", |_| ());
    assert_eq!(verdict(&container, "own-cgroup"), held);
    let state: Value = serde_json::from_str(&node.call(&["state", &container.id]).ok()).unwrap();
    let pid = state["pid"].to_string();
    let above = pids_of(Path::new("/sys/fs/cgroup"), &container.id).unwrap();
    let above = above.parent().unwrap().join("cgroup.procs");
    fs::write(above, &pid).unwrap();
    assert_eq!(verdict(&container, "own-cgroup"), gone);

    for kind in ["proc", "sysfs"] {
        let container = Running::start(&node, kind, "standard", |_| ());
        assert_eq!(verdict(&container, "kernel-file-systems"), held);
        let state: Value =
            serde_json::from_str(&node.call(&["state", &container.id]).ok()).unwrap();
        let pid = state["pid"].to_string();
        let enter = [
            "--target", &pid, "--mount", "--pid", "--net", "--root", "--wd",
        ];
        let mount = ["/bin/mount", "-t", kind, kind, "/tmp"];
        run("nsenter", &[&enter[..], &mount].concat()).ok();
        assert_eq!(verdict(&container, "kernel-file-systems"), gone, "{kind}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_of_an_unconfined_container_says_what_it_saw() {
    let node = Node::new();
    let container = Running::start(&node, "unconfined", "unconfined", |_| ());
    let (code, entries, report) = container.verify();
    assert_eq!(
        (code, &report["promised"]),
        (1, &json!(false)),
        "{report:#}"
    );
    for (by, id) in [
        ("exec", "seccomp-mode"),
        ("exec", "io-uring"),
        ("node", "as-the-node-sees-it"),
    ] {
        let entry = &entries[&(by.to_owned(), id.to_owned())];
        assert_eq!(
            (entry.0.as_str(), entry.1.as_str()),
            ("not-promised", "not-held"),
            "{id}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_of_a_paused_or_ended_container_is_no_answer() {
    let node = Node::new();
    let container = Running::start(&node, "paused", "standard", |_| ());
    node.call(&["pause", &container.id]).ok();
    let paused = node.call(&["verify", &container.id]);
    assert_eq!(paused.code, 2, "{paused}");
    node.call(&["resume", &container.id]).ok();
    node.call(&["kill", &container.id, "KILL"]).ok();
    let ended = node.call(&["verify", &container.id]);
    assert_eq!(ended.code, 2, "{ended}");
}

/// F09: the process inside is agentbox itself, and every process of the container looks for a way to its file.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f09_verify_gives_no_way_to_the_runtimes_file() {
    let node = Node::new();
    let container = Running::start(&node, "thief", "permissive", |config| {
        // It never opens its own program, which is one of the image.
        let steal = "while :; do for exe in /proc/[0-9]*/exe; do n=$(readlink $exe) || continue; \
                     case $n in */agentbox*) echo $n >>/tmp/seen; (: >>$exe) 2>/dev/null && echo $n >>/tmp/won;; esac; \
                     done; done";
        config["process"]["args"] = json!(["sh", "-c", steal]);
    });
    let before = fs::read(program()).unwrap();
    for _ in 0..5 {
        let finished = node.call(&["verify", &container.id]);
        assert_eq!(finished.code, 0, "{finished}");
    }
    assert_eq!(container.exec("cat /tmp/won 2>/dev/null; true").trim(), "");
    assert!(
        before == fs::read(program()).unwrap(),
        "the program was changed"
    );
}

/// The inside process's memory is out of reach from its first instruction. A process of the same user, which waits for
/// it, can write to any other exec process, but not to this one.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_cannot_be_made_to_say_what_is_not_so_by_a_process_beside_it() {
    let node = Node::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/verify/thief.c");
    let config = node.config(&[]);
    let rootfs = config["root"]["path"].as_str().unwrap();
    let thief = format!("verify-thief-{}", std::process::id());
    run(
        "gcc",
        &[
            "-static",
            "-O1",
            "-o",
            &format!("{rootfs}/bin/{thief}"),
            source,
        ],
    )
    .ok();
    for uid in [0, 1000] {
        let name = format!("thief-{uid}");
        let container = Running::start(&node, &name, "standard", |config| {
            config["process"]["user"] = json!({"uid": uid, "gid": uid});
            config["process"]["args"] = json!([format!("/bin/{thief}"), "/tmp/won"]);
        });
        for _ in 0..4 {
            let (code, _, report) = container.verify();
            assert_eq!(code, 0, "{report:#}");
        }
        // The control: a program that does not hide, after the time limit of the last attempt.
        container.exec("sleep 1.5");
        container.exec("sleep 0.5; sleep 0.5");
        let won = container.exec("cat /tmp/won; true");
        assert!(won.contains("sleep 0.5"), "uid {uid}: {won:?}");
        assert!(!won.contains("verify-inside"), "uid {uid}: {won:?}");
    }
}
