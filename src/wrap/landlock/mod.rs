//! `agentbox wrap --walls landlock`: walls where nobody may make a namespace.
//!
//! Nothing of `create` is used but its decision: the same policy becomes the same plan, and the plan becomes rules of Landlock
//! (landlock(7)), a filter with a listener, and a proxy.
//!
//! ```text
//! wrap: decide -> place (HOME, TMPDIR) -> proxy's listener -> ruleset, filter
//!   +-- sidecar::bare   the proxy: no file, no capability, its own Landlock and filter
//!   +-- the command     [`enforce`]: capabilities, no_new_privs, Landlock, filter, execve
//!   supervise: answers the listener (a socket on the loopback, a change of a file's attributes), passes signals on, waits
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | [`rules`], [`cannot`] | PURE: the rules; what is lacking, and what is refused for it |
//! | [`split`] | the rules around what is hidden |
//! | [`describe`] | the walls for `explain` |
//! | [`place`] | the directory of the run |
//! | [`filter`] | the filter and its profile |
//! | [`streams`] | the caller's input and output |
//! | [`start`], [`enforce`] | the command's process, from outside and inside |
//! | [`supervise`], [`attributes`], [`caller`] | answers to the listener |

mod attributes;
mod caller;
mod cannot;
mod describe;
mod enforce;
mod filter;
mod place;
mod rules;
mod split;
mod start;
mod streams;
mod supervise;

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use oci_spec::runtime::Process;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::PidfdFlags;

use super::bundle::BundleRoot;
use super::caches::Caches;
use super::person::Person;
use super::summary::{self, DeniedSummary};
use super::wanted::WrapRequest;
use super::{WrapRefusal, prepare};
use crate::cli::GlobalOptions;
use crate::egress::names::Families;
use crate::enforce::{privileges, program};
use crate::plan::{CapabilitySets, DecidedPlan, Plan, process as planned};
use crate::policy::{Capability, NetworkMode};
use crate::runtime::create::{self, BundleDecision};
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::input::node_files;
use crate::runtime::network::reading::RequestSetup;
use crate::runtime::network::{resolver, upstream};
use crate::sidecar::{EngineNetworks, ReaderConfig, ServingConfig, SidecarRlimits, bare};
use crate::sys::{process, socket};
pub use cannot::{LANDLOCK_LEAST_ABI, LANDLOCK_SCOPES_ABI};
pub use describe::decide;
use enforce::{LandlockCommand, LandlockSetup};
use place::{OWN_VARIABLES, RunTempDir};
use supervise::Supervisor;

/// Root's rights over files that its namespaces do not bound here, as far as the policy leaves them: what is in the
/// workspace is written whoever owns it.
const OVER_FILES: [&str; 4] = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"];

/// Runs a command; its exit status.
pub fn run(global: &GlobalOptions, wanted: &WrapRequest) -> Result<ChildExit> {
    streams::refuse_sockets()?;
    enforce::try_to_listen()?;
    let place = RunTempDir::new(&wanted.person)?;
    let decided = decide_in(&place, global, wanted)?;
    let summary = summary::open(wanted)?;
    become_the(&wanted.person)?;
    let ended = run_decided(&place, global, decided.decision, &decided.git);
    DeniedSummary::read(&place.journal_path()).tell(wanted, summary.as_ref())?;
    ended
}

fn run_decided(
    place: &RunTempDir,
    global: &GlobalOptions,
    decision: BundleDecision,
    git: &str,
) -> Result<ChildExit> {
    let decided = decision.decided.context("a policy is chosen")?;
    let RequestSetup { reading, trust } = decision.given;
    let terminals = streams::terminals();
    let mut plan = decided.plan.clone();
    if plan.network.honey_ends() {
        bail!(
            "a honey value of the node's file ends a container (then = \"end\"), and with --walls landlock there is none to end: \
             use other walls, or then = \"log\""
        );
    }
    let proxy = listen(&mut plan)?;
    let rules = split::rules(&plan, &place.own(), &terminals)?;
    let abi = abi()?;
    if let Some(trust) = &trust {
        place.keep_trust(trust)?;
    }
    let command = command(&decision.bundle.spec, &plan, place, git)?;
    let capabilities = capabilities(&plan)?;
    let walls = LandlockSetup {
        ruleset: enforce::ruleset(&rules, proxy.as_ref().map(|_| plan.network.proxy_port), abi)?,
        filter: filter::compile(&plan)?,
        capabilities: capabilities.clone(),
    };
    // Whoever answers in the command's place has no more rights than it.
    privileges::drop_to(&capabilities)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("take the command's orphans")?;
    let (clients, theirs) = clients()?;
    let sidecar = proxy
        .map(|listener| {
            let parts = ProxyParts {
                listener,
                clients: theirs,
                reading,
            };
            serve(global, &decided, &plan, place, parts)
        })
        .transpose()?;
    say_what_is_lacking(&decided, abi);
    let signals = supervise::signals()?;
    let (child, listener) = start::start(walls, &command)?;
    let supervisor = Supervisor {
        listener,
        command: child,
        sidecar,
        clients,
        signals,
        writable: writable(&rules),
    };
    let ended = supervisor.run();
    if !supervise::end_the_rest() {
        log::warn!("processes of the command go on, behind the walls: look for them with `ps`");
    }
    ended
}

/// As whoever called: what root alone may see of the node counts for what is hidden.
fn decide_in(
    place: &RunTempDir,
    global: &GlobalOptions,
    wanted: &WrapRequest,
) -> Result<DecidedRun> {
    if wanted.name.is_some() {
        let why = "--name is for other commands, which find no record of such a run: leave it out";
        bail!(WrapRefusal::NotByLandlock(why.to_owned()));
    }
    if wanted.caches == Caches::Kept {
        let why = "caches are shown by mounts: leave --keep-caches out, or caches = \"keep\" of the settings";
        bail!(WrapRefusal::NotByLandlock(why.to_owned()));
    }
    let prepared = prepare(global, wanted, BundleRoot::Run(&place.bundle()))?;
    let dir = &prepared.bundle.dir;
    let decision = create::decide(global, dir, &prepared.wrapped, None)?;
    if let Some(decided) = &decision.decided {
        check(decided, place)?;
    }
    // With it goes the bundle, which was made with the rights that are left here.
    Ok(DecidedRun {
        decision,
        git: prepared.git,
    })
}

/// What is left of the preparations when they have been judged.
struct DecidedRun {
    decision: BundleDecision,
    git: String,
}

fn abi() -> Result<u32> {
    process::landlock_abi().context("ask for the Landlock ABI")
}

/// Refuses what would not hold.
fn check(decided: &DecidedPlan, place: &RunTempDir) -> Result<()> {
    if let Some(why) = cannot::refusal(decided, abi()?) {
        bail!(WrapRefusal::NotByLandlock(why));
    }
    let denied = filter::denied_anyway(&decided.plan);
    if let Some(name) = denied.first() {
        let why = format!("syscalls.allow has {name}, which would undo a wall here");
        bail!(WrapRefusal::NotByLandlock(why));
    }
    let rules = split::rules(&decided.plan, &[], &[])?;
    place.check_outside(&rules)?;
    split::check(&decided.plan, &rules)
}

/// The person behind sudo, with their own groups; without sudo this changes nothing.
fn become_the(person: &Person) -> Result<()> {
    if person.uid == rustix::process::getuid().as_raw() {
        return Ok(());
    }
    crate::sys::user::set_groups(&person.groups).context("take the groups of the person")?;
    let (uid, gid) = (person.uid.into(), person.gid.into());
    let step = || format!("become {}", person.name());
    nix::unistd::setresgid(gid, gid, gid).with_context(step)?;
    nix::unistd::setresuid(uid, uid, uid).with_context(step)
}

/// The proxy's port, which the kernel chooses: nobody else listens there.
fn listen(plan: &mut Plan) -> Result<Option<OwnedFd>> {
    if plan.network.mode != NetworkMode::Allowlist {
        plan.network.proxy_env = false;
        return Ok(None);
    }
    let step = "listen on the loopback for the proxy";
    let listener = TcpListener::bind("127.0.0.1:0").context(step)?;
    listener.set_nonblocking(true).context(step)?;
    plan.network.proxy_port = listener.local_addr().context(step)?.port();
    plan.network.ports.clear();
    Ok(Some(listener.into()))
}

/// Where the proxy is told of the command's sockets. A proxy that hears nothing for so long makes no call wait for ever.
fn clients() -> Result<(OwnedFd, OwnedFd)> {
    const HEARD_WITHIN: Duration = Duration::from_secs(5);
    let step = "make a socket pair";
    let (ours, theirs) = socket::pair().context(step)?;
    set_socket_timeout(&ours, Timeout::Send, Some(HEARD_WITHIN)).context(step)?;
    Ok((ours, theirs))
}

/// The descriptors and the configuration that the proxy gets.
struct ProxyParts {
    listener: OwnedFd,
    clients: OwnedFd,
    reading: Option<ReaderConfig>,
}

/// Starts the proxy.
fn serve(
    global: &GlobalOptions,
    decided: &DecidedPlan,
    plan: &Plan,
    place: &RunTempDir,
    ProxyParts {
        listener,
        clients,
        reading,
    }: ProxyParts,
) -> Result<OwnedFd> {
    let network = &plan.network;
    let planned = network.upstream.as_ref();
    let proxy = planned
        .map(|planned| upstream::find(node_files::config(global), planned))
        .transpose()?;
    // Wiped before anybody is forked.
    let reading = reading.map(|reading| reading.to_file());
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    let served = bare::spawn(bare::BareSidecar {
        serving: ServingConfig {
            rules: network.rules.clone(),
            secrets: network.secrets.iter().map(Into::into).collect(),
            honey: network.honey.clone(),
            opened: network.opened.clone(),
            audited: None,
            asking: None,
            budget: network.budget,
            container: String::new(),
            context: place.context(decided),
            own_names: Vec::new(),
            ports: Some(Vec::new()),
            inbound: Default::default(),
            published: Default::default(),
            leads_nowhere: Default::default(),
            families: Families::V4,
            services: network.services.clone(),
            engine_networks: EngineNetworks::Closed,
            refusing: false,
        },
        names: resolver::names_of_the_node(proxy)?,
        reading: reading.transpose().context("write the reader's input")?,
        listener,
        clients,
        journal: place.journal()?.into(),
        shows: plan.report.denied,
        guarded: own.context("open our own pidfd")?,
        limits: SidecarRlimits {
            open_files: plan.sidecar.files,
            file_bytes: crate::audit::quota::MOST_BYTES + (1 << 20),
        },
    });
    served.context("start the network's proxy")
}

/// What is executed, and where.
fn command(
    spec: &oci_spec::runtime::Spec,
    plan: &Plan,
    place: &RunTempDir,
    git: &str,
) -> Result<LandlockCommand> {
    let asked: &Process = spec
        .process()
        .as_ref()
        .context("the bundle has a process")?;
    let confined = planned::confine(asked.clone(), plan);
    let mut environment = confined.env().clone().unwrap_or_default();
    let (home, temporary) = (place.home(), place.temporary());
    // Of the system's configuration, where it is with mounts, nothing is shown.
    environment.retain(|entry| !entry.starts_with("GIT_CONFIG_SYSTEM="));
    environment.push("GIT_CONFIG_NOSYSTEM=1".to_owned());
    std::fs::write(home.join(".gitconfig"), git).context("write the configuration of git")?;
    place.lead_to_trust(&mut environment);
    for name in OWN_VARIABLES {
        let value = match name {
            "HOME" => &home,
            _ => &temporary,
        };
        environment.retain(|entry| entry.split('=').next() != Some(name));
        environment.push(format!("{name}={}", value.display()));
    }
    let directory = asked.cwd().clone();
    std::env::set_current_dir(&directory).with_context(|| format!("enter {directory:?}"))?;
    let arguments = asked.args().clone().unwrap_or_default();
    let name = arguments.first().context("there is a command")?;
    Ok(LandlockCommand {
        file: program::find(name, &environment).map_err(start::not_executed)?,
        arguments,
        environment,
        directory,
    })
}

/// Whether these walls give a variable a value of their own.
pub fn sets(variable: &str) -> bool {
    OWN_VARIABLES.contains(&variable) || GIT_VARIABLES.contains(&variable)
}

/// By which git finds the system's configuration, of which nothing is shown: the run's own is in its HOME.
const GIT_VARIABLES: [&str; 2] = ["GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// What the command may have: of its caller's rights those over files, as far as the policy leaves them.
fn capabilities(plan: &Plan) -> Result<CapabilitySets> {
    let now = privileges::current()?;
    let over_files = |c: &&Capability| {
        OVER_FILES.contains(&c.as_str())
            && now.permitted.contains(*c)
            && plan.capability_limit.contains(*c)
    };
    let left: std::collections::BTreeSet<Capability> = plan
        .capabilities
        .permitted
        .iter()
        .filter(over_files)
        .cloned()
        .collect();
    let may_drop = now.effective.iter().any(|c| c.as_str() == "CAP_SETPCAP");
    Ok(CapabilitySets {
        // Who may not take from it gains nothing by it: no_new_privs.
        bounding: if may_drop { left.clone() } else { now.bounding },
        effective: left.clone(),
        permitted: left,
        ..CapabilitySets::default()
    })
}

fn writable(rules: &[rules::LandlockRule]) -> Vec<PathBuf> {
    let writable = rules.iter().filter(|rule| rule.access.writes());
    // As the kernel names what is opened there.
    writable
        .map(|rule| {
            rule.path
                .canonicalize()
                .unwrap_or_else(|_| rule.path.clone())
        })
        .collect()
}

/// One line on a terminal: nobody is to take these walls for the full ones.
fn say_what_is_lacking(decided: &DecidedPlan, abi: u32) {
    if rustix::termios::isatty(rustix::stdio::stderr()) {
        crate::log::complain(&format!(
            "agentbox: walls of Landlock (ABI {abi}), policy {}: no namespaces, so paths are refused rather than absent, /tmp and /dev/shm \
             are closed, other processes are seen, no limits hold; `agentbox explain --walls landlock` has the whole list",
            decided.resolved.name
        ));
    }
}
