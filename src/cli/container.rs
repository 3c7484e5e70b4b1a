//! The verbs that runc also has. Their options mean the same as runc's.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// The arguments of a verb that takes only a container id.
#[derive(Debug, Args)]
pub struct Id {
    /// Container id
    pub id: String,
}

/// The arguments of a verb that agentbox always refuses.
#[derive(Debug, Args)]
pub struct AnyArgs {
    /// Ignored
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// `create`
#[derive(Debug, Args)]
pub struct Create {
    /// Directory with config.json and the root file system
    #[arg(long, short, default_value = ".", value_name = "DIR")]
    pub bundle: PathBuf,
    /// Unix socket that receives the pseudo-terminal
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// Write the init process's pid to this file
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Unix socket that receives a pidfd of the init process
    #[arg(long, value_name = "SOCKET")]
    pub pidfd_socket: Option<PathBuf>,
    /// Use MS_MOVE instead of pivot_root, for roots on a ramdisk
    #[arg(long)]
    pub no_pivot: bool,
    /// Do not create a session keyring; refused under a policy
    #[arg(long)]
    pub no_new_keyring: bool,
    /// Pass on N file descriptors after standard error
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub preserve_fds: i32,
    /// Container id
    pub id: String,
}

/// `run`
#[derive(Debug, Args)]
pub struct Run {
    /// The options of `create`.
    #[command(flatten)]
    pub create: Create,
    /// Return when the container runs
    #[arg(long, short)]
    pub detach: bool,
    /// Do not delete the container when it ends
    #[arg(long)]
    pub keep: bool,
    /// Accepted for compatibility with runc; agentbox never becomes a subreaper
    #[arg(long)]
    pub no_subreaper: bool,
}

/// `exec`
#[derive(Debug, Args)]
pub struct Exec {
    /// Unix socket that receives the pseudo-terminal
    #[arg(long, value_name = "SOCKET")]
    pub console_socket: Option<PathBuf>,
    /// Working directory in the container
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Environment variable; repeatable
    #[arg(long, short, value_name = "K=V")]
    pub env: Vec<String>,
    /// Allocate a pseudo-terminal
    #[arg(long, short)]
    pub tty: bool,
    /// User to run the program as
    #[arg(long, short, value_name = "UID[:GID]")]
    pub user: Option<String>,
    /// Additional group id; repeatable
    #[arg(long, short = 'g', value_name = "GID")]
    pub additional_gids: Vec<u32>,
    /// File with an OCI `process` object in JSON
    #[arg(long, short, value_name = "FILE")]
    pub process: Option<PathBuf>,
    /// Return when the program runs
    #[arg(long, short)]
    pub detach: bool,
    /// Write the program's pid to this file
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// Unix socket that receives a pidfd of the program
    #[arg(long, value_name = "SOCKET")]
    pub pidfd_socket: Option<PathBuf>,
    /// SELinux label of the program
    #[arg(long, value_name = "LABEL")]
    pub process_label: Option<String>,
    /// AppArmor profile of the program
    #[arg(long, value_name = "PROFILE")]
    pub apparmor: Option<String>,
    /// Set no_new_privs; always set under a policy
    #[arg(long)]
    pub no_new_privs: bool,
    /// Add a capability, repeatable; policies allow only the container's own
    #[arg(long, short, value_name = "CAP")]
    pub cap: Vec<String>,
    /// Pass on N file descriptors after standard error
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub preserve_fds: i32,
    /// Run in a sub-cgroup of the container; v1: per controller
    #[arg(long, value_name = "[CONTROLLER,...:]PATH")]
    pub cgroup: Vec<String>,
    /// Run even if the container is paused
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
    /// Name or number of the signal
    #[arg(default_value = "SIGTERM", allow_hyphen_values = true)]
    pub signal: String,
}

/// `delete`
#[derive(Debug, Args)]
pub struct Delete {
    /// Kill a running container first; accept a missing one
    #[arg(long, short)]
    pub force: bool,
    /// Container id
    pub id: String,
}

/// `list`
#[derive(Debug, Args)]
pub struct List {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table, default_value_if("json", "true", "json"))]
    pub format: TableFormat,
    /// The same as --format json
    #[arg(long, hide = true, conflicts_with = "format")]
    pub json: bool,
    /// Print only the ids
    #[arg(long, short)]
    pub quiet: bool,
    /// List all engines' containers, with policy, network mode and denials
    #[arg(long, short)]
    pub all: bool,
}

/// `ps`
#[derive(Debug, Args)]
pub struct Ps {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table, default_value_if("json", "true", "json"))]
    pub format: TableFormat,
    /// The same as --format json
    #[arg(long, hide = true, conflicts_with = "format")]
    pub json: bool,
    /// Container id
    pub id: String,
    /// Options for ps(1) [default: -ef]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// Format of a listing.
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
    /// Time between two samples
    #[arg(
        long,
        default_value = "5s",
        value_name = "DURATION",
        allow_hyphen_values = true
    )]
    pub interval: String,
    /// Print one sample and exit
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
    /// Write it for a rootless container
    #[arg(long)]
    pub rootless: bool,
}
