//! `create`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Create, GlobalOptions};
use crate::plan::wrap_plan::WrapPlan;
use crate::runtime::create::{self, WrapParts};
use crate::runtime::files;
use crate::runtime::launch::Streams;
use crate::runtime::seal;
use crate::runtime::seal::ListenFds;

/// Creates a container.
pub fn run(global: &GlobalOptions, args: &Create) -> Result<ExitCode> {
    seal::ensure(ListenFds::Pass)?;
    files::close_umask();
    create::create(
        global,
        args,
        Streams {
            console: args.console_socket.as_deref(),
            ..Streams::default()
        },
        WrapParts::without_secrets(&WrapPlan::default()),
    )?;
    Ok(ExitCode::SUCCESS)
}
