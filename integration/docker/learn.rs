//! `report.learn`: public names that no rule lists are let through and recorded, and nothing else is.

use serde_json::Value;

use super::allowlist::{Agent, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::{Finished, run};
use crate::direct::program;

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
    // The control: a policy alone may not.
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
    // What a rule denies, addresses, the node, clouds' own names and addresses: as ever.
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
    // System calls are what they were.
    let mount = "import ctypes; l = ctypes.CDLL(None, use_errno=True); l.mount(None, None, None, 0, None); print(ctypes.get_errno())";
    assert_eq!(agent.python(mount).ok(), "1\n");

    let text = agentbox(&["audit", &name]).ok();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().ends_with("LEARN MODE"), "{text}");
    assert!(
        text.lines().nth(2).unwrap().starts_with("LEARN MODE: "),
        "{text}"
    );
    assert!(
        text.contains(
            "files.example.test:443: let through by learn mode: no rule of network.allow names it"
        ),
        "{text}"
    );
    let listed = agentbox(&["list", "--all"]).ok();
    assert!(listed.contains("allowlist, LEARN MODE"), "{listed}");
    let explained = agentbox(&["explain", &name]).ok();
    assert!(
        explained
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("LEARN MODE: "),
        "{explained}"
    );
    let json = agentbox(&["audit", "--json", &name]).ok();
    for line in json.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["learn"], true, "{line}");
    }

    // From which a policy is made that learns no more.
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
    ] {
        let offered = suggested.split("refused, and nothing").next().unwrap();
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
