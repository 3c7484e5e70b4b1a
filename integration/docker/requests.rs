//! Request rules: plain HTTP inside, TLS outside (N38 to N41 of the threat list). Only allowed requests arrive.

use std::path::Path;

use super::allowlist::{Agent, INTERNET, arrived, internet, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::run;

const ALLOW: &str = "dev.agentbox.network.allow=GET,HEAD,POST https://api.example.test/repos/acme/**, \
                     GET https://files.example.test/acme/**, GET https://other.example.test:8443/ok, \
                     GET http://index.example.test/plain/**, GET http://private.example.test/**";

/// A node that trusts the small internet's authority.
pub fn trusting() -> NodeFiles {
    internet();
    let mut node = NodeFiles::default();
    let config = format!("[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n");
    node.write("config.toml", 0o600, &config);
    node
}

fn path(path: &str) -> String {
    format!("\"path\": \"{path}\"")
}

/// Sends these bytes on one connection, to the proxy or to the host's port 80. Returns the whole answer.
fn said(agent: &Agent<'_>, direct: bool, bytes: &str) -> String {
    let to = match direct {
        true => "('api.example.test', 80)",
        false => "('127.0.0.1', int(os.environ['http_proxy'].rsplit(':', 1)[1].strip('/')))",
    };
    let program = format!(
        "import os, socket\ns = socket.create_connection({to}, 10); s.settimeout(1)\ns.sendall({bytes:?}.encode())\nall = b''\n\
         try:\n  while (d := s.recv(65536)): all += d\nexcept OSError as e: all += repr(e).encode()\n\
         print(all.decode('latin-1'))"
    );
    agent.python(&program).stdout
}

/// The same for each of these, at once, on a connection of its own: most of the time is waiting for the end of an answer.
#[track_caller]
fn said_each(agent: &Agent<'_>, all: &[(bool, String)]) -> Vec<String> {
    const PROGRAM: &str = "import concurrent.futures, json, os, socket, sys\n\
        proxy = ('127.0.0.1', int(os.environ['http_proxy'].rsplit(':', 1)[1].strip('/')))\n\
        def said(one):\n\
        \x20 direct, text = one\n\
        \x20 all = b''\n\
        \x20 try:\n\
        \x20   s = socket.create_connection(('api.example.test', 80) if direct else proxy, 10); s.settimeout(2)\n\
        \x20   s.sendall(text.encode())\n\
        \x20   while (d := s.recv(65536)): all += d\n\
        \x20 except OSError as e: all += repr(e).encode()\n\
        \x20 return all.decode('latin-1')\n\
        with concurrent.futures.ThreadPoolExecutor(32) as pool:\n\
        \x20 print(json.dumps(list(pool.map(said, json.loads(sys.argv[1])))))\n";
    let all = serde_json::to_string(all).unwrap();
    let command = ["python3", "-c", PROGRAM, &all];
    let said = agent.container.exec(&[], &command).ok();
    serde_json::from_str(&said).unwrap()
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn clients_of_plain_http_reach_what_rules_for_requests_name_and_nothing_else() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let free = Agent::free(&docker);
    let control = free.curl(true, &["https://api.example.test/repos/other/control"]);
    assert!(control.stdout.contains("/repos/other/control"), "{control}");
    drop(free);
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    for direct in [true, false] {
        let got = agent.curl(
            direct,
            &["-i", "http://api.example.test/repos/acme/x/../app%2dx?q=1"],
        );
        assert!(got.stdout.contains(&path("/repos/acme/app-x?q=1")), "{got}");
        assert!(
            got.stdout.contains("\"host\": \"api.example.test\""),
            "{got}"
        );
        let got = agent.curl(
            direct,
            &[
                "--data-binary",
                "@/authority.crt",
                "http://api.example.test/repos/acme/up",
            ],
        );
        assert!(got.stdout.contains("\"method\": \"POST\""), "{got}");
        let large = &[
            "-T",
            "/usr/bin/git",
            "-X",
            "POST",
            "-H",
            "Expect: 100-continue",
        ];
        let got = agent.curl(
            direct,
            &[&large[..], &["http://api.example.test/repos/acme/large"]].concat(),
        );
        assert!(got.stdout.contains("\"method\": \"POST\""), "{got}");
        let size = ["-o", "/dev/null", "-w", "%{size_download}"];
        let got = agent.curl(
            direct,
            &[&size[..], &["http://files.example.test/acme/none"]].concat(),
        );
        assert_eq!(got.stdout, "0", "{got}");
        let got = agent.curl(direct, &["http://index.example.test/plain/x"]);
        assert_eq!(got.code, 0, "{got}");
        let got = agent.curl(direct, &["-I", "http://api.example.test/repos/acme/head"]);
        assert!(got.stdout.contains("200 OK"), "{got}");
        let got = agent.curl(direct, &["http://other.example.test:8443/ok"]);
        assert!(
            got.stdout.contains("\"host\": \"other.example.test:8443\""),
            "{got}"
        );
    }
    // A request that hyper itself answers has a line.
    let head = "GET http://[ HTTP/1.1\r\nHost: api.example.test\r\n\r\n";
    let got = said(&agent, true, head);
    assert!(got.starts_with("HTTP/1.1 400"), "{got}");
    agent.counted("the request's head is unreadable", 1);
    // Within TLS, with the host's own name, and once for each allowed request.
    assert!(arrived(&["sni", "api.example.test"]) > 0);
    assert_eq!(arrived(&["GET", "/repos/acme/app-x?q=1"]), 2);
    for (method, address) in [
        ("GET", "http://api.example.test/repos/other/app"),
        ("GET", "http://api.example.test/repos/acme/../other/app"),
        ("DELETE", "http://api.example.test/repos/acme/app"),
        ("POST", "http://files.example.test/acme/none"),
    ] {
        for direct in [true, false] {
            let got = agent.curl(direct, &["-i", "-X", method, "--path-as-is", address]);
            assert!(
                got.stdout.starts_with("HTTP/1.1 403 agentbox: "),
                "{method} {address}: {got}"
            );
            assert!(
                got.stdout
                    .contains("no rule in network.allow matches this request"),
                "{got}"
            );
            assert!(got.stdout.contains("--network-add '"), "{got}");
        }
    }
    assert_eq!(arrived(&["/repos/other/app"]), 0);
    assert_eq!(arrived(&["DELETE", "/repos/"]), 0);
    let log = agent.violations();
    assert!(
        log.contains("DELETE https://api.example.test/repos/acme/app: no rule"),
        "{log}"
    );
    // A query may hold a secret.
    let got = agent.curl(true, &["http://api.example.test/gone?token=s3kr1t"]);
    assert!(
        got.stdout.contains("403") || got.stdout.contains("denied by agentbox"),
        "{got}"
    );
    let log = agent.counted("https://api.example.test/gone", 1);
    // Command lines of `exec` are logged unchanged.
    let mut of_network = log
        .lines()
        .filter(|line| !line.contains("\"wall\":\"life\""));
    assert!(!of_network.any(|line| line.contains("s3kr1t")), "{log}");
    // The network's own answer, where certificates do not matter.
    let urllib = "import urllib.request, urllib.error\n\
                  print(urllib.request.urlopen('http://api.example.test/repos/acme/urllib').read().decode())\n\
                  try: urllib.request.urlopen('http://api.example.test/repos/no/urllib')\n\
                  except urllib.error.HTTPError as e: print(e.code, e.read().decode())";
    let got = agent.python(urllib);
    assert!(
        got.stdout.contains("/repos/acme/urllib") && got.stdout.contains("403 {"),
        "{got}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn git_clones_over_plain_http_what_a_rule_for_requests_names() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    for owner in ["acme", "stranger"] {
        let dir = format!("{INTERNET}/files/files.example.test/{owner}");
        if !Path::new(&dir).exists() {
            let make = format!(
                "mkdir -p {dir} && cd {dir} && export HOME=/nonexistent GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
                 GIT_COMMITTER_EMAIL=a@b && git init -q -b main work && cd work && echo hello >file && git add file && \
                 git commit -qm one && cd .. && git clone -q --bare work app.git && git -C app.git update-server-info && rm -r work"
            );
            run("sh", &["-c", &make]).ok();
        }
    }
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let clone = |owner: &str| {
        let script = format!(
            "cd /tmp && git clone https://files.example.test/{owner}/app.git {owner} && cat {owner}/file"
        );
        agent.container.exec(&[], &["sh", "-c", &script])
    };
    let cloned = clone("acme");
    assert!(cloned.stdout.contains("hello"), "{cloned}");
    let refused = clone("stranger");
    assert!(
        refused.code != 0 && refused.stderr.contains("403"),
        "{refused}"
    );
    assert_eq!(arrived(&["/stranger/app.git"]), 0);
}

/// Makes the repositories `read`, `write` and `other`, which git's own server serves below `files.example.test/smart`.
pub fn smart_repositories() {
    let dir = format!("{INTERNET}/files/files.example.test/smart");
    let make = format!(
        "mkdir -p {dir} && cd {dir} && export HOME=/nonexistent GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
         GIT_COMMITTER_EMAIL=a@b; for name in read write other; do rm -rf $name.git && git init -q -b main work && \
         (cd work && echo hello >file && git add file && git commit -qm one) && git clone -q --bare work $name.git && \
         git -C $name.git config http.receivepack true && rm -r work; done"
    );
    run("sh", &["-c", &make]).ok();
}

/// The subjects of all commits of a repository.
pub fn heads(name: &str) -> String {
    let dir = format!("{INTERNET}/files/files.example.test/smart/{name}.git");
    let log = [
        "-C",
        &dir,
        "-c",
        "safe.directory=*",
        "log",
        "--all",
        "--format=%s",
    ];
    run("git", &log).ok()
}

/// `git:read` and `git:push` with git's own server, over the smart protocol.
#[test]
#[ignore = "needs the rig of hack/test"]
fn git_reads_and_pushes_what_its_rules_name_and_no_other_repository() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    smart_repositories();
    // The environment makes git use plain HTTP.
    let plain = "git -c user.name=a -c user.email=a@b";
    let works = |agent: &Agent<'_>, name: &str| {
        let script = format!(
            "cd /tmp && rm -rf w && {plain} clone -q https://files.example.test/smart/{name} w && cd w && cat file && \
             date +%N >new && git add new && {plain} commit -qm inside && {plain} push -q origin HEAD:main && echo pushed"
        );
        agent.container.exec(&[], &["sh", "-c", &script])
    };
    // The control: with both rules, both work.
    let rules = "dev.agentbox.network.allow=git:read files.example.test/smart/*, git:push files.example.test/smart/write";
    let agent = Agent::start(&docker, &[runtime(), "--annotation", rules]);
    for name in ["write", "write.git"] {
        let done = works(&agent, name);
        assert!(done.stdout.ends_with("pushed\n"), "{name}: {done}");
    }
    assert_eq!(heads("write"), "inside\ninside\none\n");
    for name in ["read", "other"] {
        let refused = works(&agent, name);
        assert_eq!(refused.stdout, "hello\n", "{name}: {refused}");
        // The reason appears when the push begins.
        let why = "remote: agentbox: POST https://files.example.test/smart/";
        assert!(refused.stderr.contains(why), "{name}: {refused}");
        assert_eq!(heads(name), "one\n");
    }
    drop(agent);
    let rules = "dev.agentbox.network.allow=git:read files.example.test/smart/read";
    let agent = Agent::start(&docker, &[runtime(), "--annotation", rules]);
    assert_eq!(works(&agent, "read").stdout, "hello\n");
    let refused = works(&agent, "other");
    assert!(
        refused.stdout.is_empty() && refused.stderr.contains("remote: agentbox: GET https://"),
        "{refused}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_shape_of_a_request_gets_past_its_rule() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let host = "Host: api.example.test\r\n";
    let good = format!("GET /repos/acme/good HTTP/1.1\r\n{host}\r\n");
    let hidden = format!("GET /evil/hidden HTTP/1.1\r\n{host}\r\n");
    let post = "POST /repos/acme/post HTTP/1.1\r\n";
    let length = hidden.len();
    let mut shapes = vec![
        // Two requests at once, and one after a body.
        format!("{good}{hidden}"),
        format!("{post}{host}Content-Length: 2\r\n\r\nhi{hidden}"),
        // Two framings, or an ambiguous one.
        format!(
            "{post}{host}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "{post}{host}Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!("{post}{host}Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"),
        format!("{post}{host}Transfer-Encoding: xchunked\r\n\r\n{hidden}"),
        format!("{post}{host}Transfer-Encoding: chunked\r\n\r\n0;x\r\n\r\n{hidden}"),
        format!("{post}{host}Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n{hidden}"),
        format!("GET /repos/acme/body HTTP/1.1\r\n{host}Content-Length: {length}\r\n\r\n{hidden}"),
        format!("{post}{host}X: y\r\n folded\r\n\r\n{hidden}"),
        // Another host.
        "GET /evil/host HTTP/1.1\r\nHost: other.example.test\r\n\r\n".to_owned(),
        format!("GET /evil/host HTTP/1.1\r\n{host}Host: other.example.test\r\n\r\n"),
        format!("GET http://other.example.test/evil/host HTTP/1.1\r\n{host}\r\n"),
        format!("GET https://other.example.test/evil/host HTTP/1.1\r\n{host}\r\n"),
        "GET /repos/acme/evil HTTP/1.1\r\nHost: api.example.test@other.example.test\r\n\r\n"
            .to_owned(),
        "GET /repos/acme/evil HTTP/1.1\r\n\r\n".to_owned(),
        // Another protocol.
        format!(
            "GET /repos/acme/evil HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        ),
        format!(
            "GET /repos/acme/evil HTTP/1.1\r\n{host}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
        ),
        format!("CONNECT api.example.test:443 HTTP/1.1\r\n{host}\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for path in [
        "/repos/acme/../../evil/dots",
        "/repos/acme/%2e%2e/%2E%2e/evil/dots",
        "/repos/acme/..%2f..%2fevil/dots",
        "/repos/acme/%252e%252e/%252e%252e/evil/dots",
        "/repos/acme/..;/..;/evil/dots",
        "/repos/acme/..\\..\\evil/dots",
        "/repos/acme//evil",
        "/repos%2facme%2fevil",
        "/repos/acme/%00/evil",
        "/repos/acme/%zz/evil",
        "//evil/repos/acme/x",
    ] {
        shapes.push(format!("GET {path} HTTP/1.1\r\n{host}\r\n"));
    }
    for field in [
        "X-HTTP-Method-Override: DELETE",
        "X_HTTP_Method_Override: DELETE",
        "X-Method-Override: DELETE",
        "X-Original-URL: /evil/url",
        "X-Rewrite-URL: /evil/url",
        "X-Forwarded-Host: other.example.test",
        "X.HTTP.Method.Override: DELETE",
        "SCRIPT_NAME: /repos/acme",
        "PATH_INFO: /evil/url",
        "X-Script-Name: /repos/acme",
        "X-Envoy-Original-Path: /evil/url",
        "x-amz-copy-source: /evil/url",
        "x-ms-rename-source: /evil/url",
        "Transfer_Encoding: chunked",
    ] {
        shapes.push(format!(
            "POST /repos/acme/evil HTTP/1.1\r\n{host}{field}\r\nContent-Length: 0\r\n\r\n"
        ));
    }
    // Other tests have sent their allowed requests to this host.
    let elsewhere = ["http", "other.example.test"];
    let before = (arrived(&elsewhere), arrived(&["evil"]));
    let nothing_arrived = || {
        let text = std::fs::read_to_string(format!("{INTERNET}/witness.jsonl")).unwrap();
        let evil = text.lines().filter(|line| line.contains("evil"));
        // They name the shape.
        let new: Vec<&str> = evil.skip(before.1).collect();
        assert!(new.is_empty(), "{new:?}");
        assert_eq!(arrived(&elsewhere), before.0);
    };
    let both = shapes.iter().flat_map(|shape| {
        // To the proxy in absolute form, unless the shape has one.
        let absolute = shape.replacen(" /", " http://api.example.test/", 1);
        [(true, shape.clone()), (false, absolute)]
    });
    let both: Vec<(bool, String)> = both.collect();
    let answers = said_each(&agent, &both);
    assert_eq!(answers.len(), both.len());
    for (shape, answer) in both.iter().zip(&answers) {
        // It was sent, and the wall or the host has answered.
        assert!(answer.starts_with("HTTP/1.1 "), "{shape:?}: {answer}");
    }
    nothing_arrived();
    // Only these requests are refused: a kept connection takes two, and the second is checked too.
    let two = said(&agent, true, &format!("{good}{good}"));
    assert_eq!(two.matches("/repos/acme/good").count(), 2, "{two}");
    let mixed = said(&agent, true, &format!("{good}{hidden}"));
    assert!(
        mixed.contains("200 OK") && mixed.contains("403 agentbox"),
        "{mixed}"
    );
    nothing_arrived();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_tunnel_leads_to_a_host_of_requests() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let free = Agent::free(&docker);
    let control = free.curl(
        true,
        &["https://api.example.test/repos/acme/tunnel-control"],
    );
    assert_eq!(control.code, 0, "{control}");
    drop(free);
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let before = arrived(&["sni", "api.example.test"]);
    for (direct, more) in [
        (true, vec![]),
        (false, vec![]),
        (false, vec!["--proxytunnel"]),
    ] {
        let all = [&more[..], &["https://api.example.test/repos/acme/tunnel"]].concat();
        let got = agent.curl(direct, &all);
        assert_ne!(got.code, 0, "{got}");
    }
    let socks = agent.container.exec(
        &[],
        &["sh", "-c", "curl -sS --max-time 10 --proxy socks5h://${http_proxy#http://} https://api.example.test/repos/acme/tunnel"],
    );
    assert_ne!(socks.code, 0, "{socks}");
    let got = agent.curl(
        false,
        &["--proxytunnel", "http://api.example.test/evil/tunnel"],
    );
    assert_ne!(got.code, 0, "{got}");
    assert_eq!(arrived(&["sni", "api.example.test"]), before);
    assert_eq!(arrived(&["tunnel\""]), 0);
    // The answer says how to send requests.
    let connect = said(
        &agent,
        false,
        "CONNECT api.example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    assert!(
        connect.contains("403") && connect.contains("http://HOST/PATH"),
        "{connect}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_host_whose_certificate_is_not_trusted_gets_no_request() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    // With the node's own certificates, which do not include the small internet's authority.
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = agent.curl(
        true,
        &["-i", "http://api.example.test/repos/acme/untrusted"],
    );
    assert!(
        got.stdout.contains("502") && got.stdout.contains("no authority that the node trusts"),
        "{got}"
    );
    assert_eq!(arrived(&["/repos/acme/untrusted"]), 0);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_change_of_rules_holds_for_the_next_request_of_a_kept_connection() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let id = agent.container.inspect("{{.Id}}");
    let denied = "http://api.example.test/repos/acme/later";
    assert!(
        agent
            .curl(true, &[denied])
            .stdout
            .contains("/repos/acme/later")
    );
    let rule = "GET,HEAD,POST https://api.example.test/repos/acme/**";
    run("agentbox", &["update", "--network-remove", rule, &id]).ok();
    assert!(!agent.curl(true, &[denied]).stdout.contains("\"path\""));
    run("agentbox", &["update", "--network-add", rule, &id]).ok();
    assert!(
        agent
            .curl(true, &[denied])
            .stdout
            .contains("/repos/acme/later")
    );
    // A container without request rules has no reader.
    let plain = Agent::start(
        &docker,
        &[
            runtime(),
            "--annotation",
            "dev.agentbox.network.allow=api.example.test",
        ],
    );
    let id = plain.container.inspect("{{.Id}}");
    let refused = run("agentbox", &["update", "--network-add", rule, &id]);
    assert!(
        refused.code != 0 && refused.stderr.contains("a process that reads them"),
        "{refused}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn an_answer_streams_and_a_name_of_requests_leads_to_no_private_address() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let program = "import time, urllib.request\nbegan = time.time()\n\
                   answer = urllib.request.urlopen('http://api.example.test/repos/acme/events')\n\
                   for line in answer:\n  if line.strip(): print(line.decode().strip(), 'early' if time.time() - began < 3 else 'late')";
    let events = agent.python(program);
    assert!(events.stdout.contains("data: 1 early"), "{events}");
    assert!(events.stdout.contains("data: 2 late"), "{events}");
    // N06: for requests as for connections. Controls of other tests have arrived there.
    let before = arrived(&["tcp", "10.9.9.9"]);
    for direct in [true, false] {
        let got = agent.curl(direct, &["http://private.example.test/secret"]);
        assert!(
            got.stdout.contains("leads to no address that is open"),
            "{got}"
        );
    }
    assert_eq!(arrived(&["tcp", "10.9.9.9"]), before);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn programs_are_told_of_plain_addresses_by_the_environment_alone() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let allow = "dev.agentbox.network.allow=POST https://api.anthropic.com/v1/messages, POST https://api.openai.com/v1/**";
    let own = "OPENAI_BASE_URL=http://own.test";
    let agent = Agent::start(&docker, &[runtime(), "-e", own, "--annotation", allow]);
    let names = ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GIT_CONFIG_COUNT"];
    let get = [&["printenv"][..], &names].concat();
    let expected = ["http://api.anthropic.com", "http://own.test", "2"];
    let found = agent.container.exec(&[], &get);
    assert_eq!(
        found.stdout.lines().collect::<Vec<_>>(),
        expected,
        "{found}"
    );
    let first = agent.container.exec(&[], &["cat", "/proc/1/environ"]);
    assert!(
        first
            .stdout
            .contains("ANTHROPIC_BASE_URL=http://api.anthropic.com")
    );
    let told = run(
        "agentbox",
        &["explain", &agent.container.inspect("{{.Id}}")],
    );
    assert!(
        told.stdout.contains("git asks http://api.openai.com/"),
        "{told}"
    );
    // If the whole host is allowed, programs reach it as usual.
    let allow = "dev.agentbox.network.allow=api.anthropic.com";
    let open = Agent::start(&docker, &[runtime(), "--annotation", allow]);
    let found = open
        .container
        .exec(&[], &["printenv", "ANTHROPIC_BASE_URL"]);
    assert_ne!(found.code, 0, "{found}");
}

/// Lines of a process's status.
fn status(pid: &str, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().to_owned()
}

/// The reader of a container's sidecar, if there is one.
pub(super) fn reader_of(sidecar: &str) -> Option<String> {
    let children = format!("/proc/{sidecar}/task/{sidecar}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let mut all = children.split_whitespace().map(str::to_owned);
    all.find(|pid| status(pid, "Name:") == "agentbox-reader")
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn who_reads_requests_has_nothing_else_and_its_container_ends_with_it() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let allow = format!("{ALLOW}, example.test:80");
    let agent = Agent::start(&docker, &[runtime(), "--annotation", &allow]);
    let first = "http://api.example.test/repos/acme/with-reader";
    let got = agent.curl(true, &[first]);
    assert!(got.stdout.contains("/repos/acme/with-reader"), "{got}");
    let sidecar = agent.sidecar();
    let reader = reader_of(&sidecar).expect("a reader beside the sidecar");
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(status(&reader, name), "0000000000000000", "{name}");
    }
    assert_eq!(status(&reader, "Uid:"), status(&sidecar, "Uid:"));
    assert_ne!(status(&reader, "Uid:").split('\t').next(), Some("0"));
    assert_eq!(status(&reader, "NoNewPrivs:"), "1");
    assert_eq!(status(&reader, "Seccomp:"), "2");
    // It has an empty network namespace of its own. The sidecar is in the engine's.
    let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_ne!(network(&reader), network(&sidecar));
    let routes = std::fs::read_to_string(format!("/proc/{reader}/net/route")).unwrap();
    assert!(
        routes.lines().count() <= 1,
        "no more than its heading: {routes}"
    );
    let devices = std::fs::read_to_string(format!("/proc/{reader}/net/dev")).unwrap();
    assert!(devices.lines().skip(2).all(|line| line.contains("lo:")));
    // No file but /dev/null for its streams and the source of randomness. The sidecar has a log.
    let files = |pid: &str| -> Vec<String> {
        let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let all = all.map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap());
        let all = all.map(|to| to.to_string_lossy().into_owned());
        all.filter(|to| to.starts_with('/')).collect()
    };
    assert!(
        files(&sidecar)
            .iter()
            .any(|to| to.contains("sidecar.jsonl"))
    );
    for file in files(&reader) {
        assert!(
            file.ends_with("/null") || file.ends_with("/urandom"),
            "{file}"
        );
    }
    // The container ends with its reader, as with its sidecar, and the log says so. Starting it again restores both.
    run("kill", &["-9", &reader]).ok();
    agent.container.await_inspect("{{.State.Running}}", "false");
    assert_eq!(agent.container.inspect("{{.State.ExitCode}}"), "137");
    let id = agent.container.inspect("{{.Id}}");
    let told = run("agentbox", &["audit", "--format", "json", &id]).ok();
    assert!(told.contains("reader-lost"), "{told}");
    agent.container.call("start", &[]).ok();
    let got = agent.curl(true, &["http://api.example.test/repos/acme/healed"]);
    assert!(got.stdout.contains("/repos/acme/healed"), "{got}");
    // Without request rules there is no reader.
    let only = "dev.agentbox.network.allow=example.test:80";
    let plain = Agent::start(&docker, &[runtime(), "--annotation", only]);
    assert_eq!(reader_of(&plain.sidecar()), None);
}

/// A list of harmful fields was never complete. Unknown fields are refused, and agents notice no difference.
#[test]
#[ignore = "needs the rig of hack/test"]
fn fields_that_are_known_arrive_and_others_are_refused_by_their_names() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = trusting();
    let address = "http://api.example.test/repos/acme/fields";
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let sent = |agent: &Agent<'_>, field: &str| agent.curl(true, &["-i", "-H", field, address]);
    for field in [
        "anthropic-beta: a",
        "x-stainless-retry-count: 0",
        "session_id: a",
        "x-goog-api-client: a",
        "Git-Protocol: version=2",
        "X-Request-Id: a",
    ] {
        let got = sent(&agent, field);
        assert!(got.stdout.starts_with("HTTP/1.1 200"), "{field}: {got}");
    }
    let odd = sent(&agent, "X-Acme-Trace: 1");
    assert!(odd.stdout.starts_with("HTTP/1.1 403"), "{odd}");
    assert!(
        odd.stdout.contains("its field x-acme-trace is unknown"),
        "{odd}"
    );
    assert!(agent.violations().contains("x-acme-trace"));
    drop(agent);
    let config = format!(
        "[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\nrequest-fields = [\"x-acme-*\"]\n"
    );
    node.write("config.toml", 0o600, &config);
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = sent(&agent, "X-Acme-Trace: 1");
    assert!(got.stdout.starts_with("HTTP/1.1 200"), "{got}");
    let got = sent(&agent, "X-Other-Trace: 1");
    assert!(got.stdout.starts_with("HTTP/1.1 403"), "{got}");
}
