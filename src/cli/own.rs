//! The verbs that runc does not have.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Deserialize;

use super::TableFormat;
use crate::policy::Publish;

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// Explain this bundle instead of a container
    #[arg(long, short, value_name = "DIR", conflicts_with = "id")]
    pub bundle: Option<PathBuf>,
    /// Print the plan as JSON
    #[arg(long)]
    pub json: bool,
    /// Explain `wrap` under this policy, if neither a bundle nor a container is given
    #[arg(long, value_name = "NAME", conflicts_with_all = ["bundle", "id"])]
    pub policy: Option<String>,
    /// With which walls `wrap` is explained [default: those of the settings, else namespaces]
    #[arg(long, value_enum, conflicts_with_all = ["bundle", "id"])]
    pub walls: Option<Walls>,
    /// Print the verdict on every system call, with its reason, in place of the plan
    #[arg(long)]
    pub syscalls: bool,
    /// Print also the system calls that Docker's default profile (`docker`) or another policy answers differently
    #[arg(long, value_name = "docker|POLICY", requires = "syscalls")]
    pub compare: Option<String>,
    /// Container id, name or at least 12 characters of the id, of any engine [default: explain `wrap` in this directory]
    pub id: Option<String>,
}

/// `verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// Print every probe as JSON
    #[arg(long)]
    pub json: bool,
    /// Make a container under this policy for it, if no container is given [default: the policy of a container without annotations]
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub policy: Option<String>,
    /// Container id, name or at least 12 characters of the id, of any engine: a process of `exec` tries there
    pub id: Option<String>,
}

/// `network`
#[derive(Debug, Args)]
pub struct Network {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Container id, name or at least 12 characters of the id, of any engine
    pub id: String,
}

/// `suggest`
#[derive(Debug, Args)]
pub struct Suggest {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
    /// Make a policy of this name on the node, which adds them to the run's policy
    #[arg(long, value_name = "NAME", conflicts_with = "format")]
    pub write: Option<String>,
    /// Container id, name or at least 12 characters of the id, of any engine; also of a container that is gone
    pub id: String,
}

/// `receipt`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Receipt {
    /// Check a receipt
    #[command(subcommand)]
    pub verb: Option<ReceiptVerb>,
    /// Container id, name or at least 12 characters of the id, of any engine; also of a container that is gone
    pub id: Option<String>,
}

/// What is done with a receipt that exists.
#[derive(Debug, Subcommand)]
pub enum ReceiptVerb {
    /// Check a receipt's signature, and whether the run's log, record and filter are still those it was signed for
    Verify(VerifyReceipt),
}

/// `receipt verify`
#[derive(Debug, Args)]
pub struct VerifyReceipt {
    /// The receipt
    pub file: PathBuf,
    /// The public key of the node that signed it, as `agentbox key` prints it
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The directory of the run [default: this node's]
    #[arg(long, value_name = "DIR", conflicts_with = "signature_only")]
    pub dir: Option<PathBuf>,
    /// Check the signature alone
    #[arg(long)]
    pub signature_only: bool,
}

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = AuditFormat::Text)]
    pub format: AuditFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Print new lines as they are written, until the container is deleted
    #[arg(long, requires = "id")]
    pub follow: bool,
    /// Only lines since then: a time such as 2026-01-02T03:04:05Z, or a duration such as 90s, 10m or 2h
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only lines of this wall
    #[arg(long, value_name = "WALL", value_parser = ["network", "syscalls", "filesystem", "privileges", "resources", "rules", "life"])]
    pub wall: Option<String>,
    /// Only what was refused
    #[arg(long, conflicts_with = "allowed")]
    pub denied: bool,
    /// Only what was let through
    #[arg(long)]
    pub allowed: bool,
    /// Print the JSON Schema of a line, and nothing else
    #[arg(long, exclusive = true)]
    pub schema: bool,
    /// Container id, name or at least 12 characters of the id, of any engine, also of a container that is gone; or the start of a run [default: list the latest runs]
    pub id: Option<String>,
}

/// Format of a run's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// For people, folded
    Text,
    /// The lines of the log, JSON each
    Json,
    /// The events in OCSF, one line of JSON each
    Ocsf,
    /// A summary for a pull request or a CI job's page
    Markdown,
}

/// `approvals`
#[derive(Debug, Args)]
pub struct Approvals {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
    /// Container id, name or at least 12 characters of the id, of any engine [default: all containers]
    pub id: Option<String>,
}

/// `approve`
#[derive(Debug, Args)]
pub struct Approve {
    /// Approve for this long, such as 90s, 10m or 2h, then close the approved connections [default: while the container runs]
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "once")]
    pub lasting: Option<String>,
    /// Approve one connection only
    #[arg(long)]
    pub once: bool,
    /// Container id, name or at least 12 characters of the id, of any engine
    pub id: String,
    /// Number of a waiting connection as printed by `approvals`, or host and port
    #[arg(value_name = "NUMBER|HOST:PORT")]
    pub what: String,
}

/// `deny`
#[derive(Debug, Args)]
pub struct Deny {
    /// Container id, name or at least 12 characters of the id, of any engine
    pub id: String,
    /// Number of a waiting connection as printed by `approvals`, or host and port
    #[arg(value_name = "NUMBER|HOST:PORT")]
    pub what: String,
}

/// Format of an answer about one thing.
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
    /// The verb after `policy`.
    #[command(subcommand)]
    pub verb: PolicyVerb,
}

/// The verbs after `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Test whether a policy allows a connection, and print the rule that does or the rule that is missing.
    /// Exit status: 0 allowed, 1 denied, 2 no answer
    Check(PolicyCheck),
    /// List this node's policies
    List,
    /// Print a policy as a complete file, with every default and preset written out
    Show(PolicyShow),
    /// List this node's presets with their rules, or detect those of its package managers
    Presets(PolicyPresets),
}

/// `policy check`
#[derive(Debug, Args)]
pub struct PolicyCheck {
    /// Policy [default: the policy of a container without annotations]
    pub name: Option<String>,
    /// Host name or address to connect to
    #[arg(long, value_name = "HOST", required_unless_present = "request")]
    pub host: Option<String>,
    /// Request to make instead, as 'GET https://HOST/PATH' or 'mcp:https://HOST/PATH tools/call:NAME'
    #[arg(long, value_name = "REQUEST", conflicts_with_all = ["host", "port"])]
    pub request: Option<String>,
    /// TCP port
    #[arg(long, default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Annotation of the container, repeatable; the prefix `dev.agentbox.` may be omitted
    #[arg(long, value_name = "K=V")]
    pub annotation: Vec<String>,
    /// Test the rules of this container instead: its id, name or at least 12 characters of the id, of any engine
    #[arg(long, value_name = "ID", conflicts_with_all = ["name", "annotation"])]
    pub container: Option<String>,
}

/// `policy show`
#[derive(Debug, Args)]
pub struct PolicyShow {
    /// Name of the policy
    pub name: String,
}

/// `policy presets`
#[derive(Debug, Args)]
pub struct PolicyPresets {
    /// These presets alone, each with the pages that its hosts are taken from
    #[arg(conflicts_with = "detect")]
    pub names: Vec<String>,
    /// As JSON
    #[arg(long, conflicts_with = "detect")]
    pub json: bool,
    /// Ask this node's package managers for the hosts they download from
    #[arg(long)]
    pub detect: bool,
    /// Save the result in the node's preset directory, for review
    #[arg(long, requires = "detect")]
    pub write: bool,
    /// Replace existing preset files
    #[arg(long, requires = "write")]
    pub force: bool,
}

/// What `wrap` builds its walls of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walls {
    /// Namespaces and mounts, as of a container
    #[default]
    Namespaces,
    /// Landlock and a filter of system calls, where no namespace may be made; weaker (docs/wrap.md)
    Landlock,
}

impl Walls {
    /// As it is typed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
        }
    }
}

/// `trust`
#[derive(Debug, Args)]
pub struct Trust {
    /// Trust the file without a question, as in a script
    #[arg(long, short)]
    pub yes: bool,
    /// List what is trusted, and whether the files are still the same
    #[arg(long, conflicts_with_all = ["yes", "remove", "dir"])]
    pub list: bool,
    /// Trust the file no more
    #[arg(long, conflicts_with = "yes")]
    pub remove: bool,
    /// A project's directory, or a policy or file of variables [default: the current directory, or the top of its repository]
    #[arg(value_name = "DIR|FILE")]
    pub dir: Option<PathBuf>,
}

/// `wrap`
#[derive(Debug, Default, Clone, Args)]
pub struct Wrap {
    /// Policy: strict, standard, permissive, a policy of this node, or a file of yours (a path with `/` or `.toml`)
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<String>,
    /// Project directory, mounted with the access that the policy gives [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Let these hosts be reached besides those of the policy, repeatable; without a port, 443
    #[arg(long, value_name = "HOST[:PORT],@PRESET")]
    pub allow: Vec<String>,
    /// Let these hosts never be reached, repeatable; without a port, on none
    #[arg(long, value_name = "HOST[:PORT],@PRESET")]
    pub deny: Vec<String>,
    /// Ask at the terminal about a connection to a host that no rule lists; without one it waits for `agentbox approve`
    #[arg(long)]
    pub ask: bool,
    /// Set a field of the policy, repeatable; `agentbox policy show standard` prints the fields
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// Environment variable, repeatable; a name alone passes yours on. Of yours only HOME, PATH, TERM, LANG and the like are passed on unasked
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Show this file or directory too, read-only, repeatable; of its credentials those of policies/never.toml stay hidden
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Let this file or directory be written too, repeatable; what the node runs as root and whole homes never are
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Hide this file or directory, in the workspace too, repeatable: it looks empty
    #[arg(long, value_name = "PATH")]
    pub hide: Vec<PathBuf>,
    /// Do not say on standard error, when the command has ended, which hosts were refused
    #[arg(long, short)]
    pub quiet: bool,
    /// Hide the caches of package managers in the home, which the command else reads, and writes for the run alone
    #[arg(long)]
    pub no_caches: bool,
    /// Keep what the command writes to those caches for the next run in this workspace; your own stay as they are
    #[arg(long, conflicts_with = "no_caches")]
    pub keep_caches: bool,
    /// File for a summary of what was refused, in Markdown
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Read environment variables from this file, repeatable; a line is NAME=VALUE or NAME, as for `docker run`
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Let a port of this machine lead to a server inside, repeatable; without an address from its loopback alone
    #[arg(long, value_name = "[ADDR:]HOSTPORT[:PORT]")]
    pub publish: Vec<Publish>,
    /// Name of the sandbox for `list`, `network`, `approve`, `exec` and `kill` [default: a random one]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print what would be enforced, as `explain` does, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// What the walls are made of [default: those of the settings, else namespaces]
    #[arg(long, value_enum)]
    pub walls: Option<Walls>,
    /// Command and arguments; options of `wrap` come before it
    #[arg(trailing_var_arg = true, required = true)]
    pub command: Vec<String>,
}
