//! SHELL. What a run has written into git directories and what stays, since the project's own tools write it too: the user is told.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::hooks_path::HooksLook;
use super::quarantine::Quarantine;
use super::replaced::{self, REVIEW};
use super::{CleanedSource, lost_remotes};
use crate::plan::ProtectedFiles;
use crate::policy::typed_path;

/// The most work trees of a source whose hooks are looked at.
const MOST_TREES: usize = 1000;

impl CleanedSource<'_> {
    /// Says what stays in these git directories.
    pub(super) fn say_what_stays(
        &self,
        now: &ProtectedFiles,
        gits: &BTreeSet<&PathBuf>,
        quarantine: &mut Quarantine,
    ) {
        let (root, source) = (self.root.as_fd(), self.source.as_path());
        let lost = lost_remotes::lines(root, source, self.watched);
        quarantine.fail_some(lost, "more remotes have lost their address");
        let led = now
            .found
            .iter()
            .filter_map(|one| self.file(one).leads_by_a_link());
        quarantine.fail_some(led, "more work trees lead by way of a link");
        // The user's own first: the workload makes as many as it likes.
        let known = self.watched.all_gits();
        let (own, new): (Vec<&PathBuf>, Vec<&PathBuf>) =
            gits.iter().partition(|git| known.contains(**git));
        let gits = [own, new].concat();
        self.say_hooks(now, &gits, quarantine);
        self.say_branches(&gits, quarantine);
    }

    fn say_hooks(&self, now: &ProtectedFiles, gits: &[&PathBuf], quarantine: &mut Quarantine) {
        let Some(begun) = self.begun else { return };
        quarantine.begin();
        let tops = self.watched.tops.iter().chain(&now.tops);
        let tops: BTreeSet<&Path> = tops.map(|top| top.path.as_path()).collect();
        let looked_at: BTreeSet<&Path> = tops.iter().copied().take(MOST_TREES).collect();
        let look = HooksLook {
            root: self.root.as_fd(),
            source: &self.source,
            watched: self.watched,
            begun,
        };
        let mut lines = Vec::new();
        let mut is_whole = tops.len() == looked_at.len();
        for git in gits {
            if quarantine.check_time().is_err() {
                is_whole = false;
                break;
            }
            lines.extend(look.changed(git, &looked_at));
        }
        let of = format!(
            "more of {:?} have changed hooks (core.hooksPath)",
            self.source
        );
        quarantine.fail_some(lines, &of);
        if !is_whole {
            let source = typed_path(&self.source);
            quarantine.fail(format!(
                "not all hooks of {source} (core.hooksPath) were looked at: {REVIEW}"
            ));
        }
    }

    fn say_branches(&self, gits: &[&PathBuf], quarantine: &mut Quarantine) {
        quarantine.begin();
        let (mut taken, mut replaced) = (Vec::new(), Vec::new());
        for git in gits {
            if quarantine.check_time().is_err() {
                let source = typed_path(&self.source);
                quarantine.fail(format!(
                    "not all packed-refs of {source} were looked at: {REVIEW}"
                ));
                break;
            }
            let place = (self.root.as_fd(), self.source.as_path());
            let lines = replaced::among_branches(place, git, self.free, quarantine);
            taken.extend(lines.taken);
            replaced.extend(lines.replaced);
        }
        let of = format!(
            "more of {:?} had references of git's work among branches",
            self.source
        );
        quarantine.fail_some(taken, &of);
        let of = format!(
            "more of {:?} may have replaced objects: {REVIEW}",
            self.source
        );
        quarantine.fail_some(replaced, &of);
    }
}
