//! Replaces the network rules of a running container: resolved as at `create`, within the same ceilings.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::Event;
use crate::plan::{NetworkPlan, Plan, join};
use crate::policy::{
    Asker, Field, MOST_PORTS, Network, NetworkMode, Origin, Selection, Sources, annotation_key,
    annotation_list, catalogue, list_text, resolve,
};
use crate::rules::{EgressRule, EgressRules, Expiry, NetworkLimit, RuleItem};
use crate::runtime::RuntimeError;
use crate::runtime::input::node_files::NodeFiles;
use crate::runtime::network::ends::{self, either, take_out};
use crate::runtime::network::{ControlError, RulesError, control, ports};
use crate::runtime::runs::{RunDir, events};
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::{self, ContainerPaths};
use crate::sidecar::{ControlReply, ControlRequest};
use crate::sys::clocks;

/// What an error says of the attempt.
const CHANGES_RULES: &str = "change the network rules of";

/// Requested changes of the rules, spelled as in annotations; `None` leaves a list unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleChanges {
    /// The new `network.allow`.
    pub allow: Option<String>,
    /// Rules and presets to add to `network.allow`.
    pub add: Option<String>,
    /// Rules and presets to remove from `network.allow`.
    pub remove: Option<String>,
    /// `network.deny`, in addition to the policy's own.
    pub deny: Option<String>,
    /// The end of what `add` adds.
    pub end: Option<Expiry>,
}

/// Changes the rules of a container and returns how many connections that closed.
///
/// The record first gets what both the old and the new rules allow, then the sidecar changes, then the record gets the
/// new rules. If this process is killed in between, the record names at least what is open.
pub fn rules(place: &ContainerPaths, asked: &RuleChanges) -> Result<usize, RuntimeError> {
    let _lock = place.lock_existing()?;
    let dir = place.dir();
    let mut record = Record::read(&dir)?;
    let now = clocks::read();
    let status = control::status(&dir, &record)?;
    if let Some(plan) = record.plan_mut() {
        // What has expired is no rule any more, whatever the sidecar has seen of it.
        plan.network.rules.expire(now);
        if let Some(status) = &status {
            ends::adopt_tighter(&mut plan.network.rules, &status.rules, now);
        }
    }
    let new = wanted(&record, asked)?;
    let old = record.decided.clone();
    let network = old.as_ref().map(|decided| &decided.plan.network);
    if let Some(why) = network.and_then(|network| network.opens_a_secrets_host(&new)) {
        return Err(RulesError::Secret(why).into());
    }
    let opened = old
        .as_ref()
        .and_then(|decided| decided.plan.network.opened.as_ref());
    if let Some(rule) = opened.and_then(|opened| opened.lacks(&new)) {
        return Err(RulesError::NotOpened(Box::new(rule)).into());
    }
    let listens = status.map(|status| status.ports);
    let plan = record.plan().ok_or(RuntimeError::NotRunning)?;
    let missing = missing_ports(plan, &new, &listens.unwrap_or_default())?;
    let listeners = ports::listen(&record, &missing, &new.allow)?;
    let plan = record.plan_mut().ok_or(RuntimeError::NotRunning)?;
    plan.network.rules = either(&plan.network.rules, &new, now);
    record.save(&dir)?;
    let request = ControlRequest::Rules {
        rules: new.clone(),
        ports: missing.clone(),
    };
    match control::hand_over(&dir, &record, &request, &listeners)? {
        ControlReply::Changed { closed } => {
            for secret in network
                .iter()
                .flat_map(|network| network.leaves_unused(&new))
            {
                log::warn!("no rule allows the requests of the secret {secret} any more");
            }
            let before = network.map(|network| &network.rules);
            let changed = events::rules_changed(before.unwrap_or(&EgressRules::default()), &new);
            let until = asked.end.map(|end| format!("until {}", end.date()));
            let changed = Event {
                reason: until.map(Into::into),
                ..changed
            };
            RunDir::of(place).note(vec![changed]);
            if let Some(decided) = &mut record.decided {
                let network = &mut decided.plan.network;
                network.rules = new;
                network.ports.extend(missing);
                note_origin(&mut decided.origins, asked);
            }
            record.save(&dir)?;
            Ok(closed)
        }
        ControlReply::Failed(why) => {
            record.decided = old;
            record.save(&dir)?;
            Err(ControlError::Refused(why).into())
        }
        _ => Err(ControlError::Unexpected.into()),
    }
}

/// The requested rules, if they are within every ceiling, or within the current rules: tightening needs neither
/// permission nor files, which may be broken by now.
fn wanted(record: &Record, asked: &RuleChanges) -> Result<EgressRules, RuntimeError> {
    let refuse = |why: String| RuntimeError::State {
        verb: CHANGES_RULES,
        id: record.id.clone(),
        why,
    };
    let Some(plan) = record.plan() else {
        return Err(refuse(
            "it is unconfined: it has no network wall".to_owned(),
        ));
    };
    let mode = plan.network.mode;
    if mode != NetworkMode::Allowlist {
        let tool = identity::tool(record);
        let begins = tool.names(&tool.adds(Field::NetworkAllow, &["HOST"]));
        let why = format!("network.mode is {mode}: begin it with a first host ({begins})");
        return Err(refuse(why));
    }
    let now = &plan.network.rules;
    let full = within_ceilings(record, asked, now);
    match (full, tightened(asked, now)) {
        (Ok(rules), _) => Ok(rules),
        (Err(error), Some(rules)) => {
            log::warn!(
                "{error}; the change only narrows the rules, so it is made, and the earlier denials stay"
            );
            Ok(rules)
        }
        (Err(error), None) => Err(error),
    }
}

/// The request, if it only narrows the current rules: no new rule, and every denial kept.
fn tightened(asked: &RuleChanges, now: &EgressRules) -> Option<EgressRules> {
    // Without reading files: the rules of a preset are not known here.
    let parse = |list: &Option<String>| -> Option<BTreeSet<EgressRule>> {
        let items = annotation_list::<RuleItem>(list.as_deref().unwrap_or("")).ok()?;
        let mut rules = BTreeSet::new();
        for item in items {
            rules.extend(item.rules().ok()?);
        }
        Some(rules)
    };
    let mut allow = match &asked.allow {
        Some(_) => parse(&asked.allow)?,
        None => now.allow.clone(),
    };
    let mut added = parse(&asked.add)?;
    if asked.allow.is_some() {
        added.extend(allow.iter().cloned());
    }
    allow.extend(added.iter().cloned());
    let remove = parse(&asked.remove)?;
    if !remove
        .iter()
        .all(|rule| allow.contains(rule) || now.has_expired(rule))
    {
        return None;
    }
    allow.retain(|rule| !remove.contains(rule));
    // What ends is permitted until then, and no longer.
    let lasting = now.allow.iter().filter(|rule| !now.ends.contains_key(rule));
    let within = NetworkLimit::of_rules(String::new(), &lasting.cloned().collect());
    let denied = parse(&asked.deny)?;
    // An end is written anew only within the ceilings.
    if added.iter().any(|rule| now.ends.contains_key(rule)) || asked.end.is_some() {
        return None;
    }
    // An empty list would remove the current denials, which loosens.
    if asked.deny.is_some() && denied.is_empty() {
        return None;
    }
    let deny = now.deny.union(&denied).cloned().collect();
    let search = now.search.clone();
    let ends = ends::remaining_ends(now, &allow);
    let ended_by_policy = now.ended_by_policy.intersection(&allow).cloned();
    let rules = EgressRules {
        ended_by_policy: ended_by_policy.collect(),
        allow,
        deny,
        search,
        ends,
    };
    let is_within = |rule| within.covers(rule) || rules.ends.contains_key(rule);
    rules.allow.iter().all(is_within).then_some(rules)
}

/// The container's rules with these lists, from every source that counted when it was created; or `create`'s error.
/// Containers that share the network limit the rules as well.
fn within_ceilings(
    record: &Record,
    asked: &RuleChanges,
    now: &EgressRules,
) -> Result<EgressRules, RuntimeError> {
    let files = NodeFiles::read(&record.call.config)?;
    let mut annotations = record.annotations.clone();
    let allow = allowed(&files, asked, now)?;
    annotations.insert(annotation_key(Field::NetworkAllow), allow);
    let deny = asked.deny.clone().unwrap_or_else(|| words(&now.deny));
    annotations.insert(annotation_key(Field::NetworkDeny), deny);
    // An empty list must not change the mode.
    let mode = NetworkMode::Allowlist.to_string();
    annotations.insert(annotation_key(Field::NetworkMode), mode);
    let network = network_with(&files, record, &annotations, CHANGES_RULES)?;
    let spelled = |text: &str| catalogue::rules(&files.sources(&BTreeMap::new(), None), text);
    let removed = asked.remove.as_deref().map(spelled).transpose()?;
    let ended_by_policy = match &asked.allow {
        // The whole list was given.
        Some(_) => BTreeSet::new(),
        None => ends::of_policy(now, &network, &removed.unwrap_or_default()),
    };
    let allow = network.allow.union(&ended_by_policy).cloned().collect();
    let ends = match (&asked.allow, &asked.add) {
        // The whole list, without an end.
        (Some(_), _) => ends::with(now, &allow, &allow, None)?,
        (None, None) => ends::remaining_ends(now, &allow),
        (None, Some(add)) => ends::with(now, &allow, &spelled(add)?, asked.end)?,
    };
    Ok(EgressRules {
        allow,
        ended_by_policy,
        deny: network.deny,
        search: now.search.clone(),
        ends,
    })
}

/// The container's network with these annotations; or `create`'s error. Containers that share it limit it as well.
/// `verb` is for the error.
fn network_with(
    files: &NodeFiles,
    record: &Record,
    annotations: &BTreeMap<String, String>,
    verb: &'static str,
) -> Result<Network, RuntimeError> {
    let network = match select(files, record, annotations)? {
        Selection::Policy(resolved) => resolved.policy.network,
        Selection::Unconfined { .. } => {
            return Err(RuntimeError::State {
                verb,
                id: record.id.clone(),
                why: "the node's file now says unconfined for it".to_owned(),
            });
        }
    };
    for member in members(&record.id)? {
        let files = NodeFiles::read(&member.call.config)?;
        let Selection::Policy(resolved) = select(&files, &member, &member.annotations)? else {
            continue;
        };
        if let Some(why) = join::refuses(&resolved, &network) {
            let id = member.id.clone();
            return Err(RulesError::Member { id, why }.into());
        }
    }
    Ok(network)
}

/// The same with these inbound ports, whatever its rules are by now.
pub(super) fn network_with_inbound(
    record: &Record,
    plan: &NetworkPlan,
    inbound: &BTreeSet<u16>,
) -> Result<Network, RuntimeError> {
    let files = NodeFiles::read(&record.call.config)?;
    let ports: Vec<String> = inbound.iter().map(u16::to_string).collect();
    let mut fields = vec![
        (Field::NetworkInbound, ports.join(", ")),
        (Field::NetworkMode, plan.mode.to_string()),
    ];
    if plan.mode == NetworkMode::Allowlist {
        let lasting = plan.rules.without_policys();
        fields.push((Field::NetworkAllow, words(&lasting)));
        fields.push((Field::NetworkDeny, words(&plan.rules.deny)));
    }
    let mut annotations = record.annotations.clone();
    for (field, value) in fields {
        annotations.insert(annotation_key(field), value);
    }
    network_with(&files, record, &annotations, ports::OPENS)
}

/// The list for `network.allow`, as an annotation spells it.
fn allowed(
    files: &NodeFiles,
    asked: &RuleChanges,
    now: &EgressRules,
) -> Result<String, RuntimeError> {
    let list = asked.allow.clone();
    let mut list = list.unwrap_or_else(|| words(&now.without_policys()));
    if let Some(add) = &asked.add {
        list = match list.trim().is_empty() {
            true => add.clone(),
            false => format!("{list}, {add}"),
        };
    }
    let Some(remove) = &asked.remove else {
        return Ok(list);
    };
    let nothing = BTreeMap::new();
    let spelled = |text: &str| catalogue::rules(&files.sources(&nothing, None), text);
    let mut rules = spelled(&list)?;
    take_out(&mut rules, spelled(remove)?, now)?;
    Ok(words(&rules))
}

fn select(
    files: &NodeFiles,
    record: &Record,
    annotations: &BTreeMap<String, String>,
) -> Result<Selection, RuntimeError> {
    let flag = record.call.policy.as_deref();
    let sources = Sources {
        asker: Asker::Operator,
        ..files
            .sources(annotations, flag)
            .asked_by_wrap(&record.call.asked)
    };
    Ok(resolve(&sources)?)
}

/// The containers that are in the network of this one.
fn members(id: &str) -> Result<Vec<Record>, RuntimeError> {
    let mut records = store::all()?;
    records.retain(|record| {
        let shared = record.shared_network();
        shared.is_some_and(|shared| shared.container == id)
            && record.init.is_some_and(ProcessId::is_alive)
    });
    Ok(records)
}

/// The ports of the new rules on which the wall does not listen yet.
fn missing_ports(
    plan: &Plan,
    new: &EgressRules,
    listens: &BTreeSet<u16>,
) -> Result<BTreeSet<u16>, RuntimeError> {
    let missing: BTreeSet<u16> = new.ports().difference(listens).copied().collect();
    if let Some(port) = missing.intersection(&plan.network.inbound).next() {
        return Err(RulesError::LeadsIn(*port).into());
    }
    if missing.contains(&plan.network.proxy_port) {
        return Err(RulesError::Proxy(plan.network.proxy_port).into());
    }
    let all = listens.len() + missing.len();
    if !missing.is_empty() && all > MOST_PORTS {
        return Err(RulesError::Ports(all).into());
    }
    Ok(missing)
}

fn note_origin(origins: &mut BTreeMap<String, String>, asked: &RuleChanges) {
    let RuleChanges {
        allow,
        add,
        remove,
        deny,
        end: _,
    } = asked;
    for (field, is_asked) in [
        (
            Field::NetworkAllow,
            allow.is_some() || add.is_some() || remove.is_some(),
        ),
        (Field::NetworkDeny, deny.is_some()),
    ] {
        if is_asked {
            let origin = Origin::Update.to_string();
            origins.insert(field.to_string(), origin);
        }
    }
}

fn words(rules: &BTreeSet<EgressRule>) -> String {
    list_text(rules.iter().map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::ClockReading;
    use crate::rules::samples::rules;

    #[test]
    fn removing_a_rule_that_has_just_ended_is_no_error_and_removes_the_others() {
        let mut now = rules(&["b.test", "c.test"], &[]);
        let end = Expiry::after(1, ClockReading::default()).unwrap();
        now.ends.insert("a.test".parse().unwrap(), end);
        let asked = |remove: &str| RuleChanges {
            remove: Some(remove.to_owned()),
            ..RuleChanges::default()
        };
        let left = |remove: &[&str]| {
            let mut left = now.allow.clone();
            take_out(&mut left, rules(remove, &[]).allow, &now).map(|()| left)
        };
        let narrowed = tightened(&asked("a.test, b.test"), &now).unwrap();
        assert_eq!(narrowed.allow, rules(&["c.test"], &[]).allow);
        assert_eq!(left(&["a.test", "b.test"]).unwrap(), narrowed.allow);
        // A rule that never was is one.
        assert_eq!(tightened(&asked("d.test, b.test"), &now), None);
        assert!(left(&["d.test", "b.test"]).is_err());
    }

    #[test]
    fn tightening_needs_no_permission() {
        let now = rules(&["a.test", "*.b.test", "c.test:22"], &["x.test"]);
        let list = |text: &str| Some(text.to_owned());
        for (asked, allow, deny) in [
            (
                RuleChanges {
                    allow: list(""),
                    ..RuleChanges::default()
                },
                &[][..],
                &["x.test"][..],
            ),
            (
                RuleChanges {
                    allow: list("a.test, w.b.test"),
                    ..RuleChanges::default()
                },
                &["a.test", "w.b.test"],
                &["x.test"],
            ),
            (
                RuleChanges {
                    remove: list("a.test"),
                    ..RuleChanges::default()
                },
                &["*.b.test", "c.test:22"],
                &["x.test"],
            ),
            (
                RuleChanges {
                    deny: list("y.test"),
                    ..RuleChanges::default()
                },
                &["a.test", "*.b.test", "c.test:22"],
                &["x.test", "y.test"],
            ),
        ] {
            assert_eq!(
                tightened(&asked, &now),
                Some(rules(allow, deny)),
                "{asked:?}"
            );
        }
        for asked in [
            RuleChanges {
                allow: list("d.test"),
                ..RuleChanges::default()
            },
            RuleChanges {
                allow: list("c.test"),
                ..RuleChanges::default()
            },
            RuleChanges {
                add: list("d.test"),
                ..RuleChanges::default()
            },
            RuleChanges {
                allow: list("@github"),
                ..RuleChanges::default()
            },
            RuleChanges {
                remove: list("d.test"),
                ..RuleChanges::default()
            },
            RuleChanges {
                deny: list(""),
                ..RuleChanges::default()
            },
            RuleChanges {
                remove: list("@github"),
                ..RuleChanges::default()
            },
        ] {
            assert_eq!(tightened(&asked, &now), None, "{asked:?}");
        }
    }
}
