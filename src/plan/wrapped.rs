//! PURE. The mounts of `wrap` itself: the node's system directories, and the decision on the others.
//!
//! The caller of `wrap` names the directories of PATH, and an agent may have made one in an earlier run. So only
//! entries of the built-in list skip the checks of an engine's mounts, and only while they are root's alone.

use std::borrow::Cow;
use std::path::Path;

use oci_spec::runtime::Mount;

use super::error::PlanError;
use super::facts::{FoundCredential, SourceFacts};
use super::file::FileKind;
use super::guard::protected_itself;
use super::judge::{by_link, by_nature, read_only, refusal};
use super::mount::BindAccess;
use super::never::NeverList;
use super::reason::MountReason;
use super::sorted_mounts::{MountRules, SortedMounts};
use super::warning::Warning;
use super::wrap_plan::{AgentMount, WrapEnforcement, WrapPlan};
use crate::policy::{Access, MountRule, Origin, ResolvedPolicy, SearchRule, Tool};

impl WrapPlan {
    /// A mount's source without what lies under an agent's directories, which are mounted over it: a mask there would hide the
    /// agent's own files. Rules of Landlock mount nothing.
    fn seen<'a>(&self, place: &Path, facts: &'a SourceFacts) -> Cow<'a, SourceFacts> {
        let mut over = self.agent.keys().filter(|over| over.starts_with(place));
        if self.by == WrapEnforcement::Rules || over.next().is_none() {
            return Cow::Borrowed(facts);
        }
        let mut facts = facts.clone();
        let is_under = |found: &FoundCredential| {
            let path = place.join(&found.path);
            let mut over = self.agent.keys().filter(|over| over.starts_with(place));
            over.any(|over| path.starts_with(over))
        };
        facts.inside.retain(|found| !is_under(found));
        Cow::Owned(facts)
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
                "the ceiling {ceiling} allows writing to the workspace at most: it needs workspace = \"read-write\", and \
                 mounts = \"keep\" or this path in filesystem.write"
            ))
        } else {
            None
        }
    })
}

/// Why a ceiling that an operator set lets an agent not have a login of the user's: it does not list it. Without such a ceiling the
/// login is the user's to give.
pub fn login_over_ceiling(resolved: &ResolvedPolicy, login: &str) -> Option<String> {
    let mut ceilings = resolved.ceilings.iter().zip(&resolved.limits);
    ceilings.find_map(|(ceiling, limit)| {
        let mut names = limit.filesystem.credentials.iter();
        let is_let = ceiling.set_by == Origin::Default || names.any(|name| name.as_str() == login);
        (!is_let).then(|| {
            format!("the ceiling {ceiling} does not have {login:?} in filesystem.credentials")
        })
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
        if let Some(own) = wrapped.agent.get(destination) {
            return self.agent(rules, own, mount, facts);
        }
        if wrapped.caches.contains(destination) {
            self.cache(rules, wrapped, mount, facts);
            return Ok(());
        }
        let mut why = MountReason::Programs;
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
            let words = match wrapped.asked.contains(destination) {
                true => "named by --read",
                false => "the node's, judged like an engine's mount",
            };
            why = words.to_owned().into();
        }
        self.keep_bind(mount, facts, BindAccess::ReadOnly, why);
        let seen = wrapped.seen(destination, facts);
        self.mask_inside(rules.never, destination, &seen);
        self.warn_of_rest(destination, facts, warnings);
        Ok(())
    }

    /// A directory that this program made for an agent, among the user's own settings and records. It has nothing but what was copied
    /// in and what sandboxes wrote, so that it is not searched: the agent is meant to have all of it.
    fn agent(
        &mut self,
        rules: MountRules<'_>,
        own: &AgentMount,
        mount: &Mount,
        facts: &SourceFacts,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        let refused = by_nature(rules.never, destination, facts).or_else(|| {
            let is_it = facts.kind == FileKind::Directory && facts.path == own.source;
            (!is_it).then(|| format!("{} is no directory of its own", facts.path.display()))
        });
        if let Some(why) = refused {
            return Err(PlanError::Named(destination.clone(), why));
        }
        let why = MountReason::Agent(own.why.clone());
        self.keep_bind(mount, facts, BindAccess::ReadWrite, why);
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
                (facts.kind != FileKind::Directory).then(|| "it is not a directory".to_owned())
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
            .or_else(|| home.map(|_| "it is a whole home directory".to_owned()))
            .or_else(|| protected_itself(rules, facts, Tool::Wrap));
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
    use std::path::PathBuf;

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
    fn what_lies_under_an_agents_directory_is_not_masked() {
        let mut facts = SourceFacts::plain("/h".into(), 1, 2, FileKind::Directory);
        let found = [".claude/.credentials.json", ".codex/auth.json"];
        let found = found.map(|path| FoundCredential::hidden(path.into(), String::new(), 1));
        facts.inside = found.into();
        let own = AgentMount {
            source: "/s".into(),
            why: String::new(),
        };
        let mut wrapped = WrapPlan {
            agent: [("/h/.claude".into(), own)].into(),
            ..WrapPlan::default()
        };
        let left = |wrapped: &WrapPlan, place: &str| -> Vec<PathBuf> {
            let seen = wrapped.seen(Path::new(place), &facts);
            seen.inside.iter().map(|one| one.path.clone()).collect()
        };
        assert_eq!(left(&wrapped, "/h"), [PathBuf::from(".codex/auth.json")]);
        // Of a mount in the agent's directory all counts, and where nothing is mounted over it.
        assert_eq!(left(&wrapped, "/h/.claude/local").len(), 2);
        wrapped.by = WrapEnforcement::Rules;
        assert_eq!(left(&wrapped, "/h").len(), 2);
    }

    #[test]
    fn a_login_is_the_users_to_give_within_what_an_operator_lists() {
        let mut resolved = crate::plan::tests::sample_resolved();
        let login = ".claude/.credentials.json";
        let over = |resolved: &ResolvedPolicy| login_over_ceiling(resolved, login).is_some();
        resolved.ceilings[0].set_by = Origin::Default;
        assert!(!over(&resolved));
        resolved.ceilings[0].set_by = Origin::Node;
        assert!(over(&resolved));
        resolved.limits[0].filesystem.credentials = [".codex/auth.json".parse().unwrap()].into();
        assert!(over(&resolved));
        resolved.limits[0].filesystem.credentials = [login.parse().unwrap()].into();
        assert!(!over(&resolved));
        // Each ceiling counts.
        let (mut second, mut ceiling) = (resolved.limits[0].clone(), resolved.ceilings[0].clone());
        second.filesystem.credentials.clear();
        ceiling.set_by = Origin::Flag;
        resolved.limits.push(second);
        resolved.ceilings.push(ceiling);
        assert!(over(&resolved));
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
