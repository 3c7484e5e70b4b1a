//! What the user of `wrap` requests besides a policy: settings and options, as texts.
//!
//! The user owns the account, and no engine or image is involved. So options may loosen the policy without permission;
//! only the ceilings limit them.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeZone};
use serde::{Deserialize, Serialize};

use super::annotation::endless;
use super::conflict::Conflict;
use super::fields::Fields;
use super::list::closes_quotes;
use super::option_error::OptionError;
use super::temporary;
use super::{
    Field, NetworkMode, NodeSecret, OnUnknown, Origin, Policy, PolicyChoice, PolicyError,
    PolicyName, Switch, Upstream,
};
use crate::text::{ValueError, distance, nearest, shown};

/// The longest value in bytes. No real value is near this size.
const LONGEST: usize = 64 << 10;

/// All options of `wrap` that change the policy. Empty for a container of an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct WrapOptions {
    /// The named policy.
    pub policy: Option<PolicyOption>,
    /// The settings file that names the policy; `None` if the command line does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_of: Option<String>,
    /// The fields of each settings file, lowest priority first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Vec<FieldOption>>,
    /// The fields of the user's answers to `--ask` in earlier runs. Below all settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<FieldOption>,
    /// Options as the user typed them.
    pub options: Vec<FieldOption>,
    /// The user's own secrets. They are no request: they loosen nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<NodeSecret>,
    /// The proxy of the user's environment. It is no request either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Upstream>,
}

/// The policy that `wrap --policy` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum PolicyOption {
    /// A policy of the node, or a built-in one.
    Named(String),
    /// A policy file of the user.
    File {
        /// Its path.
        path: String,
        /// Its text.
        text: String,
    },
}

/// An option that sets a field, or adds to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FieldOption {
    /// The option as typed, such as `--allow`.
    pub option: String,
    /// The field.
    pub field: Field,
    /// The value, in the syntax of annotations.
    pub value: String,
    /// Whether its items are added to the existing list.
    pub adds: bool,
    /// The settings file that contains it; `None` if it was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl FieldOption {
    /// An option that adds items to a list.
    pub fn adding(option: &str, field: Field, items: &str) -> Self {
        Self {
            option: option.to_owned(),
            field,
            value: items.to_owned(),
            adds: true,
            file: None,
        }
    }

    /// Options that allow rules: those with an end are in a field of their own.
    pub fn allowing(option: &str, items: &str) -> Vec<Self> {
        let (lasting, temporary) = temporary::parted(items);
        let lasting = lasting.map(|items| Self::adding(option, Field::NetworkAllow, &items));
        let of_field = |items: String| Self::adding(option, Field::NetworkTemporary, &items);
        lasting.into_iter().chain(temporary.map(of_field)).collect()
    }

    /// Options of `--allow`, typed at this time: `until HH:MM` is the next such time.
    pub fn typed_allow<Z: TimeZone>(items: &str, now: &DateTime<Z>) -> Vec<Self> {
        Self::allowing("--allow", &temporary::dated(items, now))
    }

    /// An option that sets a field.
    pub fn setting(option: &str, field: Field, value: &str) -> Self {
        Self {
            adds: false,
            ..Self::adding(option, field, value)
        }
    }

    /// Parses the value of `--set FIELD=VALUE`.
    pub fn set(text: &str) -> Result<Self, OptionError> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| OptionError::SetGrammar { text: shown(text) })?;
        let settable = || Field::ALL.iter().copied().filter(|f| f.has_annotation());
        let Some(field) = settable().find(|field| field.as_str() == name) else {
            return Err(match name.parse() {
                Ok(field) => OptionError::SetByFilesAlone { field },
                Err(_) => OptionError::SetField {
                    name: shown(name),
                    suggestion: closest_field(name, settable()).map(Field::as_str),
                },
            });
        };
        match field {
            Field::FilesystemWrite => Err(OptionError::SetWrite),
            _ => Ok(Self::setting(&format!("--set {field}"), field, value)),
        }
    }

    /// The same, from a settings file, under the file's own name for it.
    pub fn in_file(self, setting: &str, file: &str) -> Self {
        Self {
            option: setting.to_owned(),
            file: Some(file.to_owned()),
            ..self
        }
    }

    fn origin(&self) -> Origin {
        match &self.file {
            None => Origin::Option(self.option.clone()),
            Some(file) => Origin::Setting(format!("{} of {file}", self.option)),
        }
    }
}

/// The field that was probably meant. `allow` or `hosts` alone is the last part of a field's name.
fn closest_field(name: &str, fields: impl Iterator<Item = Field> + Clone) -> Option<Field> {
    let last = |text: &str| text.rsplit('.').next().unwrap_or(text).to_owned();
    let near = fields.clone().filter(|f| last(f.as_str()) == last(name));
    let near = near.min_by_key(|field| distance(field.as_str(), name));
    near.or_else(|| {
        let word = nearest(name, fields.clone().map(Field::as_str))?;
        fields.clone().find(|field| field.as_str() == word)
    })
}

/// One author's fields, to be put over others.
pub(super) struct Layer {
    /// The fields.
    pub fields: Fields,
    /// The origin of each.
    pub origins: BTreeMap<Field, Origin>,
}

/// The policy file that `wrap --policy` names.
pub(super) struct PolicyPath<'a> {
    /// The policy's name, which is the file's.
    pub name: PolicyName,
    /// Its path.
    pub path: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl WrapOptions {
    /// For a container that does not come from `wrap`.
    pub const NOTHING: &'static Self = &Self {
        policy: None,
        policy_of: None,
        settings: Vec::new(),
        answers: Vec::new(),
        options: Vec::new(),
        secrets: Vec::new(),
        proxy: None,
    };

    /// Whether there are no options.
    pub fn is_empty(&self) -> bool {
        let Self {
            policy,
            policy_of,
            settings,
            answers,
            options,
            secrets: _,
            proxy: _,
        } = self;
        let lists = [answers, options];
        policy.is_none()
            && policy_of.is_none()
            && settings.is_empty()
            && lists.into_iter().all(Vec::is_empty)
    }

    /// The user's own secrets that a policy lets be used.
    pub(super) fn own_secrets(&self, policy: &Policy) -> &[NodeSecret] {
        match policy.network.user_secrets {
            Switch::On => &self.secrets,
            Switch::Off => &[],
        }
    }

    /// The policy that the user named, if by name.
    pub(super) fn choice(&self) -> Result<Option<PolicyChoice>, PolicyError> {
        match &self.policy {
            Some(PolicyOption::Named(name)) => {
                let parsed = name.parse();
                parsed
                    .map(Some)
                    .map_err(|problem| PolicyError::Flag { problem })
            }
            Some(PolicyOption::File { .. }) | None => Ok(None),
        }
    }

    /// The policy that the user named, if by file.
    pub(super) fn file(&self) -> Result<Option<PolicyPath<'_>>, PolicyError> {
        let Some(PolicyOption::File { path, text }) = &self.policy else {
            return Ok(None);
        };
        let file = path.rsplit('/').next().unwrap_or(path);
        let stem = file.strip_suffix(".toml").unwrap_or(file);
        let name = stem.parse().map_err(|problem| PolicyError::FileName {
            kind: "policy",
            file: shown(path),
            problem,
        })?;
        Ok(Some(PolicyPath { name, path, text }))
    }

    /// The origin of the policy's name.
    pub(super) fn policy_by(&self) -> Origin {
        match &self.policy_of {
            Some(file) => Origin::Setting(format!("policy of {file}")),
            None => Origin::Flag,
        }
    }

    /// Whether the command line asks the user about hosts that no rule names.
    fn asks(&self) -> bool {
        let of_field = self.options.iter();
        let mut of_field = of_field.filter(|option| option.field == Field::NetworkOnUnknown);
        let last = of_field.next_back().map(|option| option.value.parse());
        last == Some(Ok(OnUnknown::Ask))
    }

    /// The requested fields, lowest priority first. Earlier answers do not give a network to a policy that has none: who
    /// chooses such a policy names no host. With `--ask` the user could give the same answers again, whatever a setting says.
    pub(super) fn layers(&self, base: &Policy) -> Result<Vec<Layer>, PolicyError> {
        let (below, above) = match base.network.mode {
            _ if self.asks() => (None, Some(&self.answers)),
            NetworkMode::None => (None, None),
            NetworkMode::Local | NetworkMode::Allowlist => (Some(&self.answers), None),
        };
        let all = below.into_iter().chain(&self.settings);
        let all = all.chain(above).chain([&self.options]);
        let said = all.filter(|options| !options.is_empty());
        said.map(|all| Ok(options(all)?)).collect()
    }
}

/// Values of a field that are joined: a quote that begins in one must not end in another, with all between them.
fn check_quotes<'a>(all: impl Iterator<Item = &'a FieldOption>) -> Result<(), OptionError> {
    let all: Vec<&FieldOption> = all.collect();
    let open = all.iter().find(|option| !closes_quotes(&option.value));
    match open.filter(|_| all.len() > 1) {
        None => Ok(()),
        Some(option) => Err(OptionError::OptionValue {
            option: option.origin(),
            problem: ValueError::grammar(&option.value, "a list in which each quote ends"),
        }),
    }
}

/// The fields of one command line or file. The last option that sets a field counts; all that add to it count.
fn options(all: &[FieldOption]) -> Result<Layer, OptionError> {
    let mut layer = Layer {
        fields: Fields::default(),
        origins: BTreeMap::new(),
    };
    let fields: BTreeSet<Field> = all.iter().map(|option| option.field).collect();
    for field in fields {
        let of_field = || all.iter().filter(|option| option.field == field);
        let set = of_field().rfind(|option| !option.adds);
        check_quotes(of_field())?;
        let mut value = set.map(|option| option.value.clone());
        for option in of_field().filter(|option| option.adds) {
            value = Some(match value {
                None => format!("+,{}", option.value),
                Some(list) if list.trim().is_empty() => option.value.clone(),
                Some(list) => format!("{list},{}", option.value),
            });
        }
        let last = of_field().find(|option| option.adds).or(set);
        let (Some(value), Some(last)) = (value, last) else {
            continue;
        };
        if value.len() > LONGEST {
            return Err(OptionError::OptionTooLong {
                option: last.origin(),
                length: value.len(),
                limit: LONGEST,
            });
        }
        let taken = layer.fields.take(field, &value);
        taken.map_err(|problem| OptionError::OptionValue {
            option: last.origin(),
            problem: endless(field, &value, problem),
        })?;
        layer.origins.insert(field, last.origin());
    }
    let implied = layer.fields.settle();
    let implied = implied.map_err(|conflict| disagreement(conflict, &layer.origins))?;
    layer.mode_follows(implied);
    Ok(layer)
}

impl Layer {
    /// Records the origin of the implied network mode.
    fn mode_follows(&mut self, implied_by: Option<Field>) {
        if let Some(origin) = implied_by.and_then(|field| self.origins.get(&field)) {
            self.origins.insert(Field::NetworkMode, origin.clone());
        }
    }
}

/// The error for two options that contradict each other.
fn disagreement(conflict: Conflict, origins: &BTreeMap<Field, Origin>) -> OptionError {
    let (first, second) = conflict.fields();
    let named = |field| origins.get(&field).cloned().unwrap_or(Origin::Default);
    OptionError::OptionsDisagree {
        first: named(first),
        second: named(second),
        conflict,
    }
}
