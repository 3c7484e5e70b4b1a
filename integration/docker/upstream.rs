//! Behind a company's proxy: it gets every connection to the internet, and no program inside learns its credentials.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::allowlist::{Agent, arrived, internet, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::run;

pub(crate) const USER: &str = "builder";
pub(crate) const PASSWORD: &str = "s3kr1t-of-the-node";
/// `builder:s3kr1t-of-the-node` in base64, as sent.
pub(crate) const CODED: &str = "YnVpbGRlcjpzM2tyMXQtb2YtdGhlLW5vZGU=";
/// The rig's own address towards the internet, as close as a private network's proxy.
pub(crate) const PLACE: &str = "203.0.113.1";
pub(super) const ALLOW: &str = "dev.agentbox.network.allow=api.example.test, api.example.test:80, api.example.test:22, private.example.test:80, \
     proxy.example.test";

/// A proxy that requires credentials, serves only CONNECT, and records its requests.
pub(crate) struct CompanyProxy {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl CompanyProxy {
    /// Starts it. Its threads end with the test binary.
    pub(super) fn start() -> Self {
        Self::start_at(PLACE)
    }

    /// The same at another address.
    pub(crate) fn start_at(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || serve(client, &log));
            }
        });
        Self { port, asked }
    }

    /// The request lines so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut client: TcpStream, log: &Mutex<Vec<String>>) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    log.lock().unwrap().push(head.lines().next()?.to_owned());
    if !head.contains(&format!("Proxy-Authorization: Basic {CODED}\r\n")) {
        client
            .write_all(b"HTTP/1.1 407 Authenticate\r\nContent-Length: 0\r\n\r\n")
            .ok()?;
        return None;
    }
    let target = head.strip_prefix("CONNECT ")?.split(' ').next()?;
    let mut server = TcpStream::connect(target).ok()?;
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _bytes = std::io::copy(&mut from, &mut to);
        to.shutdown(Shutdown::Write)
    });
    let _bytes = std::io::copy(&mut server, &mut client);
    client.shutdown(Shutdown::Write).ok()
}

fn config(proxy: &CompanyProxy, password: &str, more: &str) -> String {
    format!(
        "[network]\nupstream-proxy = \"http://{USER}:{password}@{PLACE}:{}\"\n{more}\n",
        proxy.port
    )
}

/// HTTP and HTTPS, with and without proxy variables, and a server that speaks first: its bytes come right behind the
/// proxy's answer.
#[track_caller]
pub(super) fn everything_goes_through(agent: &Agent<'_>, proxy: &CompanyProxy) {
    for (direct, url) in [
        (true, "https://api.example.test/x"),
        (false, "https://api.example.test/x"),
        (true, "http://api.example.test/x"),
        (false, "http://api.example.test/x"),
    ] {
        let before = proxy.asked().len();
        let got = agent.curl(direct, &[url]);
        assert!(
            got.code == 0 && got.stdout.contains("\"path\": \"/x\""),
            "{url}: {got}"
        );
        assert_eq!(proxy.asked().len(), before + 1, "{url}");
    }
    let banner = agent.python(
        "import socket; s = socket.create_connection(('api.example.test', 22), 10); print(s.recv(64))",
    );
    assert!(banner.stdout.contains("SSH-2.0-example"), "{banner}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn everything_goes_through_the_nodes_proxy_and_its_password_stays_with_the_node() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let proxy = CompanyProxy::start();
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o600, &config(&proxy, PASSWORD, ""));
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    everything_goes_through(&agent, &proxy);
    for line in proxy.asked() {
        let address = line.strip_prefix("CONNECT ").unwrap();
        assert!(
            address.starts_with("198.51.100.10:") || address.starts_with("[2001:db8::10]:"),
            "{line}: not the address that was looked at"
        );
    }
    // Hosts that are denied without a proxy are denied with one, and the proxy never hears of them.
    let before = proxy.asked();
    let private = agent.curl(false, &["http://private.example.test/"]);
    assert!(
        private.stdout.contains("leads to no address that is open"),
        "{private}"
    );
    assert!(agent.violations().contains("the name leads to 10.9.9.9"));
    assert_ne!(
        agent.curl(true, &["-f", "http://other.example.test/"]).code,
        0
    );
    // Only the sidecar may dial the proxy.
    for direct in [true, false] {
        let url = format!("http://{PLACE}:{}/", proxy.port);
        assert_ne!(agent.curl(direct, &["-f", &url]).code, 0);
    }
    assert_eq!(proxy.asked(), before);

    let id = agent.container.inspect("{{.Id}}");
    let explained = run("agentbox", &["explain", &id]).ok();
    assert!(
        explained.contains(&format!(
            "through the node's proxy http://{PLACE}:{}",
            proxy.port
        )),
        "{explained}"
    );
    let inside = agent.container.exec(
        &[],
        &[
            "sh",
            "-c",
            "env; cat /proc/*/environ /proc/*/cmdline /etc/hosts /etc/resolv.conf",
        ],
    );
    let look = |script: &str| {
        let got = Command::new("sh")
            .args(["-c", script, PASSWORD, CODED])
            .output()
            .unwrap();
        String::from_utf8_lossy(&got.stdout).into_owned()
    };
    // The control for both checks: this command line and a node file do contain it.
    let command_lines = look("cat /proc/[0-9]*/cmdline; true");
    assert_eq!(
        command_lines.matches(PASSWORD).count(),
        1,
        "{command_lines}"
    );
    let files = look("grep -rlE \"$0|$1\" /etc/agentbox /run/agentbox /run/docker/runtime-runc");
    assert_eq!(files.trim(), "/etc/agentbox/config.toml");
    let docker_says = docker.call(&["inspect", &id]);
    for (place, text) in [
        ("explain", explained),
        (
            "explain --json",
            run("agentbox", &["explain", "--json", &id]).ok(),
        ),
        ("inside", inside.stdout),
        ("docker inspect", docker_says.stdout),
        ("violations", agent.violations()),
    ] {
        assert!(
            !text.contains(PASSWORD) && !text.contains(CODED),
            "{place}: {text}"
        );
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn names_go_to_the_proxy_only_where_the_node_says_so() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let proxy = CompanyProxy::start();
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, &format!(
        "[network]\nupstream-proxy = \"http://{PLACE}:{}\"\nupstream-credentials = \"/etc/agentbox/upstream\"\n\
         upstream-names = \"proxy\"\n",
        proxy.port
    ));
    node.write("upstream", 0o600, &format!("{USER}:{PASSWORD}\n"));
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = agent.curl(true, &["https://api.example.test/named"]);
    assert!(got.code == 0 && got.stdout.contains("/named"), "{got}");
    assert_eq!(proxy.asked(), ["CONNECT api.example.test:443 HTTP/1.1"]);
    assert_ne!(
        agent
            .curl(true, &["-f", "https://other.example.test/"])
            .code,
        0
    );
    assert_eq!(proxy.asked().len(), 1);
    let id = agent.container.inspect("{{.Id}}");
    let explained = run("agentbox", &["explain", &id]).ok();
    assert!(
        explained.contains("for names, which the proxy resolves"),
        "{explained}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_proxy_that_refuses_or_is_gone_is_no_way_around_it() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let proxy = CompanyProxy::start();
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o600, &config(&proxy, "wrong", ""));
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = agent.curl(false, &["http://api.example.test/refused"]);
    assert!(
        got.stdout.contains("wants other credentials (407)"),
        "{got}"
    );
    assert_ne!(
        agent
            .curl(true, &["-f", "http://api.example.test/refused"])
            .code,
        0
    );
    drop(agent);
    let closed = TcpListener::bind((PLACE, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    node.write(
        "config.toml",
        0o600,
        &format!("[network]\nupstream-proxy = \"http://{PLACE}:{closed}\"\n"),
    );
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    for direct in [true, false] {
        let got = agent.curl(direct, &["-f", "http://api.example.test/refused"]);
        assert_ne!(got.code, 0, "{got}");
    }
    assert_eq!(arrived(&["/refused"]), 0);
    drop(agent);
    // A file that others can read is not secret.
    node.write("config.toml", 0o644, &config(&proxy, PASSWORD, ""));
    let got = docker.run(&[runtime(), "test-probe"], &["true"]);
    assert!(got.code != 0 && got.stderr.contains("chmod 600"), "{got}");
    assert!(!got.stderr.contains(PASSWORD), "{got}");
    node.write(
        "config.toml",
        0o600,
        "[network]\nupstream-proxy = \"socks5://a:b@proxy.example:3128\"\n",
    );
    let got = docker.run(&[runtime(), "test-probe"], &["true"]);
    assert!(
        got.code != 0 && got.stderr.contains("or either with https://"),
        "{got}"
    );
}
