//! Tips below errors of the command line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Adds the tips that help here, and drops those of clap that do not.
pub fn add(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let error = with_engine_tip(without_value_tip(error), arguments);
    with_host_tip(with_own_tip(error), arguments)
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
const OTHERS: [(&str, &str); 4] = [
    ("completion", REFERENCE),
    ("completions", REFERENCE),
    ("man", REFERENCE),
    (
        "stop",
        "`agentbox kill ID` ends a container, and its engine's own verb, such as `docker stop`, knows of it",
    ),
];
const REFERENCE: &str = "the package installs man pages and completions; in a clone, `cargo run --example reference -- DIR` writes them";

fn with_own_tip(mut error: clap::Error) -> clap::Error {
    let tip = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(verb)) => OTHERS.iter().find(|(other, _)| other == verb),
        _ => None,
    };
    if let Some((_, tip)) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = ContextValue::StyledStrs(vec![(*tip).into()]);
        error.insert(ContextKind::Suggested, tip);
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
        let tip = ContextValue::StyledStrs(vec![format!("wrap has {ours}").into()]);
        error.insert(ContextKind::Suggested, tip);
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
        let tip = ContextValue::StyledStrs(vec![format!("for a host, use --host {host}").into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}
