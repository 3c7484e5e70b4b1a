//! Probes and published ports without `network.inbound`: the log names the setting that would allow them.

use std::net::TcpStream;

use crate::command::{awaited, run};
use crate::direct::program;
use crate::docker::allowlist::Agent;
use crate::docker::{Docker, runtime};

/// The line appears without any request for it.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_refused_probe_is_logged() {
    let docker = Docker::connect();
    let allow = [
        "--annotation",
        "dev.agentbox.network.allow=api.example.test:80",
    ];
    let inbound = ["--annotation", "dev.agentbox.network.inbound=8080"];
    let started: Vec<(&str, Agent<'_>)> = [
        ("local", &[][..]),
        ("allowlist", &allow),
        ("inbound", &inbound),
    ]
    .map(|(what, options)| {
        let all = [&[runtime()], options].concat();
        (what, Agent::start(&docker, &all))
    })
    .into();
    for (what, agent) in &started {
        let address = agent.container.inspect("{{.NetworkSettings.IPAddress}}");
        // During an allowed inbound connection, a packet of the kernel may belong to it.
        let ports: &[u16] = match *what {
            "inbound" => &[8081],
            _ => &[8080, 8080, 8081],
        };
        for port in ports {
            let refused = TcpStream::connect(format!("{address}:{port}"));
            assert!(refused.is_err(), "{what}: {port}");
        }
    }
    for (what, agent) in &started {
        let line = awaited(what, || {
            let log = agent.violations();
            let found = log.lines().find(|line| line.contains("\"outside\""));
            found.map(str::to_owned).ok_or(log)
        });
        let refused = if *what == "inbound" { 1 } else { 3 };
        for word in [
            "\"verdict\":\"denied\"",
            &format!("{refused} refused by the kernel"),
            "network.inbound with the port lets them in",
        ] {
            assert!(line.contains(word), "{what}: {line}");
        }
        let id = agent.container.inspect("{{.Id}}");
        let shown = run(&program(), &["network", &id]).ok();
        assert!(
            shown.contains(&format!("outside: {refused}")),
            "{what}: {shown}"
        );
    }
}
