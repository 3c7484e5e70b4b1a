//! Presets: sets of rules that have a name. Services come with the program; package indexes differ from company to
//! company and are the node's to define.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::policy_text::PolicyText;
use super::text::{few, nearest, shown};
use super::{Origin, PolicyError, PresetName, Rule, file};

/// The services: reviewed data.
const BUILTIN: &str = include_str!("../../policies/presets.toml");

/// One preset.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Preset {
    /// What it is, in one line.
    pub description: String,
    /// What it allows.
    pub rules: BTreeSet<Rule>,
}

/// What is wrong with the name of a preset's file (without `.toml`).
pub fn misnamed(name: &str) -> Option<PolicyError> {
    let problem = name.parse::<PresetName>().err()?;
    Some(PolicyError::FileName {
        kind: "preset",
        file: shown(&format!("{name}.toml")),
        problem,
    })
}

/// The presets that there are: the node's files before the built-in ones.
#[derive(Debug)]
pub(super) struct Presets<'a> {
    files: &'a BTreeMap<String, String>,
    /// Parsed once a policy names one.
    builtin: OnceCell<BTreeMap<PresetName, Preset>>,
}

impl<'a> Presets<'a> {
    /// Files whose names no preset can have are as if they were not there: [`misnamed`] says which.
    pub fn new(files: &'a BTreeMap<String, String>) -> Self {
        Self {
            files,
            builtin: OnceCell::new(),
        }
    }

    /// Reads one preset.
    pub fn get(&self, name: &PresetName, asked_by: &Origin) -> Result<Preset, PolicyError> {
        if let Some(text) = self.files.get(name.as_str()) {
            return file::parse(&PolicyText::Preset(name.clone()), text);
        }
        match self.builtin()?.get(name) {
            Some(preset) => Ok(preset.clone()),
            None => {
                let known: Vec<String> = self.names()?.iter().map(|n| format!("@{n}")).collect();
                let asked = format!("@{name}");
                let near = nearest(&asked, known.iter().map(String::as_str));
                Err(PolicyError::NoSuchPreset {
                    asked_by: asked_by.clone(),
                    preset: name.clone(),
                    known: few(&known, 80),
                    how: near.map_or_else(
                        || how_to_define(name),
                        |near| format!("Did you mean {near}?"),
                    ),
                })
            }
        }
    }

    /// All that there are.
    pub fn names(&self) -> Result<BTreeSet<PresetName>, PolicyError> {
        let files = self.files.keys().filter_map(|name| name.parse().ok());
        Ok(self.builtin()?.keys().cloned().chain(files).collect())
    }

    /// Whether the node's file says what it is.
    pub fn is_of_node(&self, name: &PresetName) -> bool {
        self.files.contains_key(name.as_str())
    }

    fn builtin(&self) -> Result<&BTreeMap<PresetName, Preset>, PolicyError> {
        if let Some(parsed) = self.builtin.get() {
            return Ok(parsed);
        }
        let parsed = builtin()?;
        Ok(self.builtin.get_or_init(|| parsed))
    }
}

/// Package indexes, by what people call them: the preset that `policy presets --detect` makes of each.
const INDEXES: [(&str, &[&str]); 5] = [
    ("python", &["python", "pypi", "pip", "uv", "poetry"]),
    ("node", &["node", "npm", "npmjs", "yarn", "pnpm"]),
    ("rust", &["rust", "cargo", "crates", "crates-io"]),
    ("go", &["go", "golang", "goproxy"]),
    ("debian", &["debian", "apt", "ubuntu"]),
];

/// How a preset comes into being that there is not.
fn how_to_define(name: &PresetName) -> String {
    let index = INDEXES
        .iter()
        .find(|(_, names)| names.contains(&name.as_str()));
    match index {
        Some((preset, _)) => format!(
            "Package indexes differ from node to node: `agentbox policy presets --detect --write` writes @{preset} as this node's \
             package managers have it"
        ),
        None => format!(
            "Define it in {name}.toml in the node's preset directory (/etc/agentbox/presets), as docs/policy.md shows"
        ),
    }
}

/// The presets that are part of the program.
pub fn builtin() -> Result<BTreeMap<PresetName, Preset>, PolicyError> {
    file::parse(&PolicyText::Presets, BUILTIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Target;

    #[test]
    fn the_built_in_presets_are_exact_and_described() {
        let all = builtin().unwrap();
        for name in ["github", "anthropic", "openai", "google-ai"] {
            assert!(all.contains_key(&name.parse().unwrap()), "{name}");
        }
        for (name, preset) in all {
            assert!(!preset.rules.is_empty(), "{name}");
            assert!(preset.description.len() > 10, "{name}");
            for rule in preset.rules.iter().filter_map(Rule::connection) {
                assert!(!rule.reach.is_private(), "{name}: {rule}");
                assert!(
                    matches!(rule.target, Target::Name(_) | Target::Below(_)),
                    "{name}: {rule}"
                );
            }
        }
    }

    #[test]
    fn the_nodes_presets_come_first() {
        let files = BTreeMap::from([(
            "github".to_owned(),
            "description = \"ours\"\nrules = [\"git.example.com\"]".to_owned(),
        )]);
        let presets = Presets::new(&files);
        let preset = presets
            .get(&"github".parse().unwrap(), &Origin::Node)
            .unwrap();
        assert_eq!(preset.rules, ["git.example.com".parse().unwrap()].into());
        let error = |name: &str| {
            let got = presets.get(&name.parse().unwrap(), &Origin::Node);
            got.unwrap_err().to_string()
        };
        assert!(error("mirror").contains("mirror.toml"));
    }

    /// A-9 of AGENTS' frictions: everybody needs the package indexes at once.
    #[test]
    fn an_index_that_nobody_defined_names_what_defines_it() {
        let files = BTreeMap::new();
        let presets = Presets::new(&files);
        for (preset, names) in INDEXES {
            for name in names {
                let got = presets.get(&name.parse().unwrap(), &Origin::Node);
                let error = got.unwrap_err().to_string();
                assert!(error.contains(&format!("no preset @{name}")), "{error}");
                let how = format!("`agentbox policy presets --detect --write` writes @{preset} ");
                assert!(error.contains(&how), "{error}");
                assert!(error.len() < 300, "{error}");
            }
        }
    }
}
