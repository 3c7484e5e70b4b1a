//! agentbox called by hand, without an engine: bad input, the life of a container, kills during a creation, `wrap`,
//! `explain`, and the README's examples.
//!
//! In a rig too, because containers need mounts and cgroups; an engine provides the root file system.

mod agents;
mod birth;
mod cdi;
mod devices;
mod forward;
mod input;
mod kill;
mod lifecycle;
mod logs;
mod open_files;
mod readme;
mod receipts;
mod seccomp;
mod swap;
mod verbs;
pub mod wrap;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::finish;
use crate::command::{Finished, HANGS, run};
use crate::docker::Docker;

/// The binary under test: the one that the rig's engine calls, or without a rig the one that cargo built.
pub fn program() -> String {
    std::env::var("AGENTBOX_BIN").unwrap_or(env!("CARGO_BIN_EXE_agentbox").to_owned())
}

/// A directory that is removed with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Below /srv, because /tmp is empty in a container, and `wrap` hides the node's /tmp. Only root creates
    /// containers.
    pub fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let base = match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/srv"),
            false => std::env::temp_dir(),
        };
        let dir = base.join(format!("direct-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// The path of `name` in it.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A directory in it, created.
    pub fn dir(&self, name: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A file in it, with its directories.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // One that a failed test left may be of the whole root, whose files would be removed.
        detach_below(&self.0);
        let gone = fs::remove_dir_all(&self.0);
        if !std::thread::panicking() {
            gone.unwrap();
        }
    }
}

/// Detaches what is mounted below a directory, the last first.
fn detach_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below = places.filter(|place| Path::new(place).starts_with(directory));
    for place in below.collect::<Vec<_>>().into_iter().rev() {
        assert_eq!(run("umount", &["--lazy", place]).code, 0, "{place}");
    }
}

/// The files of `test-musl`, unpacked once for all tests of this process.
pub fn rootfs(docker: &Docker) -> &'static str {
    static ROOT: OnceLock<String> = OnceLock::new();
    ROOT.get_or_init(|| {
        let dir = format!("/srv/direct-{}-rootfs", std::process::id());
        fs::create_dir_all(&dir).unwrap();
        let id = docker.call(&["create", "test-musl"]).ok();
        let script = "set -o pipefail; docker export \"$1\" | tar -x -C \"$2\"";
        run("bash", &["-c", script, "-", id.trim(), &dir]).ok();
        docker.call(&["rm", id.trim()]).ok();
        dir
    })
}

/// A separate node for agentbox: a `--root`, a bundle, and the engine's lock.
pub struct Node {
    _docker: Docker,
    pub scratch: Scratch,
    rootfs: &'static str,
    pub root: String,
}

impl Node {
    pub fn new() -> Self {
        let docker = Docker::connect();
        let rootfs = rootfs(&docker);
        let scratch = Scratch::new();
        let root = scratch.path("root");
        Self {
            _docker: docker,
            scratch,
            rootfs,
            root,
        }
    }

    /// The same with a CRI engine's `--root`, and bundles like those of containerd's CRI plugin.
    pub fn of_cri() -> Self {
        let mut node = Self::new();
        node.root = node.scratch.dir("containerd/runc/k8s.io");
        node
    }

    /// The output of `agentbox spec`, without a terminal, for `args` in the common root file system.
    pub fn config(&self, args: &[&str]) -> Value {
        static EXAMPLE: OnceLock<Value> = OnceLock::new();
        let example = EXAMPLE.get_or_init(|| {
            let scratch = Scratch::new();
            let dir = scratch.dir("spec");
            run(&program(), &["spec", "--bundle", &dir]).ok();
            let text = fs::read(format!("{dir}/config.json")).unwrap();
            serde_json::from_slice(&text).unwrap()
        });
        let mut config = example.clone();
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(args);
        config["root"]["path"] = json!(self.rootfs);
        config
    }

    /// A bundle with this config.json.
    pub fn bundle(&self, name: &str, config: &Value) -> String {
        let text = config.to_string();
        let mut place = name.to_owned();
        if self.root.ends_with("k8s.io") {
            place = format!("io.containerd.runtime.v2.task/k8s.io/{name}");
            let own = format!("io.containerd.grpc.v1.cri/containers/{name}");
            self.scratch.dir(&own);
        }
        self.scratch.file(&format!("{place}/config.json"), &text);
        self.scratch.path(&place)
    }

    /// `agentbox --root ROOT ARGUMENTS...`, until it ends.
    pub fn call(&self, arguments: &[&str]) -> Finished {
        self.call_with(arguments, None)
    }

    /// The same with `third` as descriptor 3.
    pub fn call_with(&self, arguments: &[&str], third: Option<OwnedFd>) -> Finished {
        let mut command = match third {
            None => Command::new(program()),
            Some(third) => {
                let mut shell = Command::new("bash");
                let script = "exec 3<&0 0</dev/null; exec \"$@\"";
                shell.args(["-c", script, "-", &program()]);
                shell.stdin(Stdio::from(third));
                shell
            }
        };
        command.args(["--root", &self.root]).args(arguments);
        self.finish(command)
    }

    /// Runs a command to its end. Its output goes to files: a container that it leaves running would keep a
    /// pipe open.
    pub fn finish(&self, mut command: Command) -> Finished {
        use std::os::unix::process::ExitStatusExt;
        let line = format!("{command:?}");
        let output = Scratch::new();
        let path = |name| output.path(name);
        let mut child = command
            .stdout(File::create(path("out")).unwrap())
            .stderr(File::create(path("err")).unwrap())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > HANGS {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("`{line}` was still running after {HANGS:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let read = |name| {
            let bytes = fs::read(path(name)).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Finished {
            line,
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap()),
            stdout: read("out"),
            stderr: read("err"),
        }
    }

    /// Everything left of a container: our files, libcontainer's, cgroups, mounts.
    pub fn leftovers(&self, id: &str) -> Vec<String> {
        let mut found = Vec::new();
        for dir in ["/run/agentbox/index", "/run/agentbox/locks", &self.root] {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name == id || name.ends_with(&format!("-{id}")) {
                    found.push(format!("{dir}/{name}"));
                }
            }
        }
        cgroups(Path::new("/sys/fs/cgroup"), id, &mut found);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        found.extend(
            mounts
                .lines()
                .filter(|line| line.contains(id))
                .map(str::to_owned),
        );
        found
    }
}

/// The cgroups whose name ends in `id`. Other tests' cgroups may appear and disappear.
fn cgroups(dir: &Path, id: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().ends_with(id) {
            found.push(entry.path().display().to_string());
        }
        cgroups(&entry.path(), id, found);
    }
}

/// Removes the container when dropped.
pub struct Guard<'a>(pub &'a Node, pub &'a str);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let gone = self.0.call(&["delete", "--force", self.1]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// `program` with these additional variables, to its end.
pub fn with_env(program: &str, arguments: &[&str], dir: &str, env: &[(&str, &str)]) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir);
    command.envs(env.iter().copied());
    finish(&mut command)
}
