//! PURE. Which mount is the workspace.
//!
//! A config.json does not say who chose its working directory: the caller, or the image, which the caller may not have read.
//! So the working directory decides only if no other mount is likely. If no mount holds it, the caller's only bind mount is
//! the workspace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use super::access::asks_to_write;
use super::ephemeral::is_home_like;
use super::error::PlanError;
use super::facts::{BundleFacts, SourceFacts};
use super::file::FileKind;
use super::guard::protected_itself;
use super::judge::{read_only, refusal};
use super::pod::pod_role;
use super::sorted_mounts::MountRules;
use super::support::support;
use super::volumes::volume;
use super::warning::Warning;
use crate::engines::kubelet::is_pods;
use crate::engines::layout::{is_anonymous_volume, is_podmans_secrets, is_volume_like};
use crate::policy::{Access, Field, MountRule, Origin, ResolvedPolicy, Tool};

/// Files that every engine mounts, wherever its data is.
const ENGINES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// A bind mount: its index among the spec's mounts, its destination from the engine, and facts about its source.
#[derive(Clone, Copy)]
struct Bind<'a> {
    index: usize,
    mount: &'a Mount,
    facts: &'a SourceFacts,
}

impl Bind<'_> {
    fn place(&self) -> &Path {
        self.mount.destination()
    }

    /// The names of its source, and the engine's, which may be a link.
    fn names(&self) -> impl Iterator<Item = &Path> {
        self.facts
            .kubelets_names()
            .chain(self.mount.source().as_deref())
    }

    /// Whether it can be the caller's workspace: a writable directory that is not the engine's own.
    fn could_be(&self, rules: MountRules<'_>, bundle: &BundleFacts) -> bool {
        let mut options = self.mount.options().iter().flatten();
        let place = self.place().to_str().unwrap_or("");
        self.facts.kind == FileKind::Directory
            && !options.any(|o| matches!(o.as_str(), "ro" | "rro"))
            && !bundle.wrapped.contains(self.place())
            && support(place, rules, self.facts).is_none()
            && volume(rules.pod, self.facts).is_none()
            && refusal(rules.never, rules.meant, self.place(), self.facts).is_none()
            && !is_anonymous_volume(&self.facts.path)
    }

    /// Whether it is a named volume that has the same access, whichever mount is the workspace.
    fn stays_as_it_is(&self, rules: MountRules<'_>) -> bool {
        self.facts.engines_volume && rules.policy.filesystem.mounts >= MountRule::Volumes
    }
}

/// The index of the workspace's mount: the one that the annotation names, else the one at the policy's path, else the
/// bind mount that contains the working directory, else the only one.
pub(super) fn workspace(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    mounts: &[Mount],
    bundle: &BundleFacts,
    rules: MountRules<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<Option<usize>, PlanError> {
    let all = mounts.iter().zip(&bundle.sources).enumerate();
    let binds: Vec<Bind<'_>> = all
        .filter_map(|(index, (mount, facts))| {
            let facts = facts.as_ref()?;
            Some(Bind {
                index,
                mount,
                facts,
            })
        })
        .collect();
    let pins = rules.policy.filesystem.workspace_at.iter();
    let pinned: Vec<&Path> = pins.map(|p| Path::new(p.as_str())).collect();
    let elsewhere = |place: &Path| PlanError::WorkspaceElsewhere {
        policy: rules.policy.name.to_string(),
        place: place.to_owned(),
        allowed: joined(&pinned),
    };
    if let Some(named) = &resolved.workspace {
        let named = Path::new(named.as_str());
        let Some(found) = binds.iter().rfind(|b| b.place() == named) else {
            return without_the_named(spec, named, warnings);
        };
        return match pinned.is_empty() || pinned.contains(&named) {
            true => Ok(Some(found.index)),
            false => Err(elsewhere(named)),
        };
    }
    let holds = |b: &&Bind<'_>| rules.cwd.starts_with(b.place()) && b.place() != Path::new("/");
    let depth = |b: &&Bind<'_>| b.place().components().count();
    let holder = binds.iter().filter(holds).max_by_key(depth);
    if pinned.is_empty() {
        // An image may have chosen it: settings of the user's tools are no project.
        let is_project = |b: &&Bind<'_>| {
            !bundle.wrapped.is_empty()
                || !asks_to_write(b.mount)
                || protected_itself(rules, b.facts, Tool::Engine).is_none()
        };
        let Some(holder) = holder else {
            let only = only(&binds, rules, bundle).filter(|_| pod_role(spec).is_none());
            return Ok(only.filter(|b| is_project(&b)).map(|b| b.index));
        };
        if !is_project(&holder) {
            return Ok(None);
        }
        let rivals = binds.iter().filter(|b| {
            b.index != holder.index && b.could_be(rules, bundle) && !b.stays_as_it_is(rules)
        });
        let rivals: Vec<&Path> = rivals.map(Bind::place).collect();
        return guess(holder, &rivals, rules, warnings).map(Some);
    }
    let mut there = binds.iter().filter(|b| pinned.contains(&b.place()));
    match (there.next(), there.next(), holder) {
        (Some(only), None, _) => Ok(Some(only.index)),
        (Some(_), Some(_), Some(holder)) if pinned.contains(&holder.place()) => {
            Ok(Some(holder.index))
        }
        (None, _, Some(_)) if is_of_the_pod(resolved, spec) => {
            warnings.push(Warning::NoWorkspaceAt {
                places: joined(&pinned),
            });
            Ok(None)
        }
        (_, _, Some(holder)) => Err(elsewhere(holder.place())),
        (_, _, None) => Ok(None),
    }
}

/// The annotation names no mount: an error, except in a pod, whose annotations reach all of its containers, including
/// the one that holds its namespaces.
fn without_the_named(
    spec: &Spec,
    named: &Path,
    warnings: &mut Vec<Warning>,
) -> Result<Option<usize>, PlanError> {
    match pod_role(spec) {
        None => return Err(PlanError::Workspace(named.to_owned())),
        Some(_) => warnings.push(Warning::NoWorkspace {
            path: named.to_owned(),
        }),
    }
    Ok(None)
}

/// The only bind mount of the caller's, if nothing holds the working directory: `docker run -v "$PWD:/work" IMAGE`.
///
/// Under `volumes` alone: where other mounts are left out, a guess would decide what the container sees at all;
/// `read-only` says that binds are; and under `keep` they are writable with the node's ids anyway.
fn only<'a>(binds: &[Bind<'a>], rules: MountRules<'_>, bundle: &BundleFacts) -> Option<Bind<'a>> {
    let mut callers = binds.iter().filter(|b| {
        let place = b.place().to_str().unwrap_or("");
        support(place, rules, b.facts).is_none()
            && !ENGINES.contains(&place)
            && !b.facts.engines_volume
            && !b.names().flat_map(Path::ancestors).any(is_volume_like)
            && !b.names().all(|name| is_podmans_secrets(b.place(), name))
    });
    let (Some(only), None) = (callers.next(), callers.next()) else {
        return None;
    };
    // The image's links may lead it elsewhere.
    let is_direct = |real: Option<&PathBuf>| real.is_none_or(|real| real == only.place());
    let is_taken = bundle.wrapped.is_empty()
        && !only.names().any(is_pods)
        && is_direct(bundle.destinations.get(only.index))
        && is_projects_place(only.place(), bundle.home.as_deref())
        && rules.policy.filesystem.mounts == MountRule::Volumes
        && is_one_projects(&only.facts.path)
        && only.could_be(rules, bundle)
        && only.facts.home.is_none()
        && read_only(rules.never, only.facts).is_none();
    is_taken.then_some(*only)
}

/// Whether a project may be mounted there: not over what the image's programs use, over its user's home, or as settings
/// and keys.
fn is_projects_place(place: &Path, home: Option<&Path>) -> bool {
    let is_hidden = |part: &OsStr| part.as_encoded_bytes().starts_with(b".");
    is_home_like(place)
        && !place.starts_with("/var")
        && !place.iter().any(is_hidden)
        && !home.is_some_and(|home| home.starts_with(place))
}

/// Whether a directory of the node may be one project's: `/mnt`, `/tmp` and other directories at the top are shared by many.
fn is_one_projects(source: &Path) -> bool {
    source.components().count() > 2 && source != Path::new("/var/tmp")
}

/// The mount that contains the working directory, if no other is likely or a wrong guess does little harm.
fn guess(
    holder: &Bind<'_>,
    rivals: &[&Path],
    rules: MountRules<'_>,
    warnings: &mut Vec<Warning>,
) -> Result<usize, PlanError> {
    let files = &rules.policy.filesystem;
    if rivals.is_empty() || files.workspace == Access::None {
        return Ok(holder.index);
    }
    let rivals = joined(rivals);
    // No other mount is kept: the guess decides what the container sees at all.
    if files.mounts == MountRule::Drop {
        return Err(PlanError::WhichWorkspace {
            policy: rules.policy.name.to_string(),
            holder: holder.place().display().to_string(),
            rivals,
            tool: rules.tool,
        });
    }
    warnings.push(Warning::GuessedWorkspace {
        place: holder.place().to_owned(),
        rivals,
    });
    Ok(holder.index)
}

fn joined(paths: &[&Path]) -> String {
    let texts: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    texts.join(", ")
}

/// Whether the workspace's paths come from an annotation, in a pod: they are for those of its containers that have
/// mounts there.
fn is_of_the_pod(resolved: &ResolvedPolicy, spec: &Spec) -> bool {
    let origin = resolved.origins.get(&Field::FilesystemWorkspaceAt);
    matches!(origin, Some(Origin::Annotation(_))) && pod_role(spec).is_some()
}
