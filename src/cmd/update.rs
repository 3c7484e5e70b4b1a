//! `update`

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, Result};
use libcgroups::common::{CgroupManager, ControllerOpt};
use oci_spec::runtime::LinuxResources;

use crate::cli::{Global, Update};
use crate::plan::{neutral, reach};
use crate::runtime::record::Record;
use crate::runtime::store::Place;
use crate::runtime::{RuntimeError, bundle, signal, start};

/// Changes the resource limits of a container. Device rules are no limits: under a policy they stay.
pub fn run(global: &Global, args: &Update) -> Result<ExitCode> {
    let place = Place::new(&global.root, &args.id)?;
    let mut resources = read(args)?;
    reach::check_resources(&resources)?;
    let _lock = place.lock_existing()?;
    let container = start::load(&place)?;
    let record = Record::read(&place.dir())?;
    if record.plan.is_some() {
        resources.set_devices(None);
        neutral::resources(&mut resources);
    }
    let cgroup = signal::cgroup(&container)?;
    let options = ControllerOpt {
        resources: &resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    cgroup
        .apply(&options)
        .map_err(RuntimeError::container("apply the limits"))?;
    Ok(ExitCode::SUCCESS)
}

fn read(args: &Update) -> Result<LinuxResources> {
    if args.resources.as_os_str() != "-" {
        return Ok(bundle::read_json(&args.resources)?);
    }
    let mut text = String::new();
    std::io::stdin()
        .take(1 << 20)
        .read_to_string(&mut text)
        .context("read the limits from standard input")?;
    serde_json::from_str(&text).context("the limits on standard input")
}
