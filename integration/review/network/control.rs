//! The sidecar's control socket answers only the node (N18 of the threat list).

use super::{agentbox, under};
use crate::docker::Docker;
use crate::docker::allowlist::{Agent, INTERNET, witness};

/// Root in a container with the sockets' directory requests other rules.
const ATTACK: &str = r#"
import glob, json, os, socket, sys
for path in glob.glob("/ab/index/*%s/control" % sys.argv[1]):
    os.chdir(os.path.dirname(path))
    for request in ("status", {"rules": {"rules": {"allow": ["other.example.test:80"], "deny": []}, "ports": []}}):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(10)
        s.connect("control")
        try:
            s.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            pass
        print(s.recv(65536).decode())
# It may also say very much, on very many connections, and never end.
callers = []
for _ in range(60):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(0.2)
    try:
        s.connect("control")
        s.sendall(b"1" * 1900000)
    except OSError:
        pass
    callers.append(s)
"#;

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_container_asks_a_sidecar() {
    let docker = Docker::alone();
    let _turn = witness();
    let agent = under(&docker, &["network.allow=api.example.test:80"]);
    let id = agent.container.inspect("{{.Id}}");
    let before = agentbox(&["network", &id]).ok();
    assert!(
        before.contains("api.example.test:80"),
        "the control: {before}"
    );
    // Root without any wall except a network namespace, with the directory under another name.
    let ca = format!("{INTERNET}/authority.crt");
    assert!(std::path::Path::new(&ca).exists());
    // Also with the node's network.
    for network in ["bridge", "host"] {
        let network = format!("--network={network}");
        let options = [
            "--runtime=runc",
            "--privileged",
            &network,
            "-v",
            "/run/agentbox:/ab",
        ];
        let other = Agent::start(&docker, &options);
        let got = other.container.exec(&[], &["python3", "-c", ATTACK, &id]);
        assert_eq!(
            got.stdout.matches("answers only the node").count(),
            2,
            "{network}: {got}"
        );
    }
    let after = agentbox(&["network", &id]).ok();
    assert!(!after.contains("other.example.test"), "{after}");
    assert!(agent.violations().contains("\"via\":\"control\""));
}
