//! `agentbox wrap`: a command behind the walls without an engine, an image or a bundle.
//!
//! The bundle is made from the node itself: an empty root, the system's directories and toolchains read-only, a listed
//! part of /etc, and the workspace. From there on it is a container like any other: the same plan, the same walls.

mod accounts;
mod asked;
mod bundle;
mod command;
mod environment;
mod error;
mod landlock;
mod layout;
pub mod leftovers;
mod list;
mod named;
mod own_file;
mod person;
mod repository;
mod script;
mod spec;
mod summary;
mod toolchain;
mod variables;
mod workspace;

use std::fs::File;

use anyhow::{Result, bail};

pub use self::error::{WrapRefused, status_of};
use crate::audit;
use crate::cli::{self, Global, Walls};
use crate::plan::wrapped::{ShownBy, Wrapped};
use crate::policy::{MountRule, Selection};
use crate::render::explain::LandlockWalls;
use crate::runtime::create::{self, BundleDecision};
use crate::runtime::foreground::{self, Afterwards, Front};
use crate::runtime::input::node_files;
use crate::runtime::runs::Run;
use bundle::{Base, WrapBundle};
use layout::{Layout, Shown};
use list::List;
use person::Person;
use summary::Summary;

/// Runs a command; its exit status.
pub fn run(global: &Global, args: &cli::Wrap) -> Result<i32> {
    match args.walls {
        Walls::Namespaces => by_namespaces(global, args),
        Walls::Landlock => landlock::run(global, args),
    }
}

fn by_namespaces(global: &Global, args: &cli::Wrap) -> Result<i32> {
    leftovers::sweep();
    let base = Base::Records { root: &global.root };
    let prepared = prepare(global, args, &caller(args)?, base)?;
    let mut refused = Summary::default();
    let status = foreground::run(
        global,
        &prepared.create(),
        &prepared.wrapped,
        Afterwards::Delete,
        Front::Reaper,
        &mut |place| {
            let run = Run::of(place);
            run.await_sidecar(place);
            refused = Summary::read(&run.file(audit::SIDECAR));
        },
    );
    refused.tell(args, prepared.summary.as_ref())?;
    Ok(status?.unwrap_or_default())
}

/// What would be enforced, of which nothing has been made.
pub struct Explained {
    /// The decision. Under walls of Landlock, which hold less than a plan says, without the plan.
    pub decision: BundleDecision,
    /// The walls of Landlock.
    pub landlock: Option<LandlockWalls>,
}

impl From<BundleDecision> for Explained {
    fn from(decision: BundleDecision) -> Self {
        Self {
            decision,
            landlock: None,
        }
    }
}

/// What would be enforced for a command.
pub fn decide(global: &Global, args: &cli::Wrap) -> Result<Explained> {
    if args.walls == Walls::Landlock {
        return landlock::decide(global, args);
    }
    let base = Base::Records { root: &global.root };
    let prepared = prepare(global, args, &caller(args)?, base)?;
    let decision = create::decide(global, &prepared.bundle.dir, &prepared.wrapped)?;
    Ok(decision.into())
}

/// A bundle made for a command, and how it is to be run.
struct Prepared {
    bundle: WrapBundle,
    wrapped: Wrapped,
    /// Where the summary is to be written.
    summary: Option<File>,
    /// What git is told of the person and the workspace.
    git: String,
}

impl Prepared {
    fn create(&self) -> cli::Create {
        cli::Create {
            bundle: self.bundle.dir.clone(),
            console_socket: None,
            pid_file: None,
            pidfd_socket: None,
            no_pivot: false,
            no_new_keyring: false,
            preserve_fds: 0,
            id: self.bundle.id.clone(),
        }
    }
}

/// The person behind the call.
fn caller(args: &cli::Wrap) -> Result<Person> {
    Person::of_caller(&workspace::asked(args.workspace.as_deref())?)
}

/// Makes the bundle.
fn prepare(global: &Global, args: &cli::Wrap, person: &Person, base: Base<'_>) -> Result<Prepared> {
    let list = List::builtin();
    let directory = workspace::asked(args.workspace.as_deref())?;
    let asked = person.looking(|| asked::of(args, person))??;
    let resolved = match node_files::selection(global, &Default::default(), &asked)? {
        Selection::Unconfined { .. } => bail!(WrapRefused::NoPolicy),
        Selection::Policy(resolved) => resolved,
    };
    let shown = match resolved.policy.filesystem.mounts {
        MountRule::Keep => Shown::Home,
        MountRule::Drop | MountRule::ReadOnly => Shown::Listed,
    };
    let cwd = person.looking(|| workspace::choose(&directory, &list, person))??;
    // A directory that was named is meant as it is.
    let top = || repository::top(&cwd, person).filter(|_| args.workspace.is_none());
    let workspace = person.looking(top)?.unwrap_or_else(|| cwd.clone());
    let policy = &resolved.policy;
    let mut environment = person.looking(|| environment::passed(&list, person, args, policy))??;
    let layout = person.looking(|| {
        let mut layout = Layout::of(&list, &workspace, &environment, shown);
        layout.cwd = cwd;
        layout.add_repository(person);
        layout.add_named(args, &resolved)?;
        layout.check_venvs()?;
        environment::add_toolchains(&mut environment, &list, &layout);
        command::check(&args.command[0], &layout.path, &layout)?;
        layout.settle();
        anyhow::Ok(layout)
    })??;
    workspace::check_state(layout.binds.iter().chain([&layout.workspace]))?;
    let summary = args.summary.as_deref();
    let summary = person.looking(|| summary.map(summary::open).transpose())??;
    let bundle = WrapBundle::new(&layout, person, base)?;
    let stdio = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    let command = spec::Command {
        args: &args.command,
        environment,
        person,
        terminal: stdio.into_iter().all(rustix::termios::isatty),
        id: &bundle.id,
    };
    bundle.write(&spec::build(&layout, &command))?;
    Ok(Prepared {
        bundle,
        wrapped: Wrapped {
            by: match args.walls {
                Walls::Namespaces => ShownBy::Mounts,
                Walls::Landlock => ShownBy::Rules,
            },
            ..layout.wrapped(asked)
        },
        summary,
        git: layout.git,
    })
}
