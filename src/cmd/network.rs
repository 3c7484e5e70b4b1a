//! `network`

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Result;

use crate::audit::{EventDetail, LogLine, Verdict};
use crate::cli::{NetworkArgs, TextFormat};
use crate::cmd::out;
use crate::egress::{BudgetUse, InboundStatus, NetworkStatus};
use crate::plan::Plan;
use crate::render::network::{self, ContainerNetwork};
use crate::runtime::RuntimeError;
use crate::runtime::clock;
use crate::runtime::network::control;
use crate::runtime::network::refused;
use crate::runtime::runs::read;
use crate::runtime::state::find;
use crate::runtime::state::identity;
use crate::runtime::state::store::ContainerPaths;

/// Shows the state of a container's network, or of the network of its pod's first container.
pub fn run(args: &NetworkArgs) -> Result<ExitCode> {
    let asked = match find::container(&args.id) {
        Err(RuntimeError::Unknown(_)) => return of_gone(args),
        found => found?,
    };
    let identity = identity::of(&asked);
    let id = asked.id.clone();
    let record = find::network_of(asked)?;
    let place = ContainerPaths::new(&record.root, &record.id)?;
    let subject = ContainerNetwork {
        outside: network::UnansweredConnections::of(refused::resets(&record).unwrap_or(0)),
        identity,
        network_of: (record.id != id).then(|| record.id.clone()),
        status: control::status(&place.dir(), &record)?,
        learn: record.plan().is_some_and(|plan| plan.network.learns()),
        waits: waits(record.plan()),
        now: clock::reading(),
        mode: record.plan().map(|plan| plan.network.mode),
        id,
    };
    print(args, &subject)
}

fn print(args: &NetworkArgs, subject: &ContainerNetwork) -> Result<ExitCode> {
    match args.format {
        TextFormat::Json => out::json(subject)?,
        TextFormat::Text => out::text(&network::text(subject))?,
    };
    Ok(ExitCode::SUCCESS)
}

fn waits(plan: Option<&Plan>) -> Option<u32> {
    Some(plan?.network.asking.as_ref()?.seconds)
}

/// The network of a container that is gone, from its log.
fn of_gone(args: &NetworkArgs) -> Result<ExitCode> {
    let found = read::find(&args.id)?;
    let record = found.run.record()?;
    let logs = found.logs()?;
    log::warn!(
        "container {} is gone: this is what its log says; a container that runs by this name now is not agentbox's",
        record.id
    );
    let shared = record.shared_network();
    let subject = ContainerNetwork {
        outside: None,
        identity: found.run.identity(&record),
        network_of: shared.map(|shared| shared.container.clone()),
        status: record
            .plan()
            .filter(|plan| plan.network.is_served() || shared.is_some())
            .map(|plan| status(plan, &logs.without_verifys())),
        learn: record.plan().is_some_and(|plan| plan.network.learns()),
        waits: waits(record.plan()),
        now: clock::reading(),
        mode: record.plan().map(|plan| plan.network.mode),
        id: record.id.clone(),
    };
    print(args, &subject)
}

/// The status of the sidecar at its end.
fn status(plan: &Plan, lines: &[&LogLine]) -> NetworkStatus {
    let mut status = NetworkStatus {
        rules: plan.network.rules.clone(),
        ports: plan.network.ports.clone(),
        services: plan.network.connect.keys().copied().collect(),
        asking: None,
        budget: plan.network.budget,
        used: BudgetUse {
            connections: 0,
            upload_bytes: 0,
            hosts: 0,
        },
        secrets: Vec::new(),
        connections: Vec::new(),
        more_connections: 0,
        inbound: InboundStatus::default(),
        allowed: 0,
        denied: BTreeMap::new(),
        log_lines_left_out: 0,
    };
    let mut hosts = BTreeSet::new();
    for event in lines.iter().map(|line| &line.event) {
        match (&event.what, event.verdict) {
            (EventDetail::LeftOut { events, .. }, _) => status.log_lines_left_out += events,
            (
                EventDetail::Connection {
                    via: None, host, ..
                },
                Verdict::Allowed,
            ) => {
                hosts.insert(host.clone());
                status.allowed += event.times();
            }
            (EventDetail::Connection { sent, .. }, Verdict::Ended) => {
                status.used.upload_bytes += sent.unwrap_or(0);
            }
            (EventDetail::Connection { .. } | EventDetail::Name { .. }, Verdict::Denied) => {
                let cause = event.cause.as_ref().map(ToString::to_string);
                *status.denied.entry(cause.unwrap_or_default()).or_default() += event.times();
            }
            _ => {}
        }
    }
    status.used.hosts = hosts.len();
    status
}
