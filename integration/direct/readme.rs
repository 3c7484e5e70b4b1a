//! The examples of the README and docs/start.md work as written.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Scratch, program, with_env};
use crate::docker::{Docker, runtime};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The fenced blocks of the README with "```KIND" as first line.
fn blocks(kind: &str) -> Vec<String> {
    blocks_of("README.md", kind)
}

/// The same for another page.
fn blocks_of(page: &str, kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        open = match (open, line.strip_prefix("```")) {
            (None, Some(kind)) => Some((kind.trim().to_owned(), String::new())),
            (None, None) => None,
            (Some((this, block)), Some(_)) => {
                if this == kind {
                    found.push(block);
                }
                None
            }
            (Some((this, block)), None) => Some((this, format!("{block}{line}\n"))),
        };
    }
    assert!(open.is_none(), "a block of {page} does not end");
    assert!(!found.is_empty(), "no block of {page} is marked {kind}");
    found
}

/// `test-musl` under the README's name for it, while the value lives.
struct Tag<'a>(&'a Docker);

impl<'a> Tag<'a> {
    fn new(docker: &'a Docker) -> Self {
        docker.call(&["tag", "test-musl", "debian"]).ok();
        Self(docker)
    }
}

impl Drop for Tag<'_> {
    fn drop(&mut self) {
        let gone = self.0.call(&["rmi", "debian"]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_every_command_of_the_readme_that_needs_a_runtime_works() {
    let docker = Docker::connect();
    let _tag = Tag::new(&docker);
    let scratch = Scratch::new();
    let bin = scratch.dir("bin");
    std::os::unix::fs::symlink(program(), format!("{bin}/agentbox")).unwrap();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let project = scratch.dir("project");
    for block in [blocks("sh rig"), blocks_of("docs/start.md", "sh start")].concat() {
        let env = [("PATH", path.as_str()), ("PROJECT", project.as_str())];
        // The list has the runs of other tests, which damage theirs: 3.
        let listed = |line: &str| match line.split('#').next().map(str::trim) {
            Some("agentbox audit") => "agentbox audit || test $? = 3\n".to_owned(),
            _ => format!("{line}\n"),
        };
        let block: String = block.lines().map(listed).collect();
        with_env("bash", &["-euo", "pipefail", "-c", &block], &project, &env).ok();
    }
}

/// The verbs of agentbox that the README names.
fn verbs() -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
    // In prose it is not a command: "agentbox with each engine".
    let code = text.split('`').skip(1).step_by(2).map(str::to_owned);
    let kinds = ["sh", "sh rig", "console wrap"];
    let all = code.chain(kinds.into_iter().flat_map(blocks));
    let starts: Vec<String> = all.collect();
    let mut found = BTreeSet::new();
    for line in starts.iter().flat_map(|text| text.lines()) {
        for (at, word) in line.match_indices("agentbox ") {
            // Not `--runtime=agentbox debian`.
            if !line[..at].ends_with(['=', '/', '-']) {
                let rest = &line[at + word.len()..];
                // Nor the head of a table, nor `--runtime agentbox --annotation`.
                let verb = rest.split_whitespace().next();
                let is_verb = |v: &&str| v.bytes().all(|b| b.is_ascii_lowercase());
                let verb = verb.filter(is_verb);
                found.extend(verb.map(str::to_owned));
            }
        }
    }
    found
}

/// `agentbox verify` worked everywhere except at a terminal.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_every_verb_of_the_readme_runs_at_a_terminal() {
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let project = scratch.dir("project");
    let options = [
        runtime(),
        "--annotation",
        "dev.agentbox.network.on-unknown=ask",
    ];
    let options = [
        &options[..],
        &["--annotation", "dev.agentbox.network.allow=a.test"],
    ]
    .concat();
    let agent = docker.start(&[&options[..], &["test-musl"]].concat(), &["sleep", "300"]);
    let id = agent.inspect("{{.Id}}");
    // Each with text that must appear on its screen.
    let lines = [
        ("approve", format!("approve {id} b.test:443"), "b.test:443"),
        ("audit", format!("audit {id}"), "created"),
        ("doctor", "doctor".to_owned(), "agentbox wrap: works"),
        ("explain", format!("explain {id}"), "network"),
        (
            "install",
            "install --dry-run --destdir /srv".to_owned(),
            "not registered with podman",
        ),
        ("network", format!("network {id}"), "allowlist"),
        (
            "policy",
            "policy check standard --annotation network.allow=@github --host github.com --port 22"
                .to_owned(),
            "allowed",
        ),
        // Without a key of the node, the output says so.
        ("receipt", format!("receipt {id} || true"), "sign"),
        ("suggest", format!("suggest {id}"), "no rule is missing"),
        (
            "update",
            format!("update {id} --network-add c.test"),
            "changed: container",
        ),
        // Under a policy with approvals, three attempts are not tried: exit code 2.
        ("verify", format!("verify {id} || test $? = 2"), "held"),
        (
            "wrap",
            "wrap -- sh -c 'test -t 0 && test -t 1 && echo a terminal'".to_owned(),
            "a terminal",
        ),
    ];
    let named: BTreeSet<String> = lines.iter().map(|(verb, ..)| (*verb).to_owned()).collect();
    let missing: Vec<_> = verbs().difference(&named).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (verb, line, shown) in lines {
        let line = format!("cd {project} && {} {line}", program());
        let at_terminal = ["--quiet", "--return", "--command", &line, "/dev/null"];
        let finished = crate::command::run("script", &at_terminal);
        assert_eq!(finished.code, 0, "{verb}: {finished}");
        assert!(finished.stdout.contains(shown), "{verb}: {finished}");
    }
}

#[test]
fn direct_every_script_that_the_readme_calls_is_there() {
    let mut seen = 0;
    for block in blocks("sh") {
        for line in block.lines() {
            let word = line.split_whitespace().next().unwrap_or("");
            if !word.starts_with("hack/") {
                continue;
            }
            let script = std::fs::metadata(repository().join(word))
                .unwrap_or_else(|error| panic!("{word}: {error}"));
            assert_ne!(script.permissions().mode() & 0o111, 0, "{word}");
            seen += 1;
        }
    }
    assert!(seen > 2, "only {seen} calls of scripts found");
}

#[test]
fn direct_the_json_of_the_pages_is_json() {
    let pages = ["docs/engines.md", "docs/operator.md"];
    let all: Vec<String> = pages
        .iter()
        .flat_map(|page| blocks_of(page, "json"))
        .collect();
    assert!(all.len() > 1, "{all:?}");
    for block in all {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block);
        assert!(parsed.is_ok(), "{block}\n{}", parsed.unwrap_err());
    }
}
