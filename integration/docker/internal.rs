//! Names of other containers. The engine's own DNS resolves them in a user-defined network to private addresses. A name
//! leads there only if the policy marks it as internal.

use super::allowlist::{Agent, internet, witness};
use super::node::NodeFiles;
use super::{Docker, Network, runtime};

const SERVER: &[&str] = &[
    "python3",
    "-m",
    "http.server",
    "5432",
    "--directory",
    "/etc/ssl",
];

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_neighbour_of_the_engines_network_is_reached_by_its_internal_name_alone() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, "ceiling = \"build\"\n");
    node.write(
        "policies/build.toml",
        0o644,
        "base = \"permissive\"\n[network]\nlimit = [\"*\", \"internal:*\"]\n",
    );
    let network = Network::create(&docker, &[]);
    let net = format!("--network={}", network.name);
    let server = |name: &str| {
        let alias = format!("--network-alias={name}");
        docker.start(&["--runtime=runc", &net, &alias, "test-workloads"], SERVER)
    };
    let (_postgres, _redis) = (server("postgres"), server("redis"));
    let control = Agent::start(&docker, &["--runtime=runc", &net]);
    for name in ["postgres", "redis"] {
        let url = format!("http://{name}:5432/");
        let got = control.curl(true, &["--retry", "10", "--retry-connrefused", &url]);
        assert_eq!(got.code, 0, "the control: {got}");
    }
    let under = |allow: &str| {
        let allow = format!("dev.agentbox.network.allow={allow}");
        Agent::start(&docker, &[runtime(), &net, "--annotation", &allow])
    };

    let agent = under("internal:postgres:5432, api.example.test:80");
    for direct in [true, false] {
        let got = agent.curl(direct, &["-f", "http://postgres:5432/"]);
        assert_eq!(got.code, 0, "{got}");
        let got = agent.curl(direct, &["-f", "http://api.example.test/x"]);
        assert_eq!(got.code, 0, "the internet by the engine's resolver: {got}");
    }
    // A neighbour that is not named, its address, another port of the named one, and the engine's resolver itself.
    let format = format!(
        "{{{{(index .NetworkSettings.Networks \"{}\").IPAddress}}}}",
        network.name
    );
    let address = _redis.inspect(&format);
    for url in [
        "http://redis:5432/".to_owned(),
        format!("http://{address}:5432/"),
        "http://postgres:5433/".to_owned(),
    ] {
        for direct in [true, false] {
            let got = agent.curl(direct, &["-f", &url]);
            assert_ne!(got.code, 0, "{url}: {got}");
        }
    }
    let asked = agent.python(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(3)\n\
         s.sendto(bytes.fromhex('000101000001000000000000') + b'\\x05redis\\x00\\x00\\x01\\x00\\x01', ('127.0.0.11', 53))\n\
         print('rcode', s.recv(512)[3] & 15)\n",
    );
    assert!(asked.stdout.contains("rcode 3"), "{asked}");
    drop(agent);

    // A public name is resolved, but never to a private address.
    let private = "private.example.test:80";
    let agent = under(private);
    let url = format!("http://{private}/");
    assert_ne!(agent.curl(true, &["-f", &url]).code, 0);
    let got = agent.curl(false, &["-p", "-v", &url]);
    assert!(got.code != 0 && got.stderr.contains("403"), "{got}");
    assert!(
        agent
            .violations()
            .contains("a private address: allow it as internal:HOST:PORT")
    );
    drop(agent);

    // The neighbours' gateway is the node, which no rule can open.
    let host = format!("--add-host=postgres:{}", network.gateway());
    let allow = "dev.agentbox.network.allow=internal:postgres:5432";
    let agent = Agent::start(&docker, &[runtime(), &net, &host, "--annotation", allow]);
    assert_ne!(agent.curl(true, &["-f", "http://postgres:5432/"]).code, 0);
    assert!(
        agent
            .violations()
            .contains("an address of the node or of a gateway")
    );
}
