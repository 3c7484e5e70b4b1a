//! Denials are listed once the command has ended.

use super::account::Account;
use crate::command::{Finished, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

/// Requests a host seven times by the proxy, another by its name alone, and prints a line.
const REFUSED: &str = "for n in 1 2 3 4 5 6 7; do curl -sS -o /dev/null https://files.example.org/ 2>&1; done; \
    curl -sS -o /dev/null http://other.example.org:8080/; echo done";

fn wrap(scratch: &Scratch, options: &[&str], script: &str) -> Finished {
    let node = super::NodeDir::new();
    let policies = node.policies();
    let policy =
        "base = \"standard\"\n[network]\nmode = \"allowlist\"\nallow = [\"listed.example.org\"]\n";
    node.file("policies/net.toml", policy);
    let config = node.file("config.toml", &format!("policy-dir = \"{policies}\"\n"));
    let mut command = std::process::Command::new(program());
    command.args(["--config", &config, "wrap", "--policy", "net"]);
    command.args(options).args(["--", "bash", "-c", script]);
    command.current_dir(scratch.dir("project"));
    finish(&mut command)
}

fn said(seen: &Finished) -> Vec<&str> {
    let lines = seen.stderr.lines();
    lines
        .filter(|l| l.starts_with("agentbox: denied"))
        .collect()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a7_what_was_refused_is_said_at_the_end() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let seen = wrap(&scratch, &[], REFUSED);
    let lines = said(&seen);
    assert_eq!(lines.len(), 2, "{seen}");
    assert!(
        lines[0].starts_with("agentbox: denied: files.example.org:443 x7; "),
        "{seen}"
    );
    assert!(
        lines[0].contains("--allow files.example.org allows it"),
        "{seen}"
    );
    assert!(
        lines[1].starts_with("agentbox: denied: other.example.org:8080; "),
        "{seen}"
    );
    assert!(
        lines[1].contains("--allow other.example.org:8080 allows it"),
        "{seen}"
    );
    // It comes last, and the command's own output is unchanged.
    assert!(seen.stderr.trim_end().ends_with(lines[1]), "{seen}");
    assert!(
        seen.stdout.ends_with("done\n") && !seen.stdout.contains("agentbox: denied"),
        "{seen}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a7_nothing_is_said_of_nothing_and_a_file_has_all() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    assert!(said(&wrap(&scratch, &[], "true")).is_empty());
    let file = scratch.path("summary.md");
    let options = ["--quiet", "--summary", &file];
    // A file that the command puts in its place is not written.
    let seen = wrap(&scratch, &options, REFUSED);
    assert!(!said(&seen).is_empty(), "--quiet hides no denial: {seen}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("| `files.example.org:443` | 7 | "), "{text}");
    wrap(&scratch, &options, "true").ok();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("Nothing was denied."), "{text}");
    // A path in the workspace: the command replaces the file by a link, and the link's target does not change.
    let target = scratch.file("target", "untouched");
    let inside = scratch.path("project/summary.md");
    let swap = format!("rm summary.md; ln -s {target} summary.md; {REFUSED}");
    wrap(&scratch, &["--summary", &inside], &swap).ok();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "untouched");
    std::fs::remove_file(&inside).unwrap();
    let swapped = wrap(
        &scratch,
        &["--summary", &inside],
        "rm summary.md; ln -s / summary.md",
    );
    assert!(swapped.stderr.contains("is lost"), "{swapped}");
    // The control: a summary that is kept is not reported as lost.
    let kept = wrap(&scratch, &["--summary", &file], "true");
    assert!(!kept.stderr.contains("is lost"), "{kept}");
    let nowhere = wrap(&scratch, &["--summary", "/none/such"], "echo ran");
    assert!(nowhere.code != 0 && nowhere.stdout.is_empty(), "{nowhere}");
}

/// A debugger that fails is told of the option at the end, which lets it work.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_at_the_end_which_option_lets_a_debugger_work() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    // PTRACE_TRACEME of the C library, by Python: 0.
    // Its tracer would be the shell, which waits for it.
    let script = "python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))'; true";
    let seen = wrap(&scratch, &[], script);
    let line = "agentbox: denied: system calls of debuggers: ptrace; --set syscalls.profile=debug allows them";
    assert_eq!(said(&seen), [line], "{seen}");
    assert_eq!(seen.stdout.trim(), "-1", "{seen}");
    let debug = ["--set", "syscalls.profile=debug"];
    let seen = wrap(&scratch, &debug, script);
    assert!(
        said(&seen).is_empty() && seen.stdout.trim() == "0",
        "{seen}"
    );
}

/// Programs print only "Operation not permitted". One line has all of these calls, and says where the reasons are.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_at_the_end_which_system_calls_were_denied_and_says_nothing_after_ordinary_programs() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let script = "unshare -Ur true; mount -t tmpfs x /mnt; dmesg; dmesg; true";
    let seen = wrap(&scratch, &["--name", "calls"], script);
    let [line] = said(&seen)[..] else {
        panic!("{seen}");
    };
    let names = line.strip_prefix("agentbox: denied: system calls: ");
    let names = names.and_then(|rest| rest.strip_suffix("; agentbox audit calls has the reasons"));
    let mut names: Vec<&str> = names.unwrap().split(", ").collect();
    // dmesg calls it twice.
    assert_eq!(names.remove(0), "syslog x4", "{seen}");
    names.sort_unstable();
    assert_eq!(names, ["mount", "unshare"], "{seen}");
    // The control: programs that only probe.
    let ordinary = "git init -q r; ls -la; python3 -c 'import socket, subprocess; subprocess.run([\"id\"])'; tar cf t r; \
         cp -a r s; gcc -x c -o p - <<< 'int main(void){return 0;}' && ./p; perl -e 'system(\"id\")'; ps; \
         command -v node >/dev/null && node -e 0; find . | xargs stat > /dev/null";
    let seen = wrap(&scratch, &[], ordinary);
    assert!(said(&seen).is_empty(), "{seen}");
}

/// Endless denials give only a few lines.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_u_a7_a_flood_of_refusals_is_few_lines() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let script = "for n in {1..40}; do curl -s -o /dev/null http://h$n.example.org/; done; true";
    let seen = wrap(&scratch, &[], script);
    let lines = said(&seen);
    assert!(lines.len() <= 12, "{seen}");
    assert!(lines[10].contains("and 30 more"), "{seen}");
}

/// A link that an earlier command made from the summary file, or from a variables file, is not followed.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_link_that_the_command_planted_leads_the_next_run_nowhere() {
    let _docker = Docker::connect();
    let person = Account::new();
    let project = std::path::Path::new(&person.project);
    let precious = std::path::Path::new(&person.home).join("precious");
    person.does("echo TOKEN=kept >precious");
    let wrap = |options: &[&str], script: &str| {
        let words = [&["wrap"][..], options, &["--", "sh", "-c", script]].concat();
        finish(&mut person.sudo(&words))
    };
    let link = format!(
        "ln -sf {} refused.md; ln -sf {0} .env; mkfifo pipe",
        precious.display()
    );
    wrap(&[], &link).ok();
    for planted in ["refused.md", "pipe"] {
        let refused = wrap(&["--summary", planted], "echo ran");
        assert!(!refused.stdout.contains("ran"), "{refused}");
        assert!(refused.failed().contains("--summary"));
    }
    let refused = wrap(&["--env-file", ".env"], "echo ran $TOKEN");
    assert!(!refused.stdout.contains("ran"), "{refused}");
    assert!(refused.failed().contains("a command could have made"));
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "TOKEN=kept\n");
    // A link of the user's own, elsewhere, is followed. A dry run changes nothing.
    let own = std::path::Path::new(&person.home).join("own.md");
    std::os::unix::fs::symlink(&precious, &own).unwrap();
    let own = own.to_str().unwrap();
    wrap(&["--summary", own, "--dry-run"], "true").ok();
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "TOKEN=kept\n");
    wrap(&["--summary", own], "true").ok();
    assert!(
        std::fs::read_to_string(&precious)
            .unwrap()
            .contains("Nothing was denied")
    );
    assert!(project.join("pipe").exists());
}
