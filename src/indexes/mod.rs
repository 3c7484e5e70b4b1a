//! The hosts of this node's package managers: from their configuration, or their own defaults.
//!
//! No host is known here. Each manager is queried for its index, and each index is followed one step to the hosts of
//! its files. Gaps are reported. People read the result before a policy uses it.
//!
//! ```text
//! pip, npm, cargo, go, apt --tool--> words --parse--> hosts, gaps --Learned::to_toml--> python.toml, ...
//! ```

mod managers;
mod parse;
mod tool;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

pub use tool::variables;

use crate::rules::{NetworkRule, RuleTarget};

/// The rules from one package manager's configuration.
#[derive(Debug)]
pub struct ManagerRules {
    /// The preset that it makes.
    pub preset: &'static str,
    /// The package manager.
    pub manager: &'static str,
    /// The rules, with the purpose of each.
    pub rules: BTreeMap<NetworkRule, &'static str>,
    /// What could not be learned, one sentence each.
    pub gaps: Vec<String>,
}

/// Queries the node's package managers, from a directory below `home` that is removed afterwards.
pub fn detect(home: &Path) -> io::Result<Vec<ManagerRules>> {
    Ok(managers::all(&tool::ToolRunner::new(home)?, home))
}

impl ManagerRules {
    fn new(preset: &'static str, manager: &'static str) -> Self {
        Self {
            preset,
            manager,
            rules: BTreeMap::new(),
            gaps: Vec::new(),
        }
    }

    /// Adds the host of a URL, or notes that it has none.
    fn url(&mut self, url: &str, purpose: &'static str) {
        match parse::host(url) {
            Some(rule) => self.rule(rule, purpose),
            None => self.gap(&format!(
                "{purpose} is no http or https URL: nothing to reach, or nothing that is understood"
            )),
        }
    }

    fn rule(&mut self, rule: NetworkRule, purpose: &'static str) {
        self.rules.entry(rule).or_insert(purpose);
    }

    fn has(&self, target: &RuleTarget) -> bool {
        self.rules.keys().any(|rule| rule.target == *target)
    }

    fn gap(&mut self, gap: &str) {
        if !self.gaps.iter().any(|known| known == gap) {
            self.gaps.push(gap.to_owned());
        }
    }

    /// The preset as a file.
    pub fn to_toml(&self) -> String {
        let Self {
            preset,
            manager,
            rules,
            gaps,
        } = self;
        let gaps: String = gaps
            .iter()
            .map(|gap| format!("# Not learned: {gap}.\n"))
            .collect();
        let rules: String = rules
            .iter()
            .map(|(rule, purpose)| format!("    \"{rule}\", # {purpose}\n"))
            .collect();
        format!(
            "# What {manager} said on this node: agentbox policy presets --detect.\n\
             # Read it before a policy names @{preset}.\n{gaps}\
             description = \"what {manager} fetches packages from on this node\"\nrules = [\n{rules}]\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::preset::Preset;

    #[test]
    fn the_file_is_a_preset() {
        let mut learned = ManagerRules::new("python", "pip");
        learned.url("https://user:secret@index.test/simple", "the index");
        learned.url("http://[2001:db8::1]/", "the files");
        learned.url("file:///srv/wheels", "the other index");
        let text = learned.to_toml();
        let preset: Preset = toml::from_str(&text).unwrap();
        let rules: Vec<String> = preset.rules.iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["index.test", "[2001:db8::1]:80"]);
        assert!(
            text.contains("# Not learned: the other index is no http"),
            "{text}"
        );
        assert!(!text.contains("secret"), "{text}");
    }
}
