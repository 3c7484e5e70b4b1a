//! Other rules for a running container: resolved as `create` resolves them, within the same ceilings.

use std::collections::{BTreeMap, BTreeSet};

use super::record::Record;
use super::resolve::NodeFiles;
use super::store::Place;
use super::{RuntimeError, control};
use crate::egress::Rules;
use crate::plan::Plan;
use crate::policy::{
    Field, NetworkMode, NetworkRule, Origin, Resolved, Selection, annotation_key, resolve,
};
use crate::sidecar::{ControlReply, ControlRequest};

/// What is asked for, as an annotation would spell it; `None` leaves a list as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// `network.allow`.
    pub allow: Option<String>,
    /// `network.deny`, on top of the policy's own.
    pub deny: Option<String>,
}

/// Changes the rules of a container and returns how many connections that closed.
///
/// The record first gets what both the old and the new rules allow, then the sidecar changes, then the record gets the
/// new ones: whoever is killed in between leaves a record that names at least what is open.
pub fn rules(place: &Place, asked: &Asked) -> Result<usize, RuntimeError> {
    let _lock = place.lock_existing()?;
    let dir = place.dir();
    let mut record = Record::read(&dir)?;
    let resolved = within_ceilings(&record, asked)?;
    let old = record.plan.clone();
    let plan = record.plan.as_mut().ok_or(RuntimeError::NotRunning)?;
    let new = Rules {
        allow: resolved.policy.network.allow,
        deny: resolved.policy.network.deny,
    };
    check_ports(plan, &new)?;
    control::status(&dir, &record)?;
    let plan = record.plan.as_mut().ok_or(RuntimeError::NotRunning)?;
    let both = Rules {
        allow: plan
            .network
            .rules
            .allow
            .union(&new.allow)
            .cloned()
            .collect(),
        deny: plan
            .network
            .rules
            .deny
            .intersection(&new.deny)
            .cloned()
            .collect(),
    };
    write_down(plan, both);
    record.save(&dir)?;
    let request = ControlRequest::Rules(new.clone());
    match control::ask_living(&dir, &record, &request)? {
        ControlReply::Changed { closed } => {
            if let Some(plan) = &mut record.plan {
                write_down(plan, new);
                note_origin(plan, asked);
            }
            record.save(&dir)?;
            Ok(closed)
        }
        ControlReply::Failed(why) => {
            record.plan = old;
            record.save(&dir)?;
            Err(RuntimeError::Unsupported(why))
        }
        _ => Err(RuntimeError::Unsupported(
            "the sidecar answers something else".to_owned(),
        )),
    }
}

/// The container's policy with these lists in it, from everything that had a say when it was created; or the error that
/// `create` would give.
fn within_ceilings(record: &Record, asked: &Asked) -> Result<Resolved, RuntimeError> {
    let refuse = |why: String| RuntimeError::State {
        verb: "change the network rules of",
        id: record.id.clone(),
        why,
    };
    let Some(plan) = &record.plan else {
        return Err(refuse(
            "it is unconfined: it has no network wall".to_owned(),
        ));
    };
    if plan.network.mode != NetworkMode::Allowlist {
        return Err(refuse(format!(
            "its network.mode is {}, which has no way out: create it with rules in network.allow",
            plan.network.mode
        )));
    }
    let mut annotations = record.annotations.clone();
    for (field, asked, now) in [
        (Field::NetworkAllow, &asked.allow, &plan.network.rules.allow),
        (Field::NetworkDeny, &asked.deny, &plan.network.rules.deny),
    ] {
        let list = asked.clone().unwrap_or_else(|| words(now));
        annotations.insert(annotation_key(field), list);
    }
    match select(record, &annotations)? {
        Selection::Policy(resolved) => Ok(*resolved),
        Selection::Unconfined { .. } => Err(refuse(
            "the node's file now says unconfined for it".to_owned(),
        )),
    }
}

fn select(
    record: &Record,
    annotations: &BTreeMap<String, String>,
) -> Result<Selection, RuntimeError> {
    let files = NodeFiles::read(&record.call.config)?;
    let flag = record.call.policy.as_deref();
    Ok(resolve(&files.sources(annotations, flag))?)
}

/// A port without a listener would look allowed and be refused by the kernel: for all but the proxy's clients.
fn check_ports(plan: &Plan, new: &Rules) -> Result<(), RuntimeError> {
    let ports = &plan.network.ports;
    let missing: BTreeSet<u16> = new.ports().difference(ports).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(RuntimeError::Unsupported(format!(
        "rules name the port {}, on which this container's wall does not listen: the ports are bound at create, by \
         the rules of then ({}); create the container with a rule for that port",
        numbers(&missing),
        numbers(ports)
    )))
}

fn write_down(plan: &mut Plan, rules: Rules) {
    plan.policy.network.allow.clone_from(&rules.allow);
    plan.policy.network.deny.clone_from(&rules.deny);
    plan.network.rules = rules;
}

fn note_origin(plan: &mut Plan, asked: &Asked) {
    for (field, asked) in [
        (Field::NetworkAllow, &asked.allow),
        (Field::NetworkDeny, &asked.deny),
    ] {
        if asked.is_some() {
            let origin = Origin::Update.to_string();
            plan.origins.insert(field.to_string(), origin);
        }
    }
}

fn words(rules: &BTreeSet<NetworkRule>) -> String {
    let words: Vec<String> = rules.iter().map(ToString::to_string).collect();
    words.join(", ")
}

fn numbers(ports: &BTreeSet<u16>) -> String {
    let words: Vec<String> = ports.iter().map(u16::to_string).collect();
    words.join(", ")
}
