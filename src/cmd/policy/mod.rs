//! `policy`

mod check;
mod presets;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;

use super::out;
use crate::cli::{GlobalOptions, PolicyVerb};
use crate::policy::catalogue;
use crate::runtime::input::node_files::NodeFiles;
use crate::text::escape;

/// Lists, prints and tests the policies of this node.
pub fn run(global: &GlobalOptions, verb: &PolicyVerb) -> Result<ExitCode> {
    match verb {
        PolicyVerb::Check(args) => Ok(check::run(global, args)),
        PolicyVerb::List => list(global),
        PolicyVerb::Show(args) => show(global, &args.name),
        PolicyVerb::Presets(args) => presets::run(global, args),
    }
}

fn list(global: &GlobalOptions) -> Result<ExitCode> {
    let files = NodeFiles::of(global)?;
    for listed in catalogue::policies(&files.sources(&BTreeMap::new(), None))? {
        let what = match listed.description {
            Ok(description) => description.unwrap_or_default(),
            Err(error) => format!("cannot be used: {error}"),
        };
        let (name, origin) = (listed.name.to_string(), listed.origin.to_string());
        let line = format!("{name:<16} {origin:<30} {what}");
        out::line(&escape(line.trim_end()))?;
    }
    for problem in files.misnamed() {
        out::line(&escape(&format!("{problem}: it is not read")))?;
    }
    for file in files.ignored() {
        out::line(&escape(&format!(
            "{file:?}: its name does not end in .toml: it is not read"
        )))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(global: &GlobalOptions, name: &str) -> Result<ExitCode> {
    let files = NodeFiles::of(global)?;
    let policy = catalogue::policy(&files.sources(&BTreeMap::new(), None), &name.parse()?)?;
    out::text(&policy.to_toml())?;
    Ok(ExitCode::SUCCESS)
}
