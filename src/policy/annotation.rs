//! The requests in a container's annotations.
//!
//! Keys are `dev.agentbox.` and a field. A misspelt key of ours would mean a wall that is silently missing, so it is an
//! error. All other keys belong to other programs. Only keys are checked this way: a container or an image may well be
//! called agentbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::conflict::Conflict;
use super::fields::Fields;
use super::list::split;
use super::{Access, Field, GuestPath, PolicyError, PolicyName, Switch, UNCONFINED};
use crate::engines::annotation::may_be_of_the_image;
use crate::rules::RuleItem;
use crate::text::{ValueError, distance, nearest, shown};

/// The annotation that names a policy.
pub const POLICY_KEY: &str = "dev.agentbox.policy";

/// The annotation that says which mount is the workspace.
pub const WORKSPACE_KEY: &str = "dev.agentbox.workspace";

/// The prefix of all our keys.
pub const PREFIX: &str = "dev.agentbox.";

/// A key with this word in it must be one of ours.
const OURS: &str = "agentbox";

/// The longest value in bytes. No real value is near this size.
const LONGEST: usize = 64 << 10;

/// The requests in one container's annotations.
#[derive(Debug, Default)]
pub(super) struct AnnotationRequest {
    pub policy: Option<PolicyName>,
    pub workspace: Option<GuestPath>,
    pub fields: Fields,
    /// A key that sets a field of a policy, if the annotations name no policy.
    pub change: Option<String>,
    /// The field that implies the network's mode, if no annotation names the mode.
    pub mode_implied_by: Option<Field>,
}

/// A key of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnnotationKey {
    Policy,
    Workspace,
    Field(Field),
}

impl AnnotationKey {
    fn all() -> impl Iterator<Item = Self> {
        [Self::Policy, Self::Workspace]
            .into_iter()
            .chain(annotated().map(Self::Field))
    }

    fn find(key: &str) -> Option<Self> {
        match key {
            POLICY_KEY => Some(Self::Policy),
            WORKSPACE_KEY => Some(Self::Workspace),
            _ => {
                let field = key.strip_prefix(PREFIX)?;
                annotated()
                    .find(|ours| ours.as_str() == field)
                    .map(Self::Field)
            }
        }
    }
}

impl fmt::Display for AnnotationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str(POLICY_KEY),
            Self::Workspace => f.write_str(WORKSPACE_KEY),
            Self::Field(field) => write!(f, "{PREFIX}{field}"),
        }
    }
}

/// The fields that annotations can set.
fn annotated() -> impl Iterator<Item = Field> {
    (Field::ALL.iter().copied()).filter(|field| field.has_annotation())
}

/// What the engine's store tells of the image's own annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageAnnotations {
    /// Nothing: the engine's marks decide.
    #[default]
    Unknown,
    /// Its manifests have none of ours, so that the caller wrote those of the container.
    NoneOfOurs,
}

/// Who may have written a container's annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Authors {
    /// The caller of the engine.
    Caller,
    /// Perhaps an image: podman and CRI-O merge the annotations of the image's manifest with the caller's.
    PerhapsImage,
}

impl Authors {
    /// By the engine's marks, and by its store.
    pub fn of(annotations: &BTreeMap<String, String>, image: ImageAnnotations) -> Self {
        match (may_be_of_the_image(annotations), image) {
            (true, ImageAnnotations::Unknown) => Self::PerhapsImage,
            (true, ImageAnnotations::NoneOfOurs) | (false, _) => Self::Caller,
        }
    }
}

/// The annotation of a field.
pub fn key(field: Field) -> String {
    AnnotationKey::Field(field).to_string()
}

impl AnnotationRequest {
    /// The mounts that it lists in `filesystem.write`, without those of the policy below a `+`.
    pub fn writes(&self) -> BTreeSet<GuestPath> {
        let list = self.fields.filesystem.write.as_ref();
        list.map(|list| list.items.clone()).unwrap_or_default()
    }

    /// Without the field that tells the caller something, where an image may have turned it off.
    pub fn written_by(mut self, authors: Authors) -> Self {
        let notice = &mut self.fields.report.notice;
        if authors == Authors::PerhapsImage && *notice == Some(Switch::Off) {
            *notice = None;
        }
        self
    }
}

/// Reads all annotations of a container.
pub(super) fn parse(
    annotations: &BTreeMap<String, String>,
) -> Result<AnnotationRequest, PolicyError> {
    let mut request = AnnotationRequest::default();
    for (name, value) in annotations {
        if let Some(key) = AnnotationKey::find(name) {
            request.take(key, value)?;
        } else if reads_as_ours(name) || lacks_the_prefix(name, annotations) {
            return Err(unknown(name));
        }
    }
    request.settle()?;
    Ok(request)
}

impl AnnotationRequest {
    fn take(&mut self, key: AnnotationKey, value: &str) -> Result<(), PolicyError> {
        let name = key.to_string();
        if value.len() > LONGEST {
            return Err(PolicyError::AnnotationTooLong {
                key: name,
                length: value.len(),
                limit: LONGEST,
            });
        }
        if key == AnnotationKey::Policy && value == UNCONFINED {
            return Err(PolicyError::AnnotationUnconfined { key: name });
        }
        let taken = match key {
            AnnotationKey::Policy => set(&mut self.policy, value),
            AnnotationKey::Workspace => set(&mut self.workspace, value),
            AnnotationKey::Field(field) => {
                let taken = self.fields.take(field, value);
                taken.map_err(|problem| endless(field, value, problem))
            }
        };
        if key != AnnotationKey::Policy {
            self.change.get_or_insert_with(|| name.clone());
        }
        taken.map_err(|problem| PolicyError::AnnotationValue { key: name, problem })
    }

    /// Refuses contradictory fields, and completes the others.
    fn settle(&mut self) -> Result<(), PolicyError> {
        self.mode_implied_by = self.fields.settle().map_err(disagreement)?;
        let filesystem = &self.fields.filesystem;
        if self.workspace.is_some() && filesystem.workspace == Some(Access::None) {
            let workspace = AnnotationKey::Field(Field::FilesystemWorkspace);
            return Err(disagree(
                AnnotationKey::Workspace,
                workspace,
                Conflict::NoWorkspace,
            ));
        }
        let write = filesystem.write.as_ref();
        let listed = (self.workspace.as_ref())
            .zip(write)
            .is_some_and(|(w, list)| list.items.contains(w));
        if listed {
            let write = AnnotationKey::Field(Field::FilesystemWrite);
            return Err(disagree(
                AnnotationKey::Workspace,
                write,
                Conflict::WorkspaceInWrite,
            ));
        }
        Ok(())
    }
}

/// The error for the annotations of two conflicting fields.
fn disagreement(conflict: Conflict) -> PolicyError {
    let (first, second) = conflict.fields();
    disagree(
        AnnotationKey::Field(first),
        AnnotationKey::Field(second),
        conflict,
    )
}

fn disagree(first: AnnotationKey, second: AnnotationKey, conflict: Conflict) -> PolicyError {
    PolicyError::AnnotationsDisagree {
        first: first.to_string(),
        second: second.to_string(),
        conflict,
    }
}

/// The error of a list: denied rules never end, so the error about one does not lead to the list of allowed rules.
pub(super) fn endless(field: Field, list: &str, problem: ValueError) -> ValueError {
    let ends = |item: &str| RuleItem::has_end(item) && shown(item) == problem.value;
    match split::<RuleItem>(list).into_iter().any(ends) {
        true if field == Field::NetworkDeny => ValueError {
            allowed: DENIED.to_owned(),
            ..problem
        },
        _ => problem,
    }
}

const DENIED: &str = "a denied rule: denied rules have no end";

fn set<T: FromStr<Err = ValueError>>(slot: &mut Option<T>, value: &str) -> Result<(), ValueError> {
    *slot = Some(value.parse()?);
    Ok(())
}

fn unknown(name: &str) -> PolicyError {
    let field = name.strip_prefix(PREFIX).and_then(|name| name.parse().ok());
    if let Some(field) = field {
        return PolicyError::NoAnnotation { field };
    }
    let keys: Vec<String> = AnnotationKey::all().map(|key| key.to_string()).collect();
    PolicyError::AnnotationKey {
        key: shown(name),
        suggestion: closest_key(name, &keys).map(str::to_owned),
    }
}

/// Whether a key is one of ours but for the prefix, as `policy check --annotation` takes it. Images and pods may well have
/// a `policy` or a `workspace` of their own.
fn lacks_the_prefix(name: &str, annotations: &BTreeMap<String, String>) -> bool {
    match AnnotationKey::find(&format!("{PREFIX}{name}")) {
        Some(AnnotationKey::Field(_)) => true,
        Some(_) => !may_be_of_the_image(annotations),
        None => false,
    }
}

/// The key of ours that the author probably meant.
fn closest_key<'a>(name: &str, keys: &'a [String]) -> Option<&'a str> {
    if let Some(key) = (keys.iter()).find(|key| key.strip_prefix(PREFIX) == Some(name)) {
        return Some(key);
    }
    let folded = fold(name);
    // `dev.agentbox.mounts` is many letters from `dev.agentbox.filesystem.mounts`, but clearly means it.
    let last = folded.rsplit(['.', '/']).next();
    let mut keys = keys.iter().map(String::as_str);
    let same_end = keys.clone().filter(|key| key.rsplit('.').next() == last);
    if let Some(key) = same_end.min_by_key(|key| key.len().abs_diff(folded.len())) {
        return Some(key);
    }
    // The common prefix of all keys does not help to choose one.
    let Some((_, rest)) = folded.split_once(OURS) else {
        return nearest(&folded, keys);
    };
    let rest = rest.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let near = nearest(
        rest,
        keys.clone().filter_map(|key| key.strip_prefix(PREFIX)),
    )?;
    keys.find(|key| key.strip_prefix(PREFIX) == Some(near))
}

/// Whether a key looks like a misspelling of one of ours.
fn reads_as_ours(key: &str) -> bool {
    // A key longer than Kubernetes allows (253 + 63) is no typo of ours; the test for the word itself still applies.
    const TYPED: usize = 320;
    if fold(key).contains(OURS) {
        return true;
    }
    if key.len() > TYPED {
        return false;
    }
    let lower = key.to_lowercase();
    lookalike(&lower) || AnnotationKey::all().any(|ours| near(&lower, &ours.to_string()))
}

/// Two edits or fewer from a key of ours, such as `dev.agent-box.policy`.
///
/// Keys with the correct word never get here. So one edit is in the word and at most one elsewhere, and one end of the
/// key is correct. Comparing the ends first avoids measuring every key of a pod at each start.
fn near(key: &str, ours: &str) -> bool {
    let (head, tail) = (&ours[..4], &ours[ours.len() - 4..]);
    (key.starts_with(head) || key.ends_with(tail))
        && key.chars().count().abs_diff(ours.len()) <= 2
        && distance(key, ours) <= 2
}

/// Lower case; full-width letters become plain ones, other non-ASCII characters (such as zero-width ones) are removed.
fn fold(key: &str) -> String {
    key.chars()
        .filter_map(|character| match character {
            '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(character) - 0xfee0),
            _ => Some(character),
        })
        .filter(char::is_ascii)
        .map(|character| character.to_ascii_lowercase())
        .collect()
}

/// `agentbox` with some letters from other alphabets: `аgentbох` is half Cyrillic.
fn lookalike(key: &str) -> bool {
    if key.is_ascii() {
        return false;
    }
    let letters: Vec<char> = key.chars().collect();
    letters.windows(OURS.len()).any(|window| {
        let pairs = || window.iter().zip(OURS.chars());
        // At least four ASCII letters: a key that is all in another script is not ours.
        pairs().all(|(seen, ours)| *seen == ours || !seen.is_ascii())
            && pairs().filter(|(seen, ours)| **seen == *ours).count() >= 4
    })
}
