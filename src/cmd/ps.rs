//! `ps`

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{GlobalOptions, Ps, TableFormat};
use crate::cmd::out;
use crate::runtime::ps;
use crate::runtime::signal;
use crate::runtime::state::find;
use crate::runtime::state::record::Record;
use crate::runtime::status;

/// Lists the processes of a container: their pids as JSON, or the lines of ps(1) about them.
pub fn run(global: &GlobalOptions, args: &Ps) -> Result<ExitCode> {
    let place = find::place(global, &args.id)?;
    let container = status::load(&place)?;
    let record = Record::read(&place.dir());
    let mut pids = match record.ok().filter(Record::lacks_cgroup) {
        Some(record) => match record.init {
            Some(init) => ps::of_pid_namespace(&place, init, "list the processes of")?,
            None => Vec::new(),
        },
        None => {
            let cgroup = signal::cgroup(&container)?;
            let found = signal::listed(&cgroup)?;
            found.into_iter().map(nix::unistd::Pid::as_raw).collect()
        }
    };
    pids.sort_unstable();
    pids.dedup();
    match args.format {
        TableFormat::Json => out::line(&serde_json::to_string(&pids)?)?,
        TableFormat::Table => out::text(&ps::table(&pids, &args.options)?)?,
    };
    Ok(ExitCode::SUCCESS)
}
