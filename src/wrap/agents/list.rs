//! PURE. What `wrap` knows of agents: `policies/agents/NAME.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::cli::AGENTS;
use crate::data::{BuiltinTable, table};

/// Their files, in the order of [`AGENTS`].
const BUILTIN: [BuiltinTable; AGENTS.len()] = [
    table!("agents/claude"),
    table!("agents/codex"),
    table!("agents/gemini"),
    table!("agents/opencode"),
    table!("agents/qwen"),
    table!("agents/aider"),
];

/// An agent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentData {
    /// File names of its program.
    pub commands: Vec<String>,
    /// Hosts that it needs, as rules.
    pub hosts: Vec<String>,
    /// The command that makes a login.
    pub log_in: Option<String>,
    /// Variables with keys of model providers, and the hosts that a key is for.
    #[serde(default)]
    pub keys: BTreeMap<String, Vec<String>>,
    /// Other variables that are passed on.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Variables that it gets.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Its own sandbox, which the walls refuse.
    pub own_sandbox: Option<AgentSandbox>,
    /// Directories with its settings, history and logins.
    #[serde(rename = "directory")]
    pub directories: Vec<AgentDirectory>,
}

/// A sandbox of the agent's that no variable switches off.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSandbox {
    /// The option that switches it off.
    pub option: String,
    /// Other arguments with which it does not start.
    pub also: Vec<String>,
}

/// A directory that the agent has in sandboxes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentDirectory {
    /// Below the home.
    pub path: PathBuf,
    /// The variable that names it, or a directory above it, outside of sandboxes.
    pub variable: Option<String>,
    /// Its path below the directory of the variable.
    #[serde(default)]
    pub below: PathBuf,
    /// Whether the variable names it inside, too.
    #[serde(default)]
    pub told: bool,
    /// Logins in it, which are copied in.
    #[serde(default)]
    pub login: Vec<PathBuf>,
    /// Logins of other services in it (MCP servers): hidden from all sandboxes, and copied into none.
    #[serde(default)]
    pub other_logins: Vec<PathBuf>,
    /// Directories in it with the agent's program, which are shown as they are outside, read-only.
    #[serde(default)]
    pub programs: Vec<PathBuf>,
    /// Settings in it, files or directories, which are copied in.
    #[serde(default)]
    pub settings: Vec<PathBuf>,
    /// Those of the settings that can hold keys, as of MCP servers: they are copied where the login may be seen.
    #[serde(default)]
    pub with_keys: Vec<PathBuf>,
    /// A file of which some is copied in, once.
    pub first: Option<AgentFirstFile>,
}

/// A JSON file that the agent keeps about itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentFirstFile {
    /// In the directory, where the variable names one.
    pub path: PathBuf,
    /// Below the home, where it names none.
    pub in_home: PathBuf,
    /// What of it is copied.
    pub keys: Vec<String>,
}

impl AgentData {
    /// The agent of this name.
    pub fn builtin(name: &str) -> Option<&'static Self> {
        let found = Self::all().find(|(known, _)| *known == name);
        found.map(|(_, agent)| agent)
    }

    /// All agents, and their names.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static Self)> {
        /// Parsed once, where a command may be an agent.
        static ALL: LazyLock<Vec<AgentData>> = LazyLock::new(|| {
            let read =
                |table: BuiltinTable| table.read().expect("a test parses the built-in files");
            BUILTIN.into_iter().map(read).collect()
        });
        AGENTS.into_iter().zip(ALL.iter())
    }

    /// The first agent with a program of one of these file names, and its name.
    pub fn by_command(names: &[String]) -> Option<(&'static str, &'static Self)> {
        Self::all().find(|(_, agent)| names.iter().any(|name| agent.commands.contains(name)))
    }

    /// The logins, below the home.
    pub fn logins(&self) -> impl Iterator<Item = PathBuf> {
        let all = self.directories.iter();
        all.flat_map(|one| one.login.iter().map(|name| one.path.join(name)))
    }

    /// Where agents have programs among their own files, below the home.
    pub fn program_places() -> Vec<PathBuf> {
        let all = Self::all().flat_map(|(_, agent)| &agent.directories);
        all.flat_map(|one| one.programs.iter().map(|name| one.path.join(name)))
            .collect()
    }

    /// Hosts that it needs with the keys that the caller has. A key that stays outside goes only into the requests of its secret,
    /// so its provider's hosts are not opened whole.
    pub fn hosts(
        &self,
        has: impl Fn(&str) -> bool,
        is_outside: impl Fn(&str) -> bool,
    ) -> Vec<&str> {
        let of_login = match self.variables.iter().any(|name| is_outside(name)) {
            true => &[][..],
            false => &self.hosts,
        };
        let of_keys = self.keys.iter();
        let of_keys = of_keys.filter(|(name, _)| has(name) && !is_outside(name));
        let all = of_login.iter().chain(of_keys.flat_map(|(_, hosts)| hosts));
        all.map(String::as_str).collect()
    }

    /// Whether a variable is passed on to it.
    pub fn passes(&self, variable: &str) -> bool {
        self.keys.contains_key(variable) || self.variables.iter().any(|name| name == variable)
    }

    /// The variables that it gets, as for `--env`.
    pub fn pairs(&self) -> Vec<String> {
        let named = self.keys.keys().chain(&self.variables).cloned();
        let set = self
            .set
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        named.chain(set).collect()
    }

    /// What to say of its own sandbox, if these arguments leave it on.
    pub fn hint(&self, arguments: &[String]) -> Option<&str> {
        let own = self.own_sandbox.as_ref()?;
        let off = |argument: &String| {
            let value = argument
                .rsplit('=')
                .next()
                .map(|value| value.trim_matches('"'));
            *argument == own.option || own.also.iter().any(|also| Some(also.as_str()) == value)
        };
        (!arguments.iter().any(off)).then_some(&own.option)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Component, Path};

    use super::*;
    use crate::plan::never::{NeverList, VisibleCredentials};
    use crate::policy::CredentialName;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_agent_is_whole_and_its_logins_are_hidden_from_others() {
        let presets = include_str!("../../../policies/presets.toml");
        let presets: toml::Table = presets.parse().unwrap();
        let mut commands = BTreeSet::new();
        for (name, agent) in AgentData::all() {
            assert!(agent.commands.contains(&name.to_owned()), "{name}");
            assert!(
                agent.commands.iter().all(|c| commands.insert(c.clone())),
                "{name}"
            );
            for host in agent.hosts.iter().chain(agent.keys.values().flatten()) {
                let preset = host.strip_prefix('@').unwrap();
                assert!(presets.contains_key(preset), "{name}: {host}");
            }
            for directory in &agent.directories {
                let AgentDirectory {
                    path,
                    login,
                    other_logins,
                    settings,
                    with_keys,
                    programs,
                    first,
                    ..
                } = directory;
                assert!(
                    with_keys.iter().all(|name| settings.contains(name)),
                    "{name}"
                );
                assert!(directory.variable.is_some() || !directory.told, "{name}");
                let plain =
                    |path: &Path| path.components().all(|c| matches!(c, Component::Normal(_)));
                assert!(plain(path) && plain(&directory.below), "{name}");
                // A file of an agent's is put in the place of another by its name alone.
                for file in login
                    .iter()
                    .chain(other_logins)
                    .chain(settings)
                    .chain(programs)
                    .chain(first.as_ref().map(|one| &one.path))
                {
                    assert!(
                        plain(file) && file.components().count() == 1,
                        "{name}: {file:?}"
                    );
                }
                for file in other_logins {
                    let (file, none) = (path.join(file), VisibleCredentials::new());
                    let hidden = NeverList::builtin().credential(&file, &none);
                    assert!(hidden.is_some(), "{file:?}");
                }
                for file in login {
                    let file = path.join(file);
                    assert!(
                        NeverList::builtin()
                            .credentials()
                            .any(|known| known == file),
                        "{file:?}"
                    );
                    file.to_str().unwrap().parse::<CredentialName>().unwrap();
                }
            }
        }
    }

    #[test]
    fn unknown_keys_are_errors() {
        let text = "commands = []\nhosts = []\ndirectory = []\n";
        toml::from_str::<AgentData>(text).unwrap();
        for more in ["login = []\n", "hots = []\n"] {
            assert!(
                toml::from_str::<AgentData>(&format!("{more}{text}")).is_err(),
                "{more}"
            );
        }
    }

    #[test]
    fn an_agent_is_known_by_the_names_of_its_program() {
        let by = |names: &str| AgentData::by_command(&words(names)).map(|(name, _)| name);
        assert_eq!(by("claude"), Some("claude"));
        assert_eq!(by("2.1.197 claude"), Some("claude"));
        for other in ["", "npx", "claude-x", "Claude", "sh"] {
            assert_eq!(by(other), None, "{other}");
        }
    }

    #[test]
    fn hosts_follow_from_the_keys_that_are_there() {
        let opencode = AgentData::builtin("opencode").unwrap();
        let none = |_: &str| false;
        assert!(opencode.hosts(none, none).is_empty());
        let has = |name: &str| name == "OPENAI_API_KEY" || name == "GEMINI_API_KEY";
        assert_eq!(opencode.hosts(has, none), ["@google-ai", "@openai"]);
        let outside = |name: &str| name == "OPENAI_API_KEY";
        assert_eq!(opencode.hosts(has, outside), ["@google-ai"]);
        assert!(opencode.passes("OPENAI_API_KEY") && !opencode.passes("OPENAI"));
        let agent = AgentData::builtin("gemini").unwrap();
        assert_eq!(agent.hosts(|_| true, none), ["@google-ai"]);
        assert!(agent.hosts(has, |name| name == "GEMINI_API_KEY").is_empty());
        assert_eq!(agent.hosts(has, outside), ["@google-ai"]);
        assert!(agent.pairs().contains(&"GEMINI_SANDBOX=false".to_owned()));
        assert!(agent.pairs().contains(&"GEMINI_API_KEY".to_owned()));
    }

    #[test]
    fn a_sandbox_of_the_agents_own_is_told_where_it_is_on() {
        let agent = AgentData::builtin("codex").unwrap();
        let option = "--dangerously-bypass-approvals-and-sandbox";
        for on in ["codex", "codex exec fix", "codex -s read-only"] {
            assert_eq!(agent.hint(&words(on)), Some(option), "{on}");
        }
        for off in [
            "codex --yolo",
            "codex -s danger-full-access",
            "codex --sandbox=danger-full-access",
            "codex login",
        ] {
            assert_eq!(agent.hint(&words(off)), None, "{off}");
        }
        assert_eq!(
            AgentData::builtin("claude").unwrap().hint(&words("claude")),
            None
        );
    }
}
