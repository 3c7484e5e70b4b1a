//! PURE. The files that the command may open: the plan's mounts as rules on the node's paths.

use std::path::{Path, PathBuf};

use crate::plan::{BindAccess, MountReason, Plan, ProgramMode, SourceIdentity};

/// The access that a rule grants, to a file or to everything below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandlockAccess {
    /// Reading and listing.
    Read,
    /// The same, and executing.
    ReadExecute,
    /// Reading, listing, writing, creating, removing and moving.
    ReadWrite,
    /// All of these.
    ReadWriteExecute,
    /// Reading and writing a device, and its ioctls.
    Device,
}

impl LandlockAccess {
    /// Whether it allows changes to files.
    pub const fn writes(self) -> bool {
        matches!(self, Self::ReadWrite | Self::ReadWriteExecute)
    }
}

/// Why a path has a rule. It reads as a phrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LandlockReason {
    /// The plan mounts it.
    Mount(MountReason),
    /// A directory of this run.
    Run,
    /// It is the node's own.
    Node,
    /// A device that every program may use.
    Device,
    /// The caller's terminal.
    Terminal,
}

impl std::fmt::Display for LandlockReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mount(why) => why.fmt(f),
            Self::Run => f.write_str("a directory of this run, removed afterwards"),
            Self::Node => f.write_str("the node's own"),
            Self::Device => f.write_str("for every program"),
            Self::Terminal => f.write_str("the caller's terminal"),
        }
    }
}

/// One Landlock rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandlockRule {
    /// The file or directory.
    pub path: PathBuf,
    /// The identity that the file must have, if it was judged.
    pub judged: Option<SourceIdentity>,
    /// The access that it grants.
    pub access: LandlockAccess,
    /// The reason.
    pub why: LandlockReason,
    /// Whether it is for one entry of a directory without a rule. A missing entry is no error.
    pub part: bool,
}

/// Devices for every program. `/dev/tty` is the process's own terminal.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// A path that the plan hides but Landlock cannot hide: a rule cannot take away what a rule above grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnhiddenPath {
    /// The path that would be visible.
    pub path: PathBuf,
    /// The directory whose rule makes it visible.
    pub within: PathBuf,
}

/// The rules for a plan. `own` are directories of this run, `terminals` are the command's input and output.
pub fn of(
    plan: &Plan,
    own: &[(PathBuf, SourceIdentity)],
    terminals: &[PathBuf],
) -> Vec<LandlockRule> {
    let rule = |path: &Path, access, why| LandlockRule {
        path: path.to_owned(),
        judged: None,
        access,
        why,
        part: false,
    };
    let mut rules: Vec<LandlockRule> = plan
        .filesystem
        .mounts
        .iter()
        // The node's own names and resolvers are not visible.
        .filter(|mount| !plan.filesystem.replaced.contains(&mount.destination))
        .filter_map(|mount| {
            let bind = mount.bind()?;
            let writes = bind.access != BindAccess::ReadOnly;
            Some(LandlockRule {
                path: bind.source.clone(),
                judged: Some(bind.judged),
                access: match (writes, bind.programs) {
                    (false, ProgramMode::Refused) => LandlockAccess::Read,
                    (false, ProgramMode::Run) => LandlockAccess::ReadExecute,
                    (true, ProgramMode::Refused) => LandlockAccess::ReadWrite,
                    (true, ProgramMode::Run) => LandlockAccess::ReadWriteExecute,
                },
                why: LandlockReason::Mount(mount.why.clone()),
                part: false,
            })
        })
        .collect();
    rules.extend(own.iter().map(|(path, identity)| LandlockRule {
        judged: Some(*identity),
        ..rule(path, LandlockAccess::ReadWriteExecute, LandlockReason::Run)
    }));
    // All of /proc: a rule needs an existing directory, and each process has its own.
    rules.push(rule(
        Path::new("/proc"),
        LandlockAccess::Read,
        LandlockReason::Node,
    ));
    let devices = DEVICES.iter().map(Path::new);
    rules.extend(devices.map(|p| rule(p, LandlockAccess::Device, LandlockReason::Device)));
    let terminals = terminals.iter().map(PathBuf::as_path);
    rules.extend(terminals.map(|p| rule(p, LandlockAccess::Device, LandlockReason::Terminal)));
    rules
}

/// The plan's hidden paths that these rules make visible, and read-only paths that they make writable; `exists` tests a
/// path.
pub fn shown(
    plan: &Plan,
    rules: &[LandlockRule],
    exists: impl Fn(&Path) -> bool,
) -> Vec<UnhiddenPath> {
    let files = &plan.filesystem;
    let within = |path: &Path, writes: bool| {
        let mut judged = rules.iter().filter(|rule| rule.judged.is_some());
        let found =
            judged.find(|rule| path.starts_with(&rule.path) && (!writes || rule.access.writes()));
        found.map(|rule| rule.path.clone())
    };
    let hidden = files.masked.iter().map(|path| (path, false));
    let readonly = files.readonly.iter().map(|path| (path, true));
    // Mounts with less access than the one above: a rule for them takes nothing away.
    let less = rules
        .iter()
        .filter(|rule| rule.judged.is_some() && !rule.part && !rule.access.writes())
        .map(|rule| (&rule.path, true));
    let readonly = readonly.chain(less);
    hidden
        .chain(readonly)
        .filter_map(|(path, writes)| {
            let within = within(path, writes)?;
            exists(path).then(|| UnhiddenPath {
                path: path.clone(),
                within,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, judged: bool, access: LandlockAccess) -> LandlockRule {
        let kind = crate::plan::FileKind::Directory;
        LandlockRule {
            path: path.into(),
            judged: judged.then_some(SourceIdentity {
                dev: 1,
                ino: 2,
                kind,
            }),
            access,
            why: LandlockReason::Node,
            part: false,
        }
    }

    #[test]
    fn what_lies_below_a_rule_cannot_be_hidden() {
        let mut plan = crate::plan::tests::sample();
        plan.filesystem.masked = vec![
            "/w/.netrc".into(),
            "/home/me/.ssh".into(),
            "/proc/keys".into(),
        ];
        plan.filesystem.readonly = vec!["/w/.git/hooks".into(), "/usr/lib/x".into()];
        let rules = [
            rule("/w", true, LandlockAccess::ReadWriteExecute),
            rule("/usr", true, LandlockAccess::ReadExecute),
            rule("/w/common/hooks", true, LandlockAccess::Read),
            rule("/proc", false, LandlockAccess::Read),
        ];
        let found = |there: &dyn Fn(&Path) -> bool| -> Vec<PathBuf> {
            let found = shown(&plan, &rules, there);
            found.into_iter().map(|shown| shown.path).collect()
        };
        assert_eq!(
            found(&|_| true),
            ["/w/.netrc", "/w/.git/hooks", "/w/common/hooks"].map(PathBuf::from)
        );
        assert!(found(&|_| false).is_empty());
    }
}
