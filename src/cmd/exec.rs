//! `exec`

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::{Exec, GlobalOptions};
use crate::cmd::exit::{exit_code, hint_at_sudo};
use crate::runtime::exec;
use crate::runtime::foreground::relay;
use crate::runtime::foreground::tty;
use crate::runtime::foreground::wait::Foreground;
use crate::runtime::own_sandbox;
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
        hint_at_sudo(&error);
        Ok(ExitCode::from(NOT_RUN))
    })
}

fn exec(global: &GlobalOptions, args: &Exec) -> Result<ExitCode> {
    let by_engine = args.process.is_some() || args.pid_file.is_some();
    if args.detach && !by_engine {
        relay::keep_the_parents("`exec --detach`")?;
    }
    if unprivileged::is_outside() {
        // First of all: sealing takes a mount, for which an unprivileged user needs the sandbox's namespace.
        own_sandbox::enter(global, &find::place(global, &args.id)?)?;
    }
    seal::ensure(ListenFds::Forget)?;
    let place = find::place(global, &args.id)?;
    let mut started = exec::exec(&place, args)?;
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let mut foreground = Foreground::new(started.pid)?;
    foreground.relay = started.relay.take();
    let terminal = started
        .terminal
        .take()
        .map(tty::TerminalListener::receive)
        .transpose()?;
    let status = foreground.wait(terminal)?.code;
    let by_time = started.ended_by(&place);
    if let Some(why) = &by_time {
        crate::log::complain(&format!("agentbox: the process was ended: {why}"));
    }
    started.noted.ended(status, by_time.as_deref());
    Ok(exit_code(status))
}
