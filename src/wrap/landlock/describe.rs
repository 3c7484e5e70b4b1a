//! SHELL. The walls for `explain` and `--dry-run`, by the plan's rules. A run also splits readable directories with hidden
//! entries ([`super::split`]); here the directory and its hidden entries are listed instead.

use anyhow::{Context, Result};

use super::place::{OWN_VARIABLES, RunTempDir};
use super::rules::{self, LandlockAccess, LandlockReason, LandlockRule};
use super::{abi, cannot, capabilities, decide_in, filter, ptrace_scope, streams};
use crate::cli::GlobalOptions;
use crate::plan::{DecidedPlan, MountReason, Plan};
use crate::render::explain::{LandlockPath, LandlockWalls};
use crate::runtime::network::reading::no_user_secrets;
use crate::wrap::WrapExplanation;
use crate::wrap::person::Person;
use crate::wrap::request::WrapRequest;
use crate::wrap::settings::places::is_first_time;

/// What would be enforced for a command.
pub fn decide(global: &GlobalOptions, wanted: &WrapRequest) -> Result<WrapExplanation> {
    let person = &wanted.person;
    let place = RunTempDir::new(person)?;
    let decided = decide_in(&place, global, wanted, &no_user_secrets)?;
    let mut decision = decided.decision;
    let of_plan = decision.decided.take().context("a policy is chosen")?;
    decision.filter = Some(filter::compile(&of_plan.plan)?);
    let landlock = Some(walls(&of_plan, person)?);
    Ok(WrapExplanation {
        landlock,
        settings: decided
            .home
            .agent
            .map_or_else(Vec::new, |agent| agent.lines),
        ..decision.into()
    })
}

fn walls(decided: &DecidedPlan, person: &Person) -> Result<LandlockWalls> {
    let (plan, abi) = (&decided.plan, abi()?);
    // Without directories of the run: this call's are removed when it returns.
    let rules = rules::of(plan, &[], &streams::terminals());
    let mut walls = LandlockWalls::of(decided, abi);
    walls.opened = rules.into_iter().map(opened).collect();
    walls.directories_of_the_run = OWN_VARIABLES.map(str::to_owned).into();
    walls.capabilities = kept_capabilities(plan, person)?;
    walls.lacks = cannot::lacks(plan, abi);
    walls.lacks.extend(ptrace_scope().lack());
    Ok(walls)
}

fn opened(rule: LandlockRule) -> LandlockPath {
    LandlockPath {
        path: rule.path,
        access: in_words(rule.access).to_owned(),
        is_listed: !rule.access.writes()
            && rule.why == LandlockReason::Mount(MountReason::Programs),
        why: rule.why.to_string(),
    }
}

const fn in_words(access: LandlockAccess) -> &'static str {
    match access {
        LandlockAccess::Read => "read",
        LandlockAccess::ReadExecute => "read, execute",
        LandlockAccess::ReadWrite => "read, write",
        LandlockAccess::ReadWriteExecute => "read, write, execute",
        LandlockAccess::Device => "read, write, device requests",
    }
}

/// The command's capabilities. Changing to the user behind sudo drops them all.
fn kept_capabilities(plan: &Plan, person: &Person) -> Result<Vec<String>> {
    if person.uid != rustix::process::getuid().as_raw() {
        return Ok(Vec::new());
    }
    let kept = capabilities(plan)?.permitted;
    Ok(kept.iter().map(|c| c.short_name().to_owned()).collect())
}

/// Warns of what does not work on this machine. On a terminal each run has one line, so that users do not take these walls for the
/// full ones; what is missing is listed once for each user.
pub(super) fn say_what_is_lacking(decided: Option<&DecidedPlan>, person: &Person, abi: u32) {
    if let Some(lack) = ptrace_scope().lack() {
        log::warn!("{lack}");
    }
    if let Some(decided) = decided
        && rustix::termios::isatty(rustix::stdio::stderr())
    {
        let lacks = match is_first_time(person, "landlock") {
            true => {
                "no namespaces, so paths are refused rather than absent, /tmp and /dev/shm are closed, localhost is 127.0.0.1 alone, \
                 other processes are seen, no limits hold; "
            }
            false => "",
        };
        crate::log::complain(&format!(
            "agentbox: walls of Landlock (ABI {abi}), policy {}: {lacks}`agentbox explain --walls landlock` lists what they lack",
            decided.resolved.name
        ));
    }
}
