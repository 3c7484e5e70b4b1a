//! `wrap` where something usual is missing or different.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use super::account::Account;
use crate::command::{Finished, finish, run};
use crate::direct::program;
use crate::docker::Docker;

/// Each way to call it in the project: as the user behind sudo, and as the user.
fn both(person: &Account, arguments: &[&str], also: &dyn Fn(&mut Command)) -> [Finished; 2] {
    [person.sudo(&[]), person.alone(&[&program()])].map(|mut command| {
        command.args(arguments);
        also(&mut command);
        finish(&mut command)
    })
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_runs_in_any_locale_and_names_a_path_that_is_no_text() {
    let _docker = Docker::connect();
    let person = Account::new();
    for locale in ["C", "POSIX", "de_DE.ISO-8859-1", "no_SUCH.thing"] {
        let script = "printf %s \"$1\" >\"$1\"; cat \"$1\"; echo \" $LC_ALL\"; rm \"$1\"";
        let words = ["wrap", "--", "bash", "-c", script, "-", "\u{e4}"];
        let ended = both(&person, &words, &|command| {
            command.env("LC_ALL", locale);
        });
        for finished in ended {
            assert_eq!(finished.ok(), format!("\u{e4} {locale}\n"));
        }
    }
    person.does("mkdir ~/src/$'pr\\xf6jekt'");
    let odd = std::path::Path::new(&person.home).join("src");
    let odd = odd.join(OsStr::from_bytes(b"pr\xf6jekt"));
    for walls in ["namespaces", "landlock"] {
        let words = ["wrap", "--walls", walls, "--", "echo", "ran"];
        let inside = both(&person, &words, &|command| {
            command.current_dir(&odd);
        });
        let words = &words[..3];
        let named = both(&person, words, &|command| {
            command.arg("--read").arg(&odd).args(["--", "echo", "ran"]);
        });
        for finished in inside.into_iter().chain(named) {
            let ran = finished.stdout.contains("ran");
            let refused = finished.failed();
            assert!(refused.contains("pr\\xF6jekt"), "{refused}");
            assert!(refused.contains("rename it") && !ran, "{refused}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_works_for_a_home_that_is_a_file_system_of_its_own() {
    let _docker = Docker::connect();
    let person = Account::new();
    let home = person.home.clone();
    run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", &home]).ok();
    std::os::unix::fs::chown(&home, Some(person.uid), Some(person.gid)).unwrap();
    person.does("mkdir -p ~/src/project");
    let notes = person.file("notes", "notes\n");
    let key = person.file(".ssh/id_ed25519", "the-secret");
    let script = format!(
        "cat {notes}; cat {key}; echo x >made && cat made && rm made; touch ~/new && echo home"
    );
    for walls in ["namespaces", "landlock"] {
        for (policy, expected) in [
            ("strict", "x\nhome\n"),
            ("standard", "x\nhome\n"),
            ("permissive", "notes\nx\nhome\n"),
        ] {
            let words = [
                "wrap", "--walls", walls, "--policy", policy, "--", "bash", "-c", &script,
            ];
            for finished in both(&person, &words, &|_| ()) {
                assert_eq!(finished.ok(), expected, "{walls} {policy}");
            }
        }
    }
    // The control: without walls all of it can be read. Only the project was written.
    assert_eq!(
        person.does("cat ~/notes ~/.ssh/id_ed25519"),
        "notes\nthe-secret"
    );
    assert!(!std::path::Path::new(&home).join("new").exists());
    run("umount", &["--lazy", &home]).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_runs_as_the_person_whom_su_makes() {
    let _docker = Docker::connect();
    let person = Account::new();
    let (name, uid, home) = (&person.name, person.uid, &person.home);
    let mut shadow = std::fs::File::options()
        .append(true)
        .open("/etc/shadow")
        .unwrap();
    std::io::Write::write_all(
        &mut shadow,
        format!("{name}:*:19000:0:99999:7:::\n").as_bytes(),
    )
    .unwrap();
    let inside = "id -u; echo $HOME $USER; id -g; echo x >made; stat -c %U made; rm made";
    let line = format!(
        "cd {home}/src/project && {} wrap --quiet -- bash -c '{inside}'",
        program()
    );
    for options in [&[name.as_str()][..], &["-", name], &["--pty", "-", name]] {
        let arguments = [options, &["-c", &line]].concat();
        let mut su = Command::new("su");
        su.args(&arguments).current_dir("/");
        // su itself types the end of input into its pseudo-terminal.
        let seen = finish(&mut su).ok().replace('\r', "").replace("^@", "");
        let gid = person.gid;
        assert_eq!(
            seen,
            format!("{uid}\n{home} {name}\n{gid}\n{name}\n"),
            "{options:?}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_ask_without_a_terminal_to_ask_at_waits_and_ends() {
    let _docker = Docker::connect();
    let person = Account::new();
    let script = "curl -sS --max-time 2 http://other.example.test/ 2>&1; true";
    let words = ["wrap", "--quiet", "--ask", "--", "bash", "-c", script];
    for mut command in [person.sudo(&[]), person.alone(&[&program()])] {
        let mut setsid = Command::new("setsid");
        setsid
            .arg("--wait")
            .arg(command.get_program())
            .args(command.get_args())
            .args(words);
        let set = command.env("LC_ALL", "C").get_envs();
        setsid.envs(set.filter_map(|(name, value)| Some((name, value?))));
        setsid.current_dir(&person.project);
        let said = finish(&mut setsid).ok();
        assert!(
            said.contains("timed out") && !said.contains("which no rule"),
            "{said}"
        );
    }
}

/// Former fault: the command was killed, and the status 137 was all that was seen.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_command_that_the_kernel_kills_for_its_memory_has_a_closing_line() {
    let _docker = Docker::connect();
    let person = Account::new();
    let run = |options: &[&str], script: &str| {
        let mut command = person.sudo(&["wrap"]);
        command.args(options).args(["--", "python3", "-c", script]);
        finish(&mut command)
    };
    let limit = ["--set", "limits.memory=64MiB"];
    let line = "the kernel killed a process for limits.memory; --set limits.memory=SIZE";
    let killed = run(&limit, "bytearray(300 << 20)");
    assert_eq!(killed.code, 137, "{killed}");
    assert!(killed.stderr.contains(line), "{killed}");
    // The control, and the same without a word.
    let fits = run(&limit, "bytearray(8 << 20)");
    assert!(fits.code == 0 && !fits.stderr.contains("killed"), "{fits}");
    let quiet = run(&[&limit[..], &["--quiet"]].concat(), "bytearray(300 << 20)");
    assert!(quiet.code == 137 && quiet.stderr.is_empty(), "{quiet}");
}
