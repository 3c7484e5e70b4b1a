//! Other rules for a running container: resolved as `create` resolves them, within the same ceilings.

use std::collections::{BTreeMap, BTreeSet};

use super::record::Record;
use super::resolve::NodeFiles;
use super::store::Place;
use super::{RuntimeError, control, later_ports};
use crate::egress::Rules;
use crate::plan::Plan;
use crate::policy::{
    Field, MOST_PORTS, NetworkMode, NetworkRule, Origin, Resolved, Selection, annotation_key,
    resolve,
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
    let new = Rules {
        allow: resolved.policy.network.allow,
        deny: resolved.policy.network.deny,
    };
    let listens = control::status(&dir, &record)?.map(|status| status.ports);
    let plan = record.plan.as_ref().ok_or(RuntimeError::NotRunning)?;
    let missing = missing_ports(plan, &new, &listens.unwrap_or_default())?;
    let listeners = later_ports::listen(&record, &missing)?;
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
    let request = ControlRequest::Rules {
        rules: new.clone(),
        ports: missing.clone(),
    };
    match control::hand_over(&dir, &record, &request, &listeners)? {
        ControlReply::Changed { closed } => {
            if let Some(plan) = &mut record.plan {
                write_down(plan, new);
                plan.network.ports.extend(missing);
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

/// The ports of the new rules on which the wall does not listen yet.
fn missing_ports(
    plan: &Plan,
    new: &Rules,
    listens: &BTreeSet<u16>,
) -> Result<BTreeSet<u16>, RuntimeError> {
    let missing: BTreeSet<u16> = new.ports().difference(listens).copied().collect();
    // Whoever comes in there would go out through the wall.
    if let Some(port) = missing.intersection(&plan.network.inbound).next() {
        return Err(RuntimeError::Unsupported(format!(
            "rules name the port {port}, which leads into this container (network.inbound): it cannot lead out as well"
        )));
    }
    if missing.contains(&plan.network.proxy_port) {
        return Err(RuntimeError::Unsupported(format!(
            "rules name the port {}, on which the proxy of this container listens: create it with a rule for that port, \
             and the proxy takes another",
            plan.network.proxy_port
        )));
    }
    // A listener stays for the container's life.
    let all = listens.len() + missing.len();
    if !missing.is_empty() && all > MOST_PORTS {
        return Err(RuntimeError::Unsupported(format!(
            "with these rules the wall would listen on {all} ports; it does on {MOST_PORTS} at most while a container lives"
        )));
    }
    Ok(missing)
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
