//! A container's device rules on a node with cgroup v2 alone. On v1 and hybrid nodes libcontainer writes them to the
//! devices controller; here it leaves them out.

use std::os::fd::AsFd;
use std::path::Path;

use libcgroups::common::{CgroupSetup, get_cgroup_setup};
use oci_spec::runtime::{LinuxDeviceCgroup, Spec};
use rustix::fs::{Mode, OFlags};

use crate::cgroup::CgroupError;
use crate::cgroup::controllers::Controllers;
use crate::devices::{Program, Table, defaults};
use crate::sys::bpf;

const ROOT: &str = "/sys/fs/cgroup";

/// Whether a policy decides what a container may reach, or its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruler {
    /// The rules of the plan, and nothing else.
    Policy,
    /// The spec's rules, and what runc adds for every container.
    Engine,
}

/// The program for the rules of a spec; `None` where the node has a devices controller.
pub fn compile(spec: &Spec, ruler: Ruler) -> Result<Option<Program>, CgroupError> {
    if !is_needed()? {
        return Ok(None);
    }
    let linux = spec.linux().as_ref();
    let resources = linux.and_then(|l| l.resources().as_ref());
    let mut rules: Vec<LinuxDeviceCgroup> = resources
        .and_then(|r| r.devices().clone())
        .unwrap_or_default();
    if ruler == Ruler::Engine {
        rules.extend(defaults());
    }
    let table = Table::new(&rules)?;
    Ok(Some(table.compile()))
}

fn is_needed() -> Result<bool, CgroupError> {
    match get_cgroup_setup() {
        Ok(CgroupSetup::Unified) => Ok(true),
        Ok(CgroupSetup::Legacy | CgroupSetup::Hybrid) => Ok(false),
        Err(e) => Err(CgroupError::Layout(
            crate::log::first_cause().unwrap_or_else(|| crate::log::chain(&e)),
        )),
    }
}

/// Attaches the program to a container's cgroup, in the place of any that is there: a cgroup that was there before
/// may have one of a container that is gone.
pub fn attach(program: &Program, controllers: &Controllers) -> Result<(), CgroupError> {
    let path = controllers
        .unified()
        .filter(|path| *path != Path::new(ROOT));
    let path = path.ok_or_else(|| CgroupError::NoneOfItsOwn(format!("{controllers:?}")))?;
    let step = || CgroupError::io(format!("limit the devices of the cgroup {path:?}"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cgroup = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| step()(e.into()))?;
    let before = bpf::device_programs(cgroup.as_fd()).map_err(step())?;
    let loaded = bpf::load_device_program(program).map_err(step())?;
    let (replaced, others) = match &before[..] {
        [] => (None, &[][..]),
        // At no moment is there none.
        [first, others @ ..] => (Some(first.as_fd()), others),
    };
    bpf::attach_device_program(cgroup.as_fd(), loaded.as_fd(), replaced).map_err(step())?;
    for other in others {
        bpf::detach_device_program(cgroup.as_fd(), other.as_fd()).map_err(step())?;
    }
    Ok(())
}
