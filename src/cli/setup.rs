//! The verbs that check and set up a machine.

use std::path::PathBuf;

use clap::Args;

use super::TextFormat;

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print every check as JSON
    #[arg(long, default_value_if("format", "json", "true"))]
    pub json: bool,
    /// `--format json` is the same as --json
    #[arg(long, short, hide = true, value_enum, conflicts_with = "json")]
    pub format: Option<TextFormat>,
}

/// What changes, and whether it does.
#[derive(Debug, Args)]
pub struct SystemOptions {
    /// Print the changes as a diff, and make none
    #[arg(long)]
    pub dry_run: bool,
    /// Directory that stands for `/`, for packages and tests
    #[arg(long, value_name = "DIR")]
    pub destdir: Option<PathBuf>,
}

/// `install`
#[derive(Debug, Args)]
pub struct Install {
    /// The system
    #[command(flatten)]
    pub system: SystemOptions,
    /// Directory for bin/agentbox [default: where a package put it, else /usr/local]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
}

/// `uninstall`
#[derive(Debug, Args)]
pub struct Uninstall {
    /// The system
    #[command(flatten)]
    pub system: SystemOptions,
    /// Uninstall even while sandboxes run
    #[arg(long)]
    pub force: bool,
}
