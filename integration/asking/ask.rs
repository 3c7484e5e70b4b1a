//! Asking instead of denying (`network.on-unknown = "ask"`), and the pause after a used-up budget (N05, N06, N08, N14,
//! N21 of the threat list).

use std::time::Duration;

use super::{Agent, agentbox, arrived, witness_of_own_requests};
use crate::command::awaited;
use crate::docker::{Docker, runtime};

/// Holds a tunnel to a server that speaks first, until it is closed.
const TUNNEL: &str = "import socket\n\
    s = socket.create_connection(('127.0.0.1', 3128), 10)\n\
    s.settimeout(60)\n\
    s.sendall(b'CONNECT other.example.test:22 HTTP/1.1\\r\\n\\r\\n')\n\
    answer = b''\n\
    while b'SSH' not in answer:\n\
    \x20   more = s.recv(100)\n\
    \x20   assert more, answer\n\
    \x20   answer += more\n\
    assert b' 200 ' in answer, answer\n\
    open('/tmp/open', 'w').close()\n\
    try: s.recv(1)\n\
    except OSError: pass\n\
    open('/tmp/closed', 'w').close()\n";

impl Agent<'_> {
    /// Runs curl in the background. Its output goes to a file; at its end there is also a file with `.done`.
    #[track_caller]
    fn curl_later(&self, url: &str, file: &str) {
        let script =
            format!("curl -sS --noproxy '*' --max-time 40 '{url}' >{file} 2>&1; touch {file}.done");
        self.container.exec(&["-d"], &["sh", "-c", &script]).ok();
    }

    fn read(&self, file: &str) -> String {
        self.container.exec(&[], &["cat", file]).stdout
    }

    #[track_caller]
    fn approvals(&self) -> Vec<serde_json::Value> {
        let text = agentbox(&["approvals", "--format", "json", &self.id()]).ok();
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until this many connections wait.
    #[track_caller]
    fn await_waiting(&self, count: usize) -> Vec<serde_json::Value> {
        awaited("waiting connections", || {
            let waiting = self.approvals();
            (waiting.len() == count)
                .then_some(waiting)
                .ok_or_else(|| format!("not {count}: {:?}", self.approvals()))
        })
    }
}

fn asking<'a>(docker: &'a Docker, seconds: &str) -> Agent<'a> {
    let seconds = format!("dev.agentbox.network.ask-seconds={seconds}");
    let all = [
        runtime(),
        "--annotation",
        "dev.agentbox.network.allow=api.example.test, api.example.test:80",
        "--annotation",
        "dev.agentbox.network.on-unknown=ask",
        "--annotation",
        &seconds,
    ];
    Agent::start(docker, &all)
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn what_is_not_listed_waits_until_a_person_decides() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = asking(&docker, "30");
    let id = agent.id();
    // The control: listed hosts do not wait, and without asking, unlisted hosts are denied at once.
    assert_eq!(agent.curl(true, &["http://api.example.test/"]).code, 0);
    let strict = Agent::allowing(&docker, "api.example.test:80");
    assert_ne!(
        strict
            .curl(true, &["-f", "http://other.example.test/waits"])
            .code,
        0
    );
    let refused = agentbox(&["approve", &strict.id(), "other.example.test:80"]).failed();
    assert!(refused.contains("has no approvals"), "{refused}");
    // The cures work as they stand.
    let paste = |said: &str| {
        let words: Vec<&str> = said.split('`').nth(1).unwrap().split(' ').collect();
        agentbox(&words[1..]).ok();
        strict
            .curl(true, &["-f", "http://other.example.test/pasted"])
            .code
    };
    assert_eq!(paste(&refused), 0);
    let refused = agentbox(&["deny", &strict.id(), "other.example.test:80"]).failed();
    assert_ne!(paste(&refused), 0);

    agent.curl_later("http://other.example.test/waits", "/tmp/one");
    let waiting = agent.await_waiting(1).remove(0);
    assert_eq!(waiting["host"], "other.example.test");
    assert_eq!(waiting["port"], 80);
    assert_eq!(waiting["program"][1], "curl", "{waiting}");
    let before = arrived(&["/waits"]);
    assert_eq!(before, 0);
    let table = agentbox(&["approvals"]).ok();
    assert!(
        table.contains(&id[..12]) && table.contains("other.example.test:80"),
        "{table}"
    );
    // By the number shown.
    let said = agentbox(&["approve", &id, &waiting["id"].to_string()]).ok();
    let whose = format!("approved: other.example.test:80\ncontainer {id} (");
    assert!(said.starts_with(&whose), "{said}");
    agent.await_file("/tmp/one.done");
    assert!(agent.read("/tmp/one").contains("/waits"));
    // The approval lasts: the next connection does not wait. One to another port of the same name does.
    assert_eq!(
        agent.curl(true, &["http://other.example.test/again"]).code,
        0
    );
    agent.curl_later("https://other.example.test/tls", "/tmp/two");
    agent.await_waiting(1);
    agentbox(&["deny", &id, "other.example.test:443"]).ok();
    agent.await_file("/tmp/two.done");
    assert_eq!(arrived(&["/tls"]), 0);
    // A denial is remembered and logged.
    let denied = agent.curl(false, &["-v", "https://other.example.test/tls"]);
    assert!(
        denied.code != 0 && agent.violations().contains("the operator denied it"),
        "{denied}"
    );
    assert!(agent.approvals().is_empty());
    let text = agentbox(&["network", &id]).ok();
    for word in [
        "waits 30 s",
        "approved: other.example.test:80",
        "denied by the operator: other.example.test:443",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let explained = agentbox(&["explain", &id]).ok();
    assert!(
        explained.contains("waits 30 s for agentbox approve"),
        "{explained}"
    );
    let check = agentbox(&["policy", "check", "--container", &id, "--host", "new.test"]);
    assert!(
        check.code == 1 && check.stdout.contains("it waits 30 s"),
        "{check}"
    );
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn an_approval_ends_when_it_says() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = asking(&docker, "2");
    let id = agent.id();
    // Without a decision it is denied, with the reason and the command to type.
    let late = agent.curl(false, &["http://other.example.test/not-approved"]);
    for word in [
        "it was not approved within 2 s",
        &format!("agentbox approve {id} other.example.test:80"),
    ] {
        assert!(late.stdout.contains(word), "{word}: {late}");
    }
    assert_eq!(arrived(&["/not-approved"]), 0);
    // For one connection only.
    agentbox(&["approve", "--once", &id, "other.example.test:80"]).ok();
    assert_eq!(
        agent.curl(true, &["http://other.example.test/first"]).code,
        0
    );
    assert_ne!(
        agent
            .curl(true, &["-f", "http://other.example.test/second"])
            .code,
        0
    );
    assert_eq!((arrived(&["/first"]), arrived(&["/second"])), (1, 0));
    // For a limited time: then the allowed connection is closed.
    agentbox(&["approve", "--for", "10s", &id, "other.example.test:22"]).ok();
    agent
        .container
        .exec(&["-d"], &["python3", "-c", TUNNEL])
        .ok();
    agent.await_file("/tmp/open");
    assert_eq!(
        agent.network()["connections"][0]["host"],
        "other.example.test"
    );
    agent.await_file("/tmp/closed");
    let after = agent.curl(false, &["http://other.example.test:22/"]);
    let why = "its approval expired at 20";
    assert!(after.stdout.contains(why), "{after}");
    let log = agentbox(&["audit", &id]).ok();
    let line = "the approval other.example.test:22 expired at 20";
    assert!(log.contains(line), "{log}");
    // By a date, which must not be over.
    let by_date =
        |until: &str| agentbox(&["approve", "--until", until, &id, "other.example.test:80"]);
    by_date("2001-01-01T00:00:00Z").failed();
    let said = by_date("2100-01-01T00:00:00Z").ok();
    assert!(said.contains("until 2100-01-01T00:00:00Z"), "{said}");
    assert_eq!(
        agent.curl(true, &["http://other.example.test/dated"]).code,
        0
    );
}

/// N33: if two programs wait for one host, only the one shown goes on, even if the other has waited longer.
#[test]
#[ignore = "needs the rig of hack/test"]
fn an_approval_by_number_for_one_connection_lets_no_other_through() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let agent = asking(&docker, "60");
    let id = agent.id();
    agent.curl_later("http://other.example.test/waited-longer", "/tmp/other");
    let other = agent.await_waiting(1)[0]["id"].clone();
    agent.curl_later("http://other.example.test/was-shown", "/tmp/shown");
    let waiting = agent.await_waiting(2);
    let shown = waiting.iter().find(|one| one["id"] != other).unwrap()["id"].to_string();
    agentbox(&["approve", "--once", &id, &shown]).ok();
    agent.await_file("/tmp/shown.done");
    assert_eq!(arrived(&["/was-shown"]), 1, "{}", agent.read("/tmp/shown"));
    assert_eq!(arrived(&["/waited-longer"]), 0);
    assert_eq!(agent.await_waiting(1)[0]["id"], other);
    // The control: the other goes on by its own number.
    agentbox(&["approve", "--once", &id, &other.to_string()]).ok();
    agent.await_file("/tmp/other.done");
    assert_eq!(arrived(&["/waited-longer"]), 1);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_person_opens_what_no_rule_may_and_no_container_floods_one() {
    let docker = Docker::alone();
    let agent = asking(&docker, "3");
    let id = agent.id();
    for (host, why) in [
        ("198.51.100.12:80", "is not one name"),
        ("*.example.test", "is not one name"),
        ("internal:postgres:5432", "is not one name"),
        ("other.example.test:53", "port 53 is the wall's own"),
        ("metadata.google.internal:80", "cannot be approved"),
        ("localhost:80", "cannot be approved"),
        ("a\u{1b}[2J.test", "is not a rule"),
        ("api.example.test:443", "needs no approval"),
    ] {
        let refused = agentbox(&["approve", &id, host]).failed();
        assert!(refused.contains(why), "{host:?}: {refused}");
        assert!(!refused.contains('\u{1b}'));
    }
    // An approved name still leads to no private address.
    for (name, address) in [
        ("private", "10.9.9.9"),
        ("metadata", "169.254.169.254"),
        ("cgnat", "100.64.0.1"),
    ] {
        let needle = format!("\"to\": \"{address}\"");
        let before = arrived(&[&needle]);
        agentbox(&["approve", &id, &format!("{name}.example.test:80")]).ok();
        let got = agent.curl(false, &[&format!("http://{name}.example.test/")]);
        assert!(got.stdout.contains("the name leads to"), "{got}");
        assert_eq!(arrived(&[&needle]), before);
    }
    // A flood: only so many connections wait, and the rest are denied at once. No lookup is forwarded, and odd names
    // are not shown.
    let before = arrived(&["\"what\": \"dns\"", "flood"]);
    let flood = agent.python(
        "import socket\nall = []\n\
         for i in range(100):\n\
         \x20   s = socket.create_connection(('127.0.0.1', 3128), 10); all.append(s)\n\
         \x20   name = 'flood%d.example.test' % i if i % 2 else 'flood\\x1b[2J%d.test' % i\n\
         \x20   s.sendall(b'CONNECT ' + name.encode() + b':443 HTTP/1.1\\r\\n\\r\\n')\n\
         answers = 0\n\
         for s in all:\n\
         \x20   s.settimeout(20)\n\
         \x20   answers += b' 200 ' not in s.recv(100)\n\
         print(answers)\n",
    );
    assert_eq!(flood.stdout.trim(), "100", "{flood}");
    let denied = &agent.network()["denied"];
    assert_eq!(denied["not-approved-in-time"], 32, "{denied}");
    assert_eq!(denied["too-many-waiting"], 18, "{denied}");
    assert_eq!(denied["malformed-request"], 50, "{denied}");
    // Unlisted names get addresses for up to a quarter of the budget, and no server outside sees a lookup.
    let names = agent.python(
        "import socket\nfound = 0\n\
         for i in range(100):\n\
         \x20   try: socket.getaddrinfo('flood-%d.example.test' % i, 443, socket.AF_INET); found += 1\n\
         \x20   except socket.gaierror: pass\n\
         print(found)\n",
    );
    assert_eq!(names.stdout.trim(), "64", "{names}");
    assert_eq!(arrived(&["\"what\": \"dns\"", "flood"]), before);
    // Listed hosts work as before.
    assert_eq!(agent.curl(true, &["http://api.example.test/"]).code, 0);
    assert_eq!(agent.curl(true, &["https://api.example.test/"]).code, 0);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn after_a_used_up_budget_nothing_goes_through_for_a_while() {
    let docker = Docker::connect();
    let _turn = witness_of_own_requests();
    let start = |cool_down: &str| {
        let cool_down = format!("dev.agentbox.network.cool-down={cool_down}");
        let all = [
            runtime(),
            "--annotation",
            "dev.agentbox.network.allow=api.example.test:80, api.example.test:22",
            "--annotation",
            "dev.agentbox.network.connections-per-minute=4",
            "--annotation",
            &cool_down,
        ];
        Agent::start(&docker, &all)
    };
    let url = "http://api.example.test/cool";
    // Four are allowed, the fifth is one too many. A minute allows four, so after fifteen seconds there is one more. The
    // control gets it; the other agent must still wait.
    let (control, cold) = (start("0"), start("86400"));
    for agent in [&control, &cold] {
        // Slow calls get one or two more.
        let (mut allowed, mut over) = (0, agent.curl(false, &[url]));
        while over.stdout.contains("\"path\"") && allowed < 8 {
            (allowed, over) = (allowed + 1, agent.curl(false, &[url]));
        }
        assert!(allowed >= 4, "{allowed}: {over}");
        assert!(
            over.stdout.contains("connections-per-minute allows 4"),
            "{over}"
        );
    }
    std::thread::sleep(Duration::from_secs(16));
    assert!(control.curl(false, &[url]).stdout.contains("\"path\""));
    let paused = cold.curl(false, &[url]);
    assert!(
        paused
            .stdout
            .contains("network.cool-down denies connections"),
        "{paused}"
    );
    assert!(cold.violations().contains("network.cool-down"));
    assert!(cold.network()["denied"]["cool-down"].as_u64() >= Some(1));
    assert_ne!(cold.curl(true, &["-f", url]).code, 0);
}
