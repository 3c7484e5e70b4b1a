//! SHELL. Rules around paths that the plan hides. A Landlock rule on a directory grants access to everything below it,
//! and no other rule can take that back. So a readable directory with hidden entries gets no rule, and each of its
//! other entries gets one.
//!
//! Such a directory cannot be listed, and entries made in it later are refused. A writable directory is not split,
//! since its hidden entries could be moved: the run is refused ([`rules::shown`]).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::rules::{self, LandlockRule};
use crate::plan::{FileKind, Plan, SourceIdentity};
use crate::sys::path::RealPaths;
use crate::wrap::WrapRefusal;

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
    let mut around = SplitRules {
        hidden,
        rules: Vec::new(),
    };
    for rule in rules::of(plan, own, terminals) {
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

/// Refuses rules that make a hidden path visible, or a read-only one writable.
pub fn check(plan: &Plan, rules: &[LandlockRule], real: &RealPaths) -> Result<()> {
    let (plan, rules) = (real_names(plan, real), with_real_names(rules, real));
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
    rules: Vec<LandlockRule>,
}

impl SplitRules {
    /// Adds a rule for a path (`real` without links), or rules for its entries.
    fn add(&mut self, rule: LandlockRule, real: &Path) -> Result<()> {
        if self.hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Ok(());
        }
        if !self.hidden.iter().any(|hidden| hidden.starts_with(real)) {
            self.rules.push(rule);
            return Ok(());
        }
        let entries = std::fs::read_dir(real);
        let entries =
            entries.with_context(|| format!("list {real:?}, in which something is hidden"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("list {real:?}"))?;
            let path = entry.path();
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
