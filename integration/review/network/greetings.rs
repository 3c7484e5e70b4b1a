//! A second TLS greeting, after the server asks for another key share, must not name another host than the first (N-H3,
//! N29 of the threat list). The servers use OpenSSL, which takes the second name.

use super::{agentbox, under};
use crate::docker::Docker;
use crate::docker::allowlist::{Agent, arrived, witness};

/// Greets as a TLS 1.3 client without a key share, waits for HelloRetryRequest, and greets again with another name:
/// `client.py HOW HOST PORT SECOND`. Prints the server's answer.
const CLIENT: &str = r#"
import socket, struct, sys
how, host, port, second = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
AGAIN = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
def vector(data, size=2):
    return len(data).to_bytes(size, "big") + data
def extension(kind, data):
    return struct.pack(">H", kind) + vector(data)
def hello(name, share):
    extensions = extension(0, vector(b"\0" + vector(name.encode())))
    extensions += extension(43, b"\x02\x03\x04") + extension(10, vector(bytes.fromhex("001d0017")))
    extensions += extension(13, vector(bytes.fromhex("040308040401"))) + extension(51, vector(share))
    body = b"\x03\x03" + b"\x07" * 32 + vector(b"\x05" * 32, 1) + vector(bytes.fromhex("13011302")) + b"\x01\0" + vector(extensions)
    return b"\x01" + vector(body, 3)
def record(kind, data):
    return bytes([kind, 3, 1]) + vector(data)
def read(s, length):
    data = b""
    while len(data) < length:
        more = s.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data
def server_hello(s):
    while True:
        kind, _, length = struct.unpack(">BHH", read(s, 5))
        data = read(s, length)
        if kind == 22:
            return "again" if data[6:38] == AGAIN else "answer"
        if kind != 20:
            return "alert"
if how == "connect":
    s = socket.create_connection(("127.0.0.1", 3128), 10)
    s.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += read(s, 1)
    assert b" 200 " in answer, answer
else:
    s = socket.create_connection((host, port), 10)
s.settimeout(10)
s.sendall(record(22, hello("api.example.test", b"")))
print(server_hello(s), flush=True)
share = struct.pack(">H", 0x1d) + vector(b"\x09" + b"\0" * 31)
again = hello(second, share)
pieces = [again[:40], again[40:]] if how == "pieces" else [again]
s.sendall(record(20, b"\x01") + b"".join(record(22, piece) for piece in pieces))
try:
    print(server_hello(s))
except (OSError, EOFError):
    print("broken")
"#;

fn greet(agent: &Agent<'_>, how: &str, host: &str, port: &str, second: &str) -> String {
    let command = ["python3", "-c", CLIENT, how, host, port, second];
    let got = agent.container.exec(&[], &command);
    assert_eq!(got.code, 0, "{got}");
    got.stdout
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_second_greeting_names_nobody_else() {
    let docker = Docker::alone();
    let _turn = witness();
    let second = || arrived(&["\"sni\"", "other.example.test"]);
    // Outside the wall, the server accepts the second name.
    let control = Agent::free(&docker);
    let before = second();
    let said = greet(
        &control,
        "direct",
        "198.51.100.10",
        "443",
        "other.example.test",
    );
    assert_eq!(said, "again\nanswer\n");
    assert_eq!(second(), before + 1, "the control");

    let agent = under(
        &docker,
        &["network.allow=api.example.test, api.example.test:8443"],
    );
    for port in ["443", "8443"] {
        for how in ["direct", "connect", "pieces"] {
            let honest = greet(&agent, how, "api.example.test", port, "api.example.test");
            assert_eq!(honest, "again\nanswer\n", "{how} {port}");
            let said = greet(&agent, how, "api.example.test", port, "other.example.test");
            assert_eq!(said, "again\nbroken\n", "{how} {port}");
        }
    }
    assert_eq!(second(), before + 1, "no server has heard the other name");
    agent.counted("the TLS greeting names another host", 6);
    // A real client's streams work as before.
    for port in ["443", "8443"] {
        let url = format!("https://api.example.test:{port}/bytes/3000000");
        let size = ["-o", "/dev/null", "-w", "%{size_download}", &url];
        assert_eq!(agent.curl(true, &size).stdout, "3000000");
    }
    let id = agent.container.inspect("{{.Id}}");
    let shown = agentbox(&["network", "--format", "json", &id]).ok();
    assert!(shown.contains("\"content-or-address\": 6"), "{shown}");
}

/// Sends some bytes first, and then greets with another name: `records.py HOST PORT FIRST`, FIRST in hexadecimal.
/// Prints whether the server answered.
const RECORDS: &str = r#"
import socket, ssl, sys
host, port, first = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
tls = context.wrap_bio(incoming, outgoing, server_hostname="other.example.test")
try:
    tls.do_handshake()
except ssl.SSLWantReadError:
    pass
s = socket.create_connection((host, port), 10)
s.settimeout(10)
try:
    s.sendall(first + outgoing.read())
    print("answer" if s.recv(1) else "broken")
except OSError:
    print("broken")
"#;

/// On ports other than 443: a record of another type, or an SSLv2 greeting, does not hide the greeting after it (N29).
#[test]
#[ignore = "needs the rig of hack/test"]
fn nothing_before_a_greeting_hides_it() {
    let docker = Docker::alone();
    let _turn = witness();
    let agent = under(&docker, &["network.allow=api.example.test:8443"]);
    let heard = || arrived(&["\"sni\"", "other.example.test"]);
    let control = Agent::free(&docker);
    let before = heard();
    let direct = ["python3", "-c", RECORDS, "198.51.100.10", "8443", ""];
    assert_eq!(control.container.exec(&[], &direct).stdout, "answer\n");
    assert_eq!(heard(), before + 1, "the control");
    let before = heard();
    let firsts = [
        "",
        "1503010002015a",
        "140301000101",
        "170301000100",
        "8003010301",
    ];
    for first in firsts {
        let command = ["python3", "-c", RECORDS, "api.example.test", "8443", first];
        let got = agent.container.exec(&[], &command);
        assert_eq!(got.stdout, "broken\n", "{first}: {got}");
    }
    assert_eq!(heard(), before, "no server has heard the other name");
    let log = agent.counted("greeting", firsts.len() as u64);
    assert!(log.contains("SSLv2"), "{log}");
}
