//! PURE. The decision on each mount: its access, or why it is left out, and the masks in it.

use std::mem::discriminant;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use super::access::{access, asks_to_write, given};
use super::anonymous::is_anonymous;
use super::error::PlanError;
use super::facts::{FoundCredential, SourceFacts};
use super::filesystem::VisibleFiles;
use super::guard::protected_itself;
use super::home::part_of;
use super::ids::MappedIds;
use super::judge::{is_kernel_place, read_only};
use super::mount::{
    BindAccess, BindMount, KernelFileSystem, KernelMount, MountKind, OmittedMount, PlannedMount,
    ProgramMode, SourceIdentity, Tmpfs,
};
use super::never::NeverList;
use super::options::{bounded, keep, of_kernel};
use super::reason::MountReason;
use super::sorted_mounts::{MountRules, MountTarget, SortedMounts, workspace_refused};
use super::support::support;
use super::volumes::{Volume, refused, strange, volume};
use super::warning::Warning;
use crate::policy::{Access, GitConfigRule, Policy, SearchRule, Tool};

impl SortedMounts {
    /// A mount that is no bind: a kernel file system at its usual mount point, or memory.
    pub(super) fn unjudged(&mut self, mount: &Mount, most: u64) {
        let name = mount.typ().as_deref().unwrap_or("none");
        let destination = mount.destination();
        let asked = mount.options().as_deref().unwrap_or_default();
        let source = mount.source().clone();
        let source = source.unwrap_or_else(|| PathBuf::from(name));
        let is_place = !is_kernel_place(destination) && destination != Path::new("/");
        let kind = match KernelFileSystem::at(name, destination) {
            Some(what) => MountKind::Kernel(KernelMount {
                what,
                source,
                options: of_kernel(what, asked, most),
            }),
            None if name == "tmpfs" && is_place => MountKind::Tmpfs(Tmpfs {
                source,
                options: bounded(keep(asked, &["nosuid", "nodev"]), most),
            }),
            None => {
                self.prune(mount, &format!("a mount of type {name:?} at this place is not among those that a policy keeps"));
                return;
            }
        };
        // Only one cgroup mount is made read-only at the end: a second one would stay writable.
        let is_there = |m: &PlannedMount| {
            m.destination == *destination && discriminant(&m.kind) == discriminant(&kind)
        };
        if self.kept.iter().any(is_there) {
            self.prune(mount, "the same file system is mounted there already");
            return;
        }
        self.kept.push(PlannedMount {
            destination: destination.clone(),
            kind,
            why: MountReason::Engine,
        });
    }

    /// A bind mount: checked and, if it is kept, searched for what the container must not see.
    pub(super) fn bind(
        &mut self,
        rules: MountRules<'_>,
        named: MountTarget<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        if matches!(
            destination.to_str(),
            Some("/etc/hosts" | "/etc/resolv.conf")
        ) {
            // Whatever its source is, the network wall's file replaces it.
            self.replaced.insert(destination.clone());
            return Ok(());
        }
        if let Some((why, writable)) = support(named.path.to_str().unwrap_or(""), rules, facts) {
            let most = if writable {
                Access::ReadWrite
            } else {
                Access::ReadOnly
            };
            self.keep_bind(mount, facts, given(mount, most), why.to_owned());
            return Ok(());
        }
        let volume = volume(rules.pod, facts);
        warnings.extend(strange(rules.pod, named.path, facts));
        if let Some(why) = refused(rules, destination, volume, facts) {
            if named.is_workspace {
                return Err(workspace_refused(destination, facts, why));
            }
            self.leave_out((mount, facts), named, volume, &why);
            return Ok(());
        }
        if matches!(volume, Some(Volume::Secret | Volume::Projected)) {
            self.secret(mount, facts, named);
            return Ok(());
        }
        let granted = access(rules.policy, volume, named, facts);
        if granted == Access::None {
            let Policy { name, .. } = rules.policy;
            let kept = kept_words(rules.policy);
            self.prune(mount, &format!("policy '{name}' keeps {kept}"));
            return Ok(());
        }
        if volume.is_none() {
            warn_of_place(rules, named.path, facts, warnings);
        }
        self.granted(rules, named, mount, facts, (volume, granted))?;
        self.hide_inside(rules, destination, facts, warnings)
    }

    /// A mount that the policy grants: as the workspace, as the pod's own scratch, or as another mount.
    fn granted(
        &mut self,
        rules: MountRules<'_>,
        named: MountTarget<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        (volume, granted): (Option<Volume>, Access),
    ) -> Result<(), PlanError> {
        let access = given(mount, granted);
        match &facts.home {
            Some(home) if named.is_workspace && access == BindAccess::ReadWrite => {
                let part = part_of(rules, named.path, home);
                self.home(rules, mount, facts, part)?;
            }
            _ if named.is_workspace => self.workspace(rules, mount, facts, access)?,
            _ if volume == Some(Volume::Scratch) => {
                let access = match read_only(rules.never, facts) {
                    Some(_) => BindAccess::ReadOnly,
                    None => access,
                };
                self.scratch(rules.policy, mount, facts, access);
            }
            _ if granted == Access::ReadOnly && asks_to_write(mount) && is_anonymous(facts) => {
                self.anonymous(mount, facts);
            }
            _ => self.other(rules, mount, facts, granted),
        }
        Ok(())
    }

    /// Masks what was found in a kept mount, and refuses a mount that could not be searched completely.
    pub(super) fn hide_inside(
        &mut self,
        rules: MountRules<'_>,
        destination: &Path,
        facts: &SourceFacts,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), PlanError> {
        self.mask_inside(rules.never, destination, facts);
        self.protect(destination, &facts.protected.found);
        if rules.policy.filesystem.git_config == GitConfigRule::ReadOnly {
            self.protect(destination, &facts.protected.settings);
        }
        self.tell_git(rules, destination, facts)?;
        match (&facts.unsearched, rules.policy.filesystem.search) {
            (Some(why), SearchRule::Complete) => Err(PlanError::Unsearched {
                destination: destination.to_owned(),
                source_path: facts.path.clone(),
                why: why.clone(),
            }),
            (Some(_), SearchRule::Partial) | (None, _) => {
                self.warn_of_rest(destination, facts, warnings);
                Ok(())
            }
        }
    }

    /// Keeps the workspace with this access.
    pub(super) fn workspace(
        &mut self,
        rules: MountRules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        access: BindAccess,
    ) -> Result<(), PlanError> {
        if access != BindAccess::ReadOnly
            && let Some(closed) = read_only(rules.never, facts)
        {
            let why = format!(
                "{closed}; no container may write it: use another directory, or mount it read-only"
            );
            return Err(workspace_refused(mount.destination(), facts, why));
        }
        self.keep_bind(mount, facts, access, MountReason::Workspace);
        self.workspace = Some(mount.destination().clone());
        Ok(())
    }

    /// A mount besides the workspace, with the access that the policy grants.
    fn other(
        &mut self,
        rules: MountRules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        granted: Access,
    ) {
        let access = given(mount, granted);
        let written =
            access == BindAccess::ReadWrite && !(facts.engines_volume || is_anonymous(facts));
        let closed = read_only(rules.never, facts).filter(|_| granted == Access::ReadWrite);
        let closed =
            closed.or_else(|| written.then(|| protected_itself(rules, facts, Tool::Engine))?);
        let why = match (&closed, &facts.home) {
            (Some(closed), _) => MountReason::OtherReadOnly(closed.clone()),
            (None, Some(_)) => MountReason::Home,
            (None, None) if access == BindAccess::ReadWrite && facts.engines_volume => {
                MountReason::Volume
            }
            (None, _) => MountReason::Other,
        };
        let access = match (&closed, &facts.home) {
            (None, None) => access,
            (Some(_), _) | (_, Some(_)) => BindAccess::ReadOnly,
        };
        self.keep_bind(mount, facts, access, why);
    }

    pub(super) fn keep_bind(
        &mut self,
        mount: &Mount,
        facts: &SourceFacts,
        access: BindAccess,
        why: impl Into<MountReason>,
    ) {
        let mut asked = mount.options().iter().flatten();
        self.kept.push(PlannedMount {
            destination: mount.destination().clone(),
            kind: MountKind::Bind(BindMount {
                source: facts.path.clone(),
                judged: SourceIdentity {
                    dev: facts.dev,
                    ino: facts.ino,
                    kind: facts.kind,
                },
                access,
                programs: match asked.any(|o| o == "noexec") {
                    true => ProgramMode::Refused,
                    false => ProgramMode::Run,
                },
                ids: MappedIds::Node,
            }),
            why: why.into(),
        });
    }

    pub(super) fn mask_inside(
        &mut self,
        never: &NeverList,
        destination: &Path,
        facts: &SourceFacts,
    ) {
        for name in facts.all_names() {
            let below = never.below(name).map(|(rest, _)| rest);
            let below = below.filter(|rest| !facts.linked.contains(*rest));
            self.masked.extend(below.map(|rest| destination.join(rest)));
        }
        let hidden = facts.inside.iter().filter(|i| !i.covered);
        for inside in hidden.clone() {
            let directory = destination.join(&inside.path);
            if !inside.seen.is_empty() {
                self.seen.push(VisibleFiles {
                    directory: directory.clone(),
                    files: inside.seen.clone(),
                });
            }
            self.hold(destination, inside);
            self.found.insert(directory);
        }
        let pinned = hidden.flat_map(FoundCredential::named_by);
        self.pinned.extend(pinned.map(|d| destination.join(d)));
        self.masked.extend(self.found.iter().cloned());
    }

    pub(super) fn warn_of_rest(
        &self,
        destination: &Path,
        facts: &SourceFacts,
        warnings: &mut Vec<Warning>,
    ) {
        if let Some(why) = &facts.unsearched {
            warnings.push(Warning::NotSearched {
                place: destination.to_owned(),
                why: why.clone(),
            });
        }
    }

    pub(super) fn prune(&mut self, mount: &Mount, why: &str) {
        // The path that it covers stays masked: /dev/null over a project's .env is a usual way to hide secrets.
        let over = |m: &PlannedMount| {
            m.bind().is_some() && mount.destination().starts_with(&m.destination)
        };
        if self.kept.iter().any(over) {
            self.masked.insert(mount.destination().clone());
        }
        self.pruned.push(OmittedMount {
            destination: mount.destination().clone(),
            source: mount.source().clone().unwrap_or_default(),
            why: why.to_owned(),
            of_every_engine: false,
        });
    }
}

/// Warns of a mount where programs look for credentials whose source has another name. A credential is known by its
/// names on the node, so this is the caller's choice: the container's own key, for example.
fn warn_of_place(
    rules: MountRules<'_>,
    place: &Path,
    facts: &SourceFacts,
    warnings: &mut Vec<Warning>,
) {
    if rules.never.credential_above(place, rules.meant).is_some() {
        warnings.push(Warning::AtCredentials {
            place: place.to_owned(),
            source: facts.path.clone(),
        });
    }
}

fn kept_words(policy: &Policy) -> &'static str {
    match policy.filesystem.workspace {
        Access::None => "no mounts",
        Access::ReadOnly | Access::ReadWrite => "the workspace alone",
    }
}
