//! SHELL. The home that an agent has in sandboxes: `~/.local/state/agentbox/.agentbox-agents/NAME`, a directory there for each of its own.
//! Another profile of the user's (`CLAUDE_CONFIG_DIR`) has another one, with its own login.
//!
//! The user's own settings and logins are copied in and never written, since an agent could leave programs in them that run outside
//! (hooks, servers), or another account. No program outside executes or obeys what is here. The directory itself is agentbox's: no
//! sandbox has more of it than what lies in the agent's directories, so that their names are as they were made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};

use super::Agent;
use super::copies::{AgentCopies, AgentCopy, CopyTime};
use super::list::AgentDirectory;
use super::outside;
use super::source::{self, AgentSource};
use crate::cli::Walls;
use crate::enforce::program::{ContainerProgram, ProgramFile};
use crate::plan::BindAccess;
use crate::plan::wrap_plan::AgentMount;
use crate::plan::wrapped::{login_over_ceiling, over_ceiling};
use crate::policy::ResolvedPolicy;
use crate::text::few;
use crate::wrap::error::WrapRefusal;
use crate::wrap::layout::Layout;
use crate::wrap::person::Person;
use crate::wrap::request::WrapRequest;
use crate::wrap::settings::own_dir::OwnDir;
use crate::wrap::settings::places;
use crate::wrap::variable_files::{self, VariableFiles};

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
    /// Logins that the run does not get, whatever its directories have: they are masked.
    pub masked: Vec<PathBuf>,
    /// The files of the program, if the command's name chose the agent.
    program: Vec<ProgramFile>,
    /// What the user is told, one sentence each.
    pub lines: Vec<String>,
    withheld: Vec<String>,
    copies: AgentCopies,
}

/// What is known of an agent's logins.
#[derive(Default)]
struct LoginWords {
    given: Vec<String>,
    withheld: Vec<String>,
    /// Whether its directories have one already.
    own: bool,
    /// Why settings that can hold keys are not copied.
    no_keys: Option<String>,
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
        let (outside, inside) = homes.ok_or_else(|| self.refused("there is no home: set HOME"))?;
        let is_withheld = |name: &PathBuf| login_over_ceiling(resolved, &name.to_string_lossy());
        let withheld = self.data.logins().find_map(|name| is_withheld(&name));
        // Runs that may not see its login have another home: the first may have more copies of it than one, and another run of the
        // agent's, which may see it, could uncover what is masked.
        let suffix = withheld.as_ref().map_or("", |_| "-without-login");
        let own = self.own_dir(person, &outside, suffix)?;
        let mut home = AgentHome {
            mounts: BTreeMap::new(),
            inside: inside.clone(),
            variables: Vec::new(),
            programs: Vec::new(),
            masked: Vec::new(),
            program: self.program_in(wanted, layout)?,
            lines: Vec::new(),
            withheld: Vec::new(),
            copies: AgentCopies::of(own),
        };
        let all = &self.data.directories;
        let mut places = all.iter().map(|one| inside.join(&one.path));
        let closed = places.find_map(|place| over_ceiling(resolved, &place, BindAccess::ReadOnly));
        // In a directory that is written no rule of Landlock hides a login.
        let by_rules = withheld
            .as_ref()
            .filter(|_| wanted.walls == Walls::Landlock);
        if let Some(why) = closed.as_ref().or(by_rules) {
            home.withheld.push(format!("its own home: {why}"));
            home.lines = self.lines(None, home.withheld());
            return Ok(home);
        }
        self.check_variables(wanted)?;
        let mut logins = LoginWords {
            no_keys: withheld,
            ..LoginWords::default()
        };
        for directory in all {
            let place = inside.join(&directory.path);
            self.refuse_overlap(&place, wanted, layout)?;
            let source = home.copies.layer(person, &directory.path)?;
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
                let copy = file.map(|file| AgentCopy {
                    directory: directory.path.clone(),
                    file,
                    when: CopyTime::First,
                });
                home.copies.files.extend(copy);
            }
            // By their own names alone, by which PATH leads to them.
            let programs = directory.programs.iter().map(|name| place.join(name));
            home.programs.extend(
                programs.filter(|path| path.canonicalize().is_ok_and(|real| real == *path)),
            );
            let name = &self.name;
            let why = format!("the own home of the agent {name}, which only its sandboxes write");
            home.mounts.insert(place, AgentMount { source, why });
        }
        home.tell(self, logins);
        Ok(home)
    }

    /// Refuses a directory that a sandbox may have chosen: its login could be another's, who would read all that the agent does.
    fn check_variables(&self, wanted: &WrapRequest) -> Result<()> {
        let person = &wanted.person;
        let directories = self.data.directories.iter();
        let named = directories.filter(|one| outside::named_by(person, one).is_some());
        let names: Vec<&str> = named.filter_map(|one| one.variable.as_deref()).collect();
        if names.is_empty() {
            return Ok(());
        }
        let places = variable_files::places(&wanted.cwd, &wanted.workspace);
        match variable_files::named_by(person, &places, &names, VariableFiles::Unprotected) {
            Some(why) => Err(self.refused(&format!("{}: {why}", names.join(", ")))),
            None => Ok(()),
        }
    }

    fn own_dir(&self, person: &Person, outside: &Path, suffix: &str) -> Result<OwnDir> {
        let profile = outside::profile(person, outside, self.data);
        let profile = profile.map_or_else(String::new, |digits| format!("-{digits}"));
        let name = format!("{}{profile}{suffix}", self.name);
        let own = places::agents(person, outside).join(name);
        let own = OwnDir::made(&own, person);
        own.map_err(|error| self.refused(&format!("{error:#}")))
    }

    /// What of the user's is copied into one of its directories, and what is hidden there.
    fn add_logins(
        &self,
        home: &mut AgentHome,
        (directory, found): (&AgentDirectory, Option<&AgentSource<'_>>),
        resolved: &ResolvedPolicy,
        words: &mut LoginWords,
    ) -> Result<()> {
        for name in &directory.login {
            let listed = directory.path.join(name);
            if let Some(why) = login_over_ceiling(resolved, &listed.to_string_lossy()) {
                words.withheld.push(format!("its login: {why}"));
                home.masked.push(home.inside.join(&listed));
                home.copies
                    .masked
                    .push((directory.path.clone(), name.clone()));
                continue;
            }
            let file = match found {
                Some(found) => found.login(name).map_err(|why| self.refused(&why))?,
                None => None,
            };
            match file {
                Some(file) => {
                    words.given.push(file.from.display().to_string());
                    home.copies.add(directory, file);
                }
                None => words.own |= home.copies.has(&directory.path, name),
            }
        }
        for name in &directory.settings {
            let files = found.map(|found| found.settings(name, &mut home.withheld));
            let why = words.no_keys.as_ref();
            if let Some(why) = why.filter(|_| directory.with_keys.contains(name)) {
                let is_there = files.is_some_and(|files| !files.is_empty());
                let told = is_there.then(|| format!("{name:?}, which can hold keys: {why}"));
                home.withheld.extend(told);
                continue;
            }
            for file in files.into_iter().flatten() {
                home.copies.add(directory, file);
            }
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
        let all = named
            .chain(layout.written.iter().cloned())
            .chain([layout.workspace.clone()]);
        match overlap(place, &real, all) {
            Some(path) => Err(self.refused(&format!(
                "{path:?} is named for this run, and the agent has its own directory at {place:?}"
            ))),
            None => Ok(()),
        }
    }
}

/// The first of these paths that is in an agent's directory, or that the directory is in. `place` is its path in the
/// container; `real` is the same without links.
fn overlap(place: &Path, real: &Path, all: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    let mut all = all.into_iter();
    all.find(|path| path.starts_with(real) || path.starts_with(place) || real.starts_with(path))
}

impl LoginWords {
    /// The login that the agent is given, for people. `log_in` is the command that makes one.
    fn words(&self, log_in: Option<&str>) -> String {
        match (&self.given[..], log_in) {
            ([], _) if !self.withheld.is_empty() => "no login".to_owned(),
            ([], _) if self.own => "the login that was made in its sandboxes".to_owned(),
            ([], Some(command)) => {
                format!("no login of yours (`agentbox wrap -- {command}` makes one)")
            }
            ([], None) => "no login of yours".to_owned(),
            (given, _) => format!("your login {}", given.join(", ")),
        }
    }
}

impl AgentHome {
    /// The program of a run for this agent, or for none.
    pub fn program_of(agent: Option<&Self>) -> ContainerProgram {
        let files = agent.map_or_else(Vec::new, |agent| agent.program.clone());
        ContainerProgram::checked(files)
    }

    fn tell(&mut self, agent: &Agent, logins: LoginWords) {
        let login = logins.words(agent.data.log_in.as_deref());
        let given = format!(
            "{login}, its settings and history in {:?}",
            self.copies.path()
        );
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
        person.looking(|| self.copies.copy_in(person))??;
        for line in &self.lines {
            crate::log::complain(&format!("agentbox: {line}"));
        }
        Ok(())
    }
}

impl Layout {
    /// The directories of the run's agent, by their places.
    pub fn agent_mounts(&self) -> &BTreeMap<PathBuf, AgentMount> {
        static NONE: BTreeMap<PathBuf, AgentMount> = BTreeMap::new();
        self.agent.as_ref().map_or(&NONE, |agent| &agent.mounts)
    }

    /// Gives an agent its home: in its directories nothing is hidden but a login that the run may not see. By rules of Landlock nothing is mounted, and what the user has there
    /// stays as it is.
    pub fn add_agent(&mut self, home: AgentHome, walls: Walls, environment: &mut Vec<String>) {
        if walls == Walls::Namespaces {
            let holds = |path: &PathBuf| home.mounts.keys().any(|place| path.starts_with(place));
            self.masked.retain(|path| !holds(path));
            self.masked.extend(home.masked.iter().cloned());
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::plan::tests::sample_resolved;
    use crate::policy::Origin;
    use crate::probe::TestDir;
    use crate::wrap::agents::AgentOrigin;
    use crate::wrap::agents::list::AgentData;
    use crate::wrap::person::Environment;

    const LOGIN: &str = ".codex/auth.json";

    /// Codex, what a user has of it outside, and its own home.
    struct Codex {
        base: TestDir,
        person: Person,
        agent: Agent,
    }

    impl Codex {
        fn new() -> Self {
            let base = TestDir::unique();
            fs::create_dir_all(base.0.join("outside/.codex")).unwrap();
            fs::create_dir(base.0.join("own")).unwrap();
            Self {
                base,
                person: Person {
                    uid: rustix::process::geteuid().as_raw(),
                    gid: rustix::process::getegid().as_raw(),
                    groups: Vec::new(),
                    account: None,
                    environment: Environment::Changed,
                },
                agent: Agent {
                    name: "codex".to_owned(),
                    data: AgentData::builtin("codex").unwrap(),
                    origin: AgentOrigin::Command,
                    program: Vec::new(),
                    hosts: Vec::new(),
                    outside: Vec::new(),
                    hint: None,
                },
            }
        }

        /// Writes a file of the user's that none but its owner writes.
        fn write(&self, name: &str, mode: u32) -> PathBuf {
            let path = self.base.0.join("outside/.codex").join(name);
            fs::write(&path, "content").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        /// What a run under this policy gives it, and the words about its login.
        fn given(&self, resolved: &ResolvedPolicy) -> Result<(AgentHome, LoginWords)> {
            let directory = &self.agent.data.directories[0];
            let outside = self.base.0.join("outside");
            let found = AgentSource::of(&self.person, &outside, directory).unwrap();
            let mut home = AgentHome {
                mounts: BTreeMap::new(),
                inside: "/home/alice".into(),
                variables: Vec::new(),
                programs: Vec::new(),
                masked: Vec::new(),
                program: Vec::new(),
                lines: Vec::new(),
                withheld: Vec::new(),
                copies: AgentCopies::of(OwnDir::at(self.base.0.join("own"))),
            };
            home.copies.layer(&self.person, &directory.path)?;
            let mut words = LoginWords {
                no_keys: login_over_ceiling(resolved, LOGIN),
                ..LoginWords::default()
            };
            let of = (directory, found.as_ref());
            self.agent.add_logins(&mut home, of, resolved, &mut words)?;
            Ok((home, words))
        }
    }

    /// The policy of a run, whose ceiling the operator set or not, with these credentials.
    fn under(set_by: Origin, credentials: &[&str]) -> ResolvedPolicy {
        let mut resolved = sample_resolved();
        resolved.ceilings[0].set_by = set_by;
        let all = credentials.iter().map(|name| name.parse().unwrap());
        resolved.limits[0].filesystem.credentials = all.collect();
        resolved
    }

    fn copied(home: &AgentHome) -> Vec<String> {
        let all = home.copies.files.iter();
        all.map(|copy| copy.file.path.display().to_string())
            .collect()
    }

    #[test]
    fn a_login_is_copied_and_named_unless_a_ceiling_withholds_it() {
        let codex = Codex::new();
        let login = codex.write("auth.json", 0o600);
        codex.write("config.toml", 0o600);
        codex.write("AGENTS.md", 0o600);
        for resolved in [
            under(Origin::Default, &[]),
            under(Origin::Node, &[LOGIN]),
            under(Origin::Flag, &[".netrc", LOGIN]),
        ] {
            let (home, words) = codex.given(&resolved).unwrap();
            assert_eq!(copied(&home), ["auth.json", "AGENTS.md", "config.toml"]);
            assert_eq!(home.masked, Vec::<PathBuf>::new());
            assert!(home.copies.masked.is_empty() && home.withheld.is_empty());
            let line = format!("your login {}", login.display());
            assert_eq!(words.words(Some("codex login")), line);
        }
    }

    #[test]
    fn a_login_that_a_ceiling_withholds_is_masked_and_settings_with_keys_stay_outside() {
        let codex = Codex::new();
        codex.write("auth.json", 0o600);
        codex.write("config.toml", 0o600);
        codex.write("AGENTS.md", 0o600);
        // One that was made inside, under another ceiling, does not count.
        fs::create_dir_all(codex.base.0.join("own/.codex")).unwrap();
        fs::write(codex.base.0.join("own/.codex/auth.json"), "inside").unwrap();
        for resolved in [under(Origin::Node, &[]), under(Origin::Flag, &[".netrc"])] {
            let (home, words) = codex.given(&resolved).unwrap();
            assert_eq!(copied(&home), ["AGENTS.md"]);
            assert_eq!(home.masked, [PathBuf::from("/home/alice/.codex/auth.json")]);
            let mask = (PathBuf::from(".codex"), PathBuf::from("auth.json"));
            assert_eq!(home.copies.masked, [mask]);
            assert_eq!(words.withheld.len(), 1, "{:?}", words.withheld);
            assert_eq!(words.words(Some("codex login")), "no login");
            let told = &home.withheld[..];
            assert!(
                matches!(told, [one] if one.contains("\"config.toml\", which can hold keys")),
                "{told:?}"
            );
        }
        // Nothing is said of files that are not there.
        fs::remove_file(codex.base.0.join("outside/.codex/config.toml")).unwrap();
        let (home, _) = codex.given(&under(Origin::Node, &[])).unwrap();
        assert!(home.withheld.is_empty() && home.masked.len() == 1);
    }

    #[test]
    fn a_login_that_others_may_have_written_ends_the_run() {
        let codex = Codex::new();
        codex.write("auth.json", 0o620);
        assert!(codex.given(&under(Origin::Default, &[])).is_err());
        // Nothing reads it.
        assert!(codex.given(&under(Origin::Node, &[])).is_ok());
    }

    #[test]
    fn a_login_that_was_made_inside_is_told_from_none() {
        let codex = Codex::new();
        let words = || {
            let (home, words) = codex.given(&under(Origin::Default, &[])).unwrap();
            assert!(copied(&home).is_empty());
            words
        };
        let none = words();
        assert_eq!(
            none.words(Some("codex login")),
            "no login of yours (`agentbox wrap -- codex login` makes one)"
        );
        assert_eq!(none.words(None), "no login of yours");
        fs::write(codex.base.0.join("own/.codex/auth.json"), "inside").unwrap();
        let own = words().words(Some("codex login"));
        assert_eq!(own, "the login that was made in its sandboxes");
    }

    #[test]
    fn a_path_of_the_run_is_not_within_an_agents_directory_nor_around_it() {
        let place = Path::new("/home/alice/.codex");
        let moved = Path::new("/data/codex");
        for (real, path, expected) in [
            (place, "/home/alice/.codex", true),
            (place, "/home/alice/.codex/skills", true),
            (place, "/home/alice", true),
            (place, "/home/alice/.codex2", false),
            (place, "/srv/project", false),
            (moved, "/home/alice/.codex/skills", true),
            (moved, "/data/codex/skills", true),
            (moved, "/data", true),
            (moved, "/data/codex2", false),
        ] {
            let all = ["/srv/other", path].map(PathBuf::from);
            let found = overlap(place, real, all);
            assert_eq!(found, expected.then(|| path.into()), "{real:?} {path}");
        }
    }
}
