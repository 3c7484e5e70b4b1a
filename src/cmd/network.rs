//! `network`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Network, TextFormat};
use crate::cmd::out;
use crate::render::network::{self, Subject};
use crate::runtime::network::control;
use crate::runtime::network::refused;
use crate::runtime::state::find::{self, Purpose};
use crate::runtime::state::identity;
use crate::runtime::state::store::Place;

/// Shows the state of a container's network, or of the network of its pod's first container.
pub fn run(args: &Network) -> Result<ExitCode> {
    let asked = find::container(&args.id, Purpose::Look)?;
    let identity = identity::of(&asked);
    let id = asked.id.clone();
    let record = find::network_of(asked)?;
    let place = Place::new(&record.root, &record.id)?;
    let subject = Subject {
        outside: network::Outside::of(refused::resets(&record).unwrap_or(0)),
        identity,
        network_of: (record.id != id).then(|| record.id.clone()),
        status: control::status(&place.dir(), &record)?,
        mode: record.plan().map(|plan| plan.network.mode),
        id,
    };
    match args.format {
        TextFormat::Json => out::json(&subject)?,
        TextFormat::Text => out::text(&network::text(&subject))?,
    };
    Ok(ExitCode::SUCCESS)
}
