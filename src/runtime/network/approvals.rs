//! Connections of one container that wait for the user, and the user's decision: for `approvals`, `approve` and `deny`,
//! and the prompt of `wrap --ask`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ControlError, clients, control};
use crate::egress::WaitingConnection;
use crate::plan::Plan;
use crate::rules::{HostName, MOST_WAITING};
use crate::runtime::RuntimeError;
use crate::runtime::runs::{RunDir, events};
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::{AskDecision, ControlReply, ControlRequest};

/// The result of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalResult {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
    /// How many open connections it closed.
    pub closed: usize,
}

/// Whether the user is asked about connections of this container.
pub fn asks(record: &Record) -> bool {
    let asks = |plan: &Plan| plan.network.asking.is_some();
    record.plan().is_some_and(asks)
}

/// The waiting connections of a container, each with its program if that is found. The sidecar has `within` to answer.
pub fn waiting(record: &Record, within: Duration) -> Result<Vec<WaitingConnection>, RuntimeError> {
    let place = ContainerPaths::new(&record.root, &record.id)?;
    if !asks(record) {
        return Ok(Vec::new());
    }
    let status = control::status_within(&place.dir(), record, within)?;
    let waiting = status.and_then(|s| s.asking).map(|asking| asking.waiting);
    // Bounded here too: the sidecar is not trusted.
    let waiting: Vec<_> = waiting.into_iter().flatten().take(MOST_WAITING).collect();
    if waiting.is_empty() {
        return Ok(waiting);
    }
    let ports = waiting.iter().filter_map(|one| one.client_port).collect();
    let init = record.init.filter(|init| init.is_alive());
    let programs = init.map_or_else(BTreeMap::new, |init| clients::find(init.pid, &ports));
    let waiting = waiting.into_iter().map(|mut one| {
        let port = one.client_port;
        one.program = port.and_then(|port| programs.get(&port).cloned());
        one
    });
    Ok(waiting.collect())
}

/// Tells the sidecar the decision, and logs it.
pub fn decide(record: &Record, decision: AskDecision) -> Result<ApprovalResult, RuntimeError> {
    let place = ContainerPaths::new(&record.root, &record.id)?;
    let approve = decision.approve;
    let request = ControlRequest::Decide(decision);
    match control::ask_living(&place.dir(), record, &request)? {
        ControlReply::Decided { host, port, closed } => {
            RunDir::of(&place).note(vec![events::decided(&host, port, approve)]);
            Ok(ApprovalResult { host, port, closed })
        }
        ControlReply::Failed(why) => Err(ControlError::Refused(why).into()),
        _ => Err(ControlError::Unexpected.into()),
    }
}
