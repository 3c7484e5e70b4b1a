//! A PATH of more directories than the usual limit of open files has descriptors for their mounts. The command keeps the
//! limit of `wrap`'s caller.

use super::account::Account;
use crate::command::Finished;
use crate::direct::program;
use crate::docker::Docker;

const DIRECTORIES: u32 = 1_200;

/// Lines of a shell: so many directories on PATH, each with a program, and the limits of an ordinary login.
fn wide() -> String {
    format!(
        "ulimit -Sn 1024; ulimit -Hn 16384; for n in $(seq {DIRECTORIES}); do mkdir -p ~/wide/$n; PATH=$PATH:$HOME/wide/$n; done; \
         printf '#!/bin/sh\\necho last\\n' >~/wide/{DIRECTORIES}/of-the-last; chmod 755 ~/wide/{DIRECTORIES}/of-the-last; \
         cd ~/src/project;"
    )
}

/// The limits of the command and of the sandbox's first process, and a program of the last directory.
const SEEN: &str = "ulimit -Sn; ulimit -Hn; grep -o 'files  *[0-9][0-9]*  *[0-9][0-9]*' /proc/1/limits; of-the-last; exit 7";

fn by_user(person: &Account, before: &str, walls: &str) -> Finished {
    let wrap = format!("{} wrap --quiet {walls}", program());
    person.tries(&format!("{} {before} {wrap} -- bash -c \"{SEEN}\"", wide()))
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_long_path_starts_and_its_command_has_the_callers_limit_of_files() {
    let _docker = Docker::connect();
    let person = Account::new();
    let words = |seen: &Finished| -> Vec<String> {
        assert_eq!(seen.code, 7, "{seen}");
        seen.stdout.split_whitespace().map(str::to_owned).collect()
    };
    // Another process is pid 1 there.
    let ends = |all: &[String]| [&all[0], &all[1], all.last().unwrap()].map(String::clone);
    let own = ["1024", "16384", "last"];
    // The control: without walls.
    let bare = person.tries(&format!("{} bash -c \"{SEEN}\"", wide()));
    assert_eq!(ends(&words(&bare)), own);
    let by_rules = by_user(&person, "", "--walls landlock");
    assert_eq!(ends(&words(&by_rules)), own);
    let all = ["1024", "16384", "files", "1024", "16384", "last"];
    assert_eq!(words(&by_user(&person, "", "--walls namespaces")), all);
    // Root, with the same home.
    let root = crate::command::finish(
        std::process::Command::new("bash")
            .args([
                "-c",
                &format!(
                    "{} {} wrap --quiet -- bash -c \"{SEEN}\"",
                    wide(),
                    program()
                ),
            ])
            .env("HOME", &person.home),
    );
    assert_eq!(words(&root), all);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_hard_limit_that_is_too_low_for_path_is_named_with_a_cure() {
    let _docker = Docker::connect();
    let person = Account::new();
    let seen = by_user(&person, "ulimit -Hn 1024;", "");
    assert_eq!(seen.code, 125, "{seen}");
    assert!(seen.stderr.contains("too many open files: "), "{seen}");
    assert!(
        seen.stderr
            .contains("the hard limit is 1024; raise ulimit -n to "),
        "{seen}"
    );
    // By rules a directory takes one descriptor, and here one too many as well.
    let seen = by_user(&person, "ulimit -Hn 1024;", "--walls landlock");
    assert!(
        seen.code == 125 && seen.stderr.contains("the hard limit is 1024"),
        "{seen}"
    );
    // The control: as many as the limit has room for.
    let seen = by_user(&person, "ulimit -Hn 4096;", "");
    assert_eq!(seen.code, 7, "{seen}");
}
