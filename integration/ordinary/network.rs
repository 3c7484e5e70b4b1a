//! The network wall in ordinary use: a container's own servers, and denials that say why.

use std::path::Path;

use crate::docker::allowlist::{Agent, internet, witness};
use crate::docker::node::NodeFiles;
use crate::docker::{Docker, Network, runtime};

const ALLOW: &str = "dev.agentbox.network.allow=api.example.test, api.example.test:80, private.example.test:80, \
                     nothing.example.test:80, nothing.example.test:8080, private.example.test:8080";

/// A server on every address of the container, port 8000.
const SERVER: &str = "\
import http.server, threading, os
os.chdir('/etc/ssl')
server = http.server.ThreadingHTTPServer(('0.0.0.0', 8000), http.server.SimpleHTTPRequestHandler)
print('listens', flush=True)
server.serve_forever()
";

/// A node whose ceiling allows annotations with private hosts.
fn private_names_by_annotation() -> NodeFiles {
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, "ceiling = \"pods\"\n");
    node.write(
        "policies/pods.toml",
        0o644,
        "base = \"permissive\"\n[network]\nlimit = [\"*\", \"internal:*\"]\n",
    );
    node
}

fn serving<'a>(docker: &'a Docker, options: &[&str]) -> crate::docker::Container<'a> {
    let options = [options, &["test-workloads"]].concat();
    let container = docker.start(&options, &["python3", "-c", SERVER]);
    container.await_log("listens");
    container
}

/// With the default proxy variables, a container's own servers are reachable by each of its addresses and names.
#[test]
#[ignore = "needs the rig of hack/test"]
fn the_containers_own_servers_are_reached_without_the_proxy() {
    let docker = Docker::connect();
    for options in [
        &[runtime(), "--annotation", ALLOW][..],
        &[
            runtime(),
            "--annotation",
            ALLOW,
            "--hostname=web-1.example.test",
        ],
        &[runtime()],
        &["--runtime=runc"],
    ] {
        let container = serving(&docker, options);
        let script = "for h in localhost 127.0.0.1 127.0.0.2 127.8.8.8 0.0.0.0 app.localhost $(hostname); do \
                      curl -sS -o /dev/null -w \"$h %{http_code}\\n\" --max-time 10 http://$h:8000/; done";
        let got = container.exec(&[], &["sh", "-c", script]);
        let answered = got.stdout.matches(" 200\n").count();
        assert_eq!(answered, 7, "{options:?}: {got}");
        let python = "\
import socket, urllib.request
for host in ('localhost', '127.0.0.1', '127.0.0.2', '0.0.0.0', socket.gethostname()):
    print(host, urllib.request.urlopen(f'http://{host}:8000/', timeout=10).status)
print('own', socket.gethostbyname(socket.gethostname()))
";
        let got = container.exec(&[], &["python3", "-c", python]);
        assert_eq!(
            got.stdout.matches(" 200\n").count(),
            5,
            "{options:?}: {got}"
        );
        assert!(got.stdout.contains("own "), "{got}");
    }
}

/// If such a request still reaches the proxy, the answer says where it belongs.
#[test]
#[ignore = "needs the rig of hack/test"]
fn the_proxy_says_that_no_rule_concerns_the_container_itself() {
    let docker = Docker::connect();
    let container = serving(&docker, &[runtime(), "--annotation", ALLOW]);
    let script = "for h in localhost 127.0.0.9 0.0.0.0 '[::1]' app.localhost $(hostname); do \
                  curl -sS -i --noproxy '' -x http://127.0.0.1:3128 --max-time 10 http://$h:8000/; done";
    let got = container.exec(&[], &["sh", "-c", script]);
    let lines = got.stdout.lines();
    let told = lines.filter(|line| {
        line.starts_with("HTTP/1.1 403 agentbox: ")
            && line.contains("this address is the container itself")
    });
    assert_eq!(told.count(), 6, "{got}");
    assert!(!got.stdout.contains("missing_rule"), "{got}");
}

/// The reason is in the status line, which clients show even if they do not read the body.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_denial_has_its_reason_in_the_status_line() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = agent.curl(false, &["-v", "https://other.example.test/"]);
    let line = "HTTP/1.1 403 agentbox: other.example.test:443: no rule in network.allow matches it";
    assert!(got.stderr.contains(line), "{got}");
    let got = agent.python(
        "import urllib.request\n\
         try: urllib.request.urlopen('https://other.example.test/', timeout=20)\n\
         except OSError as e: print(e)\n",
    );
    let line = "403 agentbox: other.example.test:443: no rule in network.allow matches it";
    assert!(got.stdout.contains(line), "{got}");

    // Without the variables, if HTTP is spoken; without a hint where a name leads.
    for (url, status) in [
        (
            "http://private.example.test/",
            "HTTP/1.1 403 agentbox: private.example.test:80: ",
        ),
        (
            "http://private.example.test:8080/",
            "HTTP/1.1 403 agentbox: private.example.test:8080: ",
        ),
        (
            "http://nothing.example.test/",
            "HTTP/1.1 502 agentbox: nothing.example.test:80: ",
        ),
        (
            "http://nothing.example.test:8080/",
            "HTTP/1.1 502 agentbox: nothing.example.test:8080: ",
        ),
    ] {
        let got = agent.curl(true, &["-i", url]);
        assert!(got.stdout.starts_with(status), "{url}: {got}");
        assert!(!got.stdout.contains("10.9.9.9"), "{url}: {got}");
        assert!(
            got.stdout
                .lines()
                .next()
                .is_some_and(|line| line.len() < 240),
            "{got}"
        );
    }
}

/// Every reset has a line in the log.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_reset_never_comes_without_a_line_in_the_log() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = agent.python(
        "import socket\n\
         def say(port, first, host='nothing.example.test'):\n\
         \x20   s = socket.create_connection((host, port), 20)\n\
         \x20   s.settimeout(20)\n\
         \x20   try:\n\
         \x20       s.sendall(first)\n\
         \x20       return s.recv(1)\n\
         \x20   except OSError as e: return type(e).__name__\n\
         print(say(8080, b'SSH-2.0-x'))\n\
         print(say(3128, b'\\x05\\x01\\x02', '127.0.0.1'))\n",
    );
    assert_eq!(
        got.stdout.matches("ConnectionResetError").count(),
        1,
        "{got}"
    );
    let log = agent.violations();
    let failed = log.lines().filter(|line| {
        line.contains("\"verdict\":\"failed\"") && line.contains("nothing.example.test")
    });
    assert_eq!(failed.count(), 1, "{log}");
    assert!(log.contains("offers no way without a login"), "{log}");
    // An allowed connection that failed is no denial.
    let denied = |line: &str| {
        line.contains("\"verdict\":\"denied\"") && line.contains("\"via\":\"transparent\"")
    };
    assert!(!log.lines().any(denied), "{log}");
}

/// Under `local`, programs get the reason at once. A name does not fail like a temporary error that is retried.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_local_network_says_that_it_is_local() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = Agent::start(&docker, &[runtime()]);
    let member = format!("--network=container:{}", agent.container.name);
    let member = Agent::start(&docker, &[runtime(), &member]);
    for agent in [&agent, &member] {
        let got = agent.python(
            "import socket, time\n\
             began = time.monotonic()\n\
             try: socket.getaddrinfo('api.example.test', 443)\n\
             except socket.gaierror as e: print(e.errno == socket.EAI_NONAME, e)\n\
             print('at once', time.monotonic() - began < 1)\n\
             try: socket.create_connection(('198.51.100.10', 443), 5)\n\
             except OSError as e: print(e)\n",
        );
        assert!(got.stdout.starts_with("True "), "{got}");
        assert!(got.stdout.contains("at once True"), "{got}");
        assert!(got.stdout.contains("Network is unreachable"), "{got}");
        for url in ["https://api.example.test/", "https://198.51.100.10/"] {
            let got = agent.curl(false, &["-v", url]);
            assert_ne!(got.code, 0, "{got}");
            let line = "HTTP/1.1 403 agentbox: ";
            let told = got
                .stderr
                .lines()
                .find(|text| text.contains(line))
                .unwrap_or("");
            assert!(
                told.contains(":443: the network is local (network.mode)"),
                "{got}"
            );
        }
        let got = agent.curl(false, &["http://api.example.test:8080/"]);
        for word in [
            "\"missing_rule\":\"api.example.test:8080\"",
            "dev.agentbox.network.allow=+,api.example.test:8080",
        ] {
            assert!(got.stdout.contains(word), "{got}");
        }
        // A rule for a name without a dot is refused, so it is not to be pasted.
        let got = agent.curl(false, &["http://db:6379/"]);
        for word in ["service:db:6379", "internal:db:6379"] {
            assert!(got.stdout.contains(word), "{got}");
        }
        assert!(!got.stdout.contains("missing_rule"), "{got}");
    }
    let log = agent.violations();
    for via in ["dns", "http"] {
        let attempt = format!("\"via\":\"{via}\",\"host\":\"api.example.test\"");
        let denied =
            |line: &str| line.contains("\"verdict\":\"denied\"") && line.contains(&attempt);
        assert!(log.lines().any(denied), "{via}: {log}");
    }
    let id = agent.container.inspect("{{.Id}}");
    let agentbox = std::env::var("AGENTBOX_BIN").unwrap();
    let shown = crate::command::run(&agentbox, &["network", &id]).ok();
    assert!(
        shown.contains("network.mode is local") && shown.contains("  local: "),
        "{shown}"
    );
}

/// Under `local`, the sidecar does not occupy the container's own ports: 53, and the proxies'. Under `none` no
/// sidecar runs, and the variables can be switched off.
#[test]
#[ignore = "needs the rig of hack/test"]
fn the_refusals_of_a_local_network_occupy_no_port_of_its_programs() {
    let docker = Docker::connect();
    let program = "\
import os, socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('0.0.0.0', 53)); print('bound 53')
for port in (3128, 8080, 443, 80):
    s = socket.socket(); s.bind(('0.0.0.0', port)); s.listen(); print('bound', port)
print('proxy', os.environ.get('HTTPS_PROXY'))
try: socket.create_connection(('127.0.0.1', 64128), 5); print('there')
except OSError as e: print('nobody', e)
";
    for (options, bound, words) in [
        (
            &[runtime()][..],
            6,
            &["proxy http://127.0.0.1:64128", "there"][..],
        ),
        (
            &[
                runtime(),
                "--annotation",
                "dev.agentbox.network.proxy-env=off",
            ],
            6,
            &["proxy None", "there"],
        ),
        (
            &[runtime(), "--annotation", "dev.agentbox.network.mode=none"],
            6,
            &["proxy None", "nobody"],
        ),
        (
            &[
                runtime(),
                "--annotation",
                "dev.agentbox.network.inbound=64128",
            ],
            6,
            &["proxy http://127.0.0.1:64129", "nobody"],
        ),
    ] {
        let options = [options, &["test-workloads"]].concat();
        let got = docker.run(&options, &["python3", "-c", program]);
        assert_eq!(
            got.stdout.matches("bound").count(),
            bound,
            "{options:?}: {got}"
        );
        for word in words {
            assert!(got.stdout.contains(word), "{options:?} {word}: {got}");
        }
    }
}

/// A rule for a Service covers every spelling that the engine's search list makes of it, and no other name.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_rule_for_a_service_covers_all_of_its_spellings() {
    const SEARCH: [&str; 3] = [
        "default.svc.cluster.test",
        "svc.cluster.test",
        "cluster.test",
    ];
    let docker = Docker::alone();
    let _turn = witness();
    let _node = private_names_by_annotation();
    let search: Vec<String> = SEARCH.iter().map(|d| format!("--dns-search={d}")).collect();
    let search: Vec<&str> = search.iter().map(String::as_str).collect();
    let start = |allow: &str| {
        let allow = format!("dev.agentbox.network.allow={allow}");
        let options = [&[runtime(), "--annotation", &allow], &search[..]].concat();
        Agent::start(&docker, &options)
    };
    let spellings = [
        "postgres",
        "postgres.default",
        "postgres.default.svc",
        "postgres.default.svc.cluster.test",
    ];
    for rule in [
        "internal:postgres:80",
        "internal:postgres.default.svc.cluster.test:80",
    ] {
        let agent = start(rule);
        for name in spellings {
            for direct in [true, false] {
                let got = agent.curl(direct, &["-f", &format!("http://{name}/")]);
                assert_eq!(got.code, 0, "{name} by {rule}: {got}");
            }
        }
        for name in [
            "postgres.prod",
            "postgres.prod.svc.cluster.test",
            "postgres.svc",
            "web.prod",
            "redis",
            "redis.default.svc.cluster.test",
        ] {
            for direct in [true, false] {
                let got = agent.curl(direct, &["-f", &format!("http://{name}/")]);
                assert_ne!(got.code, 0, "{name} by {rule}: {got}");
            }
        }
        let id = agent.container.inspect("{{.Id}}");
        let agentbox = std::env::var("AGENTBOX_BIN").unwrap();
        let explained = crate::command::run(&agentbox, &["explain", &id]).ok();
        let also = format!("{rule} is also called postgres");
        assert!(explained.contains(&also), "{also}: {explained}");
        let check = [
            "policy",
            "check",
            "--container",
            &id,
            "--host",
            "postgres.default",
            "--port",
            "80",
        ];
        let checked = crate::command::run(&agentbox, &check).ok();
        assert!(
            checked.contains(&format!("by the rule {rule}")),
            "{checked}"
        );
    }
    // A short name for another namespace, under a rule with the complete name.
    let agent = start("internal:web.prod.svc.cluster.test:80");
    for name in ["web.prod", "web.prod.svc"] {
        let got = agent.curl(true, &["-f", &format!("http://{name}/")]);
        assert_eq!(got.code, 0, "{name}: {got}");
    }
    // The container's own name.
    let got = agent.python(
        "import socket\n\
         name = socket.gethostname(); print(socket.gethostbyname(name), socket.getfqdn() != '')\n",
    );
    assert_eq!(got.stdout, "127.0.1.1 True\n", "{got}");
}

/// A name that the caller gives a container, and that a rule names, leads where the engine's hosts file says.
#[test]
#[ignore = "needs the rig of hack/test"]
fn an_alias_of_the_engine_works_if_a_rule_names_it() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = Agent::start(
        &docker,
        &[
            runtime(),
            "--add-host=alias.example.test:198.51.100.10",
            "--add-host=silent.example.test:198.51.100.11",
            "--annotation",
            "dev.agentbox.network.allow=alias.example.test:80",
        ],
    );
    for direct in [true, false] {
        let got = agent.curl(direct, &["-f", "http://alias.example.test/x"]);
        assert_eq!(got.code, 0, "{got}");
        let got = agent.curl(direct, &["-f", "http://silent.example.test/x"]);
        assert_ne!(got.code, 0, "{got}");
    }
}

/// A pod's aliases are only in its containers' hosts files, and must reach the sandbox's sidecar. They change no
/// address of a public name.
#[test]
#[ignore = "needs the rig of hack/test"]
fn aliases_of_a_pods_container_reach_its_sidecar() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = private_names_by_annotation();
    let allow = "dev.agentbox.network.allow=internal:myalias:80, other.example.test:80";
    let first = Agent::start(
        &docker,
        &[runtime(), "--hostname=pod-1", "--annotation", allow],
    );
    let net = format!("--network=container:{}", first.container.name);
    let got = first.curl(true, &["-f", "http://myalias/"]);
    assert_ne!(got.code, 0, "{got}");
    // Written like by the kubelet, in the sandbox's directory of an engine, where no container writes. The rig's root
    // is its own.
    let above = Path::new("/var/lib/containerd").join(format!("names-{}", std::process::id()));
    let sandbox = first.container.inspect("{{.Id}}");
    let hosts = above.join("sandboxes").join(sandbox);
    std::fs::create_dir_all(&hosts).unwrap();
    let hosts = hosts.join("hosts");
    std::fs::write(
        &hosts,
        "127.0.0.1\tlocalhost\nfe00::0\tip6-localnet\n10.88.0.5\tpod-1.db.default.svc.cluster.test\tpod-1\n\n\
         # Entries added by HostAliases.\n10.9.9.9\tmyalias\n198.51.100.10\tother.example.test\n",
    )
    .unwrap();
    let mount = format!("{}:/etc/hosts", hosts.display());
    let member = Agent::start(&docker, &[runtime(), &net, "-v", &mount]);
    for agent in [&first, &member] {
        for direct in [true, false] {
            let got = agent.curl(direct, &["-f", "http://myalias/"]);
            assert_eq!(got.code, 0, "{got}");
        }
    }
    let got = member.curl(true, &["-f", "http://other.example.test/as-ever"]);
    assert!(got.stdout.contains("\"at\": \"198.51.100.12\""), "{got}");
    let got = member
        .python("import socket; print(socket.getfqdn('pod-1'), socket.gethostbyname('pod-1'))");
    assert_eq!(
        got.stdout, "pod-1.db.default.svc.cluster.test 127.0.1.1\n",
        "{got}"
    );
    std::fs::remove_dir_all(above).unwrap();
}

/// An unanswered connection from outside is counted where operators look, with the setting that would allow it.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_refused_probe_is_shown_with_the_setting_that_would_allow_it() {
    let docker = Docker::connect();
    let container = serving(&docker, &[runtime()]);
    let id = container.inspect("{{.Id}}");
    let agentbox = std::env::var("AGENTBOX_BIN").unwrap();
    let shown = || crate::command::run(&agentbox, &["network", &id]).ok();
    assert!(!shown().contains("network.inbound"), "{}", shown());
    let address = container.inspect("{{.NetworkSettings.IPAddress}}");
    let to: std::net::SocketAddr = format!("{address}:8000").parse().unwrap();
    for _ in 0..3 {
        let refused = std::net::TcpStream::connect_timeout(&to, std::time::Duration::from_secs(5));
        assert!(refused.is_err());
    }
    let shown = shown();
    let line = "resets sent in the engine's network: 3 (connections from outside to ports that network.inbound does not name";
    assert!(shown.contains(line), "{shown}");
    // If the engine's network is the node's, the kernel counts all of the node's connections.
    let container = docker.start(
        &[runtime(), "--network=host", "test-workloads"],
        &["sleep", "60"],
    );
    let id = container.inspect("{{.Id}}");
    let refused = std::net::TcpStream::connect("127.0.0.1:1");
    assert!(refused.is_err());
    let shown = crate::command::run(&agentbox, &["network", &id]).ok();
    assert!(!shown.contains("resets sent"), "{shown}");
}

/// A server on a port of the rig itself, which answers every client until it is dropped.
struct Listener {
    port: u16,
    asked: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Listener {
    fn start() -> Self {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        let count = std::sync::Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let mut stream = stream;
                let _read = stream.read(&mut [0; 1024]);
                let _sent = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nmodel\n");
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// An annotation alone makes a neighbour container reachable by name, and no other private address.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_container_of_the_same_network_is_a_service() {
    let docker = Docker::connect();
    let _turn = witness();
    let (network, elsewhere) = (Network::create(&docker, &[]), Network::create(&docker, &[]));
    let net = format!("--network={}", network.name);
    let far = format!("--network={}", elsewhere.name);
    let server = [
        "python3",
        "-m",
        "http.server",
        "5432",
        "--directory",
        "/etc/ssl",
    ];
    let db = docker.start(
        &[
            "--runtime=runc",
            &net,
            "--network-alias=db",
            "test-workloads",
        ],
        &server,
    );
    let other = docker.start(&["--runtime=runc", &far, "test-workloads"], &server);
    let address = |container: &crate::docker::Container<'_>, network: &Network<'_>| {
        container.inspect(&format!(
            "{{{{(index .NetworkSettings.Networks \"{}\").IPAddress}}}}",
            network.name
        ))
    };
    let hosts = [
        format!("--add-host=far:{}", address(&other, &elsewhere)),
        format!("--add-host=node:{}", network.gateway()),
        "--add-host=wiki:10.9.9.9".to_owned(),
        "--add-host=cloud:169.254.169.254".to_owned(),
    ];
    let allow = "dev.agentbox.network.allow=service:db:5432, service:far:5432, service:wiki:80, service:cloud:80, \
                 service:private.example.test:80, service:api.example.test:80, service:node:5432";
    let mut options = vec![runtime(), &net, "--annotation", allow];
    options.extend(hosts.iter().map(String::as_str));
    let agent = Agent::start(&docker, &options);
    for direct in [true, false] {
        let retry = [
            "-f",
            "--retry",
            "10",
            "--retry-connrefused",
            "http://db:5432/",
        ];
        let got = agent.curl(direct, &retry);
        assert_eq!(got.code, 0, "{got}");
        for url in [
            "http://far:5432/",
            "http://node:5432/",
            "http://wiki/",
            "http://cloud/",
            "http://private.example.test/",
            "http://api.example.test/",
            "http://db:5433/",
        ] {
            let got = agent.curl(direct, &["-f", url]);
            assert_ne!(got.code, 0, "{url}: {got}");
        }
    }
    let log = agent.violations();
    for host in ["far", "wiki", "private.example.test", "api.example.test"] {
        let line = log.lines().find(|line| {
            line.contains(&format!("\"host\":\"{host}\""))
                && line.contains("in no network that Docker or podman made for this container")
        });
        assert!(line.is_some(), "{host}: {log}");
    }
    drop((agent, db, other));
}

/// The node's file defines the cluster's networks, and a rule for a Service leads only there.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_service_is_in_the_networks_that_the_nodes_file_lists() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = NodeFiles::default();
    let allow = "dev.agentbox.network.allow=service:postgres:80, service:cgnat.example.test:80";
    let search = "--dns-search=default.svc.cluster.test";
    let options = [runtime(), search, "--annotation", allow];
    for (file, opens) in [
        ("", false),
        ("[network]\nservices = [\"10.9.8.0/24\"]\n", false),
        ("[network]\nservices = [\"10.9.0.0/16\"]\n", true),
    ] {
        node.write("config.toml", 0o644, file);
        let agent = Agent::start(&docker, &options);
        for name in ["postgres", "postgres.default.svc.cluster.test"] {
            let got = agent.curl(true, &["-f", &format!("http://{name}/")]);
            assert_eq!(got.code == 0, opens, "{file} {name}: {got}");
        }
        let got = agent.curl(true, &["-f", "http://cgnat.example.test/"]);
        assert_ne!(got.code, 0, "{file}: {got}");
    }
    node.write("config.toml", 0o644, "[network]\nservices = [\"db\"]\n");
    let got = docker.run(&[&options[..], &["test-workloads"]].concat(), &["true"]);
    assert!(
        got.code != 0 && got.stderr.contains("a network: ADDRESS/BITS"),
        "{got}"
    );
}

/// With macvlan, the container's network is the node's and includes the company's machines: no name is a service.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_port_of_the_nodes_own_network_has_no_services() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let network = Network::create(
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
    let net = format!("--network={}", network.name);
    let control = Agent::start(&docker, &["--runtime=runc", &net]);
    let got = control.curl(true, &["-f", "http://203.0.113.3/"]);
    assert_eq!(got.code, 0, "the control: {got}");
    let allow = "dev.agentbox.network.allow=service:lan:80";
    let options = [
        runtime(),
        &net,
        "--add-host=lan:203.0.113.3",
        "--annotation",
        allow,
    ];
    let agent = Agent::start(&docker, &options);
    let got = agent.curl(true, &["-f", "http://lan/"]);
    assert_ne!(got.code, 0, "{got}");
    let log = agent.violations();
    assert!(
        log.contains("in no network that Docker or podman made for this container"),
        "{log}"
    );
}

/// A model server on the node is reachable only if the node's ceiling names it.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_service_of_the_node_needs_its_ceiling() {
    let docker = Docker::alone();
    let _turn = witness();
    let model = Listener::start();
    let host = "--add-host=host.docker.internal:host-gateway";
    let url = format!("http://host.docker.internal:{}/", model.port);
    let allow = |reach: &str| {
        let port = model.port;
        format!("dev.agentbox.network.allow={reach}host.docker.internal:{port}")
    };
    let refused = docker.run(
        &[
            runtime(),
            host,
            "--annotation",
            &allow("node:"),
            "test-workloads",
        ],
        &["true"],
    );
    assert_ne!(refused.code, 0, "{refused}");
    for words in ["network.allow", "in policies/wider.toml"] {
        assert!(refused.stderr.contains(words), "{refused}");
    }

    // The denial names the only kind of rule that would lead there.
    let closed = Agent::start(&docker, &[runtime(), host]);
    let said = closed.curl(false, &[&url]).stdout;
    let rule = format!(
        "\"missing_rule\":\"node:host.docker.internal:{}\"",
        model.port
    );
    assert!(said.contains(&rule), "{said}");

    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, "ceiling = \"models\"\n");
    let policy = |port: u16| {
        format!(
            "base = \"permissive\"\n[network]\n\
             limit = [\"*\", \"service:*\", \"internal:*\", \"node:*:{port}\"]\n"
        )
    };
    node.write("policies/models.toml", 0o644, &policy(model.port));
    for reach in ["", "service:", "internal:"] {
        let agent = Agent::start(&docker, &[runtime(), host, "--annotation", &allow(reach)]);
        for direct in [true, false] {
            assert_ne!(agent.curl(direct, &["-f", &url]).code, 0, "{reach}");
        }
    }
    assert_eq!(model.asked(), 0);
    let agent = Agent::start(&docker, &[runtime(), host, "--annotation", &allow("node:")]);
    for direct in [true, false] {
        let got = agent.curl(direct, &["-f", &url]);
        assert_eq!(got.stdout, "model\n", "{got}");
    }
    // The name leads only to the node.
    let allow = "dev.agentbox.network.allow=node:api.example.test:80";
    node.write("policies/models.toml", 0o644, &policy(80));
    let agent = Agent::start(&docker, &[runtime(), "--annotation", allow]);
    assert_ne!(
        agent.curl(true, &["-f", "http://api.example.test/"]).code,
        0
    );
    assert!(
        agent.violations().contains("no address of the node"),
        "{}",
        agent.violations()
    );
}

/// A rule that makes no sense is an error at creation, with the probable meanings.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_name_of_one_label_is_an_error_with_the_probable_meanings() {
    let docker = Docker::connect();
    for (allow, words) in [
        (
            "db:6379",
            &[
                "db is no public name",
                "service:db:6379 is a container or Service beside this one",
            ][..],
        ),
        (
            "github",
            &["github is no public name", "@github is the preset"],
        ),
        ("localhost:8080", &["localhost is the container itself"]),
    ] {
        let annotation = format!("dev.agentbox.network.allow={allow}");
        let options = [runtime(), "--annotation", &annotation, "test-workloads"];
        let got = docker.run(&options, &["true"]);
        assert_ne!(got.code, 0, "{got}");
        for word in words {
            assert!(got.stderr.contains(word), "{word}: {got}");
        }
    }
}
