//! Requests on port 80 that two servers would parse differently (N-L1; N34 of docs/threats.md), heads in single bytes
//! and an omitted port.

use super::under;
use crate::docker::Docker;
use crate::docker::allowlist::{Agent, arrived, witness};

/// Sends a request with a second one in its body. A server that ignores the body serves both.
fn smuggle(agent: &Agent<'_>, (place, port): (&str, u16), shape: &str) -> String {
    let program = format!(
        r#"
import socket
inner = b"GET /smuggled HTTP/1.1\r\nHost: other.example.test\r\n\r\n"
fields = dict(get=b"GET", head=b"HEAD", delete=b"DELETE", upgrade=b"POST")
upgrade = b"Upgrade: x\r\nConnection: Upgrade\r\n" if "{shape}" == "upgrade" else b""
target = b"http://api.example.test/lax" if {port} == 3128 else b"/lax"
s = socket.create_connection(("{place}", {port}), 10)
s.settimeout(3)
s.sendall(fields["{shape}"] + b" " + target + b" HTTP/1.1\r\nHost: api.example.test\r\n" + upgrade + b"Content-Length: %d\r\n\r\n" % len(inner) + inner)
got = b""
try:
    while len(got) < 4000:
        more = s.recv(4000)
        if not more: break
        got += more
except OSError:
    pass
print(got.count(b"HTTP/1.1 200"), got.count(b"HTTP/1.1 40"))
"#
    );
    agent.python(&program).stdout
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_body_hides_a_request_for_another_host() {
    let docker = Docker::alone();
    let _turn = witness();
    let control = Agent::free(&docker);
    let agent = under(&docker, &["network.allow=api.example.test:80"]);
    let smuggled = || arrived(&["\"/smuggled\"", "other.example.test"]);
    for shape in ["get", "head", "delete", "upgrade"] {
        let before = smuggled();
        let said = smuggle(&control, ("198.51.100.10", 80), shape);
        assert_eq!(
            (said.as_str(), smuggled()),
            ("2 0\n", before + 1),
            "the control: {shape}"
        );
        for place in [("api.example.test", 80), ("127.0.0.1", 3128)] {
            // The proxy sends no Upgrade on.
            if (place.1, shape) == (3128, "upgrade") {
                continue;
            }
            let said = smuggle(&agent, place, shape);
            assert_eq!(
                (said.as_str(), smuggled()),
                ("0 1\n", before + 1),
                "{place:?} {shape}"
            );
        }
    }
    let log = agent.violations();
    assert!(
        log.contains("the request can be read in two ways: a body"),
        "{log}"
    );
    // Ordinary ones pass as before.
    for arguments in [
        &["-d", "hello", "http://api.example.test/x"][..],
        &["-X", "DELETE", "http://api.example.test/x"],
        &["-I", "http://api.example.test/x"],
    ] {
        let got = agent.curl(true, &[&["-f"], arguments].concat());
        assert_eq!(got.code, 0, "{got}");
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn heads_in_single_bytes_and_ports_that_are_left_out_pass() {
    let docker = Docker::alone();
    let _turn = witness();
    let agent = under(&docker, &["network.allow=api.example.test:80"]);
    for (place, head) in [
        (
            "(\"127.0.0.1\", 3128)",
            "GET http://api.example.test:80/x HTTP/1.1\\r\\nHost: api.example.test\\r\\n\\r\\n",
        ),
        (
            "(\"127.0.0.1\", 3128)",
            "GET http://api.example.test/x HTTP/1.1\\r\\nHost: api.example.test:80\\r\\n\\r\\n",
        ),
        (
            "(\"api.example.test\", 80)",
            "GET /x HTTP/1.1\\r\\nHost: api.example.test:80\\r\\n\\r\\n",
        ),
    ] {
        let program = format!(
            "import socket\n\
             s = socket.create_connection({place}, 10); s.settimeout(10)\n\
             s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n\
             for byte in b\"{head}\":\n\
             \x20   s.send(bytes([byte]))\n\
             print(s.recv(12))\n"
        );
        let got = agent.python(&program);
        assert_eq!(got.stdout, "b'HTTP/1.1 200'\n", "{head}: {got}");
    }
}
