//! SHELL. Where agents keep their own files outside: settings with programs that run outside of sandboxes, and logins. No sandbox
//! writes them, and none but an agent's own reads a login, wherever a variable puts it.

use std::path::{Path, PathBuf};

use super::list::{AgentData, AgentDirectory};
use crate::audit::hash;
use crate::probe::is_home;
use crate::sys::path;
use crate::wrap::error::WrapRefusal;
use crate::wrap::person::Person;
use crate::wrap::settings::places;

/// A directory of an agent's outside.
struct OutsideDir {
    /// Without links, as far as it exists.
    path: PathBuf,
    /// The variable that names it.
    variable: Option<String>,
    login: Vec<PathBuf>,
}

/// The directory that an agent's variable names.
pub fn named_by(person: &Person, directory: &AgentDirectory) -> Option<PathBuf> {
    let named = places::own_variable(person, directory.variable.as_deref()?)?;
    Some(named.join(&directory.below))
}

/// What tells the user's profiles of an agent apart, if a variable names other directories than the usual ones: some digits of a hash.
pub fn profile(person: &Person, home: &Path, agent: &AgentData) -> Option<String> {
    /// Profiles are few, and the user's own.
    const DIGITS: usize = 8;
    let real = |path: PathBuf| path::resolve(&path, |_| Ok(())).unwrap_or(path);
    let moved: Vec<u8> = agent
        .directories
        .iter()
        .filter_map(|directory| {
            let named = real(named_by(person, directory)?);
            (named != real(home.join(&directory.path))).then_some(named)
        })
        .flat_map(|path| [path.as_os_str().as_encoded_bytes(), b"\0"].concat())
        .collect();
    let digits = (!moved.is_empty()).then(|| hash(&moved));
    digits.and_then(|digits| digits.get(..DIGITS).map(str::to_owned))
}

fn all(person: &Person) -> Vec<OutsideDir> {
    let homes: Vec<_> = places::homes(person).collect();
    in_homes(person, &homes)
}

/// Those that variables name, and the usual ones of these homes.
fn in_homes(person: &Person, homes: &[PathBuf]) -> Vec<OutsideDir> {
    let mut found = Vec::new();
    for directory in AgentData::all().flat_map(|(_, agent)| &agent.directories) {
        let named = named_by(person, directory).map(|path| (path, directory.variable.clone()));
        let usual = homes.iter().map(|home| (home.join(&directory.path), None));
        for (path, variable) in named.into_iter().chain(usual) {
            found.extend(
                path::resolve(&path, |_| Ok(()))
                    .ok()
                    .map(|path| OutsideDir {
                        path,
                        variable,
                        login: [&directory.login[..], &directory.other_logins].concat(),
                    }),
            );
        }
    }
    found
}

/// Refuses a written place that is in an agent's directory, or could make one. A home that a variable names is no reason to write nothing
/// in it.
pub fn refuse_written(person: &Person, written: &Path) -> Result<(), WrapRefusal> {
    let is_whole =
        |path: &Path| is_home(path) || places::homes(person).any(|home| home.starts_with(path));
    for OutsideDir { path, variable, .. } in all(person) {
        let is_made = path.starts_with(written) && path != written && !path.is_dir();
        let is_in_it = written.starts_with(&path) && !is_whole(&path);
        match variable {
            Some(variable) if is_made => {
                return Err(WrapRefusal::ObeyedByVariable { path, variable });
            }
            Some(_) | None if is_made || is_in_it => {
                return Err(WrapRefusal::HoldsPrograms {
                    path: written.to_owned(),
                    own: path,
                });
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// A directory of an agent's in what is written: it is hidden.
#[derive(Debug, PartialEq, Eq)]
pub struct HiddenDir {
    /// Its path.
    pub path: PathBuf,
    /// What puts it there.
    pub by: String,
    /// The directory of the written place that holds it, if it lies deeper. Only read, it cannot be moved to make another one.
    pub held: Option<PathBuf>,
}

/// Directories of agents that lie in these written places.
pub fn within(person: &Person, written: &[PathBuf]) -> Vec<HiddenDir> {
    let mut found: Vec<HiddenDir> = Vec::new();
    for own in all(person) {
        let rest = |place: &PathBuf| {
            let rest = own.path.strip_prefix(place).ok()?.to_owned();
            let first = rest.components().next()?;
            Some((place.join(first), rest.components().count()))
        };
        let Some((first, depth)) = written.iter().find_map(rest) else {
            continue;
        };
        if own.path.is_dir() && !found.iter().any(|known| known.path == own.path) {
            found.push(HiddenDir {
                by: own
                    .variable
                    .unwrap_or_else(|| "a link of the home".to_owned()),
                path: own.path,
                held: (depth > 1).then_some(first),
            });
        }
    }
    found
}

/// Logins in directories that variables name. Those of usual names are hidden wherever they lie.
pub fn logins(person: &Person) -> Vec<PathBuf> {
    let logins = in_homes(person, &[]).into_iter().flat_map(|own| {
        let path = own.path;
        own.login.into_iter().map(move |name| path.join(name))
    });
    logins.collect()
}
