//! The events of a container's life that the runtime knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use oci_spec::runtime::{LinuxResources, Process};

use crate::audit::{
    CountedLimit, Event, EventDetail, LifeState, LogHead, LoggedCommand, PlainText, Verdict,
    WallName, hash,
};
use crate::cgroup::oom;
use crate::plan::text;
use crate::plan::{AuditPlan, MountReason};
use crate::rules::{ApprovalTerm, EgressRule, EgressRules, HostName};

use super::node_log::life;
use super::omitted::{not_given, wall_of};
use super::{FILTER, ports};
use crate::runtime::RuntimeError;
use crate::runtime::network::counted;
use crate::runtime::state::identity;
use crate::runtime::state::record::Record;
use crate::sys::procfs;

/// The most lines about requested items that are not granted; the record has them all.
const MOST_LEFT_OUT: usize = 200;

/// The container was created: its command, the hashes of its plan and filter, then what it was not granted.
pub fn created(process: Option<&Process>, record: &Record) -> Vec<Event> {
    let plan = record.plan();
    let command = process.map(|process| {
        let (arguments, user) = (process.args().clone(), process.user());
        LoggedCommand::of(arguments.unwrap_or_default(), user.uid(), user.gid())
    });
    let mut events = vec![life(EventDetail::Container {
        state: LifeState::Created,
        exit: None,
        signal: None,
        logs: Vec::new(),
        command,
        kept: kept_of(record),
        receipt_by: None,
    })];
    let Some(plan) = plan else { return events };
    let agent = plan.filesystem.mounts.iter();
    let agent = agent.filter(|mount| matches!(mount.why, MountReason::Agent(_)));
    events.extend(agent.map(|mount| {
        let what = mount_of(&mount.destination, mount.source());
        let why = mount.why.to_string();
        mount_event(what, Verdict::Allowed, "agent", why)
    }));
    let verdict = |is_of_every_engine| match is_of_every_engine {
        true => Verdict::Noted,
        false => Verdict::Denied,
    };
    let mounts = plan.filesystem.pruned.iter().map(|mount| {
        let what = mount_of(&mount.destination, &mount.source);
        let verdict = verdict(mount.of_every_engine);
        mount_event(what, verdict, "left-out", mount.why.to_string())
    });
    let tool = identity::tool(record);
    let asked = plan.not_given.iter().map(|item| {
        let verdict = verdict(item.is_of_every_engine());
        let (reason, hint) = not_given(item, tool);
        let what = asked_item(item);
        Event {
            cause: Some("not-given".into()),
            reason: Some(reason.into()),
            hint: hint.map(Into::into),
            ..Event::new(wall_of(item), verdict, what)
        }
    });
    events.extend(mounts.chain(asked).take(MOST_LEFT_OUT));
    let network = &plan.network;
    let nowhere = network.leads_nowhere.iter();
    events.extend(
        nowhere
            .map(|(port, outside)| ports::published(&record.id, tool, network, (*port, outside))),
    );
    let audited = plan.report.audit.as_ref().map(audited).unwrap_or_default();
    events.extend(audited.into_iter().take(MOST_LEFT_OUT));
    events
}

fn mount_of(destination: &Path, source: &Path) -> EventDetail {
    EventDetail::Mount {
        destination: text::of(destination).into(),
        source: text::of(source).into(),
    }
}

fn mount_event(what: EventDetail, verdict: Verdict, cause: &str, why: String) -> Event {
    Event {
        cause: Some(cause.into()),
        reason: Some(why.into()),
        ..Event::new(WallName::Filesystem, verdict, what)
    }
}

/// The hashes of what is enforced.
fn kept_of(record: &Record) -> BTreeMap<PlainText, PlainText> {
    // A plan always has a JSON form.
    let plan = record
        .plan()
        .and_then(|plan| serde_json::to_vec(plan).ok())
        .map(|plan| hash(&plan));
    let all = [("plan", plan), (FILTER, record.filter_hash.clone())];
    let known = all
        .into_iter()
        .filter_map(|(name, hash)| Some((name.into(), hash?.into())));
    known.collect()
}

/// What an audited policy would deny, as far as that is known before the program runs.
fn audited(audit: &AuditPlan) -> Vec<Event> {
    let AuditPlan {
        policy,
        refused,
        mounts,
        not_given,
        less,
        // The sidecar checks connections.
        network: _,
    } = audit;
    let event = |wall, what, cause: &str, why: &str| Event {
        cause: Some(cause.into()),
        reason: Some(format!("policy {policy}: {why}").into()),
        ..Event::new(wall, Verdict::WouldDeny, what)
    };
    let refused = refused.iter().map(|why| {
        let what = asked_item("the container itself");
        event(WallName::Life, what, "refused", why)
    });
    let mounts = mounts.iter().map(|mount| {
        let what = mount_of(&mount.destination, &mount.source);
        event(
            WallName::Filesystem,
            what,
            "left-out",
            &mount.why.to_string(),
        )
    });
    let not_given = not_given.iter().map(|item| {
        event(
            wall_of(item),
            asked_item(item),
            "not-given",
            "it would not be given",
        )
    });
    let less = less.iter().map(|less| {
        let (field, allowed) = (less.field, &less.allowed);
        let wall = match field.as_str().split('.').next() {
            Some("network") => WallName::Network,
            Some("syscalls") => WallName::Syscalls,
            Some("filesystem") => WallName::Filesystem,
            Some("limits") => WallName::Resources,
            _ => WallName::Privileges,
        };
        let why = format!("it has {allowed}; whether more is used is not seen");
        event(
            wall,
            asked_item(format_args!("{field} = {}", less.asked)),
            "less",
            &why,
        )
    });
    refused.chain(mounts).chain(not_given).chain(less).collect()
}

/// An item that the engine requested, as the log shows it.
fn asked_item(item: impl ToString) -> EventDetail {
    EventDetail::Asked {
        item: item.to_string().into(),
    }
}

/// Limits that were reached, by the kernel's counts; read while the cgroup exists.
pub fn limits(record: &Record) -> Vec<Event> {
    let (tool, plan) = (identity::tool(record), record.plan());
    let all = (record.controllers.as_ref()).map(|of| counted::limits(of, plan));
    let reached = all.into_iter().flatten().filter_map(|one| {
        let text = |path| procfs::text(path).unwrap_or_default();
        let times = match one.limit {
            CountedLimit::Memory => oom::killed(&text(&one.files.events)),
            CountedLimit::Pids => oom::forks_refused(&text(&one.files.events)),
        };
        let value = oom::limit(&text(&one.files.limit));
        let times = times.filter(|times| *times > 0)?;
        Some(one.limit.reached(times, value, one.bound, tool))
    });
    reached.collect()
}

/// `start` has run the program, or failed.
pub fn started(result: &Result<(), RuntimeError>) -> Event {
    let event = life(EventDetail::life(LifeState::Started));
    match result {
        Ok(()) => event,
        Err(error) => Event {
            verdict: Verdict::Failed,
            reason: Some(crate::log::chain(error).into()),
            ..event
        },
    }
}

/// The init process has ended.
pub fn ended(status: i32) -> Event {
    life(EventDetail::Container {
        state: LifeState::Ended,
        exit: Some(status),
        signal: None,
        logs: Vec::new(),
        command: None,
        kept: BTreeMap::new(),
        receipt_by: None,
    })
}

/// The container was deleted: with the ends of its other logs, the hashes of its other files, and the key that signs a
/// receipt.
pub fn deleted(
    logs: Vec<LogHead>,
    kept: BTreeMap<PlainText, PlainText>,
    receipt_by: Option<String>,
) -> Event {
    life(EventDetail::Container {
        state: LifeState::Deleted,
        exit: None,
        signal: None,
        logs,
        command: None,
        kept,
        receipt_by: receipt_by.map(Into::into),
    })
}

/// A signal was sent.
pub fn signalled(signal: &str) -> Event {
    life(EventDetail::Container {
        state: LifeState::Signalled,
        exit: None,
        signal: Some(signal.into()),
        logs: Vec::new(),
        command: None,
        kept: BTreeMap::new(),
        receipt_by: None,
    })
}

/// `update` has set limits.
pub fn limits_set(resources: &LinuxResources) -> Event {
    let mut limits = Vec::new();
    // Resources always have a JSON form.
    leaves(
        &serde_json::to_value(resources).unwrap_or_default(),
        "",
        &mut limits,
    );
    Event {
        reason: Some(format!("set by {}", who()).into()),
        ..Event::new(
            WallName::Resources,
            Verdict::Noted,
            EventDetail::Update {
                limits: limits.into(),
            },
        )
    }
}

/// Each number or text of a value, as `path=value`.
fn leaves(value: &serde_json::Value, path: &str, all: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                leaves(value, &path, all);
            }
        }
        Value::Null => {}
        value => all.push(format!("{path}={value}")),
    }
}

/// The network's rules have changed.
pub fn rules_changed(old: &EgressRules, new: &EgressRules) -> Event {
    let words = |rules: &BTreeSet<EgressRule>, without: &BTreeSet<EgressRule>| {
        rules.difference(without).map(ToString::to_string).collect()
    };
    let what = EventDetail::Rules {
        added: words(&new.allow, &old.allow),
        removed: words(&old.allow, &new.allow),
        denied: words(&new.deny, &old.deny),
        inbound: Vec::new(),
        by: who().into(),
    };
    Event::new(WallName::Rules, Verdict::Noted, what)
}

/// The user has decided about a host.
pub fn decided(host: &HostName, port: u16, approved: Option<ApprovalTerm>) -> Event {
    let what = EventDetail::Approval {
        host: host.to_string().into(),
        port,
        lasting: approved
            .map(|lasting| match lasting {
                ApprovalTerm::Once => "once".to_owned(),
                ApprovalTerm::Always => "always".to_owned(),
                ApprovalTerm::Seconds(seconds) => format!("{seconds}s"),
                ApprovalTerm::Until(date) => format!("until {date}"),
            })
            .map(Into::into),
        by: who().into(),
    };
    let verdict = match approved {
        Some(_) => Verdict::Allowed,
        None => Verdict::Denied,
    };
    Event::new(WallName::Rules, verdict, what)
}

/// Who runs this verb, according to the kernel and sudo.
pub fn who() -> String {
    let mut words = format!("uid {}", rustix::process::getuid().as_raw());
    // The user who logged in, whatever they have become since; the largest number means no user.
    let login = procfs::text("/proc/self/loginuid").unwrap_or_default();
    if let Ok(login) = login.trim().parse::<u32>()
        && login != u32::MAX
    {
        words += &format!(", logged in as uid {login}");
    }
    if let Ok(name) = std::env::var("SUDO_USER") {
        words += &format!(", sudo by {name}");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::HostName;

    #[test]
    fn new_limits_are_listed_by_their_paths_in_the_specification() {
        let resources: LinuxResources = serde_json::from_value(serde_json::json!({
            "memory": {"limit": 1024}, "cpu": {"quota": 50_000, "cpus": "0-1"}, "pids": {"limit": 7},
        }))
        .unwrap();
        let event = limits_set(&resources);
        let EventDetail::Update { limits } = event.what else {
            panic!("{event:?}");
        };
        let mut limits = limits.to_vec();
        limits.sort();
        for limit in [
            "memory.limit=1024",
            "cpu.quota=50000",
            "cpu.cpus=\"0-1\"",
            "pids.limit=7",
        ] {
            assert!(limits.iter().any(|one| one == limit), "{limit}: {limits:?}");
        }
        assert_eq!(
            (event.wall, event.verdict),
            (WallName::Resources, Verdict::Noted)
        );
    }

    #[test]
    fn a_change_of_rules_names_only_what_changed() {
        let rules = |allow: &[&str], deny: &[&str]| {
            let parse = |list: &[&str]| list.iter().map(|rule| rule.parse().unwrap()).collect();
            EgressRules {
                allow: parse(allow),
                deny: parse(deny),
                ..EgressRules::default()
            }
        };
        let old = rules(&["a.test", "b.test"], &["x.test"]);
        let event = rules_changed(
            &old,
            &rules(&["b.test", "c.test:22"], &["x.test", "y.test"]),
        );
        let EventDetail::Rules {
            added,
            removed,
            denied,
            ..
        } = event.what
        else {
            panic!("{event:?}");
        };
        assert_eq!(*added, ["c.test:22"]);
        assert_eq!(*removed, ["a.test"]);
        assert_eq!(*denied, ["y.test"]);
    }

    #[test]
    fn an_approval_tells_how_long_it_lasts_and_a_denial_does_not() {
        let host: HostName = "a.test".parse().unwrap();
        for (term, word, verdict) in [
            (Some(ApprovalTerm::Once), Some("once"), Verdict::Allowed),
            (Some(ApprovalTerm::Always), Some("always"), Verdict::Allowed),
            (
                Some(ApprovalTerm::Seconds(600)),
                Some("600s"),
                Verdict::Allowed,
            ),
            (None, None, Verdict::Denied),
        ] {
            let event = decided(&host, 443, term);
            assert_eq!(event.verdict, verdict);
            let EventDetail::Approval { lasting, .. } = event.what else {
                panic!("{word:?}");
            };
            assert_eq!(lasting.as_deref(), word);
        }
    }
}
