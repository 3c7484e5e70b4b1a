//! Published ports: the command's own server at one port of the loopback, and no other.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::{CALLERS, Outcomes, PRELUDE, called, outcomes};
use crate::command::{Finished, finish, run_for};
use crate::docker::Docker;
use crate::wrap::account::Account;
use crate::wrap::publish::Serving;

const LANDLOCK: [&str; 3] = ["wrap", "--walls", "landlock"];

/// A port without a listener, which the kernel chose a moment ago.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// `wrap --walls landlock OPTIONS -- COMMAND`
pub(super) fn wrapped(person: &Account, by: &str, options: &[&str], command: &[&str]) -> Command {
    let words = [&LANDLOCK[..], &["--quiet"], options, &["--"], command].concat();
    called(person, by, &words)
}

/// What a server at a port of this machine's loopback says.
fn ask_loopback(port: u16) -> Option<String> {
    let address = ([127, 0, 0, 1], port).into();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10)).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A server at every address that greets each client, and asks itself first. Its connections are bound to the device.
fn server(port: u16, device: &str) -> String {
    format!(
        "import socket, threading
server = socket.create_server(('0.0.0.0', {port}))
def serve():
    while True:
        client, _ = server.accept()
        assert client.getsockopt(socket.SOL_SOCKET, 25, 16).strip(b'\\0') == b'{device}'
        client.sendall(b'from inside')
        client.close()
threading.Thread(target=serve, daemon=True).start()
assert socket.create_connection(('127.0.0.1', {port}), 10).recv(100) == b'from inside'
print('ready', flush=True); input()"
    )
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_a_server_is_reached_at_its_published_port_from_inside_and_outside() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let port = free_port();
        let options = ["--publish", &port.to_string()];
        let start = || {
            wrapped(
                &person,
                by,
                &options,
                &["python3", "-c", &server(port, "lo")],
            )
        };
        let serving = Serving::start(start());
        assert_eq!(ask_loopback(port).as_deref(), Some("from inside"), "{by}");
        // The port is taken while it runs.
        let taken = finish(&mut start()).failed();
        let words = ["--publish: cannot listen at", "end what listens there"];
        assert!(words.iter().all(|part| taken.contains(part)), "{taken}");
        serving.end();
        assert_eq!(ask_loopback(port), None, "{by}");
        // It is free again at once.
        Serving::start(start()).end();
    }
    let port = free_port();
    let node = format!(
        "require('net').createServer(c => c.end('from node')).listen({port}, () => require('net').connect({port}, '127.0.0.1')\
         .once('data', () => {{ console.log('ready'); process.stdin.once('data', () => process.exit(0)) }}))"
    );
    let options = ["--publish", &port.to_string()];
    let serving = Serving::start(wrapped(&person, "alone", &options, &["node", "-e", &node]));
    assert_eq!(ask_loopback(port).as_deref(), Some("from node"));
    serving.end();
    let dry = wrapped(
        &person,
        "alone",
        &["--publish", "3000", "--dry-run"],
        &["true"],
    );
    let dry = finish(&mut { dry }).ok();
    for line in [
        "the command can serve at 127.0.0.1:3000 of this machine",
        "or before that another program's",
    ] {
        assert!(dry.contains(line), "{line}: {dry}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_publish_refuses_what_needs_a_namespace_and_obeys_the_ceiling() {
    let _docker = Docker::connect();
    let person = Account::new();
    let refused = |options: &[&str]| {
        let mut wrap = wrapped(&person, "alone", options, &["echo", "ran"]);
        finish(&mut wrap).failed()
    };
    for published in ["8080:3000", "0.0.0.0:3000:3000", "[::1]:3000:3000"] {
        let why = refused(&["--publish", published]);
        let words = ["needs a network namespace", "use --publish 3000"];
        assert!(words.iter().all(|part| why.contains(part)), "{why}");
    }
    // The command reaches what listens there later, too.
    let engine = refused(&["--publish", "2375"]);
    assert!(engine.contains("Docker's API"), "{engine}");
    let low = refused(&["--publish", "80"]);
    assert!(low.contains("choose a higher one"), "{low}");
    let words = [
        &["--policy", "standard"][..],
        &LANDLOCK,
        &["--publish", "8080", "--", "true"],
    ];
    let beyond = called(&person, "sudo", &words.concat());
    let beyond = finish(&mut { beyond }).failed();
    assert!(beyond.contains("option --publish"), "{beyond}");
    // Root's command has no right to low ports, so this is said at the start.
    let root = wrapped(&person, "root", &["--publish", "80"], &["echo", "ran"]);
    let root = finish(&mut { root }).failed();
    assert!(root.contains("choose a higher one"), "{root}");
}

/// The same attempts behind the walls with a published port, and without walls.
fn attempts(person: &Account, by: &str, port: u16, script: &str) -> Outcomes {
    let script = format!("{PRELUDE}port = {port}\n{script}");
    let python = ["python3", "-c", &script];
    let options = ["--publish", &port.to_string()];
    let run = |command: &mut Command| run_for(Duration::from_secs(120), command).ok();
    let walled = run(&mut wrapped(person, by, &options, &python));
    let mut control = Command::new("python3");
    control.args(["-c", &script]).current_dir(&person.project);
    Outcomes {
        walled: outcomes(&walled),
        control: outcomes(&run(&mut control)),
    }
}

const SERVERS: &str = r"
def made():
    return socket.socket()
def bound(address, number):
    s = made()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, number))
    return s
attempt('another port', lambda: bound('127.0.0.1', port + 1 if port < 65535 else port - 1))
attempt('any port', lambda: bound('127.0.0.1', 0))
attempt('no port yet', lambda: (lambda s: (s.setsockopt(0, 24, 1), s.bind(('127.0.0.1', 0))))(made()))
attempt('another address', lambda: bound('127.0.0.9', port))
attempt('listen without bind', lambda: made().listen())
def with_range():
    s = made()
    s.setsockopt(0, 51, struct.pack('I', port << 16 | port))
    s.listen()
attempt('listen in a range of ports', with_range)
def accepted():
    server = bound('127.0.0.1', port)
    server.listen()
    client = socket.create_connection(('127.0.0.1', port))
    child, _ = server.accept()
    return server, client, child
def again(which):
    sockets = accepted()
    s = sockets[which]
    syscall(42, s.fileno(), struct.pack('H14x', 0), 16)
    for other in sockets:
        if other is not s: other.close()
    s.listen()
attempt('listen on a client', lambda: again(1))
attempt('listen on an accepted connection', lambda: again(2))
def unspecified():
    s = made()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    syscall(49, s.fileno(), struct.pack('=H', 0) + struct.pack('>H', port) + bytes(12), 16)
attempt('an address without a family', unspecified)
def pair():
    a, b = socket.socketpair()
    b.close()
    syscall(49, a.fileno(), struct.pack('=H', 1) + b'\0agentbox-%d' % os.getpid(), 20)
attempt('a name for a pair', pair)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_server_listens_at_another_port_than_a_published_one() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let port = free_port();
        let all = attempts(&person, by, port, SERVERS);
        all.all_fail_with(&["EACCES", "EADDRNOTAVAIL", "EAFNOSUPPORT"], 10);
        // The control within the walls: the same steps with the published port.
        let own = "attempt('published', lambda: accepted())\nimport os; os._exit(0)";
        let definitions = SERVERS.replace("attempt(", "(lambda *_: None)(");
        let own = attempts(&person, by, port, &format!("{definitions}{own}"));
        assert_eq!(
            own.walled.get("published").map(String::as_str),
            Some("done")
        );
    }
}

/// One thread exchanges the descriptor and the port while others bind and listen. It counts listeners at other ports.
const RACES: &str = r"
import threading
other = port + 1 if port < 65535 else port - 1
spare = made()
target = os.dup(spare.fileno())
over = False
address = ctypes.create_string_buffer(struct.pack('=H', 2) + struct.pack('>H', port) + bytes([127, 0, 0, 1]) + bytes(8), 16)
good = made()
good.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
good.bind(('127.0.0.1', port))
bad = made()
def swap():
    numbers = [struct.pack('>H', port), struct.pack('>H', other)]
    turn = 0
    while not over:
        try:
            os.dup2((good if turn & 1 else bad).fileno(), target)
        except (OSError, ValueError):
            pass
        ctypes.memmove(ctypes.addressof(address) + 2, numbers[turn >> 1 & 1], 2)
        turn += 1
threading.Thread(target=swap, daemon=True).start()
sys.setswitchinterval(1e-6)
wrong = right = 0
turn = 0
while turn < 1000 or (turn < 50000 and not right):
    turn += 1
    time.sleep(0.0001)
    libc.bind(target, address, 16)
    libc.listen(target, 1)
    number = bad.getsockname()[1]
    listens = bad.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if number not in (0, port) or (listens and number != port): wrong += 1
    right += good.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if number or listens:
        old, bad = bad, made()
        old.close()
    libc.shutdown(good.fileno(), 0)
over = True
print('wrong' if wrong else 'none', 'done', flush=True)
print('right' if right else 'never', 'done', flush=True)
os._exit(0)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_exchange_of_a_descriptor_or_an_address_makes_another_server() {
    let _docker = Docker::connect();
    let person = Account::new();
    let definitions = SERVERS.replace("attempt(", "(lambda *_: None)(");
    for by in CALLERS {
        let port = free_port();
        let all = attempts(&person, by, port, &format!("{definitions}{RACES}"));
        let names = |of: &std::collections::BTreeMap<String, String>| -> Vec<String> {
            of.keys().cloned().collect()
        };
        assert_eq!(names(&all.walled), ["none", "right"], "{by}");
        // The control: without walls the same races end at other ports.
        assert_eq!(names(&all.control), ["right", "wrong"], "{by}");
    }
}

/// Another machine: a network namespace behind a pair of devices.
struct Machine;

impl Machine {
    const OWN: &str = "198.51.100.5";
    const OTHER: &str = "198.51.100.6";

    fn new() -> Self {
        let setup = format!(
            "ip netns add abxpub && ip link add abxpub0 type veth peer name abxpub1 netns abxpub && \
             ip addr add {}/30 dev abxpub0 && ip link set abxpub0 up && \
             ip -n abxpub addr add {}/30 dev abxpub1 && ip -n abxpub link set abxpub1 up",
            Self::OWN,
            Self::OTHER
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &setup]);
        finish(&mut shell).ok();
        Self
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", "abxpub", "python3", "-c", script]);
        command
    }

    /// What it hears at a port of this machine.
    fn asks(&self, port: u16) -> Finished {
        let script = format!(
            "import socket; print(socket.create_connection(('{}', {port}), 5).recv(100).decode())",
            Self::OWN
        );
        finish(&mut self.command(&script))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for words in ["link del abxpub0", "netns del abxpub"] {
            let _ = Command::new("ip").args(words.split(' ')).status();
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_a_published_port_leads_to_no_other_machine_and_from_none() {
    let _docker = Docker::connect();
    let person = Account::new();
    let other = Machine::new();
    for by in CALLERS {
        // Its server at the same port.
        let port = free_port();
        let script = format!(
            "import socket, threading
s = socket.create_server(('0.0.0.0', {port}))
def serve():
    while True: s.accept()[0].sendall(b'elsewhere')
threading.Thread(target=serve, daemon=True).start()
print('ready', flush=True); input()"
        );
        let serving = Serving::start(other.command(&script));
        let ask = format!(
            "def ask(s): s.settimeout(5); s.connect(('{}', port)); assert s.recv(9) == b'elsewhere'
attempt('new', lambda: ask(socket.socket()))
def accepted():
    server = socket.create_server(('0.0.0.0', port))
    client = socket.create_connection(('127.0.0.1', port))
    child, _ = server.accept()
    client.close(); server.close()
    syscall(42, child.fileno(), struct.pack('H14x', 0), 16)
    return child
attempt('accepted', lambda: ask(accepted()))
def bound():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('0.0.0.0', port))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'')
    ask(s)
attempt('bound', bound)",
            Machine::OTHER
        );
        let all = attempts(&person, by, port, &ask);
        assert_eq!(all.walled.len(), 3, "{by}: {:?}", all.walled);
        assert!(
            all.walled.values().all(|word| word != "done"),
            "{by}: {:?}",
            all.walled
        );
        for name in ["new", "accepted", "bound"] {
            let control = all.control.get(name).map(String::as_str);
            assert_eq!(control, Some("done"), "{by} {name}: {:?}", all.control);
        }
        serving.end();
        // The command's server.
        let options = ["--publish", &port.to_string()];
        let python = ["python3", "-c", &server(port, "lo")];
        let serving = Serving::start(wrapped(&person, by, &options, &python));
        assert_eq!(ask_loopback(port).as_deref(), Some("from inside"));
        let refused = other.asks(port).failed();
        assert!(refused.contains("refused"), "{by}: {refused}");
        serving.end();
        // The control: without walls it is reached.
        let mut bare = Command::new("python3");
        bare.args(["-c", &server(port, "")]);
        let serving = Serving::start(bare);
        assert!(other.asks(port).ok().contains("from inside"), "{by}");
        serving.end();
    }
}
