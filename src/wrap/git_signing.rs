//! SHELL. Signatures of git by an SSH key: what of the user's global configuration the command gets.
//!
//! The command's git does not see that configuration, and would silently make commits without a signature. It gets the
//! settings for a key that the relay offers, and the key as text: its file is hidden.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::own_file;
use super::person::Person;
use super::repository::{self, is_on, value_of};
use crate::cli::Walls;
use crate::egress::ssh::key::of_public_file;
use crate::policy::{ResolvedPolicy, SshFingerprint, SshKey, typed_path};

/// Keys of the user's SSH agent with which the workload may sign.
pub fn signing_keys(resolved: &ResolvedPolicy) -> BTreeSet<SshFingerprint> {
    let keys = resolved.policy.network.ssh_keys.iter();
    keys.filter_map(SshKey::fingerprint).collect()
}

/// The user's settings for signatures by an SSH key.
#[derive(Debug, PartialEq, Eq)]
struct SigningSettings {
    /// Which kinds of objects git signs without being asked.
    signed: Vec<&'static str>,
}

impl SigningSettings {
    /// `None` if git does not sign by SSH keys.
    fn of(text: &str) -> Option<Self> {
        let format = value_of(text, ("gpg", "format"))?;
        (format == "ssh").then(|| Self {
            signed: signed(text),
        })
    }

    /// The configuration for this key, a line of a `.pub` file, if it is one and the run's relay offers it.
    fn offered(&self, key: &str, offers: impl Fn(&[u8]) -> bool) -> Option<String> {
        of_public_file(key).filter(|public| offers(public))?;
        self.configuration(key)
    }

    /// The configuration for this key, a line of a `.pub` file.
    fn configuration(&self, key: &str) -> Option<String> {
        let mut words = key.split_ascii_whitespace();
        let (kind, data) = (words.next()?, words.next()?);
        // git 2.34 knows no prefix, and later ones need none for these (git-config(1), user.signingKey).
        let prefix = if kind.starts_with("ssh-") {
            ""
        } else {
            "key::"
        };
        let key = repository::quoted(&format!("{prefix}{kind} {data}"));
        let mut out = format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningkey = {key}\n");
        for kind in &self.signed {
            out.push_str(&format!("[{kind}]\n\tgpgsign = true\n"));
        }
        Some(out)
    }
}

/// The kinds of objects that git signs by these settings, by whatever kind of key.
fn signed(text: &str) -> Vec<&'static str> {
    let signs = |kind: &&'static str| value_of(text, (kind, "gpgsign")).is_some_and(is_on);
    ["commit", "tag"].into_iter().filter(signs).collect()
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

/// The keys that a run's relay offers.
pub struct OfferedKeys<'a> {
    /// Whether a key is one of them.
    pub offers: &'a dyn Fn(&[u8]) -> bool,
    /// The only one, as a line of a `.pub` file.
    pub only: Option<&'a str>,
}

/// The configuration of git for signatures, or a line for a user whose git signs and cannot do so here. To be called with the
/// user's rights over files. For a key that the relay does not offer git would end with an error.
///
/// The key is that of the user's own files, or the only one that the relay offers. Whether git signs, and how, the
/// repository's file may say too. A run may have written that: it leads to no file of the user's, and to no name in the line.
pub fn handed_on(
    person: &Person,
    cwd: &Path,
    relay: Option<&OfferedKeys<'_>>,
    walls: Walls,
) -> Result<String, String> {
    let home = person.home();
    let top = repository::top(cwd, person);
    let global = repository::global(home.as_deref());
    let own = top.as_deref().map(repository::own).unwrap_or_default();
    let all = SigningSettings::of(&format!("{global}\n{own}"));
    let (Some(all), Some(home)) = (all, home) else {
        return Ok(String::new());
    };
    let signs = !all.signed.is_empty() && top.is_some();
    if relay.is_some()
        && let Some(inside) = value_of(&own, ("user", "signingkey"))
        && (is_file_elsewhere(&inside, top.as_deref()) || is_gpgs(&inside))
    {
        let line = "agentbox: this repository's own user.signingkey is no SSH key that is here: unset it, and set it by git config --global";
        return match signs {
            true => Err(line.to_owned()),
            false => Ok(String::new()),
        };
    }
    let named = value_of(&global, ("user", "signingkey"));
    let key = named.as_deref();
    if let Some(relay) = relay {
        let line = match key {
            Some(key) if !is_gpgs(key) => public_key(key, &home),
            _ => relay.only.map(str::to_owned),
        };
        if let Some(text) = line.and_then(|line| all.offered(&line, relay.offers)) {
            return Ok(text);
        }
    }
    if !signs {
        return Ok(String::new());
    }
    if signed(&global).is_empty() {
        return Err(by_repository(walls));
    }
    let mut files = key.into_iter().flat_map(|key| public_files(key, &home));
    let file = files.find(|file| file.exists());
    let key = match file {
        Some(file) => typed_path(&file),
        None => "KEY".to_owned(),
    };
    let cure = cure(&key, walls);
    Err(format!(
        "agentbox: your git signs, and this run's git does not: {cure}"
    ))
}

/// A run may have written it: the line names no key.
fn by_repository(walls: Walls) -> String {
    let cure = cure("KEY", walls);
    format!(
        "agentbox: this repository's .git/config makes git sign, and this run's git does not: if you want that, {cure}"
    )
}

/// Landlock's walls refuse the option.
fn cure(key: &str, walls: Walls) -> String {
    match walls {
        Walls::Namespaces => {
            format!("--ssh-agent={key} lets it sign with that key of your agent")
        }
        Walls::Landlock => "commit outside".to_owned(),
    }
}

/// Whether a `user.signingkey` is a file outside of the repository at `top`, which a sandbox lacks.
fn is_file_elsewhere(value: &str, top: Option<&Path>) -> bool {
    value.starts_with(['/', '~']) && !top.is_some_and(|top| Path::new(value).starts_with(top))
}

/// Whether a `user.signingkey` is an id of gpg's, which is left over where `gpg.format` became `ssh`.
fn is_gpgs(value: &str) -> bool {
    let is_ssh = value.starts_with("key::") || value.starts_with("ssh-") || value.ends_with(".pub");
    !is_ssh && !value.contains(['/', '~'])
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
        assert_eq!(
            value_of(text, ("user", "signingkey")).as_deref(),
            Some("~/.ssh/work.pub")
        );
        assert_eq!(settings.signed, ["commit"]);
        let made = settings.configuration(KEY).unwrap();
        assert!(made.contains("signingkey = \"ssh-ed25519 AAAA"), "{made}");
        assert!(made.ends_with("[commit]\n\tgpgsign = true\n"), "{made}");
        assert!(!made.contains("evil") && !made.contains("work"), "{made}");
        for other in [
            "",
            "[commit]\ngpgsign = true\n",
            "[gpg]\nformat = openpgp\n",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        // The user's own files may leave the format to the repository's.
        assert_eq!(signed("[commit]\ngpgsign = true\n"), ["commit"]);
        assert!(signed("[gpg]\nformat = ssh\n").is_empty());
    }

    #[test]
    fn landlocks_walls_are_offered_no_agent() {
        assert!(by_repository(Walls::Namespaces).contains("--ssh-agent=KEY"));
        let landlock = by_repository(Walls::Landlock);
        assert!(landlock.ends_with("commit outside"), "{landlock}");
    }

    #[test]
    fn git_is_configured_only_for_a_key_that_the_relay_offers() {
        let settings = SigningSettings {
            signed: vec!["commit", "tag"],
        };
        let public = of_public_file(KEY).unwrap();
        let made = settings.offered(KEY, |key| key == public).unwrap();
        assert!(
            made.ends_with("[commit]\n\tgpgsign = true\n[tag]\n\tgpgsign = true\n"),
            "{made}"
        );
        assert_eq!(settings.offered(KEY, |_| false), None);
        for none in ["", "ssh-ed25519", "ssh-ed25519 AAAA", "-----BEGIN"] {
            assert_eq!(settings.offered(none, |_| true), None, "{none}");
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
