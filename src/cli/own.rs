//! The verbs that runc does not have.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{TableFormat, Walls};
use crate::policy::Lifetime;

/// `explain`
#[derive(Debug, Args)]
pub struct Explain {
    /// Explain this bundle instead of a container
    #[arg(long, short, value_name = "DIR", conflicts_with = "id")]
    pub bundle: Option<PathBuf>,
    /// Print the plan as JSON
    #[arg(long, default_value_if("format", "json", "true"))]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with = "json")]
    pub format: Option<TextFormat>,
    /// Print every mount, and the origin of each value
    #[arg(long, conflicts_with = "json")]
    pub all: bool,
    /// Explain `wrap` under this policy
    #[arg(long, value_name = "NAME", conflicts_with_all = ["bundle", "id"])]
    pub policy: Option<String>,
    /// Explain `wrap` with these walls [default: from the settings, else namespaces]
    #[arg(long, value_enum, conflicts_with_all = ["bundle", "id"])]
    pub walls: Option<Walls>,
    /// Print the verdict on every system call, with its reason
    #[arg(long)]
    pub syscalls: bool,
    /// Also list differences from Docker's profile (`docker`) or another policy
    #[arg(long, value_name = "docker|POLICY", requires = "syscalls")]
    pub compare: Option<String>,
    /// Container name, id or its first 12 characters [default: explain `wrap` here]
    pub id: Option<String>,
}

/// `verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// Print every probe as JSON
    #[arg(long, default_value_if("format", "json", "true"))]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with = "json")]
    pub format: Option<TextFormat>,
    /// Test a new container under this policy [default: as without annotations]
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub policy: Option<String>,
    /// Container to test: name, id or its first 12 characters
    pub id: Option<String>,
}

/// `network`
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TextFormat::Text, default_value_if("json", "true", "json"))]
    pub format: TextFormat,
    /// The same as --format json
    #[arg(long, hide = true, conflicts_with = "format")]
    pub json: bool,
    /// Container name, id or its first 12 characters
    pub id: String,
}

/// `suggest`
#[derive(Debug, Args)]
pub struct Suggest {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TextFormat::Text, default_value_if("json", "true", "json"))]
    pub format: TextFormat,
    /// The same as --format json
    #[arg(long, hide = true, conflicts_with = "format")]
    pub json: bool,
    /// Save the run's policy plus these rules under this name
    #[arg(long, value_name = "NAME", conflicts_with_all = ["format", "json"])]
    pub write: Option<String>,
    /// Container, also deleted: name, id or its first 12 characters
    pub id: String,
}

/// `receipt`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Receipt {
    /// Check a receipt
    #[command(subcommand)]
    pub verb: Option<ReceiptVerb>,
    /// Container, also deleted: name, id or its first 12 characters
    pub id: Option<String>,
}

/// The verbs after `receipt`.
#[derive(Debug, Subcommand)]
pub enum ReceiptVerb {
    /// Check a receipt's signature, log, record and filter
    Verify(VerifyReceipt),
}

/// `receipt verify`
#[derive(Debug, Args)]
pub struct VerifyReceipt {
    /// Receipt file
    pub file: PathBuf,
    /// Public key of the node that signed it (`agentbox key`)
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Directory of the run [default: this node's]
    #[arg(long, value_name = "DIR", conflicts_with = "signature_only")]
    pub dir: Option<PathBuf>,
    /// Check only the signature
    #[arg(long)]
    pub signature_only: bool,
}

/// `audit`
#[derive(Debug, Args)]
pub struct Audit {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = AuditFormat::Text, default_value_if("json", "true", "json"))]
    pub format: AuditFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Print new lines until the container is deleted
    #[arg(long, requires = "id")]
    pub follow: bool,
    /// Only lines since a time (2026-01-02T03:04:05Z) or duration (10m)
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only lines of this wall
    #[arg(long, value_name = "WALL", value_parser = ["network", "syscalls", "filesystem", "privileges", "resources", "keys", "rules", "life"])]
    pub wall: Option<String>,
    /// Only denied operations
    #[arg(long, conflicts_with = "allowed")]
    pub denied: bool,
    /// Only allowed operations
    #[arg(long)]
    pub allowed: bool,
    /// Print the JSON Schema of a log line
    #[arg(long, exclusive = true)]
    pub schema: bool,
    /// Container, also deleted, or a run's start time [default: list the latest runs]
    pub id: Option<String>,
}

/// Format of a run's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditFormat {
    /// Folded lines for reading
    Text,
    /// The log's lines, as JSON
    Json,
    /// OCSF events, one JSON object a line
    Ocsf,
    /// A summary for a pull request or a CI job
    Markdown,
}

/// `approvals`
#[derive(Debug, Args)]
pub struct Approvals {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = TableFormat::Table, default_value_if("json", "true", "json"))]
    pub format: TableFormat,
    /// The same as --format json
    #[arg(long, hide = true, conflicts_with = "format")]
    pub json: bool,
    /// Container name, id or its first 12 characters [default: all]
    pub id: Option<String>,
}

/// `approve`
#[derive(Debug, Args)]
pub struct Approve {
    /// Approve for a time (10m), then close its connections [default: while the container runs]
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "once")]
    pub lasting: Option<String>,
    /// Approve until HH:MM (local) or a date (2026-12-01T18:00:00Z)
    #[arg(long, value_name = "TIME", conflicts_with_all = ["once", "lasting"])]
    pub until: Option<String>,
    /// Approve one connection only
    #[arg(long)]
    pub once: bool,
    /// Container name, id or its first 12 characters
    pub id: String,
    /// Number from `approvals`, or host and port
    #[arg(value_name = "NUMBER|HOST:PORT")]
    pub what: String,
}

/// `deny`
#[derive(Debug, Args)]
pub struct Deny {
    /// Container name, id or its first 12 characters
    pub id: String,
    /// Number from `approvals`, or host and port
    #[arg(value_name = "NUMBER|HOST:PORT")]
    pub what: String,
}

/// `extend`
#[derive(Debug, Args)]
pub struct Extend {
    /// Container name, id or its first 12 characters
    pub id: String,
    /// Time to add (90s, 30m, 2h)
    #[arg(value_name = "DURATION")]
    pub by: Lifetime,
}

/// Format of a single answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// Text for reading
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
    /// Test whether a policy allows a connection, by which rule
    ///
    /// Exit status: 0 allowed, 1 denied, 2 no answer
    Check(PolicyCheck),
    /// List this node's policies
    List(PolicyList),
    /// Print a policy as a complete file
    Show(PolicyShow),
    /// List presets and their rules, or detect package managers' hosts
    Presets(PolicyPresets),
}

/// `policy check`
#[derive(Debug, Args)]
pub struct PolicyCheck {
    /// Policy [default: the policy of a container without annotations]
    pub name: Option<String>,
    /// Host name or address
    #[arg(long, value_name = "HOST", required_unless_present = "request")]
    pub host: Option<String>,
    /// Request, such as 'GET https://HOST/PATH' or 'mcp:https://HOST/PATH tools/call:NAME'
    #[arg(long, value_name = "REQUEST", conflicts_with_all = ["host", "port"])]
    pub request: Option<String>,
    /// TCP port
    #[arg(long, default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Annotation, repeatable; the prefix `dev.agentbox.` is optional
    #[arg(long, value_name = "K=V")]
    pub annotation: Vec<String>,
    /// Test this container's rules (name, id or 12 characters)
    #[arg(long, value_name = "ID", conflicts_with_all = ["name", "annotation"])]
    pub container: Option<String>,
    /// Print JSON
    #[arg(long, default_value_if("format", "json", "true"))]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with = "json")]
    pub format: Option<TextFormat>,
}

/// `policy list`
#[derive(Debug, Args)]
pub struct PolicyList {
    /// Print JSON
    #[arg(long, default_value_if("format", "json", "true"))]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with = "json")]
    pub format: Option<TextFormat>,
}

/// `policy show`
#[derive(Debug, Args)]
pub struct PolicyShow {
    /// Name of the policy
    pub name: String,
    /// Print JSON
    #[arg(long, default_value_if("format", "json", "true"))]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with = "json")]
    pub format: Option<TextFormat>,
}

/// `policy presets`
#[derive(Debug, Args)]
pub struct PolicyPresets {
    /// Print only these presets, with their sources
    #[arg(conflicts_with = "detect")]
    pub names: Vec<String>,
    /// Print JSON
    #[arg(
        long,
        default_value_if("format", "json", "true"),
        conflicts_with = "detect"
    )]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with_all = ["json", "detect"])]
    pub format: Option<TextFormat>,
    /// Ask this node's package managers for their hosts
    #[arg(long)]
    pub detect: bool,
    /// Save the result in the node's preset directory
    #[arg(long, requires = "detect")]
    pub write: bool,
    /// Replace existing preset files
    #[arg(long, requires = "write")]
    pub force: bool,
}

/// `trust`
#[derive(Debug, Args)]
pub struct Trust {
    /// Trust the file without asking
    #[arg(long, short)]
    pub yes: bool,
    /// List trusted files, and whether they changed
    #[arg(long, conflicts_with_all = ["yes", "remove", "dir"])]
    pub list: bool,
    /// Stop trusting the file
    #[arg(long, conflicts_with = "yes")]
    pub remove: bool,
    /// Print the list as JSON
    #[arg(long, default_value_if("format", "json", "true"), requires = "list")]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(
        long,
        short,
        hide = true,
        value_enum,
        conflicts_with = "json",
        requires = "list"
    )]
    pub format: Option<TextFormat>,
    /// Project directory, policy file or env file [default: the repository's top]
    #[arg(value_name = "DIR|FILE")]
    pub dir: Option<PathBuf>,
}
