//! The lines of invented nodes.

use std::path::PathBuf;

use super::engines::{DockerFacts, EngineFacts, HandlerFacts, ProgramState, RegisteredProgram};
use super::facts::{
    Clock, DoctorFacts, FreeSpace, LogDirectory, NodeSummary, OrdinaryUser, SpaceUse,
};
use super::{CheckState, DoctorReport, Purpose};
use crate::plan::HostFacts;
use crate::runtime::obstacle::Obstacle;

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
        obstacle: None,
        ordinary: None,
        node: (
            "/etc/agentbox/config.toml".into(),
            Ok(NodeSummary::default()),
        ),
        wrap_policy: Ok("standard".to_owned()),
        engine_policy: Ok(Some("standard".to_owned())),
        records: Ok("/run/agentbox".into()),
        logs: Ok(LogDirectory {
            path: "/var/lib/agentbox/runs".into(),
            is_made: true,
        }),
        space: vec![FreeSpace {
            used_for: SpaceUse::Logs,
            path: "/var/lib/agentbox/runs".into(),
            bytes: Ok(1 << 30),
        }],
        clock: Clock { now: 2, program: 1 },
        program: (PathBuf::from("/usr/bin/agentbox"), true),
        engines: Vec::new(),
    }
}

fn report(facts: &DoctorFacts) -> DoctorReport {
    DoctorReport::of(facts)
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
    assert!(report.wrap && report.landlock && report.wrap_works());
    assert_eq!(report.engines, Some(true));
}

#[test]
fn a_container_around_it_that_keeps_proc_or_cgroups_from_wrap_is_named() {
    for obstacle in [
        Obstacle::MaskedProc,
        Obstacle::Cgroups("/sys/fs/cgroup/cpu".into()),
        Obstacle::PivotRoot,
    ] {
        let facts = DoctorFacts {
            obstacle: Some(obstacle.clone()),
            ..node()
        };
        assert_eq!(faults(&facts), [("container", CheckState::Missing)]);
        let report = report(&facts);
        assert!(!report.wrap && report.landlock, "{obstacle}");
        let text = report.text();
        assert!(text.contains("wrap --walls landlock"), "{text}");
        assert!(text.contains("--privileged"), "{text}");
    }
}

#[test]
fn each_lack_has_a_line_that_says_what_does_not_work() {
    use CheckState::{Missing, Warning};
    /// A change to a good node; its line; whether `wrap`, Landlock's walls and engines still work.
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
            [false; 3],
        ),
        Case(
            |n| n.wrap_policy = Err("there is no policy nope".into()),
            "policy",
            Missing,
            [false, false, true],
        ),
        Case(
            |n| n.engine_policy = Err("there is no policy nope".into()),
            "engine-policy",
            Missing,
            [true, true, false],
        ),
        Case(
            |n| n.engine_policy = Ok(None),
            "engine-policy",
            Warning,
            [true; 3],
        ),
        Case(
            |n| {
                n.space[0].bytes = Ok(0);
                n.space[0].used_for = SpaceUse::Records;
            },
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
            [report.wrap, report.landlock, report.engines.unwrap()],
            works,
            "{name}"
        );
    }
}

#[test]
fn an_ordinary_user_needs_a_namespace_and_no_cgroup() {
    let ordinary = |namespace| DoctorFacts {
        user: 1000,
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
    assert!(works.wrap && works.engines.is_none());
    assert!(
        works
            .text()
            .ends_with("containers of engines: unknown; run it as root\n")
    );
    let json = serde_json::to_value(&works).unwrap();
    assert!(json["engines"].is_null(), "{json}");
    // User 0 of a container is not told to ask as root.
    let zero = DoctorFacts {
        user: 0,
        ..ordinary(Ok(()))
    };
    let text = report(&zero).text();
    assert!(
        text.ends_with("engines: unknown without CAP_SYS_ADMIN\n"),
        "{text}"
    );
    assert!(!text.contains("sudo"), "{text}");
    let mut own = ordinary(Ok(()));
    own.records = Err("others have rights in it".to_owned());
    let checks = report(&own).checks;
    let own = checks.iter().find(|check| check.name == "records").unwrap();
    assert_eq!(own.needed_for, [Purpose::Wrap, Purpose::Landlock]);
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

fn usable() -> RegisteredProgram {
    RegisteredProgram {
        path: "/usr/bin/agentbox".into(),
        state: ProgramState::Usable,
    }
}

fn docker(version: &str, runtime: Option<RegisteredProgram>) -> EngineFacts {
    let version = version.to_owned();
    EngineFacts::Docker(Ok(DockerFacts { version, runtime }))
}

fn handler(passes_annotations: bool, program: Option<RegisteredProgram>) -> EngineFacts {
    EngineFacts::Containerd(Ok(Some(HandlerFacts {
        program,
        passes_annotations,
    })))
}

/// The faults of a node with these engines, and whether their containers work.
fn with(engines: Vec<EngineFacts>) -> (Vec<(&'static str, CheckState)>, bool) {
    let facts = DoctorFacts { engines, ..node() };
    (faults(&facts), report(&facts).engines.unwrap())
}

#[test]
fn an_engine_that_drops_annotations_is_named() {
    use CheckState::Warning;
    assert_eq!(
        with(vec![docker("26.1.5+dfsg1", Some(usable()))]),
        (vec![], true)
    );
    for version in ["20.10.24", "next"] {
        let found = with(vec![docker(version, Some(usable()))]);
        assert_eq!(found, (vec![("docker", Warning)], true));
    }
    assert_eq!(with(vec![handler(true, Some(usable()))]), (vec![], true));
    let drops = with(vec![handler(false, Some(usable()))]);
    assert_eq!(drops, (vec![("containerd", Warning)], true));
    let podman = with(vec![EngineFacts::Podman(Ok(Some(usable())))]);
    assert_eq!(podman, (vec![], true));
}

#[test]
fn without_a_registered_runtime_no_container_works() {
    use CheckState::{Missing, Warning};
    let absent = || {
        [
            ("docker", docker("26.1.5", None)),
            ("containerd", EngineFacts::Containerd(Ok(None))),
            ("podman", EngineFacts::Podman(Ok(None))),
        ]
    };
    for (name, engine) in absent() {
        assert_eq!(with(vec![engine]), (vec![(name, Missing)], false));
    }
    // Another engine has it.
    for (name, engine) in absent() {
        let registered = docker("26.1.5", Some(usable()));
        let found = with(vec![engine, registered]);
        assert_eq!(found, (vec![(name, Warning)], true));
    }
    // An engine that does not answer may have it.
    let unknown = || "Permission denied".to_owned();
    for (name, engine) in [
        ("docker", EngineFacts::Docker(Err(unknown()))),
        ("containerd", EngineFacts::Containerd(Err(unknown()))),
        ("podman", EngineFacts::Podman(Err(unknown()))),
    ] {
        let found = with(vec![engine]);
        assert_eq!(found, (vec![(name, Warning)], true));
    }
}

#[test]
fn the_program_of_an_engine_is_judged_not_only_this_one() {
    use CheckState::{Missing, Warning};
    for (state, fault, works) in [
        (ProgramState::Absent, Missing, false),
        (ProgramState::NotExecutable, Missing, false),
        (ProgramState::OpenToOthers, Warning, true),
        (ProgramState::NotAbsolute, Warning, true),
        (ProgramState::Another, Warning, true),
        (ProgramState::Unknown("EACCES".to_owned()), Warning, true),
    ] {
        let program = || RegisteredProgram {
            state: state.clone(),
            ..usable()
        };
        let found = with(vec![docker("26.1", Some(program()))]);
        assert_eq!(found, (vec![("docker-program", fault)], works));
        let found = with(vec![handler(true, Some(program()))]);
        assert_eq!(found, (vec![("containerd-program", fault)], works));
        let mut facts = node();
        facts.node.1.as_mut().unwrap().annotations = 1;
        facts.engines = vec![EngineFacts::Podman(Ok(Some(program())))];
        assert_eq!(faults(&facts), [("podman-program", fault)]);
    }
    let runc = with(vec![handler(true, None)]);
    assert_eq!(runc, (vec![("containerd-program", Missing)], false));
}

#[test]
fn zero_loosened_fields_are_nothing() {
    let mut facts = node();
    facts.engines = vec![EngineFacts::Podman(Ok(Some(usable())))];
    for (permitted, words) in [
        (0, "annotations loosen nothing"),
        (1, "annotations can loosen 1 field\n"),
        (2, "annotations can loosen 2 fields\n"),
    ] {
        facts.node.1.as_mut().unwrap().annotations = permitted;
        let text = report(&facts).text();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn logs_decide_only_where_the_node_requires_them() {
    use CheckState::{Missing, Warning};
    for (required, state) in [(false, Warning), (true, Missing)] {
        let require = |facts: &mut DoctorFacts| {
            facts.node.1.as_mut().unwrap().log_required = required;
        };
        let mut unsafe_logs = node();
        require(&mut unsafe_logs);
        unsafe_logs.logs = Err("others than its owner have rights in it".to_owned());
        assert_eq!(faults(&unsafe_logs), [("logs", state)]);
        let mut full = node();
        require(&mut full);
        full.space[0].bytes = Ok(0);
        assert_eq!(faults(&full), [("space", state)]);
        for facts in [unsafe_logs, full] {
            let report = report(&facts);
            assert_eq!((report.wrap, report.engines), (!required, Some(!required)));
            assert!(report.landlock);
        }
    }
    let mut new = node();
    new.logs.as_mut().unwrap().is_made = false;
    assert_eq!(faults(&new), []);
    assert!(report(&new).text().contains("the first run creates it"));
}

#[test]
fn text_from_a_node_reaches_a_terminal_only_escaped() {
    let mut facts = node();
    facts.engines.push(docker("26\x1b[2J", Some(usable())));
    assert!(!report(&facts).text().contains('\x1b'));
}
