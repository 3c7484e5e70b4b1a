//! The commit that a clone has checked out, and its date, for `agentbox --version`.
//!
//! The commit is from the clone's own files, its date from git: no network and no clock, so that one commit gives one binary. A tarball
//! has none, a clone without git no date, and then there is no such line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The commit that is checked out in this clone, if it is one, and the files that say so (gitrepository-layout(5)).
pub fn commit(root: &Path) -> (Option<String>, Vec<PathBuf>) {
    let mut read = Vec::new();
    let mut text = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok();
        read.push(path);
        text
    };
    let mut dir = root.join(".git");
    if !dir.is_dir() {
        // Of a worktree: a file that says where its own files are.
        let Some(link) = text(dir.clone()) else {
            return (None, read);
        };
        let Some(target) = link.trim().strip_prefix("gitdir: ") else {
            return (None, read);
        };
        dir = root.join(target);
    }
    let common = match text(dir.join("commondir")) {
        Some(path) => dir.join(path.trim()),
        None => dir.clone(),
    };
    let head = text(dir.join("HEAD")).unwrap_or_default();
    let found = match head.trim().strip_prefix("ref: ") {
        None => Some(head.trim().to_owned()),
        Some(name) => match text(common.join(name)) {
            Some(commit) => Some(commit.trim().to_owned()),
            None => text(common.join("packed-refs")).and_then(|refs| packed(&refs, name)),
        },
    };
    let plain = |hash: &String| {
        let hex = hash.bytes().all(|b| b.is_ascii_hexdigit());
        hex && matches!(hash.len(), 40 | 64)
    };
    (found.filter(plain), read)
}

/// The day of a commit, by UTC, if git is there and tells it.
pub fn date(root: &Path, commit: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).env("TZ", "UTC");
    git.args([
        "show",
        "--no-patch",
        "--date=format-local:%Y-%m-%d",
        "--format=%cd",
        commit,
    ]);
    let answer = git.output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let date = text.trim();
    let plain = date.len() == 10 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    plain.then(|| date.to_owned())
}

/// A name in git's one file for many.
fn packed(refs: &str, name: &str) -> Option<String> {
    let mut entries = refs.lines().filter_map(|line| line.split_once(' '));
    let (hash, _) = entries.find(|(_, known)| *known == name)?;
    Some(hash.to_owned())
}
