//! SHELL. The home that an agent has in sandboxes: `~/.local/state/agentbox/agents/NAME`, a directory there for each of its own.
//!
//! The user's own settings and logins are copied in and never written, since an agent could leave programs in them that run outside
//! (hooks, servers), or another account. No program outside executes or obeys what is here. The directory itself is agentbox's: no
//! sandbox has more of it than what lies in the agent's directories, so that their names are as they were made.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Agent;
use super::list::AgentDirectory;
use super::source::{self, AgentFile, AgentSource};
use crate::audit::hash;
use crate::cli::Walls;
use crate::plan::BindAccess;
use crate::plan::wrapped::{AgentMount, layer_of, login_over_ceiling, over_ceiling};
use crate::policy::ResolvedPolicy;
use crate::text::few;
use crate::wrap::WrapRefusal;
use crate::wrap::layout::Layout;
use crate::wrap::person::Person;
use crate::wrap::settings::own_dir::OwnDir;
use crate::wrap::settings::places;
use crate::wrap::wanted::WrapRequest;

/// What was copied: the SHA-256 of each file by its path below the home, so that a login or a change of the agent's own in a sandbox
/// stays until the user changes the one outside.
const COPIED: &str = "copied.json";

/// Characters of the line on what is not given.
const LONGEST_LINE: usize = 400;

/// What a run gives an agent.
pub struct AgentHome {
    /// Its directories, by their places in the container.
    pub mounts: BTreeMap<PathBuf, AgentMount>,
    /// The home of the command, below which they are.
    pub inside: PathBuf,
    /// The variables that name them to it.
    pub variables: Vec<(String, PathBuf)>,
    /// Directories with its program that lie in those outside, and are shown in them.
    pub programs: Vec<PathBuf>,
    /// What the user is told, one sentence each.
    pub lines: Vec<String>,
    withheld: Vec<String>,
    own: OwnDir,
    files: Vec<AgentCopy>,
}

/// A file to copy into a directory of the agent's.
struct AgentCopy {
    /// The directory's path below the home.
    directory: PathBuf,
    file: AgentFile,
    when: CopyTime,
}

/// When a file is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyTime {
    /// Where it is missing.
    First,
    /// Likewise, and when the one outside has changed since.
    Changed,
}

/// What is known of an agent's logins.
#[derive(Default)]
struct LoginWords {
    given: Vec<String>,
    withheld: Vec<String>,
}

impl Agent {
    /// What the agent is given by a run under this policy. To be called with the user's rights over files.
    pub fn home(
        &self,
        wanted: &WrapRequest,
        resolved: &ResolvedPolicy,
        layout: &Layout,
    ) -> Result<AgentHome> {
        let person = &wanted.person;
        let homes = places::home(person).zip(layout.home.as_ref());
        let (outside, inside) =
            homes.with_context(|| format!("--agent {}: there is no home: set HOME", self.name))?;
        let mut home = AgentHome {
            mounts: BTreeMap::new(),
            inside: inside.clone(),
            variables: Vec::new(),
            programs: Vec::new(),
            lines: Vec::new(),
            withheld: Vec::new(),
            own: OwnDir::made(&places::agent(person, &outside, &self.name), person)?,
            files: Vec::new(),
        };
        let mut logins = LoginWords::default();
        for directory in &self.data.directories {
            let place = inside.join(&directory.path);
            if let Some(why) = over_ceiling(resolved, &place, BindAccess::ReadOnly) {
                home.withheld.push(format!("its own home: {why}"));
                home.lines = self.lines(None, home.withheld());
                return Ok(home);
            }
            self.refuse_overlap(&place, wanted, layout)?;
            let source = home.layer(person, &directory.path)?;
            if let (Some(variable), true) = (&directory.variable, directory.told) {
                home.variables.push((variable.clone(), place.clone()));
            }
            let found =
                AgentSource::of(person, &outside, directory).map_err(|why| self.refused(&why))?;
            self.add_logins(
                &mut home,
                (directory, found.as_ref()),
                resolved,
                &mut logins,
            )?;
            if let Some(one) = &directory.first {
                let is_let = login_over_ceiling(resolved, &one.in_home.to_string_lossy()).is_none();
                let file = source::first(person, &outside, directory, one).filter(|_| is_let);
                home.files
                    .extend(file.map(|file| AgentCopy::of(directory, file, CopyTime::First)));
            }
            // By their own names alone, by which PATH leads to them.
            let programs = directory.programs.iter().map(|name| place.join(name));
            home.programs.extend(
                programs.filter(|path| path.canonicalize().is_ok_and(|real| real == *path)),
            );
            let why = format!(
                "the own home of the agent {}, which only its sandboxes write",
                self.name
            );
            home.mounts.insert(place, AgentMount { source, why });
        }
        home.tell(self, logins);
        Ok(home)
    }

    /// What of the user's is copied into one of its directories.
    fn add_logins(
        &self,
        home: &mut AgentHome,
        (directory, found): (&AgentDirectory, Option<&AgentSource<'_>>),
        resolved: &ResolvedPolicy,
        words: &mut LoginWords,
    ) -> Result<()> {
        let Some(found) = found else {
            return Ok(());
        };
        for name in &directory.login {
            let Some(file) = found.login(name).map_err(|why| self.refused(&why))? else {
                continue;
            };
            let listed = directory.path.join(name);
            match login_over_ceiling(resolved, &listed.to_string_lossy()) {
                Some(why) => words.withheld.push(format!("its login: {why}")),
                None => {
                    words
                        .given
                        .push(found.path().join(name).display().to_string());
                    home.files
                        .push(AgentCopy::of(directory, file, CopyTime::Changed));
                }
            }
        }
        for name in &directory.settings {
            let files = found.settings(name, &mut home.withheld);
            home.files.extend(
                files
                    .into_iter()
                    .map(|file| AgentCopy::of(directory, file, CopyTime::Changed)),
            );
        }
        Ok(())
    }

    fn refused(&self, why: &str) -> anyhow::Error {
        anyhow!(WrapRefusal::Agent {
            name: self.name.clone(),
            why: why.to_owned()
        })
    }

    /// Refuses what the directory would cover, or what would cover it, without a word.
    fn refuse_overlap(&self, place: &Path, wanted: &WrapRequest, layout: &Layout) -> Result<()> {
        let real = place.canonicalize().unwrap_or_else(|_| place.to_owned());
        let named = wanted.read.iter().chain(&wanted.write).chain(&wanted.hide);
        let named = named.filter_map(|path| path.canonicalize().ok());
        let mut all = named
            .chain(layout.written.iter().cloned())
            .chain([layout.workspace.clone()]);
        let overlap = all.find(|path| {
            path.starts_with(&real) || path.starts_with(place) || real.starts_with(path)
        });
        match overlap {
            Some(path) => Err(self.refused(&format!(
                "{path:?} is named for this run, and the agent has its own directory at {place:?}"
            ))),
            None => Ok(()),
        }
    }
}

impl AgentCopy {
    fn of(directory: &AgentDirectory, file: AgentFile, when: CopyTime) -> Self {
        Self {
            directory: directory.path.clone(),
            file,
            when,
        }
    }
}

impl AgentHome {
    /// Makes a directory of the agent's where it is missing; its path without links.
    fn layer(&self, person: &Person, directory: &Path) -> Result<PathBuf> {
        let path = self.own.path().join(layer_of(directory));
        let step = || format!("make {path:?}");
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(step),
        }
        let found = File::from(open_plain(CWD, &path).with_context(step)?);
        let found = found.metadata().with_context(step)?;
        match person.owns(&found) {
            true => Ok(path),
            false => Err(anyhow!(WrapRefusal::File {
                path,
                why: "must be your own".to_owned()
            })),
        }
    }

    fn tell(&mut self, agent: &Agent, logins: LoginWords) {
        let login = match (&logins.given[..], &agent.data.log_in) {
            ([], Some(command)) if logins.withheld.is_empty() => {
                format!("no login of yours (`agentbox wrap -- {command}` makes one)")
            }
            ([], _) => "no login of yours".to_owned(),
            (given, _) => format!("your login {}", given.join(", ")),
        };
        let given = format!("{login}, its settings and history in {:?}", self.own.path());
        for mount in self.mounts.values_mut() {
            mount.why = format!("{}; it is given {login}", mount.why);
        }
        self.withheld.splice(0..0, logins.withheld);
        self.lines = agent.lines(Some(&given), self.withheld());
    }

    /// What it is not given, as a phrase.
    fn withheld(&self) -> Option<String> {
        (!self.withheld.is_empty()).then(|| few(&self.withheld, LONGEST_LINE))
    }

    /// Gives the agent what it is given, and says so.
    pub fn give(&self, person: &Person) -> Result<()> {
        person.looking(|| self.copy_in(person))??;
        for line in &self.lines {
            crate::log::complain(&format!("agentbox: {line}"));
        }
        Ok(())
    }

    /// Copies in what has changed outside. To be called with the user's rights over files.
    fn copy_in(&self, person: &Person) -> Result<()> {
        let own = open_plain(CWD, self.own.path())
            .with_context(|| format!("open {:?}", self.own.path()))?;
        let mut copied = self.copied();
        let before = copied.clone();
        for AgentCopy {
            directory,
            file,
            when,
        } in &self.files
        {
            let name = directory.join(&file.path);
            let step = || {
                format!(
                    "copy {name:?} for the agent: remove what is in its place in {:?}",
                    self.own.path()
                )
            };
            let layer = open_plain(&own, Path::new(&layer_of(directory))).with_context(step)?;
            let (key, hash) = (name.to_string_lossy().into_owned(), hash(&file.content));
            // By no link but itself.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
            let there = rustix::fs::openat2(&layer, &file.path, flags, Mode::empty(), links);
            let is_there = there.is_ok();
            if is_there && (*when == CopyTime::First || copied.get(&key) == Some(&hash)) {
                continue;
            }
            put(&own, &layer, file).with_context(step)?;
            copied.insert(key, hash);
        }
        if copied == before {
            return Ok(());
        }
        self.own.put(
            person,
            &self.own.path().join(COPIED),
            &serde_json::to_vec(&copied)?,
        )
    }

    fn copied(&self) -> BTreeMap<String, String> {
        // Nobody else writes it; without it all is copied once more.
        let text = std::fs::read(self.own.path().join(COPIED)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// Writes a file beside the agent's directories, where no sandbox sees it, and moves it in: what the agent has in its place, a link
/// too, is replaced and not followed.
fn put(own: &OwnedFd, layer: &OwnedFd, file: &AgentFile) -> Result<()> {
    let mode = if file.executable {
        Mode::RWXU
    } else {
        Mode::RUSR | Mode::WUSR
    };
    let half = format!(".{}", std::process::id());
    match rustix::fs::unlinkat(own, &half, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut written = File::from(rustix::fs::openat(own, &half, flags, mode)?);
    written.write_all(&file.content)?;
    let mut above = rustix::io::dup(layer)?;
    for part in file.path.parent().into_iter().flat_map(Path::components) {
        let part = Path::new(part.as_os_str());
        match rustix::fs::mkdirat(&above, part, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        above = open_plain(&above, part)?;
    }
    let name = file.path.file_name().unwrap_or_default();
    Ok(rustix::fs::renameat(own, &half, &above, name)?)
}

/// A directory, by no link.
fn open_plain(at: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(at, path, flags, Mode::empty(), links)
}

impl Layout {
    /// The directories of the run's agent, by their places.
    pub fn agent_mounts(&self) -> &BTreeMap<PathBuf, AgentMount> {
        static NONE: BTreeMap<PathBuf, AgentMount> = BTreeMap::new();
        self.agent.as_ref().map_or(&NONE, |agent| &agent.mounts)
    }

    /// Gives an agent its home: in its directories nothing is hidden. By rules of Landlock nothing is mounted, and what the user has there
    /// stays as it is.
    pub fn add_agent(&mut self, home: AgentHome, walls: Walls, environment: &mut Vec<String>) {
        if walls == Walls::Namespaces {
            let holds = |path: &PathBuf| home.mounts.keys().any(|place| path.starts_with(place));
            self.masked.retain(|path| !holds(path));
        }
        for (name, place) in &home.variables {
            environment.retain(|pair| pair.split('=').next() != Some(name));
            environment.push(format!("{name}={}", place.display()));
        }
        for path in &home.programs {
            self.binds.push(path.clone());
            self.apart.insert(path.clone());
        }
        self.agent = Some(home);
    }
}
