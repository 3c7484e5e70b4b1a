//! F-H5 (docs/threats.md F21): no container leaves a set-user-ID or set-group-ID file on the node.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::command::{await_that, run};
use crate::direct::{Node, Scratch, program};
use crate::docker::{Docker, NO_WALLS, Policy};

/// Every way to make one. `probe` is the C program below.
const SCRIPT: &str = "cp /bin/busybox a; chmod 4755 a; chmod u+s a; chmod g+s a; chmod 2755 .; \
    install -m 6755 /bin/busybox b 2>/dev/null; mknod c p; chmod 4644 c; ./probe; cp -p /su d; true";

/// Ways that no shell has: modes at creation.
const PROBE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <stdio.h>
int main(void) {
    umask(0);
    int made = 0;
    made |= (open("o", O_CREAT | O_WRONLY, 04755) >= 0) << 0;
    made |= (openat(AT_FDCWD, "p", O_CREAT | O_WRONLY, 02755) >= 0) << 1;
    made |= (creat("q", 06755) >= 0) << 2;
    made |= (mknod("r", S_IFREG | 04755, 0) == 0) << 3;
    made |= (mknodat(AT_FDCWD, "s", S_IFREG | 04755, 0) == 0) << 4;
    struct { unsigned long long flags, mode, resolve; } how = {O_CREAT | O_WRONLY, 04755, 0};
    made |= (syscall(SYS_openat2, AT_FDCWD, "t", &how, sizeof how) >= 0) << 5;
    int plain = open("u", O_CREAT | O_RDWR, 0755);
    made |= (fchmod(plain, 04755) == 0) << 6;
    made |= (syscall(452 /* fchmodat2 */, AT_FDCWD, "u", 04755, 0) == 0) << 7;
    int nameless = open(".", O_TMPFILE | O_RDWR, 04755);
    made |= (nameless >= 0) << 8;
    printf("made %d\n", made);
    return 0;
}
"#;

/// The files with set-id bits below a directory.
fn found(dir: &str) -> Vec<String> {
    let listed = run("find", &[dir, "-perm", "/6000"]).ok();
    listed.lines().map(str::to_owned).collect()
}

fn workspace() -> Scratch {
    let scratch = Scratch::new();
    let source = scratch.file("probe.c", PROBE);
    let dir = scratch.dir("work");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    run(
        "gcc",
        &["-static", "-O1", "-o", &format!("{dir}/probe"), &source],
    )
    .ok();
    scratch
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h5_no_set_id_file_is_left_in_a_workspace() {
    let docker = Docker::connect();
    let shell = ["test-musl", "sh", "-c", SCRIPT];
    let mount = |scratch: &Scratch| format!("{}:/work", scratch.path("work"));
    let scratch = workspace();
    let control = mount(&scratch);
    let options = [&NO_WALLS[..], &["-v", &control, "-w", "/work"]].concat();
    docker.run(&options, &shell).ok();
    let control = found(&scratch.path("work"));
    assert!(control.len() > 6, "the control: {control:?}");
    for policy in [Policy::Strict, Policy::Standard] {
        for user in ["0", "1000"] {
            for exec in [false, true] {
                let scratch = workspace();
                let mount = mount(&scratch);
                let options = [
                    &policy.options()[..],
                    &["--user", user, "-v", &mount, "-w", "/work"],
                ]
                .concat();
                let seen = if exec {
                    let container = docker.start(&options, &["test-musl", "sleep", "300"]);
                    container.exec(&["--user", user], &shell[1..]).ok()
                } else {
                    docker.run(&options, &shell).ok()
                };
                assert!(seen.contains("made 0\n"), "{policy:?} {user}: {seen}");
                let left = found(&scratch.path("work"));
                assert!(left.is_empty(), "{policy:?} {user}: {left:?}");
            }
        }
    }
}

/// An existing one loses its bits when it is written: CAP_FSETID is dropped along with the calls.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h5_a_set_id_file_that_is_there_does_not_keep_its_bits_when_it_is_written() {
    let docker = Docker::connect();
    let bits = |policy: &[&str]| {
        let scratch = Scratch::new();
        let file = scratch.file("work/tool", "#!/bin/sh\n");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        let mount = format!("{}:/work", scratch.path("work"));
        let options = [policy, &["-v", &mount, "-w", "/work"]].concat();
        let script = "echo evil >>/work/tool; cat /work/tool";
        let seen = docker
            .run(&options, &["test-musl", "sh", "-c", script])
            .ok();
        assert!(seen.contains("evil"), "{seen}");
        fs::metadata(&file).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!(bits(&NO_WALLS), 0o4755, "the control");
    assert_eq!(bits(&Policy::Standard.options()), 0o755);
}

/// A file that the caller passes as standard output is on the node and in no mount, but `fchmod` reaches it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_f21_no_file_that_is_handed_in_becomes_set_user_id() {
    // It must not write again: a later write would clear the bits.
    let script = "chmod 4755 /proc/self/fd/1; echo tried >&2; sleep 300";
    let mode = |policy: &str| {
        let node = Node::new();
        let bundle = node.bundle("bundle", &node.config(&["sh", "-c", script]));
        let file = node.scratch.file("out", "");
        let id = format!("handed-{policy}");
        let output = fs::File::create(&file).unwrap();
        let errors = node.scratch.file("errors", "");
        let second = fs::File::create(&errors).unwrap();
        let mut command = Command::new(program());
        command.args(["--root", &node.root, "--policy", policy, "run", "--detach"]);
        command.args(["--bundle", &bundle, &id]);
        command.stdin(Stdio::null()).stdout(output).stderr(second);
        assert!(command.status().unwrap().success());
        let tried = || fs::read_to_string(&errors).unwrap().contains("tried");
        await_that("it was tried", tried);
        node.call(&["delete", "--force", &id]).ok();
        fs::metadata(&file).unwrap().permissions().mode() & 0o7000
    };
    assert_eq!(mode("permissive"), 0o4000, "the control");
    assert_eq!(mode("standard"), 0);
}

/// The same with `exec`, which uses the filter of the start.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_f21_exec_hands_no_file_to_a_container_that_makes_set_user_id_files() {
    let node = Node::new();
    let bundle = node.bundle("bundle", &node.config(&["sleep", "300"]));
    let run = |policy: &str, id: &str| {
        let mut command = Command::new(program());
        command.args(["--root", &node.root, "--policy", policy, "run", "--detach"]);
        command.args(["--bundle", &bundle, id]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        assert!(command.status().unwrap().success());
        // Its output goes to a file.
        let result = node.call(&["exec", "--detach", id, "true"]);
        node.call(&["delete", "--force", id]).ok();
        result
    };
    run("strict", "handed-strict").ok();
    let words = run("standard", "handed-exec").failed();
    assert!(
        words.contains("descriptor 1 leads to a file of the node"),
        "{words}"
    );
}

/// If the policy says `on`, package managers work as usual.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h5_permissive_lets_programs_be_installed() {
    let docker = Docker::connect();
    let script = "cp /bin/busybox /usr/bin/new-su && chmod 4755 /usr/bin/new-su && stat -c %a /usr/bin/new-su";
    let options = Policy::Permissive.options();
    let seen = docker
        .run(&options, &["test-musl", "sh", "-c", script])
        .ok();
    assert_eq!(seen.trim(), "4755");
}
