//! An MCP server behind the walls, configured as docs/wrap.md shows. Its standard input and output are unchanged, and
//! the server cannot reach the user's files or hosts.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::HANGS;
use crate::direct::program;
use crate::direct::wrap::{Person, SECRET};

/// A server for the protocol's first messages, with one tool that reads a file and one that connects.
const SERVER: &str = r#"
import json, socket, sys
sys.stderr.write("server: ready\n")
for line in sys.stdin:
    request = json.loads(line)
    method, ident = request["method"], request.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "notes", "version": "1"}, "capabilities": {"tools": {}}}
    elif method == "tools/call":
        arguments = request["params"]["arguments"]
        try:
            if "path" in arguments:
                text = open(arguments["path"], encoding="utf-8", newline="").read()
            elif "write" in arguments:
                text = str(open(arguments["write"], "w").write("note"))
            elif "host" in arguments:
                socket.create_connection((arguments["host"], arguments["port"]), 5)
                text = "connected"
            else:
                text = arguments["echo"]
        except OSError as error:
            text = "refused: %s" % error
        result = {"content": [{"type": "text", "text": text}]}
    else:
        continue
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}, ensure_ascii=False) + "\n")
    sys.stdout.flush()
"#;

/// The blocks of the page's section in this language.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wrap.md");
    let text = std::fs::read_to_string(page).unwrap();
    let section = text.split("\n## ").find(|s| s.starts_with("MCP servers"));
    let section = section.expect("docs/wrap.md has a section on MCP servers");
    let opens = format!("```{language}");
    let parts: Vec<&str> = section.split("```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    inside
        .filter_map(|block| block.strip_prefix(&opens[3..]))
        .map(str::to_owned)
        .collect()
}

/// All command lines of clients in docs/wrap.md.
fn command_lines() -> Vec<Vec<String>> {
    let words = |value: &Value| -> Vec<String> {
        let list = value.as_array().unwrap();
        list.iter()
            .map(|w| w.as_str().unwrap().to_owned())
            .collect()
    };
    let server = |server: &Value| match &server["command"] {
        Value::Array(_) => words(&server["command"]),
        command => [
            vec![command.as_str().unwrap().to_owned()],
            words(&server["args"]),
        ]
        .concat(),
    };
    let mut found = Vec::new();
    for block in blocks("json") {
        let value: Value = serde_json::from_str(&block).unwrap();
        let servers = value
            .get("mcpServers")
            .or_else(|| value.get("mcp"))
            .unwrap();
        found.extend(servers.as_object().unwrap().values().map(server));
    }
    for block in blocks("sh") {
        for line in block.trim().lines() {
            let (_, after) = line.split_once(" -- ").unwrap();
            found.push(after.split_whitespace().map(str::to_owned).collect());
        }
    }
    found
}

/// A running server, and a client that talks to it.
struct Session {
    child: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
    number: u64,
}

impl Session {
    /// Starts `words` as a client does, in a project.
    fn begin(words: &[String], home: &str, project: &str) -> Self {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(project)
            .env("HOME", home);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{words:?}: {e}"));
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            answers,
            number: 0,
        }
    }

    /// One request, and the line that answers it.
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params});
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        assert_eq!(answer["id"], self.number, "{answer}");
        answer["result"].clone()
    }

    fn tool(&mut self, arguments: &Value) -> String {
        let result = self.ask(
            "tools/call",
            &json!({"name": "any", "arguments": arguments}),
        );
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes the input, as clients do. Returns the exit code and the output beside the protocol.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let until = Instant::now() + HANGS;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if Instant::now() > until {
                self.child.kill().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "nothing but answers is on standard output");
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        (status, said)
    }
}

/// A user with a key, and a project with a server in it.
fn person() -> Person {
    let person = Person::new();
    person.scratch.file("home/project/server.py", SERVER);
    person
}

/// Starts the page's words, with this binary and this server in place of the page's.
fn session(person: &Person, words: &[String]) -> Session {
    let mut words = words.to_vec();
    assert_eq!(words[0], "agentbox");
    words[0] = program();
    let end = words.iter().position(|w| w == "--");
    words.truncate(end.expect("the server stands after --") + 1);
    words.extend(["python3", "server.py"].map(str::to_owned));
    Session::begin(&words, &person.home, &person.project)
}

fn plain(person: &Person) -> Session {
    let server = ["python3", "server.py"].map(str::to_owned);
    Session::begin(&server, &person.home, &person.project)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_mcp_a_server_of_each_line_of_the_page_speaks_as_without_walls() {
    let person = person();
    let lines = command_lines();
    assert!(lines.len() >= 2, "{lines:?}");
    // Larger than a pipe's buffer, with bytes that a terminal would change.
    let long = format!("\u{1b}[2J\u{7f}\0\r\n{}\u{1F600}", "x".repeat(300_000));
    for words in &lines {
        let mut plain = plain(&person);
        let mut session = session(&person, words);
        let hello = session.ask("initialize", &json!({"protocolVersion": "2025-06-18"}));
        assert_eq!(hello, plain.ask("initialize", &json!({})), "{words:?}");
        assert_eq!(session.tool(&json!({"echo": long})), long, "{words:?}");
        let (status, said) = session.end();
        assert_eq!(status, Some(0), "{words:?}: {said}");
        assert!(said.contains("server: ready"), "{said}");
        assert_eq!(plain.end().0, Some(0));
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_mcp_a_server_reads_no_key_and_connects_to_no_port_of_the_node() {
    let person = person();
    let key = person.scratch.path("home/.ssh/id_ed25519");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let attacks = [
        json!({"path": key}),
        json!({"host": "127.0.0.1", "port": port}),
    ];
    let mut plain = plain(&person);
    assert_eq!(plain.tool(&attacks[0]), SECRET);
    assert_eq!(plain.tool(&attacks[1]), "connected");
    plain.end();
    for words in command_lines() {
        let mut session = session(&person, &words);
        for attack in &attacks {
            let said = session.tool(attack);
            assert!(said.starts_with("refused: "), "{words:?} {attack}: {said}");
        }
        assert_eq!(session.tool(&json!({"path": "server.py"})), SERVER);
        session.end();
    }
}
