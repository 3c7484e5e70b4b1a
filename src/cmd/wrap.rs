//! `wrap`

use std::process::ExitCode;

use anyhow::Result;

use super::exit_code;
use crate::cli::{Global, Wrap};
use crate::runtime::seal;
use crate::runtime::seal::Listen;
use crate::wrap;

/// Runs a command behind the walls, without an engine. Ends as the command does; 127 where there is no such program,
/// 126 where it cannot be executed, as with a shell.
pub fn run(global: &Global, args: &Wrap) -> Result<ExitCode> {
    let warming = seal::ensure(Listen::Forget)?;
    match wrap::run(global, args, warming) {
        Ok(status) => Ok(exit_code(status)),
        Err(error) => match not_executed(&format!("{error:#}")) {
            Some(status) => {
                crate::log::fatal(&error);
                Ok(exit_code(status))
            }
            None => Err(error),
        },
    }
}

/// The status for what [`crate::enforce::EnforceError::Program`] reports.
fn not_executed(text: &str) -> Option<i32> {
    let why = text.split_once("exec: \"")?.1;
    let missing = ["executable file not found", "no such file or directory"];
    if missing.iter().any(|m| why.contains(m)) {
        Some(127)
    } else {
        Some(126)
    }
}

#[cfg(test)]
mod tests {
    use super::not_executed;

    #[test]
    fn a_program_that_cannot_be_executed_has_a_shells_status() {
        for (text, status) in [
            (
                "exec: \"nope\": executable file not found in $PATH",
                Some(127),
            ),
            (
                "exec: \"./nope\": stat ./nope: no such file or directory",
                Some(127),
            ),
            ("exec: \"/etc\": permission denied", Some(126)),
            (
                "open the workspace \"/nope\": No such file or directory",
                None,
            ),
        ] {
            assert_eq!(not_executed(text), status, "{text}");
        }
    }
}
