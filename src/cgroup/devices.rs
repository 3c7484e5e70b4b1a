//! A container's device rules: a program on a node with only cgroup v2, the devices controller on v1 and hybrid nodes.
//! If libcontainer writes them there, its additions are removed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType, Spec};
use rustix::fs::{Mode, OFlags};

use super::error::CgroupError;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::hierarchies::{Hierarchies, ROOT};
use crate::devices::{self, DeviceNumbers, DeviceProgram, DeviceTable, defaults};
use crate::sys::{bpf, procfs};

/// Whether the policy or the engine decides which devices a container can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAuthority {
    /// The policy: only the rules of the plan.
    Policy,
    /// The engine: the spec's rules, and runc's additions for every container.
    Engine,
}

/// The program for the rules of a spec; `None` if the node has a devices controller.
pub fn compile(spec: &Spec, ruler: DeviceAuthority) -> Result<Option<DeviceProgram>, CgroupError> {
    if !is_needed()? {
        return Ok(None);
    }
    let table = DeviceTable::new(&rules(spec, ruler))?;
    Ok(Some(table.compile()))
}

/// Whether no cgroup v1 controller takes the rules.
fn is_needed() -> Result<bool, CgroupError> {
    let hierarchies = Hierarchies::of_node()?;
    match hierarchies.is_empty() {
        true => Err(CgroupError::NoHierarchy),
        false => Ok(hierarchies.is_unified()),
    }
}

/// Writes the rules of a spec to the v1 devices controller, if the container has one. Its program does not run yet.
pub fn write(
    spec: &Spec,
    ruler: DeviceAuthority,
    controllers: &Controllers,
) -> Result<(), CgroupError> {
    let Some(dir) = controllers.v1("devices") else {
        return Ok(());
    };
    let [allow, deny] = ["devices.allow", "devices.deny"].map(|name| dir.join(name));
    let open = |path: &Path| {
        let opened = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(CgroupError::io(format!("open {path:?}")))
    };
    let [allowed, denied] = [open(&allow)?, open(&deny)?];
    for rule in rules(spec, ruler) {
        let (file, path) = match rule.allow() {
            true => (&allowed, &allow),
            false => (&denied, &deny),
        };
        let rule = rule.to_string();
        // One rule per write.
        rustix::io::write(file, rule.as_bytes())
            .map_err(CgroupError::io(format!("write {rule:?} to {path:?}")))?;
    }
    Ok(())
}

fn rules(spec: &Spec, ruler: DeviceAuthority) -> Vec<LinuxDeviceCgroup> {
    let linux = spec.linux().as_ref();
    let resources = linux.and_then(|l| l.resources().as_ref());
    let mut rules = resources
        .and_then(|r| r.devices().clone())
        .unwrap_or_default();
    if ruler == DeviceAuthority::Engine {
        rules.extend(defaults());
    }
    rules
}

/// What libcgroups allows every container on cgroup v1, in addition to its spec: making nodes of all devices, and
/// opening the node's console and tun (`libcgroups/src/common.rs`). No plan allows this.
const BESIDES: [&str; 4] = ["c *:* m", "b *:* m", "c 5:1 rwm", "c 10:200 rwm"];

/// Removes, on cgroup v1, what the plan does not grant from a container under a policy. Its program does not run yet.
pub fn take_back(spec: &Spec, controllers: &Controllers) -> Result<(), CgroupError> {
    let Some(dir) = controllers.v1("devices") else {
        return Ok(());
    };
    let file = dir.join("devices.deny");
    for rule in BESIDES.iter().filter(|rule| !is_planned(spec, rule)) {
        std::fs::write(&file, rule).map_err(|source| CgroupError::File {
            step: "take devices back in",
            path: file.clone(),
            source,
        })?;
    }
    Ok(())
}

/// Whether the spec itself has this rule, because the node's file allows the device.
fn is_planned(spec: &Spec, rule: &str) -> bool {
    let linux = spec.linux().as_ref();
    let resources = linux.and_then(|linux| linux.resources().as_ref());
    let rules = resources.and_then(|resources| resources.devices().as_deref());
    let rules = rules.unwrap_or_default().iter();
    rules
        .filter(|planned| planned.allow())
        .any(|planned| planned.to_string() == rule)
}

/// The numbers of a device of the node. A policy grants devices only under their own names.
pub fn of_node(path: &Path) -> std::io::Result<DeviceNumbers> {
    let found = std::fs::metadata(path)?;
    let kind = match found.file_type().is_block_device() {
        true => LinuxDeviceType::B,
        false => LinuxDeviceType::C,
    };
    Ok(DeviceNumbers {
        kind,
        major: rustix::fs::major(found.rdev()).into(),
        minor: rustix::fs::minor(found.rdev()).into(),
    })
}

/// The device access in the kernel that exceeds a policy's rules with these additional devices.
pub fn beyond(
    controllers: &Controllers,
    extra: &[DeviceNumbers],
) -> Result<Vec<String>, CgroupError> {
    if let Some(dir) = controllers.v1("devices") {
        let path = dir.join("devices.list");
        let list = procfs::text(&path).map_err(CgroupError::io(format!("read {path:?}")))?;
        return Ok(devices::beyond(&list, extra));
    }
    let own = controllers
        .unified()
        .filter(|path| *path != Path::new(ROOT));
    let Some(path) = own else {
        return Ok(vec![
            "it has no cgroup that decides about devices".to_owned(),
        ]);
    };
    let step = || CgroupError::io(format!("look at the device programs of {path:?}"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cgroup = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| step()(e.into()))?;
    let attached = bpf::device_programs(cgroup.as_fd()).map_err(step())?;
    let wanted = DeviceTable::new(&devices::planned(extra))?.compile();
    let wanted = bpf::load_device_program(&wanted).map_err(step())?;
    let wanted = tag(wanted.as_fd()).map_err(step())?;
    let mut found = attached.iter().map(|program| tag(program.as_fd()));
    // A device must be allowed by all attached programs, so one with the policy's rules is enough.
    if found.any(|tag| tag.is_ok_and(|tag| tag == wanted)) {
        return Ok(Vec::new());
    }
    Ok(vec![match attached.is_empty() {
        true => "no program decides about devices".to_owned(),
        false => "another program than the policy's decides about devices".to_owned(),
    }])
}

/// Whether every container under a policy may use this character device.
pub fn is_usual((major, minor): (u32, u32)) -> bool {
    let device = DeviceNumbers {
        kind: LinuxDeviceType::C,
        major: major.into(),
        minor: minor.into(),
    };
    devices::is_planned(device, &[])
}

/// The kernel's hash of a program's instructions (bpf(2); proc_pid_fdinfo(5)).
fn tag(program: BorrowedFd<'_>) -> std::io::Result<String> {
    let info = procfs::text(format!("/proc/self/fdinfo/{}", program.as_raw_fd()))?;
    let tag = info.lines().find_map(|line| line.strip_prefix("prog_tag:"));
    tag.map(|tag| tag.trim().to_owned())
        .ok_or_else(|| std::io::Error::other("the kernel tells no prog_tag"))
}

/// Attaches the program to a container's cgroup, and replaces others: an existing cgroup may have a deleted container's
/// program.
pub fn attach(program: &DeviceProgram, controllers: &Controllers) -> Result<(), CgroupError> {
    let path = controllers
        .unified()
        .filter(|path| *path != Path::new(ROOT));
    let path = path.ok_or_else(|| CgroupError::NoneOfItsOwn(controllers.clone()))?;
    let step = || CgroupError::io(format!("limit the devices of the cgroup {path:?}"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cgroup = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| step()(e.into()))?;
    let before = bpf::device_programs(cgroup.as_fd()).map_err(step())?;
    let loaded = bpf::load_device_program(program).map_err(step())?;
    let (replaced, others) = match &before[..] {
        [] => (None, &[][..]),
        // Replace the first, so that there is always one.
        [first, others @ ..] => (Some(first.as_fd()), others),
    };
    bpf::attach_device_program(cgroup.as_fd(), loaded.as_fd(), replaced).map_err(step())?;
    for other in others {
        bpf::detach_device_program(cgroup.as_fd(), other.as_fd()).map_err(step())?;
    }
    Ok(())
}
