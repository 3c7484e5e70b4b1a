//! `wrap`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::policy::{ConnectService, Publish};

/// How `wrap` confines the command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Walls {
    /// Namespaces and mounts, as in a container
    #[default]
    Namespaces,
    /// Landlock and seccomp, where namespaces are forbidden; weaker (docs/wrap.md)
    Landlock,
}

impl Walls {
    /// The option's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
        }
    }
}

/// The agents that `wrap` knows: files of `policies/agents`.
pub const AGENTS: [&str; 6] = ["claude", "codex", "gemini", "opencode", "qwen", "aider"];

/// `wrap`
#[derive(Debug, Default, Clone, Args)]
pub struct Wrap {
    /// Policy: strict, standard, permissive, a node's policy, or a file (with `/` or `.toml`)
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<String>,
    /// Project directory [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Allow a host, repeatable [default port: 443]
    #[arg(long, value_name = "HOST[:PORT],@PRESET")]
    pub allow: Vec<String>,
    /// Allow an agent its hosts, login, settings and history [default: by the command's name]
    #[arg(long, value_name = "NAME|none", value_parser = PossibleValuesParser::new(AGENTS.into_iter().chain(["none"])))]
    pub agent: Option<String>,
    /// Always refuse a host, repeatable [default: all its ports]
    #[arg(long, value_name = "HOST[:PORT],@PRESET")]
    pub deny: Vec<String>,
    /// Ask at the terminal about unlisted hosts; without a terminal, wait for `agentbox approve`
    #[arg(long)]
    pub ask: bool,
    /// Set a policy field, repeatable (fields: `agentbox policy show standard`)
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// End the command after this time (90s, 30m, 2h), status 124
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// End the command after this time without processor use or network traffic, status 124
    #[arg(long, value_name = "DURATION")]
    pub idle_timeout: Option<String>,
    /// Set a variable, or pass yours on, repeatable [default: HOME, PATH, TERM, LANG and a few others]
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Also mount this path read-only, repeatable; the credentials listed in policies/never.toml stay hidden
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Also allow writing here, repeatable. Home directories and root's programs are always refused
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Make this path look empty, also in the workspace, repeatable
    #[arg(long, value_name = "PATH")]
    pub hide: Vec<PathBuf>,
    /// Print no progress and no notices; denials are listed at exit
    #[arg(long, short)]
    pub quiet: bool,
    /// Hide package caches [default: readable, writes are discarded]
    #[arg(long)]
    pub no_caches: bool,
    /// Keep writes to package caches for the next run in this workspace
    #[arg(long, conflicts_with = "no_caches")]
    pub keep_caches: bool,
    /// Write a Markdown summary of denials to this file
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Read variables from a file as `docker run` does, repeatable
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Publish a server's port, repeatable [default address: 127.0.0.1]
    #[arg(long, value_name = "[ADDR:]HOSTPORT[:PORT]")]
    pub publish: Vec<Publish>,
    /// Reach a service of this machine at localhost:PORT, repeatable
    #[arg(long, value_name = "[HOST:]PORT", value_parser = ConnectService::named)]
    pub connect: Vec<ConnectService>,
    /// Sign with a key of your SSH agent (fingerprint, comment or .pub file), repeatable [default: all keys]
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub ssh_agent: Vec<String>,
    /// Name of the sandbox for other commands [default: random]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print the walls, as `explain` does, and exit
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print every mount, and the origin of each value
    #[arg(long, requires = "dry_run")]
    pub all: bool,
    /// How to confine the command [default: from the settings, else namespaces]
    #[arg(long, value_enum)]
    pub walls: Option<Walls>,
    /// Command and arguments, after the options of `wrap`
    #[arg(trailing_var_arg = true, required = true)]
    pub command: Vec<String>,
}
