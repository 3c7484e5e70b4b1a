//! Showing a running container's network and changing it: `network`, `update --network-allow` (N11, N24 of the threat
//! list). The control of each denial is the same request before the change.

use super::{Agent, agentbox, arrived, witness_of_own_requests};
use crate::command::kill_and_wait;
use crate::docker::node::NodeFiles;
use crate::docker::{Docker, runtime};

/// Holds a connection to a port where the server speaks first, and notes when it ends.
const HOLD: &str = "import socket, time\n\
    s = socket.create_connection(('api.example.test', 22), 10)\n\
    s.recv(64); s.sendall(b'hello'); s.recv(64)\n\
    open('/tmp/open', 'w').close()\n\
    try:\n    s.settimeout(60); s.recv(1)\n\
    except OSError: pass\n\
    open('/tmp/closed', 'w').close()\n";

impl Agent<'_> {
    #[track_caller]
    fn hold(&self) {
        self.container.exec(&["-d"], &["python3", "-c", HOLD]).ok();
        self.await_file("/tmp/open");
    }
}

const RULES: &str =
    "api.example.test, api.example.test:80, api.example.test:22, other.example.test:80";

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_running_containers_network_is_shown() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = Agent::allowing(&docker, RULES);
    agent.hold();
    assert_eq!(agent.curl(true, &["http://api.example.test/"]).code, 0);
    assert_ne!(agent.curl(true, &["http://files.example.test/"]).code, 0);
    let said = agent.curl(false, &["http://files.example.test/"]);
    assert!(said.stdout.contains("agentbox update"), "{said}");
    let json = agent.network();
    assert_eq!(json["mode"], "allowlist");
    assert_eq!(json["connections"][0]["host"], "api.example.test");
    assert_eq!(json["connections"][0]["port"], 22);
    assert_eq!(json["connections"][0]["sent"], 5);
    assert!(
        json["connections"][0]["received"].as_u64() > Some(5),
        "{json}"
    );
    assert!(json["allowed"].as_u64() >= Some(2), "{json}");
    assert!(json["denied"]["not-listed"].as_u64() >= Some(2), "{json}");
    assert_eq!(json["used"]["connections"], 1);
    let text = agentbox(&["network", &agent.id()[..12]]).ok();
    for word in [
        "network.mode is allowlist",
        "  other.example.test:80",
        "api.example.test:22  since",
        "not-listed: ",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Without a sidecar there is nothing to show, which is an error.
    for who in [
        &agent.record()["sidecar"]["warden"],
        &agent.record()["sidecar"],
    ] {
        kill_and_wait(&who["pid"].to_string());
    }
    let gone = agentbox(&["network", &agent.id()]).failed();
    let words = "its sidecar is gone, so it reaches nothing";
    assert!(gone.contains(words), "{gone}");
    let local = Agent::start(&docker, &[runtime()]);
    let text = agentbox(&["network", &local.id()]).ok();
    assert!(text.contains("network.mode is local"), "{text}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn the_rules_of_a_running_container_are_changed_within_the_ceiling() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = Agent::allowing(&docker, RULES);
    agent.hold();
    let url = "http://other.example.test/changed";
    assert_eq!(agent.curl(true, &[url]).code, 0, "the control");
    assert_ne!(
        agent
            .curl(true, &["http://files.example.test/changed"])
            .code,
        0
    );
    let address = agent.python(
        "import socket\nprint(socket.getaddrinfo('other.example.test', 80, socket.AF_INET)[0][4][0])",
    );
    let address = address.stdout.trim().to_owned();
    assert!(address.starts_with("198.18."), "{address}");

    let rules = "api.example.test, files.example.test:80";
    agentbox(&["update", &agent.id(), "--network-allow", rules]).ok();
    // The removed host's connection is closed, and it stays denied, by its name and by its former address.
    agent.await_file("/tmp/closed");
    let before = arrived(&["/changed", "other.example.test"]);
    for direct in [true, false] {
        assert_ne!(agent.curl(direct, &["-f", url]).code, 0);
    }
    let known = format!("other.example.test:80:{address}");
    let by_address = agent.curl(true, &["-f", "--resolve", &known, url]);
    assert_ne!(by_address.code, 0, "{by_address}");
    assert_eq!(arrived(&["/changed", "other.example.test"]), before);
    // The new host is allowed, with another address.
    let new = agent.curl(
        true,
        &["-w", "%{remote_ip}", "http://files.example.test/changed"],
    );
    assert!(new.code == 0 && !new.stdout.contains(&address), "{new}");
    assert!(
        agent.network()["connections"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    // All reports about the container agree.
    let id = agent.id();
    let explained = agentbox(&["explain", &id]).ok();
    assert!(explained.contains("files.example.test:80"), "{explained}");
    assert!(!explained.contains("other.example.test"), "{explained}");
    assert!(
        explained.contains("network.allow: agentbox update"),
        "{explained}"
    );
    let check = |host: &str| {
        agentbox(&[
            "policy",
            "check",
            "--container",
            &id,
            "--host",
            host,
            "--port",
            "80",
        ])
        .code
    };
    assert_eq!(
        (check("files.example.test"), check("other.example.test")),
        (0, 1)
    );

    // An added deny rule keeps the other rules.
    agentbox(&["update", &id, "--network-deny", "files.example.test"]).ok();
    let denied = agent.curl(false, &["http://files.example.test/changed"]);
    assert!(
        denied
            .stdout
            .contains("network.deny lists files.example.test"),
        "{denied}"
    );
    assert_eq!(agent.curl(true, &["https://api.example.test/"]).code, 0);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_change_goes_beyond_the_ceiling() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = Agent::allowing(&docker, RULES);
    let id = agent.id();
    let before = agent.network()["rules"].clone();
    for (rules, why) in [
        ("198.51.100.12:80", "exceeds the ceiling permissive"),
        ("internal:postgres:80", "exceeds the ceiling permissive"),
        ("*", "it names every host"),
        ("*.com", "public suffix list"),
        ("api.example.test:53", "port 53 is the wall's own"),
        ("@nonsense", "@nonsense"),
        ("http://api.example.test", "is not a rule"),
    ] {
        let refused = agentbox(&["update", &id, "--network-allow", rules]).failed();
        assert!(refused.contains(why), "{rules}: {refused}");
    }
    assert_eq!(agent.network()["rules"], before);
    let plan = &agent.record()["decided"]["plan"]["network"]["rules"];
    assert_eq!(*plan, before);
    // Plain HTTP, although the rule means TLS.
    let plain = agent.curl(false, &["http://api.example.test:443/plain-on-443"]);
    assert!(plain.stdout.contains("plain HTTP on port 443"), "{plain}");
    assert_eq!(arrived(&["/plain-on-443"]), 0);

    let local = Agent::start(&docker, &[runtime()]);
    let free = Agent::start(&docker, &["--runtime=agentbox-unconfined"]);
    for (agent, why) in [
        (&local, "network.mode is local: begin it with a first host"),
        (&free, "it is unconfined"),
    ] {
        let refused = agentbox(&["update", &agent.id(), "--network-allow", "api.example.test"]);
        let refused = refused.failed();
        assert!(refused.contains(why), "{refused}");
    }
}

/// The first bytes of a server that speaks first on this port.
fn banner(agent: &Agent<'_>, port: u16) -> String {
    let program = format!(
        "import socket\ntry: print(socket.create_connection(('api.example.test', {port}), 10).recv(64))\n\
         except OSError as e: print('refused', e.errno)\n"
    );
    agent.python(&program).stdout
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn new_rules_may_name_ports_without_a_listener() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let options = [
        runtime(),
        "--annotation",
        "dev.agentbox.network.allow=api.example.test",
        "--annotation",
        "dev.agentbox.network.inbound=8443",
    ];
    let agent = Agent::start(&docker, &options);
    let id = agent.id();
    assert!(banner(&agent, 25).contains("refused 111"), "the control");
    assert_eq!(agent.network()["ports"], serde_json::json!([22, 443]));
    let update = |rules: &str| agentbox(&["update", &id, "--network-allow", rules]);

    update("api.example.test, api.example.test:25").ok();
    assert!(banner(&agent, 25).contains("SSH-2.0-example"));
    assert_eq!(agent.network()["ports"], serde_json::json!([22, 25, 443]));
    assert_eq!(
        agent.record()["decided"]["plan"]["network"]["ports"],
        serde_json::json!([22, 25, 443])
    );
    // Another name or an address leads nowhere on that port.
    let raw = agent.python(
        "import socket\ntry: print(socket.create_connection(('198.51.100.12', 25), 5).recv(64))\n\
         except OSError as e: print('refused', e.errno)\n",
    );
    assert!(raw.stdout.contains("refused"), "{raw}");

    // Without its rule the listener stays, and another rule uses it again.
    update("api.example.test").ok();
    assert!(!banner(&agent, 25).contains("SSH"));
    update("api.example.test, api.example.test:25, api.example.test:80").ok();
    assert!(banner(&agent, 25).contains("SSH-2.0-example"));
    assert_eq!(agent.curl(true, &["http://api.example.test/later"]).code, 0);

    // If a program or an inbound port uses the port already, nothing changes.
    let before = agent.network()["rules"].clone();
    let take = "import socket, time\ns = socket.socket(); s.bind(('0.0.0.0', 5432)); s.listen()\n\
                open('/tmp/open', 'w').close(); time.sleep(60)\n";
    agent.container.exec(&["-d"], &["python3", "-c", take]).ok();
    agent.await_file("/tmp/open");
    for (rules, why) in [
        (
            "api.example.test:5432",
            "a program inside has taken the port 5432",
        ),
        (
            "api.example.test:8443",
            "leads into this container (network.inbound)",
        ),
        (
            "api.example.test:3128",
            "on which the proxy of this container listens",
        ),
    ] {
        let refused = update(rules).failed();
        assert!(refused.contains(why), "{rules}: {refused}");
    }
    assert_eq!(agent.network()["rules"], before);
    assert_eq!(
        agent.record()["decided"]["plan"]["network"]["rules"],
        before
    );
    assert!(banner(&agent, 25).contains("SSH-2.0-example"));
}

/// A policy's file may have a rule with a comma in its path. What `update` keeps of the rules is the same rule, and not another
/// host.
#[test]
#[ignore = "needs the rig of hack/test"]
fn n24_an_update_makes_no_other_rule_of_a_comma_in_a_path() {
    let docker = Docker::alone();
    let mut node = NodeFiles::default();
    let comma = "GET http://api.example.test/x,other.example.test:80";
    let policy =
        format!("base = \"standard\"\nnetwork.mode = \"allowlist\"\nnetwork.allow = [{comma:?}]\n");
    node.write("policies/comma.toml", 0o644, &policy);
    let agent = Agent::start(
        &docker,
        &[runtime(), "--annotation=dev.agentbox.policy=comma"],
    );
    let rules = |agent: &Agent| agent.network()["rules"]["allow"].clone();
    assert_eq!(rules(&agent), serde_json::json!([comma]));
    let added = "files.example.test:80";
    agentbox(&["update", &agent.id(), "--network-add", added]).ok();
    agentbox(&[
        "update",
        &agent.id(),
        "--network-add",
        "ssh.example.test:22",
    ])
    .ok();
    agentbox(&[
        "update",
        &agent.id(),
        "--network-remove",
        "ssh.example.test:22",
    ])
    .ok();
    assert_eq!(rules(&agent), serde_json::json!([added, comma]));
    // The control: what was added is reached. The other half of the comma is not.
    let url = "http://files.example.test/comma";
    assert_eq!(agent.curl(true, &["-f", url]).code, 0);
    let before = arrived(&["/comma", "other.example.test"]);
    let url = "http://other.example.test/comma";
    assert_ne!(agent.curl(true, &["-f", url]).code, 0);
    assert_eq!(arrived(&["/comma", "other.example.test"]), before);
}
