//! `delete`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Delete, Global};
use crate::runtime::delete;
use crate::runtime::store::Place;

/// Deletes a container.
pub fn run(global: &Global, args: &Delete) -> Result<ExitCode> {
    let place = Place::new(&global.root, &args.id)?;
    delete::delete(&place, args.force)?;
    Ok(ExitCode::SUCCESS)
}
