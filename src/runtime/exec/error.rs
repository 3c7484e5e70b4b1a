//! Why `exec` refuses.

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
    /// `--cgroup`
    #[error(transparent)]
    SubCgroup(#[from] super::sub_cgroup::SubCgroupError),
}
