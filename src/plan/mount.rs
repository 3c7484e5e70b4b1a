//! PURE. A mount of a plan: a kernel file system, an empty one in memory, or a bind mount of a checked source.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::FileKind;
use super::ids::MappedIds;
use super::reason::MountReason;

/// A mount that the container gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "MountRecord", into = "MountRecord")]
pub struct PlannedMount {
    /// Mount point in the container.
    pub destination: PathBuf,
    /// Its type and source.
    pub kind: MountKind,
    /// Why it is there.
    pub why: MountReason,
}

/// The type of a mount, which decides who makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountKind {
    /// A kernel file system at its usual mount point.
    Kernel(KernelMount),
    /// An empty file system in memory at the engine's mount point. The init process makes it.
    Tmpfs(Tmpfs),
    /// A file or directory of the node. The init process attaches it, from a descriptor.
    Bind(BindMount),
}

/// A kernel file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMount {
    /// Which one.
    pub what: KernelFileSystem,
    /// Its name in the container's table of mounts.
    pub source: PathBuf,
    /// Options, complete.
    pub options: Vec<String>,
}

/// An empty file system in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tmpfs {
    /// Its name in the container's table of mounts.
    pub source: PathBuf,
    /// Options, complete: its size is bounded.
    pub options: Vec<String>,
}

/// A bind mount. It is private, not recursive, and allows neither devices nor set-user-ID programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindMount {
    /// Path on the node.
    pub source: PathBuf,
    /// The inode that must be found there.
    pub judged: SourceIdentity,
    /// What the container may write.
    pub access: BindAccess,
    /// Whether its programs can be executed.
    pub programs: ProgramMode,
    /// The ids that it shows.
    pub ids: MappedIds,
}

/// What a container may write in a bind mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindAccess {
    /// Nothing.
    ReadOnly,
    /// What the node's permissions allow.
    ReadWrite,
    /// Anything; an overlay of the container's scratch lies over it, and is thrown away.
    Private,
}

/// Whether programs on a bind mount can be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramMode {
    /// They run.
    Run,
    /// They are refused (`noexec`).
    Refused,
}

/// The kernel file systems of a container, each with one mount point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFileSystem {
    /// Processes.
    Proc,
    /// Devices and the kernel's objects.
    Sysfs,
    /// Cgroups of the first version.
    Cgroup,
    /// Cgroups of the second version.
    Cgroup2,
    /// The directory of devices.
    Dev,
    /// Pseudo-terminals.
    Devpts,
    /// POSIX queues.
    Mqueue,
    /// POSIX shared memory.
    Shm,
}

impl KernelFileSystem {
    const ALL: [Self; 8] = [
        Self::Proc,
        Self::Sysfs,
        Self::Cgroup,
        Self::Cgroup2,
        Self::Dev,
        Self::Devpts,
        Self::Mqueue,
        Self::Shm,
    ];

    /// The type for mount(2), and the mount point.
    const fn known_as(self) -> (&'static str, &'static str) {
        match self {
            Self::Proc => ("proc", "/proc"),
            Self::Sysfs => ("sysfs", "/sys"),
            Self::Cgroup => ("cgroup", "/sys/fs/cgroup"),
            Self::Cgroup2 => ("cgroup2", "/sys/fs/cgroup"),
            Self::Dev => ("tmpfs", "/dev"),
            Self::Devpts => ("devpts", "/dev/pts"),
            Self::Mqueue => ("mqueue", "/dev/mqueue"),
            Self::Shm => ("tmpfs", "/dev/shm"),
        }
    }

    /// The type for mount(2).
    pub const fn type_name(self) -> &'static str {
        self.known_as().0
    }

    /// The file system of this type at this mount point.
    pub fn at(type_name: &str, place: &Path) -> Option<Self> {
        let is_it = |one: &Self| {
            let (name, own_place) = one.known_as();
            name == type_name && place == Path::new(own_place)
        };
        Self::ALL.into_iter().find(is_it)
    }

    /// Whether it shows cgroups.
    pub const fn is_of_cgroups(self) -> bool {
        matches!(self, Self::Cgroup | Self::Cgroup2)
    }
}

/// Identity of a mount's source at the time of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceIdentity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Type.
    pub kind: FileKind,
}

/// A mount that the engine requested and the container does not get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OmittedMount {
    /// Mount point in the container.
    pub destination: PathBuf,
    /// The source.
    pub source: PathBuf,
    /// The reason.
    pub why: String,
    /// Whether the engine requests it for every container, so that its caller asked for nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_every_engine: bool,
}

impl PlannedMount {
    /// The bind mount, if it is one.
    pub fn bind(&self) -> Option<&BindMount> {
        match &self.kind {
            MountKind::Bind(bind) => Some(bind),
            MountKind::Kernel(_) | MountKind::Tmpfs(_) => None,
        }
    }

    pub(super) fn bind_mut(&mut self) -> Option<&mut BindMount> {
        match &mut self.kind {
            MountKind::Bind(bind) => Some(bind),
            MountKind::Kernel(_) | MountKind::Tmpfs(_) => None,
        }
    }

    /// Whether it is a kernel file system.
    pub fn is_the_kernels(&self) -> bool {
        matches!(self.kind, MountKind::Kernel(_))
    }

    /// Whether it is the cgroup mount; a container has one.
    pub fn shows_cgroups(&self) -> bool {
        matches!(&self.kind, MountKind::Kernel(kernel) if kernel.what.is_of_cgroups())
    }

    /// Whether the container may write below it.
    pub fn is_writable(&self) -> bool {
        match &self.kind {
            MountKind::Kernel(KernelMount { options, .. })
            | MountKind::Tmpfs(Tmpfs { options, .. }) => !options.iter().any(|o| o == "ro"),
            MountKind::Bind(bind) => bind.access != BindAccess::ReadOnly,
        }
    }

    /// Whether writes below it go to an overlay that is thrown away.
    pub fn is_private(&self) -> bool {
        self.bind()
            .is_some_and(|bind| bind.access == BindAccess::Private)
    }

    /// The source: a name, or a path on the node.
    pub fn source(&self) -> &Path {
        match &self.kind {
            MountKind::Kernel(kernel) => &kernel.source,
            MountKind::Tmpfs(tmpfs) => &tmpfs.source,
            MountKind::Bind(bind) => &bind.source,
        }
    }

    /// The type as engines write it.
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            MountKind::Kernel(kernel) => kernel.what.type_name(),
            MountKind::Tmpfs(_) => "tmpfs",
            MountKind::Bind(_) => "bind",
        }
    }

    /// The options as engines write them, complete.
    pub fn options(&self) -> Vec<String> {
        match &self.kind {
            MountKind::Kernel(KernelMount { options, .. })
            | MountKind::Tmpfs(Tmpfs { options, .. }) => options.clone(),
            MountKind::Bind(bind) => bind.options().into_iter().map(str::to_owned).collect(),
        }
    }
}

impl BindMount {
    /// Whether this is the checked source: its path, and the inode there.
    pub fn is_of(&self, path: &Path, (dev, ino): (u64, u64)) -> bool {
        (self.judged.dev, self.judged.ino) == (dev, ino) && self.source == path
    }

    fn options(&self) -> Vec<&'static str> {
        let mut all = vec!["bind", "rprivate", "nosuid", "nodev"];
        if self.programs == ProgramMode::Refused {
            all.push("noexec");
        }
        all.push(match self.access {
            BindAccess::ReadOnly => "ro",
            BindAccess::ReadWrite | BindAccess::Private => "rw",
        });
        all
    }
}

/// A mount as records and `explain --json` write it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MountRecord {
    destination: PathBuf,
    kind: String,
    #[serde(with = "super::text::one")]
    source: PathBuf,
    options: Vec<String>,
    why: MountReason,
    judged: Option<SourceIdentity>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    #[serde(default, skip_serializing_if = "is_the_nodes")]
    ids: MappedIds,
}

fn is_the_nodes(ids: &MappedIds) -> bool {
    *ids == MappedIds::Node
}

impl From<PlannedMount> for MountRecord {
    fn from(mount: PlannedMount) -> Self {
        Self {
            kind: mount.type_name().to_owned(),
            source: mount.source().to_owned(),
            options: mount.options(),
            judged: mount.bind().map(|bind| bind.judged),
            private: mount.is_private(),
            ids: mount.bind().map(|bind| bind.ids).unwrap_or_default(),
            destination: mount.destination,
            why: mount.why,
        }
    }
}

/// The record is no mount that a plan can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the mount at {destination:?} is none that a plan has: type {kind:?}, options {options:?}")]
pub struct MountError {
    destination: PathBuf,
    kind: String,
    options: Vec<String>,
}

impl TryFrom<MountRecord> for PlannedMount {
    type Error = MountError;

    fn try_from(recorded: MountRecord) -> Result<Self, MountError> {
        let MountRecord {
            destination,
            kind: type_name,
            source,
            options,
            why,
            judged,
            private,
            ids,
        } = recorded;
        let has = |option: &str| options.iter().any(|o| o == option);
        let kernel = KernelFileSystem::at(&type_name, &destination);
        let kind = match (type_name.as_str(), kernel, judged) {
            ("bind", None, Some(judged)) => Some(MountKind::Bind(BindMount {
                source,
                judged,
                access: match (private, has("ro")) {
                    (true, _) => BindAccess::Private,
                    (false, true) => BindAccess::ReadOnly,
                    (false, false) => BindAccess::ReadWrite,
                },
                programs: match has("noexec") {
                    true => ProgramMode::Refused,
                    false => ProgramMode::Run,
                },
                ids,
            })),
            (_, Some(what), None) if !private => Some(MountKind::Kernel(KernelMount {
                what,
                source,
                options: options.clone(),
            })),
            ("tmpfs", None, None) if !private => Some(MountKind::Tmpfs(Tmpfs {
                source,
                options: options.clone(),
            })),
            _ => None,
        };
        let mount = kind.map(|kind| Self {
            destination: destination.clone(),
            kind,
            why,
        });
        // An option must not get lost in reading: it may be one that restricts.
        let mount = mount.filter(|mount| mount.options() == options);
        let mount = mount.filter(|mount| mount.bind().is_some() || is_the_nodes(&ids));
        mount.ok_or(MountError {
            destination,
            kind: type_name,
            options,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn recorded(kind: &str, destination: &str, options: &[&str]) -> Value {
        let judged = json!({"dev": 1, "ino": 2, "kind": "directory"});
        json!({
            "destination": destination, "kind": kind, "source": "/srv/x", "options": options, "why": "because",
            "judged": (kind == "bind").then_some(judged),
        })
    }

    #[test]
    fn a_record_is_written_again_word_for_word() {
        for value in [
            recorded("proc", "/proc", &["nosuid", "nodev", "noexec"]),
            recorded("tmpfs", "/dev/shm", &["nosuid", "nodev", "size=64k"]),
            recorded("tmpfs", "/data", &["nosuid", "ro"]),
            recorded("bind", "/x", &["bind", "rprivate", "nosuid", "nodev", "ro"]),
            recorded(
                "bind",
                "/x",
                &["bind", "rprivate", "nosuid", "nodev", "noexec", "rw"],
            ),
        ] {
            let mount: PlannedMount = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(mount).unwrap(), value);
        }
    }

    #[test]
    fn an_impossible_record_is_an_error_and_loses_no_option() {
        let bind = ["bind", "rprivate", "nosuid", "nodev", "ro"];
        let mut unjudged = recorded("bind", "/x", &bind);
        unjudged["judged"] = Value::Null;
        let mut read_only = recorded("bind", "/x", &bind);
        read_only["private"] = json!(true);
        for value in [
            unjudged,
            read_only,
            recorded("bind", "/x", &["bind", "rprivate", "nosuid", "nodev"]),
            recorded("bind", "/x", &[&bind[..], &["nosymfollow"]].concat()),
            recorded("proc", "/data", &[]),
            recorded("ext4", "/data", &[]),
        ] {
            let read: Result<PlannedMount, _> = serde_json::from_value(value.clone());
            assert!(read.is_err(), "{value}");
        }
    }
}
