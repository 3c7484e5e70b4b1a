//! SHELL. The project's directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::error::WrapRefused;
use super::list::List;
use crate::probe::is_home;

/// The directory that was asked for, or the current one. Refused is what is no project's: a part of the system, a home.
pub fn choose(asked: Option<&Path>, list: &List) -> Result<PathBuf> {
    let workspace = match asked {
        Some(dir) => dir.to_owned(),
        None => std::env::current_dir().context("find the current directory")?,
    };
    let workspace = workspace
        .canonicalize()
        .with_context(|| format!("open the workspace {workspace:?}"))?;
    if workspace == Path::new("/") || list.system.iter().any(|s| workspace.starts_with(s)) {
        bail!(WrapRefused::SystemDirectory(workspace));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.and_then(|home| home.canonicalize().ok());
    if is_home(&workspace) || home.is_some_and(|home| home.starts_with(&workspace)) {
        bail!(WrapRefused::Home(workspace));
    }
    Ok(workspace)
}
