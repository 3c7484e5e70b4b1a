//! `agentbox wrap`: a command behind the walls without an engine, an image or a bundle.
//!
//! The bundle is made from the node itself: an empty root, the system's directories and toolchains read-only, a listed
//! part of /etc, and the workspace. From there on it is a container like any other: the same plan, the same walls.

mod layout;
mod list;
mod spec;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cli::{self, Global};
use crate::plan::wrapped::Wrapped;
use crate::policy::{MountRule, Selection};
use crate::probe::is_home;
use crate::runtime::create::{self, BundleDecision};
use crate::runtime::foreground::wait::OnDefault;
use crate::runtime::foreground::{self, Afterwards};
use crate::runtime::input::node_files;
use crate::runtime::state::store;
use crate::runtime::{Failed, RuntimeError};
use layout::{Layout, Shown};
use list::List;

/// Why a command is not wrapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WrapRefused {
    /// `--policy unconfined`
    #[error("`wrap` without walls is the command itself: choose a policy with --policy")]
    NoPolicy,
    /// The caller is an ordinary user.
    #[error(
        "`wrap` needs root, to make namespaces and mounts: run it with sudo, the command itself runs as you"
    )]
    NotRoot,
    /// A workspace below /usr, say.
    #[error("the workspace {0:?} is part of the system: choose a project's directory")]
    SystemDirectory(PathBuf),
    /// A workspace with everything that somebody has.
    #[error(
        "the workspace {0:?} is a whole home directory, all of which would be written: cd into a project's directory"
    )]
    Home(PathBuf),
    /// `--env`
    #[error("--env {0:?} is not NAME=VALUE")]
    Env(String),
}

/// Runs a command; its exit status.
pub fn run(global: &Global, args: &cli::Wrap) -> Result<i32> {
    let prepared = prepare(global, args)?;
    let status = foreground::run(
        &prepared.global,
        &prepared.create(),
        &prepared.wrapped,
        Afterwards::Delete,
        OnDefault::End,
    )?;
    Ok(status.unwrap_or_default())
}

/// A shell's status for a program that was not executed: 127 where there is none, else 126; nothing for other errors.
pub fn status_of(error: &anyhow::Error) -> Option<i32> {
    let mut errors = error.chain().filter_map(|e| e.downcast_ref());
    let failed = errors.find_map(|error| match error {
        RuntimeError::Init(report) => Some(report.failed),
        _ => None,
    });
    match failed? {
        Failed::NoProgram => Some(127),
        Failed::Program => Some(126),
        Failed::Hook | Failed::Step => None,
    }
}

/// What would be enforced for a command in the current directory.
pub fn decide(global: &Global, policy: Option<&str>) -> Result<BundleDecision> {
    let command = vec!["true".to_owned()];
    let args = cli::Wrap {
        policy: policy.map(str::to_owned),
        workspace: None,
        env: Vec::new(),
        command,
    };
    let prepared = prepare(global, &args)?;
    Ok(create::decide(
        &prepared.global,
        &prepared.bundle.dir,
        &prepared.wrapped,
    )?)
}

/// A bundle made for a command, and how it is to be run.
struct Prepared {
    global: Global,
    bundle: WrapBundle,
    wrapped: Wrapped,
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

fn prepare(global: &Global, args: &cli::Wrap) -> Result<Prepared> {
    let mut global = global.clone();
    global.policy = args.policy.clone().or(global.policy);
    let shown = match node_files::selection(&global, &Default::default())? {
        Selection::Unconfined { .. } => {
            bail!(WrapRefused::NoPolicy)
        }
        Selection::Policy(resolved) => match resolved.policy.filesystem.mounts {
            MountRule::Keep => Shown::Everything,
            MountRule::Drop | MountRule::ReadOnly => Shown::Listed,
        },
    };
    if !rustix::process::geteuid().is_root() {
        bail!(WrapRefused::NotRoot);
    }
    let workspace = match &args.workspace {
        Some(dir) => dir.clone(),
        None => std::env::current_dir().context("find the current directory")?,
    };
    let workspace = workspace
        .canonicalize()
        .with_context(|| format!("open the workspace {workspace:?}"))?;
    let list = List::builtin();
    if workspace == Path::new("/") || list.system.iter().any(|s| workspace.starts_with(s)) {
        bail!(WrapRefused::SystemDirectory(workspace));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.and_then(|home| home.canonicalize().ok());
    if is_home(&workspace) || home.is_some_and(|home| home.starts_with(&workspace)) {
        bail!(WrapRefused::Home(workspace));
    }
    let environment = environment(&list, &args.env)?;
    let layout = Layout::of(&list, &workspace, &environment, shown);
    let bundle = WrapBundle::new(&layout)?;
    let stdio = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    let command = spec::Command {
        args: &args.command,
        environment,
        user: layout::user(),
        terminal: stdio.into_iter().all(rustix::termios::isatty),
        id: &bundle.id,
    };
    bundle.write(&spec::build(&layout, &command))?;
    Ok(Prepared {
        global,
        bundle,
        wrapped: layout.wrapped(),
    })
}

/// The environment of the command: what the list passes on, and what was asked for.
fn environment(list: &List, asked: &[String]) -> Result<Vec<String>> {
    let mut env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    env.retain(|(key, _)| list.passes(key));
    for pair in asked {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            bail!(WrapRefused::Env(pair.clone()));
        };
        env.retain(|(k, _)| k != key);
        env.push((key.to_owned(), value.to_owned()));
    }
    if !env.iter().any(|(k, _)| k == "PATH") {
        env.push((
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ));
    }
    Ok(env.into_iter().map(|(k, v)| format!("{k}={v}")).collect())
}

/// A bundle in the runtime's own directory, removed with the value.
struct WrapBundle {
    dir: PathBuf,
    id: String,
}

impl WrapBundle {
    fn new(layout: &Layout) -> Result<Self> {
        let base = store::private_dir("wrap")?;
        // The number of a live process is nobody else's; one that a killed `wrap` left behind is cleared.
        let id = format!("wrap-{}", std::process::id());
        let dir = base.join(&id);
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {dir:?}"))?;
        }
        let bundle = Self { dir, id };
        let root = bundle.dir.join("rootfs");
        make_dir(&root)?;
        for path in layout.directories() {
            make_dir(&inside(&root, &path))?;
        }
        for (link, target) in &layout.links {
            std::os::unix::fs::symlink(target, inside(&root, link))
                .with_context(|| format!("make the link {link:?}"))?;
        }
        Ok(bundle)
    }

    fn write(&self, spec: &oci_spec::runtime::Spec) -> Result<()> {
        let path = self.dir.join("config.json");
        fs::write(&path, serde_json::to_vec(spec)?).with_context(|| format!("write {path:?}"))
    }
}

impl Drop for WrapBundle {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            log::warn!("remove {:?}: {error}", self.dir);
        }
    }
}

fn make_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("make {path:?}"))
}

/// A path of the container below the root directory.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Report;

    #[test]
    fn a_program_that_cannot_be_executed_has_a_shells_status() {
        let status = |failed| {
            let text = "exec: \"x\": no such file or directory".to_owned();
            status_of(&RuntimeError::Init(Report { failed, text }).into())
        };
        assert_eq!(status(Failed::NoProgram), Some(127));
        assert_eq!(status(Failed::Program), Some(126));
        assert_eq!(status(Failed::Step), None);
        assert_eq!(status_of(&anyhow::anyhow!("exec: \"x\"")), None);
    }
}
