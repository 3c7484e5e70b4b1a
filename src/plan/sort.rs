//! PURE. The decision on each mount: its access, or the reason to leave it out, and the masks in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use super::anonymous::is_anonymous;
use super::judge::{is_kernel_place, read_only, refusal};
use super::mounts::{Judged, PlannedMount, Pruned};
use super::never::{Meant, Never};
use super::options::{bounded, has_size, keep, only};
use super::support::support;
use super::volumes::{Pod, Volume, refused, volume};
use super::{Home, Inside, PlanError, SeenIn, SourceFacts};
use crate::policy::{Access, MountRule, Policy, SearchRule};

/// Why the workspace's mount is there.
const WORKSPACE: &str = "the workspace";

/// Why the other binds and volumes are there.
const OTHERS: &str = "the policy keeps other mounts";

/// Why a whole home directory is not written.
const HOME: &str = "a whole home directory: at most the working directory in it is written, where that is the workspace's and does not begin with a dot";

/// A mount's place as the engine names it.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) path: &'a Path,
    pub(super) is_workspace: bool,
}

/// What mounts are judged by.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) never: &'a Never,
    pub(super) meant: &'a Meant,
    pub(super) policy: &'a Policy,
    /// The pod that a kubelet made it for.
    pub(super) pod: Option<&'a Pod>,
    /// The ids of the container and of those whose System V objects and shared memory it shares.
    pub(super) ipc: &'a BTreeSet<&'a str>,
    /// The working directory of the first process.
    pub(super) cwd: &'a Path,
}

/// What became of the mounts so far.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) kept: Vec<PlannedMount>,
    pub(super) pruned: Vec<Pruned>,
    pub(super) masked: BTreeSet<PathBuf>,
    pub(super) found: BTreeSet<PathBuf>,
    pub(super) seen: Vec<SeenIn>,
    pub(super) pinned: BTreeSet<PathBuf>,
    pub(super) replaced: BTreeSet<PathBuf>,
    /// What git is told by each of these files.
    pub(super) excludes: BTreeMap<PathBuf, BTreeSet<PathBuf>>,
    /// Mount point of the workspace, once it is kept.
    pub(super) workspace: Option<PathBuf>,
}

impl Sorted {
    /// A mount that is no bind: the kernel's own file systems, on their usual places only.
    pub(super) fn kernel(&mut self, mount: &Mount, most: u64) {
        let kind = mount.typ().as_deref().unwrap_or("none");
        let destination = mount.destination();
        let asked = mount.options().as_deref().unwrap_or_default();
        let place = destination.to_str().unwrap_or("");
        let options = match (kind, place) {
            ("proc", "/proc") => only(asked, &[], &["nosuid", "nodev", "noexec"]),
            ("sysfs", "/sys") => only(asked, &[], &["nosuid", "nodev", "noexec", "ro"]),
            ("cgroup" | "cgroup2", "/sys/fs/cgroup") => {
                only(asked, &[], &["nosuid", "nodev", "noexec", "ro"])
            }
            ("devpts", "/dev/pts") => keep(asked, &["nosuid", "noexec"]),
            ("mqueue", "/dev/mqueue") => only(asked, &[], &["nosuid", "nodev", "noexec"]),
            ("tmpfs", "/dev") => bounded(keep(asked, &["nosuid", "noexec"]), most),
            ("tmpfs", "/dev/shm") if has_size(asked) => keep(asked, &["nosuid", "nodev"]),
            ("tmpfs", _) if !is_kernel_place(destination) && place != "/" => {
                bounded(keep(asked, &["nosuid", "nodev"]), most)
            }
            _ => {
                self.prune(mount, &format!("a mount of type {kind:?} at this place is not among those that a policy keeps"));
                return;
            }
        };
        // Either version of cgroups is what is made read-only at the end: one over the other would leave one that is not.
        let family = |kind: &str| kind.strip_suffix('2').unwrap_or(kind).to_owned();
        if self
            .kept
            .iter()
            .any(|m| m.destination == *destination && family(&m.kind) == family(kind))
        {
            self.prune(mount, "the same file system is mounted there already");
            return;
        }
        self.kept.push(PlannedMount {
            destination: destination.clone(),
            kind: kind.to_owned(),
            source: mount
                .source()
                .clone()
                .unwrap_or_else(|| PathBuf::from(kind)),
            options,
            why: "the engine's".to_owned(),
            judged: None,
            private: false,
        });
    }

    pub(super) fn bind(
        &mut self,
        rules: Rules<'_>,
        named: Named<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        warnings: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        let destination = mount.destination();
        let Named { path, is_workspace } = named;
        let Rules {
            never,
            meant: _,
            policy,
            pod,
            ipc: _,
            cwd: _,
        } = rules;
        let place = path.to_str().unwrap_or("");
        if matches!(
            destination.to_str(),
            Some("/etc/hosts" | "/etc/resolv.conf")
        ) {
            // Whatever its source is: the network wall's file takes its place.
            self.replaced.insert(destination.clone());
            return Ok(());
        }
        let asked_rw = !mount
            .options()
            .iter()
            .flatten()
            .any(|o| matches!(o.as_str(), "ro" | "rro"));
        if let Some((why, writable)) = support(place, rules, facts) {
            self.keep_bind(mount, facts, writable && asked_rw, why.to_owned());
            return Ok(());
        }
        let volume = volume(pod, facts);
        if let Some(why) = refused(rules, destination, volume, facts) {
            if is_workspace {
                return Err(workspace_refused(destination, facts, why));
            }
            self.prune(mount, &why);
            return Ok(());
        }
        if matches!(volume, Some(Volume::Secret | Volume::Projected)) {
            self.secret(mount, facts, is_workspace);
            return Ok(());
        }
        match access(policy, volume, named) {
            Access::None => self.prune(
                mount,
                &format!("policy '{}' keeps {}", policy.name, kept_words(policy)),
            ),
            granted => {
                if volume.is_none() {
                    warn_of_place(rules, path, facts, warnings);
                }
                let writable = asked_rw && granted == Access::ReadWrite;
                match &facts.home {
                    Some(home) if writable && is_workspace => {
                        let part = part_of(rules, path, home);
                        self.home(rules, mount, facts, part)?;
                    }
                    _ if is_workspace => self.workspace(rules, mount, facts, writable)?,
                    _ if volume == Some(Volume::Scratch) => {
                        let writable = writable && read_only(never, facts).is_none();
                        self.scratch(policy, mount, facts, writable);
                    }
                    _ if asked_rw && granted == Access::ReadOnly && is_anonymous(facts) => {
                        self.anonymous(mount, facts);
                    }
                    _ => self.other(rules, mount, facts, (granted, writable)),
                }
                self.mask_inside(never, destination, facts);
                self.tell_git(policy, destination, facts)?;
                match (&facts.unsearched, policy.filesystem.search) {
                    (Some(why), SearchRule::Complete) => {
                        return Err(PlanError::Unsearched {
                            destination: destination.clone(),
                            source_path: facts.path.clone(),
                            why: why.clone(),
                        });
                    }
                    _ => self.warn_of_rest(destination, facts, warnings),
                }
            }
        }
        Ok(())
    }

    fn workspace(
        &mut self,
        rules: Rules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        writable: bool,
    ) -> Result<(), PlanError> {
        if let Some(closed) = read_only(rules.never, facts).filter(|_| writable) {
            let why = format!(
                "{closed}; no container writes it: use a directory of its own, or mount it read-only"
            );
            return Err(workspace_refused(mount.destination(), facts, why));
        }
        self.keep_bind(mount, facts, writable, WORKSPACE.to_owned());
        self.workspace = Some(mount.destination().clone());
        Ok(())
    }

    /// A whole home directory: read-only, but for the working directory in it. One that begins with a dot is no project,
    /// and may be the image's choice: what is in it runs as the person later on.
    fn home(
        &mut self,
        rules: Rules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        part: HomePart<'_>,
    ) -> Result<(), PlanError> {
        // Root's is refused as the workspace, as everything that is never written.
        if part.path.as_os_str().is_empty() && read_only(rules.never, facts).is_some() {
            return self.workspace(rules, mount, facts, true);
        }
        self.keep_bind(mount, facts, false, HOME.to_owned());
        let Some(working) = part.facts else {
            // What is not there, or behind a link, is not made and not followed.
            self.workspace = Some(mount.destination().clone());
            return Ok(());
        };
        let mut below = mount.clone();
        below.set_destination(mount.destination().join(part.path));
        if let Some(why) = refusal(rules.never, rules.meant, below.destination(), working) {
            return Err(workspace_refused(below.destination(), working, why));
        }
        if part.path.as_os_str().as_encoded_bytes().starts_with(b".") {
            self.workspace = Some(mount.destination().clone());
            return Ok(());
        }
        self.workspace(rules, &below, working, true)
    }

    /// A mount beside the workspace, to which the policy gives this access.
    fn other(
        &mut self,
        rules: Rules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        (granted, writable): (Access, bool),
    ) {
        let closed = read_only(rules.never, facts).filter(|_| granted == Access::ReadWrite);
        let why = match (&closed, &facts.home) {
            (Some(closed), _) => format!("{OTHERS}, but nobody writes it: {closed}"),
            (None, Some(_)) if writable => HOME.to_owned(),
            _ => OTHERS.to_owned(),
        };
        let writable = writable && closed.is_none() && facts.home.is_none();
        self.keep_bind(mount, facts, writable, why);
    }

    pub(super) fn keep_bind(
        &mut self,
        mount: &Mount,
        facts: &SourceFacts,
        writable: bool,
        why: String,
    ) {
        let asked = mount.options().as_deref().unwrap_or_default();
        let mut options: Vec<String> = vec![
            "bind".into(),
            "rprivate".into(),
            "nosuid".into(),
            "nodev".into(),
        ];
        if asked.iter().any(|o| o == "noexec") {
            options.push("noexec".into());
        }
        options.push(if writable { "rw" } else { "ro" }.into());
        self.kept.push(PlannedMount {
            destination: mount.destination().clone(),
            kind: "bind".to_owned(),
            source: facts.path.clone(),
            options,
            why,
            judged: Some(Judged {
                dev: facts.dev,
                ino: facts.ino,
                kind: facts.kind,
            }),
            private: false,
        });
    }

    pub(super) fn mask_inside(&mut self, never: &Never, destination: &Path, facts: &SourceFacts) {
        for name in facts.all_names() {
            let below = never.below(name).map(|(rest, _)| rest);
            let below = below.filter(|rest| !facts.linked.contains(*rest));
            self.masked.extend(below.map(|rest| destination.join(rest)));
        }
        let hidden = facts.inside.iter().filter(|i| !i.covered);
        for inside in hidden.clone() {
            let directory = destination.join(&inside.path);
            if !inside.seen.is_empty() {
                self.seen.push(SeenIn {
                    directory: directory.clone(),
                    files: inside.seen.clone(),
                });
            }
            self.found.insert(directory);
        }
        let pinned = hidden.flat_map(Inside::named_by);
        self.pinned.extend(pinned.map(|d| destination.join(d)));
        self.masked.extend(self.found.iter().cloned());
    }

    pub(super) fn warn_of_rest(
        &self,
        destination: &Path,
        facts: &SourceFacts,
        warnings: &mut Vec<String>,
    ) {
        if let Some(why) = &facts.unsearched {
            warnings.push(format!(
                "{}: not all of it was searched for sockets and credentials ({why}); those found are masked",
                destination.display()
            ));
        }
    }

    pub(super) fn prune(&mut self, mount: &Mount, why: &str) {
        // What it was to cover stays covered: /dev/null over a project's .env is how secrets are kept from a container.
        let over = |m: &PlannedMount| {
            m.judged.is_some() && mount.destination().starts_with(&m.destination)
        };
        if self.kept.iter().any(over) {
            self.masked.insert(mount.destination().clone());
        }
        self.pruned.push(Pruned {
            destination: mount.destination().clone(),
            source: mount.source().clone().unwrap_or_default(),
            why: why.to_owned(),
        });
    }
}

/// A credential is known by its names on the node. What has another one there, and is mounted where programs look for
/// credentials, is the caller's choice: the container's own key, say.
fn warn_of_place(rules: Rules<'_>, place: &Path, facts: &SourceFacts, warnings: &mut Vec<String>) {
    if rules.never.credential_above(place, rules.meant).is_some() {
        warnings.push(format!(
            "{} is where programs look for credentials: what {} has is seen there, since its name on the node is not that of one",
            place.display(),
            facts.path.display()
        ));
    }
}

/// Which access the policy gives a bind mount that is on no list.
fn access(policy: &Policy, volume: Option<Volume>, named: Named<'_>) -> Access {
    let rules = &policy.filesystem;
    if named.is_workspace {
        return rules.workspace;
    }
    let mut write = rules.write.iter();
    let listed = write.any(|w| Path::new(w.as_str()) == named.path);
    match rules.mounts {
        _ if volume == Some(Volume::Scratch) => Access::ReadWrite,
        // A kubelet rewrites it from outside; an image stays as it is.
        MountRule::ReadOnly | MountRule::Keep
            if matches!(volume, Some(Volume::Settings | Volume::Image)) =>
        {
            Access::ReadOnly
        }
        MountRule::Drop => Access::None,
        MountRule::ReadOnly if listed => Access::ReadWrite,
        MountRule::ReadOnly => Access::ReadOnly,
        MountRule::Keep => Access::ReadWrite,
    }
}

fn kept_words(policy: &Policy) -> &'static str {
    match policy.filesystem.workspace {
        Access::None => "no mounts",
        Access::ReadOnly | Access::ReadWrite => "the workspace alone",
    }
}

fn workspace_refused(destination: &Path, facts: &SourceFacts, why: String) -> PlanError {
    PlanError::WorkspaceRefused {
        destination: destination.to_owned(),
        source_path: facts.path.clone(),
        why,
    }
}

/// The part of a home directory that is worked in.
#[derive(Clone, Copy)]
struct HomePart<'a> {
    /// Relative to the home.
    path: &'a Path,
    /// What is there, if it is a directory.
    facts: Option<&'a SourceFacts>,
}

/// The part of a home directory, mounted at `place`, that is worked in; none where the working directory is elsewhere, or
/// the home itself.
fn part_of<'a>(rules: Rules<'a>, place: &Path, home: &'a Home) -> HomePart<'a> {
    let path = rules.cwd.strip_prefix(place).unwrap_or(Path::new(""));
    let facts = home.working.as_deref();
    HomePart {
        path,
        facts: facts.filter(|_| !path.as_os_str().is_empty()),
    }
}
