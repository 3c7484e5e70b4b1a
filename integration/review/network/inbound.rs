//! Inbound connections count, are shown and are logged (N-M6).

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{agentbox, under_with};
use crate::command::HANGS;
use crate::docker::Docker;
use crate::docker::allowlist::Agent;

/// Sends each client eight megabytes, and holds the connection.
const SERVER: &str = "import socket, threading, time\n\
    s = socket.create_server(('127.0.0.1', 8080))\n\
    def give(c):\n\
    \x20   try: c.sendall(b'x' * 8_000_000); time.sleep(600)\n\
    \x20   except OSError: pass\n\
    while True:\n\
    \x20   c, _ = s.accept(); threading.Thread(target=give, args=(c,), daemon=True).start()\n";

#[track_caller]
fn serving<'a>(docker: &'a Docker, fields: &[&str]) -> (Agent<'a>, String, String) {
    let agent = under_with(docker, &[], &[&["network.inbound=8080"], fields].concat());
    agent
        .container
        .exec(&["-d"], &["python3", "-c", SERVER])
        .ok();
    let address = agent.container.inspect("{{.NetworkSettings.IPAddress}}");
    let id = agent.container.inspect("{{.Id}}");
    (agent, address, id)
}

/// Counts the bytes of one connection until it ends or is silent for a second.
fn take(address: &str) -> usize {
    let Ok(mut stream) = TcpStream::connect((address, 8080)) else {
        return 0;
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let (mut all, mut buffer) = (0, vec![0; 1 << 16]);
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 {
            break;
        }
        all += length;
    }
    all
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn what_leads_in_takes_from_the_budget() {
    let docker = Docker::alone();
    // The control: without a tight budget all bytes arrive.
    let (_free, address, _) = serving(&docker, &[]);
    let end = Instant::now() + HANGS;
    while take(&address) != 8_000_000 {
        assert!(Instant::now() < end, "the control");
    }
    for more in [&[][..], &["network.allow=api.example.test"]] {
        let budget = ["network.upload=1MiB", "network.connections=3"];
        let (agent, address, id) = serving(&docker, &[&budget[..], more].concat());
        let end = Instant::now() + HANGS;
        let mut all = 0;
        while all == 0 {
            assert!(Instant::now() < end, "nothing came");
            all = take(&address);
        }
        for _ in 0..5 {
            all += take(&address);
        }
        assert!(all <= 1 << 20, "{all} bytes left the container");
        let log = agent.violations();
        assert!(
            log.contains("\"via\":\"inbound\"")
                && log.contains("network.upload allows 1048576 bytes"),
            "{log}"
        );
        let text = agentbox(&["network", &id]).ok();
        assert!(
            text.contains("port 8080 leads in: ") && !text.contains("nothing else"),
            "{text}"
        );
        let json = agentbox(&["network", "--format", "json", &id]).ok();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(json["used"]["uploadBytes"].as_u64() > Some(0), "{json}");
        assert!(
            json["inbound"]["ports"]["8080"]["sent"].as_u64() > Some(0),
            "{json}"
        );
        assert!(json["denied"]["over-upload"].as_u64() > Some(0), "{json}");
    }
    // As many connections at once as the policy allows, and `network` lists them.
    let (agent, address, id) = serving(&docker, &["network.connections=2"]);
    let end = Instant::now() + HANGS;
    while take(&address) == 0 {
        assert!(Instant::now() < end, "nothing came");
    }
    let held = [(); 2].map(|()| TcpStream::connect((&*address, 8080)).unwrap());
    let end = Instant::now() + HANGS;
    let json = loop {
        let json = agentbox(&["network", "--format", "json", &id]).ok();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let open = json["inbound"]["connections"].as_array().unwrap().len();
        if open == 2 || Instant::now() > end {
            break json;
        }
    };
    let open = json["inbound"]["connections"].as_array().unwrap();
    assert_eq!(open.len(), 2, "{json}");
    assert_eq!(open[0]["port"], 8080);
    assert_eq!(take(&address), 0, "a third one");
    assert!(
        agent
            .violations()
            .contains("network.connections allows 2 at once")
    );
    drop(held);
}
