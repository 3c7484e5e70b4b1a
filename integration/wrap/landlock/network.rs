//! Sockets: the command can make one kind, and it reaches only the proxy.

use super::{PRELUDE, Place, outcomes};
use crate::command::{await_that, awaited};
use crate::direct::{Scratch, program};
use crate::docker::{Container, Docker};

/// A container without options except the program and the policy's files, another one that serves, and the policy `net`
/// with its name `web.test`.
struct Two<'a> {
    job: Container<'a>,
    web: Container<'a>,
    scratch: Scratch,
}

fn address(container: &Container<'_>) -> String {
    container.inspect("{{.NetworkSettings.IPAddress}}")
}

fn two(docker: &Docker) -> Two<'_> {
    let scratch = Scratch::new();
    let mounted = |name: &str, text: &str| {
        let path = scratch.file(name, text);
        format!("{path}:/etc/agentbox/{name}:ro")
    };
    let files = [
        mounted("config.toml", "ceiling = \"roof\"\n"),
        mounted(
            "policies/roof.toml",
            "base = \"permissive\"\n[network]\nlimit = [\"*\", \"internal:*\"]\n",
        ),
        mounted(
            "policies/net.toml",
            "base = \"standard\"\n[network]\nmode = \"allowlist\"\nallow = [\"internal:web.test:8080\"]\n",
        ),
        format!("{}:/ab:ro", program()),
    ];
    let serve = "mkdir -p /srv/w && cd /srv/w && echo from-the-web >index.html && exec python3 -m http.server 8080";
    let web = docker.start(
        &["--runtime", "runc"],
        &["test-workloads", "sh", "-c", serve],
    );
    let host = format!("web.test:{}", address(&web));
    let other = format!("other.test:{}", address(&web));
    let mut options = vec![
        "--runtime",
        "runc",
        "-w",
        "/w",
        "--add-host",
        &host,
        "--add-host",
        &other,
    ];
    for file in &files {
        options.extend(["-v", file]);
    }
    let job = docker.start(&options, &["test-workloads", "sleep", "1000"]);
    Two { job, web, scratch }
}

impl Two<'_> {
    fn wrap(&self, command: &[&str]) -> crate::command::Finished {
        let wrap = [
            "/ab", "wrap", "--walls", "landlock", "--policy", "net", "--",
        ];
        self.job.exec(&[], &[&wrap[..], command].concat())
    }
}

const FAMILIES: &str = r"
families = [('UNIX', 1), ('IPv4', 2), ('IPv6', 10), ('NETLINK', 16), ('PACKET', 17), ('ALG', 38), ('VSOCK', 40), ('QIPCRTR', 42), ('SMC', 43), ('XDP', 44)]
for family, number in families:
    for kind in (1, 2, 3, 4, 5, 6, 10):
        for protocol in (0, 1, 6, 17, 132, 136, 255, 262):
            def make():
                syscall(41, number, kind, protocol)
            attempt('%s %d %d' % (family, kind, protocol), make)
attempt('pair of datagrams', lambda: syscall(53, 1, 2, 0, (ctypes.c_int * 2)()))
attempt('io_uring', lambda: syscall(425, 1, ctypes.create_string_buffer(120)))
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_socket_is_made_but_tcp_to_the_proxy() {
    let docker = Docker::connect();
    let two = two(&docker);
    let script = format!("{PRELUDE}{FAMILIES}");
    let walled = outcomes(&two.wrap(&["python3", "-c", &script]).ok());
    let made: Vec<_> = walled.iter().filter(|(_, word)| *word == "done").collect();
    let names: Vec<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["IPv4 1 0", "IPv4 1 6"], "{walled:?}");
    // The control: many of the others can be made without walls.
    let control = outcomes(&two.job.exec(&[], &["python3", "-c", &script]).ok());
    for name in [
        "UNIX 1 0",
        "UNIX 2 0",
        "IPv4 2 0",
        "IPv4 3 1",
        "NETLINK 3 0",
        "pair of datagrams",
    ] {
        assert_eq!(
            control.get(name).map(String::as_str),
            Some("done"),
            "{name}: {control:?}"
        );
    }
    // If no host is listed, the same kind reaches the proxy, which refuses.
    let mut place = Place::new();
    let local = outcomes(&place.wrap(&["python3", "-c", &script]).ok());
    let mut made: Vec<_> = local.iter().filter(|(_, word)| *word == "done").collect();
    made.retain(|(name, _)| !names.contains(&name.as_str()));
    assert!(made.is_empty(), "{made:?}");
    // Without a network, not even that kind can be made.
    place.policy = Some("strict".to_owned());
    let none = outcomes(&place.wrap(&["python3", "-c", &script]).ok());
    assert!(
        none.len() > 400 && none.values().all(|word| word != "done"),
        "{none:?}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_names_of_the_policy_are_reached_through_the_proxy_and_others_told_why_not() {
    let docker = Docker::connect();
    let two = two(&docker);
    let curl = |url: &str| two.wrap(&["curl", "-sS", "-m", "10", url]).to_string();
    awaited("the server", || match curl("http://web.test:8080/") {
        said if said.contains("from-the-web") => Ok(()),
        said => Err(said),
    });
    let refused = curl("http://other.test:8080/");
    assert!(
        refused.contains("no rule in network.allow matches it"),
        "{refused}"
    );
    assert!(refused.contains("agentbox wrap"), "{refused}");
    // The control: without walls both names lead there.
    let bare = two
        .job
        .exec(&[], &["curl", "-sS", "-m", "10", "http://other.test:8080/"]);
    assert!(bare.ok().contains("from-the-web"));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_the_proxys_port_on_another_machine_is_out_of_reach() {
    let docker = Docker::connect();
    let two = two(&docker);
    let (own, other) = (address(&two.job), address(&two.web));
    // The script writes the proxy's port to a file. Once another container listens on that port, it tries to connect.
    let script = format!(
        r"
port = int(os.environ['HTTP_PROXY'].rsplit(':', 1)[1])
open('port', 'w').write(str(port))
while not os.path.exists('go'):
    time.sleep(0.05)
def reach(address, port):
    with socket.socket() as s:
        s.settimeout(3)
        s.connect((address, port))
attempt('proxy', lambda: reach('127.0.0.1', port))
attempt('same port elsewhere', lambda: reach('{other}', port))
attempt('same port of its own address', lambda: reach('{own}', port))
attempt('another port', lambda: reach('{other}', 8080))
def fast_open(address, port):
    with socket.socket() as s:
        s.settimeout(3)
        s.sendto(b'x', 0x20000000, (address, port))
attempt('fast open', lambda: fast_open('{other}', 8080))
attempt('fast open on the same port', lambda: fast_open('{other}', port))
def unbound():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'')
attempt('leave the loopback', unbound)
def rebound():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0')
attempt('another device', rebound)
def by_index():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, 62, 0)
attempt('no device by number', by_index)
def later():
    s = socket.socket()
    s.settimeout(3)
    s.connect(('127.0.0.1', port))
    syscall(42, s.fileno(), struct.pack('H14x', 0), 16)
    s.connect(('{other}', port))
attempt('connected again', later)
def serve():
    s = socket.socket()
    s.bind(('0.0.0.0', 0))
attempt('a server', serve)
def flags():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    assert not os.get_inheritable(s.fileno()) and not os.get_blocking(s.fileno())
    fd = syscall(41, 2, 1, 0)
    assert os.get_inheritable(fd) and os.get_blocking(fd)
attempt('flags', flags)
"
    );
    two.job.exec(&[], &["rm", "-f", "port", "go"]).ok();
    let waiting = "while ! [ -s port ]; do sleep 0.05; done; cat port";
    let attacked = std::thread::scope(|scope| {
        let script = format!("{PRELUDE}{script}");
        let two = &two;
        let attack = scope.spawn(move || two.wrap(&["python3", "-c", &script]));
        let port = two
            .job
            .exec(&[], &["timeout", "30", "sh", "-c", waiting])
            .ok();
        two.web
            .exec(&["-d"], &["python3", "-m", "http.server", port.trim()])
            .ok();
        // The control: from the same container, without walls, that port can be reached.
        let url = format!("http://{other}:{}/", port.trim());
        await_that("the control", || {
            two.job.exec(&[], &["curl", "-sS", "-m", "5", &url]).code == 0
        });
        two.job.exec(&[], &["touch", "go"]).ok();
        outcomes(&attack.join().unwrap().ok())
    });
    assert_eq!(attacked.len(), 12, "{attacked:?}");
    for (name, word) in &attacked {
        let reached = word == "done";
        let may = name == "proxy" || name == "flags";
        assert_eq!(reached, may, "{name}: {attacked:?}");
    }
    drop(two.scratch);
}

/// Makes many connections to a port, keeps them, sends a request over each, and counts the resets.
const CROWD: &str = r"
import socket, sys
port, crowd, ended = int(sys.argv[1]), [], 0
for _ in range(400):
    try:
        crowd.append(socket.create_connection(('127.0.0.1', port), 10))
    except ConnectionError:
        ended += 1
for s in crowd:
    try:
        s.settimeout(10)
        s.sendall(b'GET http://web.test:8080/ HTTP/1.1\r\nHost: web.test:8080\r\n\r\n')
        ended += not s.recv(4096)
    except ConnectionError:
        ended += 1
print('ended', ended)
";

/// N55. Containers of a pod share the loopback interface, and so do all users of a machine.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_the_proxy_serves_only_the_commands_sockets() {
    let docker = Docker::connect();
    let two = two(&docker);
    let network = format!("container:{}", two.job.inspect("{{.Id}}"));
    let beside = docker.start(
        &["--runtime", "runc", "--network", &network, "-u", "1000"],
        &["test-workloads", "sleep", "1000"],
    );
    two.job.exec(&[], &["rm", "-f", "port", "go"]).ok();
    let script = "echo ${HTTP_PROXY##*:} >port; while ! [ -e go ]; do sleep 0.05; done; \
                  curl -sS -m 20 http://web.test:8080/ || curl -sS -m 20 http://web.test:8080/";
    let waiting = "while ! [ -s port ]; do sleep 0.05; done; cat port";
    let own = std::thread::scope(|scope| {
        let two = &two;
        let own = scope.spawn(move || two.wrap(&["sh", "-c", script]));
        let port = two
            .job
            .exec(&[], &["timeout", "30", "sh", "-c", waiting])
            .ok();
        let proxy = format!("http://127.0.0.1:{}", port.trim());
        let ask = [
            "curl",
            "-sS",
            "-m",
            "10",
            "-x",
            &proxy,
            "http://web.test:8080/",
        ];
        let strangers = [
            beside.exec(&[], &ask),
            two.job.exec(&["-u", "65534"], &ask),
            two.job.exec(&[], &ask),
        ];
        let crowd = beside.exec(&[], &["python3", "-c", CROWD, port.trim()]);
        // The control: the proxy refuses, while each of them can reach the server itself.
        let url = format!("http://{}:8080/", address(&two.web));
        let bare = beside.exec(&[], &["curl", "-sS", "-m", "10", &url]);
        two.job.exec(&[], &["touch", "go"]).ok();
        let own = own.join().unwrap();
        for stranger in &strangers {
            assert_ne!(stranger.code, 0, "{stranger}");
            assert_eq!(stranger.stdout, "", "{stranger}");
        }
        assert_eq!(crowd.ok().trim(), "ended 400");
        assert!(bare.ok().contains("from-the-web"));
        own
    });
    // The control: the command's own connection, to the same port at the same time.
    assert!(own.stdout.contains("from-the-web"), "{own}");
    for user in [0, 1000, 65534] {
        let line = format!("another program (user {user}) came to the proxy");
        assert!(own.stderr.contains(&line), "{own}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_unix_socket_of_the_node_is_reached() {
    let place = Place::new();
    let path = place.scratch.path("home/project/engine.sock");
    let stream = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let datagrams = format!("{path}.datagrams");
    let messages = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    // Mounts would hide a socket in the workspace. Here it has a name, but connecting fails.
    let script = format!(
        r"
def stream():
    s = socket.socket(socket.AF_UNIX)
    s.connect('{path}')
attempt('stream', stream)
def datagram():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.sendto(b'x', '{datagrams}')
attempt('datagram', datagram)
def pair():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.connect('{datagrams}')
attempt('pair connected again', pair)
def abstract():
    s = socket.socket(socket.AF_UNIX)
    s.bind('\0agentbox-{}')
attempt('abstract', abstract)
",
        std::process::id()
    );
    let seen = place.wrap(&["true"]);
    // The search finds it, as for a mount, and reports that it cannot be hidden.
    assert!(seen.stderr.contains("engine.sock"), "{seen}");
    drop((stream, messages));
    for path in [&path, &datagrams] {
        std::fs::remove_file(path).unwrap();
    }
    let outside = place.scratch.dir("home/other");
    let path_outside = format!("{outside}/engine.sock");
    let _stream = std::os::unix::net::UnixListener::bind(&path_outside).unwrap();
    let _messages =
        std::os::unix::net::UnixDatagram::bind(format!("{path_outside}.datagrams")).unwrap();
    let script = script.replace(&path, &path_outside);
    place
        .attempts(&script)
        .all_fail_with(&["EACCES", "EPROTONOSUPPORT"], 4);
}
