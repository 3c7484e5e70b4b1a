//! argv -> verb -> exit code. Errors are printed only here.

use std::process::ExitCode;

use agentbox::cli::{self, Cli};
use agentbox::runtime::hooks;
use agentbox::{cmd, log, sidecar, verify};

fn main() -> ExitCode {
    // First, before anything is allocated for the command line, so that the sidecar stays small.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == "sidecar")
    {
        return sidecar::main();
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == "timekeeper")
    {
        return sidecar::timekeeper::main();
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == "user-relay")
    {
        return sidecar::user_relay::main();
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == hooks::VERB)
    {
        return hooks::main();
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == verify::inside::VERB)
    {
        return verify::inside::main();
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() {
                cli::misuse(std::env::args_os())
            } else {
                0
            };
            return match error.print() {
                // A broken pipe is no failure: the reader has stopped.
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
                _ => ExitCode::from(code),
            };
        }
    };
    let verbosity = match cli.global.debug {
        true => log::Verbosity::Debug,
        false => log::Verbosity::Warnings,
    };
    let global = &cli.global;
    let reader = cli.error_reader();
    if let Err(error) = log::init(global.log.as_deref(), global.log_format, verbosity, reader) {
        log::complain(&format!("agentbox: {error:#}"));
        return ExitCode::FAILURE;
    }
    match cmd::run(cli) {
        Ok(code) => code,
        Err(error) => {
            log::fatal(&error);
            ExitCode::FAILURE
        }
    }
}
