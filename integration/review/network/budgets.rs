//! Budgets: one for each run of a container (N-M6).

use super::under;
use crate::command::run;
use crate::docker::Docker;
use crate::docker::allowlist::Agent;

/// Sends 700,000 bytes. Returns whether they were accepted.
#[track_caller]
fn uploads(agent: &Agent<'_>) -> bool {
    let said = agent.python(
        "import http.client, sys\n\
         c = http.client.HTTPConnection('api.example.test', 80, timeout=10)\n\
         try:\n\
         \x20   c.request('POST', '/upload', b'x' * 700_000); print('status', c.getresponse().status)\n\
         except OSError as e: print('cut', e)\n",
    );
    let text = said.ok();
    assert!(text.contains("status") || text.contains("cut"), "{text}");
    text.contains("status 200")
}

const ALLOW: &str = "network.allow=api.example.test:80, files.example.test:80";

#[test]
#[ignore = "needs the rig of hack/test"]
fn each_run_has_one_budget_of_bytes() {
    let docker = Docker::alone();
    let agent = under(&docker, &[ALLOW, "network.upload=1MiB"]);
    assert!(uploads(&agent), "the first");
    assert!(!uploads(&agent), "one run has one budget");
    agent.container.call("restart", &["--time=0"]).ok();
    assert!(uploads(&agent), "the next run");
    assert!(!uploads(&agent), "it has one budget too");
    let log = agent.violations();
    assert!(log.contains("network.upload allows 1048576"), "{log}");
}

/// N14: the order of name lookups carries data to the domain's name server, so names count even if nothing else is
/// sent.
#[test]
#[ignore = "needs the rig of hack/test"]
fn names_that_connections_lead_to_count_as_sent_bytes() {
    const TIMES: usize = 10;
    let docker = Docker::alone();
    let agent = under(&docker, &[ALLOW, "network.upload=1MiB"]);
    let id = agent.container.inspect("{{.Id}}");
    let used = || {
        let said = run("agentbox", &["network", "--format", "json", &id]).ok();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        said["used"]["uploadBytes"].as_u64().unwrap()
    };
    assert_eq!(used(), 0);
    let said = agent.python(&format!(
        "import socket\n\
         for _ in range({TIMES}):\n\
         \x20   s = socket.create_connection(('127.0.0.1', 3128), 20)\n\
         \x20   s.settimeout(20)\n\
         \x20   s.sendall(b'CONNECT api.example.test:80 HTTP/1.1\\r\\n\\r\\n')\n\
         \x20   assert b' 200 ' in s.recv(1000)\n\
         \x20   s.close()\n"
    ));
    assert_eq!(said.code, 0, "{said}");
    let expected = TIMES * "api.example.test".len();
    assert_eq!(used(), u64::try_from(expected).unwrap());
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn each_run_has_one_budget_of_names() {
    let docker = Docker::alone();
    let agent = under(&docker, &[ALLOW, "network.hosts=1"]);
    let reached = |host: &str| {
        let url = format!("http://{host}.example.test/x");
        agent.curl(true, &["-f", "--max-time", "8", &url]).code == 0
    };
    assert!(reached("api") && !reached("files"), "one name");
    agent.container.call("restart", &["--time=0"]).ok();
    assert!(reached("files") && !reached("api"), "another name");
}
