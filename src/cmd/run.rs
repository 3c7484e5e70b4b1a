//! `run`

use std::process::ExitCode;

use anyhow::Result;

use super::exit_code;
use crate::cli::{Global, Run};
use crate::runtime::bundle::Bundle;
use crate::runtime::record::Record;
use crate::runtime::wait::Foreground;
use crate::runtime::{RuntimeError, create, delete, seal, start, tty};

/// Creates and starts a container, and waits for it unless it is to run detached.
pub fn run(global: &Global, args: &Run) -> Result<ExitCode> {
    seal::ensure()?;
    let listener = listener(args)?;
    let console = args.create.console_socket.as_deref().or_else(|| listener.as_ref().map(tty::Listener::path));
    let (place, lock) = create::create(global, &args.create, console)?;
    let started = Record::read(&place.dir()).and_then(|record| {
        let pid = record.init.ok_or(RuntimeError::NotRunning)?.pid;
        // Watched before it may run: a program that ends at once is not lost.
        let foreground = if args.detach { None } else { Some(Foreground::new(pid)?) };
        start::start(&place)?;
        Ok(foreground)
    });
    drop(lock);
    let status = started.and_then(|foreground| match foreground {
        Some(foreground) => foreground.wait(listener.map(tty::Listener::receive).transpose()?).map(Some),
        None => Ok(None),
    });
    let ended = !matches!(status, Ok(None));
    if ended && !(args.keep && status.is_ok()) {
        delete::delete(&place, true)?;
    }
    Ok(status?.map_or(ExitCode::SUCCESS, exit_code))
}

/// A socket for the terminal of a foreground container.
fn listener(args: &Run) -> Result<Option<tty::Listener>> {
    let bundle = Bundle::read(&args.create.bundle)?;
    let terminal = bundle.spec.process().as_ref().and_then(|p| p.terminal()).unwrap_or(false);
    let wanted = terminal && args.create.console_socket.is_none() && !args.detach;
    Ok(if wanted { Some(tty::Listener::new(&std::env::temp_dir())?) } else { None })
}
