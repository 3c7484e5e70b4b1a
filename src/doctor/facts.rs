//! SHELL. What the doctor looks at. It reads, tries in a child that ends, and changes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::daemon;
use crate::cgroup::delegated;
use crate::cli::GlobalOptions;
use crate::install::{self, HandlerState};
use crate::log;
use crate::plan::HostFacts;
use crate::probe;
use crate::runtime::input::node_files::{self, NodeFiles};
use crate::runtime::state::store;
use crate::runtime::{runs, unprivileged};
use crate::sys::program;

/// What was found.
pub struct DoctorFacts {
    /// The user's number.
    pub user: u32,
    /// The kernel, as this user sees it.
    pub host: HostFacts,
    /// What only a caller without root's rights needs.
    pub ordinary: Option<OrdinaryUser>,
    /// The node's file: its path, and what it says or why it does not count.
    pub node: (PathBuf, Result<NodeSummary, String>),
    /// Why records cannot be where they are.
    pub records: Result<PathBuf, String>,
    /// Room for what is written.
    pub space: Vec<FreeSpace>,
    /// Seconds since 1970: now, and when this program was made.
    pub clock: Clock,
    /// This program: its path, and whether only root can change it.
    pub program: (PathBuf, bool),
    /// The engines that are here.
    pub engines: Vec<EngineFacts>,
}

/// A caller without root's rights.
pub struct OrdinaryUser {
    /// Why there is no user namespace, where there is none.
    pub namespace: Result<(), String>,
    /// Why there is no cgroup, where there is none.
    pub no_cgroup: Option<String>,
}

/// What counts of the node's file.
#[derive(Default)]
pub struct NodeSummary {
    /// `core-socket`
    pub core_socket: bool,
    /// How many things annotations may loosen where an image may have written them.
    pub annotations: usize,
    /// Files that nobody can choose because of their names.
    pub misnamed: Vec<String>,
}

/// A file system's free space, as the caller may use it.
pub struct FreeSpace {
    /// What is kept there.
    pub what: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Bytes, or why that is not known.
    pub bytes: Result<u64, String>,
}

/// The wall clock, and a time that has certainly passed.
pub struct Clock {
    /// Now.
    pub now: u64,
    /// When this program was written.
    pub program: u64,
}

/// An engine that is here.
pub enum EngineFacts {
    /// Docker: its version, or why it is not known.
    Docker(Result<String, String>),
    /// containerd for pods: what it knows of the handler, or why that is not known.
    Containerd(Result<HandlerState, String>),
    /// podman.
    Podman,
}

/// Looks.
pub fn read(global: &mut GlobalOptions) -> io::Result<DoctorFacts> {
    let records = store::settle(global).map(|()| store::run_dir().to_owned());
    let (host, ordinary) = host()?;
    let config = node_files::config(global).to_owned();
    let node = node_files::check_caller(global).and_then(|()| NodeFiles::of(global));
    let node = node.map(|files| NodeSummary {
        core_socket: files.node.allow.core_socket,
        annotations: files.node.allow.annotations.len(),
        misnamed: files.misnamed().iter().map(ToString::to_string).collect(),
    });
    Ok(DoctorFacts {
        user: unprivileged::uid(),
        host,
        ordinary,
        node: (config, node.map_err(|error| log::chain(&error))),
        records: records.map_err(|error| log::chain(&error)),
        space: space(),
        clock: clock(),
        program: own_program(),
        engines: engines(),
    })
}

/// The kernel as `wrap` sees it.
fn host() -> io::Result<(HostFacts, Option<OrdinaryUser>)> {
    if unprivileged::person().is_none() {
        return Ok((probe::host(), None));
    }
    let seen = unprivileged::attempt()?;
    let no_cgroup = delegated::obstacle().map(|error| log::chain(&error));
    let (host, namespace) = match seen {
        Ok(host) => (host, Ok(())),
        Err(why) => (probe::host(), Err(why)),
    };
    Ok((
        host,
        Some(OrdinaryUser {
            namespace,
            no_cgroup,
        }),
    ))
}

fn space() -> Vec<FreeSpace> {
    let records = Some(("records of running sandboxes", store::run_dir().to_owned()));
    let logs = runs::base().map(|path| ("logs", path));
    let places = records.into_iter().chain(logs);
    places
        .map(|(what, path)| {
            let there = path.ancestors().find(|above| above.exists());
            let found = rustix::fs::statvfs(there.unwrap_or(Path::new("/")));
            let bytes = found.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
            FreeSpace {
                what,
                bytes: bytes.map_err(|error| error.to_string()),
                path,
            }
        })
        .collect()
}

fn clock() -> Clock {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let written = std::fs::metadata("/proc/self/exe").and_then(|file| file.modified());
    Clock {
        now: seconds(SystemTime::now()),
        program: written.map_or(0, seconds),
    }
}

fn own_program() -> (PathBuf, bool) {
    let path = std::env::current_exe().unwrap_or_default();
    let closed = program::only_roots(&path).is_some();
    (path, closed)
}

fn engines() -> Vec<EngineFacts> {
    let mut found = Vec::new();
    let socket = Path::new(daemon::SOCKET);
    if socket.exists() || program::find("dockerd").is_ok() {
        let version = daemon::version(socket);
        found.push(EngineFacts::Docker(
            version.map_err(|error| error.to_string()),
        ));
    }
    if let Some(handler) = install::containerd_handler() {
        let handler = handler.map_err(|error| log::chain(&error));
        found.push(EngineFacts::Containerd(handler));
    }
    if program::find("podman").is_ok() {
        found.push(EngineFacts::Podman);
    }
    found
}
