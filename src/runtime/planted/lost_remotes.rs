//! SHELL. Remotes that had an address at the start and have none at the end: git takes such a name for a path, where a command may
//! have put a repository with hooks. That is said, since the address is not known any more.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::settings;
use crate::plan::{GuardedMount, NamedRemotes, git_config};
use crate::policy::typed_path;
use crate::probe;

/// The most characters of a name: the workload may have chosen it.
const OF_NAME: usize = 60;

/// A line for each remote of a mount's source. First those that git takes when none is named.
pub(super) fn lines(root: BorrowedFd<'_>, source: &Path, watched: &GuardedMount) -> Vec<String> {
    let mut lines = Vec::new();
    for NamedRemotes { file, names, more } in &watched.remotes {
        let Some(left) = left(root, file) else {
            continue;
        };
        let lost = names.iter().filter(|name| !left.contains(*name));
        let shown = typed_path(&source.join(file));
        lines.extend(lost.map(|name| {
            let name: String = name.chars().take(OF_NAME).collect();
            format!(
                "{shown}: the remote {name:?} has lost its address, and git takes its name for a path: set it before you push or fetch there"
            )
        }));
        lines.extend(more.then(|| {
            format!("{shown} had too many remotes, or too long names, so not all were compared: look at `git remote -v`")
        }));
    }
    lines
}

/// The remotes with an address in a settings file; none if it is gone. `None` if its repository is gone, or it cannot be read.
fn left(root: BorrowedFd<'_>, file: &Path) -> Option<BTreeSet<String>> {
    let parent = probe::directory_below(root, file.parent()?).ok()?;
    match settings::parsed(&parent, file.file_name()?) {
        Ok(all) => Some(git_config::remotes(&all).into_iter().collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(BTreeSet::new()),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;
    use crate::plan::KnownGit;
    use crate::plan::git_config::WholeSettings;
    use crate::plan::protect::ProtectedList;
    use crate::probe::TestDir;

    #[test]
    fn a_remote_without_an_address_is_said_while_its_repository_is_there() {
        let scratch = TestDir::new("lost-remotes");
        let dir = &scratch.0;
        fs::create_dir(dir.join(".git")).unwrap();
        let config = dir.join(".git/config");
        let own = "[remote \"a\"]\n\turl = git@h:x\n[remote \"b\"]\n\turl = /srv/y\n";
        let mut known = KnownGit::default();
        let (whole, file) = (WholeSettings::Text(own.as_bytes()), ".git/config");
        ProtectedList::builtin().remember(whole, Path::new(file), &mut known);
        let watched = GuardedMount {
            known: known.hashes,
            remotes: known.remotes,
            ..GuardedMount::default()
        };
        let root = fs::File::open(dir).unwrap();
        let said = || lines(root.as_fd(), dir, &watched);
        fs::write(&config, own).unwrap();
        assert_eq!(said(), [""; 0]);
        fs::write(
            &config,
            "[remote \"b\"]\n\turl = /srv/z\n[remote \"a\"]\n\tfetch = x\n",
        )
        .unwrap();
        let [line] = &said()[..] else {
            panic!("{:?}", said());
        };
        assert!(
            line.contains("the remote \"a\" has lost its address"),
            "{line}"
        );
        fs::remove_file(&config).unwrap();
        assert_eq!(said().len(), 2);
        fs::remove_dir_all(dir.join(".git")).unwrap();
        assert_eq!(said(), [""; 0]);
    }
}
