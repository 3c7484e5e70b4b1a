//! The commands for agents in docs/wrap.md are valid, and allow what the agent needs.

use std::path::Path;

use crate::command::run;
use crate::direct::program;
use crate::docker::Docker;

fn commands() -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/wrap.md");
    let text = std::fs::read_to_string(page).unwrap();
    let block = text.split("```sh agents\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    block.lines().map(words).collect()
}

/// Each preset's model, by the host that its programs connect to.
const MODELS: [(&str, &str); 3] = [
    ("@anthropic", "api.anthropic.com"),
    ("@openai", "api.openai.com"),
    ("@google-ai", "generativelanguage.googleapis.com"),
];

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_takes_every_command_of_the_page_on_agents_and_lets_its_model_be_reached() {
    let _docker = Docker::connect();
    let commands = commands();
    assert_eq!(commands.len(), 4);
    for words in commands {
        assert_eq!(words[0], "agentbox");
        let end = words.iter().position(|w| w == "--").unwrap();
        let options = &words[2..end];
        let preset = &options[options.iter().position(|w| w == "--allow").unwrap() + 1];
        let (_, model) = MODELS.iter().find(|(name, _)| name == preset).unwrap();
        let project = crate::direct::Scratch::new();
        let workspace = project.dir("project");
        let mut asked: Vec<&str> = vec!["wrap", "--dry-run", "--workspace", &workspace];
        asked.extend(options.iter().map(String::as_str));
        asked.extend(["--", "true"]);
        let shown = run(&program(), &asked).ok();
        assert!(shown.contains(model), "{words:?}: {shown}");
        // Without the option, the host is not allowed.
        let plain = ["wrap", "--dry-run", "--workspace", &workspace, "--", "true"];
        let shown = run(&program(), &plain).ok();
        assert!(!shown.contains(model), "{shown}");
    }
}
