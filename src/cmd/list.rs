//! `list`

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::audit::Verdict;
use crate::cli::{GlobalOptions, List, TableFormat};
use crate::cmd::out::{self, Reader, TableFit};
use crate::cmd::state::State;
use crate::policy::{NetworkMode, Tool};
use crate::render::identity::ContainerIdentity;
use crate::runtime::runs::RunDir;
use crate::runtime::runs::read::FoundRun;
use crate::runtime::state::identity;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::{self, ContainerPaths};
use crate::text::escape;
use crate::wrap::leftovers;

/// The additional columns of `--all`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SandboxColumns {
    #[serde(flatten)]
    identity: ContainerIdentity,
    /// `None` under `unconfined`.
    policy: Option<String>,
    network: Option<NetworkMode>,
    /// Whether unlisted hosts are allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    learn: bool,
    /// The container whose network it shares, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    network_of: Option<String>,
    /// What `audit` counts as denied; `None` without a readable log.
    refused: Option<u64>,
    /// How many of the caller's requests were not granted (`explain`); `None` under `unconfined`.
    not_granted: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    state: State,
    #[serde(flatten)]
    fenced: Option<SandboxColumns>,
}

/// Lists the containers of this root directory, or of every engine on this node.
pub fn run(global: &GlobalOptions, args: &List) -> Result<ExitCode> {
    leftovers::sweep();
    let records = match args.all {
        true => store::all()?,
        false => store::of_root(&std::path::absolute(&global.root)?)?,
    };
    let mut lines = Vec::new();
    for record in records {
        let place = ContainerPaths::new(&record.root, &record.id)?;
        // Skip containers that are being created or deleted, but list one whose deletion was killed.
        let own = args.all.then(|| record.clone());
        if let Ok(state) = State::of(&place, record) {
            let fenced = own.map(|record| fenced(&place, &record));
            lines.push(Line { state, fenced });
        }
    }
    let text = match (args.quiet, args.format) {
        (true, _) => lines
            .iter()
            .map(|line| line.state.id.clone() + "\n")
            .collect(),
        (false, TableFormat::Json) => {
            crate::text::escape_json(&serde_json::to_string(&lines)?) + "\n"
        }
        (false, TableFormat::Table) if args.all => {
            out::columns(FENCED, lines.iter().map(fenced_cells), &TableFit::default())
        }
        (false, TableFormat::Table) => {
            out::columns(STATE, lines.iter().map(state_cells), &TableFit::default())
        }
    };
    let reader = out::text(&text)?;
    // Also without a terminal: an empty table looks as if nothing ran. Programs use --quiet or JSON.
    let is_for_reading =
        reader == Reader::Listens && !args.quiet && args.format == TableFormat::Table;
    if is_for_reading && lines.is_empty() && !global.root_given {
        let hint = match (args.all, store::is_of_ordinary_user()) {
            (false, _) => hint(store::all()?.len()),
            (true, true) => None,
            (true, false) => Some(USERS_OWN.to_owned()),
        };
        if let Some(hint) = hint {
            crate::log::complain(&hint);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Said to root above an empty table.
const USERS_OWN: &str = "agentbox: only a user lists the sandboxes of their own `wrap`: sudo -u USER agentbox list --all";

/// Where the containers are, for a caller who sees an empty table. Engines give `--root`.
fn hint(elsewhere: usize) -> Option<String> {
    let containers = match elsewhere {
        0 => return None,
        1 => "1 container of an engine or `wrap` is".to_owned(),
        count => format!("{count} containers of engines or `wrap` are"),
    };
    Some(format!(
        "agentbox: {containers} on this node: agentbox list --all"
    ))
}

fn fenced(place: &ContainerPaths, record: &Record) -> SandboxColumns {
    let shared = record.shared_network();
    let decided = record.decided.as_ref();
    let plan = record.plan();
    SandboxColumns {
        identity: identity::of(record),
        policy: decided.map(|d| d.resolved.name.to_string()),
        network: plan.map(|plan| plan.network.mode),
        learn: plan.is_some_and(|plan| plan.network.learns()),
        network_of: shared.map(|shared| shared.container.clone()),
        refused: plan.and_then(|_| denied(place)),
        not_granted: plan.map(|plan| plan.not_granted(Tool::default()).len()),
    }
}

/// What the run's log says was denied. A container is listed even if its log cannot be read.
fn denied(place: &ContainerPaths) -> Option<u64> {
    let logs = FoundRun::of(&RunDir::of(place)).and_then(|found| found.logs());
    let logs = logs.inspect_err(|error| log::debug!("{}", crate::log::chain(error)));
    Some(Verdict::Denied.times(&logs.ok()?.without_verifys()))
}

const STATE: [&str; 6] = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"];

fn state_cells(line: &Line) -> [String; 6] {
    let state = &line.state;
    [
        state.id.clone(),
        state.pid.to_string(),
        state.status.to_owned(),
        escape(&state.bundle.display().to_string()),
        state.created.clone(),
        state.owner.clone(),
    ]
}

const FENCED: [&str; 8] = [
    "ID",
    "ENGINE",
    "NAME",
    "STATUS",
    "POLICY",
    "NETWORK",
    "DENIED",
    "NOT-GRANTED",
];

fn fenced_cells(line: &Line) -> [String; 8] {
    /// The length of an id that engines show and accept.
    const SHOWN: usize = 12;
    let id: String = line.state.id.chars().take(SHOWN).collect();
    let Some(fenced) = &line.fenced else {
        return Default::default();
    };
    let network = match (&fenced.network_of, fenced.network) {
        (Some(first), _) => format!("of {}", first.chars().take(SHOWN).collect::<String>()),
        (None, Some(mode)) if fenced.learn => format!("{mode}, LEARN MODE"),
        (None, Some(mode)) => mode.to_string(),
        (None, None) => "-".to_owned(),
    };
    let policy = fenced.policy.as_deref();
    let refused = fenced.refused.map(|count| count.to_string());
    let not_granted = fenced.not_granted.map(|count| count.to_string());
    [
        id,
        escape(&fenced.identity.engine),
        escape(&fenced.identity.short()),
        line.state.status.to_owned(),
        policy.unwrap_or("unconfined").to_owned(),
        network,
        refused.unwrap_or_else(|| "-".to_owned()),
        not_granted.unwrap_or_else(|| "-".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_names_the_containers_of_engines() {
        assert_eq!(hint(0), None);
        for (count, words) in [(1, "1 container "), (3, "3 containers ")] {
            let hint = hint(count).unwrap();
            assert!(hint.contains(words), "{hint}");
            assert!(hint.ends_with(": agentbox list --all"), "{hint}");
        }
    }
}
