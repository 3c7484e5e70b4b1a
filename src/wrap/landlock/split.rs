//! SHELL. Rules around what the plan hides. A rule of Landlock on a directory gives all below it and nothing takes a part away again:
//! so a directory that is read and has something hidden in it gets no rule, and each of its other entries gets one.
//!
//! Such a directory is not listed, and an entry that is made in it later is refused. A directory that is written stays whole, since
//! what is hidden in it could be moved: there the run is refused ([`rules::shown`]).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::rules::{self, LandlockRule};
use crate::plan::{FileKind, Plan, SourceIdentity};
use crate::wrap::WrapRefusal;

/// Rules of one run: the kernel looks at all of them for each name that is opened.
const MOST: usize = 8192;

/// The rules for a plan, as the node's directories are now.
pub fn rules(plan: &Plan, own: &[PathBuf], terminals: &[PathBuf]) -> Result<Vec<LandlockRule>> {
    let hidden: Vec<PathBuf> = plan
        .filesystem
        .masked
        .iter()
        .filter_map(|p| p.canonicalize().ok())
        .collect();
    let mut around = SplitRules {
        hidden,
        rules: Vec::new(),
    };
    for rule in rules::of(plan, own, terminals) {
        match (
            rule.judged.is_some() && !rule.access.writes(),
            rule.path.canonicalize(),
        ) {
            (true, Ok(real)) => around.add(rule, &real)?,
            _ => around.rules.push(rule),
        }
    }
    Ok(around.rules)
}

/// Refuses what the rules would let be seen or written though the plan hides it.
pub fn check(plan: &Plan, rules: &[LandlockRule]) -> Result<()> {
    let shown = rules::shown(&real_names(plan), &with_real_names(rules), |path| {
        path.symlink_metadata().is_ok()
    });
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

/// By their own names: a home may be a link.
fn real_names(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let files = &mut plan.filesystem;
    for path in files.masked.iter_mut().chain(&mut files.readonly) {
        real_name(path);
    }
    plan
}

fn with_real_names(rules: &[LandlockRule]) -> Vec<LandlockRule> {
    let mut rules = rules.to_owned();
    rules.iter_mut().for_each(|rule| real_name(&mut rule.path));
    rules
}

fn real_name(path: &mut PathBuf) {
    if let Ok(real) = path.canonicalize() {
        *path = real;
    }
}

/// The hidden paths below a rule, and the rules around them.
struct SplitRules {
    /// What is hidden, without links.
    hidden: Vec<PathBuf>,
    rules: Vec<LandlockRule>,
}

impl SplitRules {
    /// Adds a rule for a path whose own name is `real`, or those for its parts.
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
            // It is gone by now, or leads elsewhere: what a link leads to has a rule of its own or none.
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

/// A file or a directory; nothing else is opened by a rule on the directory above.
fn judged(meta: &std::fs::Metadata) -> Option<SourceIdentity> {
    let kind = FileKind::of(meta.mode());
    let is_it = meta.is_file() || meta.is_dir();
    is_it.then(|| SourceIdentity {
        dev: meta.dev(),
        ino: meta.ino(),
        kind,
    })
}
