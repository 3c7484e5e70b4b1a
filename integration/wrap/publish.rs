//! `--publish`: which ports can be reached from outside, and from where.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::account::Account;
use crate::command::finish;
use crate::direct::program;
use crate::docker::Docker;

/// Answers on two loopback ports inside, and prints when it is ready.
const SERVER: &str = "import http.server, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'from inside')
    def log_message(self, *args): pass
servers = [http.server.HTTPServer(('127.0.0.1', port), Answer) for port in (3000, 3001)]
threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
[thread.start() for thread in threads]
print('ready', flush=True); input()
";

/// A program that prints `ready`, and ends with its input.
pub(super) struct Serving(Child);

impl Serving {
    pub fn start(mut command: Command) -> Self {
        let stdio = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = stdio.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.as_mut().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    pub fn end(mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

/// The answer of a server at an address of this machine; `None` if nothing answers.
fn ask(address: &str) -> Option<String> {
    let address: SocketAddr = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.ends_with("from inside").then_some(text)
}

/// The machine's address on Docker's bridge.
fn gateway(docker: &Docker) -> String {
    let format = "{{(index .IPAM.Config 0).Gateway}}";
    let address = docker.call(&["network", "inspect", "bridge", "--format", format]);
    address.ok().trim().to_owned()
}

/// A port without a listener, which the kernel chose a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_publish_leads_from_the_loopback_to_the_named_port_alone() {
    let docker = Docker::connect();
    let person = Account::new();
    let program = program();
    let bridge = gateway(&docker);
    for by in ["sudo", "alone"] {
        let port = free_port();
        let published = format!("{port}:3000");
        let words = [
            "wrap",
            "--publish",
            &published,
            "--",
            "python3",
            "-c",
            SERVER,
        ];
        let wrap = match by {
            "sudo" => person.sudo(&words),
            _ => person.alone(&[&[program.as_str()], &words[..]].concat()),
        };
        let serving = Serving::start(wrap);
        for address in ["127.0.0.1", "[::1]"] {
            assert!(
                ask(&format!("{address}:{port}")).is_some(),
                "{by}: {address}"
            );
        }
        // Not another port inside, not the inner port's number, and not from another address.
        for address in [
            "127.0.0.1:3000",
            "127.0.0.1:3001",
            "[::1]:3000",
            &format!("{bridge}:{port}"),
        ] {
            assert_eq!(ask(address), None, "{by}: {address}");
        }
        // The port is taken while it runs.
        let taken = finish(&mut person.sudo(&words)).failed();
        assert!(
            taken.contains("--publish") && taken.contains(&port.to_string()),
            "{taken}"
        );
        serving.end();
        assert_eq!(ask(&format!("127.0.0.1:{port}")), None, "{by}");
        // It is free again at once, whichever side closed the last connection.
        let again = person.sudo(&words);
        Serving::start(again).end();
    }
}

/// Another network namespace cannot reach a loopback port, but can reach a named address.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_publish_is_reached_from_another_network_only_where_it_is_named() {
    let docker = Docker::connect();
    let person = Account::new();
    let bridge = gateway(&docker);
    let port = free_port();
    let script = format!(
        "exec 3<>/dev/tcp/{bridge}/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
    );
    let from_outside = || {
        docker.run(
            &["--runtime", "runc"],
            &["test-workloads", "bash", "-c", &script],
        )
    };
    let serving = |published: &str| {
        let words = [
            "wrap",
            "--publish",
            published,
            "--",
            "python3",
            "-c",
            SERVER,
        ];
        Serving::start(person.sudo(&words))
    };
    let loopback = serving(&format!("{port}:3000"));
    let refused = from_outside();
    assert!(
        refused.code != 0 && !refused.stdout.contains("from inside"),
        "{refused}"
    );
    loopback.end();
    let named = serving(&format!("{bridge}:{port}:3000"));
    assert!(from_outside().ok().contains("from inside"));
    assert_eq!(ask(&format!("127.0.0.1:{port}")), None);
    named.end();
    // All addresses of IPv6 include none of IPv4.
    let of_v6 = serving(&format!("[::]:{port}:3000"));
    assert!(ask(&format!("[::1]:{port}")).is_some());
    assert_eq!(ask(&format!("127.0.0.1:{port}")), None);
    assert_ne!(from_outside().code, 0);
    of_v6.end();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_publish_is_refused_where_nothing_can_lead_in() {
    let _docker = Docker::connect();
    let person = Account::new();
    let wrap = |options: &[&str]| {
        let words = [
            &["wrap", "--publish", "8080:3000"],
            options,
            &["--", "echo", "ran"],
        ]
        .concat();
        let said = finish(&mut person.sudo(&words));
        assert!(!said.stdout.contains("ran"), "{said}");
        said.failed()
    };
    assert!(wrap(&["--walls", "landlock"]).contains("--publish"));
    assert!(wrap(&["--policy", "strict"]).contains("network.mode is none"));
    assert!(wrap(&["--publish", "8080/udp"]).contains("HOSTPORT"));
    // The field alone would mean every address of the machine.
    let every = wrap(&["--set", "network.inbound=3001"]);
    assert!(every.contains("for `wrap` use --publish"), "{every}");
    let program = program();
    let low = [
        program.as_str(),
        "wrap",
        "--publish",
        "80:3000",
        "--",
        "echo",
        "ran",
    ];
    // The reason appears each time, whether the sidecar or its warden ends first.
    for _ in 0..16 {
        let said = finish(&mut person.alone(&low)).failed();
        assert!(
            said.contains("--publish") && said.contains("Permission denied"),
            "{said}"
        );
    }
    // Beyond this call's ceiling.
    let words = [
        "--policy",
        "standard",
        "wrap",
        "--publish",
        "8080",
        "--",
        "echo",
        "ran",
    ];
    let said = finish(&mut person.sudo(&words)).failed();
    assert!(
        said.contains("exceeds the ceiling standard") && said.contains("option --publish"),
        "{said}"
    );
    let words = ["wrap", "--publish", "8080:3000", "--dry-run", "--", "true"];
    let said = finish(&mut person.sudo(&words)).ok();
    assert!(
        said.contains("127.0.0.1:8080 and [::1]:8080 of this node lead to port 3000"),
        "{said}"
    );
    // Without IPv6, no message mentions it.
    let bare = format!(
        "ip link set lo up; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; exec {} wrap --publish 8080:3000 --dry-run -- true",
        program
    );
    let mut without = person.sudo(&[]);
    let mut unshared = Command::new("unshare");
    unshared.args(["--net", "sh", "-c", &bare]);
    unshared.current_dir(&person.project);
    unshared.envs(
        without
            .env("LC_ALL", "C")
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let said = finish(&mut unshared).ok();
    assert!(
        said.contains("published: 127.0.0.1:8080 of this node lead to port 3000"),
        "{said}"
    );
}
