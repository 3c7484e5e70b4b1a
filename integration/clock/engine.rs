//! An engine that is killed and started again stretches and shortens no limit: shims and timekeepers do not need it.

use std::process::{Child, Command, Stdio};

use super::*;
use crate::command::await_that;
use crate::direct::rootfs;

/// An engine of a test's own, beside the rig's. It is killed without notice, and started again.
struct Engine {
    scratch: Scratch,
    kind: Kind,
    daemon: Option<Child>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// dockerd with its containerd, which leaves containers to their shims (live-restore).
    Docker,
    /// containerd, by `ctr`.
    Containerd,
}

impl Kind {
    /// A name that no other engine's container has: agentbox refuses an id that is another one's name.
    fn names(self, word: &str) -> String {
        match self {
            Self::Docker => format!("docker-{word}"),
            Self::Containerd => format!("ctr-{word}"),
        }
    }
}

impl Engine {
    fn begin(kind: Kind) -> Self {
        let mut engine = Self {
            scratch: Scratch::new(),
            kind,
            daemon: None,
        };
        engine.configure();
        engine.start();
        if kind == Kind::Docker {
            let image = engine.scratch.path("image");
            run("docker", &["save", "-o", &image, "test-musl"]).ok();
            engine.client(&["load", "-q", "-i", &image]).ok();
        }
        engine
    }

    fn socket(&self) -> String {
        self.scratch.path("socket")
    }

    fn configure(&self) {
        let (data, state) = (self.scratch.path("data"), self.scratch.path("state"));
        match self.kind {
            Kind::Docker => {
                let settings = fs::read("/etc/docker/daemon.json").unwrap();
                let mut settings: Value = serde_json::from_slice(&settings).unwrap();
                let own = json!({
                    "data-root": data,
                    "exec-root": state,
                    "pidfile": self.scratch.path("pid"),
                    "hosts": [format!("unix://{}", self.socket())],
                    "bridge": "none",
                    "iptables": false,
                    "live-restore": true,
                    "storage-driver": "vfs",
                });
                let own = own.as_object().unwrap().clone();
                settings.as_object_mut().unwrap().extend(own);
                self.scratch.file("settings", &settings.to_string());
            }
            Kind::Containerd => {
                let settings = format!(
                    "version = 2\nroot = {data:?}\nstate = {state:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
                     [grpc]\naddress = {:?}\n",
                    self.socket()
                );
                self.scratch.file("settings", &settings);
            }
        }
    }

    fn start(&mut self) {
        let settings = self.scratch.path("settings");
        let mut command = match self.kind {
            // A network namespace of its own: two engines in one would take each other's rules away.
            Kind::Docker => {
                let mut command = Command::new("unshare");
                command.args(["-n", "dockerd", "--config-file", &settings]);
                command
            }
            Kind::Containerd => {
                let mut command = Command::new("containerd");
                command.args(["--config", &settings]);
                command
            }
        };
        let log = fs::File::create(self.scratch.path("log")).unwrap();
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        await_that("the engine answers", || self.client(&["version"]).code == 0);
    }

    /// Kills the engine and, of Docker, its containerd. All shims stay.
    fn kill(&mut self) {
        if self.kind == Kind::Docker {
            let pid = fs::read_to_string(self.scratch.path("state/containerd/containerd.pid"));
            signal("KILL", &[pid.unwrap().trim().parse().unwrap()]);
        }
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
        assert_ne!(self.client(&["version"]).code, 0, "it is gone");
        // As a service manager does.
        let _ = fs::remove_file(self.scratch.path("pid"));
    }

    fn client(&self, arguments: &[&str]) -> Finished {
        let socket = self.socket();
        let host = format!("unix://{socket}");
        let client = match self.kind {
            Kind::Docker => ["docker", "-H", &host],
            Kind::Containerd => ["ctr", "-a", &socket],
        };
        run(client[0], &[&client[1..], arguments].concat())
    }

    /// A container of agentbox's with these annotations. Returns its id.
    fn runs(&self, docker: &Docker, name: &str, annotations: &[&str], script: &str) -> String {
        let annotations = annotations.iter().flat_map(|one| ["--annotation", one]);
        let annotations: Vec<&str> = annotations.collect();
        let shell = ["/bin/sh", "-c", script];
        match self.kind {
            Kind::Docker => {
                let options = ["run", "-d", "--name", name, "--network=none", runtime()];
                let all = [&options[..], &annotations, &["test-musl"], &shell].concat();
                self.client(&all).ok().trim().to_owned()
            }
            Kind::Containerd => {
                let (root, program) = (rootfs(docker), program());
                let path = "PATH=/bin:/usr/bin";
                let options = [
                    "run",
                    "-d",
                    "--env",
                    path,
                    "--runc-binary",
                    &program,
                    "--rootfs",
                ];
                let all = [&options[..], &annotations, &[root, name], &shell].concat();
                self.client(&all).ok();
                name.to_owned()
            }
        }
    }

    fn says(&self, name: &str, word: &str) -> bool {
        let said = match self.kind {
            Kind::Docker => self.client(&["inspect", "-f", "{{.State.Status}}", name]),
            Kind::Containerd => self.client(&["tasks", "ls"]),
        };
        let said = said.ok().to_lowercase();
        let of_it = |line: &&str| self.kind == Kind::Docker || line.starts_with(name);
        said.lines().find(of_it).unwrap_or_default().contains(word)
    }

    /// Whether the engine knows that it runs.
    fn has_running(&self, name: &str) -> bool {
        self.says(name, "running")
    }

    /// Whether the engine saw an end by SIGKILL. containerd forgets the task.
    fn saw_a_kill(&self, name: &str) -> bool {
        match self.kind {
            Kind::Docker => {
                let said = self.client(&["inspect", "-f", "{{.State.ExitCode}}", name]);
                said.ok() == "137\n"
            }
            Kind::Containerd => {
                let said = self.client(&["tasks", "rm", name]);
                said.stderr.contains("exit code 137")
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for name in ["back", "away", "free"] {
            let name = self.kind.names(name);
            match self.kind {
                Kind::Docker => drop(self.client(&["rm", "-f", &name])),
                Kind::Containerd => {
                    self.client(&["tasks", "rm", "-f", &name]);
                    self.client(&["containers", "rm", &name]);
                }
            }
        }
        if let Some(mut daemon) = self.daemon.take() {
            let pid = i32::try_from(daemon.id()).unwrap();
            let _ = run("kill", &[pid.to_string()]);
            let _ = daemon.wait();
        }
    }
}

/// How long a limited container of these tests may run: longer than an engine takes to come back.
const LIMIT: Duration = Duration::from_secs(40);

/// What dies with a limit, and when it began.
struct Limited {
    name: String,
    id: String,
    mark: String,
    begun: Instant,
}

impl Limited {
    fn begin(engine: &Engine, docker: &Docker, word: &str) -> Self {
        let name = engine.kind.names(word);
        let (mark, begun) = (mark(), Instant::now());
        let wall = format!("dev.agentbox.time.wall={}s", LIMIT.as_secs());
        let annotations = [wall.as_str(), "dev.agentbox.time.grace=1s"];
        let id = engine.runs(docker, &name, &annotations, &stubborn(&mark));
        await_that("it has begun", || lives(&mark));
        Self {
            name,
            id,
            mark,
            begun,
        }
    }

    /// Waits for the end of its processes, which comes with the limit and not before. No verb looks meanwhile.
    fn await_end(&self) {
        let patience = LIMIT + PATIENCE;
        while lives(&self.mark) {
            assert!(self.begun.elapsed() < patience, "{} lives on", self.name);
            std::thread::sleep(Duration::from_millis(50));
        }
        let lived = self.begun.elapsed();
        assert!(lived >= LIMIT, "{} ended after {lived:?}", self.name);
    }
}

/// The controls: one without a limit outlives both deaths of its engine, and the engine's own view is right again.
fn a_restart_changes_no_limit(docker: &Docker, kind: Kind) {
    let mut engine = Engine::begin(kind);
    let (endless, free) = (mark(), kind.names("free"));
    engine.runs(docker, &free, &[], &format!("sleep {endless}; true"));
    // The engine is back before the end.
    let back = Limited::begin(&engine, docker, "back");
    engine.kill();
    assert!(lives(&back.mark) && lives(&endless), "the shims stay");
    engine.start();
    assert!(engine.has_running(&back.name) && engine.has_running(&free));
    back.await_end();
    await_that("the engine knows the end", || {
        !engine.has_running(&back.name)
    });
    assert!(engine.saw_a_kill(&back.name));
    log_has(&back.id, OVER);
    // The engine is dead when the time is over.
    let away = Limited::begin(&engine, docker, "away");
    engine.kill();
    away.await_end();
    log_has(&away.id, OVER);
    engine.start();
    // It did not see the end. As under runc, Docker says 255, and containerd forgets the task.
    await_that("the engine knows the end", || {
        !engine.has_running(&away.name)
    });
    assert!(engine.has_running(&free) && lives(&endless));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_a_restarted_engine_neither_stretches_nor_shortens_a_limit() {
    let docker = Docker::connect();
    all_at_once(&[
        &|| a_restart_changes_no_limit(&docker, Kind::Docker),
        &|| a_restart_changes_no_limit(&docker, Kind::Containerd),
    ]);
}
