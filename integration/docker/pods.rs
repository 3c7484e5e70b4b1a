//! `--network container:X`, like pods: one inner namespace, one sidecar, the first container's rules (N17, N25, N26).

use std::thread;

use super::allowlist::{Agent, arrived, internet, witness};
use super::{Container, Docker, runtime};
use crate::command::run;

const ALLOW: &str = "dev.agentbox.network.allow=api.example.test, api.example.test:80";

fn network(first: &Agent<'_>) -> String {
    format!("--network=container:{}", first.container.name)
}

fn link(container: &Container<'_>) -> String {
    container.exec(&[], &["readlink", "/proc/self/ns/net"]).ok()
}

/// The sidecar's process id, from the container's record.
fn sidecar(container: &Container<'_>) -> String {
    let id = container.inspect("{{.Id}}");
    let found = std::fs::read_dir("/run/agentbox/index").unwrap();
    let dir = found
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().ends_with(&id))
        .unwrap();
    let text = std::fs::read_to_string(dir.join("record.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["sidecar"]["pid"].to_string()
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn members_share_one_network_and_its_rules() {
    let docker = Docker::connect();
    let _turn = witness();
    internet();
    let first = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let net = network(&first);
    // Two at once; one requests rules, the other nothing.
    let (one, two) = thread::scope(|scope| {
        let one = scope.spawn(|| Agent::start(&docker, &[runtime(), "--annotation", ALLOW, &net]));
        let two = scope.spawn(|| Agent::start(&docker, &[runtime(), &net]));
        (one.join().unwrap(), two.join().unwrap())
    });
    // None of them is a stranger in the others' namespace, and neither is a member's sidecar.
    for container in [&first, &one, &two] {
        let id = container.container.inspect("{{.Id}}");
        let verified = run("agentbox", &["verify", &id]);
        assert_eq!(verified.code, 0, "{verified}");
    }
    let before = arrived(&["\"to\": \"198.51.100.12\""]);
    for member in [&one, &two] {
        assert_eq!(link(&member.container), link(&first.container));
        let there = member.container.exec(
            &[],
            &["sh", "-c", "ls /sys/class/net; tail -n +3 /proc/net/dev"],
        );
        assert_eq!(there.stdout.matches("lo").count(), 2, "{there}");
        assert!(!there.stdout.contains("eth"), "{there}");
        for direct in [true, false] {
            for url in ["https://api.example.test/x", "http://api.example.test/x"] {
                let got = member.curl(direct, &[url]);
                assert!(
                    got.code == 0 && got.stdout.contains("\"path\": \"/x\""),
                    "{url}: {got}"
                );
            }
            for url in [
                "http://other.example.test/",
                "http://198.51.100.12/",
                "http://198.51.100.12:8080/",
            ] {
                let got = member.curl(direct, &["-f", url]);
                assert_ne!(got.code, 0, "{url}: {got}");
            }
        }
        let kept = member
            .container
            .exec(&[], &["sh", "-c", "cat /etc/resolv.conf; env"]);
        assert!(kept.stdout.contains("nameserver 198.18.0.1"), "{kept}");
        assert!(
            kept.stdout.contains("HTTPS_PROXY=http://127.0.0.1:3128"),
            "{kept}"
        );
    }
    assert_eq!(arrived(&["\"to\": \"198.51.100.12\""]), before);
    assert!(first.violations().contains("other.example.test"));
    // `network` on a member shows the network that it is in.
    let id = one.container.inspect("{{.Id}}");
    let first_id = first.container.inspect("{{.Id}}");
    let shown = crate::command::run("agentbox", &["network", &id]).ok();
    let head = format!("in the network of container {first_id}: network.mode is allowlist");
    assert!(shown.contains(&head), "{shown}");
    // They share one loopback, and no other container has access.
    let _server = first.container.exec(
        &["-d"],
        &[
            "python3",
            "-m",
            "http.server",
            "8123",
            "--bind",
            "127.0.0.1",
        ],
    );
    let got = one.curl(
        true,
        &[
            "-f",
            "--retry",
            "20",
            "--retry-connrefused",
            "http://127.0.0.1:8123/etc/hostname",
        ],
    );
    assert_eq!(got.code, 0, "{got}");
    let alone = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    assert_ne!(alone.curl(true, &["-f", "http://127.0.0.1:8123/"]).code, 0);
    // A member of a member is a member.
    let third = Agent::start(&docker, &[runtime(), &network(&two)]);
    assert_eq!(link(&third.container), link(&first.container));
    let id = third.container.inspect("{{.Id}}");
    let explained = run("agentbox", &["explain", &id]).ok();
    let governs = format!(
        "shared with container {}",
        first.container.inspect("{{.Id}}")
    );
    assert!(explained.contains(&governs), "{explained}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_container_joins_a_network_with_more_than_it_may_have() {
    let docker = Docker::connect();
    let _turn = witness();
    let first = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let net = network(&first);
    let refused = |options: &[&str], why: &str| {
        let got = docker.run(&[options, &[&net, "test-probe"]].concat(), &["true"]);
        assert!(
            got.code != 0 && got.stderr.contains(why),
            "{options:?}: {got}"
        );
    };
    let less = "cannot give a member";
    refused(
        &[runtime(), "--annotation", "dev.agentbox.policy=strict"],
        less,
    );
    refused(
        &[runtime(), "--annotation", "dev.agentbox.network.mode=local"],
        less,
    );
    refused(&["--runtime=agentbox-strict"], less);
    let narrower = "dev.agentbox.network.allow=api.example.test";
    refused(&[runtime(), "--annotation", narrower], less);
    // The engine's own network, from a container without walls.
    let free = Agent::free(&docker);
    let got = docker.run(&[runtime(), &network(&free), "test-probe"], &["true"]);
    assert!(
        got.code != 0 && got.stderr.contains("no running container of agentbox"),
        "{got}"
    );
    // Rules beyond the first one's are not granted.
    let wider =
        "dev.agentbox.network.allow=api.example.test, api.example.test:80, other.example.test:80";
    let member = Agent::start(&docker, &[runtime(), "--annotation", wider, &net]);
    let before = arrived(&["\"to\": \"198.51.100.12\""]);
    assert_eq!(
        member
            .curl(false, &["-f", "http://api.example.test/x"])
            .code,
        0
    );
    for direct in [true, false] {
        assert_ne!(
            member
                .curl(direct, &["-f", "http://other.example.test/"])
                .code,
            0
        );
    }
    assert_eq!(arrived(&["\"to\": \"198.51.100.12\""]), before);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn without_the_first_one_members_reach_nothing() {
    let docker = Docker::connect();
    let _turn = witness();
    for what in ["sidecar", "sidecar alone", "container"] {
        let first = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
        let net = network(&first);
        let member = Agent::start(&docker, &[runtime(), &net]);
        let inside = link(&member.container);
        assert_eq!(
            member
                .curl(true, &["-f", "http://api.example.test/before"])
                .code,
            0
        );
        match what {
            // The first container ends with it.
            "sidecar" => run("kill", &["-9", &sidecar(&first.container)]).ok(),
            "sidecar alone" => {
                first.lose_sidecar();
                String::new()
            }
            _ => first.container.call("kill", &[]).ok(),
        };
        for (direct, url) in [
            (true, "http://api.example.test/gone"),
            (false, "http://api.example.test/gone"),
            (true, "http://198.51.100.10/gone"),
        ] {
            let got = member.curl(direct, &["-f", "--max-time", "5", url]);
            assert_ne!(got.code, 0, "{what}: {got}");
        }
        assert_eq!(link(&member.container), inside, "{what}: by exec, too");
        let late = docker.run(&[runtime(), &net, "test-probe"], &["true"]);
        assert_ne!(late.code, 0, "{what}: {late}");
        let of_member = format!("--network=container:{}", member.container.name);
        let late = docker.run(&[runtime(), &of_member, "test-probe"], &["true"]);
        assert_ne!(late.code, 0, "{what}: {late}");
        if what == "container" {
            // A new network: members that stay behind do not get into it.
            first.container.call("start", &[]).ok();
            assert_eq!(
                first
                    .curl(true, &["-f", "http://api.example.test/again"])
                    .code,
                0
            );
            assert_ne!(
                member
                    .curl(
                        true,
                        &["-f", "--max-time", "5", "http://api.example.test/gone"]
                    )
                    .code,
                0
            );
            member.container.call("restart", &["-t", "0"]).ok();
            assert_eq!(link(&member.container), link(&first.container));
            assert_eq!(
                member
                    .curl(true, &["-f", "http://api.example.test/again"])
                    .code,
                0
            );
        }
    }
    assert_eq!(arrived(&["/gone"]), 0);
}
