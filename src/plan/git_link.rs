//! PURE. Where the files `.git` and `commondir` of a work tree lead (gitrepository-layout(5)), and a symbolic link in its place.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The directory that the text of such a file names. `None`: git refuses it.
pub fn target(text: &[u8]) -> Option<OsString> {
    let named = text.strip_prefix(b"gitdir: ")?;
    let end = named.iter().rposition(|byte| !b"\r\n".contains(byte))?;
    Some(OsStr::from_bytes(&named[..=end]).to_owned())
}

/// The path of a target on the node. A relative one begins in the work tree's `directory`. `None` if it leads by way of a name and
/// back, which may be a link.
pub fn led(directory: &Path, target: &Path) -> Option<PathBuf> {
    let mut plain = match target.is_absolute() {
        true => PathBuf::from("/"),
        false => directory.to_owned(),
    };
    let mut is_named = false;
    for part in target.components() {
        match part {
            Component::Normal(name) => {
                is_named = true;
                plain.push(name);
            }
            Component::ParentDir if is_named || !plain.pop() => return None,
            _ => {}
        }
    }
    is_named.then_some(plain)
}

/// Whether no checkout makes this path: git refuses a `.git` in one.
pub fn is_no_checkouts(path: &Path) -> bool {
    path.iter().any(|part| part.eq_ignore_ascii_case(".git"))
}

/// Whether the file `commondir` says that a second work tree belongs to the repository in whose directory it is kept, as
/// `git worktree add` writes it. Git cuts only line ends: a blank would lead to another directory.
pub fn is_usual_commondir(path: &Path, text: &[u8]) -> bool {
    let above = path.parent().and_then(Path::parent);
    let end = text.iter().rposition(|byte| !b"\r\n".contains(byte));
    above.and_then(Path::file_name) == Some(OsStr::new("worktrees"))
        && text[..end.map_or(0, |end| end + 1)] == *b"../.."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_leads_to_a_plain_path() {
        let led = |directory: &str, target: &str| led(Path::new(directory), Path::new(target));
        for (directory, target, at) in [
            ("/p/s", "../.git/modules/s", "/p/.git/modules/s"),
            ("/p/a/b", "../../.git/modules/a/b", "/p/.git/modules/a/b"),
            ("/p/w", "/work/.git/worktrees/w", "/work/.git/worktrees/w"),
            ("/p/s", "./x.git", "/p/s/x.git"),
            ("/p/s", "../../x.git", "/x.git"),
        ] {
            assert_eq!(led(directory, target), Some(at.into()), "{target}");
        }
        for target in ["/p/../.cache/x", "a/../../.git", "..", "", "../../../x"] {
            assert_eq!(led("/p/s", target), None, "{target}");
        }
    }

    #[test]
    fn the_text_names_a_directory() {
        assert_eq!(target(b"gitdir: ../x\n"), Some("../x".into()));
        assert_eq!(target(b"gitdir:  x \r\n"), Some(" x ".into()));
        for text in ["", "gitdir: ", "gitdir: \n", "gitdir:x", " gitdir: x"] {
            assert_eq!(target(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_second_work_tree_belongs_to_its_repository_only_as_git_writes_it() {
        let usual = |path: &str, text: &str| is_usual_commondir(Path::new(path), text.as_bytes());
        let own = ".git/worktrees/x/commondir";
        assert!(usual(own, "../..\n") && usual(own, "../..") && usual(own, "../..\r\n"));
        for other in [
            "",
            "../.. ",
            "../..\t\n",
            " ../..",
            "../../..",
            "../..\n\nx",
        ] {
            assert!(!usual(own, other), "{other:?}");
        }
        assert!(!usual(".git/commondir", "../.."));
        assert!(!usual("x/y/commondir", "../.."));
    }
}
