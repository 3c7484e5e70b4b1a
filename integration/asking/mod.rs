//! Looking at the network of a running container, changing it, and deciding on what waits: the verbs `network`, `update
//! --network-allow`, `approvals`, `approve` and `deny`, under a real Docker and before the small internet.
//!
//! Each test has the rig alone: what arrives at the witness is its own.

mod ask;
mod live;

use crate::command::{Finished, run};
use crate::docker::{Container, Docker, runtime};

const INTERNET: &str = "/srv/internet";

/// Lines of the witness that contain all of these words.
fn arrived(words: &[&str]) -> usize {
    let text = std::fs::read_to_string(format!("{INTERNET}/witness.jsonl")).unwrap();
    text.lines()
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

fn agentbox(arguments: &[&str]) -> Finished {
    run("agentbox", arguments)
}

struct Agent<'a> {
    container: Container<'a>,
}

impl<'a> Agent<'a> {
    #[track_caller]
    fn start(docker: &'a Docker, options: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/internet/up.sh");
        run("bash", &[script, INTERNET]).ok();
        let ca = format!("{INTERNET}/authority.crt:/authority.crt:ro");
        let all = [
            &["-v", &ca, "-e", "CURL_CA_BUNDLE=/authority.crt"],
            options,
            &["test-workloads"],
        ]
        .concat();
        Self {
            container: docker.start(&all, &["sleep", "600"]),
        }
    }

    /// Behind an allowlist of these rules.
    #[track_caller]
    fn allowing(docker: &'a Docker, rules: &str) -> Self {
        let allow = format!("dev.agentbox.network.allow={rules}");
        Self::start(docker, &[runtime(), "--annotation", &allow])
    }

    fn id(&self) -> String {
        self.container.inspect("{{.Id}}")
    }

    /// curl with these arguments; `direct` takes no notice of the proxy variables.
    fn curl(&self, direct: bool, arguments: &[&str]) -> Finished {
        let mut all = vec!["curl", "-sS", "--max-time", "20"];
        if direct {
            all.extend(["--noproxy", "*"]);
        }
        all.extend(arguments);
        self.container.exec(&[], &all)
    }

    fn python(&self, program: &str) -> Finished {
        self.container.exec(&[], &["python3", "-c", program])
    }

    /// What `agentbox network` says.
    #[track_caller]
    fn network(&self) -> serde_json::Value {
        let text = agentbox(&["network", "--format", "json", &self.id()]).ok();
        serde_json::from_str(&text).unwrap()
    }

    /// A file of the container's directory.
    #[track_caller]
    fn kept(&self, file: &str) -> String {
        let id = self.id();
        let found = std::fs::read_dir("/run/agentbox/index").unwrap();
        let dir = found
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().ends_with(&id))
            .unwrap();
        std::fs::read_to_string(dir.join(file)).unwrap()
    }

    fn violations(&self) -> String {
        self.kept("violations.jsonl")
    }

    #[track_caller]
    fn record(&self) -> serde_json::Value {
        serde_json::from_str(&self.kept("record.json")).unwrap()
    }

    /// Waits until a file is there, at most ten seconds.
    #[track_caller]
    fn await_file(&self, path: &str) {
        let wait =
            format!("for i in $(seq 100); do test -e {path} && exit 0; sleep 0.1; done; exit 1");
        let waited = self.container.exec(&[], &["sh", "-c", &wait]);
        assert_eq!(waited.code, 0, "{path}: {waited}");
    }
}
