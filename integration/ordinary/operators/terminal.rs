//! Output for users: into a pipe that closes, errors at a terminal, the version.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The build script's way to read a clone.
#[path = "../../../hack/build.d/commit.rs"]
mod build_script;

/// The binary under test.
fn agentbox() -> Command {
    let program = std::env::var_os("AGENTBOX_BIN").unwrap_or(env!("CARGO_BIN_EXE_agentbox").into());
    Command::new(program)
}

/// Runs it with this output until it ends.
fn into(out: impl Into<Stdio>, arguments: &[&str]) -> Output {
    let mut command = agentbox();
    command.args(arguments).stdin(Stdio::null());
    command.stdout(out.into()).stderr(Stdio::piped());
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// The write end of a pipe without a reader.
fn closed_pipe() -> OwnedFd {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    writer
}

/// Verbs that print without a container, with their exit code if the output is read to its end.
const VERBS: [(&[&str], i32); 12] = [
    (&["--version"], 0),
    (&["--help"], 0),
    (&["policy", "--help"], 0),
    (&[], 1),
    (&["features"], 0),
    (&["list"], 0),
    (&["list", "--all"], 0),
    (&["list", "--format", "json"], 0),
    (&["approvals"], 0),
    (&["policy", "list"], 0),
    (&["policy", "show", "standard"], 0),
    (
        &["policy", "check", "strict", "--host", "a.example.test"],
        1,
    ),
];

#[test]
fn u_all_1_output_into_a_closed_pipe_ends_quietly() {
    for (arguments, status) in VERBS {
        for round in 0..3 {
            let out = into(closed_pipe(), arguments);
            let said = String::from_utf8_lossy(&out.stderr);
            assert_eq!(
                (out.status.code(), said.as_ref()),
                (Some(status), ""),
                "{arguments:?}, round {round}"
            );
        }
    }
}

#[test]
fn u_all_1_a_closed_standard_error_is_ignored() {
    let mut command = agentbox();
    command.args(["--log", "/dev/null", "state", "nobody-of-this-name"]);
    command.stdout(Stdio::null()).stderr(closed_pipe());
    assert_eq!(command.status().unwrap().code(), Some(1));
}

#[test]
fn a_full_disk_is_an_error_that_says_so() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = into(full(), &["features"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("write to standard output"), "{said}");
    // An answer that was not written does not count.
    let out = into(full(), VERBS[11].0);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn u_all_2_an_error_is_a_plain_sentence_at_a_terminal_and_a_line_in_a_log() {
    let program = agentbox().get_program().to_str().unwrap().to_owned();
    let at_a_terminal = |arguments: &str| {
        let line = format!("{program} {arguments}");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        let out = command.stdin(File::open("/dev/null").unwrap()).output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        text.replace('\r', "")
    };
    assert_eq!(
        at_a_terminal("state nobody-of-this-name"),
        "agentbox: container does not exist: nobody-of-this-name\n"
    );
    // What an engine lists by that name may be none of agentbox's.
    for verb in ["explain", "verify", "network"] {
        let said = at_a_terminal(&format!("{verb} nobody-of-this-name"));
        assert!(
            said.contains("without --runtime=agentbox has no walls"),
            "{said}"
        );
    }
    // A caller that requests a format gets it. So does a pipe.
    let line = "level=error msg=\"container does not exist: nobody-of-this-name\"";
    let asked = at_a_terminal("--log-format text state nobody-of-this-name");
    assert!(
        asked.starts_with("time=") && asked.contains(line),
        "{asked}"
    );
    let piped = into(Stdio::null(), &["state", "nobody-of-this-name"]);
    let piped = String::from_utf8(piped.stderr).unwrap();
    assert!(
        piped.starts_with("time=") && piped.contains(line),
        "{piped}"
    );
}

#[test]
fn a_message_is_one_readable_line_and_debug_has_all_of_it() {
    let missing = "/nowhere".repeat(160);
    let said = |before: &[&str]| {
        let config = [
            "--log-format",
            "json",
            "--config",
            &missing,
            "policy",
            "list",
        ];
        let out = into(Stdio::null(), &[before, &config[..]].concat());
        assert_eq!(out.status.code(), Some(1));
        let text = String::from_utf8(out.stderr).unwrap();
        let last = text.lines().last().unwrap().to_owned();
        let line: serde_json::Value = serde_json::from_str(&last).unwrap();
        line["msg"].as_str().unwrap().to_owned()
    };
    let short = said(&[]);
    assert_eq!(short.chars().count(), 800, "{short}");
    let whole = said(&["--debug"]);
    assert!(whole.contains(&missing), "{whole}");
    let (head, tail) = short.split_once(" ... ").unwrap();
    assert!(whole.starts_with(head) && whole.ends_with(tail), "{short}");
}

#[test]
fn policy_check_prints_every_field_that_a_message_leaves_out() {
    let asked = [
        "filesystem.mounts=keep",
        "filesystem.search=partial",
        "filesystem.credentials=.npmrc",
        "privileges.set-id=on",
    ];
    let mut arguments = vec!["policy", "check", "standard", "--host", "a.test"];
    for annotation in asked {
        arguments.extend(["--annotation", annotation]);
    }
    let out = into(Stdio::null(), &arguments);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    let first = said.lines().next().unwrap();
    assert!(first.contains("more fields"), "{said}");
    for annotation in asked {
        let (field, value) = annotation.split_once('=').unwrap();
        let line = format!("\n{field} requests {value} (annotation), allowed: ");
        assert!(said.contains(&line), "{line}: {said}");
    }
}

/// A release without tables for unwinding aborted at the first error.
#[test]
fn an_error_is_said_where_backtraces_are_wanted() {
    for name in ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"] {
        let mut command = agentbox();
        command.args(["policy", "show", "nosuch"]).env(name, "1");
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{name}: {out:?}");
        assert!(said.contains("nosuch"), "{name}: {said}");
    }
}

#[test]
fn the_version_has_runcs_format_and_the_commit_is_the_clones() {
    let out = into(Stdio::piped(), &["--version"]);
    let text = String::from_utf8(out.stdout).unwrap();
    let keys: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once([' ', ':']))
        .map(|(key, _)| key)
        .collect();
    let forms: [&[&str]; 3] = [
        &["agentbox", "spec"],
        &["agentbox", "commit", "spec"],
        &["agentbox", "commit", "date", "spec"],
    ];
    assert!(forms.contains(&keys.as_slice()), "{text}");
    // What the release has in it: this clone's, where it is one.
    let clone = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = Command::new("git")
        .args(["-c", "safe.directory=*", "rev-parse", "HEAD"])
        .current_dir(clone)
        .output();
    if let Ok(git) = git.map(|git| String::from_utf8(git.stdout).unwrap())
        && clone.join(".git").exists()
    {
        assert_eq!(build_script::commit(clone).0.as_deref(), Some(git.trim()));
        // Of another user's clone, git tells nothing.
        let date = build_script::date(clone, git.trim());
        assert!(date.is_none_or(|date| date.starts_with("20")));
    }
}

#[test]
fn a_tarball_has_no_commit_and_a_packed_name_has_one() {
    let dir = std::env::temp_dir().join(format!("agentbox-version-{}", std::process::id()));
    std::fs::create_dir_all(dir.join(".git")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.join(".git").join(name), text).unwrap();
    let hash = "0123456789abcdef0123456789abcdef01234567";
    assert_eq!(build_script::commit(&dir.join("elsewhere")).0, None);
    assert_eq!(build_script::date(&dir.join("elsewhere"), hash), None);
    write("HEAD", "ref: refs/heads/main\n");
    assert_eq!(build_script::commit(&dir).0, None);
    write(
        "packed-refs",
        &format!("# pack-refs with: peeled\n{hash} refs/heads/main\n"),
    );
    assert_eq!(build_script::commit(&dir).0.as_deref(), Some(hash));
    write("HEAD", &format!("{hash}\n"));
    assert_eq!(build_script::commit(&dir).0.as_deref(), Some(hash));
    // The content of these files must not become our output.
    write("HEAD", "cargo::rustc-env=X=Y\n");
    assert_eq!(build_script::commit(&dir).0, None);
    std::fs::remove_dir_all(&dir).unwrap();
}
