//! Inbound ports: those of the policy are reachable, and nothing else inside (N18).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::node::NodeFiles;
use super::{Container, Docker, Network, runtime};

/// Two servers on the loopback alone, one on every address.
const SERVERS: &str = "cd /etc/ssl; for p in 8080 8081; do python3 -m http.server $p --bind 127.0.0.1 & done; \
                       python3 -m http.server 9000 & wait";
const INBOUND: &str = "dev.agentbox.network.inbound=8080, 8082";
const ALLOW: &str = "dev.agentbox.network.allow=api.example.test";

fn start<'a>(docker: &'a Docker, options: &[&str], script: &str) -> Container<'a> {
    docker.start(
        &[options, &["test-workloads"]].concat(),
        &["sh", "-c", script],
    )
}

/// The first bytes from an HTTP server at this address, if there is one.
fn ask(address: &str, port: u16, patience: Duration) -> Option<String> {
    let until = Instant::now() + patience;
    loop {
        let answer = || {
            let mut stream = TcpStream::connect((address, port)).ok()?;
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .ok()?;
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text).filter(|text| text.starts_with("HTTP/1"))
        };
        match answer() {
            Some(text) => return Some(text),
            None if Instant::now() > until => return None,
            None => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

fn address(container: &Container<'_>) -> String {
    container.inspect("{{.NetworkSettings.IPAddress}}")
}

const SOON: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::from_secs(0);

#[test]
#[ignore = "needs the rig of hack/test"]
fn only_the_ports_that_are_named_lead_in() {
    let docker = Docker::connect();
    let control = start(&docker, &["--runtime=runc"], SERVERS);
    assert!(ask(&address(&control), 9000, SOON).is_some(), "the control");
    for (published, more) in [(18080, &[][..]), (18180, &["--annotation", ALLOW])] {
        let ports: Vec<String> = [8080, 8081, 8082, 9000]
            .iter()
            .map(|port| format!("-p{}:{port}", published + port - 8080))
            .collect();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        let options = [&[runtime(), "--annotation", INBOUND][..], &ports, more].concat();
        let container = start(&docker, &options, SERVERS);
        let inside = address(&container);
        let port = u16::try_from(published).unwrap();
        for (place, port) in [("127.0.0.1", port), (inside.as_str(), 8080)] {
            let answer = ask(place, port, SOON).expect("the port that is named");
            assert!(
                answer.contains("200 OK") && answer.contains("certs"),
                "{answer}"
            );
        }
        // More connections than there are slots, one after the other: each slot is used again.
        for _ in 0..200 {
            assert!(ask(&inside, 8080, NOW).is_some());
        }
        // On the loopback, on every address, published but not in the policy, and the wall's own.
        for (place, port) in [
            ("127.0.0.1", port + 1),
            ("127.0.0.1", port + 920),
            (inside.as_str(), 8081),
            (inside.as_str(), 9000),
            (inside.as_str(), 3128),
            (inside.as_str(), 443),
            (inside.as_str(), 53),
        ] {
            assert_eq!(ask(place, port, NOW), None, "{place}:{port}");
        }
        // In the policy, but without a listener.
        assert_eq!(ask(&inside, 8082, NOW), None);
        assert!(ask(&inside, 8080, NOW).is_some());
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn the_ports_that_are_named_lead_in_by_ipv6() {
    const ON_V6: &str = "cd /etc/ssl; for p in 8080 8081; do python3 -m http.server $p --bind ::1 & done; \
                         python3 -m http.server 9000 --bind :: & wait";
    let docker = Docker::connect();
    let network = Network::create(&docker, &["--ipv6", "--subnet=2001:db8:5::/64"]);
    let option = format!("--network={}", network.name);
    let of = |container: &Container<'_>, field: &str| {
        container.inspect(&format!(
            "{{{{range .NetworkSettings.Networks}}}}{{{{.{field}}}}}{{{{end}}}}"
        ))
    };
    let control = start(&docker, &["--runtime=runc", &option], ON_V6);
    let free = of(&control, "GlobalIPv6Address");
    assert!(ask(&free, 9000, SOON).is_some(), "the control: {free}");
    let container = start(
        &docker,
        &[runtime(), "--annotation", INBOUND, &option],
        ON_V6,
    );
    for field in ["GlobalIPv6Address", "IPAddress"] {
        let inside = of(&container, field);
        // The program on ::1 is found by either address family.
        assert!(ask(&inside, 8080, SOON).is_some(), "{inside}");
        for port in [8081, 9000, 53] {
            assert_eq!(ask(&inside, port, NOW), None, "{inside}, port {port}");
        }
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn whoever_holds_connections_and_says_nothing_makes_place() {
    let docker = Docker::connect();
    let container = start(&docker, &[runtime(), "--annotation", INBOUND], SERVERS);
    let inside = address(&container);
    assert!(ask(&inside, 8080, SOON).is_some());
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect((inside.as_str(), 8080)).unwrap())
        .collect();
    let began = Instant::now();
    assert!(ask(&inside, 8080, Duration::from_secs(90)).is_some());
    assert!(
        began.elapsed() > Duration::from_secs(10),
        "they did not hold all places"
    );
    drop(silent);
    assert!(ask(&inside, 8080, SOON).is_some());
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn who_has_said_everything_is_still_told_everything() {
    /// Sends all of its data, and then reads late and slowly.
    const SERVER: &str = r#"
import socket, time
server = socket.create_server(("127.0.0.1", 8080))
print("listens", flush=True)
guest, _ = server.accept()
guest.sendall(b"hello")
guest.shutdown(socket.SHUT_WR)
time.sleep(2)
told = 0
while (chunk := guest.recv(1 << 20)):
    told += len(chunk)
    time.sleep(0.005)
print("told", told, flush=True)
"#;
    /// More than all buffers on the way hold.
    const MUCH: usize = 24 << 20;
    let docker = Docker::connect();
    let container = docker.start(
        &[runtime(), "--annotation", INBOUND, "test-workloads"],
        &["python3", "-c", SERVER],
    );
    container.await_log("listens");
    let mut guest = TcpStream::connect((address(&container), 8080)).unwrap();
    let mut said = String::new();
    guest.read_to_string(&mut said).unwrap();
    assert_eq!(said, "hello");
    guest.write_all(&vec![b'x'; MUCH]).unwrap();
    drop(guest);
    let log = container.await_log("told");
    assert_eq!(log, format!("listens\ntold {MUCH}\n"));
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn what_cannot_lead_in_is_refused_before_anything_runs() {
    let docker = Docker::alone();
    let refused = |options: &[&str], why: &str| {
        let got = docker.run(
            &[&[runtime()], options, &["test-probe"]].concat(),
            &["true"],
        );
        assert!(
            got.code != 0 && got.stderr.contains(why),
            "{options:?}: {got}"
        );
    };
    let none = "dev.agentbox.network.mode=none";
    refused(
        &["--annotation", INBOUND, "--annotation", none],
        "network.mode is none",
    );
    refused(
        &["--annotation", INBOUND, "--network=host"],
        "the host's network",
    );
    let walls = "dev.agentbox.network.inbound=3128";
    refused(
        &["--annotation", walls, "--annotation", ALLOW],
        "on port 3128 the wall itself listens",
    );
    let strict = docker.run(
        &[
            "--runtime=agentbox-strict",
            "--annotation",
            INBOUND,
            "test-probe",
        ],
        &["true"],
    );
    assert!(
        strict.code != 0 && strict.stderr.contains("network.inbound requests 8080"),
        "{strict}"
    );
    // In a network where another container has the port.
    let taken = start(&docker, &["--runtime=runc"], SERVERS);
    assert!(ask(&address(&taken), 9000, SOON).is_some());
    let mut node = NodeFiles::default();
    node.write(
        "config.toml",
        0o644,
        "[allow]\nnamespaces = [\"network\"]\n",
    );
    let network = format!("--network=container:{}", taken.name);
    refused(
        &[
            "--annotation",
            "dev.agentbox.network.inbound=9000",
            &network,
        ],
        "cannot listen on port 9000",
    );
    let free = docker.run(
        &[
            runtime(),
            "--annotation",
            "dev.agentbox.network.inbound=9001",
            &network,
            "test-probe",
        ],
        &["true"],
    );
    assert_eq!(free.code, 0, "the control: {free}");
}
