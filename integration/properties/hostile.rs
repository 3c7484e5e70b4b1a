//! Bundles that no engine writes.

use std::collections::BTreeMap;

use agentbox::plan::{BundleFacts, FileKind, FollowedLink, FoundCredential, SourceFacts};
use agentbox::policy::ResolvedPolicy;
use oci_spec::runtime::Spec;
use serde_json::{Value, json};

use super::Dice;
use crate::fixtures::{self, POLICIES};

const DESTINATIONS: [&str; 44] = [
    "/",
    "//",
    "/proc",
    "/proc/",
    "//proc",
    "/proc/self/x",
    "/proc/sys",
    "/sys",
    "/sys/",
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/y",
    "/dev",
    "/dev/",
    "/dev/null",
    "/dev/shm",
    "/dev/shm/x",
    "/dev/pts",
    "/dev/mqueue",
    "/etc",
    "/etc/hosts",
    "/etc//hosts",
    "/etc/./hosts",
    "/etc/hosts/",
    "/etc/resolv.conf",
    "/etc/hostname",
    "/workspace",
    "/workspace/",
    "/workspace/sub",
    "/workspace/a/b",
    "/tmp",
    "/tmp/x",
    "/home/user",
    "/home/user/.ssh",
    "/home",
    "/var",
    "/var/www",
    "/var/lib/x",
    "/data",
    "/sbin/docker-init",
    "/dev/termination-log",
    "/run/.containerenv",
    "/dev/init",
    "/a\nb",
    "/...",
];
const BAD_DESTINATIONS: [&str; 7] = [
    "",
    ".",
    "relative",
    "/workspace/../etc",
    "..",
    "/..",
    "../../proc",
];
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const SOURCES: [&str; 26] = [
    "/",
    "/etc",
    "/etc/shadow",
    "/proc",
    "/proc/self/root",
    "/sys",
    "/dev",
    "/dev/null",
    "/dev/sda",
    "/run",
    "/run/docker.sock",
    "/var/lib/docker",
    "/var/lib",
    "/var/lib/docker/volumes/v/_data",
    "/home/me",
    "/home/me/.ssh",
    "/home/me/project",
    "/srv/data",
    "/srv/data:ro",
    "/srv/a\nb",
    "/usr/bin/docker-init",
    "/var/lib/docker/containers/ID/hostname",
    "/var/lib/docker/containers/ID/hosts",
    "/var/lib/containers/storage/overlay-containers/ID/userdata/shm",
    "/var/lib/kubelet/pods/u/containers/c/0a1b2c3d",
    "/boot",
];
const TYPES: [&str; 12] = [
    "bind", "bind", "bind", "tmpfs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue",
    "overlay", "none",
];
const OPTIONS: [&str; 20] = [
    "rbind",
    "bind",
    "rw",
    "ro",
    "rro",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "shared",
    "rshared",
    "slave",
    "rslave",
    "rprivate",
    "private",
    "size=1m",
    "mode=1777",
    "remount",
];
const HOMES: [&str; 14] = [
    "/root",
    "/",
    "/etc",
    "/home/a:b",
    "/home/a\\b",
    "/proc/1",
    "relative",
    "/home/../etc",
    "/home//me/",
    "/var/www",
    "/tmp/home",
    "/workspace/home",
    "/home/user",
    "/var",
];

pub fn spec(dice: &mut Dice, base: &Value) -> Value {
    let mut spec = base.clone();
    let count = dice.below(10);
    let mounts: Vec<Value> = (0..count).map(|_| mount(dice)).collect();
    spec["mounts"] = if dice.one_in(50) {
        Value::Null
    } else {
        mounts.into()
    };
    spec["root"]["readonly"] = dice.pick(&[json!(true), json!(false), Value::Null]);
    let process = &mut spec["process"];
    process["cwd"] = dice
        .pick(&[
            "/",
            "/workspace",
            "/workspace/sub/x",
            "/data",
            "/etc/hosts",
            "/proc",
            "",
        ])
        .into();
    process["noNewPrivileges"] = dice.pick(&[json!(false), json!(true), Value::Null]);
    process["rlimits"] = json!([{"type": "RLIMIT_CORE", "soft": u64::MAX, "hard": u64::MAX}, {"type": "RLIMIT_NOFILE", "soft": 1, "hard": 2}]);
    process["capabilities"] = match dice.below(4) {
        0 => Value::Null,
        1 => json!({}),
        _ => {
            let mut set = || {
                dice.some(
                    &[
                        "CAP_SYS_ADMIN",
                        "CAP_CHOWN",
                        "CAP_NET_ADMIN",
                        "CAP_SETUID",
                        "CAP_BPF",
                    ],
                    2,
                )
            };
            json!({"bounding": set(), "effective": set(), "permitted": set(), "inheritable": set(), "ambient": set()})
        }
    };
    let linux = &mut spec["linux"];
    for list in ["maskedPaths", "readonlyPaths"] {
        linux[list] = dice.pick(&[
            Value::Null,
            json!([]),
            json!(["/proc/kcore", "/data/secret", "relative", "/sys/x"]),
        ]);
    }
    linux["sysctl"] = dice.pick(&[json!({"net.ipv4.ping_group_range": "0 1", "net.core.somaxconn": "9", "kernel.shmmax": "1"}), Value::Null]);
    linux["devices"] = devices(dice);
    linux["namespaces"] = namespaces(dice);
    urgency(dice, &mut spec);
    spec
}

/// Fields that would favour the container over others.
fn urgency(dice: &mut Dice, spec: &mut Value) {
    let process = &mut spec["process"];
    process["oomScoreAdj"] = dice.pick(&[Value::Null, json!(-1000), json!(0), json!(1000)]);
    process["scheduler"] = dice.pick(&[
        Value::Null,
        json!({"policy": "SCHED_FIFO", "priority": 99}),
        json!({"policy": "SCHED_OTHER", "nice": -20}),
    ]);
    process["ioPriority"] = dice.pick(&[
        Value::Null,
        json!({"class": "IOPRIO_CLASS_RT", "priority": 0}),
    ]);
    let linux = &mut spec["linux"];
    linux["personality"] = dice.pick(&[Value::Null, json!({"domain": "LINUX32"})]);
    linux["intelRdt"] = dice.pick(&[Value::Null, json!({"closID": "other"})]);
    linux["timeOffsets"] = dice.pick(&[Value::Null, json!({"monotonic": {"secs": -5}})]);
    linux["resources"]["unified"] = dice.pick(&[
        Value::Null,
        json!({"memory.min": "max", "memory.max": "1", "cgroup.type": "threaded"}),
    ]);
}

fn mount(dice: &mut Dice) -> Value {
    let bad = dice.one_in(60);
    let destination = if bad {
        dice.pick(&BAD_DESTINATIONS)
    } else {
        dice.pick(&DESTINATIONS)
    };
    let mut mount = json!({"destination": destination, "options": dice.some(&OPTIONS, 5)});
    if !dice.one_in(8) {
        mount["type"] = dice.pick(&TYPES).into();
    }
    if !dice.one_in(8) {
        mount["source"] = dice.pick(&SOURCES).replace("ID", ID).into();
    }
    mount
}

fn devices(dice: &mut Dice) -> Value {
    let device = |path: &str, typ: &str, major: i64| json!({"path": path, "type": typ, "major": major, "minor": 0});
    match dice.below(8) {
        0 => json!([device("/dev/sda", "b", 8)]),
        1 => (0..200)
            .map(|n| device(&format!("/dev/d{n}"), "b", 8))
            .collect(),
        // The name of a harmless device with the numbers of a disk.
        2 => json!([device("/dev/null", "b", 8), device("/dev/fuse", "c", 10)]),
        _ => Value::Null,
    }
}

fn namespaces(dice: &mut Dice) -> Value {
    let mut all = Vec::new();
    for kind in [
        "pid", "ipc", "uts", "mount", "cgroup", "network", "user", "time",
    ] {
        if dice.one_in(40)
            || (matches!(kind, "user" | "time" | "cgroup" | "network") && dice.one_in(2))
        {
            continue;
        }
        let mut namespace = json!({"type": kind});
        if dice.one_in(40) || (kind == "network" && dice.one_in(2)) {
            namespace["path"] = "/proc/1/ns/x".into();
        }
        all.push(namespace.clone());
        if dice.one_in(20) {
            namespace["path"] = "/proc/1/ns/x".into();
            all.push(namespace);
        }
    }
    all.into()
}

/// Other names of the node for a mount's source.
const NAMES: [&str; 8] = [
    "/etc/kubernetes",
    "/home/me/.ssh",
    "/home/me/project",
    "/usr/lib/x",
    "/var/spool/cron",
    "/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s",
    "/srv/project",
    "/var/lib/docker/volumes/v/_data",
];

pub fn facts(dice: &mut Dice, spec: &Spec) -> BundleFacts {
    let mut facts = fixtures::facts(spec);
    facts.home = (!dice.one_in(10)).then(|| dice.pick(&HOMES).into());
    for source in facts.sources.iter_mut().flatten() {
        if dice.one_in(6) {
            source.kind = dice.pick(&[
                FileKind::File,
                FileKind::Socket,
                FileKind::Device,
                FileKind::Fifo,
                FileKind::Directory,
            ]);
        }
        if dice.one_in(10) {
            source.same_as = Some("/etc".into());
        }
        if dice.one_in(6) {
            let why = "it holds credentials".to_owned();
            source.inside = vec![FoundCredential::hidden("me/.ssh".into(), why, 1)];
            source.unsearched = dice.one_in(6).then(|| "too many files".to_owned());
        }
        if dice.one_in(8) {
            source.names = [dice.pick(&NAMES).into()].into();
        }
        if dice.one_in(20) {
            source.file_system.kind = dice.pick(&["proc", "cgroup2", "ext4", "tmpfs"]).to_owned();
        }
        if dice.one_in(20) {
            source.nameless = Some("its mount is not known".to_owned());
        }
        if dice.one_in(20) {
            let (path, owner) = (dice.pick(&NAMES).into(), dice.pick(&[0, 1000]));
            source.links = vec![FollowedLink { path, owner }];
        }
    }
    // One path is one file: the first of equal paths decides for all.
    let mut known = BTreeMap::new();
    for source in facts.sources.iter_mut().flatten() {
        let first: &mut SourceFacts = known
            .entry(source.path.clone())
            .or_insert_with(|| source.clone());
        *source = first.clone();
    }
    facts
}

pub fn policy(dice: &mut Dice) -> ResolvedPolicy {
    let mut fields = vec![(
        "filesystem.mounts",
        dice.pick(&["drop", "read-only", "volumes"]),
    )];
    fields.extend(dice.some(
        &[
            ("filesystem.write", "/data,/var"),
            ("filesystem.ephemeral", "tmp,home,var"),
        ],
        2,
    ));
    fields.extend(dice.some(
        &[
            ("filesystem.workspace", "read-only"),
            ("filesystem.root", "ephemeral"),
        ],
        3,
    ));
    if dice.one_in(3) {
        return fixtures::policy(dice.pick(&POLICIES), &[]);
    }
    if fields[0].1 == "drop" {
        fields.retain(|(field, _)| *field != "filesystem.write");
    }
    fixtures::policy("permissive", &fields)
}
