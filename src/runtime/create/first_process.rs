//! The container's init process, born in its cgroup and its pid namespace by one clone3(2) of ours, in place of
//! libcontainer's second process. From there on libcontainer (`container_init_process`) and our walls do the rest:
//! namespaces, the root file system, the user.
//!
//! libcontainer makes the process itself for a user or time namespace, an existing pid namespace, systemd, and rare
//! resources.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libcgroups::common::CgroupConfig;
use libcontainer::config::YoukiConfig;
use libcontainer::container::{Container, ContainerStatus};
use libcontainer::error::{ErrInvalidSpec, LibcontainerError};
use libcontainer::notify_socket::{NOTIFY_FILE, NotifyListener};
use libcontainer::process::args::{ContainerArgs, ContainerType};
use libcontainer::process::channel::{self, InitReceiver, InitSender, MainReceiver, MainSender};
use libcontainer::process::container_main_process::ProcessError;
use libcontainer::process::init::container_init_process;
use libcontainer::syscall::syscall::SyscallType;
use libcontainer::validator::Validator;
use libcontainer::{apparmor, tty};
use oci_spec::runtime::{LinuxNamespaceType, Spec};

use crate::cgroup::birthplace::Birthplace;
use crate::cgroup::delegated;
use crate::cgroup::path;
use crate::cli::GlobalOptions;
use crate::enforce::executor::WallExecutor;
use crate::runtime::child;
use crate::runtime::error::RuntimeError;
use crate::runtime::foreground::relay::Stdio;
use crate::runtime::state::store::{ContainerPaths, make_private};
use crate::runtime::unprivileged;
use crate::sys::process::{self, Birth, Child};
use crate::sys::user_namespace::maps_everyone;

/// The options of `create`.
pub struct CreateOptions<'a> {
    /// Where the container's state is.
    pub place: &'a ContainerPaths,
    /// The spec for libcontainer.
    pub spec: &'a Spec,
    /// In place of the caller's standard descriptors.
    pub stdio: Stdio,
    /// The socket that gets the pseudo-terminal, if the process has one.
    pub console: Option<&'a Path>,
    /// How many descriptors after standard error the process keeps.
    pub preserve_fds: i32,
    /// Use MS_MOVE in place of pivot_root.
    pub no_pivot: bool,
}

/// Whether [`make`] makes the init process; otherwise libcontainer makes it.
pub fn is_ours(global: &GlobalOptions, spec: &Spec) -> bool {
    !global.systemd_cgroup && is_plain(spec)
}

/// Whether [`make`] supports this spec.
fn is_plain(spec: &Spec) -> bool {
    // Root of a user namespace of its own makes what it is root of. libcontainer handles maps that engines wrote.
    let all = rustix::process::geteuid().is_root() && maps_everyone().unwrap_or(false);
    let rootless = unprivileged::inside().is_none() && !all;
    has_nothing_rare(spec) && !rootless && path::named(spec).is_some()
}

/// Whether a spec has nothing that is left to libcontainer.
fn has_nothing_rare(spec: &Spec) -> bool {
    let Some(linux) = spec.linux() else {
        return false;
    };
    let namespaces = || linux.namespaces().iter().flatten();
    let other = namespaces().any(|n| match n.typ() {
        LinuxNamespaceType::User | LinuxNamespaceType::Time => true,
        LinuxNamespaceType::Pid => n.path().is_some(),
        _ => false,
    });
    let rdma = linux.resources().as_ref().and_then(|r| r.rdma().as_ref());
    let rare = linux.intel_rdt().is_some()
        || linux.net_devices().as_ref().is_some_and(|d| !d.is_empty())
        || rdma.is_some_and(|r| !r.is_empty());
    let mapped = spec.mounts().iter().flatten();
    let mapped = mapped
        .filter(|m| m.uid_mappings().is_some() || m.gid_mappings().is_some())
        .count();
    !other && !rare && mapped == 0
}

/// Makes the process, and waits until it is ready for `start`. A failure removes everything but the cgroup, which the
/// record names.
pub fn make(
    asked: CreateOptions<'_>,
    executor: WallExecutor,
) -> Result<(Container, Birthplace), RuntimeError> {
    let process = asked.spec.process().as_ref();
    let cwd = process.map(|p| p.cwd().clone()).unwrap_or_default();
    let failed = |error| RuntimeError::process("create the container", &cwd)(error);
    validate(asked.spec).map_err(failed)?;
    let dir = asked.place.libcontainer_dir();
    if dir.exists() {
        return Err(RuntimeError::Exists(asked.place.id.as_str().to_owned()));
    }
    make_private(&dir)?;
    let made = begin(asked, executor, &dir, failed);
    if made.is_err()
        && let Err(error) = fs::remove_dir_all(&dir)
    {
        log::warn!("remove {dir:?}: {error}");
    }
    made
}

/// Refuses what libcontainer refuses.
fn validate(spec: &Spec) -> Result<(), LibcontainerError> {
    if !spec.version().starts_with("1.") {
        return Err(ErrInvalidSpec::UnsupportedVersion.into());
    }
    Validator::validate_spec(spec)?;
    let process = spec.process().as_ref();
    if process.is_some_and(|p| p.apparmor_profile().is_some())
        && !apparmor::is_enabled().map_err(LibcontainerError::OtherIO)?
    {
        return Err(ErrInvalidSpec::AppArmorNotEnabled.into());
    }
    Ok(())
}

fn begin(
    asked: CreateOptions<'_>,
    executor: WallExecutor,
    dir: &Path,
    failed: impl Fn(LibcontainerError) -> RuntimeError,
) -> Result<(Container, Birthplace), RuntimeError> {
    let CreateOptions { place, spec, .. } = asked;
    let linux = spec.linux().as_ref();
    let named = path::named(spec).unwrap_or_default();
    let resources = linux.and_then(|l| l.resources().as_ref());
    let born = match (unprivileged::inside(), delegated::of_self()) {
        // The plan then has no limits that need a cgroup.
        (Some(_), None) => Birthplace::callers(),
        (None, _) | (Some(_), Some(_)) => Birthplace::make(&named, resources)?,
    };
    let prepared = prepare(&asked, dir, executor).map_err(&failed)?;
    let InitArgs { args, console } = prepared;
    let own_pids = linux
        .and_then(|l| l.namespaces().as_ref())
        .is_some_and(|all| all.iter().any(|n| n.typ() == LinuxNamespaceType::Pid));
    let (main_sender, main_receiver) = channel::main_channel().map_err(|e| failed(main(e)))?;
    let (init_sender, init_receiver) = channel::init_channel().map_err(|e| failed(main(e)))?;
    let mut ends = ChildEnds {
        main_sender,
        init_receiver,
    };
    child::prepare()?;
    let birth = Birth {
        namespaces: if own_pids { NEW_PIDS } else { 0 },
        cgroup: born.born_in(),
    };
    let child = process::fork_at(birth, || {
        let closed = init_sender.close();
        closed.map_or(1, |()| live(&args, &born, &mut ends))
    })
    .map_err(RuntimeError::io("clone the container's init process"))?;
    // The child alone now holds the ends and what was handed to it.
    drop((asked.stdio, console));
    let ready = ends
        .close()
        .map_err(main)
        .and_then(|()| attend(&args, &child, main_receiver, init_sender));
    if let Err(error) = ready {
        child::end(&child);
        return Err(failed(error));
    }
    let pid = child.pid.as_raw_pid();
    let mut container = args.container.unwrap_or_default();
    container
        .set_status(ContainerStatus::Created)
        .set_creator(rustix::process::geteuid().as_raw())
        .set_pid(pid)
        .save()
        .map_err(&failed)
        .inspect_err(|_| child::end(&child))?;
    log::debug!("{} has begun as process {pid}", place.id.as_str());
    Ok((container, born))
}

/// `CLONE_NEWPID`
const NEW_PIDS: u64 = libc::CLONE_NEWPID as u64;

fn main(error: channel::ChannelError) -> LibcontainerError {
    LibcontainerError::MainProcess(ProcessError::Channel(error))
}

/// The arguments of `container_init_process`, and the descriptors that they need.
struct InitArgs {
    args: ContainerArgs,
    console: Option<OwnedFd>,
}

fn prepare(
    asked: &CreateOptions<'_>,
    dir: &Path,
    executor: WallExecutor,
) -> Result<InitArgs, LibcontainerError> {
    let CreateOptions { place, spec, .. } = asked;
    let id = place.id.as_str();
    let mut container = Container::new(id, ContainerStatus::Creating, None, &place.dir(), dir)?;
    container
        .set_systemd(false)
        .set_annotations(spec.annotations().clone());
    container.save()?;
    // Without symbolic links, as the bundle was read.
    let root = spec.root().as_ref();
    let rootfs = root.map(|r| r.path().clone()).unwrap_or_default();
    let console = asked
        .console
        .map(|path| tty::setup_console_socket(dir, path, "console-socket"))
        .transpose()?;
    let config = YoukiConfig::from_spec(spec, id)?;
    config.save(dir)?;
    let [stdin, stdout, stderr] = asked
        .stdio
        .each_ref()
        .map(|fd| fd.as_ref().map(AsRawFd::as_raw_fd));
    let args = ContainerArgs {
        container_type: ContainerType::InitContainer,
        syscall: SyscallType::default(),
        spec: Rc::new((*spec).clone()),
        rootfs,
        console_socket: console.as_ref().map(AsRawFd::as_raw_fd),
        notify_listener: NotifyListener::new(&dir.join(NOTIFY_FILE))?,
        preserve_fds: asked.preserve_fds,
        container: Some(container),
        user_ns_config: None,
        // Not read from here on.
        cgroup_config: CgroupConfig {
            cgroup_path: PathBuf::new(),
            systemd_cgroup: false,
            container_name: id.to_owned(),
        },
        detached: true,
        executor: Box::new(executor),
        no_pivot: asked.no_pivot,
        stdin,
        stdout,
        stderr,
        as_sibling: false,
        pid_file: None,
    };
    Ok(InitArgs { args, console })
}

/// The child's ends of the two channels.
struct ChildEnds {
    main_sender: MainSender,
    init_receiver: InitReceiver,
}

impl ChildEnds {
    fn close(&self) -> Result<(), channel::ChannelError> {
        self.main_sender.close()?;
        self.init_receiver.close()
    }
}

/// The init process. Returns only on failure, after telling the runtime why.
fn live(args: &ContainerArgs, born: &Birthplace, ends: &mut ChildEnds) -> i32 {
    let ChildEnds {
        main_sender,
        init_receiver,
    } = ends;
    let settled =
        child::take_name().and_then(|()| child::settle(args.spec.process().as_ref(), born));
    let begun = settled.and_then(|()| {
        container_init_process(args, main_sender, init_receiver).map_err(|error| {
            // The runtime reports it, as the reason why there is no container.
            tracing::debug!("failed to initialize container process: {error}");
            error.to_string()
        })
    });
    if let Err(why) = begun
        && let Err(error) = main_sender.exec_failed(why)
    {
        tracing::error!(?error, "failed sending error to main sender");
    }
    1
}

/// The runtime's side: runs the hooks, and waits until the process is ready.
fn attend(
    args: &ContainerArgs,
    child: &Child,
    mut from_init: MainReceiver,
    mut to_init: InitSender,
) -> Result<(), LibcontainerError> {
    let pid = nix::unistd::Pid::from_raw(child.pid.as_raw_pid());
    if let Some(hooks) = args.spec.hooks() {
        from_init.wait_for_hook_request().map_err(main)?;
        let state = args.container.as_ref().map(|c| &c.state);
        for early in [hooks.prestart(), hooks.create_runtime()] {
            libcontainer::hooks::run_hooks(early.as_ref(), state, None, Some(pid), None)
                .map_err(|e| LibcontainerError::MainProcess(ProcessError::Hooks(e)))?;
        }
        to_init.hook_done().map_err(main)?;
    }
    to_init.close().map_err(main)?;
    from_init.wait_for_init_ready().map_err(main)?;
    from_init.close().map_err(main)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_ordinary(change: impl FnOnce(&mut Value)) -> bool {
        let mut spec = json!({
            "ociVersion": "1.2.0",
            "mounts": [{"destination": "/x", "type": "bind", "source": "/y"}],
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
        });
        change(&mut spec);
        has_nothing_rare(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn rare_specs_are_left_to_libcontainer() {
        assert!(is_ordinary(|_| {}));
        assert!(is_ordinary(|spec| spec["linux"]["namespaces"] = json!([])));
        // An empty list asks for nothing.
        assert!(is_ordinary(
            |spec| spec["linux"]["resources"] = json!({"rdma": {}})
        ));
        for namespace in [
            json!({"type": "user"}),
            json!({"type": "time"}),
            json!({"type": "pid", "path": "/proc/1/ns/pid"}),
        ] {
            assert!(
                !is_ordinary(|spec| spec["linux"]["namespaces"] = json!([namespace])),
                "{namespace}"
            );
        }
        let network = json!([{"type": "network", "path": "/run/netns/x"}]);
        assert!(is_ordinary(|spec| spec["linux"]["namespaces"] = network));
        assert!(!is_ordinary(|spec| spec["linux"]["intelRdt"] = json!({})));
        let rdma = json!({"rdma": {"mlx5_1": {"hcaHandles": 3}}});
        assert!(!is_ordinary(|spec| spec["linux"]["resources"] = rdma));
        let ids = json!([{"containerID": 0, "hostID": 1, "size": 1}]);
        assert!(!is_ordinary(
            |spec| spec["mounts"][0]["uidMappings"] = ids.clone()
        ));
        assert!(!is_ordinary(|spec| spec["mounts"][0]["gidMappings"] = ids));
        assert!(!is_ordinary(|spec| drop(spec["linux"].take())));
    }
}
