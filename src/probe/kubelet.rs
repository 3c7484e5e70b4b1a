//! Recognises a kubelet's directory under another name, by its inode.
//!
//! A node may show it twice: a disk of its own whose directory is bound to /var/lib/kubelet, or a subPath of another pod's
//! hostPath. What a path is called proves nothing: a pod's author chooses names, with its uid in them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use rustix::fs::ResolveFlags;

use super::open_path;
use crate::plan::SourceFacts;
use crate::plan::mountinfo::join;
use crate::plan::volumes::kubelets_directories;

/// The names of a source that lead through a kubelet's directory at another place: name -> the same in the kubelet's own.
pub(super) fn names(facts: &SourceFacts) -> BTreeMap<PathBuf, PathBuf> {
    if facts.names.is_empty() {
        return BTreeMap::new();
    }
    let own = facts.all_names().flat_map(kubelets_directories);
    let own: HashMap<(u64, u64), &Path> = own
        // The kubelet's own may be reached by a link of the node's.
        .filter_map(|path| Some((inode(path, ResolveFlags::NO_MAGICLINKS)?, path)))
        .collect();
    if own.is_empty() {
        return BTreeMap::new();
    }
    let in_own = |name: &Path| {
        let mut above = name.ancestors().skip(1);
        let (directory, own) = above.find_map(|directory| {
            // No link that somebody may have put there since.
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
