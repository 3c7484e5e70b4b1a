//! `doctor`

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::out;
use crate::cli::{Doctor, GlobalOptions};
use crate::doctor;

/// Prints what this node lacks; whether `wrap` can work as this user.
pub fn run(mut global: GlobalOptions, args: &Doctor) -> Result<ExitCode> {
    let report = doctor::examine(&mut global).context("look at this node")?;
    match args.json {
        true => out::json(&report)?,
        false => out::text(&report.text())?,
    };
    Ok(match report.wrap_works() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
