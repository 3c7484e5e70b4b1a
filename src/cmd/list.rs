//! `list`

use std::process::ExitCode;

use anyhow::Result;

use super::state::State;
use crate::cli::{Global, List, TableFormat};
use crate::runtime::start;
use crate::runtime::store::{self, Place};

/// Lists the containers of this root directory.
pub fn run(global: &Global, args: &List) -> Result<ExitCode> {
    let root = std::path::absolute(&global.root)?;
    let mut states = Vec::new();
    for record in store::all()?.into_iter().filter(|r| r.root == root) {
        let place = Place::new(&root, &record.id)?;
        // One that is just being created or deleted is not listed.
        if let Ok(container) = start::load(&place) {
            states.push(State::of(&container, record));
        }
    }
    match (args.quiet, args.format) {
        (true, _) => states.iter().for_each(|s| println!("{}", s.id)),
        (false, TableFormat::Json) => println!("{}", serde_json::to_string(&states)?),
        (false, TableFormat::Table) => table(&states),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(states: &[State]) {
    let header = ["ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(states.iter().map(|s| {
        let bundle = crate::log::escape(&s.bundle.display().to_string());
        [
            s.id.clone(),
            s.pid.to_string(),
            s.status.to_owned(),
            bundle,
            s.created.clone(),
            s.owner.clone(),
        ]
    }));
    let width = |column: usize| {
        rows.iter()
            .map(|r| r[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        println!("{}", cells.join("   ").trim_end());
    }
}
