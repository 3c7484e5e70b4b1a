//! `policy`

mod check;
mod host;
mod presets;
mod verdict;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use super::out;
use crate::cli::{GlobalOptions, PolicyList, PolicyShow, PolicyVerb};
use crate::log;
use crate::policy::catalogue;
use crate::runtime::input::node_files::NodeFiles;
use crate::text::escape;

/// Lists, prints and tests the policies of this node.
pub fn run(global: &GlobalOptions, verb: &PolicyVerb) -> Result<ExitCode> {
    match verb {
        PolicyVerb::Check(args) => Ok(check::run(global, args)),
        PolicyVerb::List(args) => list(global, args),
        PolicyVerb::Show(args) => show(global, args),
        PolicyVerb::Presets(args) => presets::run(global, args),
    }
}

/// A policy in the list, as JSON.
#[derive(Debug, Serialize)]
struct ListRow {
    name: String,
    origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A line for each file that is not read.
fn unread(files: &NodeFiles) -> impl Iterator<Item = String> {
    let misnamed = files.misnamed().iter();
    let misnamed = misnamed.map(|problem| format!("{problem}: it is not read"));
    let ignored = files.ignored().iter();
    let ignored =
        ignored.map(|file| format!("{file:?}: its name does not end in .toml: it is not read"));
    misnamed.chain(ignored)
}

/// Files that are not read go to standard error, beside JSON.
fn list_json(files: &NodeFiles) -> Result<ExitCode> {
    let all = catalogue::policies(&files.sources(&BTreeMap::new(), None))?;
    let rows = all.into_iter().map(|listed| {
        let (description, error) = match listed.description {
            Ok(description) => (description, None),
            Err(error) => (None, Some(error.to_string())),
        };
        ListRow {
            name: listed.name.to_string(),
            origin: listed.origin.to_string(),
            description,
            error,
        }
    });
    out::json(&rows.collect::<Vec<_>>())?;
    for line in unread(files) {
        log::complain(&line);
    }
    Ok(ExitCode::SUCCESS)
}

fn list(global: &GlobalOptions, args: &PolicyList) -> Result<ExitCode> {
    let files = NodeFiles::of(global)?;
    if args.json {
        return list_json(&files);
    }
    for listed in catalogue::policies(&files.sources(&BTreeMap::new(), None))? {
        let what = match listed.description {
            Ok(description) => description.unwrap_or_default(),
            Err(error) => format!("cannot be used: {error}"),
        };
        let (name, origin) = (listed.name.to_string(), listed.origin.to_string());
        let line = format!("{name:<16} {origin:<30} {what}");
        out::line(&escape(line.trim_end()))?;
    }
    for line in unread(&files) {
        out::line(&escape(&line))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(global: &GlobalOptions, args: &PolicyShow) -> Result<ExitCode> {
    let files = NodeFiles::of(global)?;
    let name = args.name.parse()?;
    let policy = catalogue::policy(&files.sources(&BTreeMap::new(), None), &name)?;
    if args.json {
        out::json(&policy)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::text(&policy.to_toml())?;
    Ok(ExitCode::SUCCESS)
}
