//! `report.learn`: allows and records public names that no rule lists, and nothing else.

use serde_json::Value;

use super::allowlist::{Agent, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::{Finished, awaited, run};
use crate::direct::{Scratch, program};

const LEARNING: &str = "base = \"standard\"\n\
                        [network]\nmode = \"allowlist\"\nallow = [\"api.example.test\"]\ndeny = [\"index.example.test\"]\n\
                        [report]\nlearn = \"on\"\n";
const POLICY: &str = "dev.agentbox.policy=learning";

fn agentbox(arguments: &[&str]) -> Finished {
    run(&program(), arguments)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn names_are_learnt_and_become_a_policy_and_nothing_private_is() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = NodeFiles::default();
    node.write("policies/learning.toml", 0o644, LEARNING);
    // The control: a policy alone must not turn it on.
    let options = [runtime(), "--annotation", POLICY];
    let refused = docker.run(&[&options[..], &["test-probe"]].concat(), &["true"]);
    assert!(
        refused.code != 0 && refused.stderr.contains("`learn = true` under [allow]"),
        "{refused}"
    );
    node.write("config.toml", 0o644, "[allow]\nlearn = true\n");
    // Nor may an annotation.
    let asked = ["--annotation", "dev.agentbox.report.learn=on"];
    let refused = docker.run(
        &[&[runtime()], &asked[..], &["test-probe"]].concat(),
        &["true"],
    );
    assert!(
        refused.code != 0 && refused.stderr.contains("report.learn"),
        "{refused}"
    );

    let agent = Agent::start(&docker, &options);
    let name = agent.container.name.clone();
    let got = |direct, url: &str| agent.curl(direct, &["-f", "-o", "/dev/null", url]).code == 0;
    assert!(got(false, "https://api.example.test/listed"));
    for direct in [false, true] {
        assert!(got(direct, "https://files.example.test/learnt"), "{direct}");
    }
    // Still denied: hosts of deny rules, addresses, the node, cloud names and addresses.
    for url in [
        "https://index.example.test/denied",
        "http://index.example.test/denied",
        "https://198.51.100.11/",
        "http://169.254.169.254/",
        "http://metadata.google.internal/",
        "http://host.docker.internal/",
        "http://private.example.test/",
    ] {
        assert!(!got(false, url), "{url}");
        assert!(!got(true, url), "{url}");
    }
    // System calls are denied as before.
    let mount = "import ctypes; l = ctypes.CDLL(None, use_errno=True); l.mount(None, None, None, 0, None); print(ctypes.get_errno())";
    assert_eq!(agent.python(mount).ok(), "1\n");

    let text = agentbox(&["audit", &name]).ok();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().ends_with("LEARN MODE"), "{text}");
    assert!(
        text.lines().nth(2).unwrap().starts_with("LEARN MODE: "),
        "{text}"
    );
    // Two events; how many lines they take depends on timing.
    let learnt = "allowed by learn mode: no rule in network.allow matches it";
    let mut lines = text.lines();
    assert!(
        lines.any(|line| line.contains("files.example.test:443") && line.contains(learnt)),
        "{text}"
    );
    let listed = agentbox(&["list", "--all"]).ok();
    assert!(listed.contains("allowlist, LEARN MODE"), "{listed}");
    let verified = agentbox(&["verify", &name]);
    assert!(verified.stdout.contains("LEARN MODE"), "{verified}");
    let explained = agentbox(&["explain", &name]).ok();
    assert!(
        explained
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("LEARN MODE: "),
        "{explained}"
    );
    let network = agentbox(&["network", &name]).ok();
    assert!(
        network.contains("allowlist, LEARN MODE") && !network.contains("for approval"),
        "{network}"
    );
    for (host, allowed) in [("files.example.test", true), ("index.example.test", false)] {
        let answer = agentbox(&["policy", "check", "--container", &name, "--host", host]);
        assert_eq!(answer.code == 0, allowed, "{answer}");
        assert!(answer.stdout.contains("LEARN MODE: "), "{answer}");
    }
    // As a ceiling, it has no limit that would contain a learnt name.
    let answer = agentbox(&[
        "policy",
        "check",
        "learning",
        "--host",
        "files.example.test",
    ]);
    let chosen =
        "where an annotation chooses learning: allowed: files.example.test:443 by learn mode";
    assert!(
        answer.code == 1 && answer.stdout.contains(chosen),
        "{answer}"
    );
    let json = agentbox(&["audit", "--json", &name]).ok();
    for line in json.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["learn"], true, "{line}");
    }

    // The policy made from it no longer learns.
    let suggested = agentbox(&["suggest", &name]).ok();
    assert!(
        suggested.contains("files.example.test  for "),
        "{suggested}"
    );
    for never in [
        "169.254",
        "metadata",
        "docker.internal",
        "index.example.test",
        "198.51.100",
        "private.example.test",
    ] {
        let offered = suggested.split("denied, left out:").next().unwrap();
        assert!(!offered.contains(never), "{suggested}");
    }
    agentbox(&["suggest", &name, "--write", "learnt"]).ok();
    let file = "/etc/agentbox/policies/learnt.toml";
    let written = std::fs::read_to_string(file).unwrap();
    drop(agent);
    let after = Agent::start(
        &docker,
        &[runtime(), "--annotation", "dev.agentbox.policy=learnt"],
    );
    let got = |url: &str| after.curl(false, &["-f", "-o", "/dev/null", url]).code == 0;
    let (learnt, other) = (
        got("https://files.example.test/"),
        got("https://others.example.test/"),
    );
    let explained = agentbox(&["explain", &after.container.name]).ok();
    std::fs::remove_file(file).unwrap();
    assert!(learnt && !other, "{written}");
    assert!(!explained.contains("LEARN MODE"), "{explained}");
}

/// A mount counts as written only if this container wrote it, not another writer of the same files.
#[test]
#[ignore = "needs the rig: hack/test"]
fn mounts_that_were_written_are_told_from_those_that_were_not() {
    let docker = Docker::alone();
    let mut node = NodeFiles::default();
    let policy = LEARNING.replace(
        "[network]",
        "[filesystem]\nwrite = [\"/data\", \"/ref\", \"/cut\"]\n[network]",
    );
    node.write("policies/learning.toml", 0o644, &policy);
    let alike = policy.replace("learn = \"on\"", "learn = \"off\"");
    node.write("policies/alike.toml", 0o644, &alike);
    node.write("config.toml", 0o644, "[allow]\nlearn = true\n");
    let dir = Scratch::new();
    let bind = |name: &str| {
        let path = dir.dir(name);
        std::fs::write(format!("{path}/old"), "old").unwrap();
        format!("--volume={path}:/{name}")
    };
    let volumes = ["work", "data", "ref", "cut", "plain"].map(bind);
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let options = |policy: &'static str| {
        let own = [runtime(), "--annotation", policy, "--workdir=/work"];
        [&own[..], &volumes, &["test-probe"]].concat()
    };
    let sleep = ["sleep", "300"];
    let first = docker.start(&options(POLICY), &sleep);
    let joined = format!("--network=container:{}", first.name);
    let member = docker.start(&[&[joined.as_str()], &options(POLICY)[..]].concat(), &sleep);
    // The control: writes by the node, or by a container that does not learn, do not count.
    let other = docker.start(&options("dev.agentbox.policy=alike"), &sleep);
    for path in ["ref", "work"] {
        std::fs::write(dir.path(&format!("{path}/old")), "the node's").unwrap();
    }
    other
        .exec(&[], &["sh", "-c", "echo x >/ref/x && cat /ref/old"])
        .ok();
    let shell = |container: &super::Container, script: &str| {
        container.exec(&[], &["sh", "-c", script]).ok();
    };
    shell(
        &first,
        "cat /ref/old /cut/old; echo x >/data/new; echo x >>/data/new",
    );
    shell(&first, "mkdir /cut/dir; ! echo x >/plain/x");
    shell(&member, "echo x >/work/new; cat /data/new");
    for (container, written, unwritten) in [
        (&first, &["/data"][..], &["/cut", "/ref", "/work"][..]),
        (&member, &["/work"], &["/cut", "/data", "/ref"]),
    ] {
        let suggested = || -> Value {
            let json = agentbox(&["suggest", "--format", "json", &container.name]).ok();
            serde_json::from_str(&json).unwrap()
        };
        // The sidecar learns of it after the write.
        let json = awaited("the mounts that were written", || match suggested() {
            json if json["mounts"]["written"] == serde_json::json!(written) => Ok(json),
            json => Err(format!("{json}, not {written:?}")),
        });
        let left = json["mounts"]["unwritten"].as_array().unwrap();
        let left: Vec<&str> = left
            .iter()
            .map(|one| one["destination"].as_str().unwrap())
            .collect();
        assert_eq!(left, unwritten, "{json}");
    }
    let text = agentbox(&["suggest", &first.name]).ok();
    assert!(
        text.contains("  /work: no file in it was written (creating, renaming and removing are not recorded)\n    instead: filesystem.workspace = \"read-only\""),
        "{text}"
    );
    assert!(
        text.contains("instead: filesystem.write without it"),
        "{text}"
    );
    let audit = agentbox(&["audit", &first.name]).ok();
    let of_data: Vec<&str> = audit
        .lines()
        .filter(|line| {
            line.contains("mount at /data (") && line.ends_with("; a file in it was written")
        })
        .collect();
    assert_eq!(of_data.len(), 1, "{audit}");
    let none = agentbox(&["suggest", "--format", "json", &other.name]).ok();
    let none: Value = serde_json::from_str(&none).unwrap();
    assert_eq!(none["mounts"]["unwritten"], serde_json::json!([]), "{none}");
}
