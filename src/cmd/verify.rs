//! `verify`

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::exit::hint_at_sudo;
use super::out;
use crate::cli::{GlobalOptions, Verify};
use crate::log;
use crate::runtime::own_sandbox;
use crate::runtime::seal;
use crate::runtime::seal::ListenFds;
use crate::runtime::state::find;
use crate::runtime::unprivileged;
use crate::verify;

/// The exit status without an answer, different from all answers.
const NO_ANSWER: u8 = 2;

/// Tries the attacks, and prints which walls held.
pub fn run(global: &GlobalOptions, args: &Verify) -> ExitCode {
    answer(global, args).unwrap_or_else(|error| {
        log::fatal(&error);
        hint_at_sudo(&error);
        ExitCode::from(NO_ANSWER)
    })
}

fn answer(global: &GlobalOptions, args: &Verify) -> Result<ExitCode> {
    if unprivileged::is_outside() {
        // First of all: sealing takes a mount, for which an unprivileged user needs a namespace.
        match &args.id {
            Some(id) => own_sandbox::enter(global, &find::place(global, id)?)?,
            None => {
                unprivileged::settle();
                unprivileged::enter(global)?;
            }
        }
    }
    seal::ensure(ListenFds::Forget)?;
    let report = match &args.id {
        Some(id) => verify::running(global, id)?,
        None => verify::sandbox(&under(global, args)?)?,
    };
    match args.json {
        true => out::line(&report.json()?)?,
        false => out::text(&report.text())?,
    };
    Ok(ExitCode::from(report.exit_code()))
}

/// The options with the requested policy.
fn under(global: &GlobalOptions, args: &Verify) -> Result<GlobalOptions> {
    let mut global = global.clone();
    match (&global.policy, &args.policy) {
        (Some(_), Some(_)) => bail!("--policy is given twice: before `verify` and after it"),
        (None, Some(policy)) => global.policy = Some(policy.clone()),
        (_, None) => {}
    }
    Ok(global)
}
