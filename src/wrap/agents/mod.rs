//! Agents that `wrap` knows: `agentbox wrap -- claude` has its hosts, its login, and a home of its own.
//!
//! | file | what it does |
//! |---|---|
//! | [`list`] | what is known of each: policies/agents |
//! | [`choice`] | which one a command is |
//! | [`program`] | whether a sandbox may have written the command's program |
//! | [`source`] | what the user has of an agent outside |
//! | [`home`] | what it has in sandboxes |

mod choice;
mod home;
mod list;
mod program;
mod source;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use self::choice::{AgentOrigin, NO_AGENT};
pub use self::home::AgentHome;

use self::choice::{AgentChoice, AgentDoubt, choose};
use self::list::AgentData;
use self::program::ProgramPlaces;
use super::variables::Variables;
use super::wanted::WrapRequest;
use super::{command, confined, environment};
use crate::cli::GlobalOptions;
use crate::policy::{Field, FieldOption, MountRule};
use crate::runtime::input::node_files;

/// The agent that a run is for.
pub struct Agent {
    /// Its name.
    pub name: String,
    data: AgentData,
    origin: AgentOrigin,
    /// The rules of its hosts.
    hosts: Vec<String>,
    /// The option that would switch its own sandbox off.
    hint: Option<String>,
}

impl WrapRequest {
    /// Finds out which agent the command is, and adds what that needs of the policy and the environment.
    pub fn settle_agent(&mut self, global: &GlobalOptions) -> Result<()> {
        let person = self.person.clone();
        let files = person.looking(|| self.program_files())??;
        let names = program::names(&self.command[0], files.first().map(|file| file.as_path()));
        let doubt = || self.doubt(global, &files);
        match choose(self.agent_requested.clone(), &names, doubt)? {
            AgentChoice::None => {}
            AgentChoice::Doubt(name, why) => self.notices.push(format!(
                "agentbox: agent {name} is not chosen by the command's name ({why}): --agent {name} gives it its login and hosts, \
                 --agent none leaves this line out"
            )),
            AgentChoice::Agent(name, origin) => self.add_agent(name, origin)?,
        }
        Ok(())
    }

    /// The files that are executed, by the PATH that the command has.
    fn program_files(&self) -> Result<Vec<PathBuf>> {
        let environment = environment::of_run(self)?;
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or("", |(_, value)| value.as_str());
        Ok(command::files(&self.command[0], path, &self.cwd))
    }

    /// Why the command's name alone does not choose an agent.
    fn doubt(&self, global: &GlobalOptions, files: &[PathBuf]) -> Result<Option<AgentDoubt>> {
        let places = ProgramPlaces {
            person: &self.person,
            list: &self.list,
            written: self.written(),
        };
        let written = self.person.looking(|| places.written_by_a_sandbox(files))?;
        if let Some(file) = written {
            return Ok(Some(AgentDoubt::Written(file)));
        }
        let selection = node_files::selection(global, &Default::default(), &self.asked)?;
        let policy = confined(selection)?.policy;
        let is_closed = policy.filesystem.mounts == MountRule::Drop;
        Ok(is_closed.then(|| AgentDoubt::Policy(policy.name.to_string())))
    }

    /// What the command writes, by every name of it.
    fn written(&self) -> Vec<PathBuf> {
        let named = self.write.iter().chain([&self.workspace]);
        named
            .flat_map(|path| [Some(path.clone()), path.canonicalize().ok()])
            .flatten()
            .collect()
    }

    fn add_agent(&mut self, name: String, origin: AgentOrigin) -> Result<()> {
        let data =
            AgentData::builtin(&name).with_context(|| format!("--agent {name} is unknown"))?;
        let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let hosts: Vec<String> = data.hosts(has).into_iter().map(str::to_owned).collect();
        for host in &hosts {
            let option = FieldOption::adding(&format!("--agent {name}"), Field::NetworkAllow, host);
            self.asked.options.push(match &origin {
                AgentOrigin::Option | AgentOrigin::Command => option,
                AgentOrigin::Setting(file) => option.in_file("agent", &file.display().to_string()),
            });
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
            hosts,
            hint,
        });
        Ok(())
    }
}

impl Agent {
    /// What the user is told of it. `given` are its login and home, `withheld` is what it does not get.
    fn lines(&self, given: Option<&str>, withheld: Option<String>) -> Vec<String> {
        let Self { name, hosts, .. } = self;
        let by = match &self.origin {
            AgentOrigin::Option => String::new(),
            AgentOrigin::Setting(file) => format!(" ({file:?})"),
            AgentOrigin::Command => " (by the command's name)".to_owned(),
        };
        let mut all = match hosts[..] {
            [] => "no host (--allow names its provider's)".to_owned(),
            _ => format!("hosts {}", hosts.join(", ")),
        };
        if let Some(given) = given {
            all = format!("{all}; {given}");
        }
        let mut lines = vec![format!(
            "agent {name}{by}: {all}; --agent none switches this off"
        )];
        lines.extend(withheld.map(|why| format!("agent {name}: not given: {why}")));
        lines.extend(self.hint.as_ref().map(|option| {
            format!("agent {name}: its own sandbox does not start in this one: add {option} to the command")
        }));
        lines
    }
}
