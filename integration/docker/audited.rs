//! `report.audit`: reports what another policy would do, and enforces nothing else.

use serde_json::Value;

use super::allowlist::{Agent, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::{Finished, run};
use crate::direct::program;

const TRIED: &str = "base = \"strict\"\n\
                     [network]\nmode = \"allowlist\"\nallow = [\"api.example.test\"]\ndeny = [\"index.example.test\"]\n\
                     [syscalls]\ndeny = [\"sync\"]\n";
const OLD: &str = "base = \"permissive\"\n\
                   [network]\nmode = \"allowlist\"\nallow = [\"api.example.test\", \"files.example.test\", \"index.example.test:80\"]\n";

fn agentbox(arguments: &[&str]) -> Finished {
    run(&program(), arguments)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_policy_is_tried_while_the_old_one_is_enforced() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = NodeFiles::default();
    node.write("policies/tried.toml", 0o644, TRIED);
    node.write("policies/old.toml", 0o644, OLD);
    node.write(
        "policies/new.toml",
        0o644,
        "base = \"old\"\n[report]\naudit = \"tried\"\n",
    );
    for mounted in ["data", "work"] {
        std::fs::create_dir_all(format!("/srv/audited/{mounted}")).unwrap();
    }
    let mut seen = Vec::new();
    for policy in ["old", "new"] {
        let policy = format!("dev.agentbox.policy={policy}");
        let options = [
            runtime(),
            "--annotation",
            &policy,
            "-v=/srv/audited/data:/data",
            "-v=/srv/audited/work:/work",
            "--annotation",
            "dev.agentbox.workspace=/work",
            "--cap-add=NET_ADMIN",
        ];
        let agent = Agent::start(&docker, &options);
        let name = &agent.container.name;
        // The container may do the same under both.
        let mut did = Vec::new();
        for url in [
            "https://api.example.test/a",
            "https://files.example.test/b",
            "http://index.example.test/c",
            "https://others.example.test/d",
        ] {
            did.push(
                agent
                    .curl(false, &["-o", "/dev/null", "-w", "%{http_code}", url])
                    .code,
            );
        }
        let rest = "sync && echo synced; touch /data/x && echo wrote; rm -f /data/x; id -u; grep -E 'Cap|Seccomp' /proc/self/status";
        let rest = agent.container.exec(&[], &["sh", "-c", rest]).ok();
        assert_eq!(did[..3], [0, 0, 0], "{policy}");
        assert!(did[3] != 0, "{policy}");
        assert!(rest.contains("synced"), "{rest}");
        seen.push((did, rest));
        let log = agentbox(&["audit", "--json", name]).ok();
        let would: Vec<Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Value| line["verdict"] == "would-deny")
            .collect();
        let text = agentbox(&["audit", name]).ok();
        let explained = agentbox(&["explain", name]).ok();
        if policy.ends_with("old") {
            assert!(would.is_empty(), "{would:?}");
            assert!(!text.contains("report.audit") && !explained.contains("audit: policy"));
            continue;
        }
        for words in [
            "allowed, and would be denied without report.learn, or by the policy of report.audit:",
            "files.example.test:443: policy tried: no rule in network.allow matches it",
            "index.example.test:80: policy tried: network.deny lists index.example.test",
            "mount at /data (from /srv/audited/data): policy tried: ",
            "syscalls.deny",
            "filesystem.root",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        // Requests that both policies allow are not reported. A denied request is only a denial.
        let hosts: Vec<&str> = would
            .iter()
            .filter_map(|line| line["what"]["host"].as_str())
            .collect();
        assert_eq!(hosts, ["files.example.test", "index.example.test"]);
        assert!(
            explained.contains("audit: policy 'tried' is reported and not enforced"),
            "{explained}"
        );
        let markdown = agentbox(&["audit", "--format", "markdown", name]).ok();
        assert!(
            markdown.contains("| Allowed, and would be denied (report.learn, report.audit) |"),
            "{markdown}"
        );
        let ocsf = agentbox(&["audit", "--format", "ocsf", name]).ok();
        assert!(ocsf.contains("would-deny"), "{ocsf}");
    }
    assert_eq!(seen[0], seen[1], "nothing is enforced because of it");
    // A policy that does not exist would report nothing, so it is an error.
    let missing = ["--annotation", "dev.agentbox.report.audit=no-such-policy"];
    let options = [&[runtime()], &missing[..], &["test-probe"]].concat();
    let refused = docker.run(&options, &["true"]);
    assert!(
        refused.code != 0 && refused.stderr.contains("no-such-policy"),
        "{refused}"
    );
    // The control: the report matches what the policy does.
    let enforced = [runtime(), "--annotation", "dev.agentbox.policy=tried"];
    let agent = Agent::start(&docker, &enforced);
    for url in [
        "https://files.example.test/b",
        "http://index.example.test/c",
    ] {
        assert!(
            agent
                .curl(false, &[url])
                .stdout
                .contains("denied by agentbox")
                || agent.curl(false, &[url]).code != 0
        );
    }
}
