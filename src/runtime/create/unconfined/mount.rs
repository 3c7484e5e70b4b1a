//! PURE. What a mount of a spec asks for.

use std::path::Path;

use oci_spec::runtime::{LinuxIdMapping, Mount};

use crate::probe::is_bind;

/// Whether it has one of these options.
pub(super) fn has(mount: &Mount, names: &[&str]) -> bool {
    let mut options = mount.options().iter().flatten();
    options.any(|o| names.contains(&o.as_str()))
}

/// Whether it is read-only.
pub(super) fn is_read_only(mount: &Mount) -> bool {
    has(mount, &["ro"])
}

/// Whether it shows the node's ids as other ids.
pub(super) fn is_id_mapped(mount: &Mount) -> bool {
    let some = |m: &Option<Vec<LinuxIdMapping>>| m.as_ref().is_some_and(|m| !m.is_empty());
    has(mount, &["idmap", "ridmap"]) || some(mount.uid_mappings()) || some(mount.gid_mappings())
}

/// Whether libcontainer cannot make a mount, or makes a different one.
pub(super) fn is_special(mount: &Mount) -> bool {
    let bind = is_bind(mount);
    // Options of every file system. libcontainer takes them for attributes of the mount and loses them.
    let of_superblock = !bind && has(mount, &["sync", "dirsync", "lazytime", "mand"]);
    let over_dev = bind && mount.destination() == Path::new("/dev");
    is_id_mapped(mount) || has(mount, &["tmpcopyup"]) || of_superblock || over_dev
}
