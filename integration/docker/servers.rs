//! Real servers (gunicorn with Flask, PHP, uvicorn with Starlette, a JSON reader in C) behind request rules. None of
//! them serves a request that no rule allows (N39, N43, N47 of the threat list). Each attack is first tried without
//! walls.

use std::sync::Once;

use super::allowlist::{Agent, INTERNET, internet, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::{Finished, run};

const HOST: &str = "other.example.test";
const ALLOW: &str = "dev.agentbox.network.allow=GET,POST https://other.example.test:9104/**, GET,POST http://other.example.test:9105/**, \
                     POST http://other.example.test:9106/**";
const DENY: &str = "dev.agentbox.network.deny=* https://other.example.test:9104/admin/**, * https://other.example.test:9104/exact, \
                    DELETE http://other.example.test:9105/**, * http://other.example.test:9105/admin, \
                    mcp:https://other.example.test:9104/mcp tools/call:delete_all, \
                    mcp:http://other.example.test:9106/mcp tools/call:delete_all";
const JSON: &str = "Content-Type: application/json";
/// In the form of Azure's and Google's keys.
const VALUE: &str = "Zm9v/Base+64key==/x7+Q9";

fn servers() {
    static UP: Once = Once::new();
    internet();
    UP.call_once(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/internet/real.sh");
        run("bash", &[script, INTERNET]).ok();
    });
}

fn call(params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{params}}}}}")
}

/// An attack: a field, a port and a path, a body, and the server's output if it serves the request.
type Attack = (
    &'static str,
    u16,
    &'static str,
    Option<String>,
    &'static str,
);

fn attacks() -> Vec<Attack> {
    let delete = || Some(call("\"name\":\"delete_all\""));
    vec![
        (
            "SCRIPT_NAME: /app/public",
            9104,
            "/app/public/admin/x",
            None,
            "ADMIN x",
        ),
        ("Accept: */*", 9104, "/exact%2f", None, "EXACT"),
        ("Accept: */*", 9104, "/exact%2F", None, "EXACT"),
        (
            "X.HTTP.Method.Override: DELETE",
            9105,
            "/x",
            Some("a".to_owned()),
            "PHP DELETE /x",
        ),
        (
            "X_HTTP-Method.Override: DELETE",
            9105,
            "/x",
            Some("a".to_owned()),
            "PHP DELETE /x",
        ),
        ("X.Original.URL: /admin", 9105, "/x", None, "PHP GET /admin"),
        (
            JSON,
            9104,
            "/mcp",
            Some(call("\"name\":\"delete_all\\u0000\"")),
            "\"did\":\"delete_all\"",
        ),
        (
            JSON,
            9104,
            "/mcp",
            Some(call("\"name\\u0000x\":\"delete_all\",\"name\":\"search\"")),
            "\"did\":\"delete_all\"",
        ),
        (JSON, 9104, "/mcp%2f", delete(), "\"did\":\"delete_all\""),
        (JSON, 9106, "/mcp%2f", delete(), "\"did\":\"delete_all\""),
    ]
}

/// Sends an attack to a server; `scheme` is the program's.
fn ask(agent: &Agent<'_>, scheme: &str, (field, port, path, body, _): &Attack) -> Finished {
    let address = format!("{scheme}://{HOST}:{port}{path}");
    let mut all = vec!["-i", "--path-as-is", "-H", field, address.as_str()];
    if let Some(body) = body {
        all.extend(["--data-binary", body]);
    }
    agent.curl(true, &all)
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn servers_as_people_run_them_serve_nothing_else() {
    let docker = Docker::alone();
    let _turn = witness();
    servers();
    let mut node = NodeFiles::default();
    node.write("query-key", 0o600, &format!("{VALUE}\n"));
    node.write(
        "config.toml",
        0o600,
        &format!(
            "[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n\
             [[secret]]\nname = \"query\"\nfile = \"/etc/agentbox/query-key\"\npolicies = [\"standard\"]\n\
             requests = [\"GET https://{HOST}:9104/login/**\"]\nquery = \"key\"\n"
        ),
    );
    let free = Agent::free(&docker);
    for attack in attacks() {
        let scheme = if attack.1 == 9104 { "https" } else { "http" };
        let got = ask(&free, scheme, &attack);
        assert!(got.stdout.contains(attack.4), "{attack:?}: {got}");
    }
    drop(free);
    let agent = Agent::start(
        &docker,
        &[runtime(), "--annotation", ALLOW, "--annotation", DENY],
    );
    for attack in attacks() {
        let got = ask(&agent, "http", &attack);
        assert!(
            got.stdout.starts_with("HTTP/1.1 403") || got.stdout.contains("-32043"),
            "{attack:?}: {got}"
        );
        assert!(!got.stdout.contains(attack.4), "{attack:?}: {got}");
    }
    // Requests that the rules allow work.
    for (field, port, path, body, served) in [
        ("Accept: */*", 9104, "/app/public/a", None, "PUBLIC a"),
        ("Accept: */*", 9105, "/x", None, "PHP GET /x"),
        (
            JSON,
            9104,
            "/mcp",
            Some(call("\"name\":\"search\"")),
            "\"did\":\"search\"",
        ),
        (
            JSON,
            9106,
            "/mcp/",
            Some(call("\"name\":\"search\"")),
            "\"did\":\"search\"",
        ),
    ] {
        let got = ask(&agent, "http", &(field, port, path, body, served));
        assert!(got.stdout.contains(served), "{path}: {got}");
    }
    for login in ["path", "next", "twice"] {
        let address = format!("http://{HOST}:9104/login/{login}");
        let got = agent.curl(true, &["-i", &address]);
        assert!(got.stdout.starts_with("HTTP/1.1 302"), "{got}");
        let mut text = got.stdout.clone();
        for _ in 0..4 {
            assert!(!text.contains(VALUE), "{login}: {got}");
            text = unquoted(&text);
        }
        assert!(got.stdout.contains("****"), "{login}: {got}");
    }
}

fn unquoted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        out += before;
        let digits = after
            .get(..2)
            .and_then(|two| u8::from_str_radix(two, 16).ok());
        match digits {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[2..];
            }
            None => {
                out.push('%');
                rest = after;
            }
        }
    }
    out + rest
}
