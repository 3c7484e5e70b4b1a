//! SHELL. Runs inside the container's processes, between libcontainer's set-up and execve.
//!
//! [`executor`] has the order of the walls, [`walls`] their types; each other file makes one step. [`unconfined`] is
//! only for containers without a policy, which behave as with runc: it has no walls. Everything here only restricts:
//! decisions arrive as values, and opened files as descriptors.

pub mod capabilities;
mod cover;
mod devices;
pub mod exec_process;
pub mod executor;
mod file_system;
pub mod hidden;
pub mod home;
pub mod hooks;
pub mod image;
pub mod kernel;
mod keyring;
mod label;
pub mod leader;
pub mod listener;
pub mod owner;
pub mod privileges;
pub mod process;
pub mod program;
mod reaper;
pub mod report;
pub mod rootfs;
mod scheduling;
mod scratch;
pub mod stdio;
pub mod trust;
pub mod unconfined;
pub mod verify;
mod visible_files;
pub mod walls;

use std::io;
use std::path::PathBuf;

use crate::plan::FilesystemPlan;

/// A part of the enforcement that can fail on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WallKind {
    /// Mounts, masks and read-only paths.
    Files,
    /// The inner network namespace.
    Network,
    /// The filter.
    Syscalls,
    /// Groups, capabilities, no_new_privs.
    Privileges,
}

impl std::fmt::Display for WallKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Files => "file system",
            Self::Network => "network",
            Self::Syscalls => "syscall",
            Self::Privileges => "privilege",
        })
    }
}

/// Why a process of a container was not started. The text reaches the engine's user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnforceError {
    /// A system call failed.
    #[error("{step}")]
    Step {
        /// The step, with the object's name. Only people read it.
        step: String,
        /// The errno.
        source: io::Error,
    },
    /// The mount point is missing and cannot be made.
    #[error("make the mount point {destination:?}")]
    MountPoint {
        /// Its path in the container.
        destination: PathBuf,
        /// The errno.
        source: io::Error,
    },
    /// The mount point is missing, in a mount that the policy makes read-only.
    #[error(
        "make the mount point {destination:?}: {above:?} is read-only; make it in the source, or set dev.agentbox.workspace={} or \
         filesystem.write", above.display()
    )]
    MountPointInReadOnly {
        /// Its path in the container.
        destination: PathBuf,
        /// The mount that contains it.
        above: PathBuf,
    },
    /// A mount point is a symbolic link.
    #[error(
        "{0:?} is a symbolic link, and a mount over it would land elsewhere: name the real directory, or use an image without the link"
    )]
    Link(PathBuf),
    /// A symbolic link leads to a path that is to be covered: the link could be changed (CVE-2021-25741).
    #[error(
        "a symbolic link to {0:?}, which is hidden or read-only, could be changed: put the directory in the link's place, or use \
         another policy"
    )]
    LinkOnTheWay(PathBuf),
    /// A path is not hidden or read-only as it was made: the image changed meanwhile.
    #[error(
        "{0:?} is not as it was made: the image's directories were changed while the container was made"
    )]
    Changed(PathBuf),
    /// The network wall could not be made.
    #[error("network wall")]
    Network(#[from] crate::network::NetworkError),
    /// The sidecar did not hand over the inner namespace.
    #[error("network wall")]
    Sidecar(#[from] crate::sidecar::SidecarError),
    /// The kernel reports another value than was set.
    #[error("{what} is not as planned: planned {planned}, the kernel reports {found}")]
    Verify {
        /// The property.
        what: &'static str,
        /// As planned.
        planned: String,
        /// As read back.
        found: String,
    },
    /// The program cannot be executed. The texts are runc's: engines turn them into exit codes 126 and 127.
    #[error("exec: {name:?}: {why}")]
    Program {
        /// As given.
        name: String,
        /// The reason.
        why: program::ExecveError,
    },
    /// The working directory cannot be entered. The text is runc's.
    #[error("chdir to cwd ({cwd:?}) set in config.json failed: {why}")]
    Cwd {
        /// process.cwd
        cwd: PathBuf,
        /// The errno in words.
        why: String,
    },
    /// A part of the plan has no code that enforces it: a bug of the runtime, or a changed state directory.
    #[error("the plan has the {0} wall, but the code that raises it is missing")]
    Incomplete(WallKind),
    /// A startContainer hook failed.
    #[error(transparent)]
    Hook(#[from] crate::enforce::hooks::HookError),
    /// A descriptor must not be passed on.
    #[error("file descriptor {fd} cannot be passed on: {why}")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// The reason.
        why: &'static str,
    },
}

impl EnforceError {
    /// Names the mount of the plan that prevents making another mount's mount point.
    pub(crate) fn with_cure(self, plan: &FilesystemPlan) -> Self {
        let Self::MountPoint {
            destination,
            source,
        } = self
        else {
            return self;
        };
        let read_only = source.kind() == io::ErrorKind::ReadOnlyFilesystem;
        let binds = plan.mounts.iter().filter(|mount| mount.bind().is_some());
        let above = binds
            .filter(|m| m.destination != destination && destination.starts_with(&m.destination))
            .max_by_key(|m| m.destination.components().count());
        match above.filter(|above| read_only && !above.is_writable()) {
            Some(above) => Self::MountPointInReadOnly {
                destination,
                above: above.destination.clone(),
            },
            None => Self::MountPoint {
                destination,
                source,
            },
        }
    }

    /// For `map_err`: an errno with the step.
    pub(crate) fn step<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |source| Self::Step {
            step,
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::plan::tests::sample;
    use crate::plan::{
        BindAccess, BindMount, FileKind, MappedIds, MountKind, MountReason, PlannedMount,
        ProgramMode, SourceIdentity, Tmpfs,
    };

    fn mount(destination: &str, kind: MountKind) -> PlannedMount {
        PlannedMount {
            destination: destination.into(),
            kind,
            why: MountReason::Other,
        }
    }

    fn bind(destination: &str, access: BindAccess) -> PlannedMount {
        let bind = BindMount {
            source: "/srv/data".into(),
            judged: SourceIdentity {
                dev: 1,
                ino: 2,
                kind: FileKind::Directory,
            },
            access,
            programs: ProgramMode::Run,
            ids: MappedIds::Node,
        };
        mount(destination, MountKind::Bind(bind))
    }

    /// The read-only mount that the error names, for the mount point /work/a/b missing in these mounts.
    fn named(mounts: Vec<PlannedMount>, kind: ErrorKind) -> Option<PathBuf> {
        let mut plan = sample().filesystem;
        plan.mounts = mounts;
        let error = EnforceError::MountPoint {
            destination: "/work/a/b".into(),
            source: kind.into(),
        };
        match error.with_cure(&plan) {
            EnforceError::MountPointInReadOnly { destination, above } => {
                assert_eq!(destination, PathBuf::from("/work/a/b"));
                Some(above)
            }
            EnforceError::MountPoint {
                destination,
                source,
            } => {
                assert_eq!(destination, PathBuf::from("/work/a/b"));
                assert_eq!(source.kind(), kind);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_mount_point_names_the_read_only_mount_that_it_is_in() {
        use BindAccess::{Private, ReadOnly, ReadWrite};
        let tmpfs = Tmpfs {
            source: "tmpfs".into(),
            options: vec!["ro".to_owned()],
        };
        for (mounts, expected) in [
            (vec![bind("/work", ReadOnly)], Some("/work")),
            // The nearest one decides, whatever the order and whatever is around it.
            (
                vec![bind("/work", ReadOnly), bind("/work/a", ReadOnly)],
                Some("/work/a"),
            ),
            (
                vec![bind("/work/a", ReadOnly), bind("/work", ReadWrite)],
                Some("/work/a"),
            ),
            (
                vec![bind("/work", ReadOnly), bind("/work/a", ReadWrite)],
                None,
            ),
            (vec![bind("/work", ReadWrite)], None),
            (vec![bind("/work", Private)], None),
            // Neither the mount itself, nor one beside it, nor one whose name only begins like it.
            (vec![bind("/work/a/b", ReadOnly)], None),
            (vec![bind("/work/a/b/c", ReadOnly)], None),
            (vec![bind("/wor", ReadOnly), bind("/other", ReadOnly)], None),
            // A mount without a source has no directory that the user could make.
            (vec![mount("/work", MountKind::Tmpfs(tmpfs))], None),
            (vec![], None),
        ] {
            let shown = format!("{mounts:?}");
            let found = named(mounts, ErrorKind::ReadOnlyFilesystem);
            assert_eq!(found, expected.map(PathBuf::from), "{shown}");
        }
    }

    #[test]
    fn a_mount_point_that_fails_for_another_reason_keeps_its_error() {
        let mounts = || vec![bind("/work", BindAccess::ReadOnly)];
        for kind in [ErrorKind::PermissionDenied, ErrorKind::NotADirectory] {
            assert_eq!(named(mounts(), kind), None);
        }
        let link = EnforceError::Link("/work/a/b".into());
        let mut plan = sample().filesystem;
        plan.mounts = mounts();
        assert!(matches!(link.with_cure(&plan), EnforceError::Link(_)));
    }
}
