//! Tips below errors of the command line.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds the tips that help here, and drops those of clap that do not. `command` is the whole command line's.
pub fn add(
    error: clap::Error,
    arguments: &[OsString],
    command: fn() -> clap::Command,
) -> clap::Error {
    // The verb of a line that cannot be read.
    let verb = || {
        let matches = command()
            .ignore_errors(true)
            .try_get_matches_from(arguments);
        matches.ok()?.subcommand_name().map(str::to_owned)
    };
    let error = with_engine_tip(without_value_tip(error), arguments);
    with_run_tip(with_host_tip(with_own_tip(error, verb), arguments), verb)
}

/// Puts this tip in the place of clap's.
fn suggest(error: &mut clap::Error, tip: impl Into<StyledStr>) {
    error.insert(
        ContextKind::Suggested,
        ContextValue::StyledStrs(vec![tip.into()]),
    );
}

/// A tip for a command that is typed after `run`, as after `docker run`.
fn with_run_tip(mut error: clap::Error, verb: impl Fn() -> Option<String>) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument && verb().is_some_and(|verb| verb == "run") {
        let tip =
            "`run` starts an OCI bundle, as runc's does; `agentbox wrap -- COMMAND` runs a command";
        suggest(&mut error, tip);
    }
    error
}

/// Drops clap's tip to write an unknown option as `-- --option`: here a value never starts with `-`, and in `wrap` and
/// `exec` the command would be of that name.
fn without_value_tip(mut error: clap::Error) -> clap::Error {
    let tip = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => format!("-- {argument}"),
        _ => return error,
    };
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        let mut tips = tips.clone();
        tips.retain(|text| !text.to_string().contains(&tip));
        let rest = match tips.is_empty() {
            true => ContextValue::None,
            false => ContextValue::StyledStrs(tips),
        };
        error.insert(ContextKind::Suggested, rest);
    }
    error
}

/// Verbs that other programs have, where clap would name one that has a similar name, and a tip for each.
const OTHERS: [(&str, &str); 5] = [
    ("completion", REFERENCE),
    ("completions", REFERENCE),
    ("man", REFERENCE),
    ("version", "`agentbox --version` prints it"),
    (
        "stop",
        "`agentbox kill ID` ends a container, and its engine's own verb, such as `docker stop`, knows of it",
    ),
];
const REFERENCE: &str = "the package installs man pages and completions; in a clone, `cargo run --example reference -- DIR` writes them";

/// A tip for a verb that other programs have, and for a command in a verb's place: `agentbox claude`.
fn with_own_tip(mut error: clap::Error, verb: impl Fn() -> Option<String>) -> clap::Error {
    let tip = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) => OTHERS.iter().find(|(other, _)| other == verb),
        _ => return error,
    };
    if let Some((_, tip)) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        suggest(&mut error, *tip);
    } else if verb().is_none() {
        // A typing error keeps clap's tip too.
        suggest(&mut error, "`agentbox wrap -- COMMAND` runs a command");
    }
    error
}

/// Options of Docker's `run`, and those of `wrap` for the same.
const ENGINES: [(&str, &str); 7] = [
    ("-p", "--publish PORT"),
    ("--port", "--publish PORT"),
    ("-v", "--read PATH, or --write PATH"),
    ("--volume", "--read PATH, or --write PATH"),
    ("--mount", "--read PATH, or --write PATH"),
    ("--net", "--allow HOST"),
    ("--network", "--allow HOST"),
];

fn with_engine_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_wrap = arguments.iter().any(|word| word == "wrap");
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if is_wrap => {
            ENGINES.iter().find(|(own, _)| own == option)
        }
        _ => None,
    };
    if let Some((_, ours)) = option {
        error.remove(ContextKind::SuggestedArg);
        suggest(&mut error, format!("wrap has {ours}"));
    }
    error
}

/// A tip for a host that is typed after a policy: `policy check standard a.test`.
fn with_host_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_check = arguments.windows(2).any(|two| two == ["policy", "check"]);
    let host = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word))
            if is_check && error.kind() == ErrorKind::UnknownArgument =>
        {
            word.clone()
        }
        _ => return error,
    };
    if !host.starts_with('-') {
        suggest(&mut error, format!("for a host, use --host {host}"));
    }
    error
}
