//! Opens inbound ports of a running container: resolved as at `create`, within the same ceilings.

use std::collections::BTreeSet;

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
/// The record gets the ports first: if this process is killed in between, it names at least what is open.
pub fn open(place: &ContainerPaths, asked: &str) -> Result<(), RuntimeError> {
    let _lock = place.lock_existing()?;
    let dir = place.dir();
    let mut record = Record::read(&dir)?;
    let before = record.decided.clone();
    let decided = before
        .as_ref()
        .ok_or_else(|| refuse(&record, "it is unconfined: it has no network wall"))?;
    let network = &decided.plan.network;
    if network.mode == NetworkMode::None {
        return Err(refuse(
            &record,
            "its network.mode is none: nothing leads in",
        ));
    }
    let new: BTreeSet<u16> = wanted(asked)?;
    let new: BTreeSet<u16> = new.difference(&network.inbound).copied().collect();
    if new.is_empty() {
        return Ok(());
    }
    let all = network.inbound.union(&new).copied().collect();
    rules::network_with_inbound(&record, network, &all)?;
    let next = network.opening(&new, &decided.resolved.name, &decided.plan.namespaces)?;
    let mut descriptors = ports::listen_outside(&record, &new)?;
    if network.inbound.is_empty() {
        descriptors.extend(ports::dialers(&record)?);
    }
    if let Some(decided) = &mut record.decided {
        decided.plan.network = next;
        let origin = Origin::Update.to_string();
        decided
            .origins
            .insert(Field::NetworkInbound.to_string(), origin);
    }
    record.save(&dir)?;
    let request = ControlRequest::Inbound(new.clone());
    match control::hand_over(&dir, &record, &request, &descriptors)? {
        ControlReply::Done => {
            RunDir::of(place).note(vec![events::opened(&new)]);
            Ok(())
        }
        ControlReply::Failed(why) => {
            record.decided = before;
            record.save(&dir)?;
            Err(ControlError::Refused(why).into())
        }
        _ => Err(ControlError::Unexpected.into()),
    }
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
        verb: "open a port of",
        id: record.id.clone(),
        why: why.to_owned(),
    }
}
