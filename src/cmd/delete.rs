//! `delete`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Delete, GlobalOptions};
use crate::runtime::delete::{self, DeleteScope};
use crate::runtime::state::find;
use crate::runtime::state::identity;
use crate::runtime::state::record::Record;
use crate::wrap::leftovers;

/// Deletes a container.
pub fn run(global: &GlobalOptions, args: &Delete) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    // Read this before the container is gone.
    let elsewhere = std::path::absolute(&global.root)? != place.root;
    let name = Record::read(&place.dir())
        .ok()
        .filter(|_| elsewhere)
        .map(|record| identity::of(&record).words());
    let deletes = match args.force {
        true => DeleteScope::Any,
        false => DeleteScope::Ended,
    };
    delete::delete(&place, deletes)?;
    if args.force {
        leftovers::sweep();
    }
    if let Some(name) = name {
        // The container's engine notices at its next check; tell the user at once.
        log::warn!("deleted container {} ({name})", place.id.as_str());
    }
    Ok(ExitCode::SUCCESS)
}
