//! What the README shows works as it stands there.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Scratch, program, with_env};
use crate::docker::Docker;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The fenced blocks of the README whose first line is "```KIND".
fn blocks(kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("README.md")).unwrap();
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
    assert!(open.is_none(), "a block of the README does not end");
    assert!(!found.is_empty(), "no block of the README is marked {kind}");
    found
}

/// `test-musl` by the name that the README uses, for as long as the value lives.
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
    for block in blocks("sh rig") {
        let env = [("PATH", path.as_str()), ("PROJECT", project.as_str())];
        with_env("bash", &["-euo", "pipefail", "-c", &block], &project, &env).ok();
    }
    let answer = std::fs::read_to_string(format!("{project}/answer.txt")).unwrap();
    assert_eq!(answer, "42");
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
fn direct_the_json_of_the_readme_is_json() {
    for block in blocks("json") {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block);
        assert!(parsed.is_ok(), "{block}\n{}", parsed.unwrap_err());
    }
}
