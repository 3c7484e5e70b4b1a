//! PURE. The plan for people: each wall with its rules and their origin, and everything left out.
//!
//! It is written from the [`Plan`] that is enforced, never from the policy.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use super::identity::Identity;
use crate::egress::spelling;
use crate::plan::{EphemeralContent, FilesystemPlan, LimitsPlan, Plan, PlannedMount, ScratchPlace};
use crate::policy::escape;
use crate::policy::{HostName, Leave, NetworkMode, NetworkRule, RootAccess, Target, UpstreamNames};
use crate::render::ext4::Blank;
use crate::seccomp::{Filter, Program};

/// What is explained.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `container <id>` or `bundle <path>`.
    pub name: String,
    /// What its engine calls it, where it is a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Who chose the policy.
    pub chosen_by: String,
    /// The plan; `None` under `unconfined`.
    pub plan: Option<Plan>,
    /// The program of the syscall wall in one line.
    pub filter: Option<String>,
}

/// The explanation.
pub fn text(subject: &Subject) -> String {
    let mut out = String::new();
    let words = subject.identity.as_ref().map(Identity::words);
    let name = match words.filter(|words| !words.is_empty()) {
        Some(words) => format!("{} ({words})", subject.name),
        None => subject.name.clone(),
    };
    let Some(plan) = &subject.plan else {
        line(
            &mut out,
            "",
            &format!(
                "{}: unconfined (chosen by {}): none of agentbox's walls",
                name, subject.chosen_by
            ),
        );
        line(
            &mut out,
            "syscalls",
            subject
                .filter
                .as_deref()
                .unwrap_or("no filter: the engine gave none"),
        );
        return out;
    };
    line(
        &mut out,
        "",
        &format!(
            "{}: policy '{}', chosen by {}",
            name, plan.policy.name, subject.chosen_by
        ),
    );
    filesystem(&mut out, plan);
    network(&mut out, plan);
    syscalls(&mut out, plan, subject.filter.as_deref());
    privileges(&mut out, plan);
    limits(&mut out, plan);
    leave(&mut out, plan);
    for thing in &plan.not_given {
        line(&mut out, "not given", &escape(thing));
    }
    for warning in &plan.warnings {
        line(&mut out, "warning", &escape(warning));
    }
    origins(&mut out, plan);
    out
}

fn filesystem(out: &mut String, plan: &Plan) {
    let fs = &plan.filesystem;
    let root = match fs.root {
        RootAccess::ReadOnly => "the image, read-only".to_owned(),
        RootAccess::Ephemeral => "the image; writes are thrown away".to_owned(),
    };
    line(out, "files", &root);
    if fs.needs_scratch() {
        item(out, &format!("thrown away: {}", scratch(fs)));
    }
    for dir in &fs.ephemeral {
        let content = match dir.content {
            EphemeralContent::Empty => "empty",
            EphemeralContent::EmptyHome => "empty and not executable",
            EphemeralContent::Image => "as in the image",
        };
        item(
            out,
            &format!(
                "{}  writable, {content} at first, thrown away",
                path(&dir.path)
            ),
        );
    }
    // The kernel's own file systems are the same in every container; a tmpfs of the engine is one more place to write.
    let told = |m: &&PlannedMount| {
        m.judged.is_some() || (m.kind == "tmpfs" && !m.destination.starts_with("/dev"))
    };
    for mount in fs.mounts.iter().filter(told) {
        let access = match (mount.is_writable(), mount.private) {
            (false, _) => "read-only",
            (true, false) => "read-write",
            (true, true) => "writable, as the volume at first, thrown away",
        };
        item(
            out,
            &format!(
                "{}  {access}, from {}: {}",
                path(&mount.destination),
                path(&mount.source),
                mount.why
            ),
        );
    }
    for file in &fs.replaced {
        item(
            out,
            &format!("{}  agentbox's own, in place of the engine's", path(file)),
        );
    }
    for told in &fs.excludes {
        let names: Vec<String> = told.names.iter().map(|name| path(name)).collect();
        item(
            out,
            &format!(
                "{}  read-only: tells git to ignore the hidden files, besides its own lines: {}",
                path(&told.file),
                names.join(" ")
            ),
        );
    }
    for pruned in &fs.pruned {
        item(
            out,
            &format!(
                "{}  not mounted (from {}): {}",
                path(&pruned.destination),
                path(&pruned.source),
                escape(&pruned.why)
            ),
        );
    }
    let paths =
        |list: &[std::path::PathBuf]| list.iter().map(|p| path(p)).collect::<Vec<_>>().join(" ");
    item(out, &format!("empty: {}", paths(&fs.masked)));
    for seen in &fs.seen {
        let files: Vec<String> = seen.files.iter().map(|f| path(&f.path)).collect();
        item(
            out,
            &format!(
                "{}  empty except the files that git has, read-only: {}",
                path(&seen.directory),
                files.join(" ")
            ),
        );
    }
    item(out, &format!("read-only: {}", paths(&fs.readonly)));
}

/// How much may be thrown away, where it lies until then, and what says so.
fn scratch(fs: &FilesystemPlan) -> String {
    let most = size(fs.scratch_bytes);
    match fs.scratch_place {
        ScratchPlace::Memory => format!(
            "at most {most}, in memory, which counts as the container's (filesystem.scratch, filesystem.scratch-on)"
        ),
        ScratchPlace::Disk => {
            let files = Blank::files(fs.scratch_bytes);
            format!("at most {most} and {files} files, on disk (filesystem.scratch)")
        }
    }
}

fn limits(out: &mut String, plan: &Plan) {
    let LimitsPlan {
        pids,
        memory_bytes,
        cpu_milli,
    } = plan.limits;
    let mut bounds = Vec::new();
    bounds.extend(pids.map(|pids| format!("{pids} processes")));
    bounds.extend(memory_bytes.map(|bytes| format!("{} of memory", size(bytes))));
    bounds.extend(cpu_milli.map(|milli| {
        let (whole, rest) = (milli / 1000, milli % 1000);
        format!("{whole}.{rest:03} processors")
    }));
    let text = match bounds.is_empty() {
        true => "as the engine says".to_owned(),
        false => format!(
            "at most {}; less where the engine says less",
            bounds.join(", ")
        ),
    };
    line(out, "limits", &text);
}

/// What an annotation may ask for on top.
fn leave(out: &mut String, plan: &Plan) {
    let up_to = plan.ceilings.join(" and ");
    let text = match &plan.leave {
        None => return,
        Some(Leave::UpToCeilings) => {
            format!("may narrow this, and loosen it up to the ceiling {up_to}")
        }
        Some(Leave::Fields(fields)) if fields.is_empty() => {
            "may narrow this, and loosen nothing".to_owned()
        }
        Some(Leave::Fields(fields)) => {
            let fields: Vec<&str> = fields.iter().map(|field| field.as_str()).collect();
            format!(
                "may narrow this, and loosen {} up to the ceiling {up_to}",
                fields.join(", ")
            )
        }
    };
    line(out, "annotations", &text);
}

fn network(out: &mut String, plan: &Plan) {
    let text = match plan.network.mode {
        NetworkMode::None => "none: a namespace of its own with the loopback interface alone",
        NetworkMode::Local => {
            "local: a namespace of its own with the loopback interface alone; no way out, no names, and refusals say so"
        }
        NetworkMode::Allowlist => {
            "allowlist: a namespace of its own without a route; through the sidecar it reaches"
        }
    };
    line(out, "network", text);
    if let Some(shared) = &plan.network.shared {
        let whose = escape(&shared.container);
        item(
            out,
            &format!(
                "shared with container {whose}, under its policy and sidecar; without them nothing is reached"
            ),
        );
    }
    if plan.network.mode == NetworkMode::Allowlist {
        allowlist(out, plan);
    }
    if !plan.network.inbound.is_empty() {
        let ports: Vec<String> = plan.network.inbound.iter().map(u16::to_string).collect();
        item(
            out,
            &format!(
                "inbound ports, to 127.0.0.1 and ::1 inside: {}",
                ports.join(" ")
            ),
        );
    }
    for (key, value) in &plan.network.sysctl {
        item(out, &format!("{} = {}", escape(key), escape(value)));
    }
}

/// What else a private name is called with the engine's search list.
fn spellings(rule: &NetworkRule, search: &[HostName]) -> Option<String> {
    let Target::Name(name) = &rule.target else {
        return None;
    };
    let others = match rule.reach.is_private() {
        true => spelling::others(name, search),
        false => Vec::new(),
    };
    let others: Vec<&str> = others.iter().map(HostName::as_str).collect();
    (!others.is_empty()).then(|| format!("{rule} is also called {}", others.join(", ")))
}

fn allowlist(out: &mut String, plan: &Plan) {
    let network = &plan.network;
    let list =
        |rules: &std::collections::BTreeSet<crate::policy::NetworkRule>| match rules.is_empty() {
            true => "nothing".to_owned(),
            false => rules
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        };
    item(out, &list(&network.rules.allow));
    for rule in &network.rules.allow {
        if let Some(text) = spellings(rule, &network.rules.search) {
            item(out, &text);
        }
    }
    if !network.rules.deny.is_empty() {
        item(out, &format!("but not {}", list(&network.rules.deny)));
    }
    item(
        out,
        &match &network.asking {
            None => "unlisted names are refused at once (network.on-unknown is deny)".to_owned(),
            Some(asking) => format!(
                "an unlisted name waits {} s for agentbox approve (network.on-unknown is ask), within {}",
                asking.seconds,
                asking
                    .limits
                    .iter()
                    .map(|limit| format!("the ceiling {}", limit.ceiling))
                    .collect::<Vec<_>>()
                    .join(" and ")
            ),
        },
    );
    let budget = network.budget;
    item(
        out,
        &format!(
            "at most {} connections at once, {} new ones in a minute, {} sent, {} names",
            budget.connections,
            budget.connections_per_minute,
            size(budget.upload_bytes),
            budget.hosts
        ),
    );
    if budget.cool_down_seconds > 0 {
        let pause = budget.cool_down_seconds;
        item(
            out,
            &format!("after a used-up budget nothing goes through for {pause} s"),
        );
    }
    if network.budgets_kept > 0 {
        let kept = network.budgets_kept;
        item(
            out,
            &format!(
                "used budgets still count if this container starts again within {kept} s of its end"
            ),
        );
    }
    if let Some(upstream) = &network.upstream {
        let names = match upstream.names {
            UpstreamNames::Vetted => "for addresses that the sidecar has resolved and checked",
            UpstreamNames::Proxy => {
                "for names, which the proxy resolves: nobody on this node sees their addresses"
            }
        };
        item(
            out,
            &format!("through the node's proxy {upstream}, {names}"),
        );
    }
    if network.proxy_env {
        item(out, "HTTP_PROXY and its kin name the sidecar");
    }
}

fn syscalls(out: &mut String, plan: &Plan, filter: Option<&str>) {
    let engine = if plan.syscalls.engine_profile {
        "agentbox's base rules and the engine's profile, the stricter verdict of both"
    } else {
        "agentbox's base rules; the engine gave no profile"
    };
    line(out, "syscalls", engine);
    let join = |set: &std::collections::BTreeSet<String>| {
        set.iter().cloned().collect::<Vec<_>>().join(" ")
    };
    if !plan.syscalls.allow.is_empty() {
        item(out, &format!("added: {}", join(&plan.syscalls.allow)));
    }
    if !plan.syscalls.deny.is_empty() {
        item(out, &format!("taken away: {}", join(&plan.syscalls.deny)));
    }
    if let Some(filter) = filter {
        item(out, filter);
    }
}

/// A program in one line: what it allows, checks and denies, from the program itself.
pub fn filter(program: &Program) -> String {
    let summary = Filter {
        program: program.clone(),
        flags: 0,
        notes: Vec::new(),
    }
    .describe();
    let denied: Vec<String> = summary
        .denied
        .iter()
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    format!(
        "{} calls allowed, {} by their arguments, denied: {}; {} instructions",
        summary.allowed,
        summary.checked.len(),
        denied.join(", "),
        summary.instructions
    )
}

fn privileges(out: &mut String, plan: &Plan) {
    line(
        out,
        "privileges",
        "no_new_privs; set-user-ID programs have no effect; no core dumps; a session keyring of its own",
    );
    let caps = plan
        .capabilities
        .bounding
        .iter()
        .map(|c| c.trim_start_matches("CAP_"))
        .collect::<Vec<_>>()
        .join(" ");
    item(
        out,
        &format!(
            "capabilities: {}",
            if caps.is_empty() { "none" } else { &caps }
        ),
    );
    item(
        out,
        &format!(
            "namespaces: {} and an inner network",
            escape(
                &plan
                    .namespaces
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" ")
            )
        ),
    );
    let devices: Vec<String> = plan.devices.iter().map(|d| path(d)).collect();
    item(
        out,
        &format!(
            "devices: the usual eight{}{}",
            if devices.is_empty() { "" } else { " and " },
            devices.join(" ")
        ),
    );
}

fn origins(out: &mut String, plan: &Plan) {
    line(out, "where each value comes from", "");
    for (field, origin) in &plan.origins {
        item(out, &format!("{field}: {}", escape(origin)));
    }
}

/// Whatever is in it, what is shown is one line: paths are their owners' choice.
fn line(out: &mut String, head: &str, text: &str) {
    let text = &escape(text);
    let separator = if head.is_empty() || text.is_empty() {
        ""
    } else {
        ": "
    };
    // Writing to a String cannot fail.
    writeln!(out, "{head}{separator}{text}").expect("a String takes every text");
}

fn item(out: &mut String, text: &str) {
    writeln!(out, "  {}", escape(text)).expect("a String takes every text");
}

fn path(path: &Path) -> String {
    match path.to_str() {
        Some(text) => escape(text),
        None => escape(&crate::plan::text::of(path)),
    }
}

fn size(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 30) {
        format!("{} GiB", bytes >> 30)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}
