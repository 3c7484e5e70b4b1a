//! `trust`

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::cli::Trust;
use crate::cmd::out;
use crate::log::plain::plain;
use crate::text::escape;
use crate::wrap::settings::trust::{TrustStatus, is_project};
use crate::wrap::settings::{Offer, OfferScope, SealedFile};

/// Shows a project's settings and trusts them, stops trusting them, or lists trusted files.
pub fn run(args: &Trust) -> Result<ExitCode> {
    let offer = Offer::of(
        args.dir.as_deref(),
        match args.list {
            true => OfferScope::Everything,
            false => OfferScope::Project,
        },
    )?;
    if args.list && args.json {
        return list_json(&offer);
    }
    if args.list {
        for (entry, listed) in offer.list()? {
            let path = escape(&entry.path.display().to_string());
            let words = match listed {
                TrustStatus::Same => "as you trusted it".to_owned(),
                TrustStatus::Changed => {
                    "changed, or a file that it names did: nothing runs there until you review it"
                        .to_owned()
                }
                TrustStatus::NotTrusted => "not trusted".to_owned(),
                TrustStatus::NotTold(why) => format!("does not count: it {}", escape(&why)),
            };
            out::line(&format!("{path}  {words}"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if args.remove {
        let was = match offer.remove()? {
            true => "is trusted no more",
            false => "was not trusted",
        };
        let path = escape(&offer.path().display().to_string());
        out::line(&format!("{path} {was}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = offer.read()?;
    // An earlier command may have left the terminal in a mode that cuts or hides lines.
    if std::io::stdout().is_terminal() {
        out::text(&plain())?;
    }
    let path = escape(&shown.path.display().to_string());
    out::line(&format!("{path} says:"))?;
    for line in lines(&shown.text) {
        out::line(&format!("  {}", escape(line)))?;
    }
    for SealedFile { path, text, .. } in &shown.included {
        out::line(&format!("{path:?}, which it names, says:"))?;
        for line in lines(text) {
            out::line(&format!("  {}", escape(line)))?;
        }
    }
    out::line(match is_project(&shown.path) {
        true => "`agentbox wrap` in this directory then",
        false => "if you trust it",
    })?;
    for effect in &shown.effects {
        out::line(&format!("  {}", escape(effect)))?;
    }
    if !args.yes && !confirm(&shown.path)? {
        out::line("not trusted")?;
        return Ok(ExitCode::FAILURE);
    }
    offer.trust(&shown)?;
    out::line(match is_project(&shown.path) {
        true => "trusted until the file, or a file that it names, changes",
        false => "trusted, until the file changes",
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A trusted file, as JSON.
#[derive(Debug, Serialize)]
struct TrustRow {
    path: String,
    /// `same`, `changed`, `not-trusted` or `unknown`.
    status: &'static str,
    /// Why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn list_json(offer: &Offer) -> Result<ExitCode> {
    let rows = offer.list()?.into_iter().map(|(entry, listed)| {
        let (status, reason) = match listed {
            TrustStatus::Same => ("same", None),
            TrustStatus::Changed => ("changed", None),
            TrustStatus::NotTrusted => ("not-trusted", None),
            TrustStatus::NotTold(why) => ("unknown", Some(why)),
        };
        TrustRow {
            path: entry.path.display().to_string(),
            status,
            reason,
        }
    });
    out::json(&rows.collect::<Vec<_>>())?;
    Ok(ExitCode::SUCCESS)
}

/// The lines to show. What looks like a secret of an env file stays out. What could be a policy or a project's settings is shown
/// whole: a string over several lines may have any beginning (F31).
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let table = text.parse::<toml::Table>();
    let is_env_file = table.map_or(true, |table| table.keys().all(|key| is_variable(key)));
    text.lines().map(move |line| match line.split_once('=') {
        Some((name, value)) if is_env_file && is_variable(name) && is_secret(name, value) => name,
        _ => line,
    })
}

/// Words of the names of variables with secrets.
const SECRETS: [&str; 14] = [
    "AUTH",
    "COOKIE",
    "CREDENTIAL",
    "CREDENTIALS",
    "DSN",
    "JWT",
    "KEY",
    "PASS",
    "PASSWD",
    "PASSWORD",
    "PAT",
    "PWD",
    "SECRET",
    "TOKEN",
];

/// Whether a value is likely a secret, by the words of the variable's name. What may name a program, a file or an address is shown
/// under any name, with a password in it: programs obey it, and the user reviews it.
fn is_secret(name: &str, value: &str) -> bool {
    let value = value.trim().trim_start_matches(['"', '\'']);
    let is_path = value.starts_with(['/', '.', '~', '$']) || value.contains("://");
    let is_obeyed = is_path || value.starts_with('-') && !value.starts_with("-----BEGIN");
    let is_file = ["_FILE", "_PATH", "_DIR"]
        .iter()
        .any(|end| name.ends_with(end));
    let is_gits = name.starts_with("GIT_CONFIG");
    !is_obeyed && !is_file && !is_gits && name.split('_').any(|word| SECRETS.contains(&word))
}

fn is_variable(name: &str) -> bool {
    let mut all = name.chars();
    !name.is_empty() && all.all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Whether the user agrees, at a terminal: a pipe's answer may be another program's.
fn confirm(path: &Path) -> Result<bool> {
    let (input, output) = (std::io::stdin(), std::io::stdout());
    if !input.is_terminal() || !output.is_terminal() {
        bail!(
            "there is no terminal to ask at: review {path:?}, then run `agentbox trust --yes` on it"
        );
    }
    out::text("trust it? [y/N] ")?;
    output.lock().flush()?;
    // Drop input that was typed before the question was visible.
    rustix::termios::tcflush(&input, rustix::termios::QueueSelector::IFlush)?;
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_whole_and_an_env_file_without_its_secrets() {
        let policy = concat!(
            "[network]\nallow = [\"a.test\", \"\"\"GET https://a.test/\\\n",
            "X=**\"\"\", \"evil.test\"]\n"
        );
        assert_eq!(
            lines(policy).collect::<Vec<_>>(),
            policy.lines().collect::<Vec<_>>()
        );
        for (text, shown) in [
            ("API_TOKEN=a b", "API_TOKEN"),
            ("API_TOKEN=\"a\"", "API_TOKEN"),
            (
                "DATABASE_URL=postgres://u:p@db/x",
                "DATABASE_URL=postgres://u:p@db/x",
            ),
            ("GH_PAT=ghp_x", "GH_PAT"),
            ("PRIVATE_KEY=\"-----BEGIN X", "PRIVATE_KEY"),
            ("GIT_ASKPASS=x.sh", "GIT_ASKPASS=x.sh"),
            ("PATH=/x", "PATH=/x"),
            (
                "NODE_OPTIONS=--require=/w/x.js",
                "NODE_OPTIONS=--require=/w/x.js",
            ),
            ("SSH_ASKPASS=\"/w/x\"", "SSH_ASKPASS=\"/w/x\""),
            (
                "MODEL_BASE_URL=https://evil.test",
                "MODEL_BASE_URL=https://evil.test",
            ),
        ] {
            let text = format!("{text}\n=c\n");
            assert_eq!(lines(&text).collect::<Vec<_>>(), [shown, "=c"]);
        }
        assert_eq!(lines("=c").collect::<Vec<_>>(), ["=c"]);
    }
}
