//! docs/agents.md agrees with agentbox and with hack/agents.

use super::{Scratch, program};
use crate::command::run;

fn file(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The commands of the block marked `agents`, each on one line.
fn commands() -> Vec<String> {
    block("agents")
}

fn block(mark: &str) -> Vec<String> {
    let text = file("docs/agents.md");
    let block = text.split(&format!("```sh {mark}\n")).nth(1).unwrap();
    let block = block.split("```").next().unwrap().replace("\\\n", " ");
    let lines = block.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn direct_every_rule_of_the_page_on_agents_allows_its_model() {
    let hosts = [
        ("claude ", "api.anthropic.com"),
        ("codex ", "api.openai.com"),
    ];
    let commands = commands();
    assert_eq!(commands.len(), hosts.len());
    for (command, (agent, host)) in commands.iter().zip(hosts) {
        assert!(command.contains(&format!("IMAGE {agent}")), "{command}");
        let annotation = annotations(command)[0];
        let check = |host: &str| {
            let asked = [
                "policy",
                "check",
                "standard",
                "--annotation",
                annotation,
                "--host",
                host,
            ];
            run(&program(), &asked).code
        };
        assert_eq!(check(host), 0, "{command}");
        assert_eq!(check("files.example.test"), 1, "{command}");
    }
}

#[test]
fn direct_the_command_without_a_key_allows_only_requests_to_its_model() {
    let commands = block("keyless");
    let [command] = &commands[..] else {
        panic!("{commands:?}")
    };
    let annotations = annotations(command);
    assert!(
        annotations.contains(&"dev.agentbox.network.tls=open"),
        "{command}"
    );
    let check = |request: &str| {
        let mut asked = vec!["policy", "check", "standard", "--request", request];
        for annotation in &annotations {
            asked.extend(["--annotation", annotation]);
        }
        run(&program(), &asked).code
    };
    assert_eq!(check("POST https://api.anthropic.com/v1/messages"), 0);
    assert_eq!(check("GET https://api.anthropic.com/v1/files"), 1);
    assert_eq!(check("POST https://api.openai.com/v1/responses"), 1);
}

/// The page's node file parses, and its secret fits the command.
#[test]
fn direct_the_node_file_of_the_page_on_agents_is_valid() {
    let page = file("docs/agents.md");
    let blocks = page.split("```toml\n# /etc/agentbox/config.toml\n");
    let block = blocks.last().unwrap().split("```").next().unwrap();
    let scratch = Scratch::new();
    let path = scratch.file("config.toml", block);
    let asked = ["--config", &path, "policy", "show", "standard"];
    run(&program(), &asked).ok();
    let broken = scratch.file("broken.toml", &block.replace("policies", "polices"));
    let control = run(
        &program(),
        &["--config", &broken, "policy", "show", "standard"],
    );
    assert_ne!(control.code, 0, "{control}");
}

#[test]
fn direct_hack_agents_tries_every_option_of_the_page_on_agents() {
    let script = file("hack/agents.d/inner.sh");
    let mut seen = 0;
    for command in commands() {
        let (_, said) = command.split_once("IMAGE ").unwrap();
        for option in said
            .split_whitespace()
            .filter(|word| word.starts_with("--"))
        {
            assert!(script.contains(option), "{option}");
            seen += 1;
        }
    }
    assert!(seen >= 2);
}

#[test]
fn direct_every_login_of_the_page_on_agents_is_a_credential() {
    let never = file("policies/never.toml");
    let page = file("docs/agents.md");
    let mut seen = 0;
    for word in page.split('`').skip(1).step_by(2) {
        if word.starts_with('.') && word.ends_with(".json") {
            assert!(never.contains(&format!("\"{word}\"")), "{word}");
            seen += 1;
        }
    }
    assert!(seen >= 6);
}

/// The annotations of a `docker run` command.
fn annotations(command: &str) -> Vec<&str> {
    let given = command.split("--annotation ").skip(1);
    let one = |text: &'_ str| match text.strip_prefix('\'') {
        Some(quoted) => quoted.find('\'').map(|end| 1..=end),
        None => text.find(' ').map(|end| 0..=end - 1),
    };
    given.map(|text| &text[one(text).unwrap()]).collect()
}

#[test]
fn direct_the_ceiling_of_the_page_on_agents_allows_a_container_its_login() {
    let page = file("docs/agents.md");
    let between = |mark: &str| {
        let block = page.split(mark).nth(1).unwrap();
        block.split("```").next().unwrap().replace("\\\n", " ")
    };
    let (policy, command) = (between("```toml\n"), between("```sh login\n"));
    let scratch = Scratch::new();
    scratch.file("policies/agents.toml", &policy);
    let dir = format!("policy-dir = \"{}\"\n", scratch.path("policies"));
    let with = |name: &str, line: &str| {
        let config = scratch.file(name, &format!("{dir}{line}\n"));
        let mut all = vec!["--config", &config, "policy", "check", "standard"];
        for annotation in annotations(&command) {
            all.extend(["--annotation", annotation]);
        }
        run(
            &program(),
            &[&all[..], &["--host", "auth.openai.com"]].concat(),
        )
    };
    assert_eq!(annotations(&command).len(), 3);
    with("meant.toml", "ceiling = \"agents\"").ok();
    // The control: without the ceiling, no annotation makes a login visible.
    let refused = with("control.toml", "").failed();
    assert!(refused.contains("filesystem.credentials"), "{refused}");
}
