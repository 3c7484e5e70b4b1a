//! PURE. Symbolic references of git (`ref: refs/heads/main`, git-symbolic-ref(1)).

use std::path::Path;

/// References at the top of a git directory that do not end with `HEAD` (`is_root_ref` in git's refs.c).
const ROOTS: [&str; 5] = [
    "AUTO_MERGE",
    "BISECT_EXPECTED_REV",
    "MERGE_AUTOSTASH",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
];

/// Where a symbolic reference leads, in lower case: some file systems fold it. Nowhere, if a part of the name is empty or begins with
/// a point (check_refname_format in git's refs.c): git does not check what it follows.
fn target(text: &[u8]) -> Option<Vec<u8>> {
    let target = text.strip_prefix(b"ref:")?.trim_ascii();
    // HEAD of a repository with reftable (git 2.45).
    if target == b"refs/heads/.invalid" {
        return Some(target.to_vec());
    }
    let mut parts = target.split(|byte| *byte == b'/');
    let is_odd = parts.any(|part| part.is_empty() || part.starts_with(b"."));
    Some(match is_odd {
        true => Vec::new(),
        false => target.to_ascii_lowercase(),
    })
}

/// Whether the text of a reference leads to a replaced object, or to no reference: git would write that when it writes this one.
pub fn is_to_replaced(text: &[u8]) -> bool {
    target(text)
        .is_some_and(|target| !target.starts_with(b"refs/") || target.starts_with(b"refs/replace"))
}

/// Whether git makes a symbolic reference like this one, by its path in a git directory: `HEAD` leads to a branch, and that of a
/// remote to one of its branches. A file of another name at the top, or at that of a second work tree, is no reference, such as a
/// commit's message.
pub fn is_usual(path: &Path, text: &[u8]) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    let mut parts = path.iter();
    let is_below_refs = match parts.next() {
        Some(first) if first == "worktrees" => parts.nth(1).is_some_and(|part| part == "refs"),
        first => first.is_some_and(|part| part == "refs"),
    };
    let leads = |below: &[u8]| target(text).is_some_and(|target| target.starts_with(below));
    match (is_below_refs, name) {
        (true, "HEAD") => leads(b"refs/remotes/"),
        (true, _) => false,
        (false, "HEAD") => !is_to_replaced(text),
        (false, "NOTES_MERGE_REF") => leads(b"refs/notes/"),
        (false, _) => !name.ends_with("HEAD") && !ROOTS.contains(&name),
    }
}

/// Whether a branch is another name of a branch.
pub fn is_alias(path: &Path, text: &[u8]) -> bool {
    path.starts_with("refs/heads")
        && target(text).is_some_and(|target| target.starts_with(b"refs/heads/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_leads_to_a_branch() {
        for text in [
            "ref: refs/heads/main\n",
            "ref:\trefs/remotes/origin/main",
            "0123456789\n",
            "",
            "refs/replace/0",
        ] {
            assert!(!is_to_replaced(text.as_bytes()), "{text}");
        }
        for text in [
            "ref: refs/replace/0\n",
            "ref:refs/Replace/0",
            "ref: \t refs/replace/0",
            "ref: config",
            "ref: ../config",
            "ref: refs/heads/../replace/0",
            "ref: refs//replace/0",
            "ref:",
        ] {
            assert!(is_to_replaced(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_branch_may_have_another_name() {
        let is = |path: &str, text: &str| is_alias(Path::new(path), text.as_bytes());
        assert!(is("refs/heads/master", "ref: refs/heads/main"));
        assert!(!is("refs/remotes/origin/pr7", "ref: refs/heads/main"));
        assert!(!is("refs/heads/x", "ref: refs/heads/../replace/0"));
    }

    #[test]
    fn git_makes_few_symbolic_references() {
        for (path, text) in [
            ("HEAD", "ref: refs/heads/main"),
            ("HEAD", "ref: refs/jj/root"),
            ("HEAD", "ref: refs/heads/.invalid"),
            ("worktrees/x/HEAD", "ref: refs/heads/.invalid"),
            ("worktrees/x/HEAD", "ref: refs/heads/x"),
            ("worktrees/refs/HEAD", "ref: refs/heads/x"),
            ("refs/remotes/origin/HEAD", "ref: refs/remotes/origin/main"),
            ("COMMIT_EDITMSG", "ref: rename the parser"),
            ("NOTES_MERGE_REF", "ref: refs/notes/commits"),
        ] {
            assert!(is_usual(Path::new(path), text.as_bytes()), "{path} {text}");
        }
        for (path, text) in [
            ("HEAD", "ref: refs/replace/0"),
            ("ORIG_HEAD", "ref: refs/heads/keep"),
            ("AUTO_MERGE", "ref: refs/heads/keep"),
            ("refs/remotes/origin/pr7", "ref: refs/heads/main"),
            ("refs/remotes/origin/HEAD", "ref: refs/heads/main"),
            ("refs/heads/topic", "ref: refs/heads/main"),
            (
                "refs/remotes/origin/HEAD",
                "ref: refs/remotes/../heads/main",
            ),
            ("NOTES_MERGE_REF", "ref: refs/notes/../heads/main"),
            ("refs/stash", "ref: refs/replace/0"),
            ("worktrees/x/refs/bisect/bad", "ref: refs/heads/main"),
        ] {
            assert!(!is_usual(Path::new(path), text.as_bytes()), "{path} {text}");
        }
    }
}
