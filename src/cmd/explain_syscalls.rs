//! `explain --syscalls`

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cli::{Explain, GlobalOptions};
use crate::cmd::out;
use crate::plan::SyscallPlan;
use crate::policy::Selection;
use crate::render::explain::ExplainedContainer;
use crate::render::explain::syscalls::{self, SyscallTable, TablePrograms};
use crate::runtime::filter::{self, FilterRequest};
use crate::runtime::input::node_files;
use crate::seccomp::{DenyMode, FilterProgram};

/// Prints the verdict on every system call.
pub fn print(
    global: &GlobalOptions,
    args: &Explain,
    subject: &ExplainedContainer,
    loaded: Option<&FilterProgram>,
) -> Result<ExitCode> {
    if subject.landlock.is_some() {
        bail!(
            "--syscalls explains the filter of the full walls: leave out --walls landlock, whose filter asks `wrap` about some calls"
        );
    }
    let plan = subject.decided.as_ref().map(|decided| &decided.plan);
    let own = plan
        .map(|plan| alone(FilterRequest::unlogged(plan)))
        .transpose()?
        .flatten();
    let programs = TablePrograms {
        loaded,
        policy: plan.map(|plan| &plan.syscalls).zip(own.as_ref()),
    };
    let mut table = SyscallTable::new(programs);
    if let Some(with) = &args.compare {
        let other = other(global, with)?;
        table = table.beside(programs, with, other.as_ref());
    }
    match args.json {
        true => out::json(&table)?,
        false => out::text(&table.text(&subject.name))?,
    };
    Ok(ExitCode::SUCCESS)
}

/// The filter of a policy, without an engine's profile.
fn alone(asked: FilterRequest<'_>) -> Result<Option<FilterProgram>> {
    let filter = filter::compile(Some(asked), None)?;
    Ok(filter.map(|filter| filter.program))
}

/// The filter to compare with.
fn other(global: &GlobalOptions, with: &str) -> Result<Option<FilterProgram>> {
    if with == syscalls::DOCKERS {
        return Ok(syscalls::docker());
    }
    let named = GlobalOptions {
        policy: Some(with.to_owned()),
        ..global.clone()
    };
    match node_files::selection(&named, &Default::default(), &Default::default())? {
        Selection::Unconfined { .. } => Ok(None),
        Selection::Policy(resolved) => {
            let policy = &resolved.policy;
            let plan = SyscallPlan::alone(&policy.syscalls, &policy.privileges);
            alone(FilterRequest {
                syscalls: &plan,
                devices: false,
                denials: DenyMode::Errno,
            })
        }
    }
}
