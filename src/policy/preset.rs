//! Presets: named sets of rules. Services come with the program. Package indexes differ from company to company, so the
//! node defines them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::file_text::FileText;
use super::policy_text::PolicyText;
use super::{Field, Origin, PolicyError, Tool, file};
use crate::data::table;
use crate::rules::{EgressRule, PresetName, RuleItem};
use crate::text::{few, nearest, shown};

/// The services: reviewed data, read when a policy first names one: `wrap` resolves its policy twice.
static BUILTIN: LazyLock<BTreeMap<PresetName, Preset>> = LazyLock::new(builtin);

/// One preset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Preset {
    /// What it is, in one line.
    pub description: String,
    /// The rules that it allows.
    #[serde(deserialize_with = "spelled_out")]
    pub rules: BTreeSet<EgressRule>,
    /// Pages of the service that document these hosts and requests.
    #[serde(default)]
    pub sources: BTreeSet<String>,
}

/// Expands git rules to request rules. A preset within a preset is refused.
fn spelled_out<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<EgressRule>, D::Error> {
    let mut rules = BTreeSet::new();
    for item in Vec::<RuleItem>::deserialize(from)? {
        let spelled = item.rules().map_err(|name| {
            D::Error::custom(format!("@{name} is a preset, and a preset has rules alone"))
        });
        rules.extend(spelled?);
    }
    Ok(rules)
}

/// The error in the name of a preset's file (without `.toml`).
pub fn misnamed(name: &str) -> Option<PolicyError> {
    let problem = name.parse::<PresetName>().err()?;
    Some(PolicyError::FileName {
        kind: "preset",
        file: shown(&format!("{name}.toml")),
        problem,
    })
}

/// The existing presets: files of the node take precedence over built-in ones.
#[derive(Debug)]
pub(super) struct Presets<'a> {
    files: &'a BTreeMap<String, FileText>,
    /// The tool whose words an error uses.
    tool: Tool,
}

impl<'a> Presets<'a> {
    /// Ignores files whose names no preset can have; [`misnamed`] reports them.
    pub fn new(files: &'a BTreeMap<String, FileText>, tool: Tool) -> Self {
        Self { files, tool }
    }

    /// Reads one preset.
    pub fn get(&self, name: &PresetName, asked_by: &Origin) -> Result<Preset, PolicyError> {
        if let Some(found) = self.files.get(name.as_str()) {
            let source = PolicyText::Preset(name.clone());
            return file::parse(&source, file::text(&source, found)?);
        }
        match BUILTIN.get(name) {
            Some(preset) => Ok(preset.clone()),
            None => {
                // The node's own first: a company's preset is what its users mean.
                let (own, others): (Vec<_>, Vec<_>) =
                    self.names().into_iter().partition(|n| self.is_of_node(n));
                let known = own.into_iter().chain(others).map(|n| format!("@{n}"));
                let known: Vec<String> = known.collect();
                let asked = format!("@{name}");
                let near = nearest(&asked, known.iter().map(String::as_str));
                let near = near.filter(|_| index(name.as_str()).is_none());
                Err(PolicyError::NoSuchPreset {
                    asked_by: asked_by.clone(),
                    preset: name.clone(),
                    known: few(&known, 80),
                    how: near.map_or_else(
                        || how_to_define(name, self.tool),
                        |near| format!("Did you mean {near}?"),
                    ),
                })
            }
        }
    }

    /// All names.
    pub fn names(&self) -> BTreeSet<PresetName> {
        let files = self.files.keys().filter_map(|name| name.parse().ok());
        BUILTIN.keys().cloned().chain(files).collect()
    }

    /// Whether a file of the node defines it.
    pub fn is_of_node(&self, name: &PresetName) -> bool {
        self.files.contains_key(name.as_str())
    }
}

/// Package indexes by their usual names, with the preset that `policy presets --detect` creates for each.
const INDEXES: [(&str, &[&str]); 5] = [
    ("python", &["python", "pypi", "pip", "uv", "poetry"]),
    ("node", &["node", "npm", "npmjs", "yarn", "pnpm"]),
    ("rust", &["rust", "cargo", "crates", "crates-io"]),
    ("go", &["go", "golang", "goproxy"]),
    ("debian", &["debian", "apt", "ubuntu"]),
];

/// The preset of a package index by any of its names.
fn index(name: &str) -> Option<&'static str> {
    let of_name = INDEXES.iter().find(|(_, names)| names.contains(&name));
    of_name.map(|(preset, _)| *preset)
}

/// The preset whose index was probably meant: `pyhton`.
fn near_index(name: &str) -> Option<&'static str> {
    let names = INDEXES.iter().flat_map(|(_, names)| names.iter().copied());
    // `dev` is no slip of `uv`.
    let long = names.filter(|known| known.len() > 3 && name.len() > 3);
    index(nearest(name, long)?)
}

/// How to define a preset that does not exist, or do without.
fn how_to_define(name: &PresetName, tool: Tool) -> String {
    let name = name.as_str();
    let meant = index(name).or_else(|| near_index(name));
    let did = match index(name) {
        None => meant.map(|preset| format!("Did you mean @{preset}? ")),
        Some(_) => None,
    };
    match meant {
        Some(preset) => format!(
            "{}`agentbox policy presets --detect --write` writes @{preset} for the node, as root; or list hosts: {}",
            did.unwrap_or_default(),
            tool.adds(Field::NetworkAllow, &["HOST"])
        ),
        None => format!(
            "Define it in {name}.toml in the node's preset directory (/etc/agentbox/presets), as docs/policy.md shows"
        ),
    }
}

/// The built-in presets.
pub fn builtin() -> BTreeMap<PresetName, Preset> {
    let presets = table!("presets").read();
    presets.expect("a test reads the built-in presets")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::typed;
    use crate::rules::request::decide::RequestDecision;
    use crate::rules::{EgressRules, RuleTarget};

    #[test]
    fn the_built_in_presets_are_exact_and_described() {
        let all = builtin();
        for name in ["github", "anthropic", "openai", "google-ai"] {
            assert!(all.contains_key(&name.parse().unwrap()), "{name}");
        }
        for (name, preset) in all {
            assert!(!preset.rules.is_empty(), "{name}");
            assert!(preset.description.len() > 10, "{name}");
            let pages = preset.sources.iter();
            assert!(!preset.sources.is_empty(), "{name}");
            assert!(
                pages.clone().all(|page| page.starts_with("https://")),
                "{name}"
            );
            for rule in preset.rules.iter().filter_map(EgressRule::connection) {
                assert!(!rule.reach.is_private(), "{name}: {rule}");
                assert!(
                    matches!(rule.target, RuleTarget::Name(_) | RuleTarget::Below(_)),
                    "{name}: {rule}"
                );
            }
        }
    }

    /// A preset for reading changes nothing, and one for an API opens no host.
    #[test]
    fn request_presets_open_no_host_and_read_presets_write_nothing() {
        let all = builtin();
        let ends = |end: &str| -> Vec<_> {
            all.iter()
                .filter(|(name, _)| name.as_str().ends_with(end))
                .collect()
        };
        for (name, preset) in ends("-api").into_iter().chain(ends("-read")) {
            let whole = preset.rules.iter().find(|rule| rule.connection().is_some());
            assert_eq!(whole, None, "{name}");
        }
        assert!(ends("-read").len() >= 3 && ends("-api").len() >= 4);
        for (name, preset) in ends("-read") {
            for rule in preset.rules.iter().map(ToString::to_string) {
                let reads = rule.starts_with("GET ") || rule.starts_with("GET,HEAD ");
                let fetches = rule.starts_with("POST ") && rule.ends_with("/git-upload-pack");
                assert!(reads || fetches, "{name}: {rule}");
            }
        }
        let rules: EgressRules = EgressRules {
            allow: all[&"github-read".parse().unwrap()].rules.clone(),
            ..EgressRules::default()
        };
        for (request, expected) in [
            (
                "GET https://github.com/acme/app.git/info/refs?service=git-upload-pack",
                true,
            ),
            ("POST https://github.com/acme/app/git-upload-pack", true),
            ("POST https://github.com/acme/app/git-receive-pack", false),
            (
                "GET https://api.github.com/repos/acme/app/issues?page=2",
                true,
            ),
            ("POST https://api.github.com/gists", false),
            ("POST https://api.github.com/graphql", false),
            (
                "GET https://github.com/acme/app/releases/download/v1/app.tar.gz",
                true,
            ),
            (
                "POST https://uploads.github.com/repos/acme/app/releases/1/assets",
                false,
            ),
        ] {
            let asked = typed(request).unwrap();
            let decided = rules.decide_request(&asked.request);
            let allowed = matches!(decided, RequestDecision::Allow(_));
            assert_eq!(allowed, expected, "{request}");
        }
    }

    #[test]
    fn a_preset_has_only_rules() {
        let read = |rules: &str| {
            let text = format!("description = \"a test of it\"\nrules = [{rules}]");
            toml::from_str::<Preset>(&text)
        };
        assert_eq!(read("\"git:read a.test/b/c\"").unwrap().rules.len(), 4);
        let error = read("\"@github\"").unwrap_err().to_string();
        assert!(error.contains("a preset has rules alone"), "{error}");
    }

    #[test]
    fn the_nodes_presets_come_first() {
        let files = BTreeMap::from([(
            "github".to_owned(),
            FileText::Readable("description = \"ours\"\nrules = [\"git.example.com\"]".to_owned()),
        )]);
        let presets = Presets::new(&files, Tool::Wrap);
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

    #[test]
    fn a_slip_in_the_name_of_an_index_is_noticed() {
        let files = BTreeMap::new();
        let presets = Presets::new(&files, Tool::Wrap);
        let error = |name: &str| {
            let got = presets.get(&name.parse().unwrap(), &Origin::Node);
            got.unwrap_err().to_string()
        };
        for (typed, meant) in [
            ("pyhton", "python"),
            ("nodee", "node"),
            ("rsut", "rust"),
            ("pypy", "python"),
            ("crate", "rust"),
        ] {
            let said = error(typed);
            let words = format!("Did you mean @{meant}? `agentbox policy presets --detect");
            assert!(said.contains(&words) && said.len() < 300, "{said}");
        }
        for other in ["mirror", "dev", "gi"] {
            assert!(!error(other).contains("--detect"), "{other}");
        }
        assert!(error("githbu").ends_with("Did you mean @github?"));
    }

    /// Users need the package indexes first of all.
    #[test]
    fn an_undefined_index_preset_names_the_command_that_defines_it() {
        let files = BTreeMap::new();
        let lists = [
            (Tool::Wrap, ": --allow HOST"),
            (
                Tool::Annotating,
                ": --annotation dev.agentbox.network.allow=+,HOST",
            ),
        ];
        let all = INDEXES
            .into_iter()
            .flat_map(|index| lists.map(|list| (index, list)));
        for ((preset, names), (tool, list)) in all {
            let presets = Presets::new(&files, tool);
            for name in names {
                let got = presets.get(&name.parse().unwrap(), &Origin::Node);
                let error = got.unwrap_err().to_string();
                assert!(error.contains(&format!("no preset @{name}")), "{error}");
                let how = format!(
                    "`agentbox policy presets --detect --write` writes @{preset} for the node, as root"
                );
                assert!(error.contains(&how), "{error}");
                // Former fault: Docker's user was sent to a file of `wrap`.
                assert!(error.ends_with(list), "{error}");
                assert!(error.len() < 300, "{error}");
            }
        }
    }
}
