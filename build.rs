//! Turns policies/*.toml into tables, names the program's first instruction, and puts the commit that a release is built from
//! and its date into it, for `agentbox --version`.
//!
//! The commit is from the clone's own files, its date from git: no network and no clock, so that one commit gives one binary. A tarball
//! has none, a clone without git no date, and then there is no such line. Other builds than the optimised one have none either: they would be compiled anew
//! after each commit.

#![allow(
    clippy::print_stdout,
    reason = "this is how a build script speaks to cargo"
)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let out = env::var("OUT_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed={root}/policies");
    write_tables(
        &Path::new(&root).join("policies"),
        &Path::new(&out).join("policies"),
    );
    // Where the program begins: src/sys/start.rs.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,--entry=agentbox_start");
    }
    // The release profile's, in Cargo.toml.
    if env::var("OPT_LEVEL").as_deref() != Ok("s") {
        return;
    }
    // What a start runs, in front of the rest.
    let hot = Path::new(&root).join("hack/hot.ld");
    println!("cargo::rerun-if-changed={}", hot.display());
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", hot.display());
    let (commit, read) = commit(Path::new(&root));
    // Files that are not there would make cargo run this every time.
    for file in read.iter().filter(|file| file.exists()) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    if let Some(commit) = commit {
        println!("cargo::rustc-env=AGENTBOX_COMMIT={commit}");
        if let Some(date) = date(Path::new(&root), &commit) {
            println!("cargo::rustc-env=AGENTBOX_DATE={date}");
        }
    }
}

/// Writes the JSON of each TOML file in a directory and below it, which src/data.rs reads: parsing TOML at each start took a
/// twelfth of `wrap`'s processor time.
fn write_tables(texts: &Path, tables: &Path) {
    fs::create_dir_all(tables).expect("a directory for tables");
    for entry in fs::read_dir(texts).expect("the directory of policies") {
        let path = entry.expect("an entry of policies").path();
        let table = tables.join(path.file_name().expect("a file has a name"));
        if path.is_dir() {
            write_tables(&path, &table);
        } else if path.extension().is_some_and(|kind| kind == "toml") {
            let text = fs::read_to_string(&path).expect("a text of policies");
            let parsed: serde_json::Value =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            fs::write(table.with_extension("json"), parsed.to_string())
                .expect("a table is written");
        }
    }
}

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
