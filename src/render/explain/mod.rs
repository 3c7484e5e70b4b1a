//! PURE. The plan as text: each wall with its rules and their origin, and everything omitted.
//!
//! It describes the [`Plan`] that is enforced, never the policy.

mod filesystem;
mod landlock;
mod network;
mod origins;
mod page;
mod process;
pub mod syscalls;
pub mod time;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

pub use self::landlock::{LandlockPath, LandlockWalls};
pub use self::page::PageLength;
use self::page::{Page, path, size};
use super::identity::ContainerIdentity;
use crate::kernel::SyscallName;
use crate::plan::report::{DENIED, DENIED_IN};
use crate::plan::time::TimeLeft;
use crate::plan::{
    AuditPlan, DecidedPlan, LimitsPlan, MountReason, OmittedItem, Plan, SyscallPlan, Warning,
};
use crate::policy::{Loosening, NetworkMode, Policy, SyscallProfile, Tool};
use crate::rules::ClockReading;
use crate::seccomp::{FilterProgram, NotifyListener, SyscallFilter, SyscallVerdict};
use crate::text::escape;

/// The container to explain; as JSON, the output of `explain --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedContainer {
    /// `container <id>` or `bundle <path>`.
    pub name: String,
    /// The names that its engine gave it, if it is a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<ContainerIdentity>,
    /// The tool in whose words it is explained.
    #[serde(skip)]
    pub tool: Tool,
    /// Who chose the policy.
    pub chosen_by: String,
    /// The plan and its policy. `None` under `unconfined`, and under Landlock, which enforces less than the plan says.
    #[serde(rename = "plan", serialize_with = "whole")]
    pub decided: Option<DecidedPlan>,
    /// The filter program of the syscall wall, in one line.
    pub filter: Option<String>,
    /// The walls of `wrap --walls landlock`, instead of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landlock: Option<LandlockWalls>,
    /// What is left of its time limits, if it runs and has any.
    #[serde(flatten)]
    pub left: TimeLeft,
    /// The approvals in force, with what is left of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<String>,
    /// The time, for what is left of rules and secrets; `None` if it does not run.
    #[serde(skip)]
    pub now: Option<ClockReading>,
    /// The lines of settings files that change the options of `wrap`, each with its file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
}

impl ExplainedContainer {
    /// As at this time: without the rules whose time is over, and with what is left of others.
    #[must_use]
    pub fn at(mut self, now: ClockReading) -> Self {
        if let Some(decided) = &mut self.decided {
            decided.plan.network.rules.expire(now);
        }
        if let Some(walls) = &mut self.landlock {
            walls.expire(now);
        }
        self.now = Some(now);
        self
    }
}

/// The plan with its policy and origins: one object for scripts.
#[derive(Debug, Serialize)]
pub struct FullPlan<'a> {
    policy: Policy,
    origins: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    plan: Plan,
}

impl<'a> From<&'a DecidedPlan> for FullPlan<'a> {
    fn from(decided: &'a DecidedPlan) -> Self {
        let mut plan = decided.plan.clone();
        for warning in &mut plan.warnings {
            *warning = Warning::InWords(warning.to_string());
        }
        for mount in &mut plan.filesystem.mounts {
            mount.why = MountReason::InWords(mount.why.to_string());
        }
        let audited = plan.report.audit.iter_mut();
        let audited = audited.flat_map(|audit| &mut audit.not_given);
        for item in plan.not_given.iter_mut().chain(audited) {
            *item = OmittedItem::InWords(item.to_string());
        }
        Self {
            policy: decided.policy(),
            origins: &decided.origins,
            plan,
        }
    }
}

fn whole<S: Serializer>(decided: &Option<DecidedPlan>, to: S) -> Result<S::Ok, S::Error> {
    decided.as_ref().map(FullPlan::from).serialize(to)
}

/// The explanation as text.
pub fn text(subject: &ExplainedContainer, length: PageLength) -> String {
    let mut page = Page::new(length, subject.tool);
    let words = subject.identity.as_ref().map(ContainerIdentity::words);
    let name = match words.filter(|words| !words.is_empty()) {
        Some(words) => format!("{} ({words})", subject.name),
        None => subject.name.clone(),
    };
    let (chosen_by, filter) = (&subject.chosen_by, subject.filter.as_deref());
    match (&subject.decided, &subject.landlock) {
        (_, Some(walls)) => {
            let policy = &walls.policy.name;
            page.head(
                &name,
                format_args!("policy '{policy}', chosen by {chosen_by}"),
            );
            landlock::explain(&mut page, walls, filter);
            origins::explain(&mut page, &walls.origins);
        }
        (None, None) => {
            page.head(
                &name,
                format_args!("unconfined (chosen by {chosen_by}): no walls of agentbox"),
            );
            let none = "no filter: the engine gave none";
            page.head("syscalls", filter.unwrap_or(none));
        }
        (Some(decided), None) => {
            let policy = &decided.resolved.name;
            page.head(
                &name,
                format_args!("policy '{policy}', chosen by {chosen_by}"),
            );
            if decided.plan.network.learns() {
                page.head(
                    "LEARN MODE",
                    "public names that no rule lists are allowed and recorded (report.learn)",
                );
            }
            walls(&mut page, &decided.plan, filter, subject.tool);
            time::left(&mut page, subject.left);
            time::ends(&mut page, &decided.plan.network, subject.now);
            for approval in &subject.approvals {
                page.head("approved", approval);
            }
            origins::explain(&mut page, &decided.origins);
        }
    }
    if !subject.settings.is_empty() {
        page.line("settings");
    }
    for setting in &subject.settings {
        page.item(escape(setting));
    }
    let is_confined = subject.decided.is_some() || subject.landlock.is_some();
    if is_confined && !page.is_whole() {
        page.line("--all prints every mount and each value's origin");
    }
    page.into_text()
}

fn walls(page: &mut Page, plan: &Plan, filter: Option<&str>, tool: Tool) {
    filesystem::explain(page, &plan.filesystem);
    network::explain(page, &plan.network, tool);
    syscalls(page, &plan.syscalls, filter);
    process::privileges(page, plan);
    limits(page, plan.limits);
    time::explain(page, plan.time);
    time::explain_exec(page, plan.exec_time);
    report(page, plan);
    if tool != Tool::Wrap {
        leave(page, plan);
    }
    for thing in &plan.not_given {
        page.head("not given", escape(&thing.to_string()));
    }
    for warning in &plan.warnings {
        page.head("warning", escape(&warning.to_string()));
    }
}

fn limits(page: &mut Page, limits: LimitsPlan) {
    let LimitsPlan {
        pids,
        memory_bytes,
        cpu_milli,
    } = limits;
    let mut bounds = Vec::new();
    bounds.extend(pids.map(|pids| format!("{pids} processes")));
    bounds.extend(memory_bytes.map(|bytes| format!("{} of memory", size(bytes))));
    bounds.extend(cpu_milli.map(|milli| {
        let (whole, rest) = (milli / 1000, milli % 1000);
        format!("{whole}.{rest:03} processors")
    }));
    let text = match bounds.is_empty() {
        true => page.words("as the engine says", "none").to_owned(),
        false => format!(
            "at most {}{}",
            bounds.join(", "),
            page.words("; less if the engine sets less", "")
        ),
    };
    page.head("limits", text);
}

/// What the workload can read about its walls.
fn report(page: &mut Page, plan: &Plan) {
    if let Some(audit) = &plan.report.audit {
        audited(page, audit);
    }
    if !plan.report.denied {
        return;
    }
    let has_proxy = plan.network.mode == NetworkMode::Allowlist || plan.network.refusing;
    let (which, at) = match &plan.network.shared {
        // It is not known here whether the other container shows its denials.
        Some(_) => ("denied system calls", String::new()),
        None if has_proxy => (
            "refusals",
            format!(
                "; those of the network also at http://127.0.0.1:{}/denied",
                plan.network.proxy_port
            ),
        ),
        None => ("refusals", String::new()),
    };
    page.head(
        "report",
        format_args!(
            "the container reads its last {which} in {DENIED_IN}/{DENIED}, read-only{at} (report.denied)"
        ),
    );
}

/// A policy that is tried but not enforced.
fn audited(page: &mut Page, audit: &AuditPlan) {
    page.head(
        "audit",
        format_args!(
            "policy '{}' is reported and not enforced (report.audit); agentbox audit shows what it would deny",
            audit.policy
        ),
    );
    if let Some(why) = &audit.refused {
        page.item(format_args!(
            "the container would be refused: {}",
            escape(why)
        ));
    }
    for mount in &audit.mounts {
        let (place, source) = (path(&mount.destination), path(&mount.source));
        let why = escape(&mount.why);
        page.item(format_args!("{place} (from {source}): {why}"));
    }
    for thing in &audit.not_given {
        page.item(format_args!("not granted: {}", escape(&thing.to_string())));
    }
    for less in &audit.less {
        let (field, asked, allowed) = (less.field, &less.asked, &less.allowed);
        page.item(format_args!(
            "{field}: {asked} here, {allowed} there; whether more is used is not seen"
        ));
    }
    if audit.network.is_none() && audit.refused.is_none() {
        page.item("the network is another container's, whose policies decide and report on it");
    }
}

/// What annotations may request beyond the policy.
fn leave(page: &mut Page, plan: &Plan) {
    let up_to = plan.ceilings.join(" and ");
    let text = match &plan.leave {
        None => return,
        Some(Loosening::UpToCeilings) => {
            format!("can narrow this, and loosen it up to the ceiling {up_to}")
        }
        Some(Loosening::Fields(fields)) if fields.is_empty() => "can only narrow this".to_owned(),
        Some(Loosening::Fields(fields)) => {
            let fields: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
            let fields = fields.join(", ");
            format!("can narrow this, and loosen {fields} up to the ceiling {up_to}")
        }
    };
    page.head("annotations", text);
}

fn syscalls(page: &mut Page, plan: &SyscallPlan, filter: Option<&str>) {
    let rules = if plan.engine_profile {
        "agentbox's base rules and the engine's profile, the stricter verdict of both"
    } else {
        page.words(
            "agentbox's base rules; the engine gave no profile",
            "agentbox's base rules",
        )
    };
    let rules = rules.to_owned();
    page.head("syscalls", rules);
    changed_calls(page, plan, filter);
}

/// The policy's changes to the base rules, and the filter program.
fn changed_calls(page: &mut Page, plan: &SyscallPlan, filter: Option<&str>) {
    let join = |set: &BTreeSet<SyscallName>| {
        let names: Vec<&str> = set.iter().map(|name| name.as_str()).collect();
        names.join(" ")
    };
    match plan.profile {
        SyscallProfile::Agent => {}
        SyscallProfile::Debug => page.item("profile debug: also the calls of debuggers"),
        SyscallProfile::Paranoid => page.item(
            "profile paranoid: short lists for ioctl, prctl and fcntl; written memory cannot be executed",
        ),
    }
    if !plan.allow.is_empty() {
        page.item(format_args!("added: {}", join(&plan.allow)));
    }
    if !plan.deny.is_empty() {
        page.item(format_args!("removed: {}", join(&plan.deny)));
    }
    if let Some(filter) = filter {
        page.item(filter);
    }
}

/// A filter program in one line: what it allows, checks and denies, from the program itself.
pub fn filter(program: &FilterProgram) -> String {
    let summary = SyscallFilter {
        program: program.clone(),
        flags: 0,
        listener: NotifyListener::Nobody,
        notes: Vec::new(),
    }
    .describe();
    let denied: Vec<String> = summary
        .denied
        .iter()
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    // Calls that the sidecar answers have an errno; an agent's have none.
    let logged = |verdict: &SyscallVerdict| matches!(verdict, SyscallVerdict::Notify(1..));
    let log = match summary.denied.keys().any(logged) {
        true => "",
        false => "; denied calls are not logged",
    };
    format!(
        "{} calls allowed, {} by their arguments, denied: {}{log}; {} instructions",
        summary.allowed,
        summary.checked.len(),
        denied.join(", "),
        summary.instructions
    )
}
