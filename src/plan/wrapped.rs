//! PURE. The mounts of `wrap` itself: the node's system directories, and the decision on the others.
//!
//! The caller of `wrap` names the directories of PATH, and an agent may have made one in an earlier run. So only
//! entries of the built-in list skip the checks of an engine's mounts, and only while they are root's alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use super::judge::{by_link, read_only, refusal};
use super::never::NeverList;
use super::sort::{MountRules, SortedMounts};
use super::{BindAccess, FileKind, OmittedMount, PlanError, SourceFacts, Warning};
use crate::policy::{Access, MountRule, ResolvedPolicy, SearchRule, WrapOptions};

/// The directories that `wrap` mounts, and those that it omits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrapPlan {
    /// The system's directories and the parts of /etc that `policies/wrap.toml` lists.
    pub system: BTreeSet<PathBuf>,
    /// The others: toolchains of PATH, and under `permissive` the directories of the root.
    pub judged: BTreeSet<PathBuf>,
    /// Those of `judged` that the user named: a refusal is an error.
    pub asked: BTreeSet<PathBuf>,
    /// Caches of package managers: readable, and written only for the run.
    pub caches: BTreeSet<PathBuf>,
    /// Parts of toolchains that contain only packages, and are not searched.
    pub packages: BTreeSet<PathBuf>,
    /// The directory of the node that keeps writes to the caches, by [`layer_of`].
    pub kept: Option<PathBuf>,
    /// Paths that the user named as writable, and the repository of a work tree.
    pub written: BTreeSet<PathBuf>,
    /// Ports inside that `--publish` names, and the node's addresses that lead there.
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// Mounts that were omitted before anything was opened.
    pub dropped: Vec<OmittedMount>,
    /// What the user requests of the policy.
    pub requests: WrapOptions,
    /// How the directories are shown.
    pub by: WrapEnforcement,
}

/// How `wrap` shows the node's directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WrapEnforcement {
    /// Mounts in new namespaces, as for a container.
    #[default]
    Mounts,
    /// Landlock rules in the caller's namespaces: no mounts, and no cgroup.
    Rules,
}

/// The name of the directory that keeps writes to a cache.
pub fn layer_of(cache: &Path) -> String {
    let path = cache.strip_prefix("/").unwrap_or(cache);
    // A file name cannot contain a slash, and the lists of caches have no percent sign.
    path.to_string_lossy().replace('/', "%")
}

impl WrapPlan {
    /// Whether a mount point is one of `wrap`'s own; the workspace is not.
    pub fn contains(&self, place: &Path) -> bool {
        let mut all = [&self.system, &self.judged, &self.caches, &self.written].into_iter();
        all.any(|places| places.contains(place))
    }

    /// Whether there are none: the bundle is not `wrap`'s.
    pub fn is_empty(&self) -> bool {
        self.system.is_empty() && self.judged.is_empty() && self.written.is_empty()
    }

    /// The parts of a toolchain, below its mount point, that contain only packages; the empty path for all of it.
    pub fn packages_below(&self, place: &Path) -> Vec<PathBuf> {
        // A path that the user named is always searched.
        if !self.judged.contains(place) || self.asked.contains(place) {
            return Vec::new();
        }
        let all = self.packages.iter();
        all.filter_map(|part| match part.strip_prefix(place) {
            Ok(below) => Some(below.to_owned()),
            Err(_) => place.starts_with(part).then(PathBuf::new),
        })
        .collect()
    }

    /// Whether a mount point shows the node's system itself.
    pub fn is_system(&self, never: &NeverList, place: &Path, facts: &SourceFacts) -> bool {
        self.system.contains(place) && not_the_nodes(never, facts).is_none()
    }
}

/// Why the target of a listed name is not the node's system; `None` if it is.
fn not_the_nodes(never: &NeverList, facts: &SourceFacts) -> Option<String> {
    let path = facts.path.display();
    if !matches!(facts.kind, FileKind::Directory | FileKind::File) || facts.same_as.is_some() {
        return Some(format!("{path} is no file or directory of the system"));
    }
    if never.kernel(&facts.file_system).is_some() {
        return Some(format!("{path} is the kernel's"));
    }
    if !facts.roots {
        return Some(format!("{path} is not root's, or others may write it"));
    }
    // A link of the list leads from /etc to a file that is no secret.
    let elsewhere = !facts.path.starts_with("/etc");
    if let Some(why) = never.refuses(&facts.path).filter(|_| elsewhere) {
        return Some(format!("it leads to {path}: {why}"));
    }
    by_link(never, facts)
}

/// Why a ceiling does not let a user's path be shown or written; hiding needs no permission.
///
/// To show more than the workspace, the ceiling's `filesystem.mounts` must allow an engine's mounts. To write there,
/// `filesystem.write` counts too. The policy itself has no say: the caller of `wrap` names the paths.
pub fn over_ceiling(resolved: &ResolvedPolicy, path: &Path, access: BindAccess) -> Option<String> {
    let mut ceilings = resolved.ceilings.iter().zip(&resolved.limits);
    ceilings.find_map(|(ceiling, limit)| {
        let files = &limit.filesystem;
        let is_written = access != BindAccess::ReadOnly;
        let may_be_written = files.workspace == Access::ReadWrite
            && (files.mounts == MountRule::Keep
                || files.write.iter().any(|item| Path::new(item.as_str()) == path));
        if files.mounts == MountRule::Drop {
            let needed = if is_written { "keep" } else { "read-only" };
            Some(format!(
                "the ceiling {ceiling} shows nothing besides the workspace (filesystem.mounts = \"drop\"): a ceiling with \
                 \"{needed}\" would permit it"
            ))
        } else if is_written && !may_be_written {
            Some(format!(
                "the ceiling {ceiling} lets nothing but the workspace be written: one with filesystem.mounts = \"keep\" and \
                 filesystem.workspace = \"read-write\", or with this path in filesystem.write, would permit it"
            ))
        } else {
            None
        }
    })
}

impl SortedMounts {
    /// A mount of `wrap`'s own: read-only unless named as writable. It is checked unless it is the node's system.
    pub(super) fn wrapped(
        &mut self,
        rules: MountRules<'_>,
        wrapped: &WrapPlan,
        mount: &Mount,
        facts: &SourceFacts,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        if wrapped.written.contains(destination) {
            return self.written(rules, mount, facts, warnings);
        }
        if wrapped.caches.contains(destination) {
            self.cache(rules, wrapped, mount, facts);
            return Ok(());
        }
        let mut why = "the node's, for programs to run";
        if !wrapped.is_system(rules.never, destination, facts) {
            if let Some(refused) = refusal(rules.never, rules.meant, destination, facts) {
                return self.left_out(wrapped, mount, refused);
            }
            if let (Some(rest), SearchRule::Complete) =
                (&facts.unsearched, rules.policy.filesystem.search)
            {
                let rest =
                    format!("it cannot be searched for sockets and credentials as a whole: {rest}");
                return self.left_out(wrapped, mount, rest);
            }
            why = match wrapped.asked.contains(destination) {
                true => "named by --read",
                false => "the node's, judged like an engine's mount",
            };
        }
        self.keep_bind(mount, facts, BindAccess::ReadOnly, why.to_owned());
        self.mask_inside(rules.never, destination, facts);
        self.warn_of_rest(destination, facts, warnings);
        Ok(())
    }

    /// Keeps a cache, or omits it: programs then make their own in the home, which is discarded with the run.
    fn cache(
        &mut self,
        rules: MountRules<'_>,
        wrapped: &WrapPlan,
        mount: &Mount,
        facts: &SourceFacts,
    ) {
        let refused = refusal(rules.never, rules.meant, mount.destination(), facts)
            .or_else(|| {
                (facts.kind != FileKind::Directory).then(|| "it is no directory".to_owned())
            })
            .or_else(|| facts.no_overlay.clone());
        match refused {
            Some(why) => self.prune(mount, &why),
            None => {
                let why = match &wrapped.kept {
                    Some(_) => {
                        "a package cache; writes do not reach it, and are kept for the next run here"
                    }
                    None => "a package cache; writes do not reach it",
                };
                let why = format!("{why}{}", facts.links_in_words());
                self.keep_bind(mount, facts, BindAccess::Private, why);
            }
        }
    }

    /// Omits a mount, or fails if the user asked for it by name.
    fn left_out(
        &mut self,
        wrapped: &WrapPlan,
        mount: &Mount,
        why: String,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        if wrapped.asked.contains(destination) {
            return Err(PlanError::Named(destination.clone(), why));
        }
        self.prune(mount, &why);
        Ok(())
    }

    /// A path named as writable: checked like the workspace.
    fn written(
        &mut self,
        rules: MountRules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        warnings: &mut Vec<Warning>,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        let home = facts.home.as_ref();
        let refused = refusal(rules.never, rules.meant, destination, facts)
            .or_else(|| read_only(rules.never, facts))
            .or_else(|| home.map(|_| "it is a whole home directory".to_owned()));
        if let Some(why) = refused {
            return Err(PlanError::Named(destination.clone(), why));
        }
        let access = match rules.policy.filesystem.workspace {
            Access::ReadWrite => BindAccess::ReadWrite,
            Access::None | Access::ReadOnly => {
                let name = &rules.policy.name;
                let why = format!("policy '{name}' lets nothing of the node be written");
                return Err(PlanError::Named(destination.clone(), why));
            }
        };
        self.keep_bind(mount, facts, access, "named to be written".to_owned());
        self.hide_inside(rules, destination, facts, warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::FollowedLink;

    #[test]
    fn only_roots_own_files_are_the_system() {
        let never = NeverList::builtin();
        let is_system = |change: &dyn Fn(&mut SourceFacts)| {
            let place = PathBuf::from("/etc/localtime");
            let zone = "/usr/share/zoneinfo/UTC".into();
            let mut facts = SourceFacts::plain(zone, 1, 2, FileKind::File);
            facts.roots = true;
            let link = |path: &str, owner| FollowedLink {
                path: path.into(),
                owner,
            };
            facts.links = vec![link("/etc/localtime", 0)];
            change(&mut facts);
            let wrapped = WrapPlan {
                by: WrapEnforcement::Mounts,
                system: [place.clone()].into(),
                ..WrapPlan::default()
            };
            wrapped.is_system(never, &place, &facts)
        };
        assert!(is_system(&|_| {}));
        assert!(is_system(&|f| f.path = "/etc/zone".into()));
        assert!(!is_system(&|f| f.roots = false));
        assert!(!is_system(&|f| f.path = "/run/docker.sock".into()));
        assert!(!is_system(&|f| f.path = "/home/me/.ssh".into()));
        assert!(!is_system(&|f| f.kind = FileKind::Socket));
        assert!(!is_system(&|f| f.file_system.kind = "proc".into()));
        assert!(!is_system(&|f| f.links[0].owner = 1000));
        assert!(!is_system(&|f| f.links[0].path = "/srv/a/link".into()));
        assert!(!is_system(&|f| f.same_as = Some("/etc/shadow".into())));
    }

    #[test]
    fn packages_are_in_toolchains_and_not_in_named_paths() {
        let path = |text: &str| PathBuf::from(text);
        let mut wrapped = WrapPlan {
            judged: [
                path("/h/.pyenv"),
                path("/h/.nvm/versions/node/v1"),
                path("/h/x"),
            ]
            .into(),
            packages: [path("/h/.pyenv/versions"), path("/h/.nvm/versions")].into(),
            ..WrapPlan::default()
        };
        let below = |wrapped: &WrapPlan, place: &str| wrapped.packages_below(Path::new(place));
        assert_eq!(below(&wrapped, "/h/.pyenv"), [path("versions")]);
        assert_eq!(below(&wrapped, "/h/.nvm/versions/node/v1"), [path("")]);
        assert!(below(&wrapped, "/h/x").is_empty());
        assert!(
            below(&wrapped, "/h/.pyenv/versions").is_empty(),
            "it is not a mount"
        );
        wrapped.asked.insert(path("/h/.pyenv"));
        assert!(below(&wrapped, "/h/.pyenv").is_empty());
    }

    #[test]
    fn a_ceiling_limits_named_paths() {
        let mut resolved = crate::plan::tests::sample_resolved();
        let path = Path::new("/srv/data");
        let over = |resolved: &ResolvedPolicy| {
            [BindAccess::ReadOnly, BindAccess::ReadWrite]
                .map(|access| over_ceiling(resolved, path, access).is_some())
        };
        assert_eq!(resolved.limits.len(), 1);
        for (mounts, expected) in [
            (MountRule::Keep, [false, false]),
            (MountRule::ReadOnly, [false, true]),
            (MountRule::Drop, [true, true]),
        ] {
            resolved.limits[0].filesystem.mounts = mounts;
            assert_eq!(over(&resolved), expected, "{mounts:?}");
        }
        resolved.limits[0].filesystem.mounts = MountRule::ReadOnly;
        resolved.limits[0].filesystem.write = ["/srv/data".parse().unwrap()].into();
        assert_eq!(over(&resolved), [false, false]);
        resolved.limits[0].filesystem.write = ["/srv".parse().unwrap()].into();
        assert_eq!(over(&resolved), [false, true]);
        resolved.limits[0].filesystem.mounts = MountRule::Keep;
        resolved.limits[0].filesystem.workspace = Access::ReadOnly;
        assert_eq!(over(&resolved), [false, true]);
        // The policy's own field is for other mounts, and each ceiling counts.
        resolved.policy.filesystem.mounts = MountRule::Drop;
        assert_eq!(over(&resolved), [false, true]);
        let (mut second, ceiling) = (resolved.limits[0].clone(), resolved.ceilings[0].clone());
        second.filesystem.mounts = MountRule::Drop;
        resolved.limits.push(second);
        resolved.ceilings.push(ceiling);
        assert_eq!(over(&resolved), [true, true]);
    }
}
