//! The network wall under a hostile review on the day when services, spellings and saved budgets were added (H1 to L3).

use crate::alone::alone;
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

/// H1: the rig's uplink is a veth, like a node's in kind, LXC and DinD. The machines behind it are the node's
/// neighbours, but a container with the host's network has none of them as services.
#[test]
#[ignore = "needs the rig of hack/test"]
fn the_hosts_own_network_has_no_services() {
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
    // The node's file can still declare them.
    let mut node = NodeFiles::default();
    let file = "[network]\nservices = [\"203.0.113.0/24\"]\n";
    node.write("config.toml", 0o644, file);
    let agent = Agent::start(&docker, &options);
    let got = agent.curl(true, &["-f", "http://lan.example.test/"]);
    assert_eq!(got.code, 0, "{got}");
}

/// H2: the network of a pod that Docker runs for Kubernetes (cri-dockerd) is always a CNI plugin's.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_pods_network_is_not_made_by_docker() {
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
    let allow = "dev.agentbox.network.allow=service:db.example.test:80";
    let beside = Agent::start(&docker, &[runtime(), &net, "--annotation", allow]);
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
    let pod = format!("k8s_POD_web_{}_0", std::process::id());
    beside.container.call("stop", &["--time=0"]).ok();
    docker.call(&["rename", &beside.container.name, &pod]).ok();
    let started = docker.call(&["start", &pod]);
    docker.call(&["rename", &pod, &beside.container.name]).ok();
    started.ok();
    is_not_beside(&beside, "db.example.test");
    drop((beside, db));
}

/// L1: hosts behind another kind of interface of a container are no services, even if the pair's network is wider.
#[test]
fn a_wide_network_does_not_include_hosts_of_another_interface() {
    alone(|| {
        let ip = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            crate::command::run("ip", &words).ok();
        };
        let networks = || {
            let mut socket = agentbox::sys::netlink::RouteSocket::open().unwrap();
            let found = socket.pair_networks().unwrap();
            found.iter().filter(|(net, _)| net.is_ipv4()).count()
        };
        ip("link add v0 type veth peer name v1");
        ip("addr add 10.9.0.2/16 dev v0");
        ip("link set v0 up");
        ip("link set v1 up");
        let before = networks();
        assert_eq!(before, 1);
        ip("link add lan0 link v1 type macvlan");
        ip("link set lan0 up");
        ip("addr add 192.0.2.1/24 dev lan0");
        assert_eq!(networks(), before, "another network");
        ip("addr add 10.9.7.1/24 dev lan0");
        assert_eq!(networks(), before - 1, "an address");
        ip("addr del 10.9.7.1/24 dev lan0");
        assert_eq!(networks(), before);
        ip("route add 10.9.8.0/24 via 192.0.2.7");
        assert_eq!(networks(), before - 1, "a route");
    });
}

/// M1: a search list makes no name of a rule that a denial does not cover.
#[test]
#[ignore = "needs the rig of hack/test"]
fn no_domain_of_a_search_list_leads_around_a_denial() {
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
        // Nor does the node's own rule reach another host than it names.
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

/// Restores the name when dropped, so that the container can be removed.
struct Renamed<'a>(&'a Docker, &'a str, &'a str);

impl Drop for Renamed<'_> {
    fn drop(&mut self) {
        self.0.call(&["rename", self.1, self.2]);
    }
}

/// M2: a container whose name is the short id that engines show of another does not take over what is meant for that
/// one.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_container_named_like_another_containers_id_takes_nothing_over() {
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

    let thief = Agent::start(&docker, &[runtime(), "--annotation", allow]);
    let other = thief.container.inspect("{{.Id}}");
    docker.call(&["rename", &other, &id[..12]]).ok();
    let _named = Renamed(&docker, &other, &thief.container.name);
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
