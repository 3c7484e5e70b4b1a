//! PURE. Anonymous volumes: an engine makes one where the image, or a caller, names only a mount point.
//!
//! Nothing in a config.json proves that a mount is one. There is only the path of its source, and a caller chooses it:
//! `--volumes-from` passes another container's, `docker volume create` takes any name, a bind any path. So the name
//! grants no access to the node: the container sees the volume as it is, and its writes go to its own scratch.

use oci_spec::runtime::Mount;

use super::facts::SourceFacts;
use super::file::FileKind;
use super::mount::BindAccess;
use super::sorted_mounts::SortedMounts;
use crate::engines::layout::is_anonymous_volume;

/// Why the container can write while the volume stays as it is.
const PRIVATE: &str = "an anonymous volume; writes do not reach it";

/// Whether all names of a source look like an anonymous volume.
pub fn is_anonymous(facts: &SourceFacts) -> bool {
    facts.kind == FileKind::Directory && facts.all_names().all(is_anonymous_volume)
}

impl SortedMounts {
    /// Keeps a volume under a private overlay, or read-only if the kernel allows no overlay over it.
    pub(super) fn anonymous(&mut self, mount: &Mount, facts: &SourceFacts) {
        let hinders = match &facts.no_overlay {
            Some(why) => Some(why.as_str()),
            // The scratch is assembled there.
            None if mount.destination().starts_with("/dev") => Some("none is made below /dev"),
            None => None,
        };
        let why = match hinders {
            None => format!("{PRIVATE}{}", facts.links_in_words()),
            Some(why) => format!(
                "an anonymous volume, read-only here because an overlay is not possible: {why}"
            ),
        };
        let access = match hinders {
            None => BindAccess::Private,
            Some(_) => BindAccess::ReadOnly,
        };
        self.keep_bind(mount, facts, access, why);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_anonymous_volume_is_named_by_64_digits() {
        let id = "0123456789abcdef".repeat(4);
        for (path, is) in [
            (format!("/var/lib/docker/volumes/{id}/_data"), true),
            (
                format!("/var/lib/containers/storage/volumes/{id}/_data"),
                true,
            ),
            (
                format!("/var/lib/nerdctl/1935db59/volumes/default/{id}/_data"),
                true,
            ),
            ("/var/lib/docker/volumes/project/_data".to_owned(), false),
            (format!("/var/lib/docker/volumes/{id}0/_data"), false),
            (format!("/var/lib/docker/volumes/{id}/_data/below"), false),
            (format!("/var/lib/docker/volumes/{id}"), false),
            ("/srv/project".to_owned(), false),
        ] {
            assert_eq!(is_anonymous_volume(Path::new(&path)), is, "{path}");
        }
    }
}
