//! The verbs that runc does not have.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
