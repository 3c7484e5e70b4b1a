//! Opens inbound ports of a running container: resolved as at `create`, within the same ceilings.

use std::collections::BTreeSet;

use crate::plan::NetworkPlan;
use crate::policy::{
    Field, InboundPort, NetworkMode, Origin, PolicyError, annotation_key, annotation_list,
};
use crate::runtime::RuntimeError;
use crate::runtime::network::{ControlError, RulesError};
use crate::runtime::network::{control, ports, rules};
use crate::runtime::runs::{RunDir, ports as events};
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::{ControlReply, ControlRequest};

/// Opens these ports, spelled as in the annotation, until the container ends.
///
/// The record gets the ports first: if this process is killed in between, it names at least what is open. So the sidecar
/// says what is left to open, and the same command again opens it.
pub fn open(place: &ContainerPaths, asked: &str) -> Result<(), RuntimeError> {
    let _lock = place.lock_existing()?;
    let dir = place.dir();
    let mut record = Record::read(&dir)?;
    let before = record.decided.clone();
    let wanted = wanted(asked)?;
    let next = opened(&record, &wanted)?;
    let status = control::status(&dir, &record)?;
    if let Some(status) = &status {
        // Rules may have arrived of an `update` that the record does not have.
        if let Some(port) = wanted.iter().find(|port| status.ports.contains(port)) {
            let why = format!("on port {port} the wall itself listens inside, for the rules");
            return Err(refuse(&record, &why));
        }
    }
    let served: BTreeSet<u16> = status
        .map(|status| status.inbound.ports.into_keys().collect())
        .unwrap_or_default();
    let new: BTreeSet<u16> = wanted.difference(&served).copied().collect();
    let mut descriptors = Vec::new();
    if !new.is_empty() {
        descriptors.extend(ports::listen_outside(&record, &new)?);
        // They come with its first port.
        if served.is_empty() {
            descriptors.extend(ports::dialers(&record)?);
        }
    }
    if let Some(decided) = &mut record.decided {
        decided.plan.network = next;
        let origin = Origin::Update.to_string();
        decided
            .origins
            .insert(Field::NetworkInbound.to_string(), origin);
    }
    record.save(&dir)?;
    if new.is_empty() {
        return Ok(());
    }
    let request = ControlRequest::Inbound(new.clone());
    let error: RuntimeError = match control::hand_over(&dir, &record, &request, &descriptors) {
        Ok(ControlReply::Done) => {
            RunDir::of(place).note(vec![events::opened(&new)]);
            return Ok(());
        }
        Ok(ControlReply::Failed(why)) => ControlError::Refused(why).into(),
        Ok(_) => ControlError::Unexpected.into(),
        Err(error) => error,
    };
    if opens_nothing(&error) {
        record.decided = before;
        record.save(&dir)?;
    }
    Err(error)
}

/// The container's network with these ports, if it may have them.
fn opened(record: &Record, ports: &BTreeSet<u16>) -> Result<NetworkPlan, RuntimeError> {
    let decided = record
        .decided
        .as_ref()
        .ok_or_else(|| refuse(record, "it is unconfined: it has no network wall"))?;
    let network = &decided.plan.network;
    if network.mode == NetworkMode::None {
        return Err(refuse(record, "its network.mode is none: nothing leads in"));
    }
    let all = network.inbound.union(ports).copied().collect();
    rules::network_with_inbound(record, network, &all)?;
    Ok(network.opening(ports, &decided.resolved.name, &decided.plan.namespaces)?)
}

/// Whether the sidecar certainly did not open the ports: it refused, or the request did not reach it. After another
/// error it may still open them.
fn opens_nothing(error: &RuntimeError) -> bool {
    matches!(
        error,
        RuntimeError::State { .. }
            | RuntimeError::Control(ControlError::Refused(_) | ControlError::Unreached { .. })
    )
}

/// The ports of a list.
fn wanted(list: &str) -> Result<BTreeSet<u16>, RuntimeError> {
    let items =
        annotation_list::<InboundPort>(list).map_err(|problem| PolicyError::AnnotationValue {
            key: annotation_key(Field::NetworkInbound),
            problem,
        })?;
    let ports: Option<BTreeSet<u16>> = items.into_iter().map(InboundPort::port).collect();
    Ok(ports.ok_or(RulesError::AnyPort)?)
}

fn refuse(record: &Record, why: &str) -> RuntimeError {
    RuntimeError::State {
        verb: ports::OPENS,
        id: record.id.clone(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that timed out may wait in the sidecar's queue: the record goes on naming its ports.
    #[test]
    fn the_record_forgets_only_ports_that_cannot_be_open() {
        let errno = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        let gone = RuntimeError::State {
            verb: "ask the sidecar of",
            id: "a".to_owned(),
            why: "it has ended".to_owned(),
        };
        let unreached = ControlError::Unreached {
            path: "/run/control".into(),
            source: errno(),
        };
        let refused = ControlError::Refused("no".to_owned());
        for error in [gone, unreached.into(), refused.into()] {
            assert!(opens_nothing(&error), "{error}");
        }
        let unsure = RuntimeError::io("ask the sidecar")(errno());
        for error in [unsure, ControlError::Unexpected.into()] {
            assert!(!opens_nothing(&error), "{error}");
        }
    }
}
