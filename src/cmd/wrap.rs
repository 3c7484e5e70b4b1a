//! `wrap`

use std::process::ExitCode;

use anyhow::Result;

use super::exit_code;
use crate::cli::{Global, Wrap};
use crate::runtime::seal;
use crate::runtime::seal::Listen;
use crate::runtime::unprivileged;
use crate::wrap;

/// Runs a command behind the walls, without an engine. Ends as the command does; 127 where there is no such program,
/// 126 where it cannot be executed, as with a shell.
pub fn run(global: &Global, args: &Wrap) -> Result<ExitCode> {
    // First: sealing takes a mount, for which somebody without root's rights needs a namespace.
    unprivileged::enter(global)?;
    seal::ensure(Listen::Forget)?;
    match wrap::run(global, args) {
        Ok(status) => Ok(exit_code(status)),
        Err(error) => match wrap::status_of(&error) {
            Some(status) => {
                crate::log::fatal(&error);
                Ok(exit_code(status))
            }
            None => Err(error),
        },
    }
}
