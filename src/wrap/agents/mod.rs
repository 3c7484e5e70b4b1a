//! Agents that `wrap` knows: `agentbox wrap -- claude` has its hosts, its login, and a home of its own.
//!
//! | file | what it does |
//! |---|---|
//! | [`list`] | what is known of each: policies/agents |
//! | [`choice`] | which one a command is |
//! | [`program`] | whether a sandbox may have written the command's program |
//! | [`source`] | what the user has of an agent outside |
//! | [`outside`] | where that is, and that no sandbox writes it |
//! | [`home`] | what it has in sandboxes |
//! | [`copies`] | what is copied into it |

pub mod choice;
mod copies;
pub mod home;
mod list;
pub mod outside;
pub mod program;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

pub use self::choice::AgentOrigin;
pub use self::home::AgentHome;
pub use self::program::ProgramPlaces;

use self::choice::{AgentChoice, AgentDoubt, choose};
use self::list::AgentData;
use self::outside::HiddenDir;
use super::command::CommandFiles;
use super::error::WrapRefusal;
use super::layout::Layout;
use super::named::is_never_named;
use super::request::WrapRequest;
use super::settings::places;
use super::variables::Variables;
use super::{confined, environment};
use crate::cli::GlobalOptions;
use crate::enforce::program::ProgramFile;
use crate::policy::{Field, FieldOption, MountRule, NodeSecret, TlsWay, VariableName};
use crate::runtime::input::node_files;
use crate::text::few;

/// The agent that a run is for.
pub struct Agent {
    /// Its name.
    pub name: String,
    data: &'static AgentData,
    origin: AgentOrigin,
    /// The files that its program needs to start, if the command's name chose it.
    program: Vec<ProgramFile>,
    /// The rules of its hosts.
    hosts: Vec<String>,
    /// Its keys that stay outside, in words.
    outside: Vec<String>,
    /// The option that would switch its own sandbox off.
    hint: Option<String>,
}

impl WrapRequest {
    /// Finds out which agent the command is, and adds what that needs of the policy and the environment.
    pub fn settle_agent(&mut self, global: &GlobalOptions) -> Result<()> {
        let person = self.person.clone();
        let found = person.looking(|| self.command_files())??;
        let first = found.files.first().map(PathBuf::as_path);
        let names = program::names(&self.command[0], first);
        let doubt = || self.doubt(global, &found);
        let homes: Vec<PathBuf> = person.looking(|| places::homes(&person).collect())?;
        match choose(self.agent_requested.clone(), &names, doubt)? {
            AgentChoice::None => {}
            // The runtime says that there is no such program.
            AgentChoice::Doubt(..) if found.files.is_empty() => {}
            // With the option a program of this run, or of one in another project, would have the login.
            AgentChoice::Doubt(name, AgentDoubt::Written(file))
                if (self.written().iter().chain(&homes)).any(|place| file.starts_with(place))
                    && found.lead_by(&file) =>
            {
                self.notices.push(format!(
                    "agentbox: agent {name} is not chosen by the command's name: {file:?} runs, and a sandbox could have written it; \
                     another {name} runs by its path, --agent none leaves this line out"
                ));
            }
            AgentChoice::Doubt(name, why) => self.notices.push(format!(
                "agentbox: agent {name} is not chosen by the command's name ({why}): --agent {name} gives it its login and hosts, \
                 --agent none leaves this line out"
            )),
            AgentChoice::Agent(name, origin) => {
                let files = match origin {
                    AgentOrigin::Command => found.files,
                    AgentOrigin::Option | AgentOrigin::Setting(_) => Vec::new(),
                };
                let program = person.looking(|| looked_at(&files))??;
                self.add_agent(name, origin, program)?;
            }
        }
        let hidden = person.looking(|| outside::within(&person, &self.written_if_taken()))?;
        for HiddenDir { path, by, held } in hidden {
            let read = held
                .iter()
                .map(|held| format!(", and {held:?} is read-only"));
            self.notices.push(format!(
                "agentbox: {path:?}, which {by} names, is hidden{}: an agent's login and settings are there",
                read.collect::<String>()
            ));
            self.hide.push(path);
            self.read.extend(held);
        }
        Ok(())
    }

    /// The files that are executed, by the PATH that the command has.
    fn command_files(&self) -> Result<CommandFiles> {
        let environment = environment::of_run(self)?;
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or("", |(_, value)| value.as_str());
        Ok(CommandFiles::of(&self.command[0], path, &self.cwd))
    }

    /// Why the command's name alone does not choose an agent.
    fn doubt(&self, global: &GlobalOptions, found: &CommandFiles) -> Result<Option<AgentDoubt>> {
        let searched = found.before.iter().chain(&found.by_shell);
        let all = found.files.iter().chain(searched);
        let of_files = self.person.looking(|| {
            let places = ProgramPlaces::of(&self.person, &self.list, self.written());
            let written = places.written_by_a_sandbox(all).map(AgentDoubt::Written);
            written.or_else(|| places.shim(found.files.iter()).map(AgentDoubt::Shim))
        })?;
        let unknown = found.unknown.clone().map(AgentDoubt::Unknown);
        let mut variables = self.variables.iter().flat_map(|source| &source.files);
        let variables = variables.find(|file| !file.counts());
        let variables = variables.map(|file| AgentDoubt::Variables(file.path.clone()));
        if let Some(doubt) = of_files.or(unknown).or(variables) {
            return Ok(Some(doubt));
        }
        let selection = node_files::selection(global, &Default::default(), &self.asked)?;
        let policy = confined(selection)?.policy;
        let is_closed = policy.filesystem.mounts == MountRule::Drop;
        Ok(is_closed.then(|| AgentDoubt::Policy(policy.name.to_string())))
    }

    /// What the command writes, by every name of it.
    pub fn written(&self) -> Vec<PathBuf> {
        let named = self.write.iter().chain([&self.workspace]);
        named
            .flat_map(|path| [Some(path.clone()), path.canonicalize().ok()])
            .flatten()
            .collect()
    }

    /// The same without places whose option is refused later: that error names the option, and no run hides a part of them.
    fn written_if_taken(&self) -> Vec<PathBuf> {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let refused: Vec<PathBuf> = self.write.iter().map(real).collect();
        let is_refused = |path: &PathBuf| {
            let real = real(path);
            refused.contains(&real) && is_never_named(&real)
        };
        let mut all = self.written();
        all.retain(|path| !is_refused(path));
        all
    }

    fn add_agent(
        &mut self,
        name: String,
        origin: AgentOrigin,
        program: Vec<ProgramFile>,
    ) -> Result<()> {
        let data =
            AgentData::builtin(&name).with_context(|| format!("--agent {name} is unknown"))?;
        let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let secrets = self.asked.secrets.iter().filter_map(|secret| {
            let variable = secret.env.as_ref().map(VariableName::as_str)?;
            data.passes(variable).then_some((variable, secret))
        });
        let secrets: BTreeMap<&str, &NodeSecret> = secrets.collect();
        let hosts = data.hosts(has, |variable| secrets.contains_key(variable));
        let requests = secrets.values().flat_map(|secret| &secret.requests);
        let requests: BTreeSet<String> = requests.map(ToString::to_string).collect();
        let hosts: Vec<String> = hosts
            .into_iter()
            .map(str::to_owned)
            .chain(requests)
            .collect();
        let outside: Vec<String> = secrets
            .iter()
            .map(|(variable, secret)| format!("{variable} stays outside (secret {})", secret.name))
            .collect();
        let named = format!("--agent {name}");
        let by = |option: FieldOption| match &origin {
            AgentOrigin::Option | AgentOrigin::Command => option,
            AgentOrigin::Setting(file) => option.in_file("agent", &file.display().to_string()),
        };
        for host in &hosts {
            let option = FieldOption::adding(&named, Field::NetworkAllow, host);
            self.asked.options.push(by(option));
        }
        if !outside.is_empty() {
            // Below whatever the user sets: agents use https, and some do so even where a variable names http.
            let open = TlsWay::Open.to_string();
            let option = FieldOption::setting(&named, Field::NetworkTls, &open);
            self.asked.settings.insert(0, vec![by(option)]);
        }
        // Whatever else names one of them counts before this.
        self.variables.insert(
            0,
            Variables {
                files: Vec::new(),
                pairs: data.pairs(),
            },
        );
        let hint = data.hint(&self.command).map(str::to_owned);
        self.agent = Some(Agent {
            name,
            data,
            origin,
            program,
            hosts,
            outside,
            hint,
        });
        Ok(())
    }
}

/// The files as they are now, to be compared with those that are executed.
fn looked_at(files: &[PathBuf]) -> Result<Vec<ProgramFile>> {
    let look = |path: &PathBuf| {
        ProgramFile::look(path).with_context(|| format!("look at the program {path:?}"))
    };
    files.iter().map(look).collect()
}

/// Most characters of the hosts in the line; `--dry-run` has all.
const MOST_OF_HOSTS: usize = 120;

/// Most characters of the line: less than messages may have, with the program's name before it.
const ONE_LINE: usize = 280;

impl Agent {
    /// How to run the command without it, for errors of what only its name has brought.
    pub fn way_out(&self) -> Option<String> {
        let is_named = self.origin != AgentOrigin::Command;
        let name = &self.name;
        (!is_named).then(|| {
            format!(
                "agent {name} is chosen by the command's name, and --agent none runs it without"
            )
        })
    }

    /// The files of its program by the PATH of the sandbox, which has the targets of linked directories: the same files.
    fn program_in(&self, wanted: &WrapRequest, layout: &Layout) -> Result<Vec<ProgramFile>> {
        if self.program.is_empty() {
            return Ok(Vec::new());
        }
        let found = CommandFiles::of(&wanted.command[0], &layout.path, &layout.cwd);
        let found = looked_at(&found.files)?;
        let is_same = found.len() == self.program.len()
            && found
                .iter()
                .zip(&self.program)
                .all(|(one, other)| one.is_same(other));
        match is_same {
            true => Ok(found),
            false => Err(anyhow!(WrapRefusal::Agent {
                name: self.name.clone(),
                why: "its program changed after it was checked: start it again".to_owned(),
            })),
        }
    }

    /// What the user is told of it. `given` are its login and home, `withheld` is what it does not get.
    fn lines(&self, given: Option<&str>, withheld: Option<String>) -> Vec<String> {
        let Self { name, hosts, .. } = self;
        let by = match &self.origin {
            AgentOrigin::Option => String::new(),
            AgentOrigin::Setting(file) => format!(" ({file:?})"),
            AgentOrigin::Command => " (by the command's name)".to_owned(),
        };
        let mut all = self.outside.clone();
        all.push(match hosts[..] {
            [] => "no host (--allow names its provider's)".to_owned(),
            _ => format!("hosts {}", few(hosts, MOST_OF_HOSTS)),
        });
        let all = all.join("; ");
        let line = |all: &str| format!("agent {name}{by}: {all}; --agent none switches this off");
        let mut lines = match given {
            None => vec![line(&all)],
            Some(given) => {
                let one = line(&format!("{all}; {given}"));
                // A longer one would be cut in its middle.
                match one.chars().count() <= ONE_LINE {
                    true => vec![one],
                    false => vec![line(&all), format!("agent {name}: {given}")],
                }
            }
        };
        lines.extend(withheld.map(|why| format!("agent {name}: not given: {why}")));
        lines.extend(self.hint.as_ref().map(|option| {
            format!("agent {name}: its own sandbox does not start in this one: add {option} to the command")
        }));
        lines
    }
}
