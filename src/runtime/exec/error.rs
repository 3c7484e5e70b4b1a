//! Why `exec` refuses.

use std::path::PathBuf;

use crate::plan::MOST_TIMED_EXECS;

/// Why a process is not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// Its cgroup is frozen. The words are runc's.
    #[error("cannot exec in a paused container (use --ignore-paused to override)")]
    Paused,
    /// A descriptor leads to a file of the node, which the process could make set-user-ID.
    #[error(
        "descriptor {fd} leads to a file of the node, which this container could make set-user-ID (privileges.set-id = \"auto\"): hand in a pipe (... | cat >FILE)"
    )]
    HandedFile {
        /// Its number.
        fd: i32,
    },
    /// A detached terminal without a console socket: it would go nowhere.
    #[error("a detached terminal needs --console-socket")]
    DetachedTerminal,
    /// A console socket without a terminal.
    #[error("--console-socket is for a process with a terminal: add --tty, or leave it out")]
    SocketWithoutTerminal,
    /// Neither a command nor `--process`.
    #[error("exec needs a program or --process")]
    NoProgram,
    /// The container has no process that the flags could change.
    #[error("the container has no process section")]
    NoProcess,
    /// `--user`
    #[error("--user {0:?} is not UID[:GID]")]
    User(String),
    /// A sandbox of a user without root's rights has one user.
    #[error(
        "a sandbox of a user without root's rights has one user and group, {own}: leave --user out (requested: {asked})"
    )]
    OtherUser {
        /// Of the sandbox, as uid:gid.
        own: String,
        /// The requested ones.
        asked: String,
    },
    /// The kernel lets no process of such a sandbox change its groups.
    #[error(
        "a sandbox of a user without root's rights keeps the groups that it has: leave --additional-gids out"
    )]
    PersonsGroups,
    /// Nor does one get capabilities.
    #[error("a sandbox of a user without root's rights has no capabilities: leave --cap out")]
    PersonsCapabilities,
    /// Nor has it a cgroup, if the user's systemd gave none.
    #[error("this sandbox has no cgroup of its own: leave --cgroup out")]
    NoCgroup,
    /// The kernel lets no process move there from its own cgroup (cgroups(7), "Delegation containment").
    #[error(
        "the kernel does not let this process move to the sandbox's cgroup: call it where the user's systemd answers (busctl --user), as \
         in a login"
    )]
    ClosedCgroup,
    /// The node cannot keep `time.exec`.
    #[error(
        "time.exec cannot be kept: this node has neither cgroup v2 nor the freezer of v1 for this container; leave time.exec out"
    )]
    NoFreezer,
    /// The workload has taken over its cgroup.
    #[error(
        "time.exec cannot be kept: the container's cgroup hands controllers on to others below it; leave time.exec out"
    )]
    DelegatedCgroup,
    /// Their timekeepers would take what the sidecar needs.
    #[error(
        "{MOST_TIMED_EXECS} exec processes, or daemons that they left, have a time limit (time.exec), and no more may: end some"
    )]
    TooManyTimed,
    /// One of the two decides where the process is.
    #[error("time.exec cannot be kept with --cgroup: leave one of the two out")]
    TimedSubCgroup,
    /// The kernel reports the process in another cgroup.
    #[error("time.exec cannot be kept: the process is not in the cgroup that was made for it")]
    OutsideItsCgroup,
    /// `--cgroup`
    #[error(transparent)]
    SubCgroup(#[from] SubCgroupError),
}

/// Why `--cgroup` is refused, in runc's words.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubCgroupError {
    /// Given more than once under cgroup v2.
    #[error("cgroup v2 takes --cgroup once")]
    Twice,
    /// Controllers under cgroup v2.
    #[error("--cgroup: cgroup v2 has one hierarchy for all controllers")]
    OneHierarchy,
    /// A controller that the container does not have.
    #[error("unknown controller {name} in --cgroup {given}")]
    Controller {
        /// Its name.
        name: String,
        /// What was given.
        given: String,
    },
    /// A path that leads somewhere else.
    #[error("{0} is not a sub cgroup path")]
    Path(String),
    /// The cgroup does not exist.
    #[error("error adding pid to cgroups: open {}: no such file or directory", .0.display())]
    Absent(PathBuf),
}
