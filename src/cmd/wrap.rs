//! `wrap`

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use rustix::io::Errno;

use super::exit::exit_code;
use super::{explain, out};
use crate::cli::{GlobalOptions, Walls, Wrap};
use crate::log::progress;
use crate::policy::{PolicyError, Tool};
use crate::render::explain::{self as page, PageLength};
use crate::runtime::RuntimeError;
use crate::runtime::foreground::shown_input;
use crate::runtime::obstacle::Obstacle;
use crate::runtime::seal;
use crate::runtime::seal::ListenFds;
use crate::runtime::unprivileged;
use crate::wrap::{self, WrapRequest};

/// Runs a command behind the walls, without an engine. Ends as the command does, even by SIGINT. The exit status is 127
/// without such a program and 126 if it cannot be executed, as in a shell. It is 125 if `wrap` itself fails, as with
/// `docker run`.
pub fn run(global: &GlobalOptions, args: &Wrap) -> ExitCode {
    attempt(global, args).unwrap_or_else(|error| {
        let obstacle = obstacle(&error).map(|found| anyhow!("{found}: {}", found.remedy()));
        let sandboxed = || is_denied(&error).then(unprivileged::sandboxed).flatten();
        match obstacle.or_else(|| sandboxed().map(Into::into)) {
            Some(cause) => {
                log::debug!("the failure itself: {error:#}");
                crate::log::fatal(&cause);
            }
            None => crate::log::fatal(&error),
        }
        let policy = error.chain().find_map(policy_error);
        if let Some(PolicyError::NoSuchPolicy { name, .. }) = policy
            && Path::new(&format!("{name}.toml")).is_file()
        {
            crate::log::complain(&format!(
                "{name}.toml is here; a file is named by its path: --policy ./{name}.toml"
            ));
        }
        if let Some(files) = policy.and_then(PolicyError::files_that_permit) {
            crate::log::complain("root permits it by these lines in two files:");
            files.lines().for_each(crate::log::complain);
        }
        exit_code(wrap::status_of(&error))
    })
}

/// What a container around this program keeps from `wrap`, if the runtime failed. Refusals have their own words.
fn obstacle(error: &anyhow::Error) -> Option<Obstacle> {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    let is_step = causes.any(|cause| {
        matches!(
            cause,
            RuntimeError::Container { .. }
                | RuntimeError::Cgroup(_)
                | RuntimeError::Sidecar(_)
                | RuntimeError::Io { .. }
        )
    });
    is_step.then(unprivileged::obstacle).flatten()
}

/// Whether the kernel denied a step, or has a file system that is read-only: walls around this process do so, as file modes do. An
/// error without such a cause may name an option or a policy of the user's, and keeps its words.
fn is_denied(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind;
    let mut kinds = error.chain().filter_map(|cause| {
        let errno: Option<&Errno> = cause.downcast_ref();
        let kind = errno.map(|errno| errno.kind());
        kind.or_else(|| Some(cause.downcast_ref::<std::io::Error>()?.kind()))
    });
    kinds.any(|kind| {
        matches!(
            kind,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
        )
    })
}

/// The policy error in an error. Looks also behind a runtime error that hides it from the chain
/// (`#[error(transparent)]`).
fn policy_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a PolicyError> {
    match cause.downcast_ref() {
        Some(RuntimeError::Policy(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

fn attempt(global: &GlobalOptions, args: &Wrap) -> Result<ExitCode> {
    shown_input::look();
    let mut wanted = WrapRequest::of(args)?;
    if wanted.quiet {
        progress::silence();
    }
    if wanted.walls == Walls::Namespaces {
        // First of all: sealing takes a mount, for which an unprivileged user needs a namespace.
        unprivileged::settle();
        unprivileged::enter(global)?;
        seal::ensure(ListenFds::Forget)?;
    }
    wanted.settle_agent(global)?;
    wanted.settle_ssh_keys(&args.ssh_agent)?;
    if args.dry_run {
        let explained = wrap::decide(global, &wanted)?;
        let subject =
            explain::of_bundle("wrap with these options".to_owned(), Tool::Wrap, explained);
        let length = match args.all {
            true => PageLength::All,
            false => PageLength::Screen,
        };
        out::text(&page::text(&subject, length))?;
        return Ok(ExitCode::SUCCESS);
    }
    let ended = wrap::run(global, &wanted)?;
    Ok(exit_code(ended.follow()))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn walls_around_it_are_looked_for_after_a_denial_alone() {
        let of = |errno: i32| {
            let failed: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(errno));
            is_denied(&failed.context("make a directory").unwrap_err())
        };
        assert!(of(libc::EPERM) && of(libc::EACCES) && of(libc::EROFS));
        assert!(!of(libc::ENOENT));
        let by_rustix: Result<(), Errno> = Err(Errno::ROFS);
        assert!(is_denied(&by_rustix.context("write").unwrap_err()));
        // An option of the user's.
        assert!(!is_denied(&anyhow!("--allow x y: a host has no space")));
    }
}
