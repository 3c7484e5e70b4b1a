//! F43, F52 (docs/threats.md): a file that the caller redirects into a sandbox, or a pipe as its input, is read or written as
//! redirected, and in no other way. By /proc/self/fd a program could open it again; no mount wall sees that.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::{Running, called_by, sleeper};
use crate::command::{Finished, finish};
use crate::direct::{Node, Scratch, program};
use crate::docker::Docker;

/// Reads input, then tries to change it, and to read, change and shorten what output had before.
const ATTACK: &str = "cat; for n in 0 1 2; do chmod 777 /proc/self/fd/$n; : >/proc/self/fd/$n; done; \
    echo EVIL >>/proc/self/fd/0; for n in 1 2; do timeout 1 grep -q earlier /proc/self/fd/$n && echo EVIL; done; true";

/// A file for input, and one that output is appended to.
struct Redirected(Scratch);

impl Redirected {
    fn new() -> Self {
        let files = Self(Scratch::new());
        fs::write(files.path("input"), "echo hello\n").unwrap();
        fs::write(files.path("log"), "earlier\n").unwrap();
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The files as a shell's `<input >>log` opens them.
    fn give(&self, command: &mut Command) {
        let log = File::options().append(true).open(self.path("log")).unwrap();
        command
            .stdin(File::open(self.path("input")).unwrap())
            .stdout(log)
            .stderr(Stdio::null());
    }

    /// Whether the files are as a program without malice leaves them. What a program reads of its own output, before the relay has
    /// it, is in no log: the attack takes back nothing else.
    fn is_intact(&self) -> bool {
        let mode = |name| fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o777;
        self.text("input") == "echo hello\n"
            && ["earlier\n", "earlier\necho hello\n"].contains(&self.text("log").as_str())
            && [mode("input"), mode("log")] == [0o644; 2]
    }
}

#[track_caller]
fn stays_intact(what: &str, mut command: Command) {
    let files = Redirected::new();
    files.give(&mut command);
    let status = command.status().unwrap();
    assert!(
        files.is_intact(),
        "{what}: {status}: {:?} {:?}",
        files.text("input"),
        files.text("log")
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f43_a_redirected_file_is_opened_in_no_other_way() {
    let _docker = Docker::connect();
    let files = Redirected::new();
    let mut control = Command::new("bash");
    control.args(["-c", ATTACK]);
    files.give(&mut control);
    control.status().unwrap();
    assert!(!files.is_intact(), "the control");

    let project = Scratch::new();
    let ways = [
        ["--policy", "strict"],
        ["--policy", "standard"],
        ["--walls", "landlock"],
    ];
    for [option, way] in ways {
        let mut wrap = Command::new(program());
        wrap.args(["wrap", option, way, "--", "bash", "-c", ATTACK]);
        wrap.current_dir(project.dir("project"));
        stays_intact(way, wrap);
    }

    let node = Node::new();
    let container = Running::start(&node, "redirected", "standard", &sleeper(&node));
    let exec = ["exec", &container.id, "sh", "-c", ATTACK];
    stays_intact("exec", called_by(&[], &node, &exec));
    let id = format!("redirect-{}", std::process::id());
    let bundle = node.bundle(&id, &node.config(&["sh", "-c", ATTACK]));
    let run = ["--policy", "standard", "run", "--bundle", &bundle, &id];
    stays_intact("run", called_by(&[], &node, &run));
}

/// Nothing stays to relay: input comes through a mount that cannot be written.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f43_a_detached_process_cannot_write_its_input() {
    const WRITE: &str = "cat >/tmp/seen; echo EVIL >>/proc/self/fd/0; chmod 777 /proc/self/fd/0; touch /tmp/done; sleep 60";
    let node = Node::new();
    let container = Running::start(&node, "input", "standard", &sleeper(&node));
    let files = Redirected::new();
    let exec = ["exec", "--detach", &container.id, "sh", "-c", WRITE];
    let mut command = called_by(&[], &node, &exec);
    command.stdin(File::open(files.path("input")).unwrap());
    command.stdout(Stdio::null());
    node.finish(command).ok();
    let seen = [
        "exec",
        &container.id,
        "sh",
        "-c",
        "until [ -e /tmp/done ]; do sleep 0.1; done; cat /tmp/seen",
    ];
    assert_eq!(node.call(&seen).ok(), "echo hello\n");
    assert_eq!(files.text("input"), "echo hello\n");
    let mode = fs::metadata(files.path("input"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
}

fn in_shell(project: &str, script: &str) -> Finished {
    let mut shell = Command::new("bash");
    shell
        .args(["-c", script, "-", &program()])
        .current_dir(project);
    finish(&mut shell)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_script_goes_on_reading_where_a_command_stopped() {
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    let lines: String = (0..30_000).map(|n| format!("{n}\n")).collect();
    fs::write(scratch.path("project/list"), lines).unwrap();
    let one = in_shell(
        &project,
        "{ $1 wrap --quiet -- head -n 1 >/dev/null; $1 wrap --quiet -- true; $1 wrap --quiet -- head -c 100000 | wc -c; wc -l; } <list",
    )
    .ok();
    // What head(1) takes from a pipe is gone, as from any pipe; the rest is not.
    let mut lines = one.lines();
    assert_eq!(lines.next(), Some("100000"));
    let left: u32 = lines.next().unwrap().trim().parse().unwrap();
    assert!((1_000..20_000).contains(&left), "{left}");
    let names = in_shell(
        &project,
        "head -n 3 list >few; while read -r n; do $1 wrap --quiet -- echo \"<$n>\"; done <few",
    )
    .ok();
    assert_eq!(names, "<0>\n<1>\n<2>\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn output_in_a_file_is_whole_in_order_and_a_failure_is_said() {
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    let lines = in_shell(
        &project,
        "$1 wrap --quiet -- bash -c 'for n in {1..200}; do echo $n; echo $n >&2; done' >both 2>&1; cat both; \
         $1 wrap --quiet -- seq 200000 >much; sha256sum <much; seq 200000 | sha256sum",
    )
    .ok();
    let expected: String = (1..=200).map(|n| format!("{n}\n{n}\n")).collect();
    let sums = lines
        .strip_prefix(&expected)
        .unwrap_or_else(|| panic!("{lines}"));
    let sums: Vec<&str> = sums.lines().collect();
    assert_eq!(sums[0], sums[1]);
    let lost = in_shell(&project, "$1 wrap --quiet -- echo lost 1<much");
    assert_eq!(lost.code, 125, "{lost}");
    assert!(
        lost.stderr.contains("relay a file of the command"),
        "{lost}"
    );
}

/// One of a pair is a client's pipe; another could be connected to the node's network.
#[test]
#[ignore = "needs the rig: hack/test"]
fn s18_a_socket_that_could_be_connected_elsewhere_is_no_standard_stream() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let node = Node::new();
    let container = Running::start(&node, "socket", "standard", &sleeper(&node));
    let exec = ["exec", &container.id, "cat"];
    let mut wrap = Command::new(program());
    wrap.args(["wrap", "--", "cat"]);
    wrap.current_dir(scratch.dir("project"));
    for mut command in [called_by(&[], &node, &exec), wrap] {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        command.stdin(std::os::fd::OwnedFd::from(socket));
        let refused = node.finish(command).failed();
        assert!(
            refused.contains("could be connected elsewhere"),
            "{refused}"
        );
    }
    let mut command = called_by(&[], &node, &exec);
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut &other, b"pair").unwrap();
    drop(other);
    command.stdin(std::os::fd::OwnedFd::from(one));
    assert_eq!(node.finish(command).ok(), "pair");
}

/// What a process that is left writes for ever is not waited for.
#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_ends_though_its_output_goes_on() {
    let node = Node::new();
    let container = Running::start(&node, "goes-on", "standard", &sleeper(&node));
    let exec = ["exec", &container.id, "sh", "-c", "yes & sleep 0.2"];
    let seen = node.finish(called_by(&[], &node, &exec)).ok();
    assert!(seen.starts_with("y\ny\n"));
}

/// Types a command into standard input, which a shell outside reads, too. A full pipe holds it up.
const TYPES: &str = r#"timeout 2 sh -c "printf \"touch evil\\n\" >/proc/self/fd/0""#;

/// A shell outside that reads its commands from a pipe (`curl ... | sh`).
struct PipedShell {
    scratch: Scratch,
    project: String,
}

impl PipedShell {
    fn new() -> Self {
        let scratch = Scratch::new();
        let project = scratch.dir("project");
        Self { scratch, project }
    }

    /// Runs this command, and whether a command was typed into the pipe.
    #[track_caller]
    fn is_typed_into(&self, command: &str) -> bool {
        let mut shell = Command::new("bash");
        shell.current_dir(&self.project).stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let script = format!("{command}\ncd ..\nsleep 1\ntouch after\n");
        let mut input = shell.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        shell.wait().unwrap();
        fs::remove_file(self.scratch.path("after")).expect("the rest of the script has run");
        let evil = ["evil", "project/evil"].map(|name| fs::remove_file(self.scratch.path(name)));
        evil.iter().any(Result::is_ok)
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f52_nothing_is_typed_into_a_pipe_that_the_caller_reads() {
    let _docker = Docker::connect();
    let shell = PipedShell::new();
    assert!(
        shell.is_typed_into(&format!("bash -c '{TYPES}'")),
        "the control"
    );
    let program = program();
    for how in ["--policy strict", "--policy standard", "--walls landlock"] {
        let wrap = format!("{program} wrap {how} -- bash -c '{TYPES}'");
        assert!(!shell.is_typed_into(&wrap), "{how}");
    }
    let node = Node::new();
    let root = &node.root;
    let container = Running::start(&node, "piped", "standard", &sleeper(&node));
    for options in ["", "--detach"] {
        let id = &container.id;
        let exec = format!("{program} --root {root} exec {options} {id} sh -c '{TYPES}'");
        assert!(!shell.is_typed_into(&exec), "exec {options}");
    }
    for options in ["", "--detach"] {
        let id = format!("piped{options}-{}", std::process::id());
        let bundle = node.bundle(&id, &node.config(&["sh", "-c", TYPES]));
        let run = format!(
            "{program} --root {root} --policy standard run {options} --bundle {bundle} {id}"
        );
        assert!(!shell.is_typed_into(&run), "run {options}");
        node.call(&["delete", "--force", &id]);
    }
}

/// What the program has not read of a pipe is for the next command, and it reads all if it wants to.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_pipe_as_input_is_read_as_far_as_the_program_reads() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    for how in ["", "--walls landlock"] {
        let wrap = format!("$1 wrap --quiet {how} --");
        let left = format!(
            "seq 9 | {{ {wrap} true; {wrap} sh -c 'read x; read y; echo in $x $y'; {wrap} true </dev/null; cat; }}"
        );
        let left = in_shell(&project, &left).ok();
        assert_eq!(left, "in 1 2\n3\n4\n5\n6\n7\n8\n9\n", "{how}");
        let lines = format!("seq 3 | while read -r n; do {wrap} echo \"<$n>\"; done");
        assert_eq!(in_shell(&project, &lines).ok(), "<1>\n<2>\n<3>\n", "{how}");
        let whole = format!(
            "seq 200000 | {wrap} sha256sum; seq 200000 | sha256sum; : | {wrap} wc -c; yes | {wrap} head -n 1"
        );
        let whole = in_shell(&project, &whole).ok();
        let lines: Vec<&str> = whole.lines().collect();
        assert_eq!(
            (lines[0], &lines[2..]),
            (lines[1], &["0", "y"][..]),
            "{how}"
        );
        let slow = format!(
            "(echo one; sleep 1; echo two) | {wrap} sh -c 'read x; echo $x; read x; echo $x'"
        );
        assert_eq!(in_shell(&project, &slow).ok(), "one\ntwo\n", "{how}");
    }
}

/// A shell would read its script once more, from a place that the program chooses.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f43_a_file_is_given_back_to_its_start_at_most() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    let script = "dd bs=1 count=6 status=none; head -c 20 /dev/zero >/proc/self/fd/0 && echo wrote";
    fs::write(scratch.path("list"), "x".repeat(100)).unwrap();
    for how in [&[][..], &["--walls", "landlock"]] {
        let mut list = File::open(scratch.path("list")).unwrap();
        list.seek(SeekFrom::Start(20)).unwrap();
        let mut wrap = Command::new(program());
        wrap.args([&["wrap", "--quiet"], how, &["--", "sh", "-c", script]].concat());
        wrap.current_dir(&project).stdin(list.try_clone().unwrap());
        let seen = wrap.output().unwrap();
        let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
        assert_eq!(seen, "xxxxxxwrote\n", "the attack");
        assert_eq!(list.stream_position().unwrap(), 20, "{how:?}");
    }
}
