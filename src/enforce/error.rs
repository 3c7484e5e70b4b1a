//! Why a process of a container was not started.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

use super::hooks::HookError;
use crate::plan::FilesystemPlan;
use crate::policy::typed_path;

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
        "make the mount point {destination:?}: {above:?} is read-only; make it in the source, or set dev.agentbox.workspace={at} \
         (`wrap --write {at}`)", at = typed_path(above)
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
        why: ExecveError,
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
    Hook(#[from] HookError),
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

/// Why a program cannot be executed, in runc's words.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecveError {
    /// A name without a slash that no directory of PATH has.
    #[error("executable file not found in $PATH")]
    NotOnPath,
    /// The file is not executable.
    #[error("permission denied")]
    Denied,
    /// stat(2) failed.
    #[error("stat {name}: {}", words(*errno))]
    Stat {
        /// As given.
        name: String,
        /// The errno.
        errno: Errno,
    },
    /// A string with a NUL byte cannot be passed to execve(2).
    #[error("an argument or environment variable has a NUL byte")]
    Nul,
    /// It is not the file that was checked before.
    #[error("{0:?} is another file in the sandbox than the one that was checked: start it again")]
    Other(PathBuf),
    /// execve(2) refused.
    #[error("{}", words(*.0))]
    Execve(Errno),
}

impl ExecveError {
    /// Whether the program is missing, rather than not executable.
    pub fn is_absence(&self) -> bool {
        match self {
            Self::NotOnPath => true,
            Self::Stat { errno, .. } | Self::Execve(errno) => *errno == Errno::NOENT,
            Self::Denied | Self::Nul | Self::Other(_) => false,
        }
    }
}

/// Go's words for an errno, which are the C library's in lower case.
pub(crate) fn words(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
    let mut chars = text.chars();
    chars
        .next()
        .map(|c| c.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
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
