//! `exec`: another process in a running container, behind the same walls.

pub mod requested;
pub mod sub_cgroup;

use std::path::PathBuf;

use libcontainer::container::ContainerStatus;
use oci_spec::runtime::{Process, Spec};

use crate::cgroup::path;
use crate::cli;
use crate::enforce::executor::WallExecutor;
use crate::enforce::home;
use crate::enforce::privileges;
use crate::enforce::unconfined::Parity;
use crate::enforce::walls::{Common, FilterWall, Joining, PolicyWalls, Role, TenantWork, Walls};
use crate::plan::{CapabilitySets, process};
use crate::render::refuse;
use crate::runtime::RuntimeError;
use crate::runtime::agent::{Agent, Courier, Moment};
use crate::runtime::create;
use crate::runtime::create::Streams;
use crate::runtime::filter;
use crate::runtime::foreground::relay;
use crate::runtime::foreground::tty;
use crate::runtime::input::bundle;
use crate::runtime::input::descriptors;
use crate::runtime::pidfd;
use crate::runtime::start;
use crate::runtime::state::half_made;
use crate::runtime::state::half_made::Frozen;
use crate::runtime::state::record::{ProcessId, Record, write_whole};
use crate::runtime::state::report;
use crate::runtime::state::store::Place;
use crate::sys::user::JoinedUser;

/// A process that `exec` started.
pub struct Started {
    /// Its pid; a child of this process.
    pub pid: i32,
    /// The terminal to relay, when it has one and no console socket was given.
    pub terminal: Option<tty::Listener>,
    /// Pipes to relay, where it has none.
    pub relay: Option<relay::Relay>,
}

/// libcontainer leaves the caller's directory for its sockets' and comes back. It may have been removed: containerd's shim
/// stands in the bundle of a pod's sandbox, which goes when that ends.
fn stand_somewhere() -> Result<(), RuntimeError> {
    match std::env::current_dir() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::env::set_current_dir("/").map_err(RuntimeError::io("enter /"))
        }
        _ => Ok(()),
    }
}

/// Starts a process in a running container and returns once it has executed its program.
pub fn exec(place: &Place, args: &cli::Exec) -> Result<Started, RuntimeError> {
    // `start` holds the lock until the first process has left the engine's network namespace and executed its program.
    let lock = place.lock_existing()?;
    let unknown = |e: RuntimeError| e.unknown_if_absent(place.id.as_str());
    let record = Record::read(&place.dir()).map_err(unknown)?;
    check_state(place, &record, args.ignore_paused)?;
    let shadow: Spec = bundle::read_json(&place.dir().join("config.json"))?;
    // Not held any longer: what comes next waits for a process that others in the container can hold up.
    drop(lock);
    let wanted = requested::process(args, &shadow, &record)?;
    refuse::process(&wanted)?;
    crate::runtime::input::labels::check(&wanted)?;
    let wanted = match &record.plan {
        Some(plan) => {
            let mut confined = process::confine(wanted, plan);
            create::own_oom_score(&mut confined);
            confined
        }
        None => wanted,
    };
    stand_somewhere()?;
    descriptors::check(args.preserve_fds, record.plan.is_some())?;
    descriptors::check_limit(&wanted, record.plan.is_some())?;
    let listener = terminal_listener(place, args, &wanted)?;
    let console = args
        .console_socket
        .clone()
        .or_else(|| listener.as_ref().map(|l| l.path().to_owned()));
    let terminal = wanted.terminal().unwrap_or(false);
    let (stdio, relay) = match (terminal, args.detach) {
        (false, false) => relay::pipes().map(|(stdio, relay)| (stdio, Some(relay)))?,
        (false, true) if record.plan.is_some() => {
            relay::refuse_terminals("`exec --detach`")?;
            Default::default()
        }
        _ => Default::default(),
    };
    let streams = Streams {
        console: console.as_deref(),
        stdio,
        relayed: listener.is_some(),
    };
    let scratch = Scratch::new(place);
    let pid = build(place, args, &record, &shadow, wanted, streams, &scratch);
    drop(scratch);
    let pid = pid.inspect_err(|_| sweep(place, &record))?;
    if let Err(error) = announce(args, pid) {
        end(pid);
        return Err(error);
    }
    Ok(Started {
        pid,
        terminal: listener,
        relay,
    })
}

/// The container may have been deleted meanwhile; libcontainer makes its cgroup anew before it finds that out.
fn sweep(place: &Place, record: &Record) {
    // Whoever deletes it holds the lock until all of it is gone.
    match place.lock_existing() {
        Ok(_lock) if place.dir().exists() => return,
        Err(_) if place.dir().exists() => return,
        Ok(_) | Err(_) => {}
    }
    for cgroup in &record.cgroups {
        if let Err(error) = path::remove(cgroup) {
            log::debug!("a cgroup of what is gone: {}", crate::log::chain(&error));
        }
    }
}

/// Tells the caller of the process. The pid file is written by us: libcontainer goes on where it cannot.
fn announce(args: &cli::Exec, pid: i32) -> Result<(), RuntimeError> {
    if let Some(path) = &args.pid_file {
        std::fs::write(path, pid.to_string())
            .map_err(RuntimeError::io(format!("write {path:?}")))?;
    }
    match &args.pidfd_socket {
        Some(socket) => pidfd::send(socket, pid),
        None => Ok(()),
    }
}

/// Ends a process that nobody will know of.
fn end(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    let ended = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)
        .and_then(|()| nix::sys::wait::waitpid(pid, None));
    if let Err(e) = ended {
        log::debug!("end process {pid}: {e}");
    }
}

fn check_state(place: &Place, record: &Record, ignore_paused: bool) -> Result<(), RuntimeError> {
    let container = start::load(place)?;
    let status = container.status();
    let refuse = |why: String| {
        Err(RuntimeError::State {
            verb: "exec in",
            id: record.id.clone(),
            why,
        })
    };
    match status {
        ContainerStatus::Running => Ok(()),
        // As with runc; its first process waits in namespaces and a root file system that are complete.
        ContainerStatus::Created if record.plan.is_none() => Ok(()),
        ContainerStatus::Paused if ignore_paused => Ok(()),
        ContainerStatus::Paused => Err(RuntimeError::Unsupported(
            "cannot exec in a paused container (use --ignore-paused to override)".to_owned(),
        )),
        ContainerStatus::Created => {
            refuse("it is not started, so its network wall does not stand yet".to_owned())
        }
        ContainerStatus::Stopped => refuse("it is stopped".to_owned()),
        ContainerStatus::Creating => refuse(format!("it is {}", start::words(status))),
    }
}

fn build(
    place: &Place,
    args: &cli::Exec,
    record: &Record,
    shadow: &Spec,
    mut wanted: Process,
    streams: Streams<'_>,
    scratch: &Scratch,
) -> Result<i32, RuntimeError> {
    let init = record
        .init
        .filter(|i| i.is_alive())
        .ok_or(RuntimeError::NotRunning)?;
    let capabilities = CapabilitySets::of(wanted.capabilities().as_ref());
    create::refuse_contradiction(&capabilities)?;
    let kept = filter::read(&place.filter())?;
    if kept.is_some() != record.filtered {
        let why = "its seccomp filter is gone from the state directory".to_owned();
        return Err(RuntimeError::State {
            verb: "exec in",
            id: record.id.clone(),
            why,
        });
    }
    let membership = sub_cgroup::open(&args.cgroup, &record.controllers()?, init)?;
    let writer = report::make(&scratch.report())?;
    let (courier, socket) = Agent::read(&place.dir())?
        .map(|agent| Courier::spawn(&agent, record, &scratch.report(), Moment::Running))
        .transpose()?
        .unzip();
    let common = Common {
        capabilities,
        report: writer,
        keep_newlines: streams.relayed,
    };
    let joining = Joining {
        user: user_namespace(shadow, init, &wanted)?,
        cgroups: membership.descriptors,
    };
    let executor = WallExecutor::new(match &record.plan {
        Some(_) => Walls::Policy(Box::new(PolicyWalls {
            common,
            filter: FilterWall::planned(kept, socket)?,
            role: Role::Tenant(TenantWork::planned(joining, record.netns_cookie)?),
        })),
        None => Walls::Unconfined(Box::new(Parity {
            common,
            no_new_privs: wanted.no_new_privileges().unwrap_or(false),
            keyring: create::keyring(record),
            filter: kept.map(|filter| FilterWall::new(filter, socket)),
            role: Role::Tenant(joining),
        })),
    });
    let reader = report::reader(&scratch.report())?;
    let sets = wanted.capabilities().clone().unwrap_or_default();
    wanted.set_capabilities(Some(privileges::for_setup(&sets, &[])));
    home::settle(&mut wanted);
    let path = scratch.process();
    let text = serde_json::to_vec(&wanted).map_err(|e| RuntimeError::Input {
        path: path.clone(),
        why: e.to_string(),
    })?;
    write_whole(&path, &text)?;
    let failed = RuntimeError::process("exec in the container", wanted.cwd());
    crate::log::keep_causes().map_err(RuntimeError::io("make a pipe"))?;
    let root = scratch.state_root(place)?;
    let builder = match create::builder(place, executor, streams.stdio, None) {
        Ok(builder) => builder,
        Err(e) => return Err(failed(e)),
    };
    let builder = match builder.with_root_path(root) {
        Ok(builder) => builder,
        Err(e) => return Err(failed(e)),
    };
    let builder = builder
        .with_console_socket(streams.console)
        .with_preserved_fds(args.preserve_fds)
        .as_tenant()
        .with_process(Some(path))
        .with_detach(true)
        .with_ignore_paused(args.ignore_paused)
        .with_sub_cgroup(membership.for_libcontainer);
    // A process in a frozen cgroup waits for `resume`.
    let frozen = Frozen::of(&record.controllers()?);
    let halt = frozen.as_ref().map(Frozen::halt);
    let (what, within) = ("process of exec", half_made::WITHIN);
    let pid = half_made::limited(what, within, &scratch.report(), halt, || {
        builder
            .build()
            .map_err(|e| report::pending(&reader).map_or_else(|| failed(e), RuntimeError::Init))
    })?;
    drop(courier);
    Ok(pid.as_raw())
}

/// libcontainer runs tenants in the host's user namespace; the executor joins the container's.
fn user_namespace(
    shadow: &Spec,
    init: ProcessId,
    wanted: &Process,
) -> Result<Option<JoinedUser>, RuntimeError> {
    if !create::has_user_namespace(shadow) {
        return Ok(None);
    }
    let path = format!("/proc/{}/ns/user", init.pid);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        .map_err(RuntimeError::io(format!("open {path}")))?;
    let user = wanted.user();
    Ok(Some(JoinedUser {
        namespace: fd,
        uid: user.uid(),
        gid: user.gid(),
        groups: user.additional_gids().clone().unwrap_or_default(),
    }))
}

fn terminal_listener(
    place: &Place,
    args: &cli::Exec,
    wanted: &Process,
) -> Result<Option<tty::Listener>, RuntimeError> {
    let terminal = wanted.terminal().unwrap_or(false);
    match (terminal, &args.console_socket, args.detach) {
        (true, None, true) => Err(RuntimeError::Unsupported(
            "a detached terminal needs --console-socket".to_owned(),
        )),
        (true, None, false) => Ok(Some(tty::Listener::new(&place.dir())?)),
        _ => Ok(None),
    }
}

/// Files of one `exec` in the container's directory, removed when it is done.
struct Scratch {
    base: PathBuf,
}

impl Scratch {
    fn new(place: &Place) -> Self {
        Self {
            base: place.dir().join(format!("exec-{}", std::process::id())),
        }
    }

    fn process(&self) -> PathBuf {
        self.base.with_extension("json")
    }

    /// The directory of states that libcontainer is to look in: the engine's. It runs nothing in a container that is
    /// not started, so for such a one it is shown a copy of the state that says Running.
    fn state_root(&self, place: &Place) -> Result<PathBuf, RuntimeError> {
        let path = place.libcontainer_dir().join("state.json");
        let mut state: serde_json::Value = bundle::read_json(&path)?;
        if state["status"] != "created" {
            return Ok(place.root.clone());
        }
        state["status"] = "running".into();
        let root = self.base.with_extension("root");
        let dir = root.join(place.id.as_str());
        std::fs::create_dir_all(&dir).map_err(RuntimeError::io(format!("make {dir:?}")))?;
        write_whole(&dir.join("state.json"), state.to_string().as_bytes())?;
        Ok(root)
    }

    fn report(&self) -> PathBuf {
        self.base.with_extension("report")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for path in [self.process(), self.report()] {
            if let Err(e) = std::fs::remove_file(&path) {
                log::debug!("remove {path:?}: {e}");
            }
        }
        match std::fs::remove_dir_all(self.base.with_extension("root")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                log::debug!("remove the state's copy: {e}")
            }
            _ => {}
        }
    }
}
