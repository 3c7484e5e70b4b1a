//! `wrap`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::{
    OsStringValueParser, PossibleValuesParser, StringValueParser, TypedValueParser,
};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::policy::{ConnectService, ProtectedName, Publish};

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

/// A path. Shells put the home directory for `~` at the beginning of a word, and leave it after an option's `=`.
fn path_or_below_home() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(|path| below_home(path, home()))
}

/// The name of a key, or the path of a `.pub` file.
fn key_or_path() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|key| {
        let path = below_home(OsString::from(&key), home());
        path.into_os_string().into_string().unwrap_or(key)
    })
}

/// The caller's home. sudo(8) sets the variable to root's.
fn home() -> Option<OsString> {
    let home = std::env::var_os("HOME");
    home.filter(|_| std::env::var_os("SUDO_UID").is_none())
}

fn below_home(path: OsString, home: Option<OsString>) -> PathBuf {
    let below = Path::new(&path).strip_prefix("~");
    match (below, home) {
        (Ok(below), Some(home)) => Path::new(&home).join(below),
        _ => path.into(),
    }
}

/// `wrap`
#[derive(Debug, Default, Clone, Args)]
pub struct Wrap {
    /// Policy: strict, standard, permissive, ci, the node's, a file
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<String>,
    /// Project directory [default: the current directory]
    #[arg(long, value_name = "DIR", value_parser = path_or_below_home())]
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
    /// Ask at the terminal about unlisted hosts and signatures
    #[arg(long)]
    pub ask: bool,
    /// Set a policy field, repeatable (fields: `agentbox policy show standard`)
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    /// End the command after this time (1h30m), status 124
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// End the command after this time without activity, status 124
    #[arg(long, value_name = "DURATION")]
    pub idle_timeout: Option<String>,
    /// Set a variable, or pass yours on, repeatable [default: HOME, PATH, TERM, LANG and others]
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Also mount this path read-only, without its credentials, repeatable
    #[arg(long, value_name = "PATH", value_parser = path_or_below_home())]
    pub read: Vec<PathBuf>,
    /// Also allow writing here, repeatable; home directories are refused
    #[arg(long, value_name = "PATH", value_parser = path_or_below_home())]
    pub write: Vec<PathBuf>,
    /// Make this path look empty, also in the workspace, repeatable
    #[arg(long, value_name = "PATH", value_parser = path_or_below_home())]
    pub hide: Vec<PathBuf>,
    /// Allow writing a protected file (.git/hooks), repeatable [`*`: all]
    #[arg(long, value_name = "NAME", value_parser = ProtectedName::typed)]
    pub unprotect: Vec<ProtectedName>,
    /// Print no progress and no notices; list denials at exit
    #[arg(long, short)]
    pub quiet: bool,
    /// Hide package caches [default: readable, writes are discarded]
    #[arg(long)]
    pub no_caches: bool,
    /// Keep writes to package caches for this workspace's next run
    #[arg(long, conflicts_with = "no_caches")]
    pub keep_caches: bool,
    /// Write a Markdown summary of denials to this file
    #[arg(long, value_name = "FILE", value_parser = path_or_below_home())]
    pub summary: Option<PathBuf>,
    /// Read variables from a file as `docker run` does, repeatable
    #[arg(long, value_name = "FILE", value_parser = path_or_below_home())]
    pub env_file: Vec<PathBuf>,
    /// Publish a server's port, repeatable [default address: 127.0.0.1]
    #[arg(long, value_name = "[ADDR:]HOSTPORT[:PORT]")]
    pub publish: Vec<Publish>,
    /// Reach this machine's service at localhost:PORT or a socket, repeatable
    #[arg(long, value_name = "[HOST:]PORT|SOCKET", value_parser = ConnectService::named)]
    pub connect: Vec<ConnectService>,
    /// Sign with this key of your SSH agent, repeatable [default: all]
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = key_or_path())]
    pub ssh_agent: Vec<String>,
    /// Name of the sandbox for other commands [default: random]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print the walls, as `explain` does, and exit
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print every mount, and each value's origin
    #[arg(long, requires = "dry_run")]
    pub all: bool,
    /// How to confine the command [default: from the settings, else namespaces]
    #[arg(long, value_enum)]
    pub walls: Option<Walls>,
    /// Command and arguments, after the options of `wrap`
    #[arg(trailing_var_arg = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_after_an_options_sign_is_the_home_directory() {
        let of = |path: &str, home: Option<&str>| below_home(path.into(), home.map(Into::into));
        assert_eq!(of("~/data/x", Some("/home/a")), Path::new("/home/a/data/x"));
        for path in ["~other/data", "./~/data", "/a/~", "data", ""] {
            assert_eq!(of(path, Some("/home/a")), Path::new(path));
        }
        assert_eq!(of("~/data", None), Path::new("~/data"));
    }
}
