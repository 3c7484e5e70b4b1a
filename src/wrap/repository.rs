//! SHELL. The git repository of a workspace: its top, and the directory that a work tree or a submodule keeps elsewhere.
//!
//! An agent can write a `.git` file into its workspace. So a git directory that it names is mounted only if it is the
//! user's, and itself points back to this workspace, in a file that the agent cannot write.

use std::fs;
use std::path::{Path, PathBuf};

use super::own_file;
use super::person::Person;
use crate::cli::Walls;
use crate::plan::never::NeverList;
use crate::probe::is_home;

/// Longest text that git keeps in such a file.
const LONGEST: u64 = 64 << 10;

/// The top of the repository that contains a directory. `None` if the user does not own it, or if it is or holds a
/// home.
pub fn top(directory: &Path, person: &Person) -> Option<PathBuf> {
    let home = person.home().and_then(|home| home.canonicalize().ok());
    let is_project = |path: &&Path| {
        let holds_home = home.as_ref().is_some_and(|home| home.starts_with(path));
        !is_home(path) && !holds_home && !NeverList::builtin().is_common(path)
    };
    let mut above = directory.ancestors().take_while(is_project);
    let top = above.find(|path| is_theirs(&path.join(".git"), person))?;
    is_theirs(top, person).then(|| top.to_owned())
}

fn is_theirs(path: &Path, person: &Person) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| person.owns(&m) && !m.is_symlink())
}

/// Access that a workspace needs to a git directory elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub struct GitDirAccess {
    /// Only read.
    pub read: Option<PathBuf>,
    /// Written by git.
    pub written: Vec<PathBuf>,
    /// Read-only parts of a written directory.
    pub closed: Vec<PathBuf>,
}

impl GitDirAccess {
    /// The common directory of a work tree is the main repository's. Git outside of the walls trusts it (`config`,
    /// `commondir`, hooks, the configuration of submodules). So it is read-only, except for the parts that a commit
    /// adds to.
    fn of_work_tree(common: PathBuf, own: PathBuf, person: &Person) -> Self {
        let parts = ["objects", "refs", "logs"].map(|name| common.join(name));
        let parts = parts
            .into_iter()
            .filter(|part| part.is_dir() && is_theirs(part, person));
        Self {
            written: parts.chain([own]).collect(),
            read: Some(common),
            closed: Vec::new(),
        }
    }

    /// A submodule's git directory belongs to the workspace alone, and git writes at its top.
    fn of_submodule(own: PathBuf) -> Self {
        let closed = ["hooks", "config", "info"].map(|name| own.join(name));
        Self {
            closed: closed.into_iter().filter(|path| path.exists()).collect(),
            written: vec![own],
            read: None,
        }
    }
}

/// The git directory elsewhere that the workspace needs, from `git worktree` (gitrepository-layout(5)) or as a
/// submodule. The error is the reason why the directory of a `.git` file is not mounted.
pub fn elsewhere(
    workspace: &Path,
    person: &Person,
) -> Result<Option<GitDirAccess>, (PathBuf, String)> {
    let link = workspace.join(".git");
    let Some(text) = text_of(&link) else {
        return Ok(None);
    };
    let Some(named) = text.strip_prefix("gitdir:") else {
        return Ok(None);
    };
    let named = workspace.join(named.trim());
    let refused = |why: &str| Err((named.clone(), why.to_owned()));
    let Ok(own) = named.canonicalize() else {
        return refused("the .git file of the workspace names it, but it cannot be opened");
    };
    let common = match text_of(&own.join("commondir")) {
        Some(common) => own.join(common.trim()).canonicalize().unwrap_or_default(),
        None => own.clone(),
    };
    if common.starts_with(workspace) {
        return Ok(None);
    }
    if !is_git_directory(&common, person) || !is_theirs(&own, person) {
        return refused(
            "the .git file of the workspace names it, but it is not a git directory of the user",
        );
    }
    let is_back = match own == common {
        true => worktree_of(&own).is_some_and(|back| back == workspace),
        false => {
            let back = text_of(&own.join("gitdir"));
            let back = back.and_then(|back| own.join(back.trim()).canonicalize().ok());
            own.parent() == Some(&common.join("worktrees")) && back.as_ref() == Some(&link)
        }
    };
    if !is_back {
        return refused(
            "the .git file of the workspace names it, but it does not name the workspace in return",
        );
    }
    Ok(Some(match own == common {
        true => GitDirAccess::of_submodule(own),
        false => GitDirAccess::of_work_tree(common, own, person),
    }))
}

/// Checks what git itself checks (is_git_directory in setup.c), and that the user owns all of it.
fn is_git_directory(path: &Path, person: &Person) -> bool {
    let parts = [
        path.to_owned(),
        path.join("HEAD"),
        path.join("objects"),
        path.join("refs"),
    ];
    parts.iter().all(|part| is_theirs(part, person)) && path.join("objects").is_dir()
}

/// `core.worktree` of a submodule's configuration.
fn worktree_of(own: &Path) -> Option<PathBuf> {
    let text = text_of(&own.join("config"))?;
    let mut pairs = text.lines().filter_map(|line| line.split_once('='));
    let (_, value) = pairs.find(|(key, _)| key.trim() == "worktree")?;
    own.join(value.trim()).canonicalize().ok()
}

/// A small regular file.
fn text_of(path: &Path) -> Option<String> {
    let meta = fs::symlink_metadata(path).ok()?;
    let small = meta.is_file() && meta.len() <= LONGEST;
    // Another kind of file may have replaced it: opening it then fails, and never blocks.
    small.then(|| own_file::read(path).ok()).flatten()
}

/// The user's name and e-mail, for a configuration file with nothing else: no helper, no alias, no URL.
///
/// Reads only `[user]` of the two global files, and no files that they include.
pub fn configuration(home: Option<&Path>, workspace: &Path) -> String {
    let text = global(home);
    let mut out = String::new();
    for key in ["name", "email"] {
        if let Some(value) = value_of(&text, ("user", key)) {
            out.push_str(&format!("[user]\n\t{key} = {}\n", quoted(&value)));
        }
    }
    if let Some(workspace) = workspace.to_str() {
        out.push_str(&format!("[safe]\n\tdirectory = {}\n", quoted(workspace)));
    }
    out
}

/// A line for a user whose git signs commits by gpg. Its keys and its agent stay outside, and `git commit` says only that it
/// failed, or signs nothing.
///
/// A run may have written the repository's own settings: they change nothing of the user's other repositories.
pub fn gpg_notice(home: Option<&Path>, top: &Path, walls: Walls) -> Option<&'static str> {
    let global = global(home);
    if !signs_by_gpg(&format!("{global}\n{}", own(top))) {
        return None;
    }
    Some(match (signs_by_gpg(&global), walls) {
        (true, Walls::Landlock) => {
            "agentbox: your git signs commits by gpg, which cannot sign in the sandbox: commit outside"
        }
        (false, Walls::Landlock) => {
            "agentbox: this repository's .git/config makes git sign by gpg, which cannot sign in the sandbox: if you want that, commit outside"
        }
        (true, Walls::Namespaces) => {
            "agentbox: your git signs commits by gpg, which cannot sign in the sandbox: use an SSH key (git config --global gpg.format ssh, \
             wrap --ssh-agent=KEY)"
        }
        (false, Walls::Namespaces) => {
            "agentbox: this repository's .git/config makes git sign by gpg, which cannot sign in the sandbox: if you want that, use an \
             SSH key here (git config gpg.format ssh, wrap --ssh-agent=KEY)"
        }
    })
}

fn signs_by_gpg(text: &str) -> bool {
    let signs = value_of(text, ("commit", "gpgsign")).is_some_and(is_on);
    signs && value_of(text, ("gpg", "format")).is_none_or(|format| format != "ssh")
}

/// A switch of git's.
pub fn is_on(value: String) -> bool {
    let words = ["true", "yes", "on", "1"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The user's two global files, without those that they include.
pub fn global(home: Option<&Path>) -> String {
    let files = [".config/git/config", ".gitconfig"];
    let texts = files.iter().filter_map(|file| text_of(&home?.join(file)));
    texts.collect::<Vec<_>>().join("\n")
}

/// The configuration of the repository at `top` itself, which a run may have written: for notices, and whether git signs.
pub fn own(top: &Path) -> String {
    text_of(&top.join(".git/config")).unwrap_or_default()
}

/// The last value of a key of a section (git-config(1)).
pub fn value_of(text: &str, (of, key): (&str, &str)) -> Option<String> {
    let wanted = format!("[{of}]");
    let mut section = String::new();
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.to_ascii_lowercase();
        } else if section == wanted
            && let Some((name, value)) = line.split_once('=')
            && name.trim().eq_ignore_ascii_case(key)
        {
            let value = value.trim();
            let plain = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
            found = Some(plain.unwrap_or(value).to_owned());
        }
    }
    found.filter(|value| !value.is_empty())
}

pub fn quoted(value: &str) -> String {
    let plain = value.chars().filter(|c| !c.is_control());
    let escaped = plain.flat_map(|c| match c {
        '"' | '\\' => vec!['\\', c],
        _ => vec![c],
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_and_the_address_are_taken() {
        let text = "[credential]\n\thelper = store\n[User]\n name = \"A \\\"B\"\n\temail=a@b\n[url \"x\"]\n name = no\n";
        assert_eq!(value_of(text, ("user", "email")).as_deref(), Some("a@b"));
        assert_eq!(value_of(text, ("user", "helper")), None);
        assert_eq!(value_of("[user]\nname=\n", ("user", "name")), None);
        assert_eq!(quoted("a\"b\nc"), "\"a\\\"bc\"");
    }

    #[test]
    fn a_user_whose_git_signs_by_gpg_is_told() {
        for (text, told) in [
            ("[commit]\n\tgpgSign = true\n", true),
            ("[commit]\ngpgsign = true\n[gpg]\nformat = openpgp\n", true),
            (
                "[commit]\ngpgsign = yes\n[gpg \"ssh\"]\nformat = ssh\n",
                true,
            ),
            ("[commit]\ngpgsign = true\n[gpg]\nformat = ssh\n", false),
            ("[commit]\ngpgsign = true\ngpgsign = false\n", false),
            ("[tag]\ngpgsign = true\n", false),
            ("", false),
        ] {
            assert_eq!(signs_by_gpg(text), told, "{text}");
        }
    }
}
