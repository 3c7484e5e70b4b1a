//! A socket that is closed slowly keeps `wrap` from nothing.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use super::Place;
use crate::command::run_for;

/// Closes sockets with SO_LINGER and unsent data while `wrap` may hold a copy of them, then runs on. Prints the time that
/// the kernel has noted.
const LINGERING: &str = r"
import os, signal, socket, struct, sys, time
port = int(sys.argv[1])
forever = struct.pack('ii', 1, 1000)
probe = socket.socket()
probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, forever)
print('lingers', struct.unpack('ii', probe.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)), flush=True)
if len(sys.argv) > 2: os._exit(0)
junk = bytes(1 << 20)
for turn in range(100):
    child = os.fork()
    if child == 0:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, forever)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        s.setblocking(False)
        try:
            s.connect(('127.0.0.1', port))
        except BlockingIOError:
            pass
        try:
            while True: s.send(junk)
        except OSError:
            pass
        s.close()
        os._exit(0)
    time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
while True:
    socket.socket().close()
    time.sleep(0.1)
";

/// P02. `wrap` alone keeps the time limit of these walls, and it holds a copy of each new socket for a moment.
#[test]
#[ignore = "needs the rig: hack/test"]
fn p02_no_lingering_socket_stretches_the_time_limit_of_landlocks_walls() {
    let place = Place::new();
    // A service that never reads.
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let wrap = place.command(&["python3", "-c", LINGERING, &port]);
    let words: Vec<String> = (wrap.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let at = words.iter().position(|word| word == "--").unwrap();
    // On one processor the command runs on while `wrap` still holds the copy.
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", "0"]).arg(wrap.get_program());
    pinned.args(&words[..at]);
    pinned.args([
        "--connect",
        &port,
        "--timeout",
        "8s",
        "--set",
        "time.grace=1s",
    ]);
    pinned.args(&words[at..]).current_dir(&place.project);
    pinned.env("HOME", place.scratch.path("home"));
    let ended = run_for(Duration::from_secs(60), &mut pinned);
    assert_eq!(ended.code, 124, "{ended}");
    assert!(ended.stdout.contains("lingers (0, 0)"), "{ended}");
    // The control: without walls the option has its effect.
    let bare = ["-c", LINGERING, &port, "look"];
    let bare = run_for(Duration::from_secs(60), Command::new("python3").args(bare));
    assert!(bare.ok().contains("lingers (1, 1000)"));
    drop(wrap);
}
