//! Addresses that a name must not lead to: denied ones, clouds' own, and the node's current ones (N-H2, N-H4, N-M1,
//! N-M2, N-L2, N-L4; N30 to N32 of the threat list).

use super::{agentbox, assert_reached, assert_refused, under};
use crate::command::run;
use crate::docker::allowlist::{Agent, arrived, internet, witness};
use crate::docker::node::NodeFiles;
use crate::docker::{Docker, runtime};

const OTHER: &str = "\"to\": \"198.51.100.12\"";
const OTHER_V6: &str = "\"to\": \"2001:db8::12\"";

fn at_other() -> usize {
    arrived(&[OTHER]) + arrived(&[OTHER_V6])
}

/// Holds a tunnel to a server that speaks first, until it is closed.
const HOLD: &str = "import socket\n\
    s = socket.create_connection(('api.example.test', 22), 10)\n\
    s.recv(64); open('/tmp/open', 'w').close()\n\
    try:\n    s.settimeout(60); s.recv(1)\n\
    except OSError: pass\n\
    open('/tmp/closed', 'w').close()\n";

#[track_caller]
fn await_file(agent: &Agent<'_>, path: &str) {
    let wait = format!("for i in $(seq 200); do test -e {path} && exit 0; sleep 0.1; done; exit 1");
    let waited = agent.container.exec(&[], &["sh", "-c", &wait]);
    assert_eq!(waited.code, 0, "{path}: {waited}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_denied_address_is_reached_by_no_name() {
    let docker = Docker::alone();
    let _turn = witness();
    let allow = "network.allow=other.example.test, other.example.test:80, *.example.test:80";
    let control = under(&docker, &[allow]);
    assert_reached(&control, "http://other.example.test/");
    let before = at_other();
    for deny in [
        "network.deny=198.51.100.12, 2001:db8::12",
        "network.deny=198.51.100.0/24, 2001:db8::/32",
        "network.deny=0.0.0.0/0:80, [::/0]:80, 0.0.0.0/0:443, [::/0]:443",
    ] {
        let agent = under(&docker, &[allow, deny]);
        for url in ["http://other.example.test/", "https://other.example.test/"] {
            assert_refused(&agent, url);
        }
        let log = agent.violations();
        assert!(
            log.contains("the name leads to 198.51.100.12, and network.deny lists"),
            "{log}"
        );
        if deny.ends_with("12") {
            assert_reached(&agent, "http://api.example.test/");
        }
    }
    assert_eq!(at_other(), before, "not a connection");
    // Denying one port leaves the others open.
    let agent = under(
        &docker,
        &[allow, "network.deny=198.51.100.0/24:80, [2001:db8::/32]:80"],
    );
    assert_refused(&agent, "http://other.example.test/");
    assert_reached(&agent, "https://other.example.test/");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_denial_closes_what_leads_to_its_address_and_what_is_below_its_name() {
    let docker = Docker::alone();
    let _turn = witness();
    let rules = "network.allow=api.example.test:22, api.example.test:80, deep.a.example.test:80, other.example.test:80";
    let agent = under(&docker, &[rules]);
    let id = agent.container.inspect("{{.Id}}");
    agent.container.exec(&["-d"], &["python3", "-c", HOLD]).ok();
    await_file(&agent, "/tmp/open");
    assert_reached(&agent, "http://deep.a.example.test/");
    let deny = "198.51.100.10, 2001:db8::10, *.a.example.test";
    let said = agentbox(&["update", &id, "--network-deny", deny]);
    assert_eq!(said.code, 0, "{said}");
    await_file(&agent, "/tmp/closed");
    for url in ["http://api.example.test/", "http://deep.a.example.test/"] {
        assert_refused(&agent, url);
    }
    assert_reached(&agent, "http://other.example.test/");
    // The name itself and all names below it, also through a parent's name.
    agentbox(&["update", &id, "--network-deny", "example.test"]).ok();
    for url in ["http://other.example.test/", "http://deep.a.example.test/"] {
        assert_refused(&agent, url);
    }
    let question = [
        "policy",
        "check",
        "--container",
        &id,
        "--host",
        "deep.a.example.test",
    ];
    let checked = agentbox(&[&question[..], &["--port", "80"]].concat());
    assert!(
        checked.code == 1 && checked.stdout.contains("network.deny lists example.test"),
        "{checked}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn an_approved_name_does_not_lead_to_a_denied_address() {
    let docker = Docker::alone();
    let _turn = witness();
    let agent = under(
        &docker,
        &[
            "network.allow=api.example.test:80",
            "network.deny=198.51.100.12, 2001:db8::12",
            "network.on-unknown=ask",
        ],
    );
    let id = agent.container.inspect("{{.Id}}");
    let before = at_other();
    agentbox(&["approve", &id, "other.example.test:80"]).ok();
    agentbox(&["approve", &id, "files.example.test:80"]).ok();
    assert_refused(&agent, "http://other.example.test/");
    assert_reached(&agent, "http://files.example.test/");
    assert_eq!(at_other(), before);
}

/// A deny rule of the ceiling applies to `internal:` names too.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_ceilings_denial_covers_internal_names() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let mut node = NodeFiles::default();
    let policy = |deny: &str| {
        format!(
            "base = \"permissive\"\n[network]\nlimit = [\"*\", \"internal:*\"]\ndeny = [{deny}]\n"
        )
    };
    node.write(
        "config.toml",
        0o644,
        "ceiling = \"lab\"\ndefault = \"lab\"\n",
    );
    node.write("policies/lab.toml", 0o644, &policy(""));
    let allow = "network.allow=internal:private.example.test:80";
    let control = under(&docker, &[allow]);
    assert_reached(&control, "http://private.example.test/");
    let before = arrived(&["\"to\": \"10.9.9.9\""]);
    node.write("policies/lab.toml", 0o644, &policy("\"10.9.9.0/24\""));
    let agent = under(&docker, &[allow, "network.deny=10.9.9.0/24"]);
    assert_refused(&agent, "http://private.example.test/");
    assert_eq!(arrived(&["\"to\": \"10.9.9.9\""]), before);
}

/// If the company's proxy resolves names, the node cannot see their addresses: the combination is an error.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_denied_address_behind_a_proxy_that_resolves_is_refused() {
    let docker = Docker::alone();
    internet();
    let mut node = NodeFiles::default();
    let config = |names: &str| {
        format!(
            "[network]\nupstream-proxy = \"http://203.0.113.1:3128\"\nupstream-names = \"{names}\"\n"
        )
    };
    let allow = "dev.agentbox.network.allow=api.example.test";
    let run = |deny: &str| {
        let deny = format!("dev.agentbox.network.deny={deny}");
        let options = [runtime(), "--annotation", allow, "--annotation", &deny];
        docker.run(&[&options[..], &["test-workloads"]].concat(), &["true"])
    };
    node.write("config.toml", 0o600, &config("vetted"));
    run("198.51.100.0/24").ok();
    node.write("config.toml", 0o600, &config("proxy"));
    run("other.example.test").ok();
    let said = run("198.51.100.0/24").failed();
    assert!(
        said.contains("198.51.100.0/24") && said.contains("upstream-names"),
        "{said}"
    );
    // It cannot be added later either.
    let agent = under(&docker, &["network.allow=api.example.test"]);
    let id = agent.container.inspect("{{.Id}}");
    let said = agentbox(&["update", &id, "--network-deny", "198.51.100.0/24"]).failed();
    assert!(said.contains("upstream-names"), "{said}");
}

/// N-H4, N-M1: public and private addresses where clouds serve credentials, under any name.
#[test]
#[ignore = "needs the rig of hack/test"]
fn no_name_leads_to_a_clouds_own_address() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let mut node = NodeFiles::default();
    node.write(
        "config.toml",
        0o644,
        "ceiling = \"open\"\ndefault = \"open\"\n[allow]\nopen-egress = true\n",
    );
    let policy = |limit: &str| {
        format!(
            "base = \"permissive\"\n[network]\nallow = [\"*:80\"]\nlimit = [\"*\", \"internal:*\", {limit}]\n"
        )
    };
    node.write(
        "policies/open.toml",
        0o644,
        &policy("\"0.0.0.0/0\", \"::/0\""),
    );
    let control = Agent::free(&docker);
    let clouds = [("wire", "168.63.129.16"), ("ali", "100.100.100.200")];
    for (name, _) in clouds {
        let got = control.curl(true, &["-f", &format!("http://{name}.example.test/")]);
        assert_eq!(got.code, 0, "the control: {got}");
    }
    let count = |address: &str| arrived(&[&format!("\"to\": \"{address}\"")]);
    let before = clouds.map(|(_, address)| count(address));
    for allow in [
        "network.allow=*:80",
        "network.allow=wire.example.test:80, ali.example.test:80",
        "network.allow=internal:wire.example.test:80, internal:ali.example.test:80",
        "network.allow=0.0.0.0/0:80",
    ] {
        let agent = under(&docker, &[allow]);
        for (name, address) in clouds {
            assert_refused(&agent, &format!("http://{name}.example.test/"));
            assert_refused(&agent, &format!("http://{address}/"));
        }
        // The node's log says where the name led; the container does not learn it.
        let said = agent.curl(false, &["http://wire.example.test/"]);
        assert!(!said.stdout.contains("168.63"), "{said}");
        if !allow.contains("0.0.0.0") {
            let log = agent.violations();
            assert!(
                log.contains("leads to 168.63.129.16, where a cloud"),
                "{log}"
            );
        }
    }
    assert_eq!(clouds.map(|(_, address)| count(address)), before);
    // A prefix in the ceiling does not allow the exact address. The address itself does.
    let exact = "dev.agentbox.network.allow=168.63.129.16:80";
    let refused = docker.run(
        &[runtime(), "--annotation", exact, "test-workloads"],
        &["true"],
    );
    assert!(refused.stderr.contains("168.63.129.16"), "{refused}");
    node.write("policies/open.toml", 0o644, &policy("\"168.63.129.16:80\""));
    let agent = under(&docker, &["network.allow=168.63.129.16:80"]);
    assert_reached(&agent, "http://168.63.129.16/");
    assert_refused(&agent, "http://wire.example.test/");
}

struct Floating;

impl Floating {
    #[track_caller]
    fn add() -> Self {
        run("ip", &["addr", "add", "203.0.113.77/32", "dev", "uplink"]).ok();
        Self
    }
}

impl Drop for Floating {
    fn drop(&mut self) {
        run("ip", &["addr", "del", "203.0.113.77/32", "dev", "uplink"]);
    }
}

/// An address that the node got after the container had started, and a neighbour in the node's public network.
#[test]
#[ignore = "needs the rig of hack/test"]
fn the_nodes_addresses_and_neighbours_are_those_of_the_moment() {
    let docker = Docker::alone();
    let _turn = witness();
    let (floating, lan) = ("http://floating.example.test/", "http://lan.example.test/");
    let allow = "network.allow=floating.example.test:80, lan.example.test:80, api.example.test:80";
    let agent = under(&docker, &[allow]);
    let control = Agent::free(&docker);
    assert_reached(&agent, "http://api.example.test/");
    // The neighbour answers a container without walls.
    let got = control.curl(true, &["-f", lan]);
    assert_eq!(got.code, 0, "the control: {got}");
    let before = arrived(&["\"to\": \"203.0.113.3\""]);
    assert_refused(&agent, lan);
    assert_eq!(arrived(&["\"to\": \"203.0.113.3\""]), before);
    // The address becomes the node's own, with a server on it.
    let _address = Floating::add();
    let server = std::net::TcpListener::bind(("203.0.113.77", 80)).unwrap();
    std::thread::spawn(move || {
        for mut client in server.incoming().flatten() {
            use std::io::{Read, Write};
            let _read = client.read(&mut [0; 4096]);
            let _sent = client.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nnode\n",
            );
        }
    });
    let got = control.curl(true, &["-f", floating]);
    assert_eq!(got.stdout, "node\n", "the control: {got}");
    assert_refused(&agent, floating);
    let log = agent.violations();
    assert!(
        log.contains("203.0.113.77, an address of the node"),
        "{log}"
    );
    assert!(
        log.contains("203.0.113.3, an address in a network of the node"),
        "{log}"
    );
    assert_reached(&agent, "http://api.example.test/");
}
