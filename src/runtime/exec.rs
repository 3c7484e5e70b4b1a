//! `exec`: another process in a running container, behind the same walls.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use libcontainer::container::ContainerStatus;
use oci_spec::runtime::{Process, Spec};

use super::record::{ProcessId, Record, write_whole};
use super::store::Place;
use super::{RuntimeError, bundle, create, descriptors, filter, report, start, tty};
use crate::cli;
use crate::enforce::executor::{Role, WallExecutor, Walls};
use crate::enforce::privileges;
use crate::plan::{CapabilitySets, process};

/// A process that `exec` started.
pub struct Started {
    /// Its pid; a child of this process.
    pub pid: i32,
    /// The terminal to relay, when it has one and no console socket was given.
    pub terminal: Option<tty::Listener>,
}

/// Starts a process in a running container and returns once it has executed its program.
pub fn exec(place: &Place, args: &cli::Exec) -> Result<Started, RuntimeError> {
    // `start` holds the lock until the first process has left the engine's network namespace.
    let lock = place.lock_existing()?;
    let unknown = |_| RuntimeError::Unknown(place.id.as_str().to_owned());
    let record = Record::read(&place.dir()).map_err(unknown)?;
    check_state(place, &record, args.ignore_paused)?;
    let shadow: Spec = bundle::read_json(&place.dir().join("config.json"))?;
    let wanted = wanted_process(args, &shadow, &record)?;
    let wanted = match &record.plan {
        Some(plan) => {
            let mut confined = process::confine(wanted, plan);
            create::own_oom_score(&mut confined);
            confined
        }
        None => wanted,
    };
    descriptors::check(args.preserve_fds, record.plan.is_some())?;
    let listener = terminal_listener(place, args, &wanted)?;
    let console = args
        .console_socket
        .clone()
        .or_else(|| listener.as_ref().map(|l| l.path().to_owned()));
    let scratch = Scratch::new(place);
    let pid = build(place, args, &record, &shadow, wanted, console, &scratch);
    drop(scratch);
    drop(lock);
    Ok(Started {
        pid: pid?,
        terminal: listener,
    })
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
        ContainerStatus::Paused if ignore_paused => Ok(()),
        ContainerStatus::Paused => refuse("it is paused".to_owned()),
        ContainerStatus::Created if record.plan.is_some() => {
            refuse("it is not started, so its network wall does not stand yet".to_owned())
        }
        ContainerStatus::Stopped => refuse("it is stopped".to_owned()),
        ContainerStatus::Created | ContainerStatus::Creating => {
            refuse(format!("it is {}", start::words(status)))
        }
    }
}

fn build(
    place: &Place,
    args: &cli::Exec,
    record: &Record,
    shadow: &Spec,
    mut wanted: Process,
    console: Option<PathBuf>,
    scratch: &Scratch,
) -> Result<i32, RuntimeError> {
    let init = record
        .init
        .filter(|i| i.is_alive())
        .ok_or(RuntimeError::NotRunning)?;
    let capabilities = CapabilitySets::of(wanted.capabilities().as_ref());
    let kept = filter::read(&place.filter())?;
    if kept.is_some() != record.filtered {
        let why = "its seccomp filter is gone from the state directory".to_owned();
        return Err(RuntimeError::State {
            verb: "exec in",
            id: record.id.clone(),
            why,
        });
    }
    let executor = WallExecutor::new(Walls {
        role: Role::Tenant {
            cookie: record.netns_cookie,
            user: user_namespace(shadow, init, &wanted)?,
        },
        plan: record.plan.clone(),
        capabilities,
        no_new_privs: wanted.no_new_privileges().unwrap_or(false),
        filter: kept,
        report: report::make(&scratch.report())?,
        new_keyring: true,
        user_namespace: create::has_user_namespace(shadow),
        cwd: None,
        late_mounts: Vec::new(),
        cgroup_read_only: None,
        hooks: None,
    });
    let reader = report::reader(&scratch.report())?;
    let sets = wanted.capabilities().clone().unwrap_or_default();
    wanted.set_capabilities(Some(privileges::for_setup(&sets)));
    let path = scratch.process();
    let text = serde_json::to_vec(&wanted).map_err(|e| RuntimeError::Input {
        path: path.clone(),
        why: e.to_string(),
    })?;
    write_whole(&path, &text)?;
    let failed = RuntimeError::container("exec in the container");
    let builder = match create::builder(place, executor, args.pid_file.as_deref()) {
        Ok(builder) => builder,
        Err(e) => return Err(failed(e)),
    };
    let pid = builder
        .with_console_socket(console)
        .with_preserved_fds(args.preserve_fds)
        .as_tenant()
        .with_process(Some(path))
        .with_detach(true)
        .with_ignore_paused(args.ignore_paused)
        .with_sub_cgroup(args.cgroup.clone())
        .build()
        .map_err(|e| report::pending(&reader).map_or_else(|| failed(e), RuntimeError::Init))?;
    Ok(pid.as_raw())
}

/// The process that was asked for: --process, or the first process's with what the flags say.
fn wanted_process(
    args: &cli::Exec,
    shadow: &Spec,
    record: &Record,
) -> Result<Process, RuntimeError> {
    let unusable = |why: &str| RuntimeError::Unsupported(why.to_owned());
    if let Some(path) = &args.process {
        return bundle::read_json(path);
    }
    if args.command.is_empty() {
        return Err(unusable("exec needs a program or --process"));
    }
    let mut process = shadow
        .process()
        .clone()
        .ok_or_else(|| unusable("the container has no process section"))?;
    process.set_args(Some(args.command.clone()));
    process.set_terminal(Some(args.tty));
    process.set_cwd(args.cwd.clone().unwrap_or_else(|| record.cwd.clone()));
    let mut env = process.env().clone().unwrap_or_default();
    env.extend(args.env.iter().cloned());
    process.set_env(Some(env));
    if let Some(user) = &args.user {
        set_user(&mut process, user)?;
    }
    let mut user = process.user().clone();
    let mut groups = user.additional_gids().clone().unwrap_or_default();
    groups.extend(&args.additional_gids);
    user.set_additional_gids(Some(groups));
    process.set_user(user);
    set_privileges(&mut process, args)?;
    Ok(process)
}

fn set_user(process: &mut Process, text: &str) -> Result<(), RuntimeError> {
    let bad = || RuntimeError::Unsupported(format!("--user {text:?} is not UID[:GID]"));
    let (uid, gid) = text
        .split_once(':')
        .map_or((text, None), |(u, g)| (u, Some(g)));
    let mut user = process.user().clone();
    user.set_uid(uid.parse().map_err(|_| bad())?);
    if let Some(gid) = gid {
        user.set_gid(gid.parse().map_err(|_| bad())?);
    }
    process.set_user(user);
    Ok(())
}

fn set_privileges(process: &mut Process, args: &cli::Exec) -> Result<(), RuntimeError> {
    let mut sets = process.capabilities().clone().unwrap_or_default();
    for name in &args.cap {
        let plain = name
            .to_ascii_uppercase()
            .trim_start_matches("CAP_")
            .to_owned();
        let capability = plain
            .parse()
            .map_err(|_| RuntimeError::Unsupported(format!("unknown capability {name:?}")))?;
        let with = |set: &Option<oci_spec::runtime::Capabilities>| {
            let mut set = set.clone().unwrap_or_default();
            set.insert(capability);
            Some(set)
        };
        let (bounding, effective, permitted) = (
            with(sets.bounding()),
            with(sets.effective()),
            with(sets.permitted()),
        );
        sets.set_bounding(bounding);
        sets.set_effective(effective);
        sets.set_permitted(permitted);
    }
    process.set_capabilities(Some(sets));
    if args.no_new_privs {
        process.set_no_new_privileges(Some(true));
    }
    if let Some(label) = &args.process_label {
        process.set_selinux_label(Some(label.clone()));
    }
    if let Some(profile) = &args.apparmor {
        process.set_apparmor_profile(Some(profile.clone()));
    }
    Ok(())
}

/// libcontainer runs tenants in the host's user namespace; the executor joins the container's.
fn user_namespace(
    shadow: &Spec,
    init: ProcessId,
    wanted: &Process,
) -> Result<Option<(OwnedFd, u32, u32)>, RuntimeError> {
    if !create::has_user_namespace(shadow) {
        return Ok(None);
    }
    let path = format!("/proc/{}/ns/user", init.pid);
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
        .map_err(RuntimeError::io(format!("open {path}")))?;
    Ok(Some((fd, wanted.user().uid(), wanted.user().gid())))
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
    }
}
