//! WebSockets to hosts with request rules, in plain HTTP and within opened TLS (N46 of the threat list). Nothing reads
//! their content, so each needs its own rule, and no byte is sent before the host agrees.

use std::process::Command;

use data_encoding::HEXLOWER;

use super::allowlist::{Agent, INTERNET, arrived, witness};
use super::requests::trusting;
use super::{Docker, runtime};
use crate::command::{Finished, at_once, finish, run};

const ALLOW: &str = "dev.agentbox.network.allow=GET,POST https://api.example.test/repos/acme/**, \
                     WEBSOCKET https://api.example.test/repos/acme/socket*, WEBSOCKET http://index.example.test/socket";
const OPEN: [&str; 2] = ["--annotation", "dev.agentbox.network.tls=open"];

fn start<'a>(docker: &'a Docker, more: &[&str]) -> Agent<'a> {
    let all = [&[runtime(), "--annotation", ALLOW], more].concat();
    Agent::start(docker, &all)
}

/// Opens a WebSocket with a real client, sends a short and a long message, and prints the answers.
fn talk(agent: &Agent<'_>, address: &str) -> Finished {
    let program = format!(
        "import asyncio, ssl, websockets\n\
         async def talk():\n  \
           tls = dict(ssl=ssl.create_default_context(cafile='/authority.crt')) if '{address}'.startswith('wss') else dict()\n  \
           try:\n    \
             async with websockets.connect('{address}', open_timeout=20, **tls) as socket:\n      \
               print(await socket.recv())\n      \
               await socket.send('short')\n      \
               print(await socket.recv())\n      \
               await socket.send(b'x' * 60000)\n      \
               print(len(await socket.recv()))\n  \
           except websockets.InvalidStatusCode as e: print('refused', e.status_code)\n\
         asyncio.run(talk())"
    );
    agent.python(&program)
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_websocket_opens_where_a_rule_names_it() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let whole = "hello\nshort\n60000\n";
    let free = Agent::free(&docker);
    for address in [
        "wss://api.example.test/repos/acme/other/socket",
        "ws://api.example.test/repos/acme/other/socket",
    ] {
        let control = talk(&free, address);
        assert_eq!(control.stdout, whole, "{address}: {control}");
    }
    drop(free);
    let before = arrived(&["/repos/acme/other/socket"]);
    for (scheme, more) in [("ws", &[][..]), ("wss", &OPEN)] {
        let agent = start(&docker, more);
        let got = talk(
            &agent,
            &format!("{scheme}://api.example.test/repos/acme/socket"),
        );
        assert_eq!(got.stdout, whole, "{got}");
        // To a host in plain HTTP.
        let got = talk(&agent, "ws://index.example.test/socket");
        assert_eq!(got.stdout, whole, "{got}");
        // A rule that allows the GET does not allow the WebSocket.
        let other = format!("{scheme}://api.example.test/repos/acme/other/socket");
        let refused = talk(&agent, &other);
        assert_eq!(refused.stdout, "refused 426\n", "{refused}");
        let plain = format!("http{}", other.trim_start_matches("ws"));
        let asked = agent.curl(true, &[&plain]);
        assert!(
            asked.stdout.contains("/repos/acme/other/socket\""),
            "{asked}"
        );
        let log = agent.counted("request-not-listed", 1);
        assert!(
            log.contains("WEBSOCKET https://api.example.test/repos/acme/other/socket"),
            "{log}"
        );
        // A host that does not agree answers normally.
        let got = talk(
            &agent,
            &format!("{scheme}://api.example.test/repos/acme/socketless"),
        );
        assert_eq!(got.stdout, "refused 200\n", "{got}");
    }
    // The two plain requests for it.
    assert_eq!(arrived(&["/repos/acme/other/socket"]), before + 2);
}

/// A handwritten client, in plain HTTP or within TLS: sends the first bytes, and the others after an answer.
fn said(agent: &Agent<'_>, tls: bool, first: impl AsRef<[u8]>, then: impl AsRef<[u8]>) -> String {
    let program = format!(
        "import socket, ssl\ns = socket.create_connection(('api.example.test', 443 if {tls} else 80), 10)\n\
         if {tls}: s = ssl.create_default_context(cafile='/authority.crt').wrap_socket(s, server_hostname='api.example.test')\n\
         s.settimeout(1); s.sendall(bytes.fromhex('{first}')); all = b''\n\
         try:\n  all += s.recv(65536); s.sendall(bytes.fromhex('{then}'))\n  while (d := s.recv(65536)): all += d\n\
         except OSError as e: all += repr(e).encode()\n\
         print(all.decode('latin-1'))",
        tls = if tls { "True" } else { "False" },
        first = HEXLOWER.encode(first.as_ref()),
        then = HEXLOWER.encode(then.as_ref()),
    );
    agent.python(&program).stdout
}

fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: api.example.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{more}\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// A request that only an attack would send.
const HIDDEN: &str = "GET /evil/hidden HTTP/1.1\r\nHost: api.example.test\r\n\r\n";

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_handshake_hides_a_request() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let good = handshake("/repos/acme/socket", "");
    // The message `ok`, with a mask of zeros.
    let frame = b"\x81\x82\0\0\0\0ok";
    // Without walls each of them arrives, as a request or as bytes after a change of protocol.
    let free = Agent::free(&docker);
    said(
        &free,
        false,
        handshake("/repos/acme/socket-unproven", ""),
        HIDDEN,
    );
    assert_eq!(arrived(&["switched", "evil"]), 1);
    said(&free, false, handshake("/repos/acme/none", ""), HIDDEN);
    assert_eq!(arrived(&["http", "/evil/hidden"]), 1);
    drop(free);
    let before = arrived(&["evil"]);
    for (tls, more) in [(false, &[][..]), (true, &OPEN)] {
        let agent = start(&docker, more);
        let control = said(&agent, tls, &good, frame);
        assert!(
            control.contains("101 Switching")
                && control.contains("hello")
                && control.contains("ok"),
            "{control}"
        );
        let shapes = [
            // Bytes before the answer, a request or not, do not pass.
            (format!("{good}{HIDDEN}"), ""),
            // A host that switches protocols without proof, or to another protocol, gets nothing more.
            (handshake("/repos/acme/socket-unproven", ""), HIDDEN),
            (handshake("/repos/acme/socket-h2c", ""), HIDDEN),
            // If a host does not agree, the bytes that follow are a request.
            (handshake("/repos/acme/socketless", ""), HIDDEN),
            // Requests that some servers take for a handshake.
            (
                good.replace("Upgrade: websocket", "Upgrade: websocket, h2c"),
                HIDDEN,
            ),
            (good.replace("Upgrade: websocket", "Upgrade: h2c"), HIDDEN),
            (
                good.replace("Connection: Upgrade", "Connection: close"),
                HIDDEN,
            ),
            (good.replace("Version: 13", "Version: 7"), HIDDEN),
            (good.replace("dGhlIHNhbXBsZSBub25jZQ==", "evil"), HIDDEN),
            (good.replace("GET /", "POST /"), HIDDEN),
            (good.replace("GET /", "WEBSOCKET /"), HIDDEN),
            (good.replace("HTTP/1.1", "HTTP/1.0"), HIDDEN),
            (
                handshake(
                    "/repos/acme/socket",
                    &format!("Content-Length: {}\r\n", HIDDEN.len()),
                ),
                HIDDEN,
            ),
        ];
        at_once(&shapes, |(first, then)| {
            let got = said(&agent, tls, first, then);
            assert_eq!(arrived(&["evil"]), before, "{first:?} {got}");
            assert!(!got.contains("hello"), "{first:?} {got}");
        });
        let early = [good.as_bytes(), frame, b"evil"].concat();
        let got = said(&agent, tls, early, "");
        assert!(!got.contains("hello"), "{got}");
        assert_eq!(arrived(&["evil"]), before, "{got}");
        // A connection whose host did not agree goes on.
        let next = "GET /repos/acme/next HTTP/1.1\r\nHost: api.example.test\r\n\r\n";
        let first = handshake("/repos/acme/socketless", "");
        let got = said(&agent, tls, &first, next);
        assert_eq!(got.matches("200 OK").count(), 2, "{got}");
    }
}

/// Like any other connection's bytes.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_websocket_ends_with_its_rule_and_its_budget() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let budget = ["--annotation", "dev.agentbox.network.upload=1MiB"];
    let agent = start(&docker, &[&OPEN[..], &budget].concat());
    let id = agent.container.inspect("{{.Id}}");
    let begin = "import ssl, socket, sys\n\
                 s = ssl.create_default_context(cafile='/authority.crt').wrap_socket(\n  \
                   socket.create_connection(('api.example.test', 443), 10), server_hostname='api.example.test')\n\
                 s.settimeout(30)\n";
    let asks = format!(
        "{begin}s.sendall({:?}.encode())\nwhile b'hello' not in (d := s.recv(65536)): pass\n",
        handshake("/repos/acme/socket", "")
    );
    // It stays open until its rule is removed, which only its end shows.
    let waits = format!(
        "{asks}open('/tmp/open', 'w').close()\ntry: print(s.recv(1))\nexcept OSError as e: print(e)\nprint('ended')"
    );
    let script = format!(
        "rm -f /tmp/open; python3 -c \"$0\" >/tmp/told 2>&1 & {}",
        "while ! [ -e /tmp/open ]; do sleep 0.1; done"
    );
    let began = finish(Command::new("docker").args(["exec", &id, "sh", "-c", &script, &waits]));
    assert_eq!(began.code, 0, "{began}");
    let open = run("agentbox", &["network", &id]).ok();
    assert!(open.contains("api.example.test"), "{open}");
    let rule = "WEBSOCKET https://api.example.test/repos/acme/socket*";
    run("agentbox", &["update", "--network-remove", rule, &id]).ok();
    let told =
        "for n in $(seq 100); do grep -q ended /tmp/told && break; sleep 0.1; done; cat /tmp/told";
    let told = agent.container.exec(&[], &["sh", "-c", told]);
    assert!(told.stdout.ends_with("ended\n"), "{told}");
    agent.counted("no-longer-allowed", 1);
    run("agentbox", &["update", "--network-add", rule, &id]).ok();
    // Two megabytes in one message.
    let sends = format!(
        "{asks}try:\n  s.sendall(b'\\x82\\xff' + (2 << 20).to_bytes(8, 'big') + bytes(4) + b'u' * (2 << 20))\n  \
         print(len(s.recv(65536)))\nexcept OSError as e: print(e)"
    );
    let sent = agent.python(&sends);
    assert!(sent.stdout != "65536\n", "{sent}");
    agent.counted("over-upload", 1);
    assert_eq!(arrived(&["frame", &"u".repeat(200)]), 0);
}

/// WebSocket data from the host is not searched for secrets.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_host_of_a_secret_has_a_websocket_only_by_the_nodes_word() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = super::secrets::node(0o600);
    let path = "wss://api.example.test/repos/acme/socket";
    let agent = start(&docker, &OPEN);
    let refused = talk(&agent, path);
    assert_eq!(refused.stdout, "refused 426\n", "{refused}");
    agent.counted("its host gets the secret model", 1);
    drop(agent);
    node.write(
        "config.toml",
        0o600,
        &format!(
            "[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n\
             [[secret]]\nname = \"model\"\nfile = \"/etc/agentbox/model-key\"\npolicies = [\"standard\"]\n\
             requests = [\"WEBSOCKET https://api.example.test/repos/acme/socket\"]\nheader = \"authorization: Bearer {{}}\"\n\
             env = \"MODEL_API_KEY\"\n"
        ),
    );
    let agent = start(&docker, &OPEN);
    let got = talk(&agent, path);
    assert_eq!(got.stdout, "hello\nshort\n60000\n", "{got}");
    let value = format!("Bearer {}", super::secrets::VALUE);
    assert_eq!(arrived(&["/repos/acme/socket\"", &value]), 1);
}
