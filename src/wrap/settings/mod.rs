//! Settings of the user and of a project: options of `wrap` in files.
//!
//! ```text
//! ~/.config/agentbox/config.toml    the user's: if others can write it, no run starts
//! ~/.local/state/agentbox/allowed/  the user's, one file for each workspace: their answers to `wrap --ask`
//! ~/.local/state/agentbox/notices/  what the user was told once, an empty file for each
//! WORKSPACE/.agentbox.toml          the project's: an agent may have written it, so it counts once the user trusts
//!                                   this content (`agentbox trust`); else a notice says that it is ignored
//! ```
//! | file | what it does |
//! |---|---|
//! | [`allowed`] | what the user allowed for a project at the prompt |
//! | [`own_dir`] | a directory of the user's, with files written atomically |
//! | [`file`] | text to settings, and their description |
//! | [`places`] | where the files are, and the check that no command writes them |
//! | [`sealed_file`] | a policy or variables in a file, and whether its content counts |
//! | [`seal`] | what is trusted with a project's file: the files that it names, and where its paths lead |
//! | [`trust`] | which contents of which project files the user trusts |

mod allowed;
mod effects;
mod file;
mod of_person;
pub mod own_dir;
pub mod places;
mod seal;
pub mod sealed_file;
pub mod trust;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

pub use allowed::keep_for;
pub use file::{Settings, is_file};
pub use of_person::of_person;
pub use places::{PROJECT_FILE, agents_homes, refuse_written};

use self::file::PathBase;
use self::seal::Seal;
pub use self::sealed_file::{SealedFile, SealedFileKind, is_closed};
use self::trust::{Store, TrustStanding, TrustStatus, TrustedFile, is_project};
use super::error::WrapRefusal;
use super::list::SystemList;
use super::person::Person;
use super::{repository, workspace};
use crate::policy::typed_path;

/// A settings file that counts.
pub struct SettingsSource {
    /// Its path.
    pub path: PathBuf,
    /// Its settings.
    pub settings: Settings,
    /// The files that it names and that have been read: all of a project's; of the user's settings, the variables.
    pub files: Vec<SealedFile>,
    /// Whether it holds the user's answers to `--ask`.
    pub is_answers: bool,
}

impl SettingsSource {
    /// From settings that only the user writes. Each file that they name is judged by itself. The policy is read only
    /// if it is chosen.
    fn of_person(person: &Person, path: PathBuf, settings: Settings) -> Result<Self> {
        let named = settings.env_file.iter();
        let files = named.map(|file| SealedFile::read(person, file, SealedFileKind::Variables));
        let files = files.collect::<Result<_>>();
        Ok(Self {
            files: files.with_context(|| format!("env-file of {path:?}"))?,
            path,
            settings,
            is_answers: false,
        })
    }

    /// The policy file that it names, with the content that was checked.
    pub fn policy_file(&self, person: &Person, name: &str) -> Result<(PathBuf, String)> {
        let named = Path::new(name);
        if let Some(file) = self.files.iter().find(|file| file.named == named) {
            file.require()?;
            return Ok((file.path.clone(), file.text.clone()));
        }
        let file = SealedFile::read(person, named, SealedFileKind::Policy)?;
        file.require()?;
        Ok((file.path, file.text))
    }
}

/// The files that count, lowest first, and a notice about a file that is ignored.
pub struct SettingsFiles {
    /// The user's, then the project's.
    pub sources: Vec<SettingsSource>,
    /// A line for standard error.
    pub notice: Option<String>,
}

/// Reads the settings for a workspace. Call it with the user's rights over files.
pub fn find(person: &Person, workspace: &Path) -> Result<SettingsFiles> {
    let mut sources = Vec::new();
    sources.extend(of_person(person)?);
    sources.extend(allowed::find(person, workspace)?);
    let path = workspace.join(PROJECT_FILE);
    let notice = match of_project(person, &path)? {
        Project::None => above(person, workspace),
        Project::Counts(source) => {
            sources.push(*source);
            None
        }
        Project::DoesNot(why) => Some(format!(
            "agentbox: {path:?} {why}: the run goes on without it; `agentbox trust {}` shows it and asks",
            typed_path(workspace)
        )),
    };
    Ok(SettingsFiles { sources, notice })
}

fn too_long(path: &Path) -> WrapRefusal {
    WrapRefusal::File {
        path: path.to_owned(),
        why: format!("is longer than {} KiB", places::LONGEST >> 10),
    }
}

/// A project's file, and whether it counts.
enum Project {
    None,
    Counts(Box<SettingsSource>),
    DoesNot(String),
}

/// No state that an agent can cause is an error, unless the file was trusted: it would keep the user from working.
fn of_project(person: &Person, path: &Path) -> Result<Project> {
    let store = Store::of(person);
    let home = store.as_ref().and_then(Store::closed);
    if let Some(home) = home.filter(|_| path.symlink_metadata().is_err()) {
        bail!(WrapRefusal::HomeClosed(home));
    }
    let is_known = store.as_ref().is_some_and(|store| store.has(path));
    if path.symlink_metadata().is_err() {
        if is_known {
            bail!(WrapRefusal::SettingsGone {
                path: path.to_owned(),
                directory: directory_of(path).to_owned(),
            });
        }
        return Ok(Project::None);
    }
    let text = match places::read_project(path) {
        Ok(text) => text,
        Err(why) if is_known => bail!(changed(path, &why)),
        Err(why) => return Ok(Project::DoesNot(why)),
    };
    let Some(store) = store else {
        let why = "does not count, since without a home nothing can be trusted";
        return Ok(Project::DoesNot(why.to_owned()));
    };
    Ok(match store.standing(path, &text, person) {
        TrustStanding::Trusted(sealed) => {
            let SealedSettings { settings, seal } = *sealed;
            Project::Counts(Box::new(SettingsSource {
                path: path.to_owned(),
                settings,
                files: seal.included,
                is_answers: false,
            }))
        }
        // It may have set walls that the run would lack, as may one whose entry cannot be read.
        TrustStanding::Changed => bail!(changed(
            path,
            "changed since you trusted it, or a file that it names did"
        )),
        TrustStanding::Unknown => Project::DoesNot("is not trusted".to_owned()),
        TrustStanding::NotTold(why) => {
            bail!(changed(path, &format!("may be trusted, but {why}")))
        }
    })
}

fn changed(path: &Path, why: &str) -> WrapRefusal {
    WrapRefusal::SettingsChanged {
        path: path.to_owned(),
        directory: directory_of(path).to_owned(),
        why: why.to_owned(),
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// The notice if a directory above has settings that the user trusts. A command can make any directory a repository,
/// and so a workspace of its own.
fn above(person: &Person, workspace: &Path) -> Option<String> {
    let store = Store::of(person)?;
    let above = workspace.ancestors().skip(1);
    let known = above
        .map(|dir| dir.join(PROJECT_FILE))
        .find(|path| store.has(path))?;
    let directory = directory_of(&known);
    Some(format!(
        "agentbox: {known:?}, which you trust, does not hold in {workspace:?}, a repository of its own: `--workspace {}` takes it",
        typed_path(directory)
    ))
}

/// A project's settings with all files that they name, both read at the same time.
#[derive(Debug)]
pub struct SealedSettings {
    settings: Settings,
    seal: Seal,
}

impl SealedSettings {
    /// The settings from this text of the file at `path`. Call it with the user's rights over files.
    fn of(person: &Person, path: &Path, text: &str) -> Result<Self> {
        let directory = directory_of(path);
        let home = places::home(person);
        let settings = Settings::parse(text, PathBase::of_project(directory, home.as_deref()))
            .with_context(|| format!("settings of {path:?}"))?;
        let seal = Seal::of(person, &settings).map_err(|why| WrapRefusal::File {
            path: path.to_owned(),
            why,
        })?;
        Ok(Self { settings, seal })
    }
}

/// What `agentbox trust` works on.
pub struct Offer {
    person: Person,
    store: Store,
    path: PathBuf,
}

/// A project's file as the user reviews it.
pub struct ProjectFile {
    /// Its path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// What it does.
    pub effects: Vec<String>,
    /// The files that it names.
    pub included: Vec<SealedFile>,
    sealed: String,
}

impl Offer {
    /// The settings file of a directory or of the top of its repository, or a policy or variables file by its path.
    /// With [`OfferScope::Everything`], the directory only decides whose entries they are.
    pub fn of(named: Option<&Path>, scope: OfferScope) -> Result<Self> {
        let file = named.filter(|path| path.is_file());
        let dir = match file {
            Some(file) if is_project(file) => Some(directory_of(file)),
            Some(_) | None => named,
        };
        let dir = dir.map(|dir| match dir.as_os_str().is_empty() {
            true => Path::new("."),
            false => dir,
        });
        let asked = workspace::requested_directory(dir)?;
        let person = Person::of_caller(&asked)?;
        let store = Store::of(&person)
            .ok_or_else(|| anyhow!("no home directory for the list of trusted files: set HOME"))?;
        // An entry of a deleted file can still be removed.
        let gone = named.and_then(|named| {
            let directory = std::path::absolute(named).ok()?.parent()?.canonicalize();
            Some(directory.ok()?.join(named.file_name()?))
        });
        let gone = gone.filter(|path| store.has(path) && path.symlink_metadata().is_err());
        let file = file.filter(|file| !is_project(file));
        if let Some(file) = file.or(gone.as_deref()) {
            let path = match gone.is_some() {
                true => Ok(file.to_owned()),
                false => person.looking(|| file.canonicalize())?,
            };
            let path = path.with_context(|| format!("open {file:?}"))?;
            return Ok(Self {
                person,
                store,
                path,
            });
        }
        let directory = match scope {
            OfferScope::Everything => asked,
            OfferScope::Project => {
                let named = match dir {
                    Some(_) => TrustTarget::Directory,
                    None => TrustTarget::Nothing,
                };
                person.looking(|| project(&asked, named, &store, &person))??
            }
        };
        let path = directory.join(PROJECT_FILE);
        Ok(Self {
            person,
            store,
            path,
        })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All entries, each compared with its file's content now.
    pub fn list(&self) -> Result<Vec<(TrustedFile, TrustStatus)>> {
        self.person.looking(|| self.store.list(&self.person))?
    }

    /// Removes the file's entry. Returns whether there was one.
    pub fn remove(&self) -> Result<bool> {
        self.person.looking(|| self.store.remove(&self.path))?
    }

    /// Reads the file.
    pub fn read(&self) -> Result<ProjectFile> {
        let path = self.path.clone();
        let read = self.person.looking(|| places::read_project(&path))?;
        let text = read.map_err(|why| {
            // The user named a file that does not exist, not a directory.
            let missing = path.parent().filter(|dir| !dir.exists());
            match missing.is_none() && path.symlink_metadata().is_err() {
                true => WrapRefusal::NoSettings(path.clone()),
                false => WrapRefusal::File {
                    path: missing.unwrap_or(&path).to_owned(),
                    why,
                },
            }
        })?;
        if !is_project(&path) {
            return Ok(ProjectFile {
                effects: vec!["--policy and --env-file may name it, and settings may".to_owned()],
                sealed: sealed_file::hash_of(&text),
                included: Vec::new(),
                path,
                text,
            });
        }
        let person = &self.person;
        let sealed = person.looking(|| SealedSettings::of(person, &path, &text))??;
        Ok(ProjectFile {
            effects: sealed.settings.effects(),
            sealed: sealed.seal.hash(&text),
            included: sealed.seal.included,
            path,
            text,
        })
    }

    /// Trusts the content that was shown, even if the file has changed since.
    pub fn trust(&self, shown: &ProjectFile) -> Result<()> {
        let person = &self.person;
        person.looking(|| self.store.add(&shown.path, &shown.sealed, person))?
    }
}

/// The entries that an [`Offer`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferScope {
    /// One project's file.
    Project,
    /// All entries.
    Everything,
}

/// The argument of `trust`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrustTarget {
    Nothing,
    Directory,
}

/// The named directory if it has a file or an entry, as for `wrap --workspace`. Otherwise the workspace that `wrap`
/// would choose there.
fn project(asked: &Path, named: TrustTarget, store: &Store, person: &Person) -> Result<PathBuf> {
    // An entry of a deleted directory can still be removed.
    if asked.symlink_metadata().is_err() {
        return std::path::absolute(asked).with_context(|| format!("resolve {asked:?}"));
    }
    let cwd = workspace::choose(asked, &SystemList::builtin(), person)?;
    let file = cwd.join(PROJECT_FILE);
    let has_one =
        named == TrustTarget::Directory && (file.symlink_metadata().is_ok() || store.has(&file));
    let top = || repository::top(&cwd, person);
    Ok(match has_one {
        true => cwd,
        false => top().unwrap_or(cwd),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::person::Environment;

    /// The bytes that were hashed decide, not what a command has put in their place since.
    #[test]
    fn what_was_judged_is_what_is_used() {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        let base = nix::unistd::mkdtemp(&base).unwrap().canonicalize().unwrap();
        let person = Person {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
            account: None,
            environment: Environment::Own,
        };
        let policy = base.join("p.toml");
        let text = "policy = \"p.toml\"\nenv-file = [\".env\"]\n";
        let write = |policy_text: &str, variables: &str| {
            std::fs::write(&policy, policy_text).unwrap();
            std::fs::write(base.join(".env"), variables).unwrap();
        };
        write("base = \"strict\"\n", "A=1\n");
        let sealed = SealedSettings::of(&person, &base.join(PROJECT_FILE), text).unwrap();
        write("base = \"permissive\"\n", "TOKEN\n");
        let source = SettingsSource {
            path: base.join(PROJECT_FILE),
            settings: sealed.settings,
            files: sealed.seal.included,
            is_answers: false,
        };
        let name = source.settings.policy.clone().unwrap();
        let (path, used) = source.policy_file(&person, &name).unwrap();
        assert_eq!(
            (path, used.as_str()),
            (policy.clone(), "base = \"strict\"\n")
        );
        let variables = source.files.iter().find(|file| file.path != policy);
        assert_eq!(variables.unwrap().text, "A=1\n");
        // The control: reading again gives the other file, which is not trusted.
        let again = SealedFile::read(&person, &policy, SealedFileKind::Policy).unwrap();
        assert_eq!(again.text, "base = \"permissive\"\n");
        assert!(again.require().is_err());
        std::fs::remove_dir_all(base).unwrap();
    }
}
