//! PURE. A whole home directory as a mount: which part of it is the workspace.

use std::path::Path;

use oci_spec::runtime::Mount;

use super::error::PlanError;
use super::facts::{Home, SourceFacts};
use super::judge::{read_only, refusal};
use super::mount::BindAccess;
use super::reason::MountReason;
use super::sorted_mounts::{MountRules, SortedMounts, workspace_refused};

impl SortedMounts {
    /// A whole home directory: read-only, except for the working directory in it. A name with a leading dot is no
    /// project, and may be the image's choice: its files run later as the user.
    pub(super) fn home(
        &mut self,
        rules: MountRules<'_>,
        mount: &Mount,
        facts: &SourceFacts,
        part: HomePart<'_>,
    ) -> Result<(), PlanError> {
        // Root's home is refused as the workspace, as everything that is always read-only.
        if part.path.as_os_str().is_empty() && read_only(rules.never, facts).is_some() {
            return self.workspace(rules, mount, facts, BindAccess::ReadWrite);
        }
        self.keep_bind(mount, facts, BindAccess::ReadOnly, MountReason::Home);
        let Some(working) = part.facts else {
            // A missing directory is not created, and a link is not followed.
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
        self.workspace(rules, &below, working, BindAccess::ReadWrite)
    }
}

/// The working directory's part of a home directory.
#[derive(Clone, Copy)]
pub(super) struct HomePart<'a> {
    /// Relative to the home.
    pub(super) path: &'a Path,
    /// The directory's facts, if it is one.
    pub(super) facts: Option<&'a SourceFacts>,
}

/// The part of a home directory, mounted at `place`, that contains the working directory; empty if that is elsewhere or
/// is the home itself.
pub(super) fn part_of<'a>(rules: MountRules<'a>, place: &Path, home: &'a Home) -> HomePart<'a> {
    let path = rules.cwd.strip_prefix(place).unwrap_or(Path::new(""));
    let facts = home.working.as_deref();
    HomePart {
        path,
        facts: facts.filter(|_| !path.as_os_str().is_empty()),
    }
}
