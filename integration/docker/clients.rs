//! Unmodified programs behind an allowlist: package managers, git, curl, Python, Node and their resolvers. The tests'
//! own authority is the only change.

use super::allowlist::{Agent, INTERNET, arrived, witness};
use super::{Docker, runtime};
use crate::command::Finished;

const ALLOW: &str = "dev.agentbox.network.allow=index.example.test, files.example.test, api.example.test, api.example.test:80";
/// Where each program looks for authorities.
const AUTHORITY: [&str; 6] = [
    "PIP_CERT=/authority.crt",
    "SSL_CERT_FILE=/authority.crt",
    "NODE_EXTRA_CA_CERTS=/authority.crt",
    "npm_config_cafile=/authority.crt",
    "CARGO_HTTP_CAINFO=/authority.crt",
    "GIT_SSL_CAINFO=/authority.crt",
];

/// A new directory, a command, and what its output must contain.
const CLIENTS: [(&str, &str, &str); 10] = [
    (
        "pip",
        "python3 -m venv v && v/bin/pip install -q --no-cache-dir --index-url https://index.example.test/simple agentdemo && \
         v/bin/python -c 'import agentdemo; print(agentdemo.GREETING)'",
        "from the index",
    ),
    (
        "npm",
        "npm install --no-audit --no-fund --cache ./c --registry https://index.example.test/npm/ agentdemo && \
         node -e 'console.log(require(\"agentdemo\"))'",
        "from the index",
    ),
    (
        "cargo",
        "mkdir -p src .cargo && echo 'fn main() { println!(\"{}\", agentdemo::GREETING) }' >src/main.rs && \
         printf '[package]\\nname = \"x\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\nagentdemo = { version = \
         \"1\", registry = \"tests\" }\\n' >Cargo.toml && printf '[registries.tests]\\nindex = \
         \"sparse+https://index.example.test/cargo/\"\\n' >.cargo/config.toml && CARGO_HOME=$PWD/h RUSTC_BOOTSTRAP=1 cargo -Z sparse-registry run -q",
        "from the index",
    ),
    (
        "apt",
        "echo 'deb [trusted=yes] https://index.example.test/debian ./' >list && mkdir -p lists/partial archives/partial && \
         set -- -q -o Dir::Etc::sourcelist=$PWD/list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists \
         -o Dir::Cache::archives=$PWD/archives -o APT::Sandbox::User=root -o Acquire::https::CAInfo=/authority.crt && \
         apt-get \"$@\" update && apt-get \"$@\" download agentdemo && dpkg-deb --fsys-tarfile agentdemo_*.deb | tar -xO",
        "from the index",
    ),
    (
        "git",
        "git clone -q https://files.example.test/git/demo.git && cat demo/README",
        "from the index",
    ),
    (
        "curl",
        "curl -sS --cacert /authority.crt https://api.example.test/x",
        "\"/x\"",
    ),
    (
        "Python's urllib",
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://api.example.test/x\").read())'",
        "\"/x\"",
    ),
    (
        "Python's requests, pip's own copy",
        "python3 -c 'from pip._vendor import requests; \
         print(requests.get(\"https://api.example.test/x\", verify=\"/authority.crt\").text)'",
        "\"/x\"",
    ),
    (
        "Python's asyncio",
        "python3 -c 'import asyncio\nasync def main():\n r, w = await asyncio.open_connection(\"api.example.test\", 443, ssl=True)\n \
         w.write(b\"GET /x HTTP/1.1\\r\\nHost: api.example.test\\r\\nConnection: close\\r\\n\\r\\n\")\n print(await r.read())\n\
         asyncio.run(main())'",
        "\"/x\"",
    ),
    (
        "Node's fetch, and c-ares",
        "node -e 'fetch(\"https://api.example.test/x\").then(r => r.text()).then(console.log)\n\
         require(\"dns\").resolve4(\"api.example.test\", (e, a) => { if (e || a.length != 1) throw e; })\n\
         require(\"dns\").resolve4(\"other.example.test\", (e) => { if (!e || e.code != \"ENOTFOUND\") throw e; })'",
        "\"/x\"",
    ),
];

fn agent<'a>(docker: &'a Docker, allow: &str) -> Agent<'a> {
    let set: Vec<&str> = AUTHORITY.iter().flat_map(|v| ["-e", v]).collect();
    Agent::start(
        docker,
        &[&[runtime(), "--annotation", allow], &set[..]].concat(),
    )
}

/// Runs a command in a new directory, with or without the proxy variables.
fn client(agent: &Agent<'_>, proxy: bool, number: usize, command: &str) -> Finished {
    let clean = match proxy {
        true => "",
        false => {
            "unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY; "
        }
    };
    let script = format!(
        "set -e; {clean}mkdir -p /tmp/{proxy}{number} && cd /tmp/{proxy}{number} && {command}"
    );
    agent
        .container
        .exec(&[], &["timeout", "120", "bash", "-c", &script])
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn package_managers_and_languages_work_behind_the_list() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = agent(&docker, ALLOW);
    for (number, (name, command, wanted)) in CLIENTS.iter().enumerate() {
        for proxy in [true, false] {
            let got = client(&agent, proxy, number, command);
            assert!(
                got.code == 0 && got.stdout.contains(wanted),
                "{name}, proxy variables: {proxy}: {got}"
            );
        }
    }
}

/// An index whose files are on another host: the missing host is named, and nothing arrives there.
#[test]
#[ignore = "needs the rig of hack/test"]
fn files_of_an_index_need_their_own_rule() {
    let docker = Docker::connect();
    let _turn = witness();
    let agent = agent(&docker, "dev.agentbox.network.allow=index.example.test");
    let wheels = || arrived(&["\"/wheels/"]);
    let before = wheels();
    let (name, command, _) = CLIENTS[0];
    for proxy in [true, false] {
        let got = client(
            &agent,
            proxy,
            0,
            &format!("export PIP_RETRIES=0 PIP_TIMEOUT=5; {command}"),
        );
        assert_ne!(got.code, 0, "{name}: {got}");
    }
    assert_eq!(wheels(), before);
    let violations = agent.violations();
    assert!(violations.contains("files.example.test"), "{violations}");
}

/// musl asks both families at once, and takes a refusal for a broken server. Kubernetes' search list asks five times.
#[test]
#[ignore = "needs the rig of hack/test"]
fn resolvers_of_musl_and_go_and_a_search_list_work() {
    let docker = Docker::connect();
    let _turn = witness();
    // Starts the small internet.
    drop(agent(&docker, ALLOW));
    let search = [
        runtime(),
        "--annotation",
        ALLOW,
        "--dns-search=default.svc.cluster.local",
        "--dns-search=svc.cluster.local",
        "--dns-search=cluster.local",
        "--dns-opt=ndots:5",
    ];
    let fetch = "probe with fetch api.example.test 80; probe with fetch other.example.test 80";
    let got = docker.run(
        &[&search[..], &["test-musl"]].concat(),
        &["sh", "-c", fetch],
    );
    assert!(
        got.stdout.contains("\t200") && got.stdout.contains("no-name"),
        "{got}"
    );
    let glibc = docker.run(
        &[&search[..], &["test-workloads"]].concat(),
        &["curl", "-sS", "--noproxy", "*", "http://api.example.test/x"],
    );
    assert!(glibc.stdout.contains("\"/x\""), "{glibc}");
}

/// Go's own resolver and HTTP: the engine's client is a Go program, and supports only SOCKS in ALL_PROXY
/// (docs/network.md).
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_program_in_go_works() {
    let docker = Docker::connect();
    let _turn = witness();
    let client = crate::command::run("sh", &["-c", "command -v docker"]).ok();
    let volume = format!("{}:/usr/local/bin/client:ro", client.trim());
    let options = [runtime(), "--annotation", ALLOW, "-v", &volume];
    let agent = Agent::start(&docker, &options);
    for (host, arrives) in [("api.example.test", true), ("other.example.test", false)] {
        let before = arrived(&["/_ping", host]);
        let script =
            format!("unset ALL_PROXY all_proxy; GODEBUG=netdns=go client -H tcp://{host}:80 ps");
        let got = agent
            .container
            .exec(&[], &["timeout", "60", "bash", "-c", &script]);
        let came = arrived(&["/_ping", host]) > before;
        assert_eq!(came, arrives, "{host} ({INTERNET}): {got}");
    }
}
