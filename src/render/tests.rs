//! The differences between the shadow specs and the engine's spec.

use std::collections::BTreeMap;
use std::path::PathBuf;

use oci_spec::runtime::Spec;
use serde_json::{Value, json};

use super::explain;
use super::spec::{SpecPaths, confined, normalise, unconfined};
use crate::plan::time::TimeLeft;
use crate::plan::{
    BindAccess, BindMount, BundleFacts, DecidedPlan, FileKind, HostFacts, MappedIds, MountKind,
    Plan, PlannedMount, ProgramMode, SourceIdentity, Tmpfs, plan,
};
use crate::plan::{NamespaceType, PlannedNamespace};
use crate::policy::{Asker, NodeConfig, Selection, Sources, resolve};

fn places() -> SpecPaths {
    SpecPaths {
        rootfs: "/new/root".into(),
    }
}

/// A container with an example of everything that is rewritten.
fn engine() -> Value {
    json!({
        "ociVersion": "1.2.0",
        "hostname": "box",
        "root": {"path": "rootfs"},
        "process": {"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "noNewPrivileges": false},
        "mounts": [
            {"destination": "/proc", "type": "proc"},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs"},
            {"destination": "/etc/hosts", "type": "bind", "source": "/srv/hosts", "options": ["rbind", "rw"]},
            {"destination": "/data", "type": "bind", "source": "/srv/data", "options": ["rbind", "rw"]},
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "user"}],
            "seccomp": {"defaultAction": "SCMP_ACT_ALLOW"},
            "rootfsPropagation": "rshared",
            "devices": [{"path": "/dev/kvm", "type": "c", "major": 10, "minor": 232}],
            "resources": {"memory": {"limit": 5}, "devices": [{"allow": true, "access": "rwm"}]},
            "sysctl": {"net.core.somaxconn": "9", "kernel.shmmax": "1"},
        },
    })
}

fn parse(value: Value) -> Spec {
    serde_json::from_value(value).unwrap()
}

fn planned(spec: &Spec, node: &str) -> Plan {
    decided(spec, node).plan
}

fn decided(spec: &Spec, node: &str) -> DecidedPlan {
    let selection = resolve(&Sources {
        annotations: &BTreeMap::new(),
        image: crate::policy::ImageAnnotations::Unknown,
        flag: Some("strict"),
        node: &NodeConfig::parse(node).unwrap(),
        files: &BTreeMap::new(),
        presets: &BTreeMap::new(),
        asker: Asker::Container,
        tool: crate::policy::Tool::default(),
        asked: crate::policy::WrapOptions::NOTHING,
    });
    let Selection::Policy(resolved) = selection.unwrap() else {
        panic!("it is a policy")
    };
    let source = |m: &oci_spec::runtime::Mount| {
        m.typ()
            .as_deref()
            .filter(|t| *t == "bind")
            .map(|_| crate::plan::SourceFacts {
                trusted: true,
                tmpfs: true,
                ..crate::plan::SourceFacts::plain(
                    m.source().clone().unwrap(),
                    1,
                    1,
                    crate::plan::FileKind::Directory,
                )
            })
    };
    let facts = BundleFacts {
        sources: spec.mounts().iter().flatten().map(source).collect(),
        devices: ["/dev/kvm".into()].into(),
        root: crate::plan::RootOrigin::Layer,
        ..Default::default()
    };
    let host = HostFacts {
        release: "6.18".into(),
        version: (6, 18),
        landlock_abi: 7,
        seccomp: true,
        wait_killable: true,
        overlayfs: true,
        controllers: ["cpu", "memory", "pids"].map(str::to_owned).into(),
        memory_bytes: 16 << 30,
        processors: 8,
        core_socket: false,
        core_bytes: 1,
        no_disk: None,
        person: None,
    };
    plan(&resolved, spec, &facts, &host).unwrap()
}

#[test]
fn normalising_adds_mount_sources_and_empty_capability_sets() {
    let mut spec = parse(engine());
    normalise(&mut spec);
    assert_eq!(
        spec.mounts().as_ref().unwrap()[0].source(),
        &Some(PathBuf::from("proc"))
    );
    let sets = serde_json::to_value(spec.process().as_ref().unwrap().capabilities()).unwrap();
    for set in [
        "bounding",
        "effective",
        "permitted",
        "inheritable",
        "ambient",
    ] {
        assert_eq!(sets[set], json!([]), "{set}: left out means none");
    }
    let once = spec.clone();
    normalise(&mut spec);
    assert_eq!(spec, once);
}

#[test]
fn normalising_writes_device_rules_for_all_numbers_as_in_cgroup_v1() {
    let mut value = engine();
    value["linux"]["resources"]["devices"] = json!([
        {"allow": true, "type": "c", "major": 1, "minor": -1, "access": "rwm"},
        {"allow": true, "type": "b", "major": -1, "minor": -1, "access": "rmw"},
    ]);
    let mut spec = parse(value);
    normalise(&mut spec);
    let resources = spec.linux().as_ref().unwrap().resources().as_ref();
    let rules = resources.unwrap().devices().iter().flatten();
    let rules: Vec<String> = rules.map(ToString::to_string).collect();
    assert_eq!(rules, ["c 1:* rwm", "b *:* rmw"]);
}

#[test]
fn normalising_spells_the_propagation_as_libcontainer_does() {
    for (given, expect) in [
        ("rprivate", "private"),
        ("rshared", "shared"),
        ("rslave", "slave"),
        ("shared", "shared"),
        ("runbindable", "unbindable"),
    ] {
        let mut value = engine();
        value["linux"]["rootfsPropagation"] = given.into();
        let mut spec = parse(value);
        normalise(&mut spec);
        assert_eq!(
            spec.linux()
                .as_ref()
                .unwrap()
                .rootfs_propagation()
                .as_deref(),
            Some(expect),
            "{given}"
        );
    }
}

#[test]
fn unconfined_changes_only_the_root_and_the_filter() {
    let mut expect = engine();
    expect["root"]["path"] = "/new/root".into();
    expect["linux"].as_object_mut().unwrap().remove("seccomp");
    let deny = serde_json::json!({ "allow": false, "type": "a", "access": "rwm" });
    let rules = expect["linux"]["resources"]["devices"].as_array().cloned();
    let rules = [deny].into_iter().chain(rules.unwrap_or_default());
    expect["linux"]["resources"]["devices"] = rules.collect();
    let rendered = unconfined(parse(engine()), &places());
    assert_eq!(rendered, parse(expect));
}

#[test]
fn the_shadow_spec_of_a_policy_follows_the_plan() {
    let spec = parse(engine());
    let node = "allow.devices = [\"/dev/kvm\"]";
    let plan = planned(&spec, node);
    let shadow = serde_json::to_value(confined(spec, &plan, &places())).unwrap();
    assert_eq!(
        shadow["root"],
        json!({"path": "/new/root", "readonly": true})
    );
    assert_eq!(shadow["hostname"], "box");
    let mounts: Vec<_> = shadow["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (&m["destination"], &m["source"]))
        .collect();
    assert_eq!(
        mounts,
        [
            (&json!("/proc"), &json!("proc")),
            (&json!("/sys"), &json!("sysfs"))
        ]
    );
    // The init process attaches the network wall's files from descriptors.
    assert!(
        plan.filesystem
            .replaced
            .contains(std::path::Path::new("/etc/hosts"))
    );
    let linux = &shadow["linux"];
    assert_eq!(linux.get("seccomp"), None, "our own loader has it");
    assert_eq!(linux["rootfsPropagation"], "private");
    assert_eq!(
        linux["sysctl"],
        json!({"kernel.shmmax": "1"}),
        "net.* go to the inner namespace"
    );
    assert_eq!(linux["devices"][0]["path"], "/dev/kvm");
    assert_eq!(
        linux["resources"]["memory"]["limit"], 5,
        "limits are the engine's"
    );
    let kinds: Vec<_> = linux["namespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| (n["type"].as_str().unwrap(), n.get("path")))
        .collect();
    let own = json!("/proc/self/ns/net");
    assert_eq!(
        kinds,
        [
            ("cgroup", None),
            ("ipc", None),
            ("mount", None),
            ("network", Some(&own)),
            ("pid", None),
            ("user", None),
            ("uts", None)
        ]
    );
}

#[test]
fn the_device_rules_deny_all_and_name_each_exception() {
    let spec = parse(engine());
    let plan = planned(&spec, "allow.devices = [\"/dev/kvm\"]");
    let shadow = serde_json::to_value(confined(spec, &plan, &places())).unwrap();
    let rules = shadow["linux"]["resources"]["devices"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(
        rules[0],
        json!({"allow": false, "type": "a", "access": "rwm"})
    );
    assert_eq!(
        rules.last(),
        Some(&json!({"allow": true, "type": "c", "major": 10, "minor": 232, "access": "rwm"}))
    );
    assert!(
        rules[1..]
            .iter()
            .all(|r| r["type"] == "c" && r["major"].is_i64()),
        "{rules:?}"
    );
}

#[test]
fn masks_of_a_sysfs_are_left_to_the_mount_at_start() {
    let shadow = |spec: Spec| {
        let plan = planned(&spec, "");
        let shadow = serde_json::to_value(confined(spec, &plan, &places())).unwrap();
        let masked = shadow["linux"]["maskedPaths"].as_array().unwrap().clone();
        (
            masked.contains(&json!("/sys/firmware")),
            masked.contains(&json!("/proc/kcore")),
        )
    };
    let mut with = engine();
    with["linux"]["devices"] = json!([]);
    let mut without = with.clone();
    without["mounts"].as_array_mut().unwrap().remove(1);
    assert_eq!(
        (shadow(parse(with)), shadow(parse(without))),
        ((false, true), (true, true))
    );
}

/// The caller chooses paths and reasons. They must appear on one line, without control characters for a terminal.
#[test]
fn an_explanation_is_plain_text_whatever_a_path_is_called() {
    const TREACHEROUS: &str = "/usr/a\n  /work  read-only\u{1b}[2J";
    let mut decided = decided(&parse(engine()), "");
    decided.plan.filesystem.mounts.push(PlannedMount {
        destination: TREACHEROUS.into(),
        kind: MountKind::Tmpfs(Tmpfs {
            source: TREACHEROUS.into(),
            options: vec!["ro".to_owned()],
        }),
        why: format!("nobody writes it: {TREACHEROUS}").into(),
    });
    let text = explain::text(
        &subject(&format!("bundle {TREACHEROUS}"), decided),
        explain::PageLength::Screen,
    );
    assert_eq!(text.matches("nobody writes it").count(), 1);
    assert!(
        !text.contains("\n  /work") && !text.contains('\u{1b}'),
        "{text}"
    );
}

/// A decided container, as `explain` gets it.
fn subject(name: &str, decided: DecidedPlan) -> explain::ExplainedContainer {
    explain::ExplainedContainer {
        landlock: None,
        left: TimeLeft::default(),
        approvals: Vec::new(),
        now: None,
        settings: Vec::new(),
        tool: crate::policy::Tool::default(),
        name: name.to_owned(),
        identity: None,
        chosen_by: "--policy".to_owned(),
        decided: Some(decided),
        filter: None,
    }
}

/// The header fields that a request may carry are part of the walls.
#[test]
fn the_nodes_further_fields_of_requests_are_explained() {
    let explained = |fields: &[&str], rule: &str| {
        let mut decided = decided(&parse(engine()), "");
        let network = &mut decided.plan.network;
        network.mode = crate::policy::NetworkMode::Allowlist;
        network.rules.allow = [rule.parse().unwrap()].into();
        network.request_fields = fields.iter().map(|field| field.parse().unwrap()).collect();
        explain::text(&subject("x", decided), explain::PageLength::Screen)
    };
    let request = "GET https://example.com/**";
    let text = explained(&["x-acme-*", "x-trace"], request);
    assert!(text.contains("x-acme-* x-trace"), "{text}");
    assert!(!explained(&[], request).contains("request-fields"));
    // No request rule, so no request is read.
    assert!(!explained(&["x-trace"], "example.com").contains("request-fields"));
}

/// A screen names few paths one by one, and origins that no built-in policy explains; `--all` has the rest.
#[test]
fn a_screen_has_what_is_particular_and_all_has_everything() {
    let mut decided = decided(&parse(engine()), "");
    let mounts = &mut decided.plan.filesystem.mounts;
    for name in ["a", "b", "c", "d", "e", "f"] {
        let place = PathBuf::from(format!("/etc/{name}"));
        let bind = BindMount {
            source: place.clone(),
            judged: SourceIdentity {
                dev: 1,
                ino: 1,
                kind: FileKind::File,
            },
            access: BindAccess::ReadOnly,
            programs: ProgramMode::Run,
            ids: MappedIds::Node,
        };
        mounts.push(PlannedMount {
            destination: place,
            kind: MountKind::Bind(bind),
            why: crate::plan::MountReason::Programs,
        });
    }
    decided.origins = [
        (
            "limits.pids".to_owned(),
            "built-in policy standard".to_owned(),
        ),
        ("network.mode".to_owned(), "option --allow".to_owned()),
    ]
    .into();
    let explained = |length| {
        let subject = subject("x", decided.clone());
        explain::text(&subject, length)
    };
    let (screen, all) = (
        explained(explain::PageLength::Screen),
        explained(explain::PageLength::All),
    );
    assert!(
        screen.contains("read-only, for programs to run: 6 of /etc"),
        "{screen}"
    );
    assert!(all.contains("/etc/f  read-only, from /etc/f"), "{all}");
    for (text, is_there) in [(&screen, false), (&all, true)] {
        assert_eq!(text.contains("limits.pids: built-in"), is_there, "{text}");
        assert!(text.contains("network.mode: option --allow"), "{text}");
        assert_eq!(text.contains("--all prints"), !is_there, "{text}");
    }
}

/// A namespace of the node's or of another container is on the screen too.
#[test]
fn a_screen_names_shared_namespaces() {
    let explained = |change: fn(&mut Plan)| {
        let mut decided = decided(&parse(engine()), "");
        decided.plan.devices.clear();
        change(&mut decided.plan);
        let subject = subject("x", decided);
        explain::text(&subject, explain::PageLength::Screen).contains("  namespaces: ")
    };
    fn own(plan: &mut Plan) {
        plan.namespaces = [
            NamespaceType::Pid,
            NamespaceType::Ipc,
            NamespaceType::Uts,
            NamespaceType::Mount,
            NamespaceType::Cgroup,
        ]
        .map(PlannedNamespace::new)
        .into();
    }
    assert!(!explained(own));
    assert!(explained(|plan| {
        own(plan);
        plan.namespaces
            .retain(|one| one.isolates != NamespaceType::Pid);
    }));
    assert!(explained(|plan| {
        own(plan);
        for one in &mut plan.namespaces {
            one.path = Some("/proc/1/ns/pid".into());
        }
    }));
}

/// A user of `wrap` has no engine, no image and no annotations.
#[test]
fn wrap_is_explained_without_an_engine() {
    let mut decided = decided(&parse(engine()), "");
    decided.plan.leave = Some(crate::policy::Loosening::UpToCeilings);
    let mut subject = subject("x", decided);
    let text = |subject: &_| explain::text(subject, explain::PageLength::Screen);
    let engines = text(&subject);
    assert!(
        engines.contains("engine") && engines.contains("\nannotations: "),
        "{engines}"
    );
    subject.tool = crate::policy::Tool::Wrap;
    let wraps = text(&subject);
    for word in [
        "\nannotations: ",
        "the image",
        "the engine gave",
        "the engine says",
    ] {
        assert!(!wraps.contains(word), "{word}: {wraps}");
    }
}

/// A rule whose date is over is not among the reached hosts, and its end is named, by both kinds of walls.
#[test]
fn the_ends_of_rules_are_explained_whatever_the_walls() {
    use crate::rules::{ClockReading, EgressRule, EndDate, Expiry};
    let now = ClockReading {
        boot_ms: 1_000,
        unix: 1_600_000_000,
    };
    let mut decided = decided(&parse(engine()), "");
    let network = &mut decided.plan.network;
    network.mode = crate::policy::NetworkMode::Allowlist;
    let over = Expiry::at(EndDate::of(1_500_000_000).unwrap());
    for (rule, end) in [
        ("old.test", over),
        ("new.test", Expiry::after(600, now).unwrap()),
    ] {
        let rule: EgressRule = rule.parse().unwrap();
        network.rules.allow.insert(rule.clone());
        network.rules.ends.insert(rule, end);
    }
    let landlock = explain::LandlockWalls::of(&decided, 6);
    let namespaces = subject("x", decided.clone()).at(now);
    let mut landlocked = subject("x", decided);
    (landlocked.decided, landlocked.landlock) = (None, Some(landlock));
    let landlocked = landlocked.at(now);
    for subject in [&namespaces, &landlocked] {
        let text = explain::text(subject, explain::PageLength::Screen);
        assert!(
            text.contains("rule old.test: expired at 2017-07-14"),
            "{text}"
        );
        assert!(text.contains("rule new.test: until 2020-09-13"), "{text}");
        assert_eq!(text.matches("old.test").count(), 1, "{text}");
    }
    let json = serde_json::to_value(&landlocked).unwrap();
    assert_eq!(json["landlock"]["expires"].as_array().unwrap().len(), 2);
}
