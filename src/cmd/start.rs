//! `start`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{GlobalOptions, Id};
use crate::runtime::foreground::notify::{self, ReadinessRelay};
use crate::runtime::start;
use crate::runtime::state::find;
use crate::runtime::state::record::Record;

/// Starts a container. With NOTIFY_SOCKET it returns when the container reports that it is ready, as runc does.
pub fn run(global: &GlobalOptions, args: &Id) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    let lock = place.lock_existing()?;
    let relay = match notify::host() {
        Some(_) => Record::read(&place.dir())?.init,
        None => None,
    };
    // Listen before the program runs: it may report at once.
    let relay = relay
        .map(|init| ReadinessRelay::listen(&place, init))
        .transpose()?
        .flatten();
    start::start(global, &place, lock, None)?;
    if let Some(relay) = relay {
        relay.wait()?;
    }
    Ok(ExitCode::SUCCESS)
}
