//! `exec`

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::{Exec, GlobalOptions};
use crate::cmd::exit_code;
use crate::runtime::exec;
use crate::runtime::foreground::tty;
use crate::runtime::foreground::wait::Foreground;
use crate::runtime::seal;
use crate::runtime::seal::ListenFds;
use crate::runtime::state::find;
use crate::runtime::unprivileged;

/// runc's exit status if the program could not be run.
const NOT_RUN: u8 = 255;

/// Runs another program in a container.
pub fn run(global: &GlobalOptions, args: &Exec) -> Result<ExitCode> {
    exec(global, args).context("exec failed").or_else(|error| {
        crate::log::fatal(&error);
        Ok(ExitCode::from(NOT_RUN))
    })
}

fn exec(global: &GlobalOptions, args: &Exec) -> Result<ExitCode> {
    if unprivileged::person().is_some() && unprivileged::inside().is_none() {
        bail!(
            "it needs root's rights: a container of `agentbox wrap` without them is nobody's to enter from outside; run another \
             `agentbox wrap` in the same directory"
        );
    }
    seal::ensure(ListenFds::Forget)?;
    let place = find::place(global, &args.id)?;
    let started = exec::exec(&place, args)?;
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let mut foreground = Foreground::new(started.pid)?;
    foreground.relay = started.relay;
    let terminal = started
        .terminal
        .map(tty::TerminalListener::receive)
        .transpose()?;
    let status = foreground.wait(terminal)?.code;
    started.noted.ended(status);
    Ok(exit_code(status))
}
