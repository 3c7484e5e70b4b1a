//! The effect of every built-in policy on every bundle of a real engine, as text in `integration/golden/`.
//!
//! `AGENTBOX_BLESS=1 cargo test --test integration golden` writes the files; otherwise a difference fails. Reviewers of
//! a change read here how it affects containers.
//!
//! - `containers/POLICY.txt`: one complete container, the [`BASE`], under `--policy POLICY`: the kernels, the
//!   explanation with the filter program's figures, the plan, the shadow spec
//! - `containers/BUNDLE.txt`: the differences of another bundle, with their policies; and what the bundle's own
//!   annotations choose on a node without files
//! - `exec/POLICY.txt` and `exec/PROCESS.txt`: the same for a process.json of `exec`
//!
//! The test computes and compares every bundle completely, under every policy and on every kernel: it rebuilds each
//! from the base and the printed differences ([`difference`] explains them). Facts that all containers share, such as
//! the fields of a policy and their origins, are only in the bases.

mod difference;
mod files;
mod lines;

use std::collections::BTreeMap;
use std::fmt::Write;

use agentbox::plan::{DecidedPlan, HostFacts, PlanError, plan, process};
use agentbox::policy::{ResolvedPolicy, Selection};
use agentbox::render::explain::{self, ExplainedContainer, FullPlan, PageLength};
use agentbox::render::spec as shadow;
use agentbox::runtime::filter;
use oci_spec::runtime::Spec;

use self::difference::{Change, apply, between, parse};
use self::files::Folder;
use self::lines::Id;
use crate::fixtures::{self, POLICIES};

/// A plain `docker run`: its engine does not pass health checks to a runtime.
const BASE: &str = "docker26-health";

/// Bundles that differ less from another bundle of their engine than from the [`BASE`].
const RELATIVES: [(&str, &str); 4] = [
    ("cri", "cri17-sandbox"),
    ("ctr", "ctr17-run"),
    ("k8s", "cri17-sandbox"),
    ("podman", "podman54-run"),
];

/// Kernels of current distributions, with their Landlock ABI; the newest last.
fn kernels() -> Vec<(&'static str, HostFacts)> {
    vec![
        ("5.15", fixtures::host("5.15.0", (5, 15), 1)),
        ("6.1", fixtures::host("6.1.0", (6, 1), 2)),
        ("6.12", fixtures::host("6.12.0", (6, 12), 6)),
        ("6.18", fixtures::newest()),
    ]
}

/// A bundle, or a process of `exec`.
struct Member {
    /// The member that it is compared with; `None` for the base.
    relative: Option<&'static str>,
    id: Id,
    /// Everything about it, by policy.
    wholes: BTreeMap<&'static str, Vec<String>>,
    own: Option<Own>,
}

/// The choice of a bundle's own annotations.
struct Own {
    choice: String,
    /// The chosen policy, and the differences from choosing it by a flag.
    policy: Option<String>,
    plan: Vec<String>,
    changes: Vec<Change>,
}

#[test]
fn every_policy_does_to_every_bundle_what_its_golden_file_says() {
    let bundles = fixtures::bundles();
    let members = bundles.iter().map(|(name, spec)| {
        let id = Id::of(spec);
        let whole = |policy| (policy, id.hide(under(&flagged(policy, spec), spec)));
        let wholes: BTreeMap<_, _> = POLICIES.into_iter().map(whole).collect();
        let member = Member {
            relative: relative(name),
            own: Some(own(spec, &id, &wholes)),
            id,
            wholes,
        };
        (name.clone(), member)
    });
    check("containers", BASE, &members.collect());
}

#[test]
fn exec_gives_a_process_what_its_golden_file_says() {
    const PLAIN: &str = "docker26-exec";
    let spec = fixtures::bundle("docker26-run");
    let members = fixtures::processes().into_iter().map(|(name, wanted)| {
        let id = Id::of(&spec);
        let whole = |policy| {
            let decided = fixtures::planned(&flagged(policy, &spec), &spec).unwrap();
            let confined = process::confine(wanted.clone(), &decided.plan);
            (
                policy,
                id.hide(lines::once(lines::of("process", &confined))),
            )
        };
        let member = Member {
            relative: (name != PLAIN).then_some(PLAIN),
            wholes: POLICIES.into_iter().map(whole).collect(),
            id,
            own: None,
        };
        (name, member)
    });
    check("exec", PLAIN, &members.collect());
}

#[test]
fn nothing_of_a_plan_or_a_spec_can_change_without_another_line() {
    let spec = fixtures::bundle("docker26-tmpfs");
    for policy in POLICIES {
        let decided = fixtures::planned(&flagged(policy, &spec), &spec).unwrap();
        let rendered = shadow::confined(spec.clone(), &decided.plan, &fixtures::places());
        let plans = lines::assert_every_change_shows("plan", &FullPlan::from(&decided));
        let specs = lines::assert_every_change_shows("spec", &rendered);
        assert!(plans > 500 && specs > 300, "{plans} and {specs} changes");
    }
}

fn relative(name: &str) -> Option<&'static str> {
    let mut known = RELATIVES.iter();
    match known.find(|(engine, root)| name.starts_with(engine) && name != *root) {
        Some((_, root)) => Some(root),
        None => (name != BASE).then_some(BASE),
    }
}

/// The policy that `--policy NAME` resolves to for a container without requests.
fn flagged(policy: &str, spec: &Spec) -> ResolvedPolicy {
    let mut annotations = fixtures::annotations(spec);
    annotations.retain(|key, _| !key.starts_with("dev.agentbox."));
    match fixtures::select(Some(policy), &annotations).unwrap() {
        Selection::Policy(resolved) => *resolved,
        other => panic!("{other:?}"),
    }
}

/// Everything under one policy.
fn under(resolved: &ResolvedPolicy, spec: &Spec) -> Vec<String> {
    let on = |host: &HostFacts| words(resolved, plan(resolved, spec, &fixtures::facts(spec), host));
    let kernels = kernels();
    let ((newest_name, newest_host), older) = kernels.split_last().unwrap();
    let newest = on(newest_host);
    let newest_plan = planned(&newest);
    let mut text = vec![format!("on Linux {newest_name}: what follows")];
    let mut same = Vec::new();
    for (kernel, host) in older {
        let changes = printed(&between(&newest_plan, &planned(&on(host))));
        if changes.is_empty() {
            same.push(*kernel);
        }
        text.extend(
            changes
                .lines()
                .map(|line| format!("on Linux {kernel}: {line}")),
        );
    }
    if !same.is_empty() {
        text.push(format!("on Linux {}: the same", same.join(", ")));
    }
    let Ok(decided) = &newest else {
        text.extend(newest_plan);
        return lines::once(text);
    };
    let rendered = shadow::confined(spec.clone(), &decided.plan, &fixtures::places());
    text.push("== explanation".to_owned());
    text.extend(explanation(decided, resolved, spec, newest_host));
    text.push("== plan".to_owned());
    text.extend(newest_plan);
    text.push("== shadow spec".to_owned());
    text.extend(lines::of("spec", &rendered));
    lines::once(text)
}

/// Removes the policy's name from a refusal: the heading has it already.
fn words(
    resolved: &ResolvedPolicy,
    result: Result<DecidedPlan, PlanError>,
) -> Result<DecidedPlan, String> {
    let name = format!("policy '{}'", resolved.policy.name);
    result.map_err(|error| chain(&error).replace(&name, "policy '<policy>'"))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn planned(result: &Result<DecidedPlan, String>) -> Vec<String> {
    match result {
        Ok(decided) => lines::of("plan", &FullPlan::from(decided)),
        Err(error) => vec![format!("refused: {error}")],
    }
}

fn explanation(
    decided: &DecidedPlan,
    resolved: &ResolvedPolicy,
    spec: &Spec,
    host: &HostFacts,
) -> Vec<String> {
    let engine = spec.linux().as_ref().and_then(|l| l.seccomp().as_ref());
    let compiled =
        filter::compile(Some(filter::FilterRequest::of(&decided.plan, host)), engine).unwrap();
    let filter = compiled.map(|f| explain::filter(&f.program));
    let subject = ExplainedContainer {
        tool: Default::default(),
        landlock: None,
        left: Default::default(),
        approvals: Vec::new(),
        now: None,
        settings: Vec::new(),
        name: "container ID".to_owned(),
        identity: None,
        chosen_by: resolved.chosen_by.to_string(),
        decided: Some(decided.clone()),
        filter,
    };
    explain::text(&subject, PageLength::All)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The choice of a bundle itself.
fn own(spec: &Spec, id: &Id, wholes: &BTreeMap<&str, Vec<String>>) -> Own {
    let resolved = match fixtures::select(None, &fixtures::annotations(spec)) {
        Ok(Selection::Policy(resolved)) => *resolved,
        Ok(other) => panic!("{other:?}"),
        Err(error) => {
            return Own {
                choice: format!("refused: {}", chain(&error)),
                policy: None,
                plan: Vec::new(),
                changes: Vec::new(),
            };
        }
    };
    let name = resolved.policy.name.to_string();
    let own = planned(&words(&resolved, fixtures::planned(&resolved, spec)));
    let plan = id.hide(lines::once(own));
    Own {
        choice: format!("policy '{name}', chosen by {}", resolved.chosen_by),
        changes: between(&plan_of(&wholes[name.as_str()]), &plan),
        policy: Some(name),
        plan,
    }
}

fn plan_of(whole: &[String]) -> Vec<String> {
    let is_plan = |line: &&String| line.starts_with("plan.") || line.starts_with("refused: ");
    whole.iter().filter(is_plan).cloned().collect()
}

/// Compares all files of a folder, after rebuilding each member from them.
fn check(folder: &str, base: &str, members: &BTreeMap<String, Member>) {
    let mut golden = Folder::new(folder);
    for policy in POLICIES {
        let whole = &members[base].wholes[policy];
        let text = format!("{base} under {policy}, in whole\n{}", sections(whole));
        let written: Vec<&str> = text.lines().skip(1).filter(|l| !l.is_empty()).collect();
        assert_eq!(&written, whole);
        golden.check(policy, &text);
    }
    for (name, member) in members {
        let text = describe(name, member, members);
        assert_complete(&text, name, member, members);
        golden.check(name, &text);
    }
    golden.finish();
}

/// A complete text with an empty line before each part.
fn sections(whole: &[String]) -> String {
    let mut text = String::new();
    for line in whole {
        let gap = if line.starts_with("== ") { "\n" } else { "" };
        writeln!(text, "{gap}{line}").unwrap();
    }
    text
}

const EVERY: &str = "under every policy";

/// The file of one bundle or process.
fn describe(name: &str, member: &Member, members: &BTreeMap<String, Member>) -> String {
    let mut text = match member.relative {
        Some(relative) => format!("{name}: {relative} with these changes\n"),
        None => format!("{name}: the base, which the files of the policies have in whole\n"),
    };
    text += &member.id.line();
    if let Some(relative) = member.relative {
        let relative = &members[relative].wholes;
        let mut groups: Vec<(Vec<&str>, Vec<Change>)> = Vec::new();
        for (change, policies) in by_policy(&member.wholes, relative) {
            match groups.iter_mut().find(|(group, _)| *group == policies) {
                Some((_, changes)) => changes.push(change),
                None => groups.push((policies, vec![change])),
            }
        }
        groups.sort_by_key(|(policies, _)| POLICIES.len() - policies.len());
        for (policies, changes) in groups {
            let heading = format!("under {}", policies.join(", "));
            let is_every = policies.len() == POLICIES.len();
            let heading = if is_every { EVERY } else { &heading };
            write!(text, "\n{heading}\n{}", printed(&changes)).unwrap();
        }
    }
    if let Some(own) = &member.own {
        write!(text, "\nits own annotations: {}", own.choice).unwrap();
        text += &own_changes(own, member, members);
    }
    text
}

fn printed(changes: &[Change]) -> String {
    changes.iter().map(Change::to_string).collect()
}

/// Each change with its policies.
fn by_policy(
    wholes: &BTreeMap<&'static str, Vec<String>>,
    relative: &BTreeMap<&'static str, Vec<String>>,
) -> Vec<(Change, Vec<&'static str>)> {
    let mut all: Vec<(Change, Vec<&str>)> = Vec::new();
    for policy in POLICIES {
        for change in between(&relative[policy], &wholes[policy]) {
            match all.iter_mut().find(|(known, _)| *known == change) {
                Some((_, policies)) => policies.push(policy),
                None => all.push((change, vec![policy])),
            }
        }
    }
    all
}

/// If the differences from the flag's policy equal the base's, only the base's name is printed.
fn own_changes(own: &Own, member: &Member, members: &BTreeMap<String, Member>) -> String {
    let Some(policy) = &own.policy else {
        return "\n".to_owned();
    };
    let of_base = members.get(BASE).and_then(|base| base.own.as_ref());
    let is_as_base = of_base.is_some_and(|base| base.changes == own.changes);
    if own.changes.is_empty() {
        format!(": as under {policy}\n")
    } else if is_as_base && member.relative.is_some() {
        format!(": as under {policy}{AS_BASE}{BASE}\n")
    } else {
        format!(
            ": as under {policy} with these changes\n{}",
            printed(&own.changes)
        )
    }
}

const AS_BASE: &str = " with the changes of ";

/// Rebuilds the member from its text and its relative, as a reader would.
fn assert_complete(text: &str, name: &str, member: &Member, members: &BTreeMap<String, Member>) {
    let paragraphs: Vec<(&str, Vec<Change>)> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_once('\n').unwrap_or((paragraph, "")))
        .skip(1)
        .map(|(heading, body)| (heading, parse(body.lines())))
        .collect();
    for policy in POLICIES {
        let whole = &member.wholes[policy];
        let Some(relative) = member.relative else {
            continue;
        };
        let applies = |heading: &str| {
            let named = heading.strip_prefix("under ");
            heading == EVERY || named.is_some_and(|n| n.split(", ").any(|p| p == policy))
        };
        let here = paragraphs.iter().filter(|(heading, _)| applies(heading));
        let changes: Vec<Change> = here.flat_map(|(_, changes)| changes.clone()).collect();
        assert_eq!(
            &apply(&members[relative].wholes[policy], &changes),
            whole,
            "{name}"
        );
    }
    let Some((own, policy)) = member
        .own
        .as_ref()
        .and_then(|o| Some((o, o.policy.as_ref()?)))
    else {
        return;
    };
    let (heading, changes) = paragraphs.last().unwrap();
    let changes = if heading.contains(AS_BASE) {
        &members[BASE].own.as_ref().unwrap().changes
    } else {
        changes
    };
    let flagged = plan_of(&member.wholes[policy.as_str()]);
    assert_eq!(apply(&flagged, changes), own.plan, "{name}");
}
