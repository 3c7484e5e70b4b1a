//! Rules for MCP calls, in plain HTTP and within opened TLS (N47 of the threat list). The server receives only the
//! calls that a rule allows, however a message spells them.

use super::allowlist::{Agent, arrived, witness};
use super::requests::{reader_of, trusting};
use super::{Docker, runtime};
use crate::command::{Finished, run};

const RULE: &str = "mcp:https://api.example.test/mcp tools/call:search_*";
const ALLOW: &str = "dev.agentbox.network.allow=mcp:https://api.example.test/mcp tools/call:search_*, \
                     mcp:https://api.example.test/stream/mcp tools/call:search_* prompts/get:hello";
const OPEN: [&str; 2] = ["--annotation", "dev.agentbox.network.tls=open"];
const JSON: &str = "Content-Type: application/json";

fn start<'a>(docker: &'a Docker, more: &[&str]) -> Agent<'a> {
    let all = [&[runtime(), "--annotation", ALLOW], more].concat();
    Agent::start(docker, &all)
}

fn message(id: &str, rest: &str) -> String {
    let id = match id {
        "" => String::new(),
        id => format!("\"id\":{id},"),
    };
    format!("{{\"jsonrpc\":\"2.0\",{id}{rest}}}")
}

fn call(name: &str) -> String {
    message(
        "7",
        &format!("\"method\":\"tools/call\",\"params\":{{\"name\":\"{name}\",\"arguments\":{{}}}}"),
    )
}

/// Posts a message to an address.
fn post(agent: &Agent<'_>, (direct, address): (bool, &str), body: &str, more: &[&str]) -> Finished {
    let all = [&["-i", "-H", JSON, "--data-binary", body, address], more].concat();
    agent.curl(direct, &all)
}

fn asked(name: &str) -> usize {
    arrived(&["\"mcp\"", "tools/call", &format!("\"name\": \"{name}\"")])
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn calls_that_a_rule_names_arrive_and_no_others() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let free = Agent::free(&docker);
    let control = post(
        &free,
        (true, "https://api.example.test/mcp"),
        &call("delete_control"),
        &[],
    );
    assert!(
        control.stdout.contains("\"did\": \"delete_control\""),
        "{control}"
    );
    let control = post(
        &free,
        (true, "https://api.example.test/stream/mcp"),
        &message("1", "\"method\":\"tools/list\""),
        &[],
    );
    assert!(control.stdout.contains("delete_all"), "{control}");
    drop(free);
    assert_eq!(asked("delete_control"), 1);
    for (round, way, more) in [
        (0, (false, "http"), &[][..]),
        (1, (true, "http"), &[][..]),
        (2, (true, "https"), &OPEN[..]),
    ] {
        let agent = start(&docker, more);
        let address = format!("{}://api.example.test/mcp", way.1);
        let stream = format!("{}://api.example.test/stream/mcp", way.1);
        let (to, to_stream) = ((way.0, address.as_str()), (way.0, stream.as_str()));
        for rest in [
            "\"method\":\"initialize\",\"params\":{}",
            "\"method\":\"ping\"",
        ] {
            let got = post(&agent, to, &message("1", rest), &[]);
            assert!(got.stdout.starts_with("HTTP/1.1 200 OK"), "{got}");
        }
        let good = format!("search_{round}");
        let got = post(&agent, to, &call(&good), &[]);
        assert!(
            got.stdout.contains(&format!("\"did\": \"{good}\"")),
            "{got}"
        );
        // Chunks, an escape, another order: they all arrive in one form.
        let escaped = call(&format!("\\u0073earch_{round}"));
        let got = post(&agent, to, &escaped, &["-H", "Transfer-Encoding: chunked"]);
        assert!(
            got.stdout.contains(&format!("\"did\": \"{good}\"")),
            "{got}"
        );
        assert_eq!(asked(&good), 2);
        // Lists contain the allowed tools.
        for to in [to, to_stream] {
            let got = post(&agent, to, &message("1", "\"method\":\"tools/list\""), &[]);
            assert!(got.stdout.contains("search_code"), "{got}");
            assert!(!got.stdout.contains("delete_all"), "{got}");
        }
        let events = ["-i", "-H", "Accept: text/event-stream", stream.as_str()];
        let got = agent.curl(way.0, &events);
        assert!(got.stdout.contains("search_code"), "{got}");
        assert!(!got.stdout.contains("delete_all"), "{got}");
        let got = agent.curl(
            way.0,
            &["-i", "-X", "DELETE", "-H", "Mcp-Session-Id: 1", &stream],
        );
        assert!(got.stdout.starts_with("HTTP/1.1 200 OK"), "{got}");
        // The denial reason is the answer to the call.
        let got = post(&agent, to, &call("delete_all"), &[]);
        assert!(got.stdout.starts_with("HTTP/1.1 200"), "{got}");
        assert!(got.stdout.contains("\"code\":-32043"), "{got}");
        let missing = "mcp:https://api.example.test/mcp tools/call:delete_all";
        assert!(
            got.stdout
                .contains(&format!("\"missing_rule\":\"{missing}\"")),
            "{got}"
        );
        let log = agent.counted("request-not-listed", 1);
        assert!(log.contains(missing), "{log}");
        assert_eq!(asked("delete_all"), 0);
    }
}

/// Messages that a careless server reads as another call than the wall does.
#[test]
#[ignore = "needs the rig of hack/test"]
fn no_spelling_of_a_message_hides_a_call() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let evil = "\"method\":\"tools/call\",\"params\":{\"name\":\"delete_hidden\"}";
    let twice = message(
        "1",
        "\"method\":\"ping\",\"method\":\"tools/call\",\"params\":{\"name\":\"delete_hidden\"}",
    );
    let nested = message(
        "1",
        "\"method\":\"tools/call\",\"params\":{\"name\":\"search_x\",\"name\":\"delete_hidden\"}",
    );
    let batch = format!("[{},{}]", call("search_batch"), message("2", evil));
    let attacks = [
        twice,
        nested,
        batch,
        message("1", evil),
        message("", evil),
        message(
            "1",
            "\"method\":\"tools/call\",\"params\":{\"name\":\"\\u0064elete_hidden\"}",
        ),
        message(
            "1",
            "\"m\\u0065thod\":\"tools/call\",\"method\":\"tools/call\",\"params\":{\"name\":\"delete_hidden\"}",
        ),
    ];
    // Without walls each of them arrives.
    let free = Agent::free(&docker);
    for attack in &attacks {
        post(&free, (true, "https://api.example.test/mcp"), attack, &[]);
    }
    assert_eq!(asked("delete_hidden"), attacks.len());
    drop(free);
    let agent = start(&docker, &[]);
    let to = (true, "http://api.example.test/mcp");
    for attack in &attacks {
        let got = post(&agent, to, attack, &[]);
        assert!(!got.stdout.contains("\"did\""), "{attack}: {got}");
    }
    let good = call("search_odd");
    for fields in [
        &["-H", "Content-Type: text/plain"][..],
        &["-H", "Content-Encoding: gzip"],
        &["-H", "Mcp-Name: delete_hidden"],
        &["-X", "PUT"],
    ] {
        let all = [&["-i", "--data-binary", good.as_str(), to.1], fields].concat();
        let all = match fields[1].starts_with("Content-Type") {
            true => all,
            false => [&["-H", JSON], &all[..]].concat(),
        };
        let got = agent.curl(true, &all);
        assert!(got.stdout.starts_with("HTTP/1.1 403"), "{fields:?}: {got}");
    }
    let long = "head -c 2000000 /dev/zero | tr '\\0' ' ' > /tmp/long";
    agent.container.exec(&[], &["sh", "-c", long]);
    let got = agent.curl(
        true,
        &["-i", "-H", JSON, "--data-binary", "@/tmp/long", to.1],
    );
    assert!(got.stdout.contains("longer than 1048576 bytes"), "{got}");
    let got = agent.curl(true, &["-i", to.1]);
    assert!(got.stdout.starts_with("HTTP/1.1 403"), "{got}");
    // A fullwidth letter makes it another tool's name.
    post(&agent, to, &call("\u{ff53}earch_wide"), &[]);
    assert_eq!(asked("delete_hidden"), attacks.len());
    assert_eq!(asked("search_batch"), 1);
    assert_eq!(asked("search_odd"), 0);
    assert_eq!(arrived(&["\"mcp\"", "earch_wide"]), 0);
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn calls_follow_the_rules_of_a_running_container() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = start(&docker, &[]);
    let id = agent.container.inspect("{{.Id}}");
    let to = (true, "http://api.example.test/mcp");
    let says = |name: &str| {
        post(&agent, to, &call(name), &[])
            .stdout
            .contains("\"did\"")
    };
    let more = "mcp:https://api.example.test/mcp tools/call:write_*";
    assert!(says("search_a") && !says("write_a"));
    run("agentbox", &["update", "--network-add", more, &id]).ok();
    assert!(says("search_a") && says("write_a"));
    run("agentbox", &["update", "--network-remove", RULE, &id]).ok();
    assert!(!says("search_a") && says("write_a"));
    let check = |request: &str| {
        run(
            "agentbox",
            &["policy", "check", "--container", &id, "--request", request],
        )
        .stdout
    };
    let address = "mcp:https://api.example.test/mcp";
    assert!(check(&format!("{address} tools/call:write_b")).starts_with("allowed"));
    let denied = check(&format!("{address} tools/call:drop"));
    assert!(
        denied.starts_with("denied")
            && denied.contains(&format!("the missing rule: {address} tools/call:drop")),
        "{denied}"
    );
}

/// N20: message buffers are bounded, even with many clients and a slow server. 48 such calls once killed the reader.
#[test]
#[ignore = "needs the rig of hack/test"]
fn many_long_calls_to_a_slow_server_end_nothing() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let rule =
        "dev.agentbox.network.allow=mcp:https://api.example.test/slow/mcp tools/call:search_*";
    let agent = Agent::start(&docker, &[runtime(), "--annotation", rule]);
    let before = reader_of(&agent.sidecar());
    let program = "
import collections, socket, threading
text = b'{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"search_a\",\"arguments\":{\"a\":\"%s\"}}}'
got = collections.Counter()
def call(length, all_of_it=True):
    body = text % (b'x' * length)
    s = socket.create_connection(('api.example.test', 80), 60)
    s.settimeout(60)
    s.sendall(b'POST /slow/mcp HTTP/1.1\\r\\nHost: api.example.test\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body))
    s.sendall(body if all_of_it else body[:1])
    return s
def whole(length):
    try:
        got[call(length).recv(65536)[9:12].decode() or 'nothing'] += 1
    except OSError as error:
        got[type(error).__name__] += 1
stuck = [call(1000000, False) for _ in range(40)]
all = [threading.Thread(target=whole, args=(1000000,)) for _ in range(120)] + [threading.Thread(target=whole, args=(10,))]
[one.start() for one in all]
[one.join() for one in all]
print(dict(got))
";
    let got = agent.python(program);
    let answers: Vec<&str> = got.stdout.split('\'').skip(1).step_by(2).collect();
    assert!(!answers.is_empty() && answers.contains(&"200"), "{got}");
    assert!(
        answers.iter().all(|code| ["200", "503"].contains(code)),
        "{got}"
    );
    assert_eq!(reader_of(&agent.sidecar()), before, "{got}");
    let to = (true, "http://api.example.test/slow/mcp");
    let next = post(&agent, to, &call("search_next"), &[]);
    assert!(next.stdout.contains("\"did\": \"search_next\""), "{next}");
}
