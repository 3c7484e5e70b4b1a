//! Inbound ports: those of the policy are reachable, and nothing else inside (N18).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::node::NodeFiles;
use super::{Container, Docker, Network, runtime};
use crate::command::run;
use crate::direct::program;

/// Two servers on the loopback alone, one on every address.
const SERVERS: &str = "cd /etc/ssl; for p in 8080 8081; do python3 -m http.server $p --bind 127.0.0.1 & done; \
                       python3 -m http.server 9000 & wait";
const INBOUND: &str = "dev.agentbox.network.inbound=8080, 8082";
const ALLOW: &str = "dev.agentbox.network.allow=api.example.test";
/// Until the server on every address answers.
const WAIT: &str = "for i in $(seq 100); do curl -s -o /dev/null --noproxy '*' http://127.0.0.1:9000/ && exit; sleep 0.1; done; exit 1";

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

/// Former fault: the container had to be made anew. With and without hosts: under `local` its sidecar dials nothing else.
#[test]
#[ignore = "needs the rig of hack/test"]
fn update_opens_a_published_port_of_a_running_container() {
    let docker = Docker::connect();
    let publish = ["-p18480:8080", "-p18481:8081"];
    let open = |id: &str, ports: &str| run(&program(), &["update", "--inbound-add", ports, id]);
    for more in [&[][..], &["--annotation", ALLOW]] {
        let options = [&[runtime()][..], &publish, more].concat();
        let container = start(&docker, &options, SERVERS);
        let (id, inside) = (container.inspect("{{.Id}}"), address(&container));
        // The servers run, and the wall is the reason.
        container.exec(&[], &["sh", "-c", WAIT]).ok();
        assert_eq!(ask("127.0.0.1", 18480, NOW), None);
        for wrong in ["53x", "0", "80-90"] {
            let refused = open(&id, wrong).failed();
            assert!(refused.contains("--inbound-add: "), "{wrong}: {refused}");
        }
        let refused = open(&id, "*").failed();
        assert!(refused.contains("network.inbound"), "{refused}");
        // The host's number of a published port.
        let refused = open(&id, "18480").failed();
        let meant = "port 8080 of the container as 18480: --inbound-add 8080";
        assert!(refused.contains(meant), "{refused}");
        assert_eq!(ask("127.0.0.1", 18480, NOW), None);
        open(&id, "8080").ok();
        assert!(ask("127.0.0.1", 18480, SOON).is_some());
        // More connections than there are slots.
        for _ in 0..100 {
            assert!(ask(&inside, 8080, NOW).is_some());
        }
        // Nothing else.
        for (place, port) in [
            ("127.0.0.1", 18481),
            (inside.as_str(), 8081),
            (&inside, 9000),
        ] {
            assert_eq!(ask(place, port, NOW), None, "{place}:{port}");
        }
        let told = |verb: &str| run(&program(), &[verb, &id]).ok();
        let explained = told("explain");
        assert!(
            explained.contains("inbound ports, to 127.0.0.1 and ::1 inside: 8080"),
            "{explained}"
        );
        assert!(explained.contains("for port 8081"), "{explained}");
        assert!(told("network").contains("8080"));
        let logged = run(&program(), &["audit", "--json", &id]).ok();
        assert!(logged.contains("\"inbound\":[8080]"), "{logged}");
        // A second one uses the same slots, and the first stays; twice is once.
        open(&id, "8081, 8080").ok();
        assert!(ask(&inside, 8081, SOON).is_some() && ask(&inside, 8080, NOW).is_some());
        assert!(!told("explain").contains("leads nowhere"));
        run(&program(), &["verify", &id]).ok();
    }
}

/// An `update` that was killed when it had written the record only: the same command again opens the port.
#[test]
#[ignore = "needs the rig of hack/test"]
fn update_opens_what_a_killed_one_has_only_written_down() {
    let docker = Docker::connect();
    let publish = ["-p18680:8080", "-p18681:8081"];
    for more in [&[][..], &["--annotation", ALLOW]] {
        let options = [&[runtime()][..], &publish, more].concat();
        let container = start(&docker, &options, SERVERS);
        let (id, inside) = (container.inspect("{{.Id}}"), address(&container));
        container.exec(&[], &["sh", "-c", WAIT]).ok();
        write_down(&id, 8080);
        assert_eq!(ask(&inside, 8080, NOW), None);
        // Another port first: the sidecar has no sockets to dial with yet.
        for port in [8081_u16, 8080] {
            assert_eq!(ask(&inside, port, NOW), None, "{port}");
            let words = ["update", "--inbound-add", &port.to_string(), &id];
            run(&program(), &words).ok();
            assert!(ask(&inside, port, SOON).is_some(), "{port}");
        }
    }
}

/// Names an open port in a container's record.
fn write_down(id: &str, port: u16) {
    let found = std::fs::read_dir("/run/agentbox/index").unwrap();
    let mut found = found.map(|entry| entry.unwrap().path());
    let dir = found.find(|path| path.to_string_lossy().ends_with(id));
    let path = dir.unwrap().join("record.json");
    let text = std::fs::read(&path).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let network = &mut record["decided"]["plan"]["network"];
    network["inbound"] = serde_json::json!([port]);
    let nowhere = network["leadsNowhere"].as_object_mut().unwrap();
    nowhere.remove(&port.to_string()).unwrap();
    std::fs::write(path, record.to_string()).unwrap();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn update_opens_no_port_beyond_the_ceiling_or_of_the_node() {
    let docker = Docker::alone();
    let mut node = NodeFiles::default();
    let tight = "base = \"permissive\"\n[network]\ninbound = [\"8080\"]\n";
    node.write("policies/tight.toml", 0o644, tight);
    node.write("config.toml", 0o644, "ceiling = \"tight\"\n");
    let publish = ["-p18580:8080", "-p18581:8081"];
    let refused = |container: &Container<'_>, port: &str, why: &str| {
        let id = container.inspect("{{.Id}}");
        let got = run(&program(), &["update", "--inbound-add", port, &id]).failed();
        assert!(got.contains(why), "{port}: {got}");
        id
    };
    let container = start(&docker, &[&[runtime()][..], &publish].concat(), SERVERS);
    let id = refused(&container, "8081", "network.inbound requests 8081");
    // The control, and a ceiling that closes later.
    run(&program(), &["update", "--inbound-add", "8080", &id]).ok();
    assert!(ask(&address(&container), 8080, SOON).is_some());
    // On its ports the wall listens inside; the connection would lead out again.
    let listed = start(&docker, &[runtime(), "--annotation", ALLOW], SERVERS);
    node.write("config.toml", 0o644, "");
    refused(&listed, "443", "on port 443 the wall itself listens");
    refused(&listed, "3128", "the proxy of the container listens");
    // Its sidecar may connect to nothing, and a network of the node would be open to everybody.
    let bare = start(&docker, &[runtime()], SERVERS);
    refused(&bare, "8080", "name the port when the container is made");
    let hosts = start(
        &docker,
        &[runtime(), "--annotation", ALLOW, "--network=host"],
        SERVERS,
    );
    refused(&hosts, "8080", "would be the host's own");
    let none = start(
        &docker,
        &["--runtime=agentbox-strict", "-p18582:8080"],
        SERVERS,
    );
    refused(&none, "8080", "network.mode is none");
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
fn a_silent_connection_makes_room_for_a_new_one() {
    let docker = Docker::connect();
    let container = start(&docker, &[runtime(), "--annotation", INBOUND], SERVERS);
    let inside = address(&container);
    assert!(ask(&inside, 8080, SOON).is_some());
    // Each ends fifteen seconds after it was made.
    let began = Instant::now();
    let silent: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect((inside.as_str(), 8080)).unwrap())
        .collect();
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
fn a_server_that_has_sent_all_still_gets_the_whole_upload() {
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
