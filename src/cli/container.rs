//! The verbs that runc has too: their options, which mean what runc's mean.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A verb that takes a container id alone.
#[derive(Debug, Args)]
pub struct Id {
    /// Container id
    pub id: String,
}

/// A verb that is refused whatever follows it.
#[derive(Debug, Args)]
pub struct Anything {
    /// Not looked at
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// `create`
#[derive(Debug, Args)]
pub struct Create {
    /// Directory with config.json and the root file system
    #[arg(long, short, default_value = ".", value_name = "DIR")]
    pub bundle: PathBuf,
    /// UNIX socket that receives the pseudo-terminal
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// File to write the first process's pid to
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// UNIX socket that receives a pidfd of the first process
    #[arg(long, value_name = "SOCKET")]
    pub pidfd_socket: Option<PathBuf>,
    /// Use MS_MOVE in place of pivot_root (for a root file system on a ramdisk)
    #[arg(long)]
    pub no_pivot: bool,
    /// Do not make a session keyring; refused under a policy
    #[arg(long)]
    pub no_new_keyring: bool,
    /// Number of file descriptors after standard error to pass on
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub preserve_fds: i32,
    /// Container id
    pub id: String,
}

/// `run`
#[derive(Debug, Args)]
pub struct Run {
    /// What `create` takes.
    #[command(flatten)]
    pub create: Create,
    /// Return once the container runs
    #[arg(long, short)]
    pub detach: bool,
    /// Keep the container's state after it ended
    #[arg(long)]
    pub keep: bool,
    /// Make no child subreaper; accepted as runc does, none is made
    #[arg(long)]
    pub no_subreaper: bool,
}

/// `exec`
#[derive(Debug, Args)]
pub struct Exec {
    /// UNIX socket that receives the pseudo-terminal
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// Working directory in the container
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Environment variable, NAME=VALUE
    #[arg(long, short, value_name = "K=V")]
    pub env: Vec<String>,
    /// Allocate a pseudo-terminal
    #[arg(long, short)]
    pub tty: bool,
    /// UID[:GID]
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<String>,
    /// Additional group ids
    #[arg(long, short = 'g', value_name = "GID")]
    pub additional_gids: Vec<u32>,
    /// process.json
    #[arg(long, short, value_name = "FILE")]
    pub process: Option<PathBuf>,
    /// Return once the program runs
    #[arg(long, short)]
    pub detach: bool,
    /// File to write the program's pid to
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// UNIX socket that receives a pidfd of the program
    #[arg(long, value_name = "SOCKET")]
    pub pidfd_socket: Option<PathBuf>,
    /// SELinux label of the program
    #[arg(long, value_name = "LABEL")]
    pub process_label: Option<String>,
    /// AppArmor profile of the program
    #[arg(long, value_name = "PROFILE")]
    pub apparmor: Option<String>,
    /// Set no_new_privs (under a policy it always is)
    #[arg(long)]
    pub no_new_privs: bool,
    /// Additional capability; under a policy only one that the plan has
    #[arg(long, short, value_name = "CAP")]
    pub cap: Vec<String>,
    /// Number of file descriptors after standard error to pass on
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub preserve_fds: i32,
    /// Sub-cgroup of the container's cgroup; under cgroup v1 also for single controllers
    #[arg(long, value_name = "[CONTROLLER,...:]PATH")]
    pub cgroup: Vec<String>,
    /// Run although the container is paused
    #[arg(long)]
    pub ignore_paused: bool,
    /// Container id
    pub id: String,
    /// Program and arguments, unless --process is given
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// `kill`
#[derive(Debug, Args)]
pub struct Kill {
    /// Signal every process of the container
    #[arg(long, short)]
    pub all: bool,
    /// Container id
    pub id: String,
    /// Name or number
    #[arg(default_value = "SIGTERM", allow_hyphen_values = true)]
    pub signal: String,
}

/// `delete`
#[derive(Debug, Args)]
pub struct Delete {
    /// Kill the container first if it still runs; succeed if it does not exist
    #[arg(long, short)]
    pub force: bool,
    /// Container id
    pub id: String,
}

/// `list`
#[derive(Debug, Args)]
pub struct List {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
    /// Print ids alone
    #[arg(long, short)]
    pub quiet: bool,
    /// Those of all engines on this node, with engine, name, policy, network and what was refused
    #[arg(long, short)]
    pub all: bool,
}

/// `ps`
#[derive(Debug, Args)]
pub struct Ps {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
    /// Container id
    pub id: String,
    /// Options for ps(1), default -ef
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// Form of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Columns
    Table,
    /// JSON
    Json,
}

/// `events`
#[derive(Debug, Args)]
pub struct Events {
    /// Time between two readings
    #[arg(
        long,
        default_value = "5s",
        value_name = "DURATION",
        allow_hyphen_values = true
    )]
    pub interval: String,
    /// Print one reading and stop
    #[arg(long)]
    pub stats: bool,
    /// Container id
    pub id: String,
}

/// `spec`
#[derive(Debug, Args)]
pub struct SpecArgs {
    /// Directory to write config.json to
    #[arg(long, short, default_value = ".", value_name = "DIR")]
    pub bundle: PathBuf,
    /// For a container without root privileges
    #[arg(long)]
    pub rootless: bool,
}
