//! `doctor`

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};

use super::out;
use crate::cli::{Doctor, GlobalOptions};
use crate::doctor;

/// The exit status of a wrong command line: 1 is an answer.
const NO_ANSWER: u8 = 2;

/// Prints what this node lacks. The exit status says whether `wrap` works as this user.
pub fn run(mut global: GlobalOptions, args: &Doctor) -> Result<ExitCode> {
    let ignored = [
        (global.root_given, "--root"),
        (global.systemd_cgroup, "--systemd-cgroup"),
    ];
    if let Some((_, option)) = ignored.iter().find(|(is_given, _)| *is_given) {
        crate::log::fatal(&anyhow!(
            "{option} changes nothing for doctor: leave it out"
        ));
        return Ok(ExitCode::from(NO_ANSWER));
    }
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
