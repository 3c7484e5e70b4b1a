//! The command line as plain data: what was typed. Its only behaviour is the status of what cannot be understood.
//!
//! Verbs, flags and their meaning are runc's (`man runc`), because engines and people type those; what is
//! agentbox's own is `--policy`, `--config` and the verbs `approvals`, `approve`, `deny`,
//! `explain`, `network`, `policy` and `wrap`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::log::LogFormat;
use crate::policy::DEFAULT_ROOT;

/// An OCI runtime that fences AI agents.
#[derive(Debug, Parser)]
#[command(
    name = "agentbox",
    disable_version_flag = true,
    subcommand_required = false
)]
pub struct Cli {
    /// Options that precede the verb.
    #[command(flatten)]
    pub global: Global,
    /// The verb.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

impl Cli {
    /// Reads this process's command line.
    ///
    /// # Errors
    /// It is not understood, or asks for help or the version.
    pub fn read() -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Self::read_quickly(&arguments).map_or_else(|| Self::read_from(&arguments), Ok)
    }

    fn read_from(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
        cli.global.root_given = is_given(&matches, "root");
        Ok(cli)
    }

    /// The command line of a verb that engines call, without building all the others. What is not understood then is left
    /// to [`Self::read_from`], and so are help and every error: with fewer verbs, no other line is understood.
    fn read_quickly(arguments: &[OsString]) -> Option<Self> {
        let (name, add, read) = ENGINES
            .iter()
            .find(|(name, ..)| arguments.iter().skip(1).any(|word| word == name))?;
        let verb = add(clap::Command::new(*name));
        let command = clap::Command::new("agentbox").disable_version_flag(true);
        let command = Global::augment_args(command).subcommand(verb);
        let matches = command.try_get_matches_from(arguments).ok()?;
        let mut global = Global::from_arg_matches(&matches).ok()?;
        global.root_given = is_given(&matches, "root");
        let verb = match matches.subcommand() {
            Some((_, found)) => Some(read(found).ok()?),
            None => None,
        };
        Some(Self { global, verb })
    }
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

/// A verb's name, what adds its arguments to a command, and what reads it.
type Reader = (
    &'static str,
    fn(clap::Command) -> clap::Command,
    fn(&ArgMatches) -> Result<Verb, clap::Error>,
);

/// The verbs that an engine calls for each container: with all of the others, building the command line takes as long as
/// deleting a container.
const ENGINES: [Reader; 5] = [
    ("create", Create::augment_args, |m| {
        Create::from_arg_matches(m).map(Verb::Create)
    }),
    ("start", Id::augment_args, |m| {
        Id::from_arg_matches(m).map(Verb::Start)
    }),
    ("state", Id::augment_args, |m| {
        Id::from_arg_matches(m).map(Verb::State)
    }),
    ("kill", Kill::augment_args, |m| {
        Kill::from_arg_matches(m).map(Verb::Kill)
    }),
    ("delete", Delete::augment_args, |m| {
        Delete::from_arg_matches(m).map(Verb::Delete)
    }),
];

/// Options that precede the verb.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Directory for the state of containers; without it, verbs also find those of every engine on this node
    #[arg(long, default_value = DEFAULT_ROOT, value_name = "DIR")]
    pub root: PathBuf,
    /// Whether it was named on the command line.
    #[arg(skip)]
    pub root_given: bool,
    /// File that receives the log (default: standard error)
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Form of the log [default: text; plain sentences on a terminal]
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
    /// Log everything, the container library included
    #[arg(long)]
    pub debug: bool,
    /// Let systemd manage the cgroups (cgroupsPath is `slice:prefix:name`)
    #[arg(long)]
    pub systemd_cgroup: bool,
    /// Accepted as runc does; only `auto` and `false` can be obeyed
    #[arg(long, default_value = "auto", value_name = "auto|true|false")]
    pub rootless: String,
    /// Taken as runc takes it; it would matter to `checkpoint` alone
    #[arg(long, value_name = "FILE", hide = true)]
    pub criu: Option<PathBuf>,
    /// Policy of this call: the choice where annotations make none, and the ceiling that they cannot exceed
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// The node's file, which must be there if it is named [default: /etc/agentbox/config.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the version and stop
    #[arg(long, short = 'v')]
    pub version: bool,
}

/// The exit status of a command line that cannot be understood: 1 as runc has it; 2 where the verb is `policy`, whose 1 is
/// an answer.
pub fn misuse(arguments: impl Iterator<Item = std::ffi::OsString>) -> u8 {
    let understood = Cli::command()
        .ignore_errors(true)
        .try_get_matches_from(arguments);
    match understood.as_ref().map(clap::ArgMatches::subcommand_name) {
        Ok(Some("policy")) => 2,
        Ok(_) | Err(_) => 1,
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a container from a bundle; `start` runs its program
    Create(Create),
    /// Run the program of a created container, and return once it really runs
    Start(Id),
    /// Create and start a container, and wait for it
    Run(Run),
    /// Run another program in a running container, behind the same walls
    Exec(Box<Exec>),
    /// Send a signal to a container's first process
    Kill(Kill),
    /// Remove a stopped container and all that it held
    Delete(Delete),
    /// Print a container's state as OCI JSON
    State(Id),
    /// List the containers of this root directory, or of this node
    List(List),
    /// List the processes of a container
    Ps(Ps),
    /// Freeze all processes of a container
    Pause(Id),
    /// Thaw a paused container
    Resume(Id),
    /// Change the resource limits of a running container, or what it may reach
    Update(Box<Update>),
    /// Print what a container uses, again and again, and when its memory ran out, as JSON
    Events(Events),
    /// Refused: what it saves could not be restored
    #[command(disable_help_flag = true)]
    Checkpoint(Anything),
    /// Refused: containers cannot be restored
    #[command(disable_help_flag = true)]
    Restore(Anything),
    /// Print what this runtime supports as OCI JSON
    Features,
    /// Write an example config.json
    Spec(SpecArgs),
    /// Show what a policy enforces for a bundle or a container, and why
    Explain(Explain),
    /// Look into the policies of this node: which there are, what they say, what they would let through
    Policy(PolicyArgs),
    /// Show what a container may reach, what it is connected to now, and what it was refused
    Network(Network),
    /// List the connections that wait for approval (network.on-unknown = "ask")
    Approvals(Approvals),
    /// Let connections to a host through that wait, or will; within the ceiling
    Approve(Approve),
    /// Refuse connections to a host that wait, or will, and close what was approved
    Deny(Deny),
    /// Run a command behind the walls, without an engine, an image or a bundle
    Wrap(Wrap),
}

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

/// `update`
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Update {
    /// Rules and presets that the container may reach from now on, comma separated, in place of what it lists now; within
    /// the ceiling, and on ports that its wall listens on. Connections that are no longer allowed are closed
    #[arg(long, value_name = "RULES")]
    pub network_allow: Option<String>,
    /// Rules and presets that it may reach besides what it lists now; within the ceiling
    #[arg(long, value_name = "RULES", conflicts_with = "network_allow")]
    pub network_add: Option<String>,
    /// Rules and presets that it lists now and may not reach any more
    #[arg(long, value_name = "RULES", conflicts_with = "network_allow")]
    pub network_remove: Option<String>,
    /// Rules that it may not reach whatever is allowed, in place of those it added to its policy's
    #[arg(long, value_name = "RULES")]
    pub network_deny: Option<String>,
    /// File with OCI `resources` JSON, `-` for standard input; all other options are then ignored
    #[arg(long, short, value_name = "FILE")]
    pub resources: Option<PathBuf>,
    /// Weight of block input and output, 10 to 1000
    #[arg(long, value_name = "N")]
    pub blkio_weight: Option<u16>,
    /// Period of the hard limit of processor time, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_period: Option<u64>,
    /// Processor time in each period, in microseconds; -1 for no limit
    #[arg(long, value_name = "USEC", allow_negative_numbers = true)]
    pub cpu_quota: Option<i64>,
    /// Processor time that may be saved up beyond the quota, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_burst: Option<u64>,
    /// Processor weight relative to other containers, 2 to 262144
    #[arg(long, alias = "cpu-shares", value_name = "N")]
    pub cpu_share: Option<u64>,
    /// Period of the real-time limit, in microseconds
    #[arg(long, value_name = "USEC")]
    pub cpu_rt_period: Option<u64>,
    /// Real-time processor time in each period, in microseconds
    #[arg(long, value_name = "USEC", allow_negative_numbers = true)]
    pub cpu_rt_runtime: Option<i64>,
    /// Processors to use
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,
    /// Memory nodes to use
    #[arg(long, value_name = "LIST")]
    pub cpuset_mems: Option<String>,
    /// 1: run only when nothing else wants the processor; 0: as usual
    #[arg(long, value_name = "0|1")]
    pub cpu_idle: Option<i64>,
    /// Memory limit in bytes, or with a unit: 64M; -1 for none
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Soft memory limit
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_reservation: Option<String>,
    /// Limit of memory and swap together
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_swap: Option<String>,
    /// Obsolete, without effect
    #[arg(long, value_name = "BYTES", hide = true, allow_hyphen_values = true)]
    pub kernel_memory: Option<String>,
    /// Obsolete, without effect
    #[arg(long, value_name = "BYTES", hide = true, allow_hyphen_values = true)]
    pub kernel_memory_tcp: Option<String>,
    /// Number of processes and threads; -1 for no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pids_limit: Option<i64>,
    /// Intel RDT schema of the L3 cache; refused, it cannot be changed later
    #[arg(long, value_name = "SCHEMA")]
    pub l3_cache_schema: Option<String>,
    /// Intel RDT schema of memory bandwidth; refused, it cannot be changed later
    #[arg(long, value_name = "SCHEMA")]
    pub mem_bw_schema: Option<String>,
    /// Container: its id, its name, or the beginning of its id
    pub id: String,
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

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// Bundle to plan for, in place of a container
    #[arg(long, short, value_name = "DIR", conflicts_with = "id")]
    pub bundle: Option<PathBuf>,
    /// Machine-readable output: the plan itself
    #[arg(long)]
    pub json: bool,
    /// Policy to explain `wrap` for, where neither a bundle nor a container is given
    #[arg(long, value_name = "NAME", conflicts_with_all = ["bundle", "id"])]
    pub policy: Option<String>,
    /// Container, any engine's: its id, its name or the beginning of its id. Without one: what `wrap` would enforce here
    pub id: Option<String>,
}

/// `network`
#[derive(Debug, Args)]
pub struct Network {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Container, any engine's: its id, its name or the beginning of its id
    pub id: String,
}

/// `approvals`
#[derive(Debug, Args)]
pub struct Approvals {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
    /// Container, any engine's: its id, its name or the beginning of its id (default: all containers)
    pub id: Option<String>,
}

/// `approve`
#[derive(Debug, Args)]
pub struct Approve {
    /// For how long, such as 90s, 10m or 2h; what it let through is closed then (default: while the container runs)
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "once")]
    pub lasting: Option<String>,
    /// For one connection
    #[arg(long)]
    pub once: bool,
    /// Container, any engine's: its id, its name or the beginning of its id
    pub id: String,
    /// Number of a waiting connection, as `approvals` lists it, or host and port
    #[arg(value_name = "NUMBER|HOST:PORT")]
    pub what: String,
}

/// `deny`
#[derive(Debug, Args)]
pub struct Deny {
    /// Container, any engine's: its id, its name or the beginning of its id
    pub id: String,
    /// Number of a waiting connection, as `approvals` lists it, or host and port
    #[arg(value_name = "NUMBER|HOST:PORT")]
    pub what: String,
}

/// Form of what is told of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// For people
    Text,
    /// JSON
    Json,
}

/// `policy`
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: PolicyVerb,
}

/// What `policy` does.
#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Say whether a connection would be allowed, by which rule, or which rule is missing.
    /// Exit status: 0 allowed, 1 denied, 2 no answer
    Check(PolicyCheck),
    /// List the policies of this node
    List,
    /// Print a policy as a file that says everything, its presets spelled out
    Show(PolicyShow),
    /// List the presets of this node with their rules, or find out those of its package managers
    Presets(PolicyPresets),
}

/// `policy check`
#[derive(Debug, Args)]
pub struct PolicyCheck {
    /// Policy (default: what a container gets that names none)
    pub name: Option<String>,
    /// Name or address to connect to
    #[arg(long, value_name = "HOST")]
    pub host: String,
    /// TCP port
    #[arg(long, default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Annotation of the container; `dev.agentbox.` may be left out
    #[arg(long, value_name = "K=V")]
    pub annotation: Vec<String>,
    /// Ask the rules of this container instead, any engine's: its id, its name or the beginning of its id
    #[arg(long, value_name = "ID", conflicts_with_all = ["name", "annotation"])]
    pub container: Option<String>,
}

/// `policy show`
#[derive(Debug, Args)]
pub struct PolicyShow {
    /// Policy
    pub name: String,
}

/// `policy presets`
#[derive(Debug, Args)]
pub struct PolicyPresets {
    /// Ask the package managers of this node which hosts they fetch from
    #[arg(long)]
    pub detect: bool,
    /// Write what they say to the node's preset directory, for review
    #[arg(long, requires = "detect")]
    pub write: bool,
    /// Replace preset files that are there
    #[arg(long, requires = "write")]
    pub force: bool,
}

/// `wrap`
#[derive(Debug, Args)]
pub struct Wrap {
    /// Policy: strict, standard, permissive or one of the node's
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Project directory, kept with the access that the policy gives (default: the current directory)
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Environment variable; others than PATH, HOME, TERM, LANG, LC_*, TZ and USER are not passed on
    #[arg(long, short, value_name = "K=V")]
    pub env: Vec<String>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misuse_has_the_status_of_its_verb() {
        let status = |line: &str| {
            let words = line.split(' ').map(std::ffi::OsString::from);
            assert!(Cli::try_parse_from(words.clone()).is_err(), "{line}");
            misuse(words)
        };
        for line in [
            "agentbox policy --nope",
            "agentbox policy chekc",
            "agentbox policy check --nope",
            "agentbox policy check strict --port 0 --host a.test",
            "agentbox --policy strict policy check",
            "agentbox --root policy policy show",
        ] {
            assert_eq!(status(line), 2, "{line}");
        }
        for line in [
            "agentbox state policy --nope",
            "agentbox state other --nope",
            "agentbox --policy policy state --nope",
            "agentbox --root policy list --nope",
            "agentbox --nope policy",
            "agentbox polic",
        ] {
            assert_eq!(status(line), 1, "{line}");
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_is_read_quickly_is_what_is_read() {
        for line in [
            "agentbox create one",
            "agentbox --root /r --log-format json create --bundle /b --pid-file /p one",
            "agentbox --root create start one",
            "agentbox start create",
            "agentbox delete --force start",
            "agentbox kill --all one KILL",
            "agentbox state -- one",
            "agentbox --systemd-cgroup --policy strict delete one",
            "agentbox --root create",
        ] {
            let all = Cli::read_from(&words(line)).unwrap();
            if let Some(quick) = Cli::read_quickly(&words(line)) {
                assert_eq!(format!("{quick:?}"), format!("{all:?}"), "{line}");
            }
        }
        for line in ["agentbox create one", "agentbox --root /r start one"] {
            assert!(Cli::read_quickly(&words(line)).is_some(), "{line}");
        }
        // Help, errors and every other verb are the whole command line's.
        for line in [
            "agentbox help create",
            "agentbox create --help",
            "agentbox create",
            "agentbox create --no-such one",
            "agentbox create one two",
            "agentbox exec create start",
            "agentbox run create",
            "agentbox list",
            "agentbox",
        ] {
            assert!(Cli::read_quickly(&words(line)).is_none(), "{line}");
        }
    }
}
