//! SHELL. The user's own SSH agent, and the keys that `--ssh-agent` lists.
//!
//! The agent is the one of SSH_AUTH_SOCK. Its socket counts only where no sandbox could have made it: else a sandbox
//! could be asked for signatures, and answer in the agent's place. The socket is pinned, so that no other takes its
//! place later.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::error::WrapRefusal;
use super::person::{Environment, Person};
use super::request::WrapRequest;
use super::settings::places;
use super::{own_file, planted, workspace};
use crate::egress::ssh::agent::{LIST, body_length, framed, identities};
use crate::egress::ssh::key::{ListedKey, of_public_file, public_line};
use crate::kernel::mount_options::MountReach;
use crate::plan::signing::SSH_VARIABLE;
use crate::policy::{Field, FieldOption, SshFingerprint};
use crate::runtime::user_relay::UserAgent;
use crate::sys::mount::copy;
use crate::sys::path::resolve_owned;
use crate::sys::socket;
use crate::sys::user_namespace;
use crate::text::escape;

/// For the agent's list of keys.
const WITHIN: Duration = Duration::from_secs(10);

/// An agent, and the keys that it has.
pub struct FoundAgent {
    /// Its socket, pinned.
    socket: OwnedFd,
    keys: Vec<FoundKey>,
}

/// A key of the agent's.
struct FoundKey {
    listed: ListedKey,
    /// As a line of a `.pub` file; `None` for a certificate.
    line: Option<String>,
    comment: String,
}

/// The keys that a name says.
#[derive(Debug, Clone, Copy)]
struct KeySelection {
    /// The fingerprint, which the key and its certificates share.
    shown: SshFingerprint,
    /// Only this certificate, if the name is that of its file.
    exact: Option<SshFingerprint>,
}

fn refused(why: String) -> WrapRefusal {
    WrapRefusal::SshAgent(why)
}

impl WrapRequest {
    /// Adds the keys of `--ssh-agent` to the request: those that the names say, or all that the agent has.
    ///
    /// # Errors
    /// There is no agent, or not such a key.
    pub fn settle_ssh_keys(&mut self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let mut agent = FoundAgent::open(self)?;
        let named: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|n| !n.is_empty())
            .collect();
        let keys: BTreeSet<SshFingerprint> = match named.is_empty() {
            true => agent.keys.iter().map(|key| key.listed.shown).collect(),
            false => {
                let selected = agent.named(&named, self)?;
                narrow(&mut agent.keys, &selected);
                selected.iter().map(|one| one.shown).collect()
            }
        };
        if keys.is_empty() {
            bail!(refused("your SSH agent has no key: ssh-add one".to_owned()));
        }
        if named.is_empty() {
            let all: Vec<String> = agent.keys.iter().map(FoundKey::words).collect();
            self.warnings.push(format!(
                "agentbox: --ssh-agent lists no key, so all of your agent's sign, and log in wherever they are accepted, \
                 whatever hosts are allowed: {}",
                all.join(", ")
            ));
        }
        for key in &keys {
            let key = key.to_string();
            let option = FieldOption::adding("--ssh-agent", Field::NetworkSshKeys, &key);
            self.asked.options.push(option);
        }
        self.ssh_agent = Some(agent);
        Ok(())
    }

    /// The agent for a run that signs with these keys; `None` without a key.
    ///
    /// # Errors
    /// There is no agent, or it lacks one of them.
    pub fn signer(&self, keys: &BTreeSet<SshFingerprint>) -> Result<Option<UserAgent>> {
        if keys.is_empty() {
            return Ok(None);
        }
        let opened;
        let agent = match &self.ssh_agent {
            Some(agent) => agent,
            // The policy, or settings, list the keys.
            None => {
                opened = FoundAgent::open(self)?;
                &opened
            }
        };
        let has = |key: &SshFingerprint| agent.keys.iter().any(|own| own.listed.shown == *key);
        if let Some(missing) = keys.iter().find(|key| !has(key)) {
            bail!(lacks(&missing.to_string()));
        }
        let socket = copy(&agent.socket, MountReach::One).map_err(|error| {
            refused(format!(
                "its socket cannot be mounted for the relay ({error})"
            ))
        })?;
        Ok(Some(UserAgent {
            ids: self.person.ids(),
            socket,
            keys: agent.keys.iter().map(|key| key.listed).collect(),
            comments: agent
                .keys
                .iter()
                .map(|key| (key.listed.shown, key.comment.clone()))
                .collect(),
        }))
    }
}

fn lacks(key: &str) -> WrapRefusal {
    // The private key lies beside the public one.
    let private = key.strip_suffix(".pub").filter(|path| path.contains('/'));
    let add = match private {
        Some(path) => format!("ssh-add {} adds it", escape(path)),
        None => "ssh-add adds one".to_owned(),
    };
    refused(format!(
        "your SSH agent has no key {}: `ssh-add -l` lists its keys, {add}",
        escape(key)
    ))
}

impl FoundKey {
    fn words(&self) -> String {
        format!("{} ({})", self.listed.shown, escape(&self.comment))
    }
}

impl FoundAgent {
    fn open(wanted: &WrapRequest) -> Result<Self> {
        let person = &wanted.person;
        let Some(path) = std::env::var_os(SSH_VARIABLE).filter(|path| !path.is_empty()) else {
            bail!(refused(match person.environment {
                Environment::Own => format!(
                    "{SSH_VARIABLE} is not set: start an agent (eval \"$(ssh-agent)\"), and ssh-add a key"
                ),
                Environment::Changed => format!(
                    "{SSH_VARIABLE} is not set: sudo removed it; use sudo --preserve-env={SSH_VARIABLE}"
                ),
            }));
        };
        let path = PathBuf::from(path);
        let written: Vec<PathBuf> = wanted.written();
        let socket = person.looking(|| pinned(&path, person, &written))??;
        let answer = person
            .connect_pinned(socket.as_fd(), &person.groups)
            .and_then(|stream| listed(stream.into(), person))
            .map_err(|error| refused(format!("the agent at {path:?} does not answer ({error})")))?;
        let Some(all) = identities(&answer) else {
            bail!(refused(format!(
                "{path:?} is no SSH agent's socket: it answers otherwise"
            )));
        };
        let keys = all.iter().map(|one| FoundKey {
            listed: ListedKey::of(one.key),
            line: public_line(one.key),
            comment: String::from_utf8_lossy(one.comment).into_owned(),
        });
        Ok(Self {
            keys: keys.collect(),
            socket,
        })
    }

    /// Whether the relay of a run with these keys offers exactly this one.
    pub fn offers(&self, key: &[u8], keys: &BTreeSet<SshFingerprint>) -> bool {
        let asked = ListedKey::of(key);
        keys.contains(&asked.shown) && self.keys.iter().any(|own| own.listed == asked)
    }

    /// The only one of these keys, as a line of a `.pub` file.
    pub fn only(&self, keys: &BTreeSet<SshFingerprint>) -> Option<&str> {
        let own = self.keys.iter();
        let mut lines = own
            .filter(|key| keys.contains(&key.listed.shown))
            .map(|key| &key.line);
        match (lines.next(), lines.next()) {
            (Some(line), None) => line.as_deref(),
            _ => None,
        }
    }

    /// The keys that these names say: fingerprints, comments, and `.pub` files.
    fn named(&self, names: &[&str], wanted: &WrapRequest) -> Result<Vec<KeySelection>> {
        names.iter().map(|name| self.find(name, wanted)).collect()
    }

    fn find(&self, name: &str, wanted: &WrapRequest) -> Result<KeySelection> {
        let is_comment = self.keys.iter().any(|key| key.comment == name);
        let selection = match name.parse() {
            Ok(shown) => Some(KeySelection { shown, exact: None }),
            // The comment of a key may be a path too.
            Err(_) if name.contains('/') && !is_comment => {
                let person = &wanted.person;
                Some(person.looking(|| of_file(Path::new(name), person))??)
            }
            Err(_) => None,
        };
        let fits = |key: &&FoundKey| match selection {
            Some(selection) => selection.fits(key.listed),
            None => key.comment == name,
        };
        // A certificate has its key's fingerprint.
        let found: BTreeMap<_, _> = self
            .keys
            .iter()
            .filter(fits)
            .map(|key| (key.listed.shown, key.words()))
            .collect();
        let mut all = found.into_iter();
        match (all.next(), all.next()) {
            (Some((shown, _)), None) => {
                Ok(selection.unwrap_or(KeySelection { shown, exact: None }))
            }
            (None, _) => bail!(lacks(name)),
            (Some((_, one)), Some((_, other))) => bail!(refused(format!(
                "{} is the comment of {one} and {other}: name the key by its fingerprint",
                escape(name)
            ))),
        }
    }
}

impl KeySelection {
    fn fits(self, key: ListedKey) -> bool {
        self.shown == key.shown && self.exact.is_none_or(|exact| exact == key.exact)
    }

    /// Of the key in a `.pub` file.
    fn of(key: &[u8]) -> Self {
        let ListedKey { exact, shown } = ListedKey::of(key);
        Self {
            shown,
            // A certificate may be meant because it ends, or logs in at some hosts alone.
            exact: (exact != shown).then_some(exact),
        }
    }
}

/// Takes away what has the fingerprint of a named certificate, and is not named itself.
fn narrow(keys: &mut Vec<FoundKey>, selected: &[KeySelection]) {
    keys.retain(|key| {
        let mut same = selected.iter().filter(|one| one.shown == key.listed.shown);
        // The policy may list others.
        same.clone().next().is_none() || same.any(|one| one.fits(key.listed))
    });
}

/// The key of a `.pub` file, which no sandbox could have written.
fn of_file(path: &Path, person: &Person) -> Result<KeySelection> {
    let real = planted::named(path, person);
    let real = real.map_err(|error| refused(format!("{path:?}: {error}")))?;
    let directory = real.parent().unwrap_or(&real);
    if !is_closed(person, directory) {
        bail!(refused(format!(
            "a sandbox could have written {path:?}: keep it in ~/.ssh, or name the key by its fingerprint (ssh-add -l)"
        )));
    }
    let text = own_file::read_trusted_resolved(&real, person)?;
    match of_public_file(&text) {
        Some(key) => Ok(KeySelection::of(&key)),
        None => bail!(refused(format!(
            "{path:?} has no public key of SSH's: name a .pub file"
        ))),
    }
}

/// Opens a socket that no sandbox could have made. To be called with the user's rights over files.
fn pinned(path: &Path, person: &Person, written: &[PathBuf]) -> Result<OwnedFd> {
    let unsafe_place = |why: String| {
        refused(format!(
            "{SSH_VARIABLE}={path:?} does not count: {why}; start the agent without -a, or keep its socket in ~/.ssh"
        ))
    };
    if !path.is_absolute() {
        bail!(unsafe_place("it is relative".to_owned()));
    }
    let real = planted::named(path, person).map_err(|error| unsafe_place(error.to_string()))?;
    resolve_owned(path, person.uid).map_err(|error| unsafe_place(error.to_string()))?;
    let directory = real.parent().unwrap_or(&real);
    let is_written = written.iter().any(|place| real.starts_with(place));
    if is_written
        || !(is_closed(person, directory) || is_agents_own(directory, &workspace::temporaries()))
    {
        bail!(unsafe_place("a sandbox could have made it".to_owned()));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let socket = rustix::fs::openat2(CWD, &real, flags, Mode::empty(), links)
        .map_err(|error| unsafe_place(error.to_string()))?;
    let found = std::fs::File::from(socket);
    let stat = found
        .metadata()
        .map_err(|error| unsafe_place(error.to_string()))?;
    if !stat.file_type().is_socket() {
        bail!(unsafe_place("it is not a socket".to_owned()));
    }
    if !person.owns(&stat) {
        let owner = user_namespace::owner(stat.uid());
        bail!(unsafe_place(format!(
            "it belongs to user {owner}, and the command runs as {}",
            person.name()
        )));
    }
    Ok(found.into())
}

/// Where users keep sockets and public keys: credentials, which no sandbox mounts. Not all credentials are closed: an
/// agent's home, below agentbox's own state, is written by its sandboxes.
const KEPT: [&str; 2] = [".ssh", ".gnupg"];

/// Whether no sandbox writes a directory: none mounts it, or it is one of [`KEPT`].
fn is_closed(person: &Person, directory: &Path) -> bool {
    let mut homes = places::homes(person);
    places::no_sandbox_writes(person, directory)
        || homes.any(|home| {
            KEPT.iter()
                .any(|name| directory.starts_with(home.join(name)))
        })
}

/// Whether a directory is one that OpenSSH made: a private `ssh-*` in root's own temporary directories. No sandbox makes
/// one there, and none has one for its workspace ([`workspace::check_state`]).
fn is_agents_own(directory: &Path, temporaries: &[PathBuf]) -> bool {
    /// Everybody makes entries, and each replaces only its own.
    const SHARED: u32 = 0o1002;
    let above = directory.parent().unwrap_or(directory);
    let is_shared = above.metadata().is_ok_and(|stat| {
        let owner = stat.uid();
        let is_roots = user_namespace::owner(owner) == 0 || user_namespace::is_unmapped(owner);
        is_roots && stat.mode() & SHARED == SHARED
    });
    let is_private = directory
        .metadata()
        .is_ok_and(|stat| stat.mode() & 0o077 == 0);
    is_shared
        && is_private
        && temporaries.iter().any(|temporary| temporary == above)
        && workspace::is_of_agents(directory, temporaries)
}

/// Asks for the list of keys, and returns the answer.
fn listed(mut stream: UnixStream, person: &Person) -> io::Result<Vec<u8>> {
    let peer = user_namespace::owner(socket::peer_uid(stream.as_fd())?);
    if peer != person.uid && peer != 0 && !user_namespace::is_unmapped(peer) {
        return Err(io::Error::other(format!("it is the agent of user {peer}")));
    }
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    stream.write_all(&framed(LIST))?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = body_length(head).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = include_str!("../egress/ssh/samples/key.pub");
    const CERT: &str = include_str!("../egress/ssh/samples/key-cert.pub");

    fn keys() -> Vec<FoundKey> {
        let of = |key: &[u8]| FoundKey {
            line: None,
            listed: ListedKey::of(key),
            comment: String::new(),
        };
        let files = [KEY, CERT].map(|text| of(&of_public_file(text).unwrap()));
        files.into_iter().chain([of(b"other")]).collect()
    }

    #[test]
    fn a_named_certificate_takes_its_key_away_and_a_named_key_not_its_certificate() {
        let select = |text: &str| KeySelection::of(&of_public_file(text).unwrap());
        let (key, cert, other) = (select(KEY), select(CERT), KeySelection::of(b"other"));
        assert_eq!(key.shown, cert.shown);
        let left = |selected: &[KeySelection]| {
            let mut all = keys();
            narrow(&mut all, selected);
            let exact: Vec<_> = all.into_iter().map(|key| key.listed.exact).collect();
            exact
        };
        let [plain, signed, strange] = <[_; 3]>::try_from(left(&[])).unwrap();
        assert_eq!(left(&[key]), [plain, signed, strange]);
        assert_eq!(left(&[other]), [plain, signed, strange]);
        assert_eq!(left(&[cert]), [signed, strange]);
        assert_eq!(left(&[cert, key]), [plain, signed, strange]);
    }

    /// A sandbox makes `ssh-x` in its workspace, and gives that the sticky bit.
    #[test]
    fn a_directory_of_agents_is_one_in_the_temporary_directories_alone() {
        let made = |base: &Path| nix::unistd::mkdtemp(&base.join("ssh-XXXXXX")).unwrap();
        let chmod = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        let temporaries = workspace::temporaries();
        let real = made(&temporaries[0]);
        let base = nix::unistd::mkdtemp(&temporaries[0].join("agentbox-test-XXXXXX")).unwrap();
        let planted = made(&base);
        for mode in [0o755, 0o1755, 0o1777] {
            chmod(&base, mode);
            assert!(!is_agents_own(&planted, &temporaries), "{mode:o}");
            // Whatever its name and place: a directory of the user's is no temporary one.
            let owner = base.metadata().unwrap().uid();
            let is_roots = user_namespace::owner(owner) == 0;
            let named = is_agents_own(&planted, std::slice::from_ref(&base));
            assert_eq!(named, is_roots && mode == 0o1777, "{mode:o}");
        }
        // The control.
        assert!(is_agents_own(&real, &temporaries));
        chmod(&real, 0o750);
        assert!(!is_agents_own(&real, &temporaries));
        let below = made(&real);
        assert!(!is_agents_own(&below, &temporaries));
        for path in [real, base] {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}
