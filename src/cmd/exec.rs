//! `exec`

use std::process::ExitCode;

use anyhow::Result;

use super::exit_code;
use crate::cli::{Exec, Global};
use crate::runtime::store::Place;
use crate::runtime::wait::Foreground;
use crate::runtime::{exec, seal, tty};

/// Runs another program in a container.
pub fn run(global: &Global, args: &Exec) -> Result<ExitCode> {
    seal::ensure()?;
    let place = Place::new(&global.root, &args.id)?;
    let started = exec::exec(&place, args)?;
    if args.detach {
        return Ok(ExitCode::SUCCESS);
    }
    let foreground = Foreground::new(started.pid)?;
    let terminal = started.terminal.map(tty::Listener::receive).transpose()?;
    Ok(exit_code(foreground.wait(terminal)?))
}
