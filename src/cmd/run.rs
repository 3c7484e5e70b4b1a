//! `run`

use std::process::ExitCode;

use anyhow::Result;

use super::exit_code;
use crate::cli::{Global, Run};
use crate::plan::wrapped::WrapPlan;
use crate::runtime::foreground::{self, Afterwards, Attendance, Front};
use crate::runtime::seal;
use crate::runtime::seal::Listen;

/// Creates and starts a container, and waits for it unless it is to run detached.
pub fn run(global: &Global, args: &Run) -> Result<ExitCode> {
    seal::ensure(Listen::Pass)?;
    let afterwards = match (args.detach, args.keep) {
        (true, _) => Afterwards::Detach,
        (false, true) => Afterwards::Keep,
        (false, false) => Afterwards::Delete,
    };
    let ended = foreground::run(
        global,
        &args.create,
        &WrapPlan::default(),
        afterwards,
        Front::Program,
        Attendance {
            before_deletion: &mut |_| (),
            keep: None,
        },
    )?;
    Ok(ended.map_or(ExitCode::SUCCESS, |ended| exit_code(ended.code)))
}
