//! PURE. Git's settings files (git-config(1)), read without git: which settings may name programs or files, and the
//! text without those. Only settings known to be harmless stay (`policies/protected.toml`): a list of harmful ones
//! would never be complete.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::git_remote::{
    NOWHERE, is_elsewhere, is_pushed_branch, is_remote_name, pushes_current_branch,
    writes_remote_refs,
};

/// The most bytes of all keys of a file.
const KEYS: usize = 8 << 20;

/// A setting of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSetting {
    /// Section and name in lower case, with the subsection as it is: `remote.origin.url`.
    pub key: Vec<u8>,
    /// The value, without quotes.
    pub value: Vec<u8>,
    /// Its bytes in the file, without the line's end.
    pub raw: Vec<u8>,
    /// Where it is in the file, from the name to the end of the line.
    pub range: Range<usize>,
}

/// Git would not accept the file, or it has more than anyone's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoGitConfig;

/// Keys of settings that name no program and no file. `*` in the middle stands for a subsection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HarmlessSettings {
    keys: BTreeSet<String>,
    /// With an address of another machine.
    urls: BTreeSet<String>,
    /// With a remote of the same file.
    remotes: BTreeSet<String>,
    /// With a refspec that writes only what comes from a remote.
    refspecs: BTreeSet<String>,
    /// With a branch, and no replaced object.
    merges: BTreeSet<String>,
    /// With a refspec that sends the current branch alone.
    pushes: BTreeSet<String>,
    /// With one of these values.
    values: BTreeMap<String, BTreeSet<String>>,
}

impl HarmlessSettings {
    /// Whether a setting names no program and no file. `remotes` has the names of the file's remotes.
    fn has(&self, setting: &GitSetting, remotes: &BTreeSet<&[u8]>) -> bool {
        let (Some(key), value) = (setting.listed_key(), &setting.value[..]) else {
            return false;
        };
        // A push to the repository itself would write its replaced objects.
        let is_itself = setting.key.starts_with(b"remote..");
        // A branch that follows one of the same repository.
        let follows_own = value == b"." && key == "branch.*.remote";
        !is_itself && self.keys.contains(&key) && !is_option(value)
            || self.urls.contains(&key) && is_elsewhere(value)
            || self.remotes.contains(&key)
                && (follows_own || remotes.contains(value) || is_elsewhere(value))
            || self.refspecs.contains(&key) && !is_itself && writes_remote_refs(value)
            || self.merges.contains(&key) && is_pushed_branch(value)
            || self.pushes.contains(&key) && !is_itself && pushes_current_branch(value)
            || self.has_value(&key, value)
    }

    fn has_value(&self, key: &str, value: &[u8]) -> bool {
        let mut known = self.values.get(key).into_iter().flatten();
        known.any(|known| known.as_bytes() == value)
    }

    /// The settings that are not harmless and are new; `before` has the hashes of the old ones.
    pub(super) fn refused<'a>(
        &self,
        settings: &'a [GitSetting],
        (path, before): (&Path, &BTreeSet<String>),
    ) -> Vec<&'a GitSetting> {
        let stays = |one: &&GitSetting, remotes: &BTreeSet<&[u8]>| {
            self.has(one, remotes) || before.contains(&one.hash(path))
        };
        // An address that is taken out is replaced, so it keeps the name.
        let remotes = settings.iter().filter_map(GitSetting::remote_with_url);
        let remotes = remotes.filter(|name| is_remote_name(name)).collect();
        let refused = settings.iter().filter(|one| !stays(one, &remotes));
        refused.collect()
    }

    /// The hashes of the settings that are not harmless.
    pub(super) fn hashes(&self, settings: &[GitSetting], path: &Path) -> BTreeSet<String> {
        let named = self.refused(settings, (path, &BTreeSet::new()));
        named.into_iter().map(|one| one.hash(path)).collect()
    }
}

/// Whether a tool that puts a value into a command would get an option, such as `git rebase --exec=...` of a branch's parent.
fn is_option(value: &[u8]) -> bool {
    value.starts_with(b"-") && !value.get(1).is_some_and(u8::is_ascii_digit)
}

impl GitSetting {
    /// Its key as the list writes it; `None` if it has no section.
    fn listed_key(&self) -> Option<String> {
        let (section, name) = self.ends()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (section, name) = (text(&self.key[..section]), text(&self.key[name..]));
        let has_subsection = self.key.len() > section.len() + 1 + name.len();
        Some(match has_subsection {
            false => format!("{section}.{name}"),
            true => format!("{section}.*.{name}"),
        })
    }

    /// The name of the remote that has this URL; `None` if it is another setting.
    fn remote_with_url(&self) -> Option<&[u8]> {
        self.key.strip_prefix(b"remote.")?.strip_suffix(b".url")
    }

    /// Where the section ends in its key, and where the name begins.
    fn ends(&self) -> Option<(usize, usize)> {
        let first = self.key.iter().position(|byte| *byte == b'.')?;
        let last = self.key.iter().rposition(|byte| *byte == b'.')?;
        Some((first, last + 1))
    }

    /// Represents the setting in a plan: its value may be a secret. Another spelling is another setting, so that nothing
    /// depends on how quotes and blanks are read.
    fn hash(&self, path: &Path) -> String {
        hash([path.as_os_str().as_encoded_bytes(), &self.key, &self.raw])
    }
}

fn hash(parts: [&[u8]; 3]) -> String {
    HEXLOWER.encode(digest(&SHA256, &parts.join(&0)).as_ref())
}

/// What git would read settings from.
#[derive(Debug, Clone, Copy)]
pub enum WholeSettings<'a> {
    /// A file's text.
    Text(&'a [u8]),
    /// A link's target.
    Link(&'a [u8]),
}

impl WholeSettings<'_> {
    /// Represents all of it in a plan: what is the same at the end needs no reading. No key of a setting is that short.
    pub fn hash(self, path: &Path) -> String {
        let (kind, bytes) = match self {
            Self::Text(text) => (b"=", text),
            Self::Link(target) => (b">", target),
        };
        hash([path.as_os_str().as_encoded_bytes(), kind, bytes])
    }
}

/// The names of the remotes that have an address. First those that a plain `git push` or `git pull` takes.
pub fn remotes(settings: &[GitSetting]) -> Vec<String> {
    let with_url = settings.iter().filter(|one| !one.value.is_empty());
    let named: BTreeSet<&[u8]> = with_url.filter_map(GitSetting::remote_with_url).collect();
    let followed: BTreeSet<&[u8]> = followed(settings).collect();
    let mut all: Vec<&[u8]> = named.into_iter().collect();
    all.sort_by_key(|name| (*name != b"origin", !followed.contains(name)));
    all.into_iter()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

/// The remotes of branches, and that of a push.
fn followed(settings: &[GitSetting]) -> impl Iterator<Item = &[u8]> {
    let of_branch = |one: &&GitSetting| {
        let key = one.key.as_slice();
        let is_branch = key.starts_with(b"branch.")
            && (key.ends_with(b".remote") || key.ends_with(b".pushremote"));
        is_branch || key == b"remote.pushdefault"
    };
    let names = settings.iter().filter(of_branch);
    names.map(|one| one.value.as_slice())
}

/// The text without some of its settings. Their lines go too, unless something else is on them. A remote that would be left without
/// an address gets one that leads nowhere.
pub fn without(text: &[u8], settings: &[GitSetting], taken: &[&GitSetting]) -> Vec<u8> {
    let is_kept = |one: &&GitSetting| !taken.iter().any(|taken| taken.range == one.range);
    let with_url = |one: &&GitSetting| !one.value.is_empty();
    let kept = settings.iter().filter(with_url).filter(is_kept);
    let mut addressed: BTreeSet<&[u8]> = kept.filter_map(GitSetting::remote_with_url).collect();
    let mut rest = Vec::new();
    let mut at = 0;
    for setting in taken {
        let mut before = &text[at..setting.range.start];
        while let [shorter @ .., b' ' | b'\t'] = before {
            before = shorter;
        }
        rest.extend_from_slice(before);
        // A setting may follow its section on one line.
        if rest.last().is_some_and(|last| *last != b'\n') {
            rest.push(b'\n');
        }
        if setting
            .remote_with_url()
            .is_some_and(|name| addressed.insert(name))
        {
            rest.extend([b"\turl = ", NOWHERE, b"\n"].concat());
        }
        at = setting.range.end;
    }
    rest.extend_from_slice(&text[at..]);
    rest
}

/// Reads a file as git does (git_parse_source in its config.c).
pub fn parse(text: &[u8]) -> Result<Vec<GitSetting>, NoGitConfig> {
    // For git a key ends there, and the rest of it is ours alone.
    if text.contains(&0) {
        return Err(NoGitConfig);
    }
    let at = if text.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let mut reader = ConfigReader { text, at };
    let (mut section, mut all) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    while let Some(byte) = reader.peek() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => section = reader.section()?,
            _ if byte.is_ascii_whitespace() || byte == 0x0b => reader.at += 1,
            _ if byte.is_ascii_alphabetic() && !section.is_empty() => {
                let setting = reader.setting(&section)?;
                bytes += setting.key.len();
                // Each has its section's name again, which may be as long as the file.
                if bytes > KEYS {
                    return Err(NoGitConfig);
                }
                all.push(setting);
            }
            _ => return Err(NoGitConfig),
        }
    }
    Ok(all)
}

struct ConfigReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl ConfigReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// The next byte. A carriage return before a newline is skipped, and the end of the file ends a line.
    fn next(&mut self) -> u8 {
        if self.text[self.at.min(self.text.len())..].starts_with(b"\r\n") {
            self.at += 1;
        }
        let byte = self.peek().unwrap_or(b'\n');
        self.at = (self.at + 1).min(self.text.len());
        byte
    }

    fn skip_line(&mut self) {
        while self.at < self.text.len() && self.next() != b'\n' {}
    }

    /// `[section]`, `[section.sub]` or `[section "sub"]`.
    fn section(&mut self) -> Result<Vec<u8>, NoGitConfig> {
        self.at += 1;
        let mut name = Vec::new();
        loop {
            match self.next() {
                b']' if !name.is_empty() => return Ok(name),
                byte if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.' => {
                    name.push(byte.to_ascii_lowercase());
                }
                b' ' | b'\t' | 0x0b | 0x0c => break,
                _ => return Err(NoGitConfig),
            }
        }
        while self
            .peek()
            .is_some_and(|byte| byte != b'\n' && byte.is_ascii_whitespace())
        {
            self.at += 1;
        }
        if self.next() != b'"' {
            return Err(NoGitConfig);
        }
        name.push(b'.');
        loop {
            match self.next() {
                b'\n' => return Err(NoGitConfig),
                b'"' => break,
                b'\\' => match self.next() {
                    b'\n' => return Err(NoGitConfig),
                    byte => name.push(byte),
                },
                byte => name.push(byte),
            }
        }
        match self.next() {
            b']' => Ok(name),
            _ => Err(NoGitConfig),
        }
    }

    fn setting(&mut self, section: &[u8]) -> Result<GitSetting, NoGitConfig> {
        let start = self.at;
        let mut key = [section, b"."].concat();
        while let Some(byte) = self.peek()
            && (byte.is_ascii_alphanumeric() || byte == b'-')
        {
            key.push(byte.to_ascii_lowercase());
            self.at += 1;
        }
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let value = match self.next() {
            b'\n' => Vec::new(),
            b'=' => self.value()?,
            _ => return Err(NoGitConfig),
        };
        let raw = &self.text[start..self.at];
        Ok(GitSetting {
            key,
            value,
            raw: raw.strip_suffix(b"\n").unwrap_or(raw).to_vec(),
            range: start..self.at,
        })
    }

    fn value(&mut self) -> Result<Vec<u8>, NoGitConfig> {
        let (mut value, mut quoted) = (Vec::new(), false);
        // Its length without blanks at the end that are in no quotes.
        let mut solid = 0;
        loop {
            match self.next() {
                b'\n' if quoted => return Err(NoGitConfig),
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.skip_line();
                    break;
                }
                blank @ (b' ' | b'\t' | b'\r') if !quoted => {
                    if !value.is_empty() {
                        value.push(blank);
                    }
                    continue;
                }
                b'"' => quoted = !quoted,
                b'\\' => match self.next() {
                    b'\n' if self.at >= self.text.len() => return Err(NoGitConfig),
                    b'\n' => {}
                    b't' => value.push(b'\t'),
                    b'b' => value.push(8),
                    b'n' => value.push(b'\n'),
                    byte @ (b'\\' | b'"') => value.push(byte),
                    _ => return Err(NoGitConfig),
                },
                byte => value.push(byte),
            }
            solid = value.len();
        }
        value.truncate(solid);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::protect::ProtectedList;
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        let all = parse(text.as_bytes()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        all.iter()
            .map(|one| format!("{}={}", text(&one.key), text(&one.value)))
            .collect()
    }

    #[test]
    fn a_file_is_read_as_git_reads_it() {
        let text = "\u{feff}# c\n[Core]\n\tBare = false ; c\r\n[core] fsmonitor=a \\\n b\n[remote \"Or\\\"i.gin\"]\n url = \"x # y\" z\n\
                    [a.B]c\n[alias]x=!sh\\n\n";
        assert_eq!(
            keys(text),
            [
                "core.bare=false",
                "core.fsmonitor=a  b",
                "remote.Or\"i.gin.url=x # y z",
                "a.b.c=",
                "alias.x=!sh\n"
            ]
            .map(str::to_owned)
        );
        for bad in [
            "x=1",
            "[core\n]",
            "[core]\n1x",
            "[c \"a]\n",
            "[c]\nx=\"a\n",
            "[c]\nx=\\q",
            "[]",
            "[c]\nx y",
            "[c \"a.x\0\"]\ny = 1",
            "[c]\nx = a\0",
        ] {
            assert_eq!(parse(bad.as_bytes()), Err(NoGitConfig), "{bad}");
        }
        assert_eq!(keys(""), [""; 0]);
        assert_eq!(keys("[core]\nx = 1"), ["core.x=1"]);
    }

    #[test]
    fn another_spelling_of_a_known_setting_is_new() {
        let harmless = ProtectedList::builtin().harmless();
        let path = Path::new(".git/config");
        let before = b"[core]\n\thooksPath = .githooks";
        let known = harmless.hashes(&parse(before).unwrap(), path);
        let refused = |text: &[u8]| {
            let settings = parse(text).unwrap();
            let values = harmless
                .refused(&settings, (path, &known))
                .into_iter()
                .map(|one| String::from_utf8(one.value.clone()).unwrap());
            values.collect::<Vec<_>>()
        };
        assert_eq!(refused(before), [""; 0]);
        assert_eq!(
            refused(&[before, &b"\n[a]\n"[..]].concat()),
            [""; 0],
            "a line is added"
        );
        for (value, read) in [
            ("\".githooks \"", ".githooks "),
            (".githooks\x0c", ".githooks\x0c"),
            ("\" .githooks\" ", " .githooks"),
            (".git\"\"hooks", ".githooks"),
        ] {
            let text = format!("[core]\n\thooksPath = {value}\n");
            assert_eq!(refused(text.as_bytes()), [read], "{value:?}");
        }
    }

    #[test]
    fn nothing_is_left_of_a_line_whose_setting_is_taken_out() {
        for (text, rest) in [
            (
                "[core]\n\tpager = x\n[a]\n\tb = c\n",
                "[core]\n[a]\n\tb = c\n",
            ),
            ("[core]\n \tpager = x", "[core]\n"),
            ("[core] pager = x\n[a]b = c\n", "[core]\n[a]b = c\n"),
            (
                "[core]\r\n\tpager = x \\\n y\r\n\tsshCommand = z # w\r\n\tbare = true\r\n",
                "[core]\r\n\tbare = true\r\n",
            ),
        ] {
            let settings = parse(text.as_bytes()).unwrap();
            let is_taken =
                |one: &&GitSetting| one.key.starts_with(b"core.") && one.key != b"core.bare";
            let taken: Vec<&GitSetting> = settings.iter().filter(is_taken).collect();
            let left = without(text.as_bytes(), &settings, &taken);
            assert_eq!(String::from_utf8(left).unwrap(), rest);
        }
    }

    #[test]
    fn a_program_or_a_path_in_place_of_a_remotes_name_is_taken_out() {
        let harmless = ProtectedList::builtin().harmless();
        let left = |value: &str, more: &str| {
            let text = format!(
                "[branch \"a\"]\n\tremote = {value}\n\tpushRemote = {value}\n[remote]\n\tpushDefault = {value}\n{more}"
            );
            let settings = parse(text.as_bytes()).unwrap();
            let path = Path::new(".git/config");
            harmless.refused(&settings, (path, &BTreeSet::new())).len()
        };
        let url = |url: &str| format!("[remote \"origin\"]\n\turl = {url}\n");
        for (value, more, count) in [
            ("origin", url("git@h:x"), 0),
            // It follows a branch, and is not pushed to.
            (".", String::new(), 2),
            ("https://h/x", String::new(), 0),
            ("hg::x", String::new(), 3),
            ("/srv/x.git", String::new(), 3),
            // A path of this name.
            ("origin", String::new(), 3),
            ("origin", url(""), 1),
            ("origin", url("/srv/x.git"), 1),
            ("other", url("git@h:x"), 3),
            (
                "/srv/x.git",
                "[remote \"/srv/x.git\"]\n\turl = git@h:x\n".to_owned(),
                3,
            ),
            ("..", "[remote \"..\"]\n\turl = git@h:x\n".to_owned(), 3),
        ] {
            assert_eq!(left(value, &more), count, "{value} {more}");
        }
    }

    #[test]
    fn a_remote_keeps_an_address_and_a_users_own_stays_the_first() {
        let harmless = ProtectedList::builtin().harmless();
        let path = Path::new(".git/config");
        let nowhere = "\turl = https://taken-out-by-agentbox.invalid/\n";
        for (text, rest) in [
            (
                "[remote \"o\"]\n\turl = ../x\n",
                format!("[remote \"o\"]\n{nowhere}"),
            ),
            (
                "[remote \"o\"] url = ../x",
                format!("[remote \"o\"]\n{nowhere}"),
            ),
            (
                "[remote \"o\"]\r\n\turl = ../x ; y\r\n[a]\r\n",
                format!("[remote \"o\"]\r\n{nowhere}[a]\r\n"),
            ),
            (
                "[remote \"o\"]\n\turl = ../x\n\turl = ../y\n",
                format!("[remote \"o\"]\n{nowhere}"),
            ),
            (
                "[remote \"o\"]\n\turl = ../x\n\turl = git@h:x\n\turl =\n",
                "[remote \"o\"]\n\turl = git@h:x\n".to_owned(),
            ),
        ] {
            let settings = parse(text.as_bytes()).unwrap();
            let refused = harmless.refused(&settings, (path, &BTreeSet::new()));
            let left = String::from_utf8(without(text.as_bytes(), &settings, &refused)).unwrap();
            assert_eq!(left, rest, "{text}");
            let again = parse(left.as_bytes()).unwrap();
            assert_eq!(
                harmless.refused(&again, (path, &BTreeSet::new())).len(),
                0,
                "{left}"
            );
        }
    }

    /// Each key has the name of its section.
    #[test]
    fn a_file_whose_keys_are_longer_than_anyones_is_none() {
        let text = format!("[a \"{}\"]\n{}", "x".repeat(100_000), "b\n".repeat(100));
        assert_eq!(parse(text.as_bytes()), Err(NoGitConfig));
        let text = format!("[a \"{}\"]\n{}", "x".repeat(100_000), "b\n".repeat(80));
        assert_eq!(parse(text.as_bytes()).map(|all| all.len()), Ok(80));
    }

    #[test]
    fn no_push_to_the_repository_itself_replaces_an_object() {
        let harmless = ProtectedList::builtin().harmless();
        for (text, count) in [
            (
                "[remote \".\"]\npush = x:refs/replace/0\nmirror = true\n",
                2,
            ),
            ("[branch \"a\"]\nremote = .\nmerge = refs/replace/0\n", 1),
            ("[branch \"a\"]\nremote = .\nmerge = x:refs/replace/0\n", 1),
            (
                "[branch \"a\"]\nremote = .\nmerge = refs/heads/x:refs/replace/0\n",
                1,
            ),
            ("[branch \"a\"]\nremote = .\nmerge = refs/heads/x\n", 0),
            ("[branch \"a\"]\npushRemote = .\n", 1),
        ] {
            let settings = parse(text.as_bytes()).unwrap();
            let refused = harmless.refused(&settings, (Path::new(".git/config"), &BTreeSet::new()));
            assert_eq!(refused.len(), count, "{text}");
        }
    }

    #[test]
    fn a_remote_of_the_user_stays_and_its_branches_with_it() {
        let harmless = ProtectedList::builtin().harmless();
        let path = Path::new(".git/config");
        let own = "[remote \"b\"]\n\turl = /srv/x.git\n";
        let known = harmless.hashes(&parse(own.as_bytes()).unwrap(), path);
        assert_eq!(known.len(), 1);
        let now = format!("{own}\tpushurl = ../y\n[branch \"a\"]\n\tremote = b\n");
        let settings = parse(now.as_bytes()).unwrap();
        let refused = harmless.refused(&settings, (path, &known));
        assert_eq!(
            refused.iter().map(|one| &one.key[..]).collect::<Vec<_>>(),
            [b"remote.b.pushurl"]
        );
    }

    #[test]
    fn a_setting_that_hides_changes_is_taken_out() {
        let harmless = ProtectedList::builtin().harmless();
        let text = b"[status]\n\tshowUntrackedFiles = no\n[submodule \"s\"]\n\tignore = all\n[core]\n\ttrustctime = false\n\
                     \tcheckStat = minimal\n[status]\n\tshort = true\n";
        let settings = parse(text).unwrap();
        let refused = harmless.refused(&settings, (Path::new(".git/config"), &BTreeSet::new()));
        assert_eq!(refused.len(), 4);
    }

    #[test]
    fn what_may_name_a_program_and_was_not_there_is_taken_out() {
        let harmless = ProtectedList::builtin().harmless();
        let path = Path::new(".git/config");
        let before = "[core]\n\tbare = false\n\tpager = less\n";
        let known = harmless.hashes(&parse(before.as_bytes()).unwrap(), path);
        assert_eq!(known.len(), 1);
        let now = "[core]\n\tbare = true\n\tpager = less\n\thooksPath = /tmp\n[core]fsmonitor = ./x\n[user]\n\temail = a@b\n\
                   [branch \"a.b\"]\n\tremote = o\n[filter \"x\"]\n\tclean = sh\n[include]\n\tpath = ../x\n[url \"y\"]\n\tinsteadOf = z\n\
                   [alias]\n\tst = !sh\n[remote \"o\"]\n\turl = h:x\n\tuploadpack = sh\n[credential]\n\thelper = x\n[diff \"x\"]\n\ttextconv = x\n\
                   [gpg]\n\tprogram = x\n[protocol \"ext\"]\n\tallow = always\n[submodule \"x\"]\n\tupdate = !x\n[remote \"p\"]\n\turl = ext::sh\n\tpromisor = true\n[core]\n\tpager = more\n";
        let settings = parse(now.as_bytes()).unwrap();
        let refused = harmless.refused(&settings, (path, &known));
        let rest = without(now.as_bytes(), &settings, &refused);
        let rest = String::from_utf8(rest).unwrap();
        assert_eq!(
            keys(&rest),
            [
                "core.bare=true",
                "core.pager=less",
                "user.email=a@b",
                "branch.a.b.remote=o",
                "remote.o.url=h:x",
                "remote.p.url=https://taken-out-by-agentbox.invalid/"
            ]
        );
        assert_eq!(refused.len(), 15);
        // In another file it is new.
        assert_eq!(
            harmless
                .refused(&settings, (Path::new("x/config"), &known))
                .len(),
            16
        );
    }
}
