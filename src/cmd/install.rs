//! `install` and `uninstall`

use std::process::ExitCode;

use anyhow::Result;

use super::out;
use crate::cli::{Install, SystemOptions, Uninstall};
use crate::install::{self, InstallError, InstallPlan, RunningSandboxes, TargetSystem};
use crate::log;
use crate::text::escape;

/// The exit status of `uninstall` while sandboxes run.
const RUNNING: u8 = 3;

/// Whether the steps are made or only shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunDepth {
    DryRun,
    Real,
}

/// The system to change. Checks that the caller may change it.
fn begin(verb: &'static str, options: &SystemOptions) -> Result<(TargetSystem, RunDepth)> {
    let system = TargetSystem::of(options.destdir.as_deref())?;
    if options.dry_run {
        return Ok((system, RunDepth::DryRun));
    }
    system.require_root(verb)?;
    Ok((system, RunDepth::Real))
}

/// Installs this program, and registers it.
pub fn install(args: &Install) -> Result<ExitCode> {
    let (system, depth) = begin("install", &args.system)?;
    follow(&install::plan(&system, args.prefix.as_deref())?, depth)
}

/// Removes what [`install`] added.
pub fn uninstall(args: &Uninstall) -> Result<ExitCode> {
    let (system, depth) = begin("uninstall", &args.system)?;
    let running = match args.force {
        true => RunningSandboxes::Ignore,
        false => RunningSandboxes::Refuse,
    };
    let plan = match install::removal(&system, running) {
        // A package's script stops at this error, and goes on after all others.
        Err(error @ InstallError::Running { .. }) => {
            // The diff of a later removal is of use before the sandboxes are gone.
            if depth == RunDepth::DryRun {
                follow(&install::removal(&system, RunningSandboxes::Ignore)?, depth)?;
            }
            log::fatal(&error.into());
            return Ok(ExitCode::from(RUNNING));
        }
        plan => plan?,
    };
    follow(&plan, depth)
}

/// Prints and makes each step, or shows it.
fn follow(plan: &InstallPlan, depth: RunDepth) -> Result<ExitCode> {
    if depth == RunDepth::Real {
        plan.check_directories()?;
    }
    for (before, step) in plan.steps.iter().enumerate() {
        match depth {
            RunDepth::Real => {
                out::line(&escape(&step.words))?;
                step.apply().map_err(|error| match before {
                    0 => error,
                    _ => InstallError::Half(Box::new(error)),
                })?;
            }
            RunDepth::DryRun => {
                out::line(&format!("would {}", escape(&step.words)))?;
                for line in step.diff().unwrap_or_default().lines() {
                    out::line(&escape(line))?;
                }
            }
        }
    }
    let afterwards = match depth {
        RunDepth::Real => plan.afterwards.as_slice(),
        RunDepth::DryRun => &[],
    };
    for line in plan.notes.iter().chain(afterwards) {
        out::line(&escape(line))?;
    }
    Ok(ExitCode::SUCCESS)
}
