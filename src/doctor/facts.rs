//! SHELL. The facts for the doctor. It reads, tries things in a child that ends, and changes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::engines::{self, EngineFacts};
use crate::cli::GlobalOptions;
use crate::log;
use crate::plan::HostFacts;
use crate::policy::{Selection, WrapOptions};
use crate::probe;
use crate::runtime::input::node_files::{self, NodeFiles};
use crate::runtime::obstacle::{self, Obstacle};
use crate::runtime::state::store;
use crate::runtime::unprivileged::SeenHost;
use crate::runtime::{runs, unprivileged};
use crate::sys::program;
use crate::wrap;

/// All facts.
pub struct DoctorFacts {
    /// The user's number.
    pub user: u32,
    /// The kernel, as this user sees it.
    pub host: HostFacts,
    /// What a container around this program keeps from `wrap`.
    pub obstacle: Option<Obstacle>,
    /// Facts that matter only to a caller without root's rights.
    pub ordinary: Option<OrdinaryUser>,
    /// The node file: its path, and its content or the reason why it is refused.
    pub node: (PathBuf, Result<NodeSummary, String>),
    /// The policy of `wrap` without options, from the user's own settings, or the reason why it fails.
    pub wrap_policy: Result<String, String>,
    /// The policy of a container without annotations, or the reason why none can be created.
    pub engine_policy: Result<Option<String>, String>,
    /// The directory of records, or the reason why there is none.
    pub records: Result<PathBuf, String>,
    /// The directory of logs, or the reason why there is none.
    pub logs: Result<LogDirectory, String>,
    /// Free space for records and logs.
    pub space: Vec<FreeSpace>,
    /// The current time, and the time of this program's file, in seconds since 1970.
    pub clock: Clock,
    /// This program: its path, and whether only root can change it.
    pub program: (PathBuf, bool),
    /// The installed engines.
    pub engines: Vec<EngineFacts>,
}

/// A caller without root's rights.
pub struct OrdinaryUser {
    /// Whether a user namespace is possible, or the reason why not.
    pub namespace: Result<(), String>,
    /// Why there is no cgroup, if there is none.
    pub no_cgroup: Option<String>,
}

/// The relevant settings of the node file.
#[derive(Default)]
pub struct NodeSummary {
    /// `core-socket`
    pub core_socket: bool,
    /// How many settings annotations may loosen, even if an image has written them.
    pub annotations: usize,
    /// Whether a sandbox is refused if its log cannot be kept.
    pub log_required: bool,
    /// Files that cannot be chosen because of their names.
    pub misnamed: Vec<String>,
}

/// The directory of logs.
pub struct LogDirectory {
    /// Its path.
    pub path: PathBuf,
    /// Whether it exists. If not, only a run shows whether it can be made.
    pub is_made: bool,
}

/// The use of disk space while sandboxes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceUse {
    /// Records of running sandboxes.
    Records,
    /// Logs.
    Logs,
}

/// A file system's free space for the caller.
pub struct FreeSpace {
    /// Its use.
    pub used_for: SpaceUse,
    /// Its path.
    pub path: PathBuf,
    /// Free bytes, or the reason why they are unknown.
    pub bytes: Result<u64, String>,
}

/// The wall clock, and a time that is certainly in the past.
pub struct Clock {
    /// Now.
    pub now: u64,
    /// When this program's file was written.
    pub program: u64,
}

/// Reads all facts.
pub fn read(global: &mut GlobalOptions) -> io::Result<DoctorFacts> {
    let records = store::settle(global).map(|()| store::run_dir().to_owned());
    let (seen, ordinary) = host()?;
    let SeenHost { host, obstacle } = seen;
    let config = node_files::config(global).to_owned();
    let node = node_files::check_caller(global).and_then(|()| NodeFiles::of(global));
    let engine_policy = match &node {
        Ok(files) => engine_policy(files, global),
        Err(error) => Err(log::chain(error)),
    };
    let node = node.map(|files| NodeSummary {
        core_socket: files.node.allow.core_socket,
        annotations: files.node.allow.annotations.len(),
        log_required: files.node.log.required,
        misnamed: files.misnamed().iter().map(ToString::to_string).collect(),
    });
    let wrap_policy = wrap::usual_policy(global).map(|resolved| resolved.policy.name.to_string());
    Ok(DoctorFacts {
        user: unprivileged::uid(),
        host,
        obstacle,
        ordinary,
        node: (config, node.map_err(|error| log::chain(&error))),
        wrap_policy: wrap_policy.map_err(|error| format!("{error:#}")),
        engine_policy,
        records: records.map_err(|error| log::chain(&error)),
        logs: runs::private_base().map(|path| LogDirectory {
            is_made: path.exists(),
            path,
        }),
        space: space(),
        clock: clock(),
        program: own_program(),
        engines: engines::read(),
    })
}

/// The policy that `create` chooses for a container without annotations. `None`: no walls.
fn engine_policy(files: &NodeFiles, global: &GlobalOptions) -> Result<Option<String>, String> {
    let selection = files.select(global, &Default::default(), WrapOptions::NOTHING);
    match selection.map_err(|error| log::chain(&error))? {
        Selection::Policy(resolved) => Ok(Some(resolved.policy.name.to_string())),
        Selection::Unconfined { .. } => Ok(None),
    }
}

/// The kernel as `wrap` sees it.
fn host() -> io::Result<(SeenHost, Option<OrdinaryUser>)> {
    if unprivileged::person().is_none() {
        let seen = SeenHost {
            host: probe::host(),
            obstacle: obstacle::of_root(),
        };
        return Ok((seen, None));
    }
    let seen = unprivileged::attempt()?;
    let no_cgroup = unprivileged::attempt_cgroup()?.err();
    let (seen, namespace) = match seen {
        Ok(seen) => (seen, Ok(())),
        Err(why) => (
            SeenHost {
                host: probe::host(),
                obstacle: None,
            },
            Err(why),
        ),
    };
    Ok((
        seen,
        Some(OrdinaryUser {
            namespace,
            no_cgroup,
        }),
    ))
}

fn space() -> Vec<FreeSpace> {
    let records = Some((SpaceUse::Records, store::run_dir().to_owned()));
    let logs = runs::base().map(|path| (SpaceUse::Logs, path));
    let places = records.into_iter().chain(logs);
    places
        .map(|(used_for, path)| {
            let there = path.ancestors().find(|above| above.exists());
            let found = rustix::fs::statvfs(there.unwrap_or(Path::new("/")));
            let bytes = found.map(|found| found.f_bavail.saturating_mul(found.f_frsize));
            FreeSpace {
                used_for,
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
