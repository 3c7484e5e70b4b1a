//! The man pages, the completions and a page of the command line, for hack/package and hack/book: an example, so that the
//! program carries neither them nor what writes them.
//!
//!   cargo run --example reference -- DIR

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::{Arg, Command};
use clap_complete::{Shell, generate_to};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: reference DIR")?;
    let directory = Path::new(&directory);
    let man = directory.join("man");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(agentbox::cli::command(), &man)?;
    let completions = directory.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(
            shell,
            &mut agentbox::cli::command(),
            "agentbox",
            &completions,
        )?;
    }
    fs::write(directory.join("cli.md"), page()?)?;
    Ok(())
}

/// The page: a heading for each verb, in the order of the alphabet.
fn page() -> Result<String, Box<dyn Error>> {
    let mut command = agentbox::cli::command();
    command.build();
    let mut text = String::from(
        "# The command line\n\nFor users who look up an option. Made from the program; `agentbox VERB --help` prints the same.\n\n",
    );
    section(&mut text, &command, "agentbox", 2)?;
    Ok(text)
}

/// A command with its options, and its verbs.
fn section(text: &mut String, command: &Command, name: &str, depth: usize) -> std::fmt::Result {
    let about = command
        .get_long_about()
        .or_else(|| command.get_about())
        .map(ToString::to_string);
    writeln!(text, "{} {name}\n", "#".repeat(depth))?;
    writeln!(text, "{}\n", about.unwrap_or_default())?;
    let usage = command.clone().render_usage().to_string();
    writeln!(text, "```text\n{usage}\n```\n")?;
    let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_global_set() && arg.get_id() != "help";
    let options: Vec<&Arg> = command.get_arguments().filter(shown).collect();
    if !options.is_empty() {
        writeln!(text, "| Option | Effect |\n|---|---|")?;
        for option in options {
            writeln!(text, "| `{}` | {} |", label(option), effect(option))?;
        }
        writeln!(text)?;
    }
    let mut verbs: Vec<&Command> = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
        .collect();
    verbs.sort_by_key(|verb| verb.get_name());
    for verb in verbs {
        let name = format!("{name} {}", verb.get_name());
        section(text, verb, &name, (depth + 1).min(3))?;
    }
    Ok(())
}

/// An option as it is typed, with the names of its values.
fn label(arg: &Arg) -> String {
    let typed = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => String::new(),
    };
    let takes = arg.get_action().takes_values();
    let values: Vec<String> = arg
        .get_value_names()
        .filter(|_| takes)
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let whole = format!("{typed} {}", values.join(" "));
    whole.trim().replace('|', "\\|")
}

/// What it does, with its values where they are words.
fn effect(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let words: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set() && arg.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let values = match words.is_empty() {
        true => String::new(),
        false => format!(" ({})", words.join(", ")),
    };
    let text = format!("{help}{values}").replace('\n', " ");
    text.replace('|', "\\|").replace('<', "&lt;")
}
