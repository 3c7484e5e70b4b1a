//! The lines of made-up nodes.

use std::path::PathBuf;

use super::facts::{Clock, DoctorFacts, EngineFacts, FreeSpace, NodeSummary, OrdinaryUser};
use super::{CheckState, DoctorReport, judge};
use crate::install::HandlerState;
use crate::plan::HostFacts;

fn host() -> HostFacts {
    HostFacts {
        release: "6.12.1".to_owned(),
        version: (6, 12),
        landlock_abi: 6,
        seccomp: true,
        wait_killable: true,
        overlayfs: true,
        controllers: ["cpu", "memory", "pids"].map(str::to_owned).into(),
        memory_bytes: 1 << 30,
        processors: 2,
        core_socket: false,
        core_bytes: 1,
        no_disk: None,
        person: None,
    }
}

fn node() -> DoctorFacts {
    DoctorFacts {
        user: 0,
        host: host(),
        ordinary: None,
        node: (
            "/etc/agentbox/config.toml".into(),
            Ok(NodeSummary::default()),
        ),
        records: Ok("/run/agentbox".into()),
        space: vec![FreeSpace {
            what: "logs",
            path: "/var/lib/agentbox/runs".into(),
            bytes: Ok(1 << 30),
        }],
        clock: Clock { now: 2, program: 1 },
        program: (PathBuf::from("/usr/bin/agentbox"), true),
        engines: Vec::new(),
    }
}

fn report(facts: &DoctorFacts) -> DoctorReport {
    DoctorReport::of(facts.user, judge::checks(facts))
}

/// The states of the checks that are not `ok`.
fn faults(facts: &DoctorFacts) -> Vec<(&'static str, CheckState)> {
    let checks = report(facts).checks.into_iter();
    let faults = checks.filter(|check| check.state != CheckState::Ok);
    faults
        .map(|check| {
            assert!(
                check.remedy.is_some_and(|remedy| !remedy.is_empty()),
                "{}",
                check.name
            );
            (check.name, check.state)
        })
        .collect()
}

#[test]
fn a_node_with_everything_has_no_fault() {
    assert_eq!(faults(&node()), []);
    let report = report(&node());
    assert!(report.wrap && report.landlock && report.engines && report.wrap_works());
}

#[test]
fn each_lack_is_named_and_says_what_does_not_work() {
    use CheckState::{Missing, Warning};
    /// A change to a good node; the line that says so; whether `wrap`, Landlock's walls and engines still work.
    struct Case(fn(&mut DoctorFacts), &'static str, CheckState, [bool; 3]);
    let cases = [
        Case(|n| n.host.version = (5, 10), "kernel", Missing, [false; 3]),
        Case(|n| n.host.seccomp = false, "seccomp", Missing, [false; 3]),
        Case(
            |n| n.host.overlayfs = false,
            "overlay",
            Missing,
            [false, true, false],
        ),
        Case(
            |n| n.host.landlock_abi = 3,
            "landlock-walls",
            Missing,
            [true, false, true],
        ),
        Case(
            |n| n.host.landlock_abi = 5,
            "landlock-walls",
            Warning,
            [true; 3],
        ),
        Case(
            |n| n.host.controllers.clear(),
            "cgroups",
            Missing,
            [false, true, false],
        ),
        Case(
            |n| n.host.controllers.retain(|name| name != "cpu"),
            "cgroups",
            Warning,
            [true; 3],
        ),
        Case(
            |n| n.host.core_socket = true,
            "core-files",
            Missing,
            [false; 3],
        ),
        Case(
            |n| n.host.core_bytes = 0,
            "core-files",
            Missing,
            [true, true, false],
        ),
        Case(
            |n| n.host.no_disk = Some("none".into()),
            "loop-devices",
            Warning,
            [true; 3],
        ),
        Case(
            |n| n.node.1 = Err("written by others".into()),
            "node-file",
            Missing,
            [false; 3],
        ),
        Case(
            |n| n.records = Err("a link".into()),
            "records",
            Missing,
            [false, true, false],
        ),
        Case(
            |n| n.space[0].bytes = Ok(0),
            "space",
            Missing,
            [false, true, false],
        ),
        Case(
            |n| n.space[0].bytes = Ok(1 << 20),
            "space",
            Warning,
            [true; 3],
        ),
        Case(|n| n.clock.now = 0, "clock", Warning, [true; 3]),
        Case(|n| n.program.1 = false, "program", Warning, [true; 3]),
    ];
    for Case(change, name, state, works) in cases {
        let mut facts = node();
        change(&mut facts);
        let report = report(&facts);
        assert_eq!(faults(&facts), [(name, state)], "{name}");
        assert_eq!(
            [report.wrap, report.landlock, report.engines],
            works,
            "{name}"
        );
    }
}

#[test]
fn an_ordinary_user_needs_a_namespace_and_no_cgroup() {
    let ordinary = |namespace| DoctorFacts {
        ordinary: Some(OrdinaryUser {
            namespace,
            no_cgroup: Some("this node has cgroup v1".to_owned()),
        }),
        host: HostFacts {
            no_disk: Some("only root can make one".to_owned()),
            controllers: Default::default(),
            core_bytes: 0,
            ..host()
        },
        ..node()
    };
    let works = report(&ordinary(Ok(())));
    assert!(works.wrap && works.engines);
    let mut refused = ordinary(Err("unprivileged_userns_clone is 0".to_owned()));
    refused.host.overlayfs = false;
    let report = report(&refused);
    assert!(!report.wrap && report.landlock);
    let text = report.text();
    assert!(text.contains("-> unprivileged_userns_clone is 0"), "{text}");
    assert!(
        text.contains("agentbox wrap: does not work; with --walls landlock: works"),
        "{text}"
    );
}

#[test]
fn an_engine_that_drops_annotations_is_named() {
    let with = |engine| {
        let mut facts = node();
        facts.engines.push(engine);
        faults(&facts)
    };
    let docker = |version: Result<&str, &str>| {
        let version = version.map(str::to_owned).map_err(str::to_owned);
        with(EngineFacts::Docker(version))
    };
    assert_eq!(docker(Ok("26.1.5+dfsg1")), []);
    for version in [Ok("20.10.24"), Ok("next"), Err("Permission denied")] {
        assert_eq!(docker(version), [("docker", CheckState::Warning)]);
    }
    let containerd = |state| with(EngineFacts::Containerd(state));
    assert_eq!(containerd(Ok(HandlerState::PassesAnnotations)), []);
    for state in [
        Ok(HandlerState::DropsAnnotations),
        Ok(HandlerState::Absent),
        Err("is a link".to_owned()),
    ] {
        assert_eq!(containerd(state), [("containerd", CheckState::Warning)]);
    }
    assert_eq!(with(EngineFacts::Podman), [("podman", CheckState::Warning)]);
}

#[test]
fn what_a_node_says_reaches_no_terminal_as_it_is() {
    let mut facts = node();
    facts
        .engines
        .push(EngineFacts::Docker(Ok("26\x1b[2J".to_owned())));
    assert!(!report(&facts).text().contains('\x1b'));
}
