//! The policies and presets of a node.

use std::collections::BTreeSet;

use super::preset::Preset;
use super::resolve::Resolver;
use super::{Field, Origin, Policy, PolicyError, PolicyName, Sources};
use crate::rules::{EgressRule, PresetName, RuleItem};

/// A policy that the caller can name.
#[derive(Debug)]
pub struct CatalogueEntry {
    /// Its name.
    pub name: PolicyName,
    /// Who defines it.
    pub origin: Origin,
    /// Its file's description, or the reason why this node cannot use it.
    pub description: Result<Option<String>, PolicyError>,
}

/// The policies of a node, the built-in ones first, tightest first.
pub fn policies(sources: &Sources<'_>) -> Result<Vec<CatalogueEntry>, PolicyError> {
    let resolver = Resolver::new(sources);
    let names = resolver.library.names();
    Ok(names
        .into_iter()
        .filter_map(|name| name.parse::<PolicyName>().ok())
        .map(|name| CatalogueEntry {
            origin: resolver.library.origin(&name),
            description: resolver
                .load(&name, &Origin::Flag)
                .map(|loaded| loaded.description),
            name,
        })
        .collect())
}

/// One policy as its files define it, presets expanded, before any ceiling.
pub fn policy(sources: &Sources<'_>, name: &PolicyName) -> Result<Policy, PolicyError> {
    let loaded = Resolver::new(sources).load(name, &Origin::Flag)?;
    Ok(loaded.policy)
}

/// The rules of a list in the syntax of annotations, presets expanded.
pub fn rules(sources: &Sources<'_>, text: &str) -> Result<BTreeSet<EgressRule>, PolicyError> {
    let resolver = Resolver::new(sources);
    let key = super::annotation_key(Field::NetworkAllow);
    let mut rules = BTreeSet::new();
    let items = super::annotation_list::<RuleItem>(text).map_err(|problem| {
        PolicyError::AnnotationValue {
            key: key.clone(),
            problem,
        }
    })?;
    for item in items {
        match item.rules() {
            Ok(more) => rules.extend(more),
            Err(name) => {
                let preset = resolver.library.presets().get(&name, &Origin::Update)?;
                rules.extend(preset.rules);
            }
        }
    }
    Ok(rules)
}

/// A preset that policies can name.
#[derive(Debug)]
pub struct ListedPreset {
    /// Its name.
    pub name: PresetName,
    /// Whether a file of the node defines it.
    pub of_node: bool,
    /// The preset, or the reason why it cannot be used.
    pub preset: Result<Preset, PolicyError>,
}

/// The presets of a node.
pub fn presets(sources: &Sources<'_>) -> Result<Vec<ListedPreset>, PolicyError> {
    let resolver = Resolver::new(sources);
    let presets = resolver.library.presets();
    Ok(presets
        .names()
        .into_iter()
        .map(|name| ListedPreset {
            of_node: presets.is_of_node(&name),
            preset: presets.get(&name, &Origin::Node),
            name,
        })
        .collect())
}
