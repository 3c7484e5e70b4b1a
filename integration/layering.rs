//! Rules that the compiler cannot check within one crate: the pure core stays pure, `unsafe` stays in `src/sys`, and
//! every file says its purpose.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::fixtures;

/// Directories whose files only compute.
const PURE: [&str; 6] = ["devices", "egress", "policy", "plan", "render", "seccomp"];

/// What computing does not need: files, the environment, processes, system calls, a clock, a log.
const SHELL: [&str; 17] = [
    "std::fs",
    "std::env",
    "std::process",
    // Of std::net the addresses alone: no socket, no name that is resolved.
    "std::net::*",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::thread",
    "crate::sys",
    "rustix::",
    "nix::",
    "libc::",
    "tokio::",
    "tracing::",
    "SystemTime",
    "Instant",
];

/// What each folder of `src/` may import: nothing but what stands before it, so that there are no circles. A new line here is a
/// decision; docs/design.md says what the folders are for.
const MAY_IMPORT: [(&str, &[&str]); 20] = [
    // Values in, values out.
    ("policy", &[]),
    ("egress", &["policy"]),
    ("plan", &["policy", "egress"]),
    ("seccomp", &[]),
    ("devices", &[]),
    ("kernel", &[]),
    ("render", &["policy", "egress", "plan", "seccomp"]),
    ("indexes", &["policy", "egress"]),
    // The program's own words to people.
    ("log", &["policy"]),
    ("cli", &["policy", "log"]),
    // System calls, and what is built of them.
    ("sys", &["policy", "seccomp", "devices", "kernel"]),
    ("cgroup", &["plan", "devices", "render", "log", "sys"]),
    ("probe", &["policy", "plan", "sys", "cgroup"]),
    ("network", &["egress", "sys"]),
    (
        "sidecar",
        &["policy", "egress", "plan", "sys", "cgroup", "network"],
    ),
    (
        "enforce",
        &[
            "policy", "plan", "seccomp", "kernel", "log", "sys", "network", "sidecar",
        ],
    ),
    // The life of a container, and the verbs.
    (
        "runtime",
        &[
            "policy", "egress", "plan", "seccomp", "devices", "kernel", "render", "log", "cli",
            "sys", "probe", "cgroup", "network", "sidecar", "enforce",
        ],
    ),
    (
        "wrap",
        &["policy", "plan", "cli", "probe", "cgroup", "runtime"],
    ),
    (
        "cmd",
        &[
            "policy", "egress", "plan", "render", "indexes", "log", "cli", "cgroup", "sidecar",
            "runtime", "wrap",
        ],
    ),
    ("main", &[]),
];

/// Every source file, by its path below `src/`.
fn sources() -> Vec<(PathBuf, String)> {
    let root = fixtures::path("../src");
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    assert!(found.len() > 80, "src/ has moved: {}", found.len());
    found
}

/// The lines that are built into the program, without their comments; a module of tests in a file comes last in it.
fn production(text: &str) -> impl Iterator<Item = &str> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
}

fn is_test(path: &Path) -> bool {
    path.iter()
        .any(|part| part == "tests" || part == "tests.rs")
}

/// `word` in `line`, not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let mut parts = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    parts.any(|part| part == word)
}

#[test]
fn the_pure_core_names_nothing_of_the_shell() {
    let files = sources();
    let pure = files
        .iter()
        .filter(|(path, _)| PURE.iter().any(|p| path.starts_with(p)) && !is_test(path));
    for (path, text) in pure {
        for line in production(text) {
            // Text of the system's own kind is no system call.
            let line = line.replace("std::os::unix::ffi", "");
            let named = SHELL.iter().find(|name| line.contains(**name));
            assert_eq!(named, None, "src/{}: {line}", path.display());
        }
    }
}

/// The folders (or files) of `src/` that a file's production code names.
fn imported(text: &str) -> BTreeSet<&str> {
    let code = production(text);
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter_map(|mut words| words.next())
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn a_folder_imports_what_the_table_lets_it_import_and_nothing_else() {
    let order: Vec<&str> = MAY_IMPORT.iter().map(|(folder, _)| *folder).collect();
    for (place, (folder, allowed)) in MAY_IMPORT.iter().enumerate() {
        for name in *allowed {
            let before = order[..place].contains(name);
            assert!(before, "{folder} may not import {name}, which stands later");
        }
    }
    let mut used = BTreeSet::new();
    let files = sources();
    for (path, text) in files.iter().filter(|(path, _)| !is_test(path)) {
        let folder = path.iter().next().and_then(|part| part.to_str()).unwrap();
        let folder = folder.trim_end_matches(".rs");
        if folder == "lib" {
            continue;
        }
        let row = MAY_IMPORT.iter().find(|(name, _)| *name == folder);
        let (_, allowed) = row.unwrap_or_else(|| panic!("src/{folder} is not in the table"));
        for name in imported(text).into_iter().filter(|name| *name != folder) {
            assert!(
                allowed.contains(&name),
                "src/{} imports {name}, which the table of integration/layering.rs does not let it",
                path.display()
            );
            used.insert((folder.to_owned(), name.to_owned()));
        }
    }
    for (folder, allowed) in MAY_IMPORT {
        for name in allowed {
            let needed = used.contains(&(folder.to_owned(), (*name).to_owned()));
            assert!(
                needed,
                "nobody in src/{folder} imports {name}: take it out of the table"
            );
        }
    }
}

#[test]
fn only_sys_has_unsafe_code() {
    for (path, text) in sources()
        .iter()
        .filter(|(path, _)| !path.starts_with("sys"))
    {
        let mut lines = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or(""));
        let found = lines.find(|line| has_word(line, "unsafe"));
        assert_eq!(found, None, "src/{}", path.display());
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for (path, text) in sources() {
        let documented = text.lines().any(|line| line.starts_with("//! "));
        assert!(documented, "src/{} has no //! text", path.display());
    }
}
