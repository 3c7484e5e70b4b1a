//! agentbox under a real dockerd: ordinary work, attacks from inside, and leftovers.
//!
//! The engine is the one of the rig that `hack/test` starts. Each attack is first tried without walls (the control), so
//! that a denial means something.

pub mod allowlist;
mod attacks;
mod attempts;
mod audit;
mod audited;
mod clients;
mod containers;
mod counted;
mod demo;
mod denied;
mod ends;
mod files;
mod first;
mod honey;
mod inbound;
mod inside;
mod internal;
mod jobs;
mod learn;
mod leftovers;
mod mcp;
mod network;
pub mod node;
mod numbers;
mod opened;
mod ordinary;
mod owners;
mod passed;
mod pods;
mod privileges;
mod probe;
mod profiles;
pub mod requests;
pub mod secrets;
mod secured;
mod servers;
mod shown;
mod turn;
pub mod upstream;
mod volumes;
mod websockets;
mod workloads;

use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::command::{Finished, awaited, run};
use turn::{Room, Turn};

/// Tests share the rig; the test that counts leftovers has it alone.
static RIG: Room = Room::new();

/// The rig's engine, by its command line.
pub struct Docker {
    _turn: Turn,
}

impl Docker {
    /// The engine, together with other tests.
    #[track_caller]
    pub fn connect() -> Self {
        require_rig();
        Self {
            _turn: RIG.together(),
        }
    }

    /// The engine while no other test uses it.
    #[track_caller]
    pub fn alone() -> Self {
        require_rig();
        Self { _turn: RIG.alone() }
    }

    /// `docker ARGUMENTS...`
    pub fn call<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        run("docker", arguments)
    }

    /// `docker run --rm OPTIONS... COMMAND...`, to its end.
    pub fn run(&self, options: &[&str], command: &[&str]) -> Finished {
        self.call(&[&["run", "--rm"], options, command].concat())
    }

    /// `docker run -d OPTIONS... COMMAND...`: a container that is removed when dropped.
    #[track_caller]
    pub fn start(&self, options: &[&str], command: &[&str]) -> Container<'_> {
        let name = fresh_name();
        let container = Container {
            docker: self,
            name: name.clone(),
        };
        self.call(&[&["run", "-d", "--name", &name], options, command].concat())
            .ok();
        container
    }

    /// `docker create OPTIONS... COMMAND...`: likewise.
    #[track_caller]
    pub fn create(&self, options: &[&str], command: &[&str]) -> Container<'_> {
        let name = fresh_name();
        let container = Container {
            docker: self,
            name: name.clone(),
        };
        self.call(&[&["create", "--name", &name], options, command].concat())
            .ok();
        container
    }
}

/// A test's network, removed when dropped.
pub struct Network<'a> {
    docker: &'a Docker,
    pub name: String,
}

impl<'a> Network<'a> {
    /// `docker network create OPTIONS... NAME`
    #[track_caller]
    pub fn create(docker: &'a Docker, options: &[&str]) -> Self {
        let network = Self {
            docker,
            name: fresh_name(),
        };
        docker
            .call(&[&["network", "create"], options, &[network.name.as_str()]].concat())
            .ok();
        network
    }

    /// The address of the node's bridge in the network.
    #[track_caller]
    pub fn gateway(&self) -> String {
        let format = "{{(index .IPAM.Config 0).Gateway}}";
        let said = self
            .docker
            .call(&["network", "inspect", &self.name, "-f", format]);
        said.ok().trim().to_owned()
    }
}

impl Drop for Network<'_> {
    fn drop(&mut self) {
        let gone = self.docker.call(&["network", "rm", &self.name]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// A test's container, removed when dropped.
pub struct Container<'a> {
    docker: &'a Docker,
    pub name: String,
}

impl Container<'_> {
    /// `docker exec OPTIONS... NAME COMMAND...`
    pub fn exec(&self, options: &[&str], command: &[&str]) -> Finished {
        self.docker
            .call(&[&["exec"], options, &[self.name.as_str()], command].concat())
    }

    /// `docker VERB OPTIONS... NAME`
    pub fn call(&self, verb: &str, options: &[&str]) -> Finished {
        self.docker
            .call(&[&[verb], options, &[self.name.as_str()]].concat())
    }

    /// Waits until the container has printed `word`. Returns all that it printed.
    #[track_caller]
    pub fn await_log(&self, word: &str) -> String {
        awaited(word, || match self.call("logs", &[]).ok() {
            log if log.contains(word) => Ok(log),
            log => Err(format!("{} printed {log}", self.name)),
        })
    }

    /// `docker inspect -f FORMAT NAME`, without the line break.
    #[track_caller]
    pub fn inspect(&self, format: &str) -> String {
        self.call("inspect", &["-f", format])
            .ok()
            .trim_end()
            .to_owned()
    }

    /// Waits until `docker inspect -f FORMAT` prints `wanted`.
    #[track_caller]
    pub fn await_inspect(&self, format: &str, wanted: &str) {
        awaited(format, || match self.inspect(format) {
            seen if seen == wanted => Ok(()),
            seen => Err(format!("'{seen}', not '{wanted}'")),
        });
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let gone = self.docker.call(&["rm", "-f", "-v", &self.name]);
        // A test that already failed reports its own reason.
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

/// A policy that an annotation can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    Strict,
    Standard,
    Permissive,
}

impl Policy {
    pub const ALL: [Self; 3] = [Self::Strict, Self::Standard, Self::Permissive];

    /// The options of `docker run` that put a container behind this policy.
    pub fn options(self) -> Vec<&'static str> {
        let annotation = match self {
            Self::Strict => "dev.agentbox.policy=strict",
            Self::Standard => "dev.agentbox.policy=standard",
            Self::Permissive => "dev.agentbox.policy=permissive",
        };
        vec![runtime(), "--annotation", annotation]
    }
}

/// The option for the runtime under test. `AGENTBOX_RUNTIME=--runtime=runc` shows the tests' results without walls:
/// ordinary ones pass, attacks fail.
pub fn runtime() -> &'static str {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| {
        std::env::var("AGENTBOX_RUNTIME").unwrap_or_else(|_| "--runtime=agentbox".to_owned())
    })
}

/// The options of a container without any wall, for controls.
pub const NO_WALLS: [&str; 3] = [
    "--runtime=runc",
    "--privileged",
    "--security-opt=seccomp=unconfined",
];

fn fresh_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

#[track_caller]
fn require_rig() {
    assert!(
        std::env::var_os("AGENTBOX_RIG").is_some(),
        "this test needs a Docker that may be broken: run hack/test, or hack/rig run -- cargo test -- --ignored"
    );
}
