//! `create`: from a bundle to a process that waits, behind walls, for `start`.
//!
//! [`create`] is the order; whatever has been made when a step fails is taken away again, newest first.

mod excludes;
pub mod image_root;
pub mod judged_mounts;
pub mod kernel_mounts;
pub mod neighbours;
pub mod scratch;
pub mod unconfined;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libcontainer::container::Container;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::syscall::syscall::SyscallType;
use oci_spec::runtime::{Capability, Hooks, LinuxNamespaceType, Process, Spec};

use crate::cgroup::controllers::Controllers;
use crate::cgroup::devices::{self, Ruler};
use crate::cgroup::joined_mount;
use crate::cgroup::path;
use crate::cgroup::systemd_v1;
use crate::cli::{self, Global};
use crate::devices::Program;
use crate::enforce::executor::WallExecutor;
use crate::enforce::home;
use crate::enforce::kernel::KernelFiles;
use crate::enforce::listener::AgentSocket;
use crate::enforce::privileges;
use crate::enforce::report::Report;
use crate::enforce::rootfs::OwnMount;
use crate::enforce::unconfined::setup::Setup;
use crate::enforce::unconfined::{Keyring, Parity, ParityInit};
use crate::enforce::walls::{
    Common, FilterWall, FirstProcess, InitFiles, InitWork, InnerNetwork, PolicyWalls, Role,
    UserNamespace, Walls,
};
use crate::enforce::{EnforceError, Wall};
use crate::plan::names::names_file;
use crate::plan::reach::{self, NetSettings};
use crate::plan::wrapped::Wrapped;
use crate::plan::{self, BundleFacts, CapabilitySets, Plan, ScratchPlace};
use crate::policy::{RootAccess, ScratchOn, Selection};
use crate::probe::Opened;
use crate::render::files;
use crate::render::refuse;
use crate::render::spec::{self as shadow, Places};
use crate::runtime::RuntimeError;
use crate::runtime::agent::{Agent, Courier, Moment};
use crate::runtime::create::neighbours::Joined;
use crate::runtime::create::unconfined::Split;
use crate::runtime::delete;
use crate::runtime::filter;
use crate::runtime::foreground::notify;
use crate::runtime::foreground::relay;
use crate::runtime::foreground::relay::Stdio;
use crate::runtime::hooks;
use crate::runtime::input::bundle::Bundle;
use crate::runtime::input::cri;
use crate::runtime::input::descriptors;
use crate::runtime::input::labels;
use crate::runtime::input::node_files;
use crate::runtime::input::node_files::config;
use crate::runtime::network::engine_networks;
use crate::runtime::network::resolver;
use crate::runtime::network::resolver::EngineFiles;
use crate::runtime::network::sandbox;
use crate::runtime::network::wall;
use crate::runtime::network::wall::NetworkWall;
use crate::runtime::pidfd;
use crate::runtime::state::census::Census;
use crate::runtime::state::half_made;
use crate::runtime::state::record::{self, Call, ProcessId, Record, write_whole};
use crate::runtime::state::report;
use crate::runtime::state::store::{Lock, Place};
use crate::seccomp::Filter;
use crate::seccomp::SavedFilter;

/// What was decided for a bundle: the pure part of `create`, which `explain --bundle` shares.
pub struct Decision {
    /// The bundle.
    pub bundle: Bundle,
    /// What is enforced; `None` under `unconfined`.
    pub plan: Option<Plan>,
    /// Who chose it.
    pub chosen_by: String,
    /// The syscall wall.
    pub filter: Option<Filter>,
    /// The sources of the bind mounts, as they were judged.
    pub sources: Vec<Opened>,
    /// The namespaces that it joins, as they were judged.
    pub joined: Vec<Joined>,
    /// Where the engine keeps its names.
    pub engine_files: EngineFiles,
    /// Whether it is a bundle of `wrap`, which always has mounts of its own.
    pub wrapped: bool,
}

/// Reads a bundle and decides what is enforced for it. Creates nothing. `wrapped` are `wrap`'s own mounts.
pub fn decide(global: &Global, dir: &Path, wrapped: &Wrapped) -> Result<Decision, RuntimeError> {
    let mut bundle = Bundle::read(dir)?;
    refuse::spec(&bundle.spec)?;
    if let Some(process) = bundle.spec.process() {
        labels::check(process)?;
    }
    shadow::normalise(&mut bundle.spec);
    let annotations: BTreeMap<String, String> = bundle
        .spec
        .annotations()
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let engine = bundle
        .spec
        .linux()
        .as_ref()
        .and_then(|l| l.seccomp().as_ref());
    let (mut sources, mut joined) = (Vec::new(), Vec::new());
    let mut engine_files = EngineFiles::default();
    let (plan, chosen_by, filter) = match node_files::selection(global, &annotations)? {
        Selection::Unconfined { chosen_by } => {
            reach::check(&bundle.spec, net_settings(&bundle.spec))?;
            for mount in bundle.spec.mounts().iter().flatten() {
                let place = crate::probe::destination(&bundle.rootfs, mount.destination());
                reach::check_mount(mount, &place)?;
            }
            (None, chosen_by.to_string(), filter::compile(None, engine)?)
        }
        Selection::Policy(resolved) => {
            reach::check(&bundle.spec, NetSettings::Own)?;
            let (mut facts, opened) = crate::probe::bundle(&bundle.spec, &bundle.rootfs, wrapped)?;
            sources = opened;
            facts.bundle.clone_from(&bundle.dir);
            facts.cri = cri::is_engines(&global.root, &bundle.dir);
            (joined, facts.neighbours) = neighbours::find(&bundle.spec)?;
            let host = crate::probe::host();
            let mut plan = plan::plan(&resolved, &bundle.spec, &facts, &host)?;
            // Only what is let in is searched, which takes as long as it is large.
            let rules = &plan.policy.filesystem;
            if crate::probe::search(&mut facts, &sources, &plan.filesystem, rules) {
                plan = plan::plan(&resolved, &bundle.spec, &facts, &host)?;
            }
            plan.warnings
                .extend(engine_networks::unknown_crio(&global.root, &annotations));
            engine_files = names(&bundle.spec, &facts, &mut plan);
            let filter = filter::compile(Some((&plan).into()), engine)?;
            (Some(plan), resolved.chosen_by.to_string(), filter)
        }
    };
    Ok(Decision {
        bundle,
        plan,
        chosen_by,
        filter,
        sources,
        joined,
        engine_files,
        wrapped: !wrapped.is_empty(),
    })
}

/// The engine's files with names. What the caller mounts in their place is not read.
fn names(spec: &Spec, facts: &BundleFacts, plan: &mut Plan) -> EngineFiles {
    let mut of = |target: &str| {
        names_file(spec, facts, target).unwrap_or_else(|path| {
            plan.warnings.push(format!(
                "no names are taken from {}, which is mounted at {target}: it is not the engine's own file for this container",
                path.display()
            ));
            None
        })
    };
    EngineFiles {
        resolv_conf: of("/etc/resolv.conf"),
        hosts: of("/etc/hosts"),
    }
}

/// Whose `net.*` settings the spec's are: no network namespace, or a path to the runtime's own, is the host's.
fn net_settings(spec: &Spec) -> NetSettings {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    let mut all = namespaces.into_iter().flatten();
    let Some(namespace) = all.find(|n| n.typ() == LinuxNamespaceType::Network) else {
        return NetSettings::Host;
    };
    let identity = |path: &Path| {
        let stat = fs::metadata(path).ok();
        stat.map(|s| (s.dev(), s.ino()))
    };
    let named = namespace.path().as_deref();
    match named.map(|path| identity(path) == identity(Path::new("/proc/self/ns/net"))) {
        Some(true) => NetSettings::Host,
        _ => NetSettings::Own,
    }
}

/// Where a process's standard descriptors come from.
#[derive(Default)]
pub struct Streams<'a> {
    /// The socket that gets its pseudo-terminal, where it has one.
    pub console: Option<&'a Path>,
    /// In place of the caller's own.
    pub stdio: Stdio,
    /// Whether the caller stays to relay them.
    pub relayed: bool,
}

/// Creates a container; its process waits for `start`. `wrapped` are `wrap`'s own mounts.
pub fn create(
    global: &Global,
    args: &cli::Create,
    streams: Streams<'_>,
    wrapped: &Wrapped,
) -> Result<(Place, Lock), RuntimeError> {
    let place = Place::new(&global.root, &args.id)?;
    let decision = decide(global, &args.bundle, wrapped);
    let mut decision =
        decision.inspect_err(|_| sandbox::end_if_lost(&global.root, &args.bundle))?;
    if global.systemd_cgroup {
        path::check_systemd(&decision.bundle.spec)?;
        path::warn_of_properties(&decision.bundle.spec);
    } else {
        path::name(&mut decision.bundle.spec, place.key());
    }
    let process = decision.bundle.spec.process().as_ref();
    refuse_contradiction(&CapabilitySets::of(
        process.and_then(|p| p.capabilities().as_ref()),
    ))?;
    descriptors::check(args.preserve_fds, decision.plan.is_some())?;
    if let Some(process) = process {
        descriptors::check_limit(process, decision.plan.is_some())?;
    }
    if let Some(all) = decision.bundle.spec.hooks() {
        hooks::check(all)?;
    }
    let agent = agent(&decision)?;
    if args.no_new_keyring && decision.plan.is_some() {
        return Err(RuntimeError::Unsupported(
            "--no-new-keyring is refused under a policy: the engine's keys would be in reach"
                .into(),
        ));
    }
    // `wrap`, which has mounts of its own, passes on nothing of its environment that is not listed.
    if notify::host().is_some() && decision.plan.is_some() && !decision.wrapped {
        return Err(RuntimeError::Unsupported(
            "NOTIFY_SOCKET is set, and under a policy no socket of the node is handed in: unset it, and let the caller \
             report that the service is ready"
                .into(),
        ));
    }
    let terminal = process.and_then(|p| p.terminal()).unwrap_or(false);
    if decision.plan.is_some() && !streams.relayed && !terminal {
        relay::refuse_terminals("this command")?;
    }
    let lock = place.lock()?;
    if place.libcontainer_dir().exists() {
        return Err(RuntimeError::Exists(args.id.clone()));
    }
    // After the look for the id: a container of this name has processes in this cgroup.
    if let Err(error) = path::check(&decision.bundle.spec) {
        lock.remove()?;
        return Err(error.into());
    }
    place.make_dir()?;
    // From here on there is something to take away.
    let mut record = new_record(global, &place, &decision);
    record.no_new_keyring = args.no_new_keyring;
    // Besides in `explain`, which nobody runs who does not know that something is missing.
    if record.plan.is_some()
        && let Some(why) = engine_networks::unknown_crio(&global.root, &record.annotations)
    {
        log::warn!("{why}");
    }
    let notified = match notify::host() {
        Some(_) if decision.plan.is_none() => notify::prepare(&place, &mut decision.bundle.spec),
        _ => Ok(()),
    };
    let built =
        notified.and_then(|()| build(global, args, streams, &place, &decision, agent, &mut record));
    match built {
        Ok(()) => Ok((place, lock)),
        Err(error) => {
            if let Err(cleanup) = delete::remove_all(&place, Some(&record)) {
                log::error!("after a failed create: {}", crate::log::chain(&cleanup));
            }
            lock.remove()?;
            Err(error)
        }
    }
}

/// The seccomp agent that the engine's profile asks for.
fn agent(decision: &Decision) -> Result<Option<Agent>, RuntimeError> {
    let linux = decision.bundle.spec.linux().as_ref();
    let engine = linux.and_then(|l| l.seccomp().as_ref());
    Agent::of(engine, decision.filter.as_ref())
}

fn build(
    global: &Global,
    args: &cli::Create,
    streams: Streams<'_>,
    place: &Place,
    decision: &Decision,
    mut agent: Option<Agent>,
    record: &mut Record,
) -> Result<(), RuntimeError> {
    let dir = place.dir();
    record.save(&dir)?;
    // First, so that all of them get ready while the rest is done.
    let mut maker = disk_maker(record, &decision.bundle.spec)?;
    let shared = decision
        .plan
        .as_ref()
        .and_then(|p| p.network.shared.as_ref());
    record.netns_cookie = shared.map(|shared| shared.cookie);
    let mut walls = match &decision.plan {
        Some(plan) if shared.is_none() => {
            Some(NetworkWall::begin(plan, &decision.bundle.spec, place)?)
        }
        Some(_) | None => None,
    };
    if let Some(walls) = &walls {
        // Saved before it is used: `delete --force` finds it if this process dies here.
        record.sidecar = Some(walls.sidecar().clone());
        record.save(&dir)?;
    }
    let rootfs = decision.bundle.rootfs.clone();
    let hooks = decision.bundle.spec.hooks().clone().unwrap_or_default();
    let job = hooks::Job::new(
        &hooks,
        &record.told(),
        &rootfs,
        hooks::default_env(record.plan.is_some()),
    )?;
    let (spec, split, kernel) = write_shadow(&dir, decision, rootfs.clone(), job.as_ref())?;
    let (unfinished, _user_namespace) =
        split.map_or((None, None), |s| (Some(s.left), s.user_namespace));
    let device_program = device_program(&spec, decision)?;
    let late_mounts = match &decision.plan {
        Some(plan) => late_mounts(&plan.filesystem, decision, &dir, &rootfs)?,
        None => Vec::new(),
    };
    if let Some(filter) = &decision.filter {
        filter::save(&place.filter(), filter)?;
    }
    let init_socket = walls.as_mut().and_then(NetworkWall::init_end);
    let report = report::make(&place.report())?;
    // From here on poststop hooks have something to undo.
    record.hooks = hooks;
    if record.hooks != Hooks::default() {
        record.save(&dir)?;
    }
    let reader = report::reader(&place.report())?;
    let mut courier = None;
    let agent_socket = match &mut agent {
        Some(agent) if decision.plan.is_some() => Some(agent.socket_kept_in_init()?),
        Some(agent) => {
            let (child, socket) = Courier::spawn(agent, record, &place.report(), Moment::Creating)?;
            courier = Some(child);
            Some(socket)
        }
        None => None,
    };
    if let Some(agent) = &agent {
        agent.save(&dir)?;
    }
    let disk = maker.as_mut().and_then(scratch::Maker::take_end);
    let executor = executor(
        decision,
        record,
        Ends {
            sidecar: init_socket,
            agent: agent_socket,
            report,
        },
        Files {
            disk,
            kernel,
            late: late_mounts,
            unfinished,
        },
        streams.relayed,
    )?;
    if let Some(walls) = &mut walls {
        walls.configure()?;
    }
    // systemd puts its own scopes there.
    let visit = match path::named(&spec) {
        Some(path) if !global.systemd_cgroup => Some(systemd_v1::Visit::begin(&path)?),
        _ => None,
    };
    let halt = job.as_ref().map(hooks::Job::halt);
    let hooks = job.as_ref().map_or(Duration::ZERO, hooks::Job::time_inside);
    let within = half_made::WITHIN.saturating_add(hooks);
    let what = "container's first process";
    let built = half_made::limited(what, within, &place.report(), halt, || {
        libcontainer_build(global, args, streams, place, &spec, executor).map_err(|error| {
            // What our own code in the container's process says is nearer to the cause.
            let of_hooks = || job.as_ref()?.failure().map(Report::step);
            let told = report::pending(&reader).or_else(of_hooks);
            told.map_or(error, RuntimeError::Init)
        })
    });
    let container = match built {
        Ok(container) => container,
        // A disk that could not be made is nearer still.
        Err(error) => return Err(settle_disk(record, maker).err().unwrap_or(error)),
    };
    settle_disk(record, maker)?;
    visit.map_or(Ok(()), systemd_v1::Visit::end)?;
    drop(courier);
    let pid = container.pid().map(nix::unistd::Pid::as_raw);
    path::keep_from_oom_killer(&decision.bundle.spec)?;
    record.init = pid.and_then(ProcessId::of);
    let Some(init) = record.init else {
        return Err(RuntimeError::Init(Report::step(
            "the container's process ended during create".to_owned(),
        )));
    };
    let controllers = Controllers::of(init.pid)?;
    record.controllers = Some(controllers.clone());
    record.save(&dir)?;
    neighbours::verify(&decision.joined, init, shared.is_some())?;
    if let Some(program) = &device_program {
        devices::attach(program, &controllers)?;
    } else if record.plan.is_some() {
        devices::take_back(&spec, &controllers)?;
    }
    let inner = match walls {
        Some(walls) => walls.finish(init, record)?,
        None => None,
    };
    let inside = neighbours::inside(init, &decision.joined, inner)?;
    Census::of_node().enter(place, &inside)?;
    if let Some(socket) = &args.pidfd_socket {
        pidfd::send(socket, init.pid)?;
    }
    record.save(&dir)
}

/// Begins to make the disk for what is thrown away, where it is to lie on one.
fn disk_maker(record: &Record, spec: &Spec) -> Result<Option<scratch::Maker>, RuntimeError> {
    let Some(plan) = &record.plan else {
        return Ok(None);
    };
    let files = &plan.filesystem;
    if !files.needs_scratch() || files.scratch_place != ScratchPlace::Disk {
        return Ok(None);
    }
    let begun = scratch::Maker::begin(files.scratch_bytes, spec);
    Ok(Some(
        begun.map_err(RuntimeError::io("begin to make a disk"))?,
    ))
}

/// What came of the disk, which went to the container's first process. Where there is none after all, that has taken memory
/// if the policy leaves it open, and the record says so.
fn settle_disk(record: &mut Record, maker: Option<scratch::Maker>) -> Result<(), RuntimeError> {
    let (Some(plan), Some(maker)) = (&mut record.plan, maker) else {
        return Ok(());
    };
    let words = "make a disk for what is thrown away";
    let why = match maker.outcome().map_err(RuntimeError::io(words))? {
        None => return Ok(()),
        Some(why) => why,
    };
    match plan.policy.filesystem.scratch_on {
        ScratchOn::Disk => Err(no_disk(plan, why)),
        ScratchOn::Auto | ScratchOn::Memory => {
            let files = &mut plan.filesystem;
            plan.warnings
                .push(plan::scratch::in_memory_instead(files, &why));
            Ok(())
        }
    }
}

fn no_disk(plan: &Plan, why: String) -> RuntimeError {
    plan::PlanError::NoDisk {
        policy: plan.policy.name.to_string(),
        why,
    }
    .into()
}

/// The device rules of a node that has cgroup v2 alone.
fn device_program(spec: &Spec, decision: &Decision) -> Result<Option<Program>, RuntimeError> {
    let ruler = match &decision.plan {
        Some(_) => Ruler::Policy,
        None => Ruler::Engine,
    };
    Ok(devices::compile(spec, ruler)?)
}

/// What libcontainer and the sidecar name their cgroups; systemd removes its own.
fn cgroups(global: &Global, spec: &Spec, place: &Place) -> Vec<PathBuf> {
    let own = path::named(spec).filter(|_| !global.systemd_cgroup);
    let (parent, name) = wall::sidecar_cgroup(spec, place);
    own.into_iter().chain([parent.join(name)]).collect()
}

fn new_record(global: &Global, place: &Place, decision: &Decision) -> Record {
    let spec = &decision.bundle.spec;
    let process = spec.process().as_ref();
    let given = process.and_then(|p| p.capabilities().as_ref());
    Record {
        format: record::FORMAT,
        id: place.id.as_str().to_owned(),
        root: place.root.clone(),
        bundle: decision.bundle.dir.clone(),
        rootfs: decision.bundle.rootfs.clone(),
        cwd: spec
            .process()
            .as_ref()
            .map(|p| p.cwd().clone())
            .unwrap_or_default(),
        oci_version: spec.version().clone(),
        annotations: spec
            .annotations()
            .iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        hooks: Hooks::default(),
        systemd_cgroup: global.systemd_cgroup,
        capabilities: match &decision.plan {
            Some(plan) => plan.capabilities.clone(),
            None => CapabilitySets::of(given),
        },
        no_new_keyring: false,
        plan: decision.plan.clone(),
        chosen_by: decision.chosen_by.clone(),
        call: Call {
            policy: global.policy.clone(),
            config: std::path::absolute(config(global))
                .unwrap_or_else(|_| config(global).to_owned()),
        },
        overlay: false,
        init: None,
        cgroups: cgroups(global, spec, place),
        controllers: None,
        sidecar: None,
        filtered: decision.filter.is_some(),
        netns_cookie: None,
        engine_files: decision.engine_files.clone(),
        started: false,
    }
}

/// Writes the spec that libcontainer reads, now and at every `exec`, and the files of the network wall.
fn write_shadow(
    dir: &Path,
    decision: &Decision,
    rootfs: PathBuf,
    job: Option<&hooks::Job>,
) -> Result<(Spec, Option<Split>, KernelFiles), RuntimeError> {
    let places = Places { rootfs };
    let spec = decision.bundle.spec.clone();
    let mut split = None;
    let mut spec = match &decision.plan {
        Some(plan) => {
            let own = resolver::own_line(&decision.engine_files, &plan.network.own_names)?;
            write_whole(&dir.join("hosts"), files::hosts(&own).as_bytes())?;
            write_whole(
                &dir.join("resolv.conf"),
                files::resolv_conf(&plan.network).as_bytes(),
            )?;
            for name in ["hosts", "resolv.conf"] {
                let path = dir.join(name);
                let mode = rustix::fs::Mode::from_raw_mode(0o644);
                rustix::fs::chmod(&path, mode)
                    .map_err(RuntimeError::io(format!("chmod {path:?}")))?;
            }
            shadow::confined(spec, plan, &places)
        }
        None => {
            let mut spec = shadow::unconfined(spec, &places);
            split = Some(unconfined::split(&mut spec, &places.rootfs)?);
            spec
        }
    };
    let makes_nodes = split.as_ref().is_some_and(|s| s.left.makes_nodes());
    let thrown_away = decision
        .plan
        .as_ref()
        .is_some_and(|p| p.filesystem.root == RootAccess::Ephemeral);
    let more: &[Capability] = match (makes_nodes, thrown_away) {
        (true, _) => &[Capability::Mknod],
        // The kernel copies the image's files up with the rights of whoever mounted the overlay, and some of them have
        // capabilities or set-group-ID bits.
        (false, true) => &[Capability::Setfcap, Capability::Fsetid],
        (false, false) => &[],
    };
    if shadow::joins(&spec, LinuxNamespaceType::Pid) {
        joined_mount::replace(&mut spec);
    }
    let kernel = match &decision.plan {
        Some(_) => kernel_mounts::split(&mut spec, &places.rootfs)?,
        None => KernelFiles::default(),
    };
    if let Some(process) = spec.process_mut() {
        home::settle(process);
        if decision.plan.is_some() {
            own_oom_score(process);
        }
        let sets = process.capabilities().clone().unwrap_or_default();
        process.set_capabilities(Some(privileges::for_setup(&sets, more)));
        if decision.plan.is_some() {
            // The real one may lie in a mount that our own code makes, later than libcontainer enters it.
            process.set_cwd(PathBuf::from("/"));
        }
    }
    spec.set_hooks(job.map(hooks::Job::stand_in));
    save_json(&dir.join("config.json"), &spec)?;
    Ok((spec, split, kernel))
}

fn save_json(path: &Path, value: &impl serde::Serialize) -> Result<(), RuntimeError> {
    let text = serde_json::to_vec(value).map_err(|e| RuntimeError::Input {
        path: path.to_owned(),
        why: e.to_string(),
    })?;
    write_whole(path, &text)
}

/// Without `oomScoreAdj` a process inherits the runtime's score, which engines keep low. Under a policy use 0 instead, so
/// that the OOM killer does not choose the node's own programs first.
pub fn own_oom_score(process: &mut Process) {
    let inherited = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    if process.oom_score_adj().is_none() && inherited.starts_with('-') {
        process.set_oom_score_adj(Some(0));
    }
}

fn late_mounts(
    plan: &plan::FilesystemPlan,
    decision: &Decision,
    files: &Path,
    rootfs: &Path,
) -> Result<Vec<OwnMount>, RuntimeError> {
    let mounts = judged_mounts::prepare(plan, &decision.sources, files)?;
    if plan.root == RootAccess::ReadOnly {
        judged_mounts::make_mount_points(rootfs, plan, &mounts)?;
    }
    Ok(mounts)
}

/// What the container's process makes of its files.
struct Files {
    disk: Option<OwnedFd>,
    kernel: KernelFiles,
    late: Vec<OwnMount>,
    unfinished: Option<Setup>,
}

/// The ends of sockets and pipes that the container's process gets.
struct Ends {
    sidecar: Option<OwnedFd>,
    agent: Option<AgentSocket>,
    report: OwnedFd,
}

fn executor(
    decision: &Decision,
    record: &Record,
    ends: Ends,
    files: Files,
    relayed: bool,
) -> Result<WallExecutor, RuntimeError> {
    let spec = &decision.bundle.spec;
    let process = spec.process().as_ref();
    let first = FirstProcess {
        cwd: process.map(|p| p.cwd().clone()),
        die_with_parent: decision.wrapped,
        hooks: spec.hooks().clone().map(|hooks| (hooks, record.told())),
    };
    let common = |capabilities| Common {
        capabilities,
        report: ends.report,
        keep_newlines: relayed && process.and_then(|p| p.terminal()) == Some(true),
    };
    let filter = decision.filter.as_ref().map(SavedFilter::from);
    // As it is saved.
    let Some(plan) = &record.plan else {
        let given = process.and_then(|p| p.capabilities().as_ref());
        return Ok(WallExecutor::new(Walls::Unconfined(Box::new(Parity {
            common: common(CapabilitySets::of(given)),
            no_new_privs: process.and_then(|p| p.no_new_privileges()).unwrap_or(false),
            keyring: keyring(record),
            filter: filter.map(|filter| FilterWall::new(filter, ends.agent)),
            role: Role::Init(ParityInit {
                process: first,
                unfinished: files
                    .unfinished
                    .ok_or(EnforceError::Incomplete(Wall::Files))?,
                cgroup_read_only: cgroup_read_only(spec),
            }),
        }))));
    };
    let user_namespace = match has_user_namespace(spec) {
        true => UserNamespace::Own,
        false => UserNamespace::Nodes,
    };
    let (kernel, late, disk) = (files.kernel, files.late, files.disk);
    Ok(WallExecutor::new(Walls::Policy(Box::new(PolicyWalls {
        common: common(plan.capabilities.clone()),
        filter: FilterWall::planned(filter, ends.agent)?,
        role: Role::Init(InitWork {
            process: first,
            network: InnerNetwork::planned(plan, ends.sidecar)?,
            files: InitFiles::planned(plan, kernel, late, disk, user_namespace)?,
            plan: plan.clone(),
        }),
    }))))
}

/// Refuses capability sets that the kernel would refuse, before anything of the container runs.
pub fn refuse_contradiction(sets: &CapabilitySets) -> Result<(), RuntimeError> {
    match sets.contradiction() {
        Some((name, set, needs)) => Err(RuntimeError::Capability {
            name: name.to_owned(),
            set,
            needs,
        }),
        None => Ok(()),
    }
}

/// The session keyring of the processes of a container without a policy.
pub fn keyring(record: &Record) -> Keyring {
    match CString::new(format!("_ses.{}", record.id)) {
        Ok(_) if record.no_new_keyring => Keyring::Inherited,
        Ok(name) => Keyring::Named(name),
        Err(_) => Keyring::New,
    }
}

/// Whether the container gets a user namespace of its own.
pub fn has_user_namespace(spec: &Spec) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    namespaces
        .into_iter()
        .flatten()
        .any(|n| n.typ() == LinuxNamespaceType::User)
}

/// The engine's cgroup mount, if it asks for read-only.
fn cgroup_read_only(spec: &Spec) -> Option<PathBuf> {
    let mount = spec
        .mounts()
        .iter()
        .flatten()
        .find(|m| m.typ().as_deref().is_some_and(|t| t.starts_with("cgroup")))?;
    let asked = mount.options().iter().flatten().any(|o| o == "ro");
    asked.then(|| mount.destination().clone())
}

/// What `create` and `exec` tell libcontainer alike.
pub fn builder(
    place: &Place,
    executor: WallExecutor,
    stdio: Stdio,
    pid_file: Option<&Path>,
) -> Result<ContainerBuilder, LibcontainerError> {
    let mut builder = ContainerBuilder::new(place.id.as_str().to_owned(), SyscallType::default())
        .with_executor(executor)
        .with_root_path(&place.root)
        .and_then(|b| b.with_pid_file(pid_file))?;
    let [input, output, error] = stdio;
    if let Some(fd) = input {
        builder = builder.with_stdin(fd);
    }
    if let Some(fd) = output {
        builder = builder.with_stdout(fd);
    }
    if let Some(fd) = error {
        builder = builder.with_stderr(fd);
    }
    Ok(builder)
}

fn libcontainer_build(
    global: &Global,
    args: &cli::Create,
    streams: Streams<'_>,
    place: &Place,
    spec: &Spec,
    executor: WallExecutor,
) -> Result<Container, RuntimeError> {
    let process = spec.process().as_ref();
    let cwd = process.map(|p| p.cwd().clone()).unwrap_or_default();
    let failed = RuntimeError::process("create the container", &cwd);
    crate::log::keep_causes().map_err(RuntimeError::io("make a pipe"))?;
    fs::create_dir_all(&place.root).map_err(RuntimeError::io(format!("make {:?}", place.root)))?;
    let console = streams.console;
    let builder = match builder(place, executor, streams.stdio, args.pid_file.as_deref()) {
        Ok(builder) => builder,
        Err(e) => return Err(failed(e)),
    };
    let terminal = process.and_then(|p| p.terminal()).unwrap_or(false);
    if terminal && console.is_none() {
        return Err(RuntimeError::Unsupported(
            "process.terminal needs --console-socket".to_owned(),
        ));
    }
    builder
        .with_console_socket(console.filter(|_| terminal))
        .with_preserved_fds(args.preserve_fds)
        .as_init(place.dir())
        .with_systemd(global.systemd_cgroup)
        .with_detach(true)
        .with_no_pivot(args.no_pivot)
        .build()
        .map_err(failed)
}
