//! Requests of a container that are refused: F10, F14 and F18 of the threat list. The refusal names the request.

use super::{Docker, Network, Policy, runtime};

/// `docker run` must fail, and its message must contain each of `words`.
#[track_caller]
fn refused(docker: &Docker, options: &[&str], words: &[&str]) {
    let arguments = [options, &["test-probe"]].concat();
    let message = docker.run(&arguments, &["true"]).failed();
    for word in words {
        assert!(
            message.contains(word),
            "{options:?}: '{word}' is missing from: {message}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f14_namespaces_of_the_host_and_of_others_are_refused() {
    let docker = Docker::connect();
    let other = docker.start(
        &["--runtime=runc", "--ipc=shareable", "test-probe"],
        &["sleep", "300"],
    );
    let (pid, ipc) = (
        format!("--pid=container:{}", other.name),
        format!("--ipc=container:{}", other.name),
    );
    for policy in Policy::ALL {
        for (option, word) in [
            ("--pid=host", "pid"),
            ("--ipc=host", "ipc"),
            ("--uts=host", "uts"),
            (pid.as_str(), "pid"),
            (ipc.as_str(), "ipc"),
        ] {
            // The control: the engine itself allows it.
            docker
                .run(&["--runtime=runc", option, "test-probe"], &["true"])
                .ok();
            refused(&docker, &[policy.options(), vec![option]].concat(), &[word]);
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f14_the_hosts_cgroup_namespace_is_never_shared() {
    // On cgroup v1 this is Docker's own default, so it is replaced and not refused. A refusal would be as good.
    let docker = Docker::connect();
    let hosts = std::fs::read_link("/proc/self/ns/cgroup").unwrap();
    let hosts = format!("{}\n", hosts.display());
    let command = ["readlink", "/proc/self/ns/cgroup"];
    let control = ["--runtime=runc", "--cgroupns=host", "test-probe"];
    assert_eq!(docker.run(&control, &command).ok(), hosts, "the control");
    for policy in Policy::ALL {
        let options = [policy.options(), vec!["--cgroupns=host", "test-probe"]].concat();
        let seen = docker.run(&options, &command);
        assert!(seen.code != 0 || seen.stdout != hosts, "{policy:?}: {seen}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f10_annotations_that_are_not_understood_are_refused_by_name() {
    let docker = Docker::connect();
    for (annotation, words) in [
        ("dev.agentbox.policy=strickt", &["strickt", "strict"][..]),
        ("dev.agentbox.policy=", &["dev.agentbox.policy"]),
        ("dev.agentbox.policy=../strict", &["dev.agentbox.policy"]),
        ("dev.agentbox.polcy=strict", &["dev.agentbox.polcy"]),
        ("dev.agentbox.Policy=strict", &["dev.agentbox.Policy"]),
        ("agentbox.policy=strict", &["agentbox.policy"]),
        ("io.agentbox.policy=strict", &["io.agentbox.policy"]),
        (
            "dev.agentbox.nothing.such=1",
            &["dev.agentbox.nothing.such"],
        ),
    ] {
        refused(&docker, &[runtime(), "--annotation", annotation], words);
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f10_an_annotation_never_takes_the_walls_away() {
    let docker = Docker::connect();
    let annotation = "dev.agentbox.policy=unconfined";
    refused(
        &docker,
        &[runtime(), "--annotation", annotation],
        &["unconfined"],
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f10_an_annotation_only_narrows_what_the_handler_fixed() {
    let docker = Docker::connect();
    let strict = "--runtime=agentbox-strict";
    for wider in [
        "dev.agentbox.policy=standard",
        "dev.agentbox.policy=permissive",
    ] {
        refused(&docker, &[strict, "--annotation", wider], &["strict"]);
    }
    docker
        .run(
            &[
                strict,
                "--annotation",
                "dev.agentbox.policy=strict",
                "test-probe",
            ],
            &["true"],
        )
        .ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_container_without_any_annotation_has_walls() {
    let docker = Docker::connect();
    let seen = docker
        .run(
            &[runtime(), "test-probe"],
            &["probe", "io_uring_setup", "links"],
        )
        .ok();
    assert_eq!(seen, "io_uring_setup\tENOSYS\nlinks\tseen\tlo\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn unconfined_is_what_the_engine_asked_for() {
    let docker = Docker::connect();
    let command = [
        "probe",
        "io_uring_setup",
        "ptrace-traceme",
        "socket-packet",
        "links",
        "mount",
    ];
    let mut seen = Vec::new();
    for runtime in ["--runtime=runc", "--runtime=agentbox-unconfined"] {
        seen.push(docker.run(&[runtime, "test-probe"], &command).ok());
    }
    assert_eq!(seen[0], seen[1], "runc and unconfined");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f18_a_running_container_gains_no_network() {
    let docker = Docker::connect();
    // Made before the container, so that it is removed after it.
    let network = Network::create(&docker, &[]);
    let mut options = Policy::Standard.options();
    options.push("test-probe");
    let container = docker.start(&options, &["sleep", "300"]);
    // The engine may succeed or fail: what counts is what the workload sees.
    docker.call(&["network", "connect", &network.name, &container.name]);
    assert_eq!(
        container.exec(&[], &["probe", "links"]).ok(),
        "links\tseen\tlo\n"
    );
}
