//! Which mount of a plan has which source: looked up by device and inode, so that many mounts cost no more each.

use std::collections::HashMap;

use super::HeldSource;
use crate::plan::{FilesystemPlan, PlannedMount};

/// The mounts of a plan, by their sources.
pub(super) struct MountsBySource<'a>(HashMap<(u64, u64), Vec<&'a PlannedMount>>);

impl<'a> MountsBySource<'a> {
    pub(super) fn new(plan: &'a FilesystemPlan) -> Self {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for mount in &plan.mounts {
            if let Some(bind) = mount.bind() {
                let judged = (bind.judged.dev, bind.judged.ino);
                all.entry(judged).or_default().push(mount);
            }
        }
        Self(all)
    }

    /// The mounts of a source, in the plan's order.
    pub(super) fn of(&self, source: &HeldSource) -> impl Iterator<Item = &'a PlannedMount> + Clone {
        let judged = (source.dev, source.ino);
        let found = self.0.get(&judged).map_or(&[][..], Vec::as_slice);
        found.iter().copied().filter(move |m| source.is_of(m))
    }
}

/// Sources, by the mounts that may have them.
pub struct SourcesByMount(HashMap<(u64, u64), Vec<usize>>);

impl SourcesByMount {
    /// Of these sources.
    pub fn new(sources: &[HeldSource]) -> Self {
        let mut all: HashMap<_, Vec<_>> = HashMap::new();
        for (number, source) in sources.iter().enumerate() {
            let judged = (source.dev, source.ino);
            all.entry(judged).or_default().push(number);
        }
        Self(all)
    }

    /// The first source of a mount, as a number among the same `sources`.
    pub fn of(&self, sources: &[HeldSource], mount: &PlannedMount) -> Option<usize> {
        let bind = mount.bind()?;
        let found = self.0.get(&(bind.judged.dev, bind.judged.ino))?;
        let mut found = found.iter().copied();
        found.find(|number| sources.get(*number).is_some_and(|s| s.is_of(mount)))
    }
}
