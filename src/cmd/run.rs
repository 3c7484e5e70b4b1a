//! `run`

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use super::exit::exit_code;
use crate::cli::{GlobalOptions, Run};
use crate::plan::wrap_plan::WrapPlan;
use crate::policy::typed_rule;
use crate::runtime::create::WrapParts;
use crate::runtime::files;
use crate::runtime::foreground::{self, Attendance, FrontProcess, RunMode};
use crate::runtime::seal;
use crate::runtime::seal::ListenFds;

/// Creates and starts a container. Waits for its end unless it is detached.
pub fn run(global: &GlobalOptions, args: &Run) -> Result<ExitCode> {
    require_bundle(args)?;
    seal::ensure(ListenFds::Pass)?;
    files::close_umask();
    let afterwards = match (args.detach, args.keep) {
        (true, _) => RunMode::Detach,
        (false, true) => RunMode::Keep,
        (false, false) => RunMode::Delete,
    };
    let ended = foreground::run(
        global,
        &args.create,
        WrapParts::without_secrets(&WrapPlan::default()),
        afterwards,
        FrontProcess::Program,
        Attendance {
            before_deletion: &mut |_, _| (),
            keep: None,
            agent: None,
            sockets: None,
            proxy: None,
            servers: None,
        },
    )?;
    Ok(ended.map_or(ExitCode::SUCCESS, |ended| exit_code(ended.code)))
}

/// Refuses a working directory without a configuration if no bundle is named: the user may have typed a command after `run`, as after
/// `docker run`. Asked before the seal, which only root can make.
fn require_bundle(args: &Run) -> Result<()> {
    let bundle = args.create.bundle.as_path();
    if bundle == Path::new(".") && !bundle.join("config.json").try_exists().unwrap_or(true) {
        bail!(
            "there is no config.json here: `run` starts an OCI bundle, as runc's does; for a command: agentbox wrap -- {}",
            typed_rule(&args.create.id)
        );
    }
    Ok(())
}
