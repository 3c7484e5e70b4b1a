//! Turns policies/*.toml into tables, names the program's first instruction, and puts the commit that a release is built from
//! and its date into it, for `agentbox --version`. Other builds than the optimised one have none: they would be compiled anew
//! after each commit.

#![allow(
    clippy::print_stdout,
    reason = "this is how a build script speaks to cargo"
)]

use std::env;
use std::fs;
use std::path::Path;

#[path = "hack/build.d/commit.rs"]
mod commit;
#[path = "src/kernel/numbers.rs"]
#[expect(dead_code, reason = "the program needs more of it")]
mod numbers;
#[path = "src/seccomp/rule.rs"]
#[expect(dead_code, reason = "the program needs more of it")]
mod rule;
#[path = "hack/build.d/syscalls.rs"]
mod syscalls;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let out = env::var("OUT_DIR").unwrap_or_default();
    println!("cargo::rerun-if-changed={root}/policies");
    let policies = Path::new(&root).join("policies");
    write_tables(&policies, &Path::new(&out).join("policies"));
    let rules = syscalls::generated(&policies.join("syscalls"));
    fs::write(Path::new(&out).join("syscalls.rs"), rules).expect("the rules are written");
    // Where the program begins: src/sys/start.rs.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        println!("cargo::rustc-link-arg-bins=-Wl,--entry=agentbox_start");
    }
    // The release profile's, in Cargo.toml.
    if env::var("OPT_LEVEL").as_deref() != Ok("s") {
        return;
    }
    // What a start runs, in front of the rest. The tables for unwinding (1.4 MB) stay, though a panic aborts: where
    // RUST_BACKTRACE is set, each error takes a backtrace, and libgcc aborts without them.
    let hot = Path::new(&root).join("hack/hot.ld");
    println!("cargo::rerun-if-changed={}", hot.display());
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", hot.display());
    let (commit, read) = commit::commit(Path::new(&root));
    // Files that are not there would make cargo run this every time.
    for file in read.iter().filter(|file| file.exists()) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    if let Some(commit) = commit {
        println!("cargo::rustc-env=AGENTBOX_COMMIT={commit}");
        if let Some(date) = commit::date(Path::new(&root), &commit) {
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
