//! Showing a running container's network, changing it, and deciding on waiting connections: `network`, `update
//! --network-allow`, `approvals`, `approve` and `deny`, under a real Docker, with the small internet.
//!
//! Tests whose paths no other test requests share the rig and the witness: most of their time is waiting. The others have the rig
//! alone, so the witness sees only their traffic.

mod ask;
mod ends;
mod live;

use crate::command::{Finished, run};
use crate::docker::allowlist::{Agent, arrived, witness_of_own_requests};
use crate::docker::{Docker, runtime};

fn agentbox(arguments: &[&str]) -> Finished {
    run("agentbox", arguments)
}

impl<'a> Agent<'a> {
    /// Behind an allowlist of these rules.
    #[track_caller]
    fn allowing(docker: &'a Docker, rules: &str) -> Self {
        let allow = format!("dev.agentbox.network.allow={rules}");
        Self::start(docker, &[runtime(), "--annotation", &allow])
    }

    fn id(&self) -> String {
        self.container.inspect("{{.Id}}")
    }

    /// The output of `agentbox network`.
    #[track_caller]
    fn network(&self) -> serde_json::Value {
        let text = agentbox(&["network", "--format", "json", &self.id()]).ok();
        serde_json::from_str(&text).unwrap()
    }

    #[track_caller]
    fn record(&self) -> serde_json::Value {
        serde_json::from_str(&self.kept("record.json")).unwrap()
    }

    /// Waits at most ten seconds for a file.
    #[track_caller]
    fn await_file(&self, path: &str) {
        let wait =
            format!("for i in $(seq 300); do test -e {path} && exit 0; sleep 0.1; done; exit 1");
        let waited = self.container.exec(&[], &["sh", "-c", &wait]);
        assert_eq!(waited.code, 0, "{path}: {waited}");
    }
}
