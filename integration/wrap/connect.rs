//! `--connect`: which services of the machine are reached from inside, and which never.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::NodeDir;
use super::account::Account;
use crate::command::{Finished, finish};
use crate::docker::Docker;

/// A server of the machine, which answers each client with its words and the client's own first line.
struct Service(u16);

impl Service {
    fn at(address: &str, words: &'static str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || answer(client, words));
            }
        });
        Self(port)
    }
}

fn answer(mut client: TcpStream, words: &str) {
    let _ = client.set_read_timeout(Some(Duration::from_secs(10)));
    let mut asked = [0; 256];
    let length = client.read(&mut asked).unwrap_or(0);
    let _ = client.write_all(words.as_bytes());
    let _ = client.write_all(&asked[..length]);
}

/// Asks a port of an address, and prints the answer.
fn asking(address: &str, port: u16) -> String {
    format!("exec 3<>/dev/tcp/{address}/{port} && echo hello >&3 && timeout 10 cat <&3")
}

/// The two ways to start `wrap`: by sudo, and without a right.
fn each(person: &Account, options: &[&str], script: &str, see: impl Fn(&str, Finished)) {
    see("sudo", person.wrap(options, script));
    see("alone", person.wraps(options, script));
}

/// Two services of the machine, of which `--connect` leads to the first alone; without it, these options lead to neither.
fn reaches_the_named_alone(person: &Account, all: &[&[&str]]) -> Service {
    let [named, other] = ["named:", "other:"].map(|words| Service::at("127.0.0.1:0", words));
    let port = named.0.to_string();
    let (to_named, to_other) = (asking("127.0.0.1", named.0), asking("127.0.0.1", other.0));
    for mode in all {
        // Without the option nothing answers: the control.
        each(person, mode, &to_named, |by, said| {
            assert!(!said.failed().contains("named:"), "{by} {mode:?}");
        });
        let options = [&["--connect", &port], *mode].concat();
        each(person, &options, &to_named, |by, said| {
            assert_eq!(said.ok(), "named:hello\n", "{by} {mode:?}");
        });
        each(person, &options, &to_other, |by, said| {
            assert!(!said.failed().contains("other:"), "{by} {mode:?}");
        });
    }
    named
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_connect_leads_to_the_named_port_of_the_machine_and_to_no_other() {
    let _docker = Docker::connect();
    let person = Account::new();
    let modes = [&[][..], &["--allow", "a.test"]];
    let named = reaches_the_named_alone(&person, &modes);
    let port = named.0.to_string();
    let to_named = asking("127.0.0.1", named.0);
    for mode in modes {
        let options = [&["--connect", &port], mode].concat();
        let by_name = asking("localhost", named.0);
        each(&person, &options, &by_name, |by, said| {
            assert_eq!(said.ok(), "named:hello\n", "{by} {mode:?}");
        });
    }
    // The port alone opens no other address: not of this machine, and not of another one.
    let options = ["--connect", &port, "--allow", "a.test"];
    for address in ["192.0.2.1", "10.0.0.1", "172.17.0.1"] {
        each(&person, &options, &asking(address, named.0), |by, said| {
            assert!(!said.failed().contains("named:"), "{by} {address}");
        });
    }
    // A strict policy has a network of nothing, and says what would do.
    let strict = ["--policy", "strict", "--connect", &port];
    each(&person, &strict, "true", |by, said| {
        assert!(said.failed().contains("--set network.mode=local"), "{by}");
    });
    let strict = [&strict[..], &["--set", "network.mode=local"]].concat();
    each(&person, &strict, &to_named, |by, said| {
        assert_eq!(said.ok(), "named:hello\n", "{by}");
    });
}

/// Former fault: a database of this machine was refused in silence.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_names_the_server_of_the_machine_that_was_meant_and_no_port_without_one() {
    let _docker = Docker::connect();
    let person = Account::new();
    let (v4, v6) = (
        Service::at("127.0.0.1:0", "four:"),
        Service::at("[::1]:0", "six:"),
    );
    let (four, six, unserved) = (v4.0, v6.0, free_port());
    let tries = |address: &str, port| format!("({}) 2>/dev/null", asking(address, port));
    let script = format!(
        "{}; {}; {}; {}; true",
        tries("localhost", four),
        tries("127.0.0.1", four),
        tries("::1", six),
        tries("127.0.0.1", unserved)
    );
    for mode in [&[][..], &["--allow", "a.test"]] {
        let (low, high) = (four.min(six), four.max(six));
        let line = format!(
            "agentbox: connections to localhost:{low}, localhost:{high} were refused inside; --connect {low} --connect {high} reaches \
             this machine's servers\n"
        );
        each(&person, mode, &script, |by, said| {
            assert_eq!(
                said.stderr.matches(&line).count(),
                1,
                "{by} {mode:?}: {said}"
            );
            let other = format!(":{unserved}");
            assert!(!said.stderr.contains(&other), "{by} {mode:?}: {said}");
        });
        // The pasted options end it.
        let ports = [four, six].map(|port| port.to_string());
        let options = [&["--connect", &ports[0], "--connect", &ports[1]], mode].concat();
        each(&person, &options, &script, |by, said| {
            assert!(
                !said.stderr.contains("refused inside"),
                "{by} {mode:?}: {said}"
            );
        });
    }
    // A server inside is no server of the machine, whatever listens outside.
    let own = format!(
        "python3 -c 'import socket; s=socket.create_server((\"127.0.0.1\",{four})); c=socket.create_connection((\"127.0.0.1\",{four}))'"
    );
    each(&person, &[], &own, |by, said| {
        assert!(!said.stderr.contains("refused inside"), "{by}: {said}");
    });
    // An engine's port, names, a login and a published port are never offered.
    let never: Vec<String> = [2375, 53, 22].map(|port| tries("127.0.0.1", port)).into();
    let published = free_port();
    let script_of_never = format!(
        "{}; {}; true",
        never.join("; "),
        tries("127.0.0.1", published)
    );
    let log = format!("never-{}", std::process::id());
    let options = ["--name", &log, "--publish", &published.to_string()];
    person.wraps(&options, &script_of_never).ok();
    let suggested = person.agentbox(&["suggest", &log]).ok();
    assert_eq!(suggested, "no rule is missing\n");
    // The run's log answers `suggest`, which names every refused port.
    let name = format!("meant-{}", std::process::id());
    person.wraps(&["--name", &name], &script).ok();
    let suggested = person.agentbox(&["suggest", &name]).ok();
    for port in [four, six, unserved] {
        let option = format!("--connect {port}");
        assert!(suggested.contains(&option), "{suggested}");
    }
    let audit = person.agentbox(&["audit", &name]).ok();
    assert!(audit.contains("denied: nothing"), "{audit}");
}

/// The service listens on ::1 alone, ends meanwhile, or is slow to come: each connection is dialled anew.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_connect_dials_each_connection_anew_and_says_why_it_fails() {
    let _docker = Docker::connect();
    let person = Account::new();
    let of_v6 = Service::at("[::1]:0", "six:");
    let (port, gone) = (of_v6.0.to_string(), free_port());
    let late = gone.to_string();
    let options = ["--connect", &port, "--connect", &late, "--name"];
    let script = format!(
        "({}); ({}) 2>/dev/null; echo status $?",
        asking("127.0.0.1", of_v6.0),
        asking("127.0.0.1", gone)
    );
    for by in ["sudo", "alone"] {
        let name = format!("connect-{by}-{}", std::process::id());
        let options = [&options[..], &[&name]].concat();
        let said = match by {
            "sudo" => person.wrap(&options, &script),
            _ => person.wraps(&options, &script),
        }
        .ok();
        assert!(
            said.starts_with("six:hello\n") && !said.contains("status 0"),
            "{by}: {said}"
        );
        let audit = ["audit", &name, "--json"];
        let log = match by {
            "sudo" => finish(&mut person.sudo(&audit)),
            _ => person.agentbox(&audit),
        }
        .ok();
        let rule = format!("network.connect: {port}");
        for (verdict, has) in [("allowed", &rule), ("ended", &rule), ("failed", &late)] {
            let is_it = |line: &&str| {
                line.contains(&format!("\"verdict\":\"{verdict}\"")) && line.contains(has.as_str())
            };
            assert!(
                log.lines().any(|line| is_it(&line)),
                "{by} {verdict}: {log}"
            );
        }
        assert!(
            log.contains("no service of this machine answers"),
            "{by}: {log}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_connect_never_reaches_an_engine_and_obeys_the_ceiling() {
    let _docker = Docker::connect();
    let person = Account::new();
    let service = Service::at("127.0.0.1:0", "named:");
    let port = service.0.to_string();
    let ask = asking("127.0.0.1", service.0);
    let deny = format!("127.0.0.1:{port}");
    for (options, part) in [
        (&["--connect", "2375"][..], "Docker's API"),
        (&["--connect", "127.0.0.1:6443"], "Kubernetes"),
        (&["--connect", "53"], "for names"),
        (&["--connect", "*"], "for ceilings"),
        (&["--connect", "5432/udp"], "HOST:PORT"),
        (
            &["--connect", "5432", "--publish", "8080:5432"],
            "is published",
        ),
        (&["--connect", &port, "--deny", &deny], "wins over"),
        (
            &["--connect", "db.test:5432"],
            "--allow internal:db.test:5432",
        ),
        (&["--connect", "169.254.169.254:80"], "metadata"),
        (
            &[
                "--connect",
                "5432",
                "--connect",
                "db.test:5432",
                "--allow",
                "internal:db.test:5432",
            ],
            "the same port",
        ),
        (
            &[
                "--walls",
                "landlock",
                "--connect",
                "db.test:5432",
                "--allow",
                "db.test:5432",
            ],
            "network namespace",
        ),
    ] {
        each(&person, options, "echo ran", |by, said| {
            assert!(!said.stdout.contains("ran"), "{by} {options:?}: {said}");
            let text = said.failed();
            assert!(text.contains(part), "{by} {options:?}: {text}");
        });
    }
    // The node's file forbids it, or lists what may be reached.
    let node = NodeDir::new();
    let dir = node.policies();
    node.file(
        "policies/closed.toml",
        "base = \"permissive\"\nnetwork.connect = []\n",
    );
    let listed = format!("base = \"permissive\"\nnetwork.connect = [\"{port}\"]\n");
    node.file("policies/listed.toml", &listed);
    for (ceiling, allowed) in [("closed", false), ("listed", true)] {
        let text = format!("ceiling = \"{ceiling}\"\npolicy-dir = \"{dir}\"\n");
        let config = node.file("config.toml", &text);
        let words = [
            "--config",
            &config,
            "wrap",
            "--connect",
            &port,
            "--",
            "bash",
            "-c",
            &ask,
        ];
        let said = finish(&mut person.sudo(&words));
        match allowed {
            true => assert_eq!(said.ok(), "named:hello\n"),
            false => {
                let text = said.failed();
                let words = ["exceeds the ceiling closed", "option --connect"];
                assert!(words.iter().all(|part| text.contains(part)), "{text}");
            }
        }
    }
    // A project's file counts when it is trusted, and not before.
    person.file(
        "src/project/.agentbox.toml",
        &format!("connect = [{port}]\n"),
    );
    let untrusted = person.wraps(&[], &ask);
    assert!(!untrusted.failed().contains("named:"));
    let shown = person.agentbox(&["trust", "--yes"]).ok();
    assert!(
        shown.contains(&format!("lets this service be reached: {port}")),
        "{shown}"
    );
    assert_eq!(person.wraps(&[], &ask).ok(), "named:hello\n");
    let dry = person
        .wraps(&["--connect", &port, "--dry-run"], "true")
        .ok();
    let words = format!("localhost:{port} inside leads to port {port} of this machine's loopback");
    assert!(dry.contains(&words), "{dry}");
}

/// Another host is reached as rules allow, at the port of the loopback.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_connect_leads_to_another_host_as_the_rules_allow() {
    let _docker = Docker::connect();
    let person = Account::new();
    // An address of the machine stands for another host: rules decide about it by the same checks.
    let address = other_address();
    let host = Service::at(&format!("{address}:0"), "host:");
    let _loopback = TcpListener::bind((Ipv4Addr::LOCALHOST, host.0));
    let port = host.0;
    let (service, rule) = (format!("{address}:{port}"), format!("{address}:{port}"));
    let script = asking("127.0.0.1", port);
    let node = NodeDir::new();
    let dir = node.policies();
    node.file(
        "policies/wide.toml",
        &format!("base = \"permissive\"\nnetwork.limit = [\"+\", \"{rule}\"]\n"),
    );
    let config = node.file(
        "config.toml",
        &format!("ceiling = \"wide\"\npolicy-dir = \"{dir}\"\n"),
    );
    let words = |options: &[&str]| {
        let wrap = ["--config", &config, "wrap"];
        let all = [&wrap[..], options, &["--", "bash", "-c", &script]].concat();
        finish(&mut person.sudo(&all))
    };
    let without = words(&["--connect", &service]).failed();
    assert!(without.contains(&format!("--allow {rule}")), "{without}");
    let with = words(&["--connect", &service, "--allow", &rule]);
    assert_eq!(with.ok(), "host:hello\n");
}

/// An address of the machine that is not its loopback.
fn other_address() -> String {
    let mut ip = Command::new("ip");
    ip.args(["-4", "-o", "addr", "show", "scope", "global"]);
    let list = finish(&mut ip).ok();
    let words: Vec<&str> = list.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "inet").unwrap();
    words[at + 1].split('/').next().unwrap().to_owned()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_connect_by_landlock_opens_the_port_of_this_machine_alone() {
    let _docker = Docker::connect();
    let person = Account::new();
    let walls = ["--walls", "landlock"];
    let named = reaches_the_named_alone(&person, &[&walls]);
    let port = named.0.to_string();
    let options = [&walls[..], &["--connect", &port]].concat();
    // Landlock knows ports, not addresses: the sockets are bound to the loopback interface.
    let outside = outside_namespace(named.0);
    assert!(outside.reach(), "the control: this machine reaches it");
    let script = format!("timeout 5 bash -c '{}'", asking(Outside::ADDRESS, named.0));
    each(&person, &options, &script, |by, said| {
        assert!(!said.failed().contains("elsewhere"), "{by}");
    });
    let dry = person
        .wraps(&[&options[..], &["--dry-run"]].concat(), "true")
        .ok();
    assert!(
        dry.contains(&format!("the ports {port} of --connect are open directly")),
        "{dry}"
    );
}

/// Another machine: a network namespace behind a pair of devices, with a server on the port.
struct Outside {
    port: u16,
    server: std::process::Child,
}

impl Outside {
    const ADDRESS: &str = "198.51.100.2";

    fn reach(&self) -> bool {
        let address: SocketAddr = format!("{}:{}", Self::ADDRESS, self.port).parse().unwrap();
        (0..50).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
        })
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("ip").args(["link", "del", "abxout0"]).status();
        let _ = Command::new("ip").args(["netns", "del", "abxout"]).status();
    }
}

fn outside_namespace(port: u16) -> Outside {
    let setup = "ip netns add abxout && ip link add abxout0 type veth peer name abxout1 netns abxout && \
                 ip addr add 198.51.100.1/30 dev abxout0 && ip link set abxout0 up && \
                 ip -n abxout addr add 198.51.100.2/30 dev abxout1 && ip -n abxout link set abxout1 up";
    let mut shell = Command::new("sh");
    shell.args(["-c", setup]);
    finish(&mut shell).ok();
    let script = format!(
        "import socket\ns = socket.create_server(('0.0.0.0', {port}))\nwhile True:\n    c, _ = s.accept()\n    c.sendall(b'elsewhere')\n    c.close()"
    );
    let mut server = Command::new("ip");
    server.args(["netns", "exec", "abxout", "python3", "-c", &script]);
    Outside {
        port,
        server: server.spawn().unwrap(),
    }
}
