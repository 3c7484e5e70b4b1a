//! `network`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Network, TextFormat};
use crate::render::network::{self, Subject};
use crate::runtime::store::{self, Place};
use crate::runtime::{control, refused};

/// Shows what is going on in a container's network.
pub fn run(args: &Network) -> Result<ExitCode> {
    let record = store::find(&args.id)?;
    let place = Place::new(&record.root, &record.id)?;
    let subject = Subject {
        outside: network::Outside::of(refused::resets(&record).unwrap_or(0)),
        status: control::status(&place.dir(), &record)?,
        mode: record.plan.map(|plan| plan.network.mode),
        id: record.id,
    };
    match args.format {
        TextFormat::Json => println!("{}", serde_json::to_string_pretty(&subject)?),
        TextFormat::Text => print!("{}", network::text(&subject)),
    }
    Ok(ExitCode::SUCCESS)
}
