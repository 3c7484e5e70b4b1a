//! PURE. The overview of `agentbox --help`: verbs for users first, verbs for engines last.

use clap::{Command, CommandFactory};

use super::Cli;

/// The groups of verbs, in order. They contain every visible verb.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run a command", &["wrap", "trust"]),
    ("Set up", &["doctor", "install", "uninstall"]),
    (
        "Look at a run",
        &[
            "explain", "verify", "audit", "suggest", "network", "receipt", "key",
        ],
    ),
    (
        "Decide",
        &["policy", "update", "approvals", "approve", "deny", "extend"],
    ),
    (
        "Containers, as runc (man runc)",
        &[
            "create",
            "start",
            "run",
            "exec",
            "kill",
            "delete",
            "state",
            "list",
            "ps",
            "pause",
            "resume",
            "events",
            "spec",
            "features",
            "checkpoint",
            "restore",
        ],
    ),
];

/// The whole command line, with the overview in its help.
pub fn command() -> Command {
    let command = Cli::command();
    let groups = overview(&command);
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn overview(command: &Command) -> String {
    let line = |name: &&str| {
        let verb = command.find_subcommand(name)?;
        let about = verb
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        Some(format!("  {name:11} {about}\n"))
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: String = names.iter().filter_map(line).collect();
        format!("{title}:\n{lines}\n")
    };
    let mut text: String = GROUPS.iter().map(group).collect();
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Words of a help line. A longer line wraps in a terminal of 80 columns.
    const MOST_WORDS: usize = 10;

    #[test]
    fn every_verb_is_in_one_group_and_its_line_is_short() {
        let command = Cli::command();
        let mut verbs = BTreeSet::new();
        for verb in command.get_subcommands() {
            let about = verb
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(about.len() <= 80 && !about.is_empty(), "{about}");
            verbs.insert(verb.get_name());
        }
        let grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        assert_eq!(grouped.len(), verbs.len());
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), verbs);
    }

    /// The words of a help line, without its default in brackets.
    fn words(help: &str) -> usize {
        let text = help.split_once(" [").map_or(help, |(before, _)| before);
        text.split_whitespace().count()
    }

    fn check_lines(command: &Command, verb: &str, long: &mut Vec<String>) {
        let arguments = command.get_arguments();
        let helps = arguments.map(|argument| (argument.get_id().as_str(), argument.get_help()));
        for (name, help) in helps.chain([("", command.get_about())]) {
            let help = help.map(ToString::to_string).unwrap_or_default();
            if words(&help) > MOST_WORDS || help.ends_with('.') {
                long.push(format!("{verb} {name}: {help}"));
            }
        }
        for below in command.get_subcommands() {
            check_lines(below, &format!("{verb} {}", below.get_name()), long);
        }
    }

    #[test]
    fn a_help_line_has_at_most_ten_words() {
        let mut long = Vec::new();
        check_lines(&Cli::command(), "agentbox", &mut long);
        assert!(long.is_empty(), "{long:#?}");
        // The control.
        assert_eq!(words("Allow a host, repeatable [default port: 443]"), 4);
    }

    #[test]
    fn help_starts_with_the_verbs_for_users() {
        let help = command().render_help().to_string();
        let first = help.find("  wrap ").unwrap();
        assert!(first < help.find("  create ").unwrap(), "{help}");
        assert!(help.contains("\nOptions:\n"), "{help}");
    }
}
