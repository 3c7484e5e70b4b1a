//! SHELL. Rules around paths that the plan hides. A Landlock rule on a directory grants access to everything below it,
//! and no other rule can take that back. So a readable directory with hidden entries gets no rule, and each of its
//! other entries gets one. Mounts below it are hidden, too: Landlock goes up through mount points, while by namespaces they would
//! not be there, so that nothing searches them.
//!
//! Such a directory cannot be listed, and entries made in it later are refused. A writable directory is not split,
//! since its hidden entries could be moved: the run is refused ([`rules::shown`]).

use std::collections::BTreeSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::rules::{self, LandlockRule};
use crate::kernel::mountinfo::{MountLine, MountTable};
use crate::plan::never::NeverList;
use crate::plan::{FileKind, FileSystem, Plan, SourceIdentity};
use crate::runtime::input::descriptors::is_memory_device;
use crate::sys::path::RealPaths;
use crate::sys::procfs;
use crate::wrap::error::WrapRefusal;

/// Most rules of one run: the kernel checks all of them for each name that is opened.
const MOST: usize = 8192;

/// The rules for a plan, for the node's current directories.
pub fn rules(
    plan: &Plan,
    own: &[(PathBuf, SourceIdentity)],
    terminals: &[PathBuf],
    real: &RealPaths,
) -> Result<Vec<LandlockRule>> {
    let hidden: Vec<PathBuf> = (plan.filesystem.masked.iter())
        .filter_map(|path| real.of(path))
        .collect();
    let all = rules::of(plan, own, terminals);
    let named: Vec<PathBuf> = all.iter().filter_map(|rule| real.of(&rule.path)).collect();
    let mounts = mounted_below(&named)?;
    let mut around = SplitRules {
        hidden,
        mounts,
        rules: Vec::new(),
    };
    for rule in all {
        match (
            rule.judged.is_some() && !rule.access.writes(),
            real.of(&rule.path),
        ) {
            (true, Some(real)) => around.add(rule, &real)?,
            _ => around.rules.push(rule),
        }
    }
    Ok(around.rules)
}

/// Directories that are mounted below these and not among them.
fn mounted_below(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let table = mount_table()?;
    let points: BTreeSet<&PathBuf> = table.mounts().iter().map(|line| &line.point).collect();
    let is_below = |point: &PathBuf| {
        // It has a rule of its own, and what is mounted below it is the kernel's.
        let is_kernels = point.starts_with("/proc");
        !is_kernels && !named.contains(point) && named.iter().any(|one| point.starts_with(one))
    };
    let below = points
        .into_iter()
        .filter(|point| is_below(point) && point.is_dir());
    Ok(below.cloned().collect())
}

fn mount_table() -> Result<MountTable> {
    let table = procfs::bytes("/proc/self/mountinfo").context("read the mounts")?;
    Ok(MountTable::parse(&table))
}

/// Refuses a written directory below which the kernel's own file systems are mounted: its settings, and devices.
fn refuse_kernels_mounts(rules: &[LandlockRule]) -> Result<()> {
    let table = mount_table()?;
    let never = NeverList::builtin();
    let is_kernels = |line: &&MountLine| {
        let kind = line.kind.clone();
        never.kernel(&FileSystem { kind, magic: 0 }).is_some()
    };
    let written = rules.iter().filter(|rule| rule.access.writes());
    for rule in written {
        let mut below = table
            .mounts()
            .iter()
            .filter(|line| line.point.starts_with(&rule.path));
        let is_closed = |line: &&MountLine| !is_harmless_device(&line.point);
        if let Some(line) = below.find(|line| is_kernels(line) && is_closed(line)) {
            let why = format!(
                "{} is mounted at {:?}, in {:?}, which is written: unmount it, or use the full walls",
                line.kind, line.point, rule.path
            );
            bail!(WrapRefusal::NotByLandlock(why));
        }
    }
    Ok(())
}

/// `/dev/null` over a file hides it.
fn is_harmless_device(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_ok_and(|found| found.file_type().is_char_device() && is_memory_device(found.rdev()))
}

/// Refuses rules that make a hidden path visible, or a read-only one writable.
pub fn check(plan: &Plan, rules: &[LandlockRule], real: &RealPaths) -> Result<()> {
    let (plan, rules) = (real_names(plan, real), with_real_names(rules, real));
    refuse_kernels_mounts(&rules)?;
    let shown = rules::shown(&plan, &rules, |path| path.symlink_metadata().is_ok());
    let Some(first) = shown.first() else {
        return Ok(());
    };
    let more = match shown.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let why = format!(
        "{:?}{more} is hidden or read-only, and a rule of Landlock on {:?}, which is written, gives all that is below it: move it out of \
         there, or use the full walls",
        first.path, first.within
    );
    bail!(WrapRefusal::NotByLandlock(why));
}

/// The plan with links resolved: a home may be a link.
fn real_names(plan: &Plan, real: &RealPaths) -> Plan {
    let mut plan = plan.clone();
    let files = &mut plan.filesystem;
    for path in files.masked.iter_mut().chain(&mut files.readonly) {
        real_name(path, real);
    }
    plan
}

fn with_real_names(rules: &[LandlockRule], real: &RealPaths) -> Vec<LandlockRule> {
    let mut rules = rules.to_owned();
    for rule in &mut rules {
        real_name(&mut rule.path, real);
    }
    rules
}

fn real_name(path: &mut PathBuf, real: &RealPaths) {
    if let Some(real) = real.of(path) {
        *path = real;
    }
}

/// The hidden paths, and the rules around them.
struct SplitRules {
    /// Hidden paths, without links.
    hidden: Vec<PathBuf>,
    /// Mount points without a rule of their own.
    mounts: Vec<PathBuf>,
    rules: Vec<LandlockRule>,
}

impl SplitRules {
    /// Adds a rule for a path (`real` without links), or rules for its entries.
    fn add(&mut self, rule: LandlockRule, real: &Path) -> Result<()> {
        if self.hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Ok(());
        }
        let is_below = |point: &&PathBuf| point.starts_with(real) && *point != real;
        if !self.hidden.iter().any(|hidden| hidden.starts_with(real))
            && self.mounts.iter().find(is_below).is_none()
        {
            self.rules.push(rule);
            return Ok(());
        }
        let entries = std::fs::read_dir(real);
        let entries =
            entries.with_context(|| format!("list {real:?}, in which something is hidden"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list {real:?}"))?;
            let path = entry.path();
            if self.mounts.contains(&path) {
                continue;
            }
            // It is gone, or not a file or directory. A link's target has its own rule or none.
            let Some(judged) = path.symlink_metadata().ok().and_then(|meta| judged(&meta)) else {
                continue;
            };
            let part = LandlockRule {
                path: path.clone(),
                judged: Some(judged),
                access: rule.access,
                why: rule.why.clone(),
                part: true,
            };
            self.add(part, &path)?;
            if self.rules.len() > MOST {
                let why = format!(
                    "something is hidden in {real:?}, and its other entries are too many for rules of their own"
                );
                bail!(WrapRefusal::NotByLandlock(why));
            }
        }
        Ok(())
    }
}

/// Where the rules let the command write.
pub fn writable(rules: &[LandlockRule]) -> Vec<PathBuf> {
    let writable = rules.iter().filter(|rule| rule.access.writes());
    // By the names that the kernel reports for open files.
    writable
        .map(|rule| {
            rule.path
                .canonicalize()
                .unwrap_or_else(|_| rule.path.clone())
        })
        .collect()
}

/// The identity of a file or directory; rules never open anything else below a directory.
pub fn judged(meta: &std::fs::Metadata) -> Option<SourceIdentity> {
    let kind = FileKind::of(meta.mode());
    let is_it = meta.is_file() || meta.is_dir();
    is_it.then(|| SourceIdentity {
        dev: meta.dev(),
        ino: meta.ino(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::rules::LandlockAccess;
    use super::*;
    use crate::plan::tests::sample;
    use crate::plan::{BindAccess, BindMount, MappedIds, MountKind, MountReason};
    use crate::plan::{PlannedMount, ProgramMode};
    use crate::probe::TestDir;

    /// A home with secrets that is read, and a workspace with one that is written.
    struct Node(TestDir);

    impl Node {
        fn new() -> Self {
            let base = TestDir::unique();
            for directory in ["home/.ssh", "home/.config/app", "home2", "work"] {
                fs::create_dir_all(base.0.join(directory)).unwrap();
            }
            for file in [
                "home/.ssh/id",
                "home/.config/token",
                "home/notes",
                "work/.netrc",
            ] {
                fs::write(base.0.join(file), "").unwrap();
            }
            symlink(".ssh", base.0.join("home/link")).unwrap();
            nix::unistd::mkfifo(&base.0.join("home/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            Self(base)
        }

        /// A plan that shows these directories with this access, and hides these paths.
        fn plan(&self, shown: &[(&str, BindAccess)], hidden: &[&str]) -> Plan {
            let mut plan = sample();
            let mounts = shown.iter().map(|(name, access)| {
                let source = self.0.0.join(name);
                PlannedMount {
                    destination: source.clone(),
                    kind: MountKind::Bind(BindMount {
                        judged: judged(&fs::metadata(&source).unwrap()).unwrap(),
                        source,
                        access: *access,
                        programs: ProgramMode::Run,
                        ids: MappedIds::Node,
                    }),
                    why: MountReason::Other,
                }
            });
            plan.filesystem.mounts = mounts.collect();
            plan.filesystem.masked = hidden.iter().map(|name| self.0.0.join(name)).collect();
            plan
        }

        /// The rules of a plan for paths here: their names, and whether they are for a part.
        fn rules(&self, plan: &Plan) -> Vec<(String, bool)> {
            let all = rules(plan, &[], &[], &RealPaths::default()).unwrap();
            let own = all.iter().filter(|rule| rule.judged.is_some());
            let own = own.map(|rule| {
                let found = fs::symlink_metadata(&rule.path).unwrap();
                assert_eq!(rule.judged, judged(&found), "{:?}", rule.path);
                let name = rule.path.strip_prefix(&self.0.0).unwrap();
                (name.display().to_string(), rule.part)
            });
            let mut own: Vec<_> = own.collect();
            own.sort();
            own
        }
    }

    fn parts(names: &[&str]) -> Vec<(String, bool)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), true))
            .collect()
    }

    fn whole(names: &[&str]) -> Vec<(String, bool)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), false))
            .collect()
    }

    #[test]
    fn a_read_directory_with_hidden_entries_has_rules_for_its_other_entries_alone() {
        let node = Node::new();
        let home = [("home", BindAccess::ReadOnly)];
        let of = |hidden: &[&str]| node.rules(&node.plan(&home, hidden));
        assert_eq!(of(&[]), whole(&["home"]));
        // Neither the link nor the pipe: what a link leads to has a rule or none.
        assert_eq!(
            of(&["home/.ssh", "home/.config/token"]),
            parts(&["home/.config/app", "home/notes"])
        );
        assert_eq!(of(&["home/.ssh"]), parts(&["home/.config", "home/notes"]));
        assert_eq!(
            of(&["home/.ssh/id"]),
            parts(&["home/.config", "home/notes"])
        );
        // The directory itself, or one that it is in.
        assert_eq!(of(&["home"]), []);
        assert_eq!(of(&["", "home/notes"]), []);
        // Another name that begins like it, and one that is not there.
        assert_eq!(of(&["home2", "home/missing"]), whole(&["home"]));
        // A link is hidden with what it leads to.
        assert_eq!(of(&["home/link"]), parts(&["home/.config", "home/notes"]));
    }

    #[test]
    fn the_rules_for_parts_grant_what_the_rule_for_the_directory_would() {
        let node = Node::new();
        let plan = node.plan(&[("home", BindAccess::ReadOnly)], &["home/.ssh"]);
        let all = rules(&plan, &[], &[], &RealPaths::default()).unwrap();
        let parts: Vec<_> = all.iter().filter(|rule| rule.part).collect();
        assert_eq!(parts.len(), 2);
        for rule in parts {
            assert_eq!(rule.access, LandlockAccess::ReadExecute, "{:?}", rule.path);
        }
    }

    #[test]
    fn a_written_directory_with_hidden_entries_is_not_split_and_refused() {
        let node = Node::new();
        let shown = [
            ("home", BindAccess::ReadOnly),
            ("work", BindAccess::ReadWrite),
        ];
        for (hidden, found, refused) in [
            (&["home/.ssh"][..], false, false),
            (&["work/.netrc"], true, true),
            // One that is not there is refused by its name when it is made.
            (&["work/missing"], true, false),
        ] {
            let plan = node.plan(&shown, hidden);
            let names = node.rules(&plan);
            assert!(names.contains(&("work".to_owned(), false)), "{names:?}");
            assert_eq!(names.contains(&("home".to_owned(), false)), found);
            let real = RealPaths::default();
            let all = rules(&plan, &[], &[], &real).unwrap();
            let checked = check(&plan, &all, &real);
            assert_eq!(checked.is_err(), refused, "{hidden:?}");
            if let Err(why) = checked {
                assert!(why.to_string().contains("work/.netrc"), "{why}");
            }
        }
    }
}
