//! Device rules on cgroup v2, which has no file for them: a BPF program of the container's cgroup decides.
//!
//! Takes the rules of a spec (config-linux.md, "Allowed Device list") and makes a [`DeviceProgram`] for
//! `BPF_PROG_TYPE_CGROUP_DEVICE`. Nothing here calls the kernel: `crate::sys::bpf` does.
//!
//! The rules have the meaning of cgroup v1's devices controller (security/device_cgroup.c), which runc also emulates on
//! v2: written one after the other to `devices.allow` and `devices.deny`, they result in a default and exceptions.

mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType};

pub use program::{DeviceInstruction, DeviceProgram};

/// Character devices that every container under a policy may use. Without a minor number all of them: the
/// pseudo-terminals. Not 5:1, the node's console: /dev/console of a container is its own pseudo-terminal.
const USUAL: &[(i64, Option<i64>)] = &[
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(2)),
    (136, None),
];

/// A device by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceNumbers {
    /// Its type.
    pub kind: LinuxDeviceType,
    /// The number of its driver.
    pub major: i64,
    /// Its number in the driver.
    pub minor: i64,
}

/// The rules of a policy: only the usual devices, the pseudo-terminals and these.
pub fn planned(extra: &[DeviceNumbers]) -> Vec<LinuxDeviceCgroup> {
    let mut rules = vec![nothing()];
    let usual = USUAL.iter();
    rules.extend(usual.map(|(major, minor)| allow(LinuxDeviceType::C, Some(*major), *minor)));
    let extra = extra.iter();
    rules.extend(extra.map(|one| allow(one.kind, Some(one.major), Some(one.minor))));
    rules
}

/// The rule that denies all devices, which comes first.
pub fn nothing() -> LinuxDeviceCgroup {
    let builder = LinuxDeviceCgroupBuilder::default().allow(false);
    let builder = builder.typ(LinuxDeviceType::A).access("rwm");
    builder.build().expect("all fields of a rule are set")
}

/// A rule that allows making, reading and writing; a missing number means all.
fn allow(typ: LinuxDeviceType, major: Option<i64>, minor: Option<i64>) -> LinuxDeviceCgroup {
    let mut builder = LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .typ(typ)
        .access("rwm");
    if let Some(major) = major {
        builder = builder.major(major);
    }
    if let Some(minor) = minor {
        builder = builder.minor(minor);
    }
    builder.build().expect("all fields of a rule are set")
}

/// Whether a device is one of [`planned`].
pub fn is_planned(device: DeviceNumbers, extra: &[DeviceNumbers]) -> bool {
    let DeviceNumbers { kind, major, minor } = device;
    let usual = |(known, one): &(i64, Option<i64>)| {
        kind == LinuxDeviceType::C && major == *known && one.is_none_or(|one| one == minor)
    };
    USUAL.iter().any(usual) || extra.contains(&device)
}

/// The lines of cgroup v1's devices.list that allow more than the policy's rules.
pub fn beyond(list: &str, extra: &[DeviceNumbers]) -> Vec<String> {
    let rules = planned(extra);
    let known = rules.iter().filter(|rule| rule.allow());
    let known: Vec<String> = known.map(ToString::to_string).collect();
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty());
    // Fewer accesses than planned are fine.
    let is_within = |line: &&str| {
        let device = line.rsplit_once(' ').map(|(device, _)| device);
        known
            .iter()
            .any(|rule| rule.rsplit_once(' ').map(|(device, _)| device) == device)
    };
    lines
        .filter(|line| !is_within(line))
        .map(str::to_owned)
        .collect()
}

/// Kind of a device node, as `BPF_DEVCG_DEV_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// Block devices.
    Block = 1,
    /// Character devices.
    Character = 2,
}

/// A set of accesses, as the bits `BPF_DEVCG_ACC_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceAccess(u32);

impl DeviceAccess {
    /// Making a node, reading and writing it.
    pub const ALL: DeviceAccess = DeviceAccess(7);

    fn parse(text: &str) -> Option<Self> {
        let mut bits = 0;
        for letter in text.chars() {
            bits |= match letter {
                'm' => 1,
                'r' => 2,
                'w' => 4,
                _ => return None,
            };
        }
        (bits != 0).then_some(DeviceAccess(bits))
    }

    /// The kernel's bits.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// The devices of an exception; a missing number means all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Devices {
    /// Block or character.
    pub kind: DeviceKind,
    /// Major number.
    pub major: Option<u32>,
    /// Minor number.
    pub minor: Option<u32>,
}

/// The decision if no exception matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultAccess {
    /// Everything except the exceptions.
    Allow,
    /// Nothing except the exceptions.
    #[default]
    Deny,
}

/// The device rules in force: a default, and its exceptions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceTable {
    otherwise: DefaultAccess,
    exceptions: BTreeMap<Devices, DeviceAccess>,
}

/// Why rules cannot be enforced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Not a set of `r`, `w` and `m`.
    #[error("linux.resources.devices: the access {0:?} is not made of `r`, `w` and `m`")]
    Access(String),
    /// A number outside of the range of devices.
    #[error("linux.resources.devices: {0} is no device number")]
    Number(i64),
    /// `u` and `p` are for device nodes, not for rules.
    #[error("linux.resources.devices: a rule's type is `a`, `b` or `c`, not `{0}`")]
    Type(String),
    /// cgroup v1 would silently ignore the rule; runc refuses it as well.
    #[error(
        "linux.resources.devices: a rule revokes a part of an earlier rule with wildcards ({0}), which device cgroups cannot do"
    )]
    Hole(String),
}

impl DeviceTable {
    /// The rules, applied in their order.
    pub fn new<'a>(
        rules: impl IntoIterator<Item = &'a LinuxDeviceCgroup>,
    ) -> Result<Self, DeviceError> {
        let mut table = DeviceTable::default();
        for rule in rules {
            table.apply(rule)?;
        }
        Ok(table)
    }

    fn apply(&mut self, rule: &LinuxDeviceCgroup) -> Result<(), DeviceError> {
        let verdict = if rule.allow() {
            DefaultAccess::Allow
        } else {
            DefaultAccess::Deny
        };
        let kind = match rule.typ() {
            // Everything, whatever else the rule has, and without exceptions.
            None | Some(LinuxDeviceType::A) => {
                *self = DeviceTable {
                    otherwise: verdict,
                    exceptions: BTreeMap::new(),
                };
                return Ok(());
            }
            Some(LinuxDeviceType::B) => DeviceKind::Block,
            Some(LinuxDeviceType::C) => DeviceKind::Character,
            Some(other) => return Err(DeviceError::Type(format!("{other:?}").to_lowercase())),
        };
        let text = rule.access().as_deref().unwrap_or_default();
        let access =
            DeviceAccess::parse(text).ok_or_else(|| DeviceError::Access(text.to_owned()))?;
        let devices = Devices {
            kind,
            major: number(rule.major())?,
            minor: number(rule.minor())?,
        };
        if verdict == self.otherwise {
            self.take_back(devices, access, rule)
        } else {
            let known = self.exceptions.entry(devices).or_default();
            known.0 |= access.0;
            Ok(())
        }
    }

    /// Removes an exception, or a part of its accesses; a missing one is fine.
    fn take_back(
        &mut self,
        devices: Devices,
        access: DeviceAccess,
        rule: &LinuxDeviceCgroup,
    ) -> Result<(), DeviceError> {
        let Devices { kind, major, minor } = devices;
        for (major, minor) in [(None, minor), (major, None), (None, None)] {
            let wider = Devices { kind, major, minor };
            let overlaps = self
                .exceptions
                .get(&wider)
                .is_some_and(|known| known.0 & access.0 != 0);
            if wider != devices && overlaps {
                return Err(DeviceError::Hole(rule.to_string()));
            }
        }
        if let Some(known) = self.exceptions.get_mut(&devices) {
            known.0 &= !access.0;
            if known.0 == 0 {
                self.exceptions.remove(&devices);
            }
        }
        Ok(())
    }

    /// Compiles the rules to a program.
    pub fn compile(&self) -> DeviceProgram {
        program::compile(self)
    }
}

/// A device number; like engines, runc writes -1 for a missing one.
fn number(given: Option<i64>) -> Result<Option<u32>, DeviceError> {
    match given {
        None | Some(-1) => Ok(None),
        Some(number) => u32::try_from(number)
            .map(Some)
            .map_err(|_| DeviceError::Number(number)),
    }
}

/// What runc allows every container after the spec's own rules: making nodes (with the capability), the specification's
/// devices (config-linux.md, "Default Devices"), terminals and tun.
pub fn defaults() -> Vec<LinuxDeviceCgroup> {
    const CHARACTER: [(i64, Option<i64>); 9] = [
        (1, Some(3)),
        (1, Some(5)),
        (1, Some(7)),
        (1, Some(8)),
        (1, Some(9)),
        (5, Some(0)),
        (5, Some(2)),
        (10, Some(200)),
        (136, None),
    ];
    let rule = |typ, major, minor, access: &str| {
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true);
        rule.set_typ(Some(typ));
        rule.set_major(major);
        rule.set_minor(minor);
        rule.set_access(Some(access.to_owned()));
        rule
    };
    let nodes = [LinuxDeviceType::C, LinuxDeviceType::B].map(|typ| rule(typ, None, None, "m"));
    let usual = CHARACTER
        .iter()
        .map(|(major, minor)| rule(LinuxDeviceType::C, Some(*major), *minor, "rwm"));
    nodes.into_iter().chain(usual).collect()
}
