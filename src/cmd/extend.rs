//! `extend`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Extend;
use crate::cmd::out;
use crate::runtime::clock;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::state::{find, identity};

/// Gives a container more time, within the ceiling.
pub fn run(args: &Extend) -> Result<ExitCode> {
    let record = find::container(&args.id)?;
    let place = ContainerPaths::new(&record.root, &record.id)?;
    let wall = clock::extend(&place, args.by)?;
    out::line(&format!("time.wall is now {wall}"))?;
    out::line(&format!(
        "container {}",
        identity::of(&record).with_id(&record.id)
    ))?;
    Ok(ExitCode::SUCCESS)
}
