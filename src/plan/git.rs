//! PURE. A hidden file of a workspace must not look to git like a change. `create` refuses if it would. git learns of
//! the other files through the repository's file for this purpose (info/exclude, gitignore(5)).

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What git makes of a hidden file.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GitState {
    /// Nothing: it is in no work tree, git takes no such file, or git does not look at it.
    #[default]
    Nothing,
    /// Git does not have it, would add it, but cannot.
    Untracked(UntrackedFile),
    /// Git has it with other content: hidden, it would be committed as empty.
    Changed,
    /// It is unknown whether git has it, and why.
    Untold(String),
}

/// A file that git does not track.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UntrackedFile {
    /// The repository's exclude file: relative to the source, or a path of the container if it is in another mount.
    #[serde(with = "super::text::one")]
    pub exclude: PathBuf,
    /// Path in the work tree.
    #[serde(with = "super::text::one")]
    pub name: PathBuf,
}

impl GitState {
    /// Whether git needs no change.
    pub fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

/// What a repository is told to ignore, besides its own lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exclude {
    /// Its exclude file in the container.
    #[serde(with = "super::text::one")]
    pub file: PathBuf,
    /// Paths in its work trees.
    #[serde(with = "super::text::many")]
    pub names: BTreeSet<PathBuf>,
}

impl Exclude {
    /// The file's own lines, then ours, so that ours take effect.
    pub fn text(&self, own: &[u8]) -> Vec<u8> {
        let mut text = own.to_vec();
        if !text.is_empty() && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(b"# agentbox: hidden in this container\n");
        for name in &self.names {
            text.extend(line(name));
        }
        text
    }
}

/// A line that matches exactly one path of a work tree (gitignore(5)). The leading slash removes the special meaning of
/// a first character. No line can hold a newline or end in a carriage return; `?` stands for these.
fn line(name: &Path) -> Vec<u8> {
    let mut out = vec![b'/'];
    for byte in name.as_os_str().as_bytes() {
        match byte {
            b'\n' | b'\r' => out.push(b'?'),
            // Git would cut off a blank at the end.
            b'*' | b'?' | b'[' | b'\\' | b' ' => out.extend([b'\\', *byte]),
            _ => out.push(*byte),
        }
    }
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn our_lines_come_after_the_files_own() {
        let exclude = Exclude {
            file: "/work/.git/info/exclude".into(),
            names: ["sub/.netrc".into()].into(),
        };
        const OURS: &str = "# agentbox: hidden in this container\n/sub/.netrc\n";
        for (own, expect) in [
            ("", OURS.to_owned()),
            ("# a\n", format!("# a\n{OURS}")),
            ("!.netrc", format!("!.netrc\n{OURS}")),
        ] {
            assert_eq!(exclude.text(own.as_bytes()), expect.as_bytes(), "{own:?}");
        }
    }

    /// Each was tried with git 2.47.
    #[test]
    fn a_line_means_one_path() {
        for (name, expect) in [
            (&b"a b/.netrc"[..], &b"/a\\ b/.netrc\n"[..]),
            (b"#a", b"/#a\n"),
            (b"!a", b"/!a\n"),
            (b"a*?[b]", b"/a\\*\\?\\[b]\n"),
            (b"a\\", b"/a\\\\\n"),
            (b"a\nb\r", b"/a?b?\n"),
            (b"a ", b"/a\\ \n"),
            (b"\xff\"{x}", b"/\xff\"{x}\n"),
        ] {
            assert_eq!(line(Path::new(OsStr::from_bytes(name))), expect, "{name:?}");
        }
    }
}
