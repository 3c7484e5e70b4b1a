//! `start`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Global, Id};
use crate::runtime::start;
use crate::runtime::store::Place;

/// Starts a container.
pub fn run(global: &Global, args: &Id) -> Result<ExitCode> {
    let place = Place::new(&global.root, &args.id)?;
    let lock = place.lock_existing()?;
    start::start(&place, lock)?;
    Ok(ExitCode::SUCCESS)
}
