//! Recognises a kubelet's directory under another name, by its inode.
//!
//! A node may show it twice: as a disk whose directory is bound to /var/lib/kubelet, or as a subPath of another pod's
//! hostPath. A path's name proves nothing: a pod's author chooses names, with the pod's uid in them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rustix::fs::ResolveFlags;

use super::open_path;
use crate::engines::kubelet::kubelets_directories;
use crate::kernel::mountinfo::join;
use crate::plan::SourceFacts;

/// Names of a source that lead through a kubelet's directory in another place: name -> the same file in the usual one.
pub(super) fn names(facts: &SourceFacts) -> BTreeMap<PathBuf, PathBuf> {
    if facts.names.is_empty() {
        return BTreeMap::new();
    }
    let own = facts.all_names().flat_map(kubelets_directories);
    let own: HashMap<(u64, u64), &Path> = own
        // A link of the node may lead to the kubelet's own directory.
        .filter_map(|path| Some((inode(path, ResolveFlags::NO_MAGICLINKS)?, path)))
        .collect();
    if own.is_empty() {
        return BTreeMap::new();
    }
    let in_own = |name: &Path| {
        let mut above = name.ancestors().skip(1);
        let (directory, own) = above.find_map(|directory| {
            // No links: one may have been created since.
            let inode = inode(directory, ResolveFlags::NO_SYMLINKS)?;
            Some((directory, *own.get(&inode)?))
        })?;
        let same = join(own, name.strip_prefix(directory).ok()?);
        (same != name).then(|| (name.to_owned(), same))
    };
    facts.all_names().filter_map(in_own).collect()
}

fn inode(path: &Path, resolve: ResolveFlags) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(open_path(path, resolve).ok()?).ok()?;
    Some((stat.st_dev, stat.st_ino))
}
