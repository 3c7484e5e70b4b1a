//! Servers and connections that Landlock refuses: the closing lines name them, and what is read for these lines decides nothing.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use super::servers::{free_port, wrapped};
use super::{CALLERS, PRELUDE, called, outcomes};
use crate::command::{Finished, finish, run_for};
use crate::docker::Docker;
use crate::wrap::account::Account;

/// A server of this machine that closes each connection. It goes with the test's process.
fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    port
}

fn python(person: &Account, by: &str, options: &[&str], script: &str) -> Finished {
    let script = format!("{PRELUDE}{script}");
    let command = ["python3", "-c", &script];
    run_for(
        Duration::from_secs(120),
        &mut wrapped(person, by, options, &command),
    )
}

fn bare(person: &Account, script: &str) -> Finished {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{PRELUDE}{script}")]);
    run_for(
        Duration::from_secs(120),
        command.current_dir(&person.project),
    )
}

fn words(text: &str) -> Vec<String> {
    outcomes(text).into_values().collect()
}

/// Former fault: a job's server and its database were refused in silence.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_a_refused_server_and_a_refused_connection_are_named_with_their_options() {
    let _docker = Docker::connect();
    let person = Account::new();
    let service = service();
    for by in CALLERS {
        let (own, unserved) = (free_port(), free_port());
        let tries = format!(
            "attempt('server', lambda: socket.create_server(('127.0.0.1', {own})))
attempt('connection', lambda: socket.create_connection(('127.0.0.1', {service}), 10))"
        );
        let others = format!(
            "
attempt('any port', lambda: socket.create_server(('127.0.0.1', 0)))
attempt('notebook', lambda: socket.create_server(('0.0.0.0', 8888)))
attempt('nothing there', lambda: socket.create_connection(('127.0.0.1', {unserved}), 10))
attempt('a login', lambda: socket.create_connection(('127.0.0.1', 22), 10))"
        );
        let said = python(&person, by, &[], &format!("{tries}{others}"));
        assert_eq!(words(&said.stdout), ["EACCES"; 6], "{by}: {said}");
        let lines = [
            format!(
                "agentbox: a server was refused at 127.0.0.1:{own}; --publish {own} lets it listen\n"
            ),
            "agentbox: a server was refused at any free port, port 8888; let it use another one, and name that by --publish PORT\n"
                .to_owned(),
            format!(
                "agentbox: a connection to localhost:{service} was refused inside; --connect {service} reaches this machine's server\n"
            ),
        ];
        for line in &lines {
            assert_eq!(said.stderr.matches(line).count(), 1, "{by} {line}: {said}");
        }
        assert!(!said.stderr.contains(&unserved.to_string()), "{by}: {said}");
        assert!(!said.stderr.contains(":22 "), "{by}: {said}");
        // The pasted options end it.
        let ports = [own, service].map(|port| port.to_string());
        let options = ["--publish", &ports[0], "--connect", &ports[1]];
        let said = python(&person, by, &options, &tries);
        assert_eq!(words(&said.stdout), ["done"; 2], "{by}: {said}");
        assert!(!said.stderr.contains("refused"), "{by}: {said}");
        // Beside a published port, others are named too.
        let said = python(&person, by, &options[..2], &format!("{tries}{others}"));
        let line = "agentbox: a server was refused at any free port, port 8888; let it";
        assert!(said.stderr.contains(line), "{by}: {said}");
    }
    for (command, port) in [
        (
            &[
                "python3",
                "-m",
                "http.server",
                "3000",
                "--bind",
                "127.0.0.1",
            ][..],
            3000,
        ),
        (
            &["node", "-e", "require('http').createServer().listen(3001)"],
            3001,
        ),
    ] {
        let said = finish(&mut wrapped(&person, "alone", &[], command));
        let line = format!("{port}; --publish {port} lets it listen");
        assert!(said.failed().contains(&line), "{command:?}");
    }
}

/// Without a network no socket is made, so that no server and no connection is seen.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_a_command_that_fails_without_a_network_is_told_so() {
    let _docker = Docker::connect();
    let person = Account::new();
    let serve = "import socket; socket.create_server(('127.0.0.1', 3000))";
    let line = "agentbox: the command had no network (network.mode=none, ";
    for (policy, script, expected) in [
        ("strict", serve, true),
        ("strict", "pass", false),
        ("standard", serve, false),
    ] {
        let command = ["--", "python3", "-c", script];
        let words = ["wrap", "--walls", "landlock", "--policy", policy];
        let mut wrap = called(&person, "alone", &[&words[..], &command].concat());
        let said = finish(&mut wrap);
        assert_eq!(said.stderr.contains(line), expected, "{said}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_a_flood_of_refused_servers_and_connections_hides_no_other_line() {
    let _docker = Docker::connect();
    let person = Account::new();
    let service = service();
    let flood = format!(
        "import threading
def flood():
    for port in range(20000, 30000):
        socket.socket().connect_ex(('127.0.0.1', port))
        try: socket.socket().bind(('127.0.0.1', port))
        except OSError: pass
all = [threading.Thread(target=flood) for _ in range(3)]
[one.start() for one in all]
[one.join() for one in all]
socket.socket().connect_ex(('127.0.0.1', {service}))"
    );
    let said = python(&person, "alone", &[], &flood);
    let lines: Vec<&str> = said.stderr.lines().collect();
    let servers = lines.iter().filter(|line| line.contains("server was"));
    assert_eq!(servers.count(), 1, "{said}");
    assert!(said.stderr.contains(" and 9990 more;"), "{said}");
    assert!(lines.len() < 6 && said.stderr.len() < 2000, "{said}");
    let line = format!("localhost:{service}");
    assert!(said.stderr.contains(&line), "{said}");
    assert_eq!(said.code, 0, "{said}");
}

/// One thread exchanges the port in the address of connect(2). Prints the ports that were reached.
const EXCHANGED: &str = r"
import threading
address = ctypes.create_string_buffer(struct.pack('=H', 2) + struct.pack('>H', good) + bytes([127, 0, 0, 1]) + bytes(8), 16)
over = False
def swap():
    numbers = [struct.pack('>H', good), struct.pack('>H', other)]
    turn = 0
    while not over:
        ctypes.memmove(ctypes.addressof(address) + 2, numbers[turn & 1], 2)
        turn += 1
threading.Thread(target=swap, daemon=True).start()
sys.setswitchinterval(1e-6)
reached = set()
for turn in range(1000):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if libc.connect(s.fileno(), address, 16) == 0:
        try:
            reached.add(s.getpeername()[1])
            # The service closes first, so that this port is free for other tests.
            s.recv(1)
        except OSError: pass
    s.close()
over = True
for name, port in [('good', good), ('other', other)]:
    print(name, 'reached' if port in reached else 'never', flush=True)
os._exit(0)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_exchange_of_an_address_during_a_connection_reaches_another_port() {
    let _docker = Docker::connect();
    let person = Account::new();
    let (good, other) = (service(), service());
    let script = format!("good, other = {good}, {other}\n{EXCHANGED}");
    for by in CALLERS {
        let options = ["--connect", &good.to_string()];
        let walled = outcomes(&python(&person, by, &options, &script).ok());
        assert_eq!(walled["good"], "reached", "{by}: {walled:?}");
        assert_eq!(walled["other"], "never", "{by}: {walled:?}");
    }
    let control = outcomes(&bare(&person, &script).ok());
    assert_eq!(control["good"], "reached", "{control:?}");
    assert_eq!(control["other"], "reached", "{control:?}");
}

/// Addresses that cannot be read, of any length and family, for both calls.
const ODD: &str = r"
import mmap
page = mmap.mmap(-1, 8192)
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc.mprotect(ctypes.c_void_p(start + 4096), 4096, 0)
def sockaddr(family):
    return ctypes.create_string_buffer(struct.pack('=H', family) + struct.pack('>H', 3000) + bytes([127, 0, 0, 1]) + bytes(120), 128)
for name, number in [('bind', 49), ('connect', 42)]:
    def call(words, at, length, fd=None):
        s = socket.socket()
        attempt(name + ' ' + words, lambda: syscall(number, ctypes.c_long(s.fileno() if fd is None else fd), at, ctypes.c_long(length)))
    for words, at in [('null', 0), ('kernel', -4096), ('odd', 1), ('end of a page', start + 4090), ('no access', start + 4096)]:
        call(words, ctypes.c_void_p(at), 16)
    for length in (0, 1, 15, 129, 1 << 30, -1, 1 << 31):
        call('length %d' % length, sockaddr(2), length)
    for family in (1, 10, 16, 17, 255, 65535):
        call('family %d' % family, sockaddr(family), 16)
    for fd in (-1, 999, 1 << 40 | 999):
        call('descriptor %d' % fd, sockaddr(2), 16, fd)
    read, write = os.pipe()
    call('pipe', sockaddr(2), 16, read)
attempt('bind last', lambda: socket.create_server(('127.0.0.1', 3009)))
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_odd_addresses_fail_and_stop_no_line() {
    let _docker = Docker::connect();
    let person = Account::new();
    let control = outcomes(&bare(&person, ODD).ok());
    for options in [&[][..], &["--publish", "3001"]] {
        let said = python(&person, "alone", options, ODD);
        let line = "127.0.0.1:3009; --publish 3000 --publish 3009 lets it listen";
        assert!(said.stderr.contains(line), "{said}");
        let walled = outcomes(&said.ok());
        assert_eq!(walled.len(), control.len(), "{walled:?}");
        for (name, word) in &walled {
            assert_ne!(word, "done", "{name}");
            let is_same = Some(word) == control.get(name);
            // These walls have errors of their own for addresses and descriptors. A kernel's own are the same.
            let is_own = ["family", "descriptor", "pipe"];
            let is_own = is_own.iter().any(|part| name.contains(part)) || !options.is_empty();
            // No bind comes to the kernel.
            let is_refused = name.starts_with("bind") && word == "EACCES";
            assert!(
                is_same || is_own || is_refused,
                "{name}: {word}, {control:?}"
            );
        }
    }
    assert_eq!(control["bind last"], "done", "{control:?}");
}

/// Landlock does not judge the names of UNIX sockets: a daemon of the machine would not get its name.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_name_of_a_socket_of_the_machine_is_taken() {
    let _docker = Docker::connect();
    let person = Account::new();
    let script = "
one, other = socket.socketpair()
attempt('abstract', lambda: one.bind(chr(0) + 'agentbox-' + str(os.getpid())))
attempt('path', lambda: other.bind('left.sock'))";
    let left = format!("{}/left.sock", person.project);
    for by in CALLERS {
        let said = python(&person, by, &[], script);
        assert_eq!(words(&said.stdout), ["EACCES"; 2], "{by}: {said}");
        assert!(!std::path::Path::new(&left).exists(), "{by}");
    }
    let control = bare(&person, script);
    assert_eq!(words(&control.stdout), ["done"; 2], "{control}");
}

/// Binds and listens with a timer whose handler restarts calls. Prints the errors.
const TIMED: &str = r"
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
address = struct.pack('=H', 2) + struct.pack('>H', port) + bytes([127, 0, 0, 1]) + bytes(8)
errors = set()
for turn in range(300):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if libc.bind(s.fileno(), address, 16): errors.add('bind %d' % ctypes.get_errno())
    if libc.listen(s.fileno(), 1): errors.add('listen %d' % ctypes.get_errno())
    s.close()
print('errors', sorted(errors), flush=True)
os._exit(0)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_no_signal_interrupts_a_server_that_binds_and_listens() {
    let _docker = Docker::connect();
    let person = Account::new();
    for by in CALLERS {
        let port = free_port();
        let options = ["--publish", &port.to_string()];
        let said = python(&person, by, &options, &format!("port = {port}\n{TIMED}"));
        assert_eq!(said.ok(), "errors []\n", "{by}");
    }
}

/// Processes that connect and bind, and are killed while they do.
const KILLED: &str = r"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
import threading
def tries():
    while True:
        s = socket.socket()
        s.connect_ex(('127.0.0.1', 9))
        try: s.bind(('127.0.0.1', 3000))
        except OSError: pass
        s.close()
while True:
    child = os.fork()
    if child == 0:
        [threading.Thread(target=tries, daemon=True).start() for _ in range(3)]
        time.sleep(60)
    time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_callers_that_die_while_they_connect_hold_up_no_time_limit() {
    let _docker = Docker::connect();
    let person = Account::new();
    let options = ["--timeout", "10s", "--set", "time.grace=1s"];
    let said = python(&person, "alone", &options, KILLED);
    assert_eq!(said.code, 124, "{said}");
    let line = "127.0.0.1:3000; --publish 3000 lets it listen";
    assert!(said.stderr.contains(line), "{said}");
    let last = said.stderr.lines().last().unwrap();
    assert!(last.starts_with("agentbox ended the command:"), "{said}");
}
