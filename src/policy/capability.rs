//! Capabilities: their names, and the nine that a policy may grant.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ValueError, nearest, shown, string_form};

/// Every capability at the index that is its number (capabilities(7), include/uapi/linux/capability.h).
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// A capability of the kernel: read as `CHOWN` or `CAP_CHOWN`, written as `CAP_CHOWN`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Capability(u8);

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Capability {
    /// Capabilities that ordinary programs need as root in a container, and that reach nothing outside of it.
    ///
    /// A policy may name others only if the node's file allows it.
    pub const ORDINARY: [Self; 9] = [
        Self(0),  // CHOWN: package managers and tar set owners
        Self(1),  // DAC_OVERRIDE: root writes into other users' directories
        Self(3),  // FOWNER: chmod and utimes of other users' files
        Self(4),  // FSETID: keep set-id bits when a file is written or its mode set
        Self(5),  // KILL: an init signals the services it started as other users
        Self(6),  // SETGID: drop to a service's group
        Self(7),  // SETUID: drop to a service's user
        Self(10), // NET_BIND_SERVICE: servers on ports below 1024
        Self(18), // SYS_CHROOT: scripts that change user by chroot(1), servers that lock themselves in; the walls are mounts
    ];

    /// Lets a file stay set-user-ID when it is written.
    pub const FSETID: Self = Self(4);

    /// Every capability that a kernel knows, by number.
    pub fn all() -> impl Iterator<Item = Self> {
        (0u8..).take(NAMES.len()).map(Self)
    }

    /// The kernel's name: `CAP_CHOWN`.
    pub const fn as_str(self) -> &'static str {
        NAMES[self.0 as usize]
    }

    /// The name as people write it: `CHOWN`.
    pub fn short_name(self) -> &'static str {
        let name = self.as_str();
        name.strip_prefix("CAP_").unwrap_or(name)
    }

    /// The kernel's number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whether a policy may name it without permission of the node.
    pub fn is_ordinary(self) -> bool {
        Self::ORDINARY.contains(&self)
    }
}

impl FromStr for Capability {
    type Err = ValueError;

    fn from_str(value: &str) -> Result<Self, ValueError> {
        Self::all()
            .find(|known| {
                known.as_str() == value || known.as_str().strip_prefix("CAP_") == Some(value)
            })
            .ok_or_else(|| {
                let upper = value.to_uppercase();
                let full = format!("CAP_{}", upper.strip_prefix("CAP_").unwrap_or(&upper));
                ValueError {
                    value: shown(value),
                    allowed: "a capability of capabilities(7), such as CHOWN or CAP_CHOWN"
                        .to_owned(),
                    suggestion: nearest(&full, NAMES).map(str::to_owned),
                }
            })
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

string_form!(Capability);

/// Capabilities of a set that need the node's permission and lack it.
pub(super) fn without_leave<'a>(
    asked: &'a BTreeSet<Capability>,
    leave: &'a BTreeSet<Capability>,
) -> impl Iterator<Item = Capability> + 'a {
    asked
        .difference(leave)
        .copied()
        .filter(|capability| !capability.is_ordinary())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        for (name, number) in [
            ("CHOWN", 0),
            ("CAP_NET_BIND_SERVICE", 10),
            ("NET_RAW", 13),
            ("CAP_SYS_ADMIN", 21),
            ("CAP_MKNOD", 27),
            ("CHECKPOINT_RESTORE", 40),
        ] {
            let capability: Capability = name.parse().unwrap();
            assert_eq!(capability.number(), number, "{name}");
            assert!(capability.as_str().starts_with("CAP_"));
        }
    }

    /// The number is the bit that the kernel gets, so a wrong one would grant another capability.
    #[test]
    fn each_capability_has_the_number_that_others_know() {
        let others: Vec<(String, u8)> = caps::all()
            .into_iter()
            .map(|one| (one.to_string(), one.index()))
            .collect();
        let ours = |name: &str| name.parse::<Capability>().unwrap().number();
        assert_eq!(others.len(), Capability::all().count());
        for (name, number) in others {
            assert_eq!(u64::from(ours(&name)), u64::from(number), "{name}");
        }
    }

    #[test]
    fn exactly_nine_capabilities_are_ordinary() {
        let names: BTreeSet<&str> = Capability::ORDINARY.iter().map(|c| c.as_str()).collect();
        let nine =
            "CHOWN DAC_OVERRIDE FOWNER FSETID SETUID SETGID KILL NET_BIND_SERVICE SYS_CHROOT";
        let nine: BTreeSet<String> = nine.split(' ').map(|c| format!("CAP_{c}")).collect();
        assert_eq!(names, nine.iter().map(String::as_str).collect());
    }

    #[test]
    fn refuses_other_spellings_and_suggests_the_right_one() {
        for (bad, meant) in [
            ("chown", Some("CAP_CHOWN")),
            ("cap_chown", Some("CAP_CHOWN")),
            ("NET_RWA", Some("CAP_NET_RAW")),
            ("CAP_", None),
            ("", None),
            ("ALL", None),
            ("CAP_CAP_CHOWN", None),
        ] {
            let error = bad.parse::<Capability>().unwrap_err();
            if let Some(meant) = meant {
                assert_eq!(error.suggestion.as_deref(), Some(meant), "{bad}");
            }
        }
    }
}
