//! SHELL. The project's directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::list::SystemList;
use super::person::Person;
use crate::probe::is_home;
use crate::runtime::state::store;

/// The temporary directories, without links.
pub fn temporaries() -> [PathBuf; 2] {
    ["/tmp", "/var/tmp"].map(|path| {
        let real = Path::new(path).canonicalize();
        real.unwrap_or_else(|_| PathBuf::from(path))
    })
}

/// Whether a path is `ssh-*` in one of these temporary directories, or below: OpenSSH's agents keep their sockets there.
pub fn is_of_agents(path: &Path, temporaries: &[PathBuf]) -> bool {
    temporaries.iter().any(|temporary| {
        let below = path.strip_prefix(temporary).ok();
        let first = below.and_then(|below| below.components().next());
        first.is_some_and(|first| first.as_os_str().as_bytes().starts_with(b"ssh-"))
    })
}

/// Refuses a layout that shows the records of the caller's containers, or makes the temporary directories writable.
/// There, Landlock runs keep bundles and logs, and SSH agents sockets, which later commands of agentbox obey.
pub fn check_state(layout: &Layout) -> Result<()> {
    let records = store::run_dir().to_owned();
    let mut shown = layout.binds.iter().chain(layout.writable());
    if let Some(path) = shown.find(|path| records.starts_with(path) || path.starts_with(&records)) {
        bail!(WrapRefusal::HoldsRecords {
            path: path.to_owned(),
            records,
        });
    }
    let temporaries = temporaries();
    for path in layout.writable() {
        if temporaries.iter().any(|real| real.starts_with(path)) {
            bail!(WrapRefusal::HoldsTemporary(path.to_owned()));
        }
        if is_of_agents(path, &temporaries) {
            bail!(WrapRefusal::HoldsAgents(path.to_owned()));
        }
    }
    Ok(())
}

/// The requested directory or the current one, as named.
pub fn requested_directory(option: Option<&Path>) -> Result<PathBuf> {
    match option {
        Some(dir) => Ok(dir.to_owned()),
        None => std::env::current_dir().context("find the current directory"),
    }
}

/// The project's directory, without links. Refuses a part of the system, a home, and a directory that the user cannot
/// enter.
pub fn choose(asked: &Path, list: &SystemList, person: &Person) -> Result<PathBuf> {
    let workspace = asked
        .canonicalize()
        .with_context(|| format!("open the workspace {asked:?} as {}", person.name()))?;
    if !workspace.is_dir() {
        bail!(WrapRefusal::NoDirectory(workspace));
    }
    if workspace.to_str().is_none() {
        bail!(WrapRefusal::NoText(workspace));
    }
    if workspace == Path::new("/") || list.system.iter().any(|s| workspace.starts_with(s)) {
        bail!(WrapRefusal::SystemDirectory(workspace));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let homes = home.into_iter().chain(person.home());
    let mut homes = homes.filter_map(|home| home.canonicalize().ok());
    if is_home(&workspace) || homes.any(|home| home.starts_with(&workspace)) {
        bail!(WrapRefusal::Home(workspace));
    }
    if let Err(error) = fs::read_dir(&workspace) {
        bail!(WrapRefusal::NotYours(workspace, person.name(), error));
    }
    Ok(workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_agents_are_those_of_the_temporary_directories() {
        let temporaries = ["/tmp", "/var/tmp"].map(PathBuf::from);
        for (path, is_theirs) in [
            ("/tmp/ssh-AbC", true),
            ("/tmp/ssh-AbC/below", true),
            ("/var/tmp/ssh-x", true),
            ("/tmp", false),
            ("/tmp/project/ssh-x", false),
            ("/tmp/ssh", false),
            ("/home/a/ssh-x", false),
        ] {
            let found = is_of_agents(Path::new(path), &temporaries);
            assert_eq!(found, is_theirs, "{path}");
        }
    }
}
