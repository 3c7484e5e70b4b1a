//! Where keys of known providers belong: policies/keys.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::VariableName;
use super::secret::{BasicUser, SecretHeader};
use crate::data::{BuiltinTable, table};
use crate::rules::git::several;
use crate::rules::request::RequestRule;
use crate::text::{few, nearest};

/// The providers: reviewed data.
const BUILTIN: BuiltinTable = table!("keys");

/// What a secret of a provider has unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KeyPreset {
    /// The requests that get it.
    #[serde(deserialize_with = "several")]
    pub requests: BTreeSet<RequestRule>,
    /// The header field.
    pub header: Option<SecretHeader>,
    /// Or the user whose password it is.
    pub basic: Option<BasicUser>,
    /// The variable in which the provider's programs look for it.
    pub env: Option<VariableName>,
    /// Pages of the provider that say so.
    sources: BTreeSet<String>,
}

impl KeyPreset {
    /// The preset of this name, or an error with the known ones.
    pub fn of(name: &str) -> Result<&'static Self, String> {
        let all = all()?;
        all.get(name).ok_or_else(|| {
            let known: Vec<String> = all.keys().cloned().collect();
            let near = nearest(name, known.iter().map(String::as_str));
            let how = near.map_or_else(
                || format!("known are {}", few(&known, 80)),
                |near| format!("did you mean {near}?"),
            );
            format!("no preset for keys has the name {name:?}: {how}")
        })
    }
}

/// Read when a secret first names one.
fn all() -> Result<&'static BTreeMap<String, KeyPreset>, String> {
    static ALL: LazyLock<Result<BTreeMap<String, KeyPreset>, String>> =
        LazyLock::new(|| BUILTIN.read().map_err(|error| error.to_string()));
    ALL.as_ref()
        .map_err(|error| format!("policies/keys.toml: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::preset::Presets;
    use crate::rules::EgressRule;

    #[test]
    fn each_has_a_place_and_the_requests_of_its_providers_preset() {
        let files = BTreeMap::new();
        let presets = Presets::new(&files, crate::policy::Tool::Wrap);
        for (name, preset) in all().unwrap() {
            assert!(preset.header.is_some() != preset.basic.is_some(), "{name}");
            assert!(!preset.requests.is_empty(), "{name}");
            let api = format!("{name}-api").parse().unwrap();
            let Ok(api) = presets.get(&api, &crate::policy::Origin::Default) else {
                assert!(name.starts_with("github"), "{name} has no preset of hosts");
                continue;
            };
            let same = preset.requests.iter().cloned().map(EgressRule::Request);
            assert_eq!(api.rules, same.collect(), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_helps() {
        let near = KeyPreset::of("antropic").unwrap_err();
        assert!(near.contains("did you mean anthropic?"), "{near}");
        let far = KeyPreset::of("x").unwrap_err();
        assert!(far.contains("known are anthropic"), "{far}");
    }
}
