//! Why a verb failed. Engines show the texts to people, so each gives the fault, its place and a remedy.

use std::io;
use std::path::{Path, PathBuf};

use crate::enforce::EnforceError;
use crate::enforce::report::FailureReport;
use crate::policy::SecretName;

use super::libcontainer_log;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// An id that cannot be a file name.
    #[error(
        "invalid container id {0:?}: use 1 to 200 letters, digits and `_ + - .`, not `.` or `..`"
    )]
    Id(String),
    /// The id is taken.
    #[error("container with given ID already exists: {0}")]
    Exists(String),
    /// The id is unknown, with the ids that were perhaps meant. Engines look for the first words.
    #[error("container does not exist: {0}")]
    Unknown(String),
    /// The id is the name or the beginning of several containers.
    #[error("{0:?} matches several containers: {1}")]
    Ambiguous(String, String),
    /// The verb does not fit the container's state. The words are runc's: containerd looks for some of them.
    #[error("cannot {verb} container {id}: {why}")]
    State {
        /// The verb.
        verb: &'static str,
        /// The container.
        id: String,
        /// Its state in words.
        why: String,
    },
    /// Another verb holds the container's lock.
    #[error(
        "container {id} is busy: another agentbox command has held it for {seconds} s; find it with `ps`, \
         or end the container with `delete --force`"
    )]
    Busy {
        /// The container.
        id: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A process in a container was not ready in time.
    #[error(
        "the {what} was not ready within {seconds} s and was killed; common causes: a stop signal, a frozen cgroup, a file lease, \
         a very low CPU limit"
    )]
    HeldUp {
        /// For example "exec process".
        what: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A signal to a container that has ended. containerd looks for these words.
    #[error("container not running")]
    NotRunning,
    /// config.json or process.json.
    #[error("{path:?}: {why}")]
    Input {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The proxy that a variable of the user of `wrap` names cannot be used.
    #[error("the upstream proxy {proxy} of your environment: {why}")]
    UserProxy {
        /// The proxy, without credentials.
        proxy: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// A secret of the user of `wrap` whose value cannot be had.
    #[error("secret {name}: {why}")]
    Secret {
        /// Its name.
        name: SecretName,
        /// What failed, and what to do.
        why: String,
    },
    /// Keys are listed, and the user of `wrap` has no SSH agent.
    #[error("network.ssh-keys lists keys, but there is no SSH agent: use --ssh-agent")]
    NoSshAgent,
    /// Sockets are listed, and nobody opened them.
    #[error(
        "network.connect lists a unix socket, and only `agentbox wrap` reaches one: leave it out"
    )]
    NoUserSocket,
    /// A record that a later version wrote.
    #[error(
        "{path:?} was written by a newer agentbox (format {format}, this one knows up to {known}): use that version, or `delete --force`"
    )]
    Newer {
        /// The record.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The newest that this program reads.
        known: u32,
    },
    /// A capability that can never be effective (capset(2)).
    #[error("process.capabilities: {name} is in `{set}` but not in `{needs}`: list it in both")]
    Capability {
        /// The capability.
        name: String,
        /// The set that has it.
        set: &'static str,
        /// The set without which the kernel refuses that.
        needs: &'static str,
    },
    /// A signal that does not exist.
    #[error("unknown signal {0:?}")]
    Signal(String),
    /// The policy cannot be resolved.
    #[error(transparent)]
    Policy(#[from] crate::policy::PolicyError),
    /// The container cannot be planned.
    #[error(transparent)]
    Plan(#[from] crate::plan::PlanError),
    /// The bundle reaches out of the container.
    #[error("config.json")]
    Reach(#[from] crate::plan::reach::ReachError),
    /// A spec that runc refuses as well.
    #[error(transparent)]
    Refused(#[from] crate::render::refuse::SpecRefusal),
    /// A container is not created.
    #[error(transparent)]
    Create(#[from] crate::runtime::create::error::CreateError),
    /// A process was not started in a container.
    #[error(transparent)]
    Exec(#[from] crate::runtime::exec::error::ExecError),
    /// A process requests what it cannot have.
    #[error(transparent)]
    Process(#[from] crate::runtime::input::ProcessRefusal),
    /// The seccomp agent does not get its listener.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The hooks of `create` are refused, or failed.
    #[error(transparent)]
    Hooks(#[from] HooksError),
    /// A caller without root's rights gets no user namespace.
    #[error(transparent)]
    NoNamespace(#[from] crate::runtime::unprivileged::NoNamespace),
    /// A caller without root's rights does not get into a sandbox.
    #[error(transparent)]
    SandboxEntry(#[from] SandboxEntryError),
    /// A caller without root's rights has no safe place for the state of containers.
    #[error(transparent)]
    Home(#[from] crate::runtime::state::user_dirs::UserDirError),
    /// The caller's terminal.
    #[error(transparent)]
    Foreground(#[from] crate::runtime::foreground::error::ForegroundError),
    /// The sidecar did not carry out a request.
    #[error(transparent)]
    Control(#[from] crate::runtime::network::ControlError),
    /// A container's rules could not be changed.
    #[error(transparent)]
    Rules(#[from] crate::runtime::network::RulesError),
    /// getrandom(2)
    #[error("the kernel has no random bytes: {0}")]
    Random(getrandom::Error),
    /// Killed processes are still in the container's cgroup.
    #[error(
        "processes in the container's cgroup ({0:?}) do not end: check them, then delete the container again"
    )]
    StillRunning(Vec<PathBuf>),
    /// Killed processes of a `create` or `exec` still hold its pipe.
    #[error("processes that hold {0:?} were killed and have not ended")]
    NotEnded(PathBuf),
    /// The bundle cannot be checked.
    #[error(transparent)]
    Probe(#[from] crate::probe::ProbeError),
    /// The filter cannot be compiled.
    #[error("syscall wall")]
    Seccomp(#[from] crate::seccomp::SeccompError),
    /// The cgroup cannot be made for the container, or cannot be changed.
    #[error(transparent)]
    Cgroup(#[from] crate::cgroup::CgroupError),
    /// The inner namespace cannot be made.
    #[error("network wall")]
    Network(#[from] crate::network::NetworkError),
    /// The sidecar could not be started.
    #[error("network wall")]
    Sidecar(#[from] crate::sidecar::SidecarError),
    /// Our own code in the container's process failed, in a step that is otherwise libcontainer's.
    #[error(transparent)]
    Enforce(#[from] EnforceError),
    /// An error that the container's own process reported.
    #[error(transparent)]
    Init(#[from] FailureReport),
    /// A hook of `start` failed. The words are runc's.
    #[error(transparent)]
    Hook(#[from] crate::enforce::hooks::HookError),
    /// libcontainer failed.
    #[error("{step}: {cause}")]
    Container {
        /// The step that failed.
        step: &'static str,
        /// Its chain of causes in one line.
        cause: String,
    },
    /// A system call failed.
    #[error("{step}")]
    Io {
        /// The step that failed, with the object's name.
        step: String,
        /// The errno.
        source: io::Error,
    },
}

/// Why a filter's listener does not reach its agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The profile does not say where the agent listens.
    #[error("seccomp listenerPath is not set, but the profile has a rule with SCMP_ACT_NOTIFY")]
    NoPath,
    /// The container's process did not load its filter within this many seconds.
    #[error("the container's process did not load its seccomp filter within {0} s")]
    NotLoaded(u64),
    /// The container's process has ended.
    #[error("the container's process ended before its seccomp filter was loaded")]
    Ended,
}

/// Why the hooks of `create` are refused, or fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HooksError {
    /// A hook that cannot be run as it is written.
    #[error("{when} hook {path:?}: {why}")]
    Hook {
        /// Its kind.
        when: &'static str,
        /// Its program.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The hooks cannot be written as JSON.
    #[error("write down the hooks of create: {0}")]
    NotWritten(serde_json::Error),
    /// A hook failed, in its own words.
    #[error("{0}")]
    Failed(String),
}

/// Why the user does not get into a sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxEntryError {
    /// The kernel does not open its user namespace.
    #[error(
        "the kernel does not show this user the user namespace of process {pid} ({source}): call agentbox as its starter did, with \
         or without sudo"
    )]
    Closed {
        /// The init process, by the record.
        pid: i32,
        /// The kernel's error.
        source: io::Error,
    },
    /// It is not in two user namespaces of this user.
    #[error(
        "process {pid} is not in the user namespaces that `agentbox wrap` makes for this user ({why}): nothing was started; start the \
         sandbox again"
    )]
    Foreign {
        /// The init process, by the record.
        pid: i32,
        /// What differs.
        why: &'static str,
    },
    /// The kernel keeps a process's groups, and the sandbox does not have this one.
    #[error(
        "this process has the group {0}, which the sandbox lacks, and cannot drop it: use a shell without `newgrp` or `sg`, or \
         start the sandbox again"
    )]
    Group(u32),
}

impl RuntimeError {
    /// Turns a missing record into a missing container; other errors stay the same.
    pub fn unknown_if_absent(self, id: &str) -> Self {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::Unknown(id.to_owned())
            }
            other => other,
        }
    }

    /// For `map_err`: adds the step to an errno.
    pub fn io<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |source| Self::Io {
            step,
            source: source.into(),
        }
    }

    /// For `map_err`: libcontainer's error in one line. Its first log line says more than its chain of causes.
    pub fn container<E: std::error::Error>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Container {
            step,
            cause: crate::log::first_cause().unwrap_or_else(|| crate::log::chain(&error)),
        }
    }

    /// [`Self::container`] for a step that ends in a process whose working directory is `cwd`: libcontainer does not
    /// name it. The words are runc's, which engines read.
    pub fn process<E: std::error::Error>(step: &'static str, cwd: &Path) -> impl FnOnce(E) -> Self {
        let cwd = cwd.to_owned();
        move |error| match Self::container(step)(error) {
            Self::Container { step, cause } => match libcontainer_log::chdir_fault(&cause) {
                Some(why) => EnforceError::Cwd { cwd, why }.into(),
                None => Self::Container { step, cause },
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_record_is_a_missing_container_and_nothing_else_is() {
        let of = |kind: io::ErrorKind| {
            let error = RuntimeError::io("read the record")(io::Error::from(kind));
            error.unknown_if_absent("c1")
        };
        assert!(matches!(of(io::ErrorKind::NotFound), RuntimeError::Unknown(id) if id == "c1"));
        assert!(matches!(
            of(io::ErrorKind::PermissionDenied),
            RuntimeError::Io { .. }
        ));
        let other = RuntimeError::NotRunning.unknown_if_absent("c1");
        assert!(matches!(other, RuntimeError::NotRunning));
    }
}
