//! PURE. Volumes without a name of anybody's choice: an engine makes one where the image, or a caller, names a place alone.
//!
//! Nothing in a config.json proves that a mount is one. The path of its source is all there is, and a caller chooses it:
//! `--volumes-from` hands in another container's, `docker volume create` takes any name, a bind any path. So the name gives
//! nothing of the node: such a volume is seen as it is, and what is written goes to the container's own scratch.

use std::path::Path;

use oci_spec::runtime::Mount;

use super::sort::SortedMounts;
use super::{BindAccess, FileKind, SourceFacts};

/// Why the container can write, and the volume stays as it is.
const PRIVATE: &str = "an anonymous volume; writes do not reach it";

/// Whether a source is called like an anonymous volume, by every name that it has.
pub fn is_anonymous(facts: &SourceFacts) -> bool {
    facts.kind == FileKind::Directory && facts.all_names().all(is_named_so)
}

/// `volumes/ID/_data` of Docker and podman, `volumes/NAMESPACE/ID/_data` of nerdctl.
pub(super) fn is_named_so(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().filter_map(|c| c.to_str()).collect();
    match parts.as_slice() {
        [.., "volumes", id, "_data"] | [.., "volumes", _, id, "_data"] => {
            id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())
        }
        _ => false,
    }
}

impl SortedMounts {
    /// A volume over which the container has a private overlay; read-only where the kernel lays none over it.
    pub(super) fn anonymous(&mut self, mount: &Mount, facts: &SourceFacts) {
        let hinders = match &facts.no_overlay {
            Some(why) => Some(why.as_str()),
            // The scratch is put together there.
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
    use super::*;

    #[test]
    fn an_anonymous_volume_is_called_by_64_digits() {
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
            assert_eq!(is_named_so(Path::new(&path)), is, "{path}");
        }
    }
}
