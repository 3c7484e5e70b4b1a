//! SHELL. The project's directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::list::SystemList;
use super::person::Person;
use crate::probe::is_home;
use crate::runtime::state::store;

/// Refuses a layout that shows the records of the caller's containers, or makes the temporary directories writable.
/// There, Landlock runs keep bundles and logs, which later commands of agentbox obey.
pub fn check_state(layout: &Layout) -> Result<()> {
    let records = store::run_dir().to_owned();
    let mut shown = layout.binds.iter().chain(layout.writable());
    if let Some(path) = shown.find(|path| records.starts_with(path) || path.starts_with(&records)) {
        bail!(WrapRefusal::HoldsRecords {
            path: path.to_owned(),
            records,
        });
    }
    for temporary in ["/tmp", "/var/tmp"].map(Path::new) {
        let real = temporary
            .canonicalize()
            .unwrap_or_else(|_| temporary.to_owned());
        if let Some(path) = layout.writable().find(|path| real.starts_with(path)) {
            bail!(WrapRefusal::HoldsTemporary(path.to_owned()));
        }
    }
    Ok(())
}

/// The requested directory or the current one, as named.
pub fn asked(option: Option<&Path>) -> Result<PathBuf> {
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
