//! `verify` notices a missing wall: the program that tries the attacks runs with one wall left out, while its input
//! promises all of them.
//!
//! agentbox makes none of these sandboxes: runc does, or there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use agentbox::verify::inside::{self, Answer, OutputLine};
use agentbox::verify::probe::{Outcome, ProbedWall};
use agentbox::verify::probes;
use agentbox::verify::promise::{Promise, PromisedWalls};
use serde_json::{Value, json};

use crate::direct::{Node, Scratch, program};

/// Every wall, for a container without capabilities and without hosts.
fn everything() -> Promise {
    Promise {
        walls: Some(PromisedWalls {
            set_id_refused: true,
            paranoid: true,
            root_read_only: true,
            masked: ["/etc/passwd".into()].into(),
            readonly: ["/proc/sys".into(), "/etc".into()].into(),
            namespaces: probes::processes::NAMESPACES
                .iter()
                .filter(|kind| **kind != "user")
                .map(|kind| (*kind).to_owned())
                .collect(),
            ..PromisedWalls::default()
        }),
        node: probes::processes::of("self"),
        inherited: Vec::new(),
        untried_network: None,
    }
}

/// The program's input: the promise, and that its ports are known.
fn told() -> String {
    let known = serde_json::to_string(&Answer::Known).unwrap();
    format!(
        "{}\n{known}\n",
        serde_json::to_string(&everything()).unwrap()
    )
}

/// The program's findings under a command, by probe.
fn found(mut command: Command) -> BTreeMap<String, (Outcome, String)> {
    let scratch = Scratch::new();
    let input = scratch.file("promise", &told());
    command.stdin(File::open(input).unwrap());
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().filter_map(|line| {
        // Terminal output has carriage returns, and may have other lines.
        match serde_json::from_str(line.trim()).ok()? {
            OutputLine::Ports(_) => None,
            OutputLine::Finding { probe, finding } => Some((probe, (finding.outcome, finding.saw))),
            OutputLine::Done => Some((String::new(), (Outcome::Held, String::new()))),
        }
    });
    let mut all: BTreeMap<_, _> = lines.by_ref().collect();
    assert!(
        all.remove("").is_some(),
        "{command:?}: no last line: {text}"
    );
    all
}

fn not_held(found: &BTreeMap<String, (Outcome, String)>) -> BTreeSet<String> {
    let failed = found.iter().filter(|(_, (o, _))| *o == Outcome::NotHeld);
    failed.map(|(id, _)| id.clone()).collect()
}

fn inside_of(wall: ProbedWall) -> BTreeSet<String> {
    let all = probes::all().filter(|p| p.wall == wall && inside::is_tried_inside(p));
    all.map(|p| p.id.to_owned()).collect()
}

/// A network that answers: addresses that no wall allows are this machine's own, with servers.
const ANSWERING: &str = r#"
set -e
mount --make-rprivate /
ip link set lo up
for address in 192.0.2.1/32 169.254.169.254/32; do ip address add "$address" dev lo; done
ip -6 address add 2001:db8::1/128 dev lo nodad
echo nameserver 192.0.2.1 >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
python3 - "$1/ready" <<'SERVERS' &
import os, selectors, socket, sys
waits = selectors.DefaultSelector()
for family, address, port in [(socket.AF_INET, "192.0.2.1", 443), (socket.AF_INET, "169.254.169.254", 80), (socket.AF_INET6, "2001:db8::1", 443)]:
    waits.register(socket.create_server((address, port), family=family), selectors.EVENT_READ)
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("192.0.2.1", 53))
waits.register(names, selectors.EVENT_READ)
open(sys.argv[1], "w").close()
while True:
    for key, _ in waits.select(20) or sys.exit(0):
        if key.fileobj is names:
            question, caller = names.recvfrom(512)
            answer = question[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + question[12:]
            names.sendto(answer + b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\xc0\x00\x02\x07", caller)
        else:
            connection, _ = key.fileobj.accept()
            connection.recv(64)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            connection.close()
SERVERS
servers=$!
trap 'kill "$servers"' EXIT
for _ in $(seq 200); do [ -e "$1/ready" ] && break; sleep 0.05; done
"$2" verify-inside
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_that_nothing_answers_for_the_network() {
    let scratch = Scratch::new();
    let dir = scratch.dir("network");
    let mut command = Command::new("unshare");
    command.args([
        "--net",
        "--mount",
        "bash",
        "-c",
        ANSWERING,
        "-",
        &dir,
        &program(),
    ]);
    let found = found(command);
    for id in [
        "unlisted-address",
        "unlisted-address-ipv6",
        "metadata",
        "unlisted-name",
        "link-changes",
    ] {
        assert_eq!(found[id].0, Outcome::NotHeld, "{id}: {}", found[id].1);
    }
}

/// Runs without any wall, with an inherited descriptor and a terminal, after these shell commands.
fn without_walls(before: &str) -> BTreeMap<String, (Outcome, String)> {
    let mut bare = Command::new("bash");
    let line = format!(
        "exec 7</dev/null; {before} exec {} verify-inside",
        program()
    );
    let scratch = Scratch::new();
    let input = scratch.file("promise", &told());
    let script = scratch.file("script", &format!("{line} <{input}\n"));
    bare.args([
        "-c",
        "exec script --quiet --return --command \"bash $1\" /dev/null",
        "-",
        &script,
    ]);
    found(bare)
}

/// A neighbour of the same user can cause this by prlimit(2): the attempts' children can open nothing, without any
/// wall. The control is the test below.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_takes_no_exhausted_limit_for_a_wall() {
    // 0 to 2, 7, and the pipe for the child's finding.
    let found = without_walls("ulimit -n 5;");
    none_held(&found);
    // One or two more descriptors can be opened, but not those that an attempt opens later.
    for limit in 6..=8 {
        let mut found = without_walls(&format!("ulimit -n {limit};"));
        // These can be tried now, but need servers that answer.
        found.retain(|id, _| !id.starts_with("unlisted-") && id != "metadata");
        none_held(&found);
    }
    for id in [
        "hidden-paths",
        "kernel-secrets",
        "caller-terminal",
        "unlisted-address",
        "unlisted-name",
        "interfaces-in-sysfs",
    ] {
        let (outcome, saw) = &found[id];
        assert_eq!(*outcome, Outcome::NotTried, "{id}: {saw}");
        assert!(saw.contains("os error 24"), "{id}: {saw}");
    }
}

#[track_caller]
fn none_held(found: &BTreeMap<String, (Outcome, String)>) {
    let held: Vec<_> = found
        .iter()
        .filter(|(_, (outcome, _))| *outcome == Outcome::Held)
        .collect();
    assert!(held.is_empty(), "{held:#?}");
}

/// A neighbour's signal must not look like the filter's: the program ignores these signals, and so do the attempts'
/// children. The kernel's own SIGSYS still kills them, as x32 and i386 show in containers.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_takes_no_sent_signal_for_the_filters() {
    let mut inside = Command::new(program())
        .arg("verify-inside")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = inside.stdin.take().unwrap();
    write!(input, "{}", told()).unwrap();
    let mut lines = BufReader::new(inside.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "\"done\""));
    let status = std::fs::read_to_string(format!("/proc/{}/status", inside.id())).unwrap();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    for number in [31, 11] {
        assert!(ignored >> (number - 1) & 1 == 1, "{number}: {ignored:x}");
    }
    drop(input);
    assert!(inside.wait().unwrap().success());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_everything_where_there_is_no_wall() {
    let found = without_walls("");
    let missed: BTreeSet<String> = found
        .iter()
        .filter(|(_, (outcome, _))| *outcome != Outcome::NotHeld)
        .map(|(id, (_, saw))| format!("{id}: {saw}"))
        // These need servers that answer, see the test above.
        .filter(|line| {
            !["unlisted-", "metadata"]
                .iter()
                .any(|id| line.starts_with(id))
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A config.json for runc with the walls that runc does not raise by default.
fn walled(node: &Node) -> Value {
    let mut config = node.config(&["/agentbox", "verify-inside"]);
    let own = program();
    config["mounts"].as_array_mut().unwrap().push(json!({
        "destination": "/agentbox", "type": "bind", "source": own, "options": ["bind", "ro"],
    }));
    for mount in config["mounts"].as_array_mut().unwrap() {
        if mount["type"] == "cgroup" {
            mount["options"].as_array_mut().unwrap().push(json!("ro"));
        }
    }
    config["process"]["noNewPrivileges"] = json!(true);
    config["process"]["capabilities"] = json!({});
    config["process"]["rlimits"] = json!([{"type": "RLIMIT_CORE", "soft": 1, "hard": 1}]);
    config["root"]["readonly"] = json!(true);
    let linux = &mut config["linux"];
    linux["maskedPaths"] = json!([
        "/etc/passwd",
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/sys/devices/virtual/powercap",
        "/sys/firmware",
    ]);
    linux["readonlyPaths"] = json!([
        "/proc/bus",
        "/proc/fs",
        "/proc/irq",
        "/proc/sys",
        "/proc/sysrq-trigger"
    ]);
    let namespaces = linux["namespaces"].as_array_mut().unwrap();
    if !namespaces.iter().any(|n| n["type"] == "cgroup") {
        namespaces.push(json!({"type": "cgroup"}));
    }
    config
}

fn by_runc(node: &Node, name: &str, config: &Value) -> BTreeMap<String, (Outcome, String)> {
    let id = format!("mutation-{}-{name}", std::process::id());
    let bundle = node.bundle(&id, config);
    let mut command = Command::new("runc");
    command.args([
        "--root",
        &format!("{}-runc", node.root),
        "run",
        "--bundle",
        &bundle,
        &id,
    ]);
    found(command)
}

/// Removes one wall.
type Mutation = (&'static str, fn(&mut Value), &'static [&'static str]);

fn without_namespace(config: &mut Value, kind: &str) {
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|n| n["type"] != kind);
}

const MUTATIONS: &[Mutation] = &[
    (
        "privileges",
        |c| c["process"]["noNewPrivileges"] = json!(false),
        &["no-new-privs"],
    ),
    (
        "capability",
        |c| {
            let one = json!(["CAP_NET_RAW"]);
            c["process"]["capabilities"] =
                json!({"bounding": one, "effective": one, "permitted": one});
        },
        &["capabilities"],
    ),
    (
        "bounding",
        |c| c["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN"]}),
        &["capabilities"],
    ),
    (
        "masks",
        |c| c["linux"]["maskedPaths"] = json!([]),
        &["kernel-secrets", "hidden-paths"],
    ),
    (
        "one-mask",
        |c| {
            c["linux"]["maskedPaths"]
                .as_array_mut()
                .unwrap()
                .retain(|p| p != "/etc/passwd")
        },
        &["hidden-paths"],
    ),
    (
        // For this user its mode answers in place of the mask.
        "one-mask-of-a-file-of-root",
        |c| {
            c["process"]["user"] = json!({"uid": 1000, "gid": 1000});
            c["linux"]["maskedPaths"]
                .as_array_mut()
                .unwrap()
                .retain(|p| p != "/proc/timer_list");
        },
        &["kernel-secrets"],
    ),
    (
        "read-only-paths",
        |c| c["linux"]["readonlyPaths"] = json!([]),
        &["kernel-knobs", "read-only-paths"],
    ),
    (
        "one-read-only-path",
        |c| {
            c["linux"]["readonlyPaths"]
                .as_array_mut()
                .unwrap()
                .retain(|p| p != "/proc/irq")
        },
        &["kernel-knobs"],
    ),
    ("root", |c| c["root"]["readonly"] = json!(false), &["root"]),
    (
        "core-files",
        |c| c["process"]["rlimits"] = json!([]),
        &["core-files"],
    ),
    ("pid", |c| without_namespace(c, "pid"), &["own-namespaces"]),
    ("ipc", |c| without_namespace(c, "ipc"), &["own-namespaces"]),
    (
        "uts",
        |c| {
            without_namespace(c, "uts");
            c["hostname"] = Value::Null;
        },
        &["own-namespaces"],
    ),
    (
        "net",
        |c| without_namespace(c, "network"),
        &["own-namespaces", "interfaces"],
    ),
    (
        "device-nodes",
        |c| {
            let one = json!(["CAP_MKNOD"]);
            c["process"]["capabilities"] =
                json!({"bounding": one, "effective": one, "permitted": one});
            c["linux"]["resources"] = json!({"devices": [{"allow": true, "access": "rwm"}]});
        },
        &["new-devices"],
    ),
    (
        "cgroup",
        |c| without_namespace(c, "cgroup"),
        &["own-namespaces"],
    ),
    (
        "cgroup-mounts",
        |c| {
            let mounts = c["mounts"].as_array_mut().unwrap();
            let cgroup = mounts.iter_mut().find(|m| m["type"] == "cgroup").unwrap();
            cgroup["options"] = json!(["nosuid", "noexec", "nodev", "rw"]);
        },
        &["cgroup-mounts"],
    ),
    (
        "disk",
        |c| {
            c["linux"]["devices"] =
                json!([{"path": "/dev/disk", "type": "b", "major": 7, "minor": 0}])
        },
        &["disks"],
    ),
    (
        "disk-below",
        |c| {
            c["linux"]["devices"] =
                json!([{"path": "/dev/a/b/disk", "type": "b", "major": 7, "minor": 0}])
        },
        &["disks"],
    ),
    (
        "character-device",
        |c| {
            c["linux"]["devices"] =
                json!([{"path": "/dev/a/kmsg", "type": "c", "major": 1, "minor": 11}])
        },
        &["character-devices"],
    ),
    (
        "propagation",
        // For one mount: runc 1.1 on Linux 6.18 leaves the root private even if `rootfsPropagation` says shared.
        |c| {
            c["mounts"].as_array_mut().unwrap().push(json!({
                "destination": "/mnt", "type": "bind", "source": "/tmp", "options": ["bind", "ro", "shared"],
            }));
        },
        &["propagation"],
    ),
    (
        "runtime-file",
        |c| {
            let mounts = c["mounts"].as_array_mut().unwrap();
            let own = mounts
                .iter_mut()
                .find(|m| m["destination"] == "/agentbox")
                .unwrap();
            own["options"] = json!(["bind", "rw"]);
        },
        &["runtime-file"],
    ),
];

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_notices_each_single_wall_that_is_missing() {
    let node = Node::new();
    let control = by_runc(&node, "control", &walled(&node));
    // runc raised all walls but the filter: exactly the filter's probes say so.
    let expected = inside_of(ProbedWall::Syscalls);
    assert_eq!(not_held(&control), expected, "{control:#?}");
    for (name, take_away, ids) in MUTATIONS {
        let mut config = walled(&node);
        take_away(&mut config);
        let found = by_runc(&node, name, &config);
        for id in *ids {
            assert_eq!(
                control[*id].0,
                Outcome::Held,
                "{name}: the control: {:?}",
                control[*id]
            );
            assert_eq!(found[*id].0, Outcome::NotHeld, "{name}: {:?}", found[*id]);
        }
    }
}

/// `F04-F06` is F04, F05 and F06.
fn each(listed: &str) -> Vec<String> {
    let Some((first, last)) = listed.split_once('-') else {
        return vec![listed.to_owned()];
    };
    let number = |one: &str| one[1..].parse::<u32>().unwrap();
    let all = number(first)..=number(last);
    all.map(|n| format!("{}{n:02}", &first[..1])).collect()
}

#[test]
fn the_list_of_threats_says_what_verify_tries() {
    let path = format!("{}/docs/threats.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once("tries these in your container: ").unwrap();
    let (listed, _) = rest.split_once('.').unwrap();
    let listed: BTreeSet<String> = listed.split(',').map(str::trim).flat_map(each).collect();
    let tried = probes::all().flat_map(|p| p.threats);
    let tried: BTreeSet<String> = tried.map(|threat| (*threat).to_owned()).collect();
    assert_eq!(listed, tried);
}
