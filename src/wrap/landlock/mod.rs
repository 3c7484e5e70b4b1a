//! `agentbox wrap --walls landlock`: walls for systems where users cannot make namespaces.
//!
//! It uses only the decision of `create`: the same policy becomes the same plan. The plan becomes Landlock rules
//! (landlock(7)), a filter with a listener, and a proxy.
//!
//! ```text
//! wrap: decide -> place (HOME, TMPDIR) -> proxy's listener -> ruleset, filter
//!   +-- sidecar::bare   the proxy: no file, no capability, its own Landlock and filter
//!   +-- the command     [`enforce`]: capabilities, no_new_privs, Landlock, filter, execve
//!   supervise: answers the listener (a socket on the loopback, a server at a published port, a pseudo-terminal, a
//!              change of a file's attributes), passes signals on, waits
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | [`rules`], [`cannot`] | PURE: the rules; what these walls lack, and the policies refused for it |
//! | [`split`] | rules around hidden paths |
//! | [`describe`] | the walls for `explain` |
//! | [`place`] | the directory of the run |
//! | [`filter`] | the filter and its profile |
//! | [`proxy`] | the proxy: its port, and its process |
//! | [`streams`] | the caller's input and output |
//! | [`start`], [`enforce`] | the command's process, from outside and inside |
//! | [`clock`] | the second keeper of the time limit |
//! | [`supervise`], [`attributes`], [`servers`], [`terminals`], [`caller`] | answers to the listener |
//! | [`loopback`] | the command's sockets |
//! | [`refused`] | the closing lines about servers and connections |
//! | [`yama`] | what Yama forbids to this process |
//! | [`unkept`] | why this kernel, Yama or the filter cannot keep a policy |

mod attributes;
mod caller;
mod cannot;
mod clock;
mod describe;
mod domain;
mod enforce;
mod filter;
mod loopback;
mod place;
mod proxy;
mod refused;
mod rules;
mod servers;
mod split;
mod start;
mod streams;
mod supervise;
mod terminals;
mod unkept;
mod yama;

use std::path::Path;

use anyhow::{Context, Result, bail};
use oci_spec::runtime::Process;

use super::bundle::BundleRoot;
use super::caches::Caches;
use super::closing::{self, ClosingLine, RunOutcome};
use super::error::WrapRefusal;
use super::person::Person;
use super::prepare;
use super::request::WrapRequest;
use super::summary::{self, DeniedSummary};
use crate::cli::GlobalOptions;
use crate::enforce::{capabilities, privileges};
use crate::plan::time::EndCause;
use crate::plan::{CapabilitySets, DecidedPlan, Plan, process as planned};
use crate::policy::Capability;
use crate::runtime::create::{self, BundleDecision, WrapParts};
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::input::node_files;
use crate::runtime::network::reading::{RequestSetup, UserSecretReader};
use crate::runtime::network::upstream;
use crate::sidecar::Proxy;
use crate::sys::file_size;
use crate::sys::open_files;
use crate::sys::path::RealPaths;
use crate::sys::process;
pub use cannot::{LANDLOCK_LEAST_ABI, LANDLOCK_SCOPES_ABI};
pub use describe::decide;
use enforce::{LandlockCommand, LandlockSetup};
use place::{OWN_VARIABLES, RunHome, RunTempDir};
use proxy::ProxyParts;
use refused::RefusedPorts;
use servers::PublishedPorts;
use supervise::{CommandLimit, Supervisor};
use terminals::PseudoTerminals;
use yama::PtraceScope;

/// Root's rights over files that no namespace limits here, as far as the policy allows: files of any owner in the
/// workspace are writable.
const OVER_FILES: [&str; 4] = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID"];

/// Runs a command; returns its exit status.
pub fn run(global: &GlobalOptions, wanted: &WrapRequest) -> Result<ChildExit> {
    streams::check()?;
    enforce::try_to_listen()?;
    let place = RunTempDir::new(&wanted.person)?;
    let mut decided = decide_in(&place, global, wanted, &|secret| wanted.secret(secret))?;
    let summary = wanted.named(summary::open(wanted))?;
    if let Some(agent) = &decided.home.agent {
        agent.give(&wanted.person)?;
    }
    // The node's file may be root's alone.
    let upstream = upstream(global, &decided.decision, wanted)?;
    become_the(&wanted.person)?;
    if !wanted.quiet {
        describe::say_what_is_lacking(decided.decision.decided.as_ref(), &wanted.person, abi()?);
    }
    let without_network = decided.without_network.take();
    let refused = RefusedPorts::default();
    let ended = run_decided(&place, decided, upstream, &refused);
    DeniedSummary::read(&[place.journal_path()]).tell(wanted, summary.as_ref())?;
    refused.tell();
    let (status, cause) = ended?;
    let outcome = RunOutcome {
        quiet: wanted.quiet,
        status: status.code,
        may_connect: false,
        without_network: without_network.as_deref(),
        denied: false,
        killed: 0,
    };
    for line in outcome.lines() {
        if let ClosingLine::WithoutNetwork(who) = line {
            closing::without_network(who, &wanted.asked.answers);
        }
    }
    Ok(cause.map_or(status, closing::timed_out))
}

/// The proxy to the internet: the node's, or the user's.
fn upstream(
    global: &GlobalOptions,
    decision: &BundleDecision,
    wanted: &WrapRequest,
) -> Result<Option<Proxy>> {
    let Some(plan) = decision.plan() else {
        return Ok(None);
    };
    let of_user = wanted.proxy.named().map(|proxy| &proxy.url);
    let config = node_files::config(global);
    Ok(upstream::find(config, &plan.network, of_user)?)
}

/// Returns the command's end, and the cause if its time was over.
fn run_decided(
    place: &RunTempDir,
    DecidedRun { decision, home, .. }: DecidedRun,
    upstream: Option<Proxy>,
    refused: &RefusedPorts,
) -> Result<(ChildExit, Option<EndCause>)> {
    let decided = decision.decided.context("a policy is chosen")?;
    let RequestSetup { reading, trust } = decision.given;
    let terminals = streams::terminals();
    let mut plan = decided.plan.clone();
    unkept::refuse_honey_that_ends(&plan)?;
    // Held until the proxy has its port, so that it gets another one.
    let reserved = servers::reserve(&plan.network.inbound)?;
    let proxy = proxy::listen(&mut plan)?;
    drop(reserved);
    let rules = split::rules(&plan, &place.own()?, &terminals, &RealPaths::default())?;
    let abi = abi()?;
    if let Some(trust) = &trust {
        place.keep_trust(trust)?;
    }
    let command = command(&decision.bundle.spec, &plan, place, &home)?;
    let capabilities = capabilities(&plan)?;
    let open = proxy::ports(&plan, proxy.as_ref());
    let mut walls = LandlockSetup {
        ruleset: enforce::ruleset(&rules, &open, abi)?,
        filter: filter::compile(&plan)?,
        capabilities: capabilities.clone(),
        domain: None,
        stdio: Default::default(),
    };
    // The rules hold the files from here on, and the command gets the caller's limit.
    drop(decision.sources);
    open_files::give_back(None).context("set the limit of descriptors")?;
    file_size::give_back(None).context("set the limit of a file's size")?;
    // This process acts for the command, so it gets no more rights than the command.
    privileges::drop_to(&capabilities)?;
    let published = PublishedPorts::new(plan.network.inbound.clone())?;
    // Again with the rights that are left: root may lose its right to ports below 1024.
    drop(servers::reserve(&plan.network.inbound)?);
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("take the command's orphans")?;
    let (clients, theirs) = proxy::clients()?;
    let parts = proxy.map(|listener| ProxyParts {
        listener,
        clients: theirs,
        reading,
        upstream,
    });
    let sidecar = match parts {
        Some(parts) => proxy::serve(&decided, &plan, place, parts)?,
        None => None,
    };
    let signals = supervise::signals()?;
    let limit = plan.time.map(CommandLimit::begin).transpose()?;
    let domain = domain::prepare(plan.time, abi, &mut walls)?;
    let relay = streams::relay(&mut walls)?;
    let (child, listener) = start::start(walls, &command)?;
    let supervisor = Supervisor {
        listener,
        command: child,
        sidecar,
        clients,
        signals,
        writable: split::writable(&rules),
        published,
        open: open.into_iter().collect(),
        refused,
        terminals: PseudoTerminals::default(),
        relay,
        limit,
        domain,
    };
    supervisor.finish()
}

/// Decides with the caller's rights, so that hidden paths include those that only root can see.
fn decide_in(
    place: &RunTempDir,
    global: &GlobalOptions,
    wanted: &WrapRequest,
    secrets: UserSecretReader<'_>,
) -> Result<DecidedRun> {
    if let Some(why) = refused_option(wanted.name.as_deref(), wanted.caches) {
        bail!(WrapRefusal::NotByLandlock(why.to_owned()));
    }
    let bundle = place.bundle();
    // The user may exchange what is in the run's directory, and here root writes by path.
    let base = match wanted.person.is_caller() {
        true => BundleRoot::Run(&bundle),
        false => super::records(global, wanted),
    };
    let prepared = prepare(global, wanted, base)?;
    let dir = &prepared.bundle.dir;
    let parts = WrapParts {
        plan: &prepared.wrapped,
        secrets,
    };
    let decision = create::decide(global, dir, parts, None)?;
    if let Some(decided) = &decision.decided {
        check(decided, place)?;
    }
    // Dropping `prepared` removes the bundle, while this process still has the rights that made it.
    Ok(DecidedRun {
        decision,
        home: RunHome {
            git: prepared.git,
            agent: prepared.agent,
        },
        without_network: prepared.without_network,
    })
}

/// Why an option of `wrap` has no meaning with these walls.
fn refused_option(name: Option<&str>, caches: Caches) -> Option<&'static str> {
    match (name, caches) {
        (Some(_), _) => {
            Some("--name is for other commands, which find no record of such a run: leave it out")
        }
        (None, Caches::Kept) => Some(
            "caches are shown by mounts: leave --keep-caches out, or caches = \"keep\" of the settings",
        ),
        (None, Caches::Private | Caches::Hidden) => None,
    }
}

/// The results of the preparations, once judged.
struct DecidedRun {
    decision: BundleDecision,
    home: RunHome,
    /// Who takes the whole network away, if it is taken away.
    without_network: Option<String>,
}

fn ptrace_scope() -> PtraceScope {
    PtraceScope::read(Path::new(yama::SETTING))
}

fn abi() -> Result<u32> {
    process::landlock_abi().context("ask for the Landlock ABI")
}

/// Refuses what these walls cannot enforce.
fn check(decided: &DecidedPlan, place: &RunTempDir) -> Result<()> {
    if let Some(why) = unkept::refusal(decided, abi()?, ptrace_scope()) {
        bail!(WrapRefusal::NotByLandlock(why));
    }
    let real = RealPaths::default();
    let rules = split::rules(&decided.plan, &[], &[], &real)?;
    place.check_outside(&rules)?;
    split::check(&decided.plan, &rules, &real)
}

/// Changes to the user behind sudo, with their own groups. Without sudo it changes nothing.
fn become_the(person: &Person) -> Result<()> {
    if person.is_caller() {
        return Ok(());
    }
    crate::sys::user::set_groups(&person.groups).context("take the groups of the person")?;
    let (uid, gid) = (person.uid.into(), person.gid.into());
    let step = || format!("become {}", person.name());
    nix::unistd::setresgid(gid, gid, gid).with_context(step)?;
    nix::unistd::setresuid(uid, uid, uid).with_context(step)
}

/// The command to execute, and its directory.
fn command(
    spec: &oci_spec::runtime::Spec,
    plan: &Plan,
    place: &RunTempDir,
    content: &RunHome,
) -> Result<LandlockCommand> {
    let asked: &Process = spec
        .process()
        .as_ref()
        .context("the bundle has a process")?;
    let confined = planned::confine(asked.clone(), plan);
    let mut environment = confined.env().clone().unwrap_or_default();
    let (home, temporary) = (place.home(), place.temporary());
    // The system's git configuration is not visible under these walls.
    environment.retain(|entry| !entry.starts_with("GIT_CONFIG_SYSTEM="));
    environment.push("GIT_CONFIG_NOSYSTEM=1".to_owned());
    place.fill_home(content, &mut environment)?;
    place.lead_to_trust(&mut environment);
    for name in OWN_VARIABLES {
        let value = if name == "HOME" { &home } else { &temporary };
        environment.retain(|entry| entry.split('=').next() != Some(name));
        environment.push(format!("{name}={}", value.display()));
    }
    let directory = asked.cwd().clone();
    std::env::set_current_dir(&directory).with_context(|| format!("enter {directory:?}"))?;
    let arguments = asked.args().clone().unwrap_or_default();
    let name = arguments.first().context("there is a command")?;
    let found = content.program().find(name, &environment);
    Ok(LandlockCommand {
        file: found.map_err(start::not_executed)?,
        arguments,
        environment,
        directory,
    })
}

/// Whether these walls set a variable themselves.
pub fn sets(variable: &str) -> bool {
    OWN_VARIABLES.contains(&variable) || GIT_VARIABLES.contains(&variable)
}

/// Variables for the system's git configuration, which is not visible: the run's own is in its HOME.
const GIT_VARIABLES: [&str; 2] = ["GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];

/// The command's capabilities: the caller's rights over files, as far as the policy allows.
fn capabilities(plan: &Plan) -> Result<CapabilitySets> {
    let now = capabilities::current()?;
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
        // A bounding set that cannot be reduced grants nothing, because of no_new_privs.
        bounding: if may_drop { left.clone() } else { now.bounding },
        effective: left.clone(),
        permitted: left,
        ..CapabilitySets::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_for_records_and_mounts_are_refused_by_name() {
        for caches in [Caches::Private, Caches::Hidden] {
            assert_eq!(refused_option(None, caches), None);
        }
        let kept = refused_option(None, Caches::Kept).unwrap();
        assert!(kept.contains("--keep-caches"), "{kept}");
        for caches in [Caches::Private, Caches::Kept, Caches::Hidden] {
            let named = refused_option(Some("mine"), caches).unwrap();
            assert!(named.starts_with("--name"), "{named}");
        }
    }
}
