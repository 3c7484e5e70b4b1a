//! `explain` without a container: what `wrap` would enforce.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};

use crate::cli::{Explain, GlobalOptions, Walls, Wrap};
use crate::runtime::seal::{self, ListenFds};
use crate::runtime::unprivileged;
use crate::wrap::{self, WrapExplanation, WrapRequest};

/// The walls of `wrap` here, with their name. A policy, walls or calls can be explained without a project: where the
/// directory cannot be one, for an empty directory.
pub fn decide(global: &GlobalOptions, args: &Explain) -> Result<(String, WrapExplanation)> {
    let is_of_directory = args.policy.is_none() && args.walls.is_none() && !args.syscalls;
    match of_directory(global, args, None) {
        Ok(explained) => Ok(("wrap in this directory".to_owned(), explained)),
        Err(error) if !is_of_directory && wrap::is_of_workspace(&error) => {
            // The program may be executed again, which would leave a directory that is there by then.
            let walls = match args.walls {
                Some(walls) => walls,
                None => {
                    let empty = EmptyDirectory::make()?;
                    WrapRequest::of(&options(args, Some(&empty.0)))?.walls
                }
            };
            settle(global, walls)?;
            let empty = EmptyDirectory::make()?;
            let explained = of_directory(global, args, Some(&empty.0))?;
            crate::log::complain(&format!(
                "agentbox: explained for an empty directory: {error:#}"
            ));
            Ok(("wrap in an empty directory".to_owned(), explained))
        }
        Err(error) => Err(error),
    }
}

fn of_directory(
    global: &GlobalOptions,
    args: &Explain,
    workspace: Option<&Path>,
) -> Result<WrapExplanation> {
    let wanted = WrapRequest::of(&options(args, workspace))?;
    settle(global, wanted.walls)?;
    wrap::decide(global, &wanted)
}

/// The walls depend on the namespace: enters it, as `wrap` does.
fn settle(global: &GlobalOptions, walls: Walls) -> Result<()> {
    if walls == Walls::Namespaces {
        unprivileged::settle();
        unprivileged::enter(global)?;
        seal::ensure(ListenFds::Forget)?;
    }
    Ok(())
}

fn options(args: &Explain, workspace: Option<&Path>) -> Wrap {
    Wrap {
        policy: args.policy.clone(),
        walls: args.walls,
        workspace: workspace.map(Path::to_owned),
        command: vec!["true".to_owned()],
        ..Wrap::default()
    }
}

/// A new directory, removed when dropped.
struct EmptyDirectory(PathBuf);

impl EmptyDirectory {
    fn make() -> Result<Self> {
        let template = std::env::temp_dir().join("agentbox-explain-XXXXXX");
        let made = nix::unistd::mkdtemp(&template)
            .with_context(|| format!("make an empty directory {template:?}"))?;
        let made = Self(made);
        // Under sudo the user reads it, and not root. By the descriptor: another user's TMPDIR may have a link there by now.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&made.0, flags, Mode::empty())?;
        if rustix::fs::fstat(&opened)?.st_uid != rustix::process::geteuid().as_raw() {
            anyhow::bail!(
                "{:?} was exchanged: set TMPDIR to a directory of one's own",
                made.0
            );
        }
        rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o755))?;
        Ok(made)
    }
}

impl Drop for EmptyDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            log::warn!("remove {:?}: {error}", self.0);
        }
    }
}
