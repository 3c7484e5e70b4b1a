//! Rules, approvals and secrets that end (N59 of the threat list): new connections are refused, open ones are cut, and a
//! change of other rules gives no time. The controls are the same before the end, and a rule without one.

use std::time::{Duration, Instant};

use super::{Agent, agentbox, arrived, witness_of_own_requests};
use crate::docker::allowlist::witness;
use crate::docker::secrets::{self, VALUE};
use crate::docker::{Docker, runtime};

/// Longer than the ends of these tests, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Holds a connection to a port where the server speaks first, and notes when it ends.
fn hold(port: u16) -> String {
    format!(
        "import socket\n\
         s = socket.create_connection(('api.example.test', {port}), 10)\n\
         s.recv(64); s.sendall(b'hello'); s.recv(64)\n\
         open('/tmp/open{port}', 'w').close()\n\
         try:\n    s.settimeout(120); s.recv(1)\n\
         except OSError: pass\n\
         open('/tmp/closed{port}', 'w').close()\n"
    )
}

impl Agent<'_> {
    fn held(&self, port: u16) {
        let script = hold(port);
        self.container
            .exec(&["-d"], &["python3", "-c", &script])
            .ok();
        self.await_file(&format!("/tmp/open{port}"));
    }

    fn is_closed(&self, port: u16) -> bool {
        let path = format!("/tmp/closed{port}");
        self.container.exec(&[], &["test", "-e", &path]).code == 0
    }

    /// The status and the body of an answer by the proxy.
    fn answer(&self, url: &str) -> String {
        self.curl(false, &["-w", " %{http_code}", url]).stdout
    }
}

#[track_caller]
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn n59_a_rule_for_a_time_ends_with_its_connections_and_no_other_change_stretches_it() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = Agent::allowing(&docker, "api.example.test, api.example.test:25");
    let id = agent.id();
    let update = |options: &[&str]| agentbox(&[&["update", &id], options].concat());
    let url = "http://other.example.test/ending";
    assert!(agent.answer(url).ends_with("403"), "the control: no rule");
    // The words of --for and --until, and the ceiling, before the clock begins.
    for bad in ["", "0s", "10", "18:00"] {
        update(&["--network-add", "a.example.test", "--for", bad]).failed();
    }
    for bad in ["25:00", "2001-01-01T00:00:00Z", "tomorrow", "10m"] {
        update(&["--network-add", "a.example.test", "--until", bad]).failed();
    }
    update(&["--network-remove", "api.example.test", "--for", "10m"]).failed();
    let wide = update(&["--network-add", "*", "--for", "10m"]).failed();
    assert!(wide.contains("it names every host"), "{wide}");
    let lasting = update(&["--network-add", "api.example.test", "--for", "10m"]).failed();
    assert!(lasting.contains("without an end"), "{lasting}");

    let added = "other.example.test:80, api.example.test:22";
    let began = Instant::now();
    let said = update(&["--network-add", added, "--for", "40s"]).ok();
    assert!(said.contains("the added rules expire at 20"), "{said}");
    update(&["--network-add", "files.example.test:80", "--until", "00:00"]).ok();
    agent.held(22);
    agent.held(25);
    assert!(agent.answer(url).ends_with("200"), "the control: in time");
    let shown = agentbox(&["explain", &id]).ok();
    assert!(
        shown.contains("rule other.example.test:80: until 20"),
        "{shown}"
    );
    let shown = agentbox(&["network", &id]).ok();
    assert!(shown.contains("min") && shown.contains("s left"), "{shown}");
    let state = agentbox(&["state", &id]).ok();
    assert!(
        state.contains("rule api.example.test:22: until 20"),
        "{state}"
    );
    // Other changes, and the same rules written by the way.
    update(&["--network-add", "index.example.test:80"]).ok();
    update(&["--network-deny", "nowhere.example.test"]).ok();
    update(&["--network-remove", "index.example.test:80"]).ok();

    await_that("the tunnel is cut", || agent.is_closed(22));
    assert!(began.elapsed() >= Duration::from_secs(39), "not early");
    assert!(!agent.is_closed(25), "the control: a rule without an end");
    let before = arrived(&["/ending"]);
    let refused = agent.answer(url);
    let why = "the rule other.example.test:80 expired at 20";
    assert!(
        refused.contains(why) && refused.ends_with("403"),
        "{refused}"
    );
    let direct = agent.curl(true, &["-f", url]);
    assert_ne!(direct.code, 0, "{direct}");
    assert_eq!(arrived(&["/ending"]), before);
    assert!(
        agent
            .answer("http://files.example.test/later")
            .ends_with("200")
    );

    // An update of other rules gives it no second life.
    update(&["--network-add", "index.example.test:80"]).ok();
    let refused = agent.answer(url);
    assert!(refused.contains(why), "{refused}");
    assert_eq!(arrived(&["/ending"]), before);
    // The log, and what people are told.
    let log = agentbox(&["audit", "--format", "json", &id]).ok();
    assert_eq!(log.matches("\"kind\":\"expired\"").count(), 2, "{log}");
    let text = agentbox(&["audit", &id]).ok();
    assert!(
        text.contains("the rule api.example.test:22 expired at 20"),
        "{text}"
    );
    let shown = agentbox(&["explain", &id]).ok();
    assert!(
        shown.contains("rule other.example.test:80: expired at 20"),
        "{shown}"
    );
    let suggested = agentbox(&["suggest", &id]).ok();
    assert!(suggested.contains("its rule has expired"), "{suggested}");
    let checked = agentbox(&[
        "policy",
        "check",
        "--container",
        &id,
        "--host",
        "other.example.test",
        "--port",
        "80",
    ]);
    assert!(
        checked.code == 1 && checked.stdout.contains(why),
        "{checked}"
    );
    // Written again, it holds again.
    update(&["--network-add", "other.example.test:80"]).ok();
    assert!(agent.answer(url).ends_with("200"));
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn n59_requests_by_a_rule_that_has_ended_are_refused_on_open_connections_too() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = secrets::node(0o600);
    let lasting = "GET https://api.example.test/other/**";
    let agent = Agent::allowing(&docker, lasting);
    let id = agent.id();
    let ending = "GET https://api.example.test/repos/acme/ends";
    agentbox(&["update", &id, "--network-add", ending, "--for", "12s"]).ok();
    // One connection of a client, kept alive.
    let program = "import http.client, os, time\n\
        c = http.client.HTTPConnection('api.example.test', 80, timeout=60)\n\
        def get(path):\n\
        \x20   c.request('GET', path); answer = c.getresponse(); return answer.status, answer.read()\n\
        print('first', get('/repos/acme/ends')[0], flush=True)\n\
        while not os.path.exists('/tmp/ended'): time.sleep(0.1)\n\
        try: print('second', *get('/repos/acme/ends'), flush=True)\n\
        except Exception as e: print('second', 'cut', e, flush=True)\n\
        c.close()\n\
        print('third', *get('/repos/acme/ends'), flush=True)\n\
        print('control', get('/other/x')[0], flush=True)\n";
    let said = std::thread::scope(|scope| {
        let client = scope.spawn(|| agent.python(program).ok());
        // The log has it once the rule has ended.
        await_that("the rule has ended", || {
            let log = agentbox(&["audit", "--format", "json", &id]).ok();
            log.contains("\"kind\":\"expired\"")
        });
        agent.container.exec(&[], &["touch", "/tmp/ended"]).ok();
        client.join().unwrap()
    });
    assert!(said.contains("first 200"), "{said}");
    assert!(
        !said.contains("second 200") && said.contains("third 403"),
        "{said}"
    );
    assert!(said.contains("acme/ends expired at 20"), "{said}");
    assert!(said.contains("control 200"), "{said}");
    assert_eq!(arrived(&["/repos/acme/ends\""]), 1);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn n59_an_expired_secret_is_put_into_no_request() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = secrets::node(0o600);
    let start = |node: &mut crate::docker::node::NodeFiles, until: &str| {
        let text = secrets::node_text();
        node.write(
            "config.toml",
            0o600,
            &format!("{text}until = \"{until}\"\n"),
        );
        let annotation = secrets::ALLOW;
        Agent::start(&docker, &[runtime(), "--annotation", annotation])
    };
    let soon = chrono::Utc::now() + chrono::Duration::seconds(20);
    let soon = soon.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let agent = start(&mut node, &soon);
    let answer = |path: &str| {
        let url = format!("http://api.example.test/{path}");
        agent.answer(&url)
    };
    assert!(answer("repos/acme/before").ends_with("200"));
    assert_eq!(arrived(&["/repos/acme/before\"", VALUE]), 1, "the control");
    let expired = |said: &str| {
        said.contains(&format!(
            "the secret model that it would get expired at {soon}"
        ))
    };
    await_that("the secret expires", || {
        expired(&answer("repos/acme/after"))
    });
    let sent = arrived(&["/repos/acme/after\""]);
    let refused = answer("repos/acme/after");
    assert!(expired(&refused) && refused.ends_with("403"), "{refused}");
    // Neither the secret nor its placeholder is sent.
    assert_eq!(arrived(&["/repos/acme/after\""]), sent);
    assert_eq!(arrived(&["agentbox-secret-model"]), 0);
    assert!(
        answer("other/x").ends_with("200"),
        "the control: no secret there"
    );
    let id = agent.id();
    await_that("it is logged", || {
        let text = agentbox(&["audit", &id]).ok();
        text.contains(&format!("the secret model expired at {soon}"))
    });
    let shown = agentbox(&["explain", &id]).ok();
    assert!(
        shown.contains(&format!("secret model: expired at {soon}")),
        "{shown}"
    );
    drop(agent);
    // Over before it begins, and a date without its offset.
    let agent = start(&mut node, "2026-01-01T00:00:00Z");
    let refused = agent.answer("http://api.example.test/repos/acme/never");
    assert!(
        refused.contains("expired at 2026-01-01T00:00:00Z"),
        "{refused}"
    );
    assert_eq!(arrived(&["/repos/acme/never\""]), 0);
    drop(agent);
    let text = secrets::node_text();
    node.write(
        "config.toml",
        0o600,
        &format!("{text}until = \"2026-01-01\"\n"),
    );
    let options = [
        "--rm",
        runtime(),
        "--annotation",
        secrets::ALLOW,
        "test-workloads",
    ];
    let refused = docker.run(&options, &["true"]).failed();
    assert!(refused.contains("its offset"), "{refused}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn n59_a_rule_of_a_policy_ends_with_its_connections_and_no_update_stretches_it() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let lasting = "dev.agentbox.network.allow=api.example.test:25, api.example.test";
    let ending = "dev.agentbox.network.temporary=other.example.test:80 for 40s, api.example.test:22 for 40s, \
                  files.example.test:80 until 2020-01-01T00:00:00Z";
    let options = [runtime(), "--annotation", lasting, "--annotation", ending];
    let began = Instant::now();
    let agent = Agent::start(&docker, &options);
    let id = agent.id();
    let update = |options: &[&str]| agentbox(&[&["update", &id], options].concat());
    let url = "http://other.example.test/of-policy";
    agent.held(22);
    agent.held(25);
    assert!(agent.answer(url).ends_with("200"), "the control: in time");
    // A date that was over before the run.
    let over = agent.answer("http://files.example.test/over");
    let why = "the rule files.example.test:80 expired at 2020-01-01T00:00:00Z";
    assert!(over.contains(why) && over.ends_with("403"), "{over}");
    for verb in ["explain", "state"] {
        let shown = agentbox(&[verb, &id]).ok();
        assert!(
            shown.contains("rule other.example.test:80: until 20") && shown.contains("s left"),
            "{shown}"
        );
    }
    // Changes of other rules keep the ends, and a rule can be removed before its end.
    update(&["--network-add", "index.example.test:80"]).ok();
    update(&["--network-deny", "nowhere.example.test"]).ok();
    update(&["--network-remove", "index.example.test:80"]).ok();
    assert!(agent.answer(url).ends_with("200"), "the control: in time");

    await_that("the tunnel is cut", || agent.is_closed(22));
    assert!(began.elapsed() >= Duration::from_secs(39), "not early");
    assert!(!agent.is_closed(25), "the control: a rule without an end");
    let before = arrived(&["/of-policy"]);
    let refused = agent.answer(url);
    let why = "the rule other.example.test:80 expired at 20";
    assert!(
        refused.contains(why) && refused.ends_with("403"),
        "{refused}"
    );
    let direct = agent.curl(true, &["-f", url]);
    assert_ne!(direct.code, 0, "{direct}");
    // No other change gives it back.
    update(&["--network-add", "index.example.test:80"]).ok();
    let refused = agent.answer(url);
    assert!(refused.contains(why), "{refused}");
    assert_eq!(arrived(&["/of-policy"]), before);
    let log = agentbox(&["audit", "--format", "json", &id]).ok();
    assert_eq!(log.matches("\"kind\":\"expired\"").count(), 3, "{log}");
    // Only the rule itself, given again.
    update(&["--network-add", "other.example.test:80"]).ok();
    assert!(agent.answer(url).ends_with("200"));
    // Another run counts from its own beginning; the date stays over.
    docker.call(&["restart", "-t", "1", &id]).ok();
    assert!(agent.answer(url).ends_with("200"));
    let over = agent.answer("http://files.example.test/over");
    assert!(over.ends_with("403"), "{over}");
    update(&["--network-remove", "other.example.test:80"]).ok();
    let removed = agent.answer(url);
    assert!(
        removed.ends_with("403") && !removed.contains("expired"),
        "{removed}"
    );
}
