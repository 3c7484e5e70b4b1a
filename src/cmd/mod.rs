//! One file for each verb, each short enough for one screen.

mod approvals;
mod audit;
mod checkpoint;
mod create;
mod delete;
mod doctor;
mod events;
mod exec;
mod exit;
mod explain;
mod explain_syscalls;
mod explain_wrap;
mod extend;
mod features;
mod install;
mod key;
mod kill;
mod list;
mod network;
mod out;
mod pause;
mod policy;
mod ps;
mod receipt;
mod run;
mod spec;
mod start;
mod state;
mod suggest;
mod trust;
mod until;
mod update;
mod verify;
mod wrap;

use std::process::ExitCode;

use crate::cli::{self, Cli, Verb};
use crate::runtime::files;
use crate::runtime::input::node_files;
use crate::runtime::state::store;
use anyhow::{Result, bail};

/// Runs the verb.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { mut global, verb } = cli;
    if global.version {
        version()?;
        return Ok(ExitCode::SUCCESS);
    }
    if !matches!(global.rootless.as_str(), "auto" | "false") {
        bail!(
            "--rootless={} cannot be obeyed: use auto or false",
            global.rootless
        );
    }
    let Some(verb) = verb else {
        out::text(&cli::command().render_help().to_string())?;
        return Ok(ExitCode::FAILURE);
    };
    make_room(&verb)?;
    match &verb {
        // These check the node's settings themselves.
        Verb::Doctor(args) => return doctor::run(global, args),
        Verb::Install(args) => return install::install(args),
        Verb::Uninstall(args) => return install::uninstall(args),
        _ => {}
    }
    store::settle(&mut global)?;
    node_files::check_caller(&global)?;
    match verb {
        Verb::Create(args) => create::run(&global, &args),
        Verb::Start(args) => start::run(&global, &args),
        Verb::Run(args) => run::run(&global, &args),
        Verb::Exec(args) => exec::run(&global, &args),
        Verb::Kill(args) => kill::run(&global, &args),
        Verb::Delete(args) => delete::run(&global, &args),
        Verb::State(args) => state::run(&global, &args),
        Verb::List(args) => list::run(&global, &args),
        Verb::Ps(args) => ps::run(&global, &args),
        Verb::Pause(args) => pause::pause(&global, &args),
        Verb::Resume(args) => pause::resume(&global, &args),
        Verb::Update(args) => update::run(&global, &args),
        Verb::Events(args) => events::run(&global, &args),
        Verb::Checkpoint(_) => checkpoint::refuse("checkpoint"),
        Verb::Restore(_) => checkpoint::refuse("restore"),
        Verb::Features => features::run(&global),
        Verb::Spec(args) => spec::run(&args),
        Verb::Explain(args) => explain::run(&global, &args),
        Verb::Audit(args) => audit::run(&args),
        Verb::Suggest(args) => suggest::run(&global, &args),
        Verb::Receipt(args) => receipt::run(&args),
        Verb::Key => key::run(),
        Verb::Approvals(args) => approvals::list(&args),
        Verb::Approve(args) => approvals::approve(&args),
        Verb::Deny(args) => approvals::deny(&args),
        Verb::Extend(args) => extend::run(&args),
        Verb::Network(args) => network::run(&args),
        Verb::Policy(args) => policy::run(&global, &args.verb),
        Verb::Verify(args) => Ok(verify::run(&global, &args)),
        Verb::Trust(args) => trust::run(&args),
        Verb::Doctor(args) => doctor::run(global, &args),
        Verb::Install(args) => install::install(&args),
        Verb::Uninstall(args) => install::uninstall(&args),
        Verb::Wrap(args) => Ok(wrap::run(&global, &args)),
    }
}

/// Raises the caller's limit of a file's size, which would cut the log and the records. A verb that writes them is
/// refused under a low limit that cannot be raised; what ends a container never is.
fn make_room(verb: &Verb) -> Result<()> {
    let Err(limit) = files::make_room() else {
        return Ok(());
    };
    let writes = matches!(
        verb,
        Verb::Create(_)
            | Verb::Start(_)
            | Verb::Run(_)
            | Verb::Exec(_)
            | Verb::Pause(_)
            | Verb::Resume(_)
            | Verb::Update(_)
            | Verb::Approve(_)
            | Verb::Deny(_)
            | Verb::Extend(_)
            | Verb::Verify(_)
            | Verb::Wrap(_)
    );
    if writes {
        bail!(
            "RLIMIT_FSIZE is {limit} bytes, which could cut the container's log: use `ulimit -f unlimited`, or {} KiB or more",
            files::LONGEST >> 10
        );
    }
    Ok(())
}

/// The version in runc's form, which engines parse for the words `spec:`.
fn version() -> Result<()> {
    let mut text = format!("agentbox version {}\n", env!("CARGO_PKG_VERSION"));
    // runc's line. A build without a git clone does not know its commit.
    if let Some(commit) = option_env!("AGENTBOX_COMMIT") {
        text += &format!("commit: {commit}\n");
    }
    if let Some(date) = option_env!("AGENTBOX_DATE") {
        text += &format!("date: {date}\n");
    }
    text += &format!("spec: {}\n", features::SPEC_VERSION);
    out::text(&text).map(|_| ())
}
