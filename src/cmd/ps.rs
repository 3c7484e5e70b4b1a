//! `ps`

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use libcgroups::common::CgroupManager;

use crate::cli::{Global, Ps, TableFormat};
use crate::cmd::out;
use crate::runtime::RuntimeError;
use crate::runtime::signal;
use crate::runtime::start;
use crate::runtime::state::find::{self, Purpose};

/// Lists the processes of a container: their numbers as JSON, or ps(1)'s table without the others' lines.
pub fn run(global: &Global, args: &Ps) -> Result<ExitCode> {
    let place = find::place(global, &args.id, Purpose::Look)?;
    let container = start::load(&place)?;
    let cgroup = signal::cgroup(&container)?;
    let found = cgroup
        .get_all_pids()
        .map_err(RuntimeError::container("list the container's processes"))?;
    let mut pids: Vec<i32> = found.into_iter().map(nix::unistd::Pid::as_raw).collect();
    pids.sort_unstable();
    pids.dedup();
    match args.format {
        TableFormat::Json => out::line(&serde_json::to_string(&pids)?)?,
        TableFormat::Table => out::text(&table(&pids, &args.options)?)?,
    };
    Ok(ExitCode::SUCCESS)
}

fn table(pids: &[i32], options: &[String]) -> Result<String> {
    let default = ["-ef".to_owned()];
    let options = if options.is_empty() {
        &default[..]
    } else {
        options
    };
    let output = Command::new("ps")
        .args(options)
        .output()
        .context("run ps(1)")?;
    if !output.status.success() {
        bail!(
            "ps: {}",
            crate::policy::escape(String::from_utf8_lossy(&output.stderr).trim())
        );
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let Some(column) = header.split_ascii_whitespace().position(|c| c == "PID") else {
        bail!("ps with these options prints no PID column");
    };
    let mut table = format!("{header}\n");
    for line in lines {
        let pid = line
            .split_ascii_whitespace()
            .nth(column)
            .and_then(|p| p.parse().ok());
        if pid.is_some_and(|p| pids.contains(&p)) {
            table += &crate::policy::escape(line);
            table.push('\n');
        }
    }
    Ok(table)
}
