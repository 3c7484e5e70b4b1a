//! `verify ID` compares a running container with its plan: it finds what root on the node, or a broken engine, removed
//! or added. Each test's control is the same container a moment before.

use std::process::{Child, Command};

use serde_json::{Value, json};

use super::running::Running;
use crate::command::run;
use crate::direct::{Node, Scratch};

/// Mounts a file or directory of the node in a container by open_tree(2) and move_mount(2): private, and not visible
/// elsewhere.
const PUT_IN: &str = r#"
import ctypes, os, sys
pid, source, place = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
tree = libc.syscall(428, -100, source.encode(), 1 | 0o2000000)
assert tree >= 0, ctypes.get_errno()
is_directory = os.path.isdir(source)
assert libc.setns(os.open(f"/proc/{pid}/ns/mnt", 0), 0x20000) == 0, ctypes.get_errno()
if not os.path.exists(place):
    os.mkdir(place) if is_directory else open(place, "w").close()
assert libc.syscall(429, tree, b"", -100, place.encode(), 4) == 0, ctypes.get_errno()
"#;

/// A container with a workspace and a read-only mount.
fn start<'a>(node: &'a Node, scratch: &Scratch, name: &str, policy: &str) -> Running<'a> {
    let (work, reference) = (scratch.dir("work"), scratch.dir("ref"));
    Running::start(node, name, policy, |config| {
        let mounts = config["mounts"].as_array_mut().unwrap();
        for (place, source, options) in [
            ("/work", &work, json!(["rbind", "rw"])),
            ("/ref", &reference, json!(["rbind", "ro"])),
        ] {
            mounts.push(
                json!({"destination": place, "type": "bind", "source": source, "options": options}),
            );
        }
        config["process"]["cwd"] = json!("/work");
    })
}

/// The result of a node probe, with the exit status.
fn verdict(container: &Running<'_>, id: &str) -> (i32, String) {
    let (code, entries, report) = container.verify();
    let entry = entries.get(&("node".to_owned(), id.to_owned()));
    (
        code,
        entry.unwrap_or_else(|| panic!("{report:#}")).0.clone(),
    )
}

fn held() -> (i32, String) {
    (0, "held".to_owned())
}

fn gone() -> (i32, String) {
    (1, "not-held".to_owned())
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_a_mount_that_the_plan_does_not_have() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path("engine.sock")).unwrap();
    let socket = scratch.path("engine.sock");
    for (number, (source, place)) in [
        (socket.as_str(), "/tmp/d.sock"),
        ("/", "/tmp/host"),
        ("/etc", "/tmp/etc"),
        ("/run/agentbox", "/run/state"),
        ("/etc", "/ref"),
        ("/etc", "/work"),
    ]
    .into_iter()
    .enumerate()
    {
        let container = start(&node, &scratch, &format!("foreign-{number}"), "standard");
        assert_eq!(verdict(&container, "mounts-of-the-plan"), held(), "{place}");
        let python = ["-c", PUT_IN, &container.pid(), source, place];
        run("/usr/bin/python3", &python).ok();
        assert_eq!(verdict(&container, "mounts-of-the-plan"), gone(), "{place}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_an_attribute_that_a_mount_lost() {
    let (node, scratch) = (Node::new(), Scratch::new());
    for (number, (policy, options, place)) in [
        ("standard", "remount,bind,rw,nosuid,nodev", "/ref"),
        ("standard", "remount,bind,rw,suid,dev", "/work"),
        ("strict", "remount,bind,exec,nosuid,nodev", "/root"),
        ("standard", "remount,bind,rw", "/proc/sys"),
    ]
    .into_iter()
    .enumerate()
    {
        let container = start(&node, &scratch, &format!("lost-{number}"), policy);
        assert_eq!(verdict(&container, "mounts-of-the-plan"), held(), "{place}");
        let pid = container.pid();
        let enter = ["--target", &pid, "--mount", "--pid", "--root", "--wd"];
        let mount = ["/bin/mount", "-o", options, place];
        run("nsenter", &[&enter[..], &mount].concat()).ok();
        assert_eq!(verdict(&container, "mounts-of-the-plan"), gone(), "{place}");
    }
}

/// Disguised as a wall: read-only, at a path that the plan makes read-only.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_the_nodes_files_at_a_place_that_is_read_only() {
    let (node, scratch) = (Node::new(), Scratch::new());
    for (number, source) in ["/", "/run/agentbox", "/proc/sys"].into_iter().enumerate() {
        let container = start(&node, &scratch, &format!("clothes-{number}"), "standard");
        assert_eq!(
            verdict(&container, "mounts-of-the-plan"),
            held(),
            "{source}"
        );
        let pid = container.pid();
        run(
            "/usr/bin/python3",
            &["-c", PUT_IN, &pid, source, "/proc/sys"],
        )
        .ok();
        let enter = ["--target", &pid, "--mount", "--pid", "--root", "--wd"];
        let options = "remount,bind,ro,nosuid,nodev,noexec";
        let mount = ["/bin/mount", "-o", options, "/proc/sys"];
        run("nsenter", &[&enter[..], &mount].concat()).ok();
        assert_eq!(
            verdict(&container, "mounts-of-the-plan"),
            gone(),
            "{source}"
        );
    }
}

/// A process name may have any bytes, and a long one is cut within a character.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_is_not_misled_by_the_name_of_a_process() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let container = start(&node, &scratch, "named", "standard");
    let script = "printf '\\377' >/proc/$$/comm; sleep 60; true";
    let started = node.call(&["exec", "--detach", &container.id, "sh", "-c", script]);
    assert_eq!(started.code, 0, "{started}");
    // The control: the name is there.
    let odd = "for f in /proc/[0-9]*/comm; do od -An -tx1 $f; done | grep -q ff && echo there";
    let seen = (0..100).any(|_| container.exec(odd).contains("there"));
    assert!(seen);
    assert_eq!(verdict(&container, "every-process"), held());
}

/// Killed with the test.
struct Rogue(Child);

impl Drop for Rogue {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_a_process_that_is_not_behind_the_walls() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let container = start(&node, &scratch, "rogue", "standard");
    // Another exec process is none.
    let healthy = node.call(&["exec", "--detach", &container.id, "sleep", "60"]);
    assert_eq!(healthy.code, 0, "{healthy}");
    assert_eq!(verdict(&container, "every-process"), held());
    let pid = container.pid();
    let spaces = ["--target", &pid, "--mount", "--net", "--ipc", "--uts"];
    let rogue = Command::new("nsenter")
        .args(spaces)
        .args(["/bin/sleep", "60"])
        .spawn();
    let rogue = Rogue(rogue.unwrap());
    let link = || std::fs::read_link(format!("/proc/{}/ns/mnt", rogue.0.id())).unwrap();
    let own = std::fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    while link() != own {
        std::thread::yield_now();
    }
    assert_eq!(verdict(&container, "every-process"), gone());
    drop(rogue);
    assert_eq!(verdict(&container, "every-process"), held());
}

/// By then, no exec process can be started. That is not a missing answer.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_says_which_wall_is_gone_where_exec_is_refused() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let container = start(&node, &scratch, "interface", "standard");
    assert_eq!(
        verdict(&container, "interfaces-of-the-first-process"),
        held()
    );
    let pid = container.pid();
    let enter = ["--target", &pid, "--net", "ip", "link", "add", "ev1"];
    run(
        "nsenter",
        &[&enter[..], &["type", "veth", "peer", "name", "ev2"]].concat(),
    )
    .ok();
    assert_eq!(
        verdict(&container, "interfaces-of-the-first-process"),
        gone()
    );
    let words = node.call(&["verify", &container.id]);
    assert!(words.stdout.contains("the interface ev1"), "{words}");
    assert!(
        words.stdout.contains("no probe process could be started"),
        "{words}"
    );

    let container = start(&node, &scratch, "filter", "standard");
    assert_eq!(verdict(&container, "kept-filter"), held());
    let pattern = format!("*{}*/filter", container.id);
    let found = run("find", &["/run/agentbox", "-path", &pattern]).ok();
    let path = found.trim();
    let mut program = std::fs::read(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let whole = program.clone();
    // Changes a constant of the first comparison: it is still a valid program.
    program[12] ^= 1;
    std::fs::write(path, &program).unwrap();
    assert_eq!(verdict(&container, "kept-filter"), gone());
    std::fs::write(path, whole).unwrap();
    assert_eq!(verdict(&container, "kept-filter"), held());
}

/// Engines start processes at any moment: a starting process is not one without walls.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_waits_for_a_process_of_exec_that_is_being_started() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let container = start(&node, &scratch, "busy", "standard");
    let script = format!(
        "for n in $(seq 30); do {} --root {} exec {} true || exit 1; done",
        crate::direct::program(),
        node.root,
        container.id
    );
    let mut busy = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let mut reports: Vec<(i32, Value)> = Vec::new();
    while busy.try_wait().unwrap().is_none() {
        let (code, _, report) = container.verify();
        reports.push((code, report));
    }
    assert!(busy.wait().unwrap().success());
    for (code, report) in reports {
        assert_eq!(code, 0, "{report:#}");
    }
}

/// Runs a command in a container's mounts, as the node's root.
fn within(pid: &str, command: &[&str]) {
    let enter = ["--target", pid, "--mount", "--pid", "--root", "--wd"];
    run("nsenter", &[&enter[..], command].concat()).ok();
}

/// Mounts that look like the plan's, but that the container did not have at its start.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_a_mount_that_was_exchanged_or_taken_away_since_the_start() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let secret = format!("{}/.netrc", scratch.dir("work"));
    let other = scratch.file("other", "127.0.0.1 metadata\n");
    type Swap<'a> = (&'a str, &'a dyn Fn(&str));
    let swap: &[Swap<'_>] = &[
        // The processes of another pid namespace: the rig's, in a new mount.
        ("proc", &|pid: &str| {
            run(
                "unshare",
                &[
                    "--pid",
                    "--fork",
                    "nsenter",
                    "--target",
                    pid,
                    "--mount",
                    "mount",
                    "-t",
                    "proc",
                    "-o",
                    "nosuid,nodev,noexec",
                    "proc",
                    "/proc",
                ],
            )
            .ok();
        }),
        ("hosts", &|pid: &str| {
            run(
                "/usr/bin/python3",
                &["-c", PUT_IN, pid, &other, "/etc/hosts"],
            )
            .ok();
            within(
                pid,
                &[
                    "/bin/mount",
                    "-o",
                    "remount,bind,ro,nosuid,nodev,noexec",
                    "/etc/hosts",
                ],
            );
        }),
        ("mask", &|pid: &str| {
            within(pid, &["/bin/umount", "/work/.netrc"])
        }),
        // As an editor on the node writes a file: the mask is lost with the old file.
        ("renamed", &|_: &str| {
            let new = format!("{secret}.new");
            std::fs::write(&new, "machine x password y\n").unwrap();
            std::fs::rename(&new, &secret).unwrap();
        }),
        ("keys", &|pid: &str| {
            within(pid, &["/bin/umount", "/proc/keys"])
        }),
    ];
    for (name, act) in swap {
        std::fs::write(&secret, "machine x password y\n").unwrap();
        let container = start(&node, &scratch, &format!("since-{name}"), "standard");
        assert_eq!(verdict(&container, "mounts-of-the-plan"), held(), "{name}");
        act(&container.pid());
        assert_eq!(verdict(&container, "mounts-of-the-plan"), gone(), "{name}");
    }
}

/// Renaming directories inside, or removing files of a workspace, reveals nothing.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_is_not_misled_by_a_renamed_directory_or_a_removed_file() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let work = scratch.dir("work");
    for dir in ["p", "q"] {
        std::fs::create_dir(format!("{work}/{dir}")).unwrap();
        std::fs::write(format!("{work}/{dir}/.netrc"), "machine x password y\n").unwrap();
    }
    let container = start(&node, &scratch, "renamed", "standard");
    // The control: both are masked.
    assert_eq!(container.exec("cat /work/p/.netrc /work/q/.netrc"), "");
    container.exec("mv /work/p /work/moved");
    assert_eq!(verdict(&container, "mounts-of-the-plan"), held());
    assert_eq!(container.exec("cat /work/moved/.netrc"), "");
    std::fs::remove_file(format!("{work}/q/.netrc")).unwrap();
    assert_eq!(verdict(&container, "mounts-of-the-plan"), held());
    // Made again on the node.
    std::fs::write(format!("{work}/q/.netrc"), "machine x password y\n").unwrap();
    assert_eq!(verdict(&container, "mounts-of-the-plan"), gone());
}

/// A process in the container's network or pid namespace is in the container, whatever files it sees. A thread has its
/// own walls.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_a_process_in_one_namespace_and_a_thread() {
    // It ends when its standard input is closed.
    const SHELL: &str = "echo in; read line";
    const THREAD: &str = r#"
import ctypes, os, sys, threading
def enter():
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.setns(os.open(f"/proc/{sys.argv[1]}/ns/net", 0), 0x40000000) == 0
    print("in", flush=True)
    sys.stdin.read()
threading.Thread(target=enter).start()
"#;
    let (node, scratch) = (Node::new(), Scratch::new());
    let container = start(&node, &scratch, "outsider", "standard");
    let pid = container.pid();
    let enter = |kind| vec!["--target", &pid, kind, "sh", "-c", SHELL];
    for (program, words) in [
        ("nsenter", enter("--net")),
        ("nsenter", enter("--pid")),
        ("/usr/bin/python3", vec!["-c", THREAD, &pid]),
    ] {
        assert_eq!(verdict(&container, "every-process"), held(), "{words:?}");
        let rogue = Command::new(program)
            .args(&words)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut rogue = rogue.unwrap();
        let (input, mut output) = (rogue.stdin.take(), rogue.stdout.take().unwrap());
        std::io::Read::read_exact(&mut output, &mut [0; 3]).unwrap();
        let (code, entries, report) = container.verify();
        let id = ("node".to_owned(), "every-process".to_owned());
        let found = (code, entries[&id].0.clone());
        assert_eq!(found, gone(), "{words:?}: {report:#}");
        drop(input);
        assert!(rogue.wait().unwrap().code().is_some());
    }
}

/// A name that is not text hides neither the workload nor a stranger.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_a_process_without_walls_whatever_its_name_is() {
    let (node, scratch) = (Node::new(), Scratch::new());
    let container = start(&node, &scratch, "odd", "standard");
    let pid = container.pid();
    let script = "printf '\\377' >/proc/$$/comm; echo in; read line";
    let mut rogue = Command::new("nsenter")
        .args(["--target", &pid, "--net", "sh", "-c", script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(&mut rogue.stdout.take().unwrap(), &mut [0; 2]).unwrap();
    let _rogue = Rogue(rogue);
    assert_eq!(verdict(&container, "every-process"), gone());
    // The init process's own name.
    let started = "printf '\\377' >/proc/$$/comm; while :; do sleep 1; done";
    let named = Running::start(&node, "odd-init", "standard", |config| {
        config["process"]["args"] = json!(["sh", "-c", started]);
    });
    let name = || std::fs::read(format!("/proc/{}/comm", named.pid())).unwrap();
    let is_named = (0..1000).any(|_| name() == b"\xff\n");
    assert!(is_named);
    assert_eq!(verdict(&named, "every-process"), held());
    let state = node.call(&["state", &named.id]).ok();
    assert!(state.contains("running"), "{state}");
}
