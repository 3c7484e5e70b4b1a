//! Policy files: TOML text -> [`Policy`], with their bases.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::fields::{Fields, FieldsError, Origins};
use super::file_text::FileText;
use super::policy_text::PolicyText;
use super::preset::Presets;
use super::table::PolicyFile;
use super::{BUILTIN, Origin, Policy, PolicyError, PolicyName, builtin};
use crate::text::{ValueError, few, nearest, printable, shown, shown_within};

/// The longest file in bytes. No real file is near this size.
const LONGEST: usize = 64 << 10;

/// The most bases in a row. More would hide what a policy says.
const DEEPEST: usize = 8;

/// A policy's description is one line of `explain`, in characters.
const DESCRIPTION: usize = 200;

/// What a policy is for, in one printable line.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Description(String);

impl TryFrom<String> for Description {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        if text.len() <= DESCRIPTION && !text.chars().any(char::is_control) {
            Ok(Self(text))
        } else {
            Err(ValueError::grammar(
                &text,
                "a description: one line of at most 200 bytes",
            ))
        }
    }
}

/// A policy as its files define it.
#[derive(Debug, Clone)]
pub(super) struct LoadedPolicy {
    pub policy: Policy,
    pub description: Option<String>,
    pub origins: Origins,
}

/// The error in the name of a policy's file (without `.toml`), which would otherwise have no effect unnoticed.
pub fn misnamed(name: &str) -> Option<PolicyError> {
    let problem = name.parse::<PolicyName>().err()?;
    Some(PolicyError::FileName {
        kind: "policy",
        file: shown(&format!("{name}.toml")),
        problem,
    })
}

/// The existing policies: files of the node take precedence over built-in ones.
pub(super) struct Library<'a> {
    files: &'a BTreeMap<String, FileText>,
    presets: Presets<'a>,
}

impl<'a> Library<'a> {
    /// Ignores files whose names no policy can have; [`misnamed`] reports them.
    pub fn new(files: &'a BTreeMap<String, FileText>, presets: Presets<'a>) -> Self {
        Self { files, presets }
    }

    /// Reads one policy and its bases, and no others.
    pub fn load(&self, name: &PolicyName, asked_by: &Origin) -> Result<LoadedPolicy, PolicyError> {
        let (source, text) = self.find(name, asked_by)?;
        self.load_text(name, source, text)
    }

    /// Reads a policy file of the user. Its base may be any policy of the node, also one of the same name.
    pub fn load_own(
        &self,
        name: &PolicyName,
        path: &str,
        text: &str,
    ) -> Result<LoadedPolicy, PolicyError> {
        self.load_text(name, PolicyText::Own(path.to_owned()), Ok(text))
    }

    fn load_text<'t>(
        &'t self,
        name: &PolicyName,
        mut source: PolicyText,
        mut text: Result<&'t str, PolicyError>,
    ) -> Result<LoadedPolicy, PolicyError> {
        let mut chain = match source {
            PolicyText::Own(_) => Vec::new(),
            _ => vec![name.clone()],
        };
        let mut layers = Vec::new();
        let top = source.clone();
        loop {
            let builtin = match &source {
                PolicyText::Builtin(name) => builtin::policy(name.as_str()),
                _ => None,
            };
            let mut file: PolicyFile = match builtin {
                Some(builtin) => {
                    let file = builtin.table.read();
                    file.expect("a test reads the built-in policies")
                }
                None => parse(&source, text?)?,
            };
            let base = file.base.take();
            layers.push((source.clone(), file));
            let Some(base) = base else { break };
            let asked_by = source.origin();
            let seen = chain.contains(&base);
            // A file that replaces a built-in policy may build on it.
            let replaced = match &source {
                PolicyText::File(own) if *own == base => builtin::text(base.as_str()),
                _ => None,
            };
            chain.push(base.clone());
            (source, text) = match replaced {
                Some(text) => (PolicyText::Builtin(base), Ok(text)),
                None if seen => return Err(PolicyError::BaseCycle { chain }),
                None => self.find(&base, &asked_by)?,
            };
            if chain.len() > DEEPEST + 1 {
                return Err(PolicyError::BaseDepth {
                    chain,
                    limit: DEEPEST,
                });
            }
        }
        self.assemble(name, top, layers)
    }

    /// Builds the policy of these fields, with the presets that they name.
    pub fn complete(
        &self,
        fields: Fields,
        name: PolicyName,
        origins: &Origins,
    ) -> Result<Policy, FieldsError> {
        fields.complete(name, &|preset, field| {
            let asked_by = origins.get(&field).cloned().unwrap_or(Origin::Default);
            Ok(self.presets.get(preset, &asked_by)?.rules)
        })
    }

    /// All names: the built-in ones, tightest first, then the node's.
    pub fn names(&self) -> Vec<&'a str> {
        let files = self.files.keys().map(String::as_str);
        BUILTIN
            .iter()
            .map(|builtin| builtin.name)
            .chain(files.filter(|file| !builtin::is_builtin(file)))
            .collect()
    }

    /// The presets that policies may name.
    pub fn presets(&self) -> &Presets<'a> {
        &self.presets
    }

    /// The origin of this policy.
    pub fn origin(&self, name: &PolicyName) -> Origin {
        match self.files.contains_key(name.as_str()) {
            true => Origin::File(name.clone()),
            false => Origin::Builtin(name.clone()),
        }
    }

    /// The text of a policy, or an error if there is none of this name. A file that cannot be read is an error for those who
    /// need its text.
    pub fn find(
        &self,
        name: &PolicyName,
        asked_by: &Origin,
    ) -> Result<(PolicyText, Result<&'a str, PolicyError>), PolicyError> {
        if let Some(file) = self.files.get(name.as_str()) {
            let source = PolicyText::File(name.clone());
            let text = text(&source, file);
            return Ok((source, text));
        }
        if let Some(text) = builtin::text(name.as_str()) {
            return Ok((PolicyText::Builtin(name.clone()), Ok(text)));
        }
        let known = self.names();
        let make = match asked_by {
            Origin::NodeEntry(_) => format!("; or make {name}.toml in /etc/agentbox/policies"),
            _ => String::new(),
        };
        Err(PolicyError::NoSuchPolicy {
            name: name.clone(),
            asked_by: asked_by.clone(),
            suggestion: nearest(name.as_str(), known.iter().copied())
                .and_then(|near| near.parse().ok()),
            known: few(known, 90) + &make,
        })
    }
}

impl Library<'_> {
    /// Puts the files over each other, the last base lowest.
    fn assemble(
        &self,
        name: &PolicyName,
        top: PolicyText,
        layers: Vec<(PolicyText, PolicyFile)>,
    ) -> Result<LoadedPolicy, PolicyError> {
        let mut fields = Fields::default();
        let mut origins = Origins::new();
        let mut described = None;
        for (source, mut file) in layers.into_iter().rev() {
            // Not a base's description: it describes another policy.
            described = (file.description.take()).map(|Description(text)| text);
            let mut over = file.into_fields();
            over.settle()
                .map_err(|conflict| PolicyError::FileDisagrees {
                    file: source.clone(),
                    conflict,
                })?;
            fields.overlay(over, &mut origins, |_| source.origin());
        }
        let policy =
            self.complete(fields, name.clone(), &origins)
                .map_err(|problem| match problem {
                    FieldsError::Missing(field) => PolicyError::FieldMissing { file: top, field },
                    FieldsError::Preset(error) => error,
                })?;
        Ok(LoadedPolicy {
            policy,
            description: described,
            origins,
        })
    }
}

/// The text of a file, which its caller needs.
pub(super) fn text<'a>(source: &PolicyText, file: &'a FileText) -> Result<&'a str, PolicyError> {
    match file {
        FileText::Readable(text) => Ok(text),
        FileText::Unreadable(why) => Err(PolicyError::FileUnreadable {
            file: source.clone(),
            why: printable(why),
        }),
    }
}

/// Parses TOML. An error names the line.
pub(super) fn parse<T: DeserializeOwned>(
    source: &PolicyText,
    text: &str,
) -> Result<T, PolicyError> {
    if text.len() > LONGEST {
        return Err(PolicyError::FileTooLong {
            file: source.clone(),
            length: text.len(),
            limit: LONGEST,
        });
    }
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count();
        PolicyError::File {
            file: source.clone(),
            line: line + 1,
            text: shown_within(text.lines().nth(line).unwrap_or_default().trim(), 40),
            problem: printable(error.message()),
        }
    })
}
