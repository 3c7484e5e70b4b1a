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

#[cfg(test)]
mod tests {
    use super::*;

    fn spec_mount(typ: &str, destination: &str, options: &[&str]) -> Mount {
        let mut mount = Mount::default();
        mount.set_typ(Some(typ.to_owned()));
        mount.set_destination(destination.into());
        let options: Vec<String> = options.iter().map(|one| (*one).to_owned()).collect();
        mount.set_options(Some(options));
        mount
    }

    #[test]
    fn mounts_that_libcontainer_would_make_differently_are_ours() {
        for (typ, destination, options, expected) in [
            ("tmpfs", "/tmp", &["nosuid"][..], false),
            ("tmpfs", "/tmp", &["tmpcopyup"], true),
            ("tmpfs", "/tmp", &["sync"], true),
            ("tmpfs", "/tmp", &["lazytime"], true),
            // For a bind mount the kernel has no such options.
            ("bind", "/data", &["rbind", "sync"], false),
            ("bind", "/data", &["rbind", "idmap"], true),
            ("bind", "/data", &["rbind", "ridmap"], true),
            ("bind", "/dev", &["rbind"], true),
            ("tmpfs", "/dev", &["nosuid"], false),
            ("bind", "/dev/x", &["rbind"], false),
        ] {
            let mount = spec_mount(typ, destination, options);
            assert_eq!(
                is_special(&mount),
                expected,
                "{typ} {destination} {options:?}"
            );
        }
        assert!(is_read_only(&spec_mount("tmpfs", "/x", &["nosuid", "ro"])));
        assert!(!is_read_only(&spec_mount("tmpfs", "/x", &["rro"])));
    }

    #[test]
    fn an_empty_mapping_maps_nothing() {
        let mut mount = spec_mount("bind", "/x", &["bind"]);
        mount.set_uid_mappings(Some(Vec::new()));
        assert!(!is_id_mapped(&mount));
        mount.set_gid_mappings(Some(vec![LinuxIdMapping::default()]));
        assert!(is_id_mapped(&mount));
    }
}
