//! `spec`

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use oci_spec::runtime::Spec;

use crate::cli::SpecArgs;

/// Writes an example config.json.
pub fn run(args: &SpecArgs) -> Result<ExitCode> {
    let path = args.bundle.join("config.json");
    if path.exists() {
        bail!("File {path:?} exists. Remove it first");
    }
    let mut spec = if args.rootless {
        Spec::rootless(1000, 1000)
    } else {
        Spec::default()
    };
    spec.set_hostname(Some("agentbox".to_owned()));
    if let Some(process) = spec.process_mut() {
        // As runc's: an example to try at a terminal.
        process.set_terminal(Some(true));
    }
    let text = serde_json::to_string_pretty(&spec)?;
    std::fs::write(&path, text).with_context(|| format!("write {path:?}"))?;
    Ok(ExitCode::SUCCESS)
}
