//! PURE. Mount options as bits of mount_setattr(2), for those that libcontainer 0.7.0 ignores: propagation, removed
//! attributes, `nosymfollow`, `tmpcopyup`, mapped ids, and general options of file systems (`sync`).

/// Whether a change applies to one mount or to all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountReach {
    /// The mount alone.
    One,
    /// The mount and those below it.
    Below,
}

/// Bits of `struct mount_attr` (linux/mount.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits {
    /// attr_set
    pub set: u64,
    /// attr_clr
    pub clear: u64,
}

impl Bits {
    /// MOUNT_ATTR_RDONLY
    pub const READ_ONLY: Self = bits(READ_ONLY, 0);
    /// MOUNT_ATTR_NOSUID and MOUNT_ATTR_NODEV
    pub const NO_PRIVILEGE: Self = bits(NO_SUID | NO_DEV, 0);
    /// MOUNT_ATTR_NODEV
    pub const NO_DEVICE: Self = bits(NO_DEV, 0);
    /// MOUNT_ATTR_NOEXEC
    pub const NO_PROGRAM: Self = bits(NO_EXEC, 0);
    /// MOUNT_ATTR_NOSYMFOLLOW
    pub const NO_LINK: Self = bits(NO_SYMLINKS, 0);

    /// Both; `later` wins if they contradict.
    pub const fn and(self, later: Self) -> Self {
        Self {
            set: self.set & !later.clear | later.set,
            clear: self.clear & !later.set | later.clear,
        }
    }

    /// Nothing to change.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Which mounts propagate from and to copies of a mount (mount_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// MS_SHARED
    Shared,
    /// MS_SLAVE
    Slave,
    /// MS_PRIVATE
    Private,
    /// MS_UNBINDABLE
    Unbindable,
}

/// Changes to a mount after making it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Attributes of the mount.
    pub one: Bits,
    /// Attributes of the mount and those below it.
    pub below: Bits,
    /// Types of propagation, in the requested order.
    pub propagation: Vec<(Propagation, MountReach)>,
}

impl Changes {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.one.is_empty() && self.below.is_empty() && self.propagation.is_empty()
    }
}

const READ_ONLY: u64 = 0x1;
const NO_SUID: u64 = 0x2;
const NO_DEV: u64 = 0x4;
const NO_EXEC: u64 = 0x8;
const ATIME: u64 = 0x70;
const NO_ATIME: u64 = 0x10;
const STRICT_ATIME: u64 = 0x20;
const NO_DIR_ATIME: u64 = 0x80;
const NO_SYMLINKS: u64 = 0x20_0000;

const fn bits(set: u64, clear: u64) -> Bits {
    Bits { set, clear }
}

/// Options of mount(8) that are attributes of a mount. With `r` before the name they also change the mounts below
/// (runtime-spec 1.2, config.md "Linux mount options"). `relatime` is the kernel's default.
const ATTRIBUTES: &[(&str, Bits)] = &[
    ("ro", bits(READ_ONLY, 0)),
    ("rw", bits(0, READ_ONLY)),
    ("nosuid", bits(NO_SUID, 0)),
    ("suid", bits(0, NO_SUID)),
    ("nodev", bits(NO_DEV, 0)),
    ("dev", bits(0, NO_DEV)),
    ("noexec", bits(NO_EXEC, 0)),
    ("exec", bits(0, NO_EXEC)),
    ("noatime", bits(NO_ATIME, ATIME)),
    ("atime", bits(0, ATIME)),
    ("relatime", bits(0, ATIME)),
    ("strictatime", bits(STRICT_ATIME, ATIME)),
    ("nodiratime", bits(NO_DIR_ATIME, 0)),
    ("diratime", bits(0, NO_DIR_ATIME)),
    ("nosymfollow", bits(NO_SYMLINKS, 0)),
    ("symfollow", bits(0, NO_SYMLINKS)),
];

const PROPAGATION: &[(&str, Propagation)] = &[
    ("unbindable", Propagation::Unbindable),
    ("private", Propagation::Private),
    ("slave", Propagation::Slave),
    ("shared", Propagation::Shared),
];

/// Options that are neither attributes nor the file system's: how to mount, or without meaning.
const OTHER: &[&str] = &[
    "bind",
    "rbind",
    "idmap",
    "ridmap",
    "tmpcopyup",
    "defaults",
    "norelatime",
    "rnorelatime",
    "nostrictatime",
    "rnostrictatime",
];

/// Flags of mount(2) that file systems set themselves, or that only shorten the kernel's log.
const FLAGS: &[&str] = &["acl", "noacl", "iversion", "noiversion", "silent", "loud"];

/// Whether libcontainer passes an option on to the file system, which then refuses it.
pub fn is_mistaken_for_data(option: &str) -> bool {
    matches!(option, "nosymfollow" | "symfollow") || FLAGS.contains(&option)
}

/// The kind of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountOptionKind {
    /// An attribute of mounts.
    Attribute(Bits, MountReach),
    /// A type of propagation.
    Propagation(Propagation, MountReach),
    /// How the mount is made.
    Other,
    /// The file system's.
    FileSystem,
}

/// The kind of an option.
pub fn kind(option: &str) -> MountOptionKind {
    let attribute = |name: &str| ATTRIBUTES.iter().find(|(n, _)| *n == name);
    let propagation = |name: &str| PROPAGATION.iter().find(|(n, _)| *n == name);
    if let Some((_, bits)) = attribute(option) {
        return MountOptionKind::Attribute(*bits, MountReach::One);
    }
    if let Some((_, flag)) = propagation(option) {
        return MountOptionKind::Propagation(*flag, MountReach::One);
    }
    if OTHER.contains(&option) || FLAGS.contains(&option) {
        return MountOptionKind::Other;
    }
    let below = option.strip_prefix('r').unwrap_or_default();
    match (attribute(below), propagation(below)) {
        (Some((_, bits)), _) => MountOptionKind::Attribute(*bits, MountReach::Below),
        (_, Some((_, flag))) => MountOptionKind::Propagation(*flag, MountReach::Below),
        _ => MountOptionKind::FileSystem,
    }
}

/// Whether an option reverses an earlier one. libcontainer then applies both when it makes a file system.
pub fn take_back<'a>(options: impl IntoIterator<Item = &'a String>) -> bool {
    let mut set = 0;
    options.into_iter().any(|option| match kind(option) {
        MountOptionKind::Attribute(bits, _) => {
            let taken_back = set & bits.clear & !bits.set != 0;
            set |= bits.set;
            taken_back
        }
        _ => false,
    })
}

/// The attributes among a mount's options that restrict it: they never remove an attribute of the mount's source.
pub fn restrictions<'a>(options: impl IntoIterator<Item = &'a String>) -> Bits {
    let restricts = |o: &&String| ["ro", "nosuid", "nodev", "noexec"].contains(&o.as_str());
    changes(options.into_iter().filter(restricts)).one
}

/// The changes that the options of a mount request.
pub fn changes<'a>(options: impl IntoIterator<Item = &'a String>) -> Changes {
    let mut all = Changes::default();
    for option in options {
        match option.as_str() {
            "nostrictatime" => all.one.set &= !STRICT_ATIME,
            "rnostrictatime" => all.below.set &= !STRICT_ATIME,
            _ => {}
        }
        match kind(option) {
            MountOptionKind::Attribute(bits, MountReach::One) => all.one = all.one.and(bits),
            MountOptionKind::Attribute(bits, MountReach::Below) => all.below = all.below.and(bits),
            MountOptionKind::Propagation(flag, reach) => all.propagation.push((flag, reach)),
            MountOptionKind::Other | MountOptionKind::FileSystem => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &[&str]) -> Changes {
        let owned: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        changes(&owned)
    }

    #[test]
    fn the_last_of_two_that_contradict_counts() {
        assert_eq!(of(&["ro", "rw"]).one, bits(0, READ_ONLY));
        assert_eq!(of(&["rw", "ro"]).one, bits(READ_ONLY, 0));
        assert_eq!(
            of(&["noatime", "strictatime"]).one,
            bits(STRICT_ATIME, ATIME)
        );
        assert_eq!(of(&["strictatime", "nostrictatime"]).one, bits(0, ATIME));
        assert!(of(&["nostrictatime", "rnorelatime"]).is_empty());
    }

    #[test]
    fn a_reversed_option_is_noticed() {
        let back = |options: &[&str]| {
            let owned: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
            take_back(&owned)
        };
        assert!(back(&["nodev", "size=1m", "dev"]) && back(&["rro", "rrw"]));
        assert!(back(&["noatime", "relatime"]));
        assert!(!back(&["dev", "nodev", "relatime", "rw", "exec"]));
    }

    #[test]
    fn restrictions_take_nothing_away() {
        let all = ["ro", "rw", "suid", "dev", "nodev", "exec", "noatime", "rro"].map(str::to_owned);
        assert_eq!(restrictions(&all), bits(READ_ONLY | NO_DEV, 0));
    }

    #[test]
    fn an_r_before_the_name_reaches_below_but_ro_and_rw_are_themselves() {
        assert_eq!(of(&["rro"]).below, bits(READ_ONLY, 0));
        assert_eq!(of(&["ro"]).below, Bits::default());
        assert_eq!(of(&["relatime"]).one, bits(0, ATIME));
        assert_eq!(of(&["rnosymfollow"]).below, bits(NO_SYMLINKS, 0));
        assert_eq!(
            of(&["shared", "rslave"]).propagation,
            [
                (Propagation::Shared, MountReach::One),
                (Propagation::Slave, MountReach::Below)
            ]
        );
    }

    #[test]
    fn an_unknown_option_is_the_file_systems() {
        for name in ["size=1m", "sync", "rsync", "r", ""] {
            assert_eq!(kind(name), MountOptionKind::FileSystem, "{name:?}");
        }
        assert_eq!(kind("rbind"), MountOptionKind::Other);
        assert!(of(&["bind", "size=1m"]).is_empty());
    }
}
