//! PURE. The mounts of `wrap` itself: the node's system directories, and the decision on all others.
//!
//! A directory of PATH is named by whoever calls `wrap`, and an agent may have made it in an earlier run. So only
//! entries of the built-in list skip the judgement of an engine's mounts, and only while they are root's alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use super::judge::{by_link, read_only, refusal};
use super::never::NeverList;
use super::sort::{MountRules, SortedMounts};
use super::{BindAccess, FileKind, OmittedMount, PlanError, SourceFacts, Warning};
use crate::policy::{Access, MountRule, ResolvedPolicy, SearchRule, WrapOptions};

/// The directories that `wrap` mounts, and those that it leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrapPlan {
    /// The system's directories and the parts of /etc that `policies/wrap.toml` lists.
    pub system: BTreeSet<PathBuf>,
    /// All others: toolchains of PATH, and under `permissive` the directories of the root.
    pub judged: BTreeSet<PathBuf>,
    /// Those of them that the person named: one that is refused is an error.
    pub asked: BTreeSet<PathBuf>,
    /// Caches of package managers: read, and written for the run alone.
    pub caches: BTreeSet<PathBuf>,
    /// Parts of toolchains that hold packages alone, and are not searched.
    pub packages: BTreeSet<PathBuf>,
    /// The directory of the node in which it is kept what is written to them, by [`layer_of`].
    pub kept: Option<PathBuf>,
    /// What the person named to be written, and the repository of a work tree.
    pub written: BTreeSet<PathBuf>,
    /// Ports inside that `--publish` names, and the addresses of the node that lead there.
    pub published: BTreeMap<u16, BTreeSet<SocketAddr>>,
    /// What was left out before anything was opened.
    pub dropped: Vec<OmittedMount>,
    /// What the person asks of the policy.
    pub requests: WrapOptions,
    /// By what they are shown.
    pub by: WrapEnforcement,
}

/// How `wrap` shows the node's directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WrapEnforcement {
    /// Mounts in namespaces of its own, as of a container.
    #[default]
    Mounts,
    /// Rules of Landlock in the caller's namespaces: nothing is mounted, and no cgroup made.
    Rules,
}

/// The name of the directory in which it is kept what is written to a cache.
pub fn layer_of(cache: &Path) -> String {
    let path = cache.strip_prefix("/").unwrap_or(cache);
    // No name has a slash, and the lists of caches have no percent sign.
    path.to_string_lossy().replace('/', "%")
}

impl WrapPlan {
    /// Whether a mount point is one of `wrap`'s own; the workspace is not.
    pub fn contains(&self, place: &Path) -> bool {
        let mut all = [&self.system, &self.judged, &self.caches, &self.written].into_iter();
        all.any(|places| places.contains(place))
    }

    /// Whether there are none: it is no bundle of `wrap`.
    pub fn is_empty(&self) -> bool {
        self.system.is_empty() && self.judged.is_empty() && self.written.is_empty()
    }

    /// The parts of a toolchain, below its mount point, that hold packages alone; the empty path for all of it.
    pub fn packages_below(&self, place: &Path) -> Vec<PathBuf> {
        // What the person named is looked at whatever it is.
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

    /// Whether what lies at a mount point is the node's system itself.
    pub fn is_system(&self, never: &NeverList, place: &Path, facts: &SourceFacts) -> bool {
        self.system.contains(place) && not_the_nodes(never, facts).is_none()
    }
}

/// Why what a listed name leads to is not the node's system, if it is not.
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
    // A link of the list's leads from /etc to what is no secret.
    let elsewhere = !facts.path.starts_with("/etc");
    if let Some(why) = never.refuses(&facts.path).filter(|_| elsewhere) {
        return Some(format!("it leads to {path}: {why}"));
    }
    by_link(never, facts)
}

/// Why a ceiling lets a path of the person's not be shown, or not be written; hiding needs nobody's leave.
///
/// To show more than the workspace is what `filesystem.mounts` of the ceiling says of an engine's mounts, and to write there
/// what it and `filesystem.write` say. Of this the policy itself says nothing: whoever calls `wrap` names the paths.
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
    /// A mount of `wrap`'s own: read-only unless it was named to be written, and where it is not the node's system judged like an engine's.
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

    /// A cache that cannot be had is none: programs make their own in the home, which goes with the run.
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

    /// What the person asked for by name is not left out in silence.
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

    /// Named to be written: judged as the workspace is.
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
    fn only_what_is_roots_alone_is_the_system() {
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
    fn packages_are_those_of_toolchains_and_of_nothing_that_was_named() {
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
            "no mount of it"
        );
        wrapped.asked.insert(path("/h/.pyenv"));
        assert!(below(&wrapped, "/h/.pyenv").is_empty());
    }

    #[test]
    fn a_ceiling_bounds_what_is_named() {
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
        // The policy's own word is about other mounts, and each ceiling counts.
        resolved.policy.filesystem.mounts = MountRule::Drop;
        assert_eq!(over(&resolved), [false, true]);
        let (mut second, ceiling) = (resolved.limits[0].clone(), resolved.ceilings[0].clone());
        second.filesystem.mounts = MountRule::Drop;
        resolved.limits.push(second);
        resolved.ceilings.push(ceiling);
        assert_eq!(over(&resolved), [true, true]);
    }
}
