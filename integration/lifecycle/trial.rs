//! One container of one runtime, from its config.json to its end.

use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::{Finished, HANGS, awaited, undecided};
use crate::direct::{Scratch, rootfs};
use crate::docker::Docker;

/// The runtime under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// Debian's runc: the control.
    Runc,
    /// agentbox --policy unconfined
    Unconfined,
    /// agentbox --policy standard, on a node that allows the hooks of these tests
    Standard,
}

/// A container: not yet created, existing, or deleted.
pub struct Trial {
    _docker: Docker,
    pub runtime: Runtime,
    pub scratch: Scratch,
    pub id: String,
    /// The config.json that `create` writes. The directory of [`Trial::share`] is mounted at /share and is the working
    /// directory, so that every policy lets the program write there.
    pub config: Value,
    root: String,
    node: String,
}

impl Trial {
    pub fn new(runtime: Runtime) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let docker = Docker::connect();
        let scratch = Scratch::new();
        scratch.dir("share");
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let node = scratch.file(
            "node.toml",
            "[allow]\nhooks = [\"/bin/sh\", \"/bin/busybox\"]\n",
        );
        let config = config(rootfs(&docker), &scratch.path("share"));
        Self {
            root: scratch.path("root"),
            id: format!("spec-{}-{number}", std::process::id()),
            _docker: docker,
            runtime,
            scratch,
            config,
            node,
        }
    }

    /// Sets the program of the init process: a script.
    pub fn script(&mut self, script: &str) {
        self.config["process"]["args"] = json!(["sh", "-c", script]);
    }

    /// A path in the directory that is /share in the container.
    pub fn share(&self, name: &str) -> String {
        self.scratch.path(&format!("share/{name}"))
    }

    /// The content of a file in the shared directory.
    #[track_caller]
    pub fn shared(&self, name: &str) -> String {
        let path = self.share(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// Its bundle; the directory is created with config.json.
    pub fn bundle(&self) -> String {
        self.scratch.path("bundle")
    }

    /// Writes config.json.
    pub fn write(&self) {
        let text = self.config.to_string();
        self.scratch.file("bundle/config.json", &text);
    }

    /// Calls the runtime with these arguments, until it ends.
    pub fn call(&self, arguments: &[&str]) -> Finished {
        let mut command = match self.runtime {
            Runtime::Runc => Command::new("runc"),
            Runtime::Unconfined | Runtime::Standard => {
                let program = std::env::var("AGENTBOX_BIN").expect("hack/rig sets AGENTBOX_BIN");
                let mut command = Command::new(program);
                let policy = if self.runtime == Runtime::Standard {
                    "standard"
                } else {
                    "unconfined"
                };
                command.args(["--config", &self.node, "--policy", policy]);
                command
            }
        };
        command.args(["--root", &self.root]).args(arguments);
        let out = |name: &str| self.scratch.path(&format!("{}.{name}", arguments[0]));
        // Files, not pipes: the container keeps them open. Its output is read from them.
        let child = command
            .env("INHERITED", "by mistake")
            .stdin(std::process::Stdio::null())
            .stdout(File::create(out("out")).unwrap())
            .stderr(File::create(out("err")).unwrap())
            .spawn()
            .unwrap();
        let line = format!("{command:?}");
        let status = end(child, &line);
        let read = |name| String::from_utf8_lossy(&fs::read(out(name)).unwrap()).into_owned();
        Finished {
            line,
            code: status.code().unwrap_or(-1),
            stdout: read("out"),
            stderr: read("err"),
        }
    }

    /// Writes config.json and creates the container.
    pub fn create(&self) -> Finished {
        self.write();
        self.call(&["create", "--bundle", &self.bundle(), &self.id])
    }

    pub fn start(&self) -> Finished {
        self.call(&["start", &self.id])
    }

    pub fn kill(&self, signal: &str) -> Finished {
        self.call(&["kill", &self.id, signal])
    }

    pub fn delete(&self) -> Finished {
        self.call(&["delete", &self.id])
    }

    /// The output of `state`.
    #[track_caller]
    pub fn state(&self) -> Value {
        let text = self.call(&["state", &self.id]).ok();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// Whether `state` knows it.
    pub fn exists(&self) -> bool {
        self.call(&["state", &self.id]).code == 0
    }

    /// Waits for this status from `state`.
    #[track_caller]
    pub fn await_status(&self, status: &str) -> Value {
        awaited(status, || match self.state() {
            state if state["status"] == status => Ok(state),
            state => Err(state),
        })
    }

    /// Creates and starts it.
    #[track_caller]
    pub fn run(&self) {
        self.create().ok();
        self.start().ok();
    }

    /// Runs a script as its program until it ends. Returns its output.
    #[track_caller]
    pub fn output_of(&mut self, script: &str) -> String {
        self.script(script);
        self.run();
        self.await_status("stopped");
        self.output()
    }

    /// The container's output so far, errors last.
    pub fn output(&self) -> String {
        let read = |name| fs::read_to_string(self.scratch.path(name)).unwrap();
        read("create.out") + &read("create.err")
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let gone = self.call(&["delete", "--force", &self.id]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

fn end(mut child: Child, line: &str) -> ExitStatus {
    let end = Instant::now() + HANGS;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            undecided(&format!("`{line}` was still running after {HANGS:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A small config.json like any engine's.
fn config(rootfs: &str, share: &str) -> Value {
    let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.2",
        "root": { "path": rootfs, "readonly": true },
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "cwd": "/share",
            "args": ["sleep", "100"],
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=dumb"],
            "capabilities": {},
            "noNewPrivileges": true,
        },
        "hostname": "spec",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
            { "destination": "/share", "type": "bind", "source": share, "options": ["bind", "rw"] },
        ],
        "annotations": { "org.example.key": "value" },
        "linux": { "namespaces": namespaces },
    })
}
