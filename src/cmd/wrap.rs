//! `wrap`

use std::process::ExitCode;

use anyhow::Result;

use super::exit_code;
use crate::cli::{Global, Wrap};
use crate::runtime::seal;
use crate::wrap;

/// Runs a command behind the walls, without an engine.
pub fn run(global: &Global, args: &Wrap) -> Result<ExitCode> {
    seal::ensure()?;
    Ok(exit_code(wrap::run(global, args)?))
}
