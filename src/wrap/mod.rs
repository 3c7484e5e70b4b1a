//! `agentbox wrap`: runs a command in a sandbox without an engine, an image or a bundle.
//!
//! The bundle is made from the node itself: an empty root, the system's directories and toolchains read-only, a listed
//! part of /etc, and the workspace. After that it is a container like any other: the same plan, the same walls.

mod accounts;
mod agents;
mod bundle;
mod cache_store;
mod caches;
mod closing;
mod command;
mod credentials;
mod denied_calls;
mod environment;
mod error;
mod git_signing;
mod landlock;
mod layout;
pub mod leftovers;
mod list;
mod machine_ports;
mod machine_sockets;
mod named;
mod own_file;
mod person;
mod planted;
mod proxy;
mod repository;
mod request;
mod script;
mod secrets;
pub mod settings;
mod sockets;
mod spec;
mod ssh_agent;
mod summary;
mod toolchain;
mod variable_files;
mod variables;
mod workspace;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

pub use self::error::{WrapRefusal, is_of_workspace, status_of};
pub use self::landlock::{LANDLOCK_LEAST_ABI, LANDLOCK_SCOPES_ABI};
pub use self::request::WrapRequest;
use crate::audit;
use crate::cli::{GlobalOptions, Walls};
use crate::plan::wrap_plan::{WrapEnforcement, WrapPlan};
use crate::policy::{
    Access, Field, MountRule, NetworkMode, ResolvedPolicy, Selection, SshFingerprint,
};
use crate::render::explain::LandlockWalls;
use crate::runtime::clock;
use crate::runtime::create::{self, BundleDecision, WrapParts};
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::foreground::{self, Attendance, FrontProcess, RunMode, tty};
use crate::runtime::input::node_files::{self, NodeFiles};
use crate::runtime::network::counted;
use crate::runtime::runs::RunDir;
use crate::runtime::unprivileged;
use crate::runtime::user_relay::UserSockets;
use agents::{Agent, AgentHome, ProgramPlaces};
use bundle::{BundleRoot, WrapBundle};
use cache_store::WorkspaceStore;
use caches::Caches;
use closing::{ClosingLine, RunOutcome};
use layout::{Layout, NodeView};
use person::Person;
use summary::DeniedSummary;

/// Refuses a node file of the caller's, or a file that it names, in a place that a sandbox can write. Trust by content,
/// as for policies, does not work here, since others read the file too.
fn check_config(global: &GlobalOptions, person: &Person) -> Result<()> {
    if global.config.is_none() {
        return Ok(());
    }
    let places = node_files::places(global)?;
    for place in places.hidden.into_iter().chain(places.public) {
        let closed = person.looking(|| settings::is_closed(person, &place))?;
        if !closed {
            bail!(WrapRefusal::ConfigNotClosed(place));
        }
    }
    Ok(())
}

/// The policy of a run without options, in a project without settings. An error here is an error of every such run.
///
/// # Errors
/// As those of [`run`] about settings, node files and the policy.
pub fn usual_policy(global: &GlobalOptions) -> Result<ResolvedPolicy> {
    let (person, asked) = WrapRequest::of_settings_alone()?;
    check_config(global, &person)?;
    let files = NodeFiles::of(global)?;
    confined(files.select(global, &Default::default(), &asked)?)
}

fn confined(selection: Selection) -> Result<ResolvedPolicy> {
    match selection {
        Selection::Unconfined { .. } => bail!(WrapRefusal::NoPolicy),
        Selection::Policy(resolved) => Ok(*resolved),
    }
}

/// Runs a command; returns how it ended.
pub fn run(global: &GlobalOptions, wanted: &WrapRequest) -> Result<ChildExit> {
    if wanted.walls == Walls::Namespaces {
        leftovers::sweep();
    }
    wanted.tell()?;
    check_config(global, &wanted.person)?;
    match wanted.walls {
        Walls::Namespaces => by_namespaces(global, wanted),
        Walls::Landlock => landlock::run(global, wanted),
    }
}

fn by_namespaces(global: &GlobalOptions, wanted: &WrapRequest) -> Result<ChildExit> {
    let base = records(global, wanted);
    let mut prepared = prepare(global, wanted, base)?;
    if let Some(agent) = &prepared.agent {
        agent.give(&wanted.person)?;
    }
    let signer = wanted.signer(&prepared.signs)?;
    let _kept = prepared.keep(wanted)?;
    let summary = wanted.named(summary::open(wanted))?;
    wanted.say_what_is_lacking();
    let may_connect = prepared.sockets.is_none();
    let mut refused = DeniedSummary::default();
    let (mut ended, mut killed, mut servers) = (None, 0, BTreeSet::new());
    let status = foreground::run(
        global,
        &prepared.bundle.create(),
        WrapParts {
            plan: &prepared.wrapped,
            secrets: &|secret| wanted.secret(secret),
        },
        RunMode::Delete,
        FrontProcess::Reaper(AgentHome::program_of(prepared.agent.as_ref())),
        Attendance {
            before_deletion: &mut |place, sidecar| {
                let run = RunDir::of(place);
                // Its last lines, of a container that has ended.
                if let Some(sidecar) = sidecar {
                    crate::sidecar::await_end(sidecar);
                }
                let logs = [audit::SIDECAR, audit::SSH].map(|log| run.file(log));
                refused = DeniedSummary::read(&logs).of_run(place.id.as_str(), wanted);
                ended = clock::ended(place);
                killed = counted::killed_for_memory(place);
            },
            keep: Some(settings::keep_for(&wanted.person, &wanted.workspace)),
            agent: signer,
            sockets: prepared.sockets.take(),
            proxy: wanted.proxy.named().map(|proxy| &proxy.url),
            servers: (prepared.agent.is_none() && !wanted.quiet).then_some(&mut servers),
        },
    );
    refused.tell(wanted, summary.as_ref())?;
    machine_ports::tell(&refused.ports, &prepared.wrapped.published);
    machine_ports::tell_lasting(&servers, &prepared.wrapped.published);
    let status = status?.unwrap_or(ChildExit::with(0));
    let outcome = RunOutcome {
        quiet: wanted.quiet,
        status: status.code,
        may_connect,
        without_network: prepared.without_network.as_deref(),
        denied: !refused.is_empty(),
        killed,
    };
    for line in outcome.lines() {
        match line {
            ClosingLine::MachineSockets => {
                let notice = "database-sockets";
                let (has_seen, is_new) =
                    (|| wanted.has_seen(notice), || wanted.is_first_time(notice));
                let leads_to = |socket: &_| wanted.leads_to(socket);
                let command = &wanted.command[0];
                machine_sockets::tell(status.code, command, leads_to, has_seen, is_new);
            }
            ClosingLine::WithoutNetwork(who) => {
                closing::without_network(who, &wanted.asked.answers)
            }
            ClosingLine::Killed(processes) => closing::killed_for_memory(processes),
        }
    }
    Ok(ended.map_or(status, closing::timed_out))
}

/// The plan that would be enforced. Of an agent only its empty directories are made, which the plan mounts.
pub struct WrapExplanation {
    /// The decision. It has no plan under Landlock walls, which enforce less than a plan says.
    pub decision: BundleDecision,
    /// The Landlock walls.
    pub landlock: Option<LandlockWalls>,
    /// What files of settings add.
    pub settings: Vec<String>,
}

impl From<BundleDecision> for WrapExplanation {
    fn from(decision: BundleDecision) -> Self {
        Self {
            decision,
            landlock: None,
            settings: Vec::new(),
        }
    }
}

/// What would be enforced for a command.
pub fn decide(global: &GlobalOptions, wanted: &WrapRequest) -> Result<WrapExplanation> {
    wanted.tell()?;
    check_config(global, &wanted.person)?;
    let explained = match wanted.walls {
        Walls::Landlock => landlock::decide(global, wanted)?,
        Walls::Namespaces => {
            let base = records(global, wanted);
            let prepared = prepare(global, wanted, base)?;
            let decision = create::decide(
                global,
                &prepared.bundle.dir,
                WrapParts::without_secrets(&prepared.wrapped),
                None,
            )?;
            WrapExplanation {
                settings: prepared.agent.map_or_else(Vec::new, |agent| agent.lines),
                ..decision.into()
            }
        }
    };
    let mut settings = wanted.from_files.clone();
    settings.extend(explained.settings);
    Ok(WrapExplanation {
        settings,
        ..explained
    })
}

fn records<'a>(global: &'a GlobalOptions, wanted: &'a WrapRequest) -> BundleRoot<'a> {
    BundleRoot::Records {
        root: &global.root,
        name: wanted.name.as_deref(),
    }
}

/// A bundle for a command, and how to run it.
struct PreparedRun {
    bundle: WrapBundle,
    wrapped: WrapPlan,
    /// The git configuration: the user's identity and the workspace.
    git: String,
    /// What an agent is given.
    agent: Option<AgentHome>,
    /// Keys of the user's SSH agent with which the workload signs.
    signs: BTreeSet<SshFingerprint>,
    /// Unix sockets of databases that it reaches.
    sockets: Option<UserSockets>,
    /// Who takes the whole network away, if it is taken away.
    without_network: Option<String>,
}

impl PreparedRun {
    /// Locks the kept cache files, if caches are kept and no other run in this workspace holds the lock.
    fn keep(&mut self, wanted: &WrapRequest) -> Result<Option<WorkspaceStore>> {
        let Some(place) = self.wrapped.kept.take() else {
            if wanted.caches == Caches::Kept && !wanted.quiet {
                crate::log::complain(&caches::none_kept(wanted)?);
            }
            return Ok(None);
        };
        let (person, caches) = (&wanted.person, &self.wrapped.caches);
        let kept = person.looking(|| WorkspaceStore::open(person, &place, caches))??;
        match &kept {
            Some(kept) => self.wrapped.kept = Some(kept.dir.clone()),
            None if wanted.quiet => {}
            None => crate::log::complain(
                "agentbox: another run in this workspace keeps its caches: this run's writes to them are discarded",
            ),
        }
        Ok(kept)
    }
}

/// Makes the bundle.
fn prepare(
    global: &GlobalOptions,
    wanted: &WrapRequest,
    base: BundleRoot<'_>,
) -> Result<PreparedRun> {
    let person = &wanted.person;
    let selection = node_files::selection(global, &Default::default(), &wanted.asked);
    let way_out = wanted.agent.as_ref().and_then(Agent::way_out);
    let resolved = confined(match way_out {
        Some(way_out) => selection.context(way_out)?,
        None => selection?,
    })?;
    secrets::tell(wanted, &resolved);
    proxy::tell(wanted, &resolved);
    let mut environment = person.looking(|| environment::passed(wanted, &resolved.policy))??;
    let mut layout = person.looking(|| layout(wanted, &resolved, &mut environment))??;
    let sockets = wanted.sockets(&resolved, &mut layout)?;
    let missing =
        person.looking(|| environment::missing_sockets(&environment, &layout, wanted.walls))?;
    for line in missing.iter().filter(|_| !wanted.quiet) {
        crate::log::complain(line);
    }
    let signs = git_signing::signing_keys(&resolved);
    layout.git += &environment::git_signing(wanted, &signs)?;
    workspace::check_state(&layout)?;
    let bundle = WrapBundle::new(&layout, person, base)?;
    let stdio = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    let command = spec::Command {
        args: &wanted.command,
        environment,
        person,
        terminal: (stdio.into_iter())
            .all(rustix::termios::isatty)
            .then(tty::callers_size),
        id: &bundle.id,
        cgroup: unprivileged::cgroup().unwrap_or_else(|| PathBuf::from("/")),
    };
    bundle.write(&spec::build(&layout, &command)?)?;
    Ok(PreparedRun {
        bundle,
        wrapped: WrapPlan {
            by: match wanted.walls {
                Walls::Namespaces => WrapEnforcement::Mounts,
                Walls::Landlock => WrapEnforcement::Rules,
            },
            published: wanted.published(),
            ..layout.wrapped(wanted.asked.clone())
        },
        agent: layout.agent.take(),
        git: layout.git,
        signs,
        sockets,
        without_network: without_network(&resolved),
    })
}

fn without_network(resolved: &ResolvedPolicy) -> Option<String> {
    let origin = resolved.origins.get(&Field::NetworkMode);
    let is_none = resolved.policy.network.mode == NetworkMode::None;
    is_none.then(|| origin.map_or_else(|| "the policy".to_owned(), ToString::to_string))
}

/// The visible parts of the node. Call it with the user's rights over files.
fn layout(
    wanted: &WrapRequest,
    resolved: &ResolvedPolicy,
    environment: &mut Vec<String>,
) -> Result<Layout> {
    let WrapRequest { list, person, .. } = wanted;
    let shown = match resolved.policy.filesystem.mounts {
        MountRule::Keep => NodeView::Home,
        MountRule::Drop | MountRule::ReadOnly | MountRule::Volumes => NodeView::Listed,
    };
    let mut layout = Layout::of(list, &wanted.workspace, environment, shown);
    layout.cwd = wanted.cwd.clone();
    if wanted.walls == Walls::Namespaces && unprivileged::inside().is_some() {
        layout.check_home(resolved.policy.name.as_str())?;
    }
    layout.add_repository(person);
    wanted.named(layout.add_named(wanted, resolved))?;
    layout.masked.extend(agents::outside::logins(person));
    layout.masked.extend(settings::agents_homes(person));
    if let Some(agent) = &wanted.agent {
        let home = agent.home(wanted, resolved, &layout)?;
        layout.add_agent(home, wanted.walls, environment);
    }
    if wanted.caches != Caches::Hidden && wanted.walls == Walls::Namespaces {
        layout.add_caches(&list.caches, resolved);
        if wanted.caches == Caches::Kept && !layout.caches.is_empty() {
            layout.kept = Some(cache_store::place(person, &wanted.workspace)?);
        }
    }
    layout.check_venvs()?;
    environment::add_toolchains(environment, list, &layout);
    command::check(&wanted.command[0], &layout.path, &layout)?;
    layout.settle();
    if wanted.walls == Walls::Namespaces {
        layout.close_settings(&wanted.included);
    }
    if resolved.policy.filesystem.workspace == Access::ReadWrite {
        let written = layout.written.iter().chain([&layout.workspace]);
        settings::refuse_written(person, written.clone())?;
        ProgramPlaces::of(person, list, written.cloned().collect()).refuse_written()?;
    }
    Ok(layout)
}
