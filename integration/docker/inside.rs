//! Attacks on the allowlist by programs inside, as the init process and by exec: sockets of every kind (N13, N16),
//! neighbours (N18), budgets and floods (N20), name files (N23), the wall's own ports (N27).
//!
//! Each attack is a Python program that prints its successes. The witness, or a listener of the test, decides the
//! verdict.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::allowlist::{Agent, arrived, witness};
use super::{Docker, runtime};
use crate::command::Finished;

const ALLOW: &str = "dev.agentbox.network.allow=api.example.test:80, api.example.test";

fn walled<'a>(docker: &'a Docker, more: &[&str]) -> Agent<'a> {
    Agent::start(
        docker,
        &[&[runtime(), "--annotation", ALLOW], more].concat(),
    )
}

/// Runs a program as the init process of a new container, and by exec in a running one.
fn by_init_and_exec(docker: &Docker, agent: &Agent<'_>, program: &str) -> [Finished; 2] {
    let options = [runtime(), "--annotation", ALLOW, "test-workloads"];
    [
        docker.run(&options, &["python3", "-c", program]),
        agent.container.exec(&[], &["python3", "-c", program]),
    ]
}

/// Datagrams, raw sockets, other transports and socket options, to an address that no rule allows.
#[test]
#[ignore = "needs the rig of hack/test"]
fn no_kind_of_socket_gets_past_the_wall() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = walled(&docker, &[]);
    let attack = "\
import socket, struct
to = '198.51.100.12'
def attempt(what, work):
    try: work(); print('done', what)
    except OSError as e: print('failed', what, e.errno)
def datagram(kind, proto, port):
    s = socket.socket(socket.AF_INET, kind, proto); s.settimeout(2); s.sendto(b'ATTACK', (to, port))
for port in (443, 5353, 123): attempt(f'udp {port}', lambda: datagram(socket.SOCK_DGRAM, 0, port))
attempt('udplite', lambda: datagram(socket.SOCK_DGRAM, 136, 443))
attempt('icmp', lambda: datagram(socket.SOCK_DGRAM, 1, 0))
attempt('raw', lambda: datagram(socket.SOCK_RAW, 255, 0))
attempt('packet', lambda: socket.socket(17, socket.SOCK_RAW, 0x300).sendto(b'A' * 60, ('lo', 0)))
def stream(proto, *options):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto); s.settimeout(3)
    for option in options: s.setsockopt(*option)
    s.connect((to, 80)); s.sendall(b'GET /ATTACK HTTP/1.1\\r\\nHost: other.example.test\\r\\n\\r\\n'); s.recv(1)
for name, proto in (('tcp', 6), ('mptcp', 262), ('sctp', 132)): attempt(name, lambda: stream(proto))
attempt('dccp', lambda: socket.socket(socket.AF_INET, 6, 33).connect((to, 80)))
attempt('mark', lambda: stream(6, (socket.SOL_SOCKET, 36, 51)))
attempt('device', lambda: stream(6, (socket.SOL_SOCKET, 25, b'eth0\\0')))
attempt('transparent', lambda: stream(6, (socket.SOL_IP, 19, 1)))
attempt('freebind', lambda: stream(6, (socket.SOL_IP, 15, 1)))
s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM); s.settimeout(3)
attempt('ipv6', lambda: (s.connect(('2001:db8::12', 80)), s.sendall(b'GET /ATTACK HTTP/1.1\\r\\n\\r\\n'), s.recv(1)))
";
    let seen = || {
        let to = arrived(&["\"to\": \"198.51.100.12\""]);
        to + arrived(&["\"what\": \"udp\""]) + arrived(&["ATTACK"])
    };
    let before = seen();
    for got in by_init_and_exec(&docker, &agent, attack) {
        assert!(got.stdout.contains("udp 443"), "it ran: {got}");
        for word in [
            "done icmp",
            "done raw",
            "done packet",
            "done sctp",
            "done dccp",
        ] {
            assert!(!got.stdout.contains(word), "{got}");
        }
    }
    assert_eq!(seen(), before);
    let control = Agent::start(&docker, &["--runtime=runc"]);
    let free = control.container.exec(&[], &["python3", "-c", attack]);
    assert!(seen() > before + 3, "without the wall they arrive: {free}");
}

/// A listener on all addresses of the node, with its count of connections.
fn listener() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _read = stream.and_then(|mut s| s.read(&mut [0; 64]));
        }
    });
    (port, count)
}

/// Every address of the node, another sandbox's proxy, and the wall's own socket and files.
#[test]
#[ignore = "needs the rig of hack/test"]
fn neither_the_node_nor_another_sandbox_is_a_neighbour() {
    let docker = Docker::connect();
    let _turn = witness();
    let (port, count) = listener();
    let agent = walled(&docker, &[]);
    let other = walled(&docker, &[]);
    let theirs = other.container.inspect("{{.NetworkSettings.IPAddress}}");
    let attack = format!(
        "\
import socket, os
for host in ('127.0.0.1', '172.17.0.1', '203.0.113.1', '0.0.0.0', '{theirs}', 'localhost', 'gateway.docker.internal'):
    for port in ({port}, 2375):
        for proxy in (None, b'CONNECT %s:%d HTTP/1.1\\r\\n\\r\\n' % (host.encode(), port)):
            try:
                s = socket.create_connection(('127.0.0.1', 3128) if proxy else (host, port), 3)
                s.sendall(proxy or b'hello')
                answer = s.recv(200)
                print('answer', host, port, answer[:12])
            except OSError as e: print('failed', host, port, e.errno)
print('files', [p for p in ('/run/agentbox', '/run/docker.sock', '/var/run/docker.sock') if os.path.exists(p)])
print('unix', open('/proc/net/unix').read().count('@'))
"
    );
    for got in by_init_and_exec(&docker, &agent, &attack) {
        assert!(got.stdout.contains("files []"), "{got}");
        assert!(
            got.stdout.contains("unix 0"),
            "abstract sockets of others: {got}"
        );
        assert!(!got.stdout.contains("HTTP/1.1 200"), "{got}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    let control = Agent::start(&docker, &["--runtime=runc"]);
    let free = control.container.exec(&[], &["python3", "-c", &attack]);
    assert!(count.load(Ordering::SeqCst) > 0, "the control: {free}");
}

/// Requests over the budget are refused with a reason, for this sandbox alone.
#[test]
#[ignore = "needs the rig of hack/test"]
fn budgets_hold_from_inside() {
    let docker = Docker::connect();
    let _turn = witness();
    let budget = [
        "--annotation",
        "dev.agentbox.network.connections=4",
        "--annotation",
        "dev.agentbox.network.upload=1MiB",
    ];
    let agent = walled(&docker, &budget);
    let uploaded = || arrived(&["\"path\": \"/upload\""]);
    let before = uploaded();
    let script = "\
import socket
held = []
for i in range(12):
    s = socket.create_connection(('api.example.test', 80), 5); s.settimeout(5)
    s.sendall(b'GET /held HTTP/1.1\\r\\nHost: api.example.test\\r\\n\\r\\n')
    try: answer = s.recv(4096)
    except OSError: answer = b''
    held.append(s); print('status', answer[9:12].decode())
for s in held: s.close()
import time
for _ in range(300):
    s = socket.create_connection(('api.example.test', 80), 5); s.settimeout(5)
    s.sendall(b'GET /free HTTP/1.1\\r\\nHost: api.example.test\\r\\n\\r\\n')
    try: answer = s.recv(4096)
    except OSError: answer = b''
    s.close()
    if b' 200 ' in answer[:16]: break
    time.sleep(0.1)
s = socket.create_connection(('api.example.test', 80), 5)
try:
    s.sendall(b'POST /upload HTTP/1.1\\r\\nHost: api.example.test\\r\\nContent-Length: 5000000\\r\\n\\r\\n' + b'x' * 5000000)
    answer = s.recv(100)
    print('cut' if b' 403 ' in answer else 'uploaded', answer)
except OSError as e: print('cut', e.errno)
";
    let got = agent.container.exec(&[], &["python3", "-c", script]);
    assert_eq!(got.stdout.matches("status 200").count(), 4, "{got}");
    assert!(got.stdout.contains("cut"), "{got}");
    assert_eq!(uploaded(), before, "a whole upload arrived");
    let log = agent.violations();
    for word in [
        "network.connections allows 4",
        "network.upload allows 1048576",
    ] {
        assert!(log.contains(word), "{log}");
    }

    let few = [
        "--annotation",
        "dev.agentbox.network.connections-per-minute=6",
    ];
    let agent = walled(&docker, &few);
    let script = "\
import urllib.request as u
for i in range(12):
    try: print('status', u.urlopen('http://api.example.test/rate', timeout=5).status)
    except OSError as e: print('over', e)
";
    let got = agent.container.exec(&[], &["python3", "-c", script]);
    assert_eq!(got.stdout.matches("status 200").count(), 6, "{got}");
    assert!(
        agent
            .violations()
            .contains("connections-per-minute allows 6")
    );
}

/// Silent connections and endless heads: others are served meanwhile, and the same container afterwards.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_flood_costs_only_the_one_who_makes_it() {
    let docker = Docker::connect();
    let _turn = witness();
    let (agent, other) = (walled(&docker, &[]), walled(&docker, &[]));
    let flood = "\
import socket, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held, refused = [], 0
for i in range(3000):
    try:
        s = socket.socket(); s.settimeout(2); s.connect(('127.0.0.1', 3128) if i % 2 else ('198.18.0.1', 80))
        s.sendall(b'GET /flood HTTP/1.1\\r\\nX: ' + b'y' * 100); held.append(s)
        if len(held) == 50: open('/tmp/flood', 'w').close()
    except OSError: refused += 1
print('held', len(held), 'refused', refused, flush=True)
time.sleep(60)
";
    let id = agent.container.inspect("{{.Id}}");
    docker
        .call(&["exec", "-d", &id, "python3", "-c", flood])
        .ok();
    let begun = "for i in $(seq 300); do test -e /tmp/flood && exit 0; sleep 0.1; done; exit 1";
    agent.container.exec(&[], &["sh", "-c", begun]).ok();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let during = ["--max-time", "25", "http://api.example.test/during"];
    let theirs = other.curl(true, &during);
    assert!(
        theirs.stdout.contains("/during"),
        "another sandbox: {theirs}"
    );
    let sidecars = crate::command::run(
        "sh",
        &[
            "-c",
            "ps -eo rss=,args= | grep '[a]gentbox-sidecar' | sort -n | tail -1",
        ],
    )
    .ok();
    let resident: u64 = sidecars.split_whitespace().next().unwrap().parse().unwrap();
    assert!(
        resident < 64 << 10,
        "the sidecar has {resident} KiB: {sidecars}"
    );
    docker.call(&[
        "exec",
        &id,
        "sh",
        "-c",
        "kill -9 $(pidof python3 | tr ' ' '\\n' | grep -v '^1$')",
    ]);
    let mut again = agent.curl(true, &["http://api.example.test/after-flood"]);
    for _ in 0..10 {
        if again.stdout.contains("/after-flood") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_secs(1));
        again = agent.curl(true, &["http://api.example.test/after-flood"]);
    }
    assert!(again.stdout.contains("/after-flood"), "{again}");
    assert_eq!(arrived(&["\"/flood\""]), 0);
}

/// No program inside can write the name files, and hosts that the engine adds lead only where rules allow.
#[test]
#[ignore = "needs the rig of hack/test"]
fn names_lead_where_the_node_says_however_they_are_rewritten() {
    let docker = Docker::connect();
    let _turn = witness();
    let steered = ["--add-host", "api.example.test:10.9.9.9"];
    let agent = walled(&docker, &steered);
    let private = || arrived(&["\"to\": \"10.9.9.9\""]);
    let before = private();
    let got = agent.curl(false, &["http://api.example.test/steered"]);
    // The node's log says the address, but the container does not see it.
    assert!(
        got.stdout.contains("leads to no address that is open") && !got.stdout.contains("10.9.9.9"),
        "{got}"
    );
    assert!(agent.violations().contains("the name leads to 10.9.9.9"));
    assert_eq!(private(), before);

    let agent = walled(&docker, &[]);
    let rewrite = "for f in /etc/hosts /etc/resolv.conf; do \
                   (echo '10.9.9.9 api.example.test' >>$f) 2>&1; rm -f $f 2>&1; mv $f /tmp/x 2>&1; \
                   mount --bind /etc/passwd $f 2>&1; done; cat /etc/hosts";
    let own = "import socket\n\
               try: s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 53)); print('bound')\n\
               except OSError as e: print('not bound', e.errno)\n\
               for port in (53, 80, 443, 3128):\n\
               \x20   s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, 15, 1); s.setsockopt(socket.SOL_SOCKET, 2, 1)\n\
               \x20   try: s.bind(('0.0.0.0', port)); s.listen(); print('stolen', port)\n\
               \x20   except OSError as e: print('kept', port, e.errno)\n";
    let rewritten = agent.container.exec(&[], &["sh", "-c", rewrite]);
    assert!(!rewritten.stdout.contains("10.9.9.9 api"), "{rewritten}");
    for got in by_init_and_exec(&docker, &agent, own) {
        assert!(got.stdout.contains("kept 3128"), "{got}");
        assert!(!got.stdout.contains("stolen"), "{got}");
    }
    let reached = |path: &str| {
        let got = agent.curl(true, &[&format!("http://api.example.test{path}")]);
        assert!(got.stdout.contains("\"at\": \"198.51.100.10\""), "{got}");
    };
    reached("/rewritten");
    agent.container.call("restart", &["-t", "1"]).ok();
    reached("/restarted");
    assert_eq!(private(), before);
}
