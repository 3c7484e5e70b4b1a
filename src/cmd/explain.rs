//! `explain`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Explain, GlobalOptions};
use crate::cmd::{explain_syscalls, explain_wrap, out};
use crate::plan::time::TimeLeft;
use crate::plan::wrap_plan::WrapPlan;
use crate::policy::Tool;
use crate::render::explain::{self, ExplainedContainer, PageLength};
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::clock;
use crate::runtime::create::{self, WrapParts};
use crate::runtime::filter;
use crate::runtime::network::control;
use crate::runtime::runs::{FILTER, read};
use crate::runtime::state::decision::SavedDecision;
use crate::runtime::state::find;
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::seccomp::FilterProgram;
use crate::wrap::WrapExplanation;

/// Shows the walls of a container, a bundle or `wrap`.
pub fn run(global: &GlobalOptions, args: &Explain) -> Result<ExitCode> {
    let (subject, program) = match (&args.bundle, &args.id) {
        (Some(bundle), _) => {
            let decision = create::decide(
                global,
                bundle,
                WrapParts::without_secrets(&WrapPlan::default()),
                None,
            )?;
            with_program(
                format!("bundle {}", decision.bundle.dir.display()),
                Tool::default(),
                decision.into(),
            )
        }
        (None, None) => {
            let (name, explained) = explain_wrap::decide(global, args)?;
            with_program(name, Tool::Wrap, explained)
        }
        (None, Some(id)) => {
            let KnownContainer {
                mut record,
                identity,
                filter: filter_file,
            } = match looked_up(id)? {
                Ok(found) => found,
                Err(code) => return Ok(code),
            };
            let place = ContainerPaths::new(&record.root, &record.id)?;
            govern(&mut record);
            let left = clock::left(&place, &record);
            let lives = record.init.is_some_and(ProcessId::is_alive);
            let now = lives.then(clock::reading);
            if lives {
                record = clock::current(record);
            }
            let saved = filter::read(&filter_file, record.filter_hash.as_deref())?;
            let subject = ExplainedContainer {
                name: format!("container {}", record.id),
                landlock: None,
                settings: Vec::new(),
                left,
                approvals: approvals(&record),
                now,
                tool: identity.tool(),
                identity: Some(identity),
                filter: saved.as_ref().map(|f| explain::filter(&f.program)),
                chosen_by: record.chosen_by,
                decided: record.decided.map(SavedDecision::into_inner),
            };
            (subject, saved.map(|f| f.program))
        }
    };
    if args.syscalls {
        return explain_syscalls::print(global, args, &subject, program.as_ref());
    }
    if args.json {
        out::json(&subject)?;
    } else {
        let length = match args.all {
            true => PageLength::All,
            false => PageLength::Screen,
        };
        out::text(&explain::text(&subject, length))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The approvals in force in a container's network, by its sidecar.
fn approvals(record: &Record) -> Vec<String> {
    let lives = record.init.is_some_and(ProcessId::is_alive);
    let plan = record.plan();
    let asks = plan.is_some_and(|plan| plan.network.asking.is_some());
    if !asks || !lives {
        return Vec::new();
    }
    let status = find::network_of(record.clone()).and_then(|first| {
        let place = ContainerPaths::new(&first.root, &first.id)?;
        control::status(&place.dir(), &first)
    });
    // A sidecar that does not answer hides no wall.
    let status = status.unwrap_or_else(|error| {
        log::warn!("its approvals are unknown: {}", crate::log::chain(&error));
        None
    });
    let asking = status.and_then(|status| status.asking);
    asking.map_or_else(Vec::new, |asking| asking.approved)
}

/// Takes the rules of the network that a container shares: those in its record are from the time of joining. If that
/// network's container is gone, only they remain.
fn govern(record: &mut Record) {
    let first = record
        .shared_network()
        .and_then(|_| find::network_of(record.clone()).ok());
    let first = first.and_then(|first| Some(first.decided?.into_inner()));
    if let (Some(decided), Some(first)) = (&mut record.decided, first) {
        decided.resolved.network = first.policy().network;
        decided.plan.network.rules = first.plan.network.rules;
    }
}

/// A container that exists, or the last run of one.
struct KnownContainer {
    record: Record,
    identity: ContainerIdentity,
    /// The file of its filter program.
    filter: PathBuf,
}

/// Finds a container, or else its last run. The inner error is an exit status: the run differs from its log or its
/// receipt, so nothing in it can be trusted. The fault has been printed.
fn looked_up(id: &str) -> Result<Result<KnownContainer, ExitCode>> {
    match find::container(id) {
        Ok(record) => {
            let filter = ContainerPaths::new(&record.root, &record.id)?.filter();
            let identity = identity::of(&record);
            Ok(Ok(KnownContainer {
                record,
                identity,
                filter,
            }))
        }
        Err(RuntimeError::Unknown(_)) => {
            let found = read::find(id)?;
            let whole = super::audit::verdict(&found, &found.logs()?);
            if whole != ExitCode::SUCCESS {
                return Ok(Err(whole));
            }
            let run = found.run;
            let record = run.record()?;
            log::warn!(
                "container {} is gone: this is what its run of {} was under; a container that runs by this name now is not agentbox's",
                record.id,
                run.started()
            );
            let identity = run.identity(&record);
            Ok(Ok(KnownContainer {
                record,
                identity,
                filter: run.file(FILTER),
            }))
        }
        Err(error) => Err(error.into()),
    }
}

fn with_program(
    name: String,
    tool: Tool,
    explained: WrapExplanation,
) -> (ExplainedContainer, Option<FilterProgram>) {
    let filter = explained.decision.filter.as_ref();
    let program = filter.map(|filter| filter.program.clone());
    (of_bundle(name, tool, explained), program)
}

/// The explanation of a bundle of which no container exists.
pub(super) fn of_bundle(
    name: String,
    tool: Tool,
    explained: WrapExplanation,
) -> ExplainedContainer {
    let WrapExplanation {
        decision,
        landlock,
        settings,
    } = explained;
    let subject = ExplainedContainer {
        name,
        landlock,
        settings,
        left: TimeLeft::default(),
        approvals: Vec::new(),
        now: None,
        tool,
        identity: None,
        filter: decision
            .filter
            .as_ref()
            .map(|f| explain::filter(&f.program)),
        chosen_by: decision.chosen_by,
        decided: decision.decided,
    };
    subject.at(clock::reading())
}
