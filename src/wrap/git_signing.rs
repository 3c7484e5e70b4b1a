//! SHELL. Signatures of git by an SSH key: what of the user's global configuration the command gets.
//!
//! The command's git does not see that configuration, and would silently make commits without a signature. It gets the
//! settings for a key that the relay offers, and the key as text: its file is hidden.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::own_file;
use super::repository::{self, is_on, value_of};
use super::wanted::WrapRequest;
use crate::egress::ssh::key::of_public_file;
use crate::policy::SshFingerprint;

/// The user's settings for signatures by an SSH key.
#[derive(Debug, PartialEq, Eq)]
struct SigningSettings {
    /// `user.signingkey`
    key: Option<String>,
    /// Which kinds of objects git signs without being asked.
    signed: Vec<&'static str>,
}

impl SigningSettings {
    /// `None` if git does not sign by SSH keys.
    fn of(text: &str) -> Option<Self> {
        let format = value_of(text, ("gpg", "format"))?;
        let signs = |kind: &&'static str| value_of(text, (kind, "gpgsign")).is_some_and(is_on);
        (format == "ssh").then(|| Self {
            key: value_of(text, ("user", "signingkey")),
            signed: ["commit", "tag"].into_iter().filter(signs).collect(),
        })
    }

    /// The configuration for this key, a line of a `.pub` file.
    fn configuration(&self, key: &str) -> Option<String> {
        let mut words = key.split_ascii_whitespace();
        let (kind, data) = (words.next()?, words.next()?);
        let key = repository::quoted(&format!("key::{kind} {data}"));
        let mut out = format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningkey = {key}\n");
        for kind in &self.signed {
            out.push_str(&format!("[{kind}]\n\tgpgsign = true\n"));
        }
        Some(out)
    }
}

/// The files that may have the public key of `user.signingkey`, the likelier first (git-config(1)). A private key's own file is not
/// one of them.
fn public_files(value: &str, home: &Path) -> Vec<PathBuf> {
    let path = match value.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(value),
    };
    let mut beside = path.clone().into_os_string();
    beside.push(".pub");
    let is_public = path.extension().is_some_and(|end| end == "pub");
    let mut all = vec![PathBuf::from(beside)];
    if is_public {
        all.insert(0, path);
    }
    all.retain(|path| path.is_absolute());
    all
}

/// The line of the public key that `user.signingkey` names, itself or by a file.
fn public_key(value: &str, home: &Path) -> Option<String> {
    let text = value.strip_prefix("key::").unwrap_or(value);
    if of_public_file(text).is_some() {
        return Some(text.to_owned());
    }
    let texts = public_files(value, home).into_iter();
    let mut texts = texts.filter_map(|file| own_file::read(&file).ok());
    let line = |text: String| {
        let mut lines = text.lines().map(str::trim).map(str::to_owned);
        lines.find(|line| of_public_file(line).is_some())
    };
    texts.find_map(line)
}

/// The configuration of git for signatures, and a line for a user whose git signs and cannot do so here. To be called with
/// the user's rights over files. `keys` are those that the policy lists.
pub fn handed_on(wanted: &WrapRequest, keys: &BTreeSet<SshFingerprint>) -> Result<String, String> {
    let home = wanted.person.home();
    let settings = SigningSettings::of(&repository::global(home.as_deref()));
    let Some((settings, home)) = settings.zip(home) else {
        return Ok(String::new());
    };
    let key = settings
        .key
        .as_deref()
        .and_then(|key| public_key(key, &home));
    // Only a key that the relay offers: git would end with an error for every other one.
    let offered = key.filter(|line| {
        let key = of_public_file(line);
        key.is_some_and(|key| {
            wanted
                .ssh_agent
                .as_ref()
                .is_some_and(|agent| agent.offers(&key, keys))
        })
    });
    if let Some(text) = offered.and_then(|key| settings.configuration(&key)) {
        return Ok(text);
    }
    let is_seen = !settings.signed.is_empty()
        && !wanted.quiet
        && repository::top(&wanted.cwd, &wanted.person).is_some();
    match (is_seen, settings.key) {
        (false, _) => Ok(String::new()),
        (true, Some(key)) if public_files(&key, &home).iter().any(|file| file.exists()) => {
            let files = public_files(&key, &home).into_iter();
            let file = files
                .into_iter()
                .find(|file| file.exists())
                .unwrap_or_default();
            Err(unsigned(&format!("={}", file.display())))
        }
        (true, _) => Err(unsigned("=KEY")),
    }
}

fn unsigned(key: &str) -> String {
    format!(
        "agentbox: your git signs, and this run's git does not: --ssh-agent{key} lets it sign with that key of your agent"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = include_str!("../egress/ssh/samples/key.pub");

    #[test]
    fn settings_of_ssh_alone_are_handed_on() {
        let of = SigningSettings::of;
        let text = "[gpg]\n\tformat = ssh\n\tprogram = evil\n[commit]\n\tgpgSign = True\n[user]\n\tsigningKey = ~/.ssh/work.pub\n\
                    [gpg \"ssh\"]\n\tprogram = evil\n\tdefaultKeyCommand = evil\n";
        let settings = of(text).unwrap();
        assert_eq!(settings.key.as_deref(), Some("~/.ssh/work.pub"));
        assert_eq!(settings.signed, ["commit"]);
        let made = settings.configuration(KEY).unwrap();
        assert!(
            made.contains("signingkey = \"key::ssh-ed25519 AAAA"),
            "{made}"
        );
        assert!(made.ends_with("[commit]\n\tgpgsign = true\n"), "{made}");
        assert!(!made.contains("evil") && !made.contains("work"), "{made}");
        for other in [
            "",
            "[commit]\ngpgsign = true\n",
            "[gpg]\nformat = openpgp\n",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_public_key_is_read_and_a_private_one_is_not() {
        let home = Path::new("/home/alice");
        let files = |value| public_files(value, home);
        let public = PathBuf::from("/home/alice/.ssh/work.pub");
        assert_eq!(files("~/.ssh/work"), [public.as_path()]);
        assert_eq!(files("~/.ssh/work.pub")[0], public);
        assert_eq!(files("work.pub"), Vec::<PathBuf>::new());
        for literal in [KEY.trim().to_owned(), format!("key::{}", KEY.trim())] {
            assert_eq!(public_key(&literal, home).as_deref(), Some(KEY.trim()));
        }
    }
}
