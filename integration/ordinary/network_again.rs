//! The network wall as a hostile reviewer met it on the day on which services, spellings and kept budgets came (H1 to L3).

use crate::docker::allowlist::{Agent, internet, witness};
use crate::docker::node::NodeFiles;
use crate::docker::{Docker, Network, runtime};

const NOWHERE: &str = "in no network that Docker or podman made for this container";

#[track_caller]
fn is_not_beside(agent: &Agent<'_>, name: &str) {
    for direct in [true, false] {
        let got = agent.curl(direct, &["-f", &format!("http://{name}/")]);
        assert_ne!(got.code, 0, "{got}");
    }
    let log = agent.violations();
    let of_name = |line: &&str| line.contains(name) && line.contains(NOWHERE);
    assert!(log.lines().any(|line| of_name(&line)), "{name}: {log}");
}

/// H1: the rig's uplink is a veth, as a node's is in kind, LXC and DinD. What is behind it is beside the node, and with the host's
/// network no container is beside it for that.
#[test]
#[ignore = "needs the rig of hack/test"]
fn h1_the_hosts_own_network_has_no_services() {
    let docker = Docker::alone();
    let _turn = witness();
    let options = [
        "--network=host",
        "--add-host=lan.example.test:203.0.113.3",
        "--annotation",
        "dev.agentbox.network.allow=service:lan.example.test:80",
    ];
    let control = Agent::start(&docker, &[&["--runtime=runc"], &options[..]].concat());
    let got = control.curl(true, &["-f", "http://lan.example.test/"]);
    assert_eq!(got.code, 0, "the control: {got}");
    let options = [&[runtime()], &options[..]].concat();
    is_not_beside(&Agent::start(&docker, &options), "lan.example.test");
    // The node's file can still say so.
    let mut node = NodeFiles::default();
    let file = "[network]\nservices = [\"203.0.113.0/24\"]\n";
    node.write("config.toml", 0o644, file);
    let agent = Agent::start(&docker, &options);
    let got = agent.curl(true, &["-f", "http://lan.example.test/"]);
    assert_eq!(got.code, 0, "{got}");
}

/// H2: the network of a pod that Docker runs for Kubernetes (cri-dockerd) is a CNI plugin's, whatever it looks like.
#[test]
#[ignore = "needs the rig of hack/test"]
fn h2_a_pods_network_is_not_made_by_docker() {
    let docker = Docker::connect();
    let _turn = witness();
    internet();
    let network = Network::create(&docker, &[]);
    let net = format!("--network={}", network.name);
    let db = docker.start(
        &[
            "--runtime=runc",
            &net,
            "--network-alias=db.example.test",
            "test-workloads",
        ],
        &[
            "python3",
            "-m",
            "http.server",
            "80",
            "--directory",
            "/etc/ssl",
        ],
    );
    let pod = format!("--name=k8s_POD_web_{}_0", std::process::id());
    let allow = "dev.agentbox.network.allow=service:db.example.test:80";
    let start = |further: &[&str]| {
        let options = [&[runtime(), &net, "--annotation", allow], further].concat();
        Agent::start(&docker, &options)
    };
    let beside = start(&[]);
    let got = beside.curl(
        true,
        &[
            "-f",
            "--retry",
            "10",
            "--retry-connrefused",
            "http://db.example.test/",
        ],
    );
    assert_eq!(got.code, 0, "the control: {got}");
    is_not_beside(&start(&[&pod]), "db.example.test");
    drop((beside, db));
}

/// L1: of two interfaces of a container, what the one of another kind reaches is no service, also where the pair's network is wider.
#[test]
#[ignore = "needs the rig of hack/test"]
fn l1_a_wide_network_does_not_take_in_what_another_interface_reaches() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let wide = Network::create(
        &docker,
        &["--subnet=203.0.112.0/22", "--ip-range=203.0.112.0/26"],
    );
    let net = format!("--network={}", wide.name);
    let lan = Network::create(
        &docker,
        &[
            "-d",
            "macvlan",
            "--subnet=203.0.113.0/24",
            "--ip-range=203.0.113.128/25",
            "-o",
            "parent=uplink",
        ],
    );
    let lan = format!("--network={}", lan.name);
    let allow = "dev.agentbox.network.allow=service:lan.example.test:80";
    let agent = Agent::start(
        &docker,
        &[
            runtime(),
            &net,
            &lan,
            "--add-host=lan.example.test:203.0.113.3",
            "--annotation",
            allow,
        ],
    );
    is_not_beside(&agent, "lan.example.test");
}

/// M1: a search list makes no name of a rule's that a denial does not see.
#[test]
#[ignore = "needs the rig of hack/test"]
fn m1_no_domain_of_a_search_list_leads_around_a_denial() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, "ceiling = \"pods\"\n");
    let policy = |deny: &str| {
        format!(
            "base = \"permissive\"\n[network]\nlimit = [\"*\", \"internal:*\"]\ndeny = [{deny}]\n"
        )
    };
    for (search, deny, opens) in [
        (&["prod.svc.cluster.test"][..], "", true),
        (
            &["prod.svc.cluster.test"],
            "\"*.prod.svc.cluster.test\"",
            false,
        ),
        (
            &["first.test", "prod.svc.cluster.test"],
            "\"*.prod.svc.cluster.test\"",
            false,
        ),
        // Nor does the node's own rule reach another host than what it says.
        (&["first.test", "prod.svc.cluster.test"], "", false),
    ] {
        node.write("policies/pods.toml", 0o644, &policy(deny));
        let search: Vec<String> = search.iter().map(|d| format!("--dns-search={d}")).collect();
        let search: Vec<&str> = search.iter().map(String::as_str).collect();
        let allow = "dev.agentbox.network.allow=internal:web:80";
        let agent = Agent::start(
            &docker,
            &[&[runtime(), "--annotation", allow], &search[..]].concat(),
        );
        for direct in [true, false] {
            let got = agent.curl(direct, &["-f", "http://web/"]);
            assert_eq!(got.code == 0, opens, "{search:?} {deny}: {got}");
        }
        let id = agent.container.inspect("{{.Id}}");
        let agentbox = std::env::var("AGENTBOX_BIN").unwrap();
        let explained = crate::command::run(&agentbox, &["explain", &id]).ok();
        let shown = explained.contains("web.prod.svc.cluster.test");
        assert_eq!(shown, search.len() == 1, "{explained}");
    }
}

/// M2: who is called what engines show of another's id takes nothing over that is meant for that one.
#[test]
#[ignore = "needs the rig of hack/test"]
fn m2_a_container_named_like_another_ones_id_takes_nothing_over() {
    let docker = Docker::connect();
    let allow = "dev.agentbox.network.allow=api.example.test";
    let victim = Agent::start(&docker, &[runtime(), "--annotation", allow]);
    let id = victim.container.inspect("{{.Id}}");
    let agentbox = |arguments: &[&str]| {
        let agentbox = std::env::var("AGENTBOX_BIN").unwrap();
        crate::command::run(&agentbox, arguments)
    };
    let change = |what: &str| agentbox(&["update", what, "--network-add", "more.example.test"]);
    let said = change(&id[..12]).ok();
    assert!(
        said.starts_with("changed: container ") && said.contains(&id),
        "{said}"
    );

    let name = format!("--name={}", &id[..12]);
    let thief = Agent::start(&docker, &[runtime(), &name, "--annotation", allow]);
    let other = thief.container.inspect("{{.Id}}");
    for arguments in [
        &["network", &id[..12]][..],
        &["explain", &id[..12]],
        &["approve", &id[..12], "a.example.test:443"],
        &["deny", &id[..12], "a.example.test:443"],
        &["kill", &id[..12], "TERM"],
        &["delete", "--force", &id[..12]],
    ] {
        let said = agentbox(arguments).failed();
        assert!(
            said.contains(&id) && said.contains(&other),
            "{arguments:?}: {said}"
        );
    }
    let said = change(&id[..12]).failed();
    assert!(said.contains(&id) && said.contains(&other), "{said}");
    change(&id).ok();
    let shown = agentbox(&["network", &other]).ok();
    assert!(!shown.contains("more.example.test"), "{shown}");
}
