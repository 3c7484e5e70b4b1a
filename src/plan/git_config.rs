//! PURE. Git's settings files (git-config(1)), read without git: which settings may name programs or files, and the
//! text without those. Only settings known to be harmless stay (`policies/protected.toml`): a list of harmful ones
//! would never be complete.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

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

/// Git would not accept the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoGitConfig;

/// Keys of settings that name no program and no file. `*` in the middle stands for a subsection.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HarmlessSettings {
    keys: BTreeSet<String>,
}

impl HarmlessSettings {
    /// Whether a setting names no program and no file. A url with `::` names a program of git's, `git-remote-NAME`, and
    /// may stand in place of a remote's name.
    fn has(&self, setting: &GitSetting) -> bool {
        let key = &setting.key;
        let remote = [&b"url"[..], b"remote", b"pushdefault"];
        if remote.iter().any(|end| key.ends_with(end))
            && setting.value.windows(2).any(|two| two == b"::")
        {
            return false;
        }
        let first = key.iter().position(|byte| *byte == b'.');
        let last = key.iter().rposition(|byte| *byte == b'.');
        let (Some(first), Some(last)) = (first, last) else {
            return false;
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (section, name) = (text(&key[..first]), text(&key[last + 1..]));
        self.keys.contains(&match first == last {
            true => format!("{section}.{name}"),
            false => format!("{section}.*.{name}"),
        })
    }

    /// The settings that are not harmless and are new; `before` has the hashes of the old ones.
    pub(super) fn refused<'a>(
        &self,
        settings: &'a [GitSetting],
        (path, before): (&Path, &BTreeSet<String>),
    ) -> Vec<&'a GitSetting> {
        let refused = |one: &&GitSetting| !self.has(one) && !before.contains(&one.hash(path));
        settings.iter().filter(refused).collect()
    }

    /// The hashes of the settings that are not harmless.
    pub(super) fn hashes(&self, settings: &[GitSetting], path: &Path) -> BTreeSet<String> {
        let named = settings.iter().filter(|one| !self.has(one));
        named.map(|one| one.hash(path)).collect()
    }
}

impl GitSetting {
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

/// The text without the given settings. Their lines go too, unless something else is on them.
pub fn without(text: &[u8], taken: &[&GitSetting]) -> Vec<u8> {
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
    while let Some(byte) = reader.peek() {
        match byte {
            b'#' | b';' => reader.skip_line(),
            b'[' => section = reader.section()?,
            _ if byte.is_ascii_whitespace() || byte == 0x0b => reader.at += 1,
            _ if byte.is_ascii_alphabetic() && !section.is_empty() => {
                all.push(reader.setting(&section)?);
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
            let left = without(text.as_bytes(), &taken);
            assert_eq!(String::from_utf8(left).unwrap(), rest);
        }
    }

    #[test]
    fn a_program_in_place_of_a_remotes_name_is_taken_out() {
        let harmless = ProtectedList::builtin().harmless();
        let left = |value: &str| {
            let text = format!(
                "[branch \"a\"]\n\tremote = {value}\n\tpushRemote = {value}\n[remote]\n\tpushDefault = {value}\n"
            );
            let settings = parse(text.as_bytes()).unwrap();
            let path = Path::new(".git/config");
            harmless.refused(&settings, (path, &BTreeSet::new())).len()
        };
        assert_eq!(
            [left("origin"), left("https://h/x"), left("hg::x")],
            [0, 0, 3]
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
                   [branch \"a.b\"]\n\tremote = origin\n[filter \"x\"]\n\tclean = sh\n[include]\n\tpath = ../x\n[url \"y\"]\n\tinsteadOf = z\n\
                   [alias]\n\tst = !sh\n[remote \"o\"]\n\turl = x\n\tuploadpack = sh\n[credential]\n\thelper = x\n[diff \"x\"]\n\ttextconv = x\n\
                   [gpg]\n\tprogram = x\n[protocol \"ext\"]\n\tallow = always\n[submodule \"x\"]\n\tupdate = !x\n[remote \"p\"]\n\turl = ext::sh\n\tpromisor = true\n[core]\n\tpager = more\n";
        let settings = parse(now.as_bytes()).unwrap();
        let refused = harmless.refused(&settings, (path, &known));
        let rest = without(now.as_bytes(), &refused);
        let rest = String::from_utf8(rest).unwrap();
        assert_eq!(
            keys(&rest),
            [
                "core.bare=true",
                "core.pager=less",
                "user.email=a@b",
                "branch.a.b.remote=origin",
                "remote.o.url=x"
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
