//! SHELL. Where the credentials of a home are. Dotfile managers replace `~/.config` and the like by links. A mount
//! never stands on a name behind a link, so the link's target is hidden.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::plan::never::NeverList;

/// The paths to hide, by their names inside. A link must not hide a path of `shown`: the workspace, which an agent may
/// have filled with links, and the home.
pub fn hidden(home: &Path, shown: &[&Path]) -> Vec<PathBuf> {
    let credentials = NeverList::builtin().credentials();
    let mut links = HomeLinks::of(home);
    let found = credentials.filter_map(|below| place(&mut links, Path::new(below), shown));
    found.collect()
}

fn place(links: &mut HomeLinks<'_>, below: &Path, shown: &[&Path]) -> Option<PathBuf> {
    let home = links.home;
    let path = home.join(below);
    if !links.is_linked(below) {
        return Some(path);
    }
    // A dangling link hides nothing.
    let real = path.canonicalize().ok()?;
    let real = match home
        .canonicalize()
        .map(|home| real.strip_prefix(home).map(Path::to_owned))
    {
        Ok(Ok(below)) => home.join(below),
        Ok(Err(_)) | Err(_) => real,
    };
    let takes_along = shown.iter().any(|place| place.starts_with(&real));
    (!takes_along).then_some(real)
}

/// What is at a path below a home.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HomeEntry {
    Link,
    Other,
    /// Missing or unreadable, like everything below it.
    None,
}

/// Links in a home. Looks at each shared parent directory once, and lists the home once.
struct HomeLinks<'a> {
    home: &'a Path,
    /// The names in the home itself; `None` if it cannot be listed.
    names: Option<HashMap<OsString, HomeEntry>>,
    known: HashMap<PathBuf, HomeEntry>,
}

impl<'a> HomeLinks<'a> {
    fn of(home: &'a Path) -> Self {
        let kind = |entry: fs::DirEntry| match entry.file_type() {
            Ok(kind) if kind.is_symlink() => HomeEntry::Link,
            Ok(_) => HomeEntry::Other,
            Err(_) => HomeEntry::None,
        };
        let entries = fs::read_dir(home).ok();
        let names = entries.map(|entries| entries.map(|e| e.map(|e| (e.file_name(), kind(e)))));
        Self {
            home,
            names: names.and_then(|names| names.collect::<Result<_, _>>().ok()),
            known: HashMap::new(),
        }
    }

    /// Whether any part of a path below the home is a link, including the last.
    fn is_linked(&mut self, below: &Path) -> bool {
        let mut path = PathBuf::new();
        for part in below.components() {
            let Component::Normal(part) = part else {
                continue;
            };
            path.push(part);
            match self.entry(&path) {
                HomeEntry::Link => return true,
                HomeEntry::None => return false,
                HomeEntry::Other => {}
            }
        }
        false
    }

    fn entry(&mut self, below: &Path) -> HomeEntry {
        if let (1, Some(names)) = (below.components().count(), &self.names) {
            return names
                .get(below.as_os_str())
                .copied()
                .unwrap_or(HomeEntry::None);
        }
        if let Some(known) = self.known.get(below) {
            return *known;
        }
        let found = match fs::symlink_metadata(self.home.join(below)) {
            Ok(meta) if meta.is_symlink() => HomeEntry::Link,
            Ok(_) => HomeEntry::Other,
            Err(_) => HomeEntry::None,
        };
        self.known.insert(below.to_owned(), found);
        found
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_followed_to_what_it_hides_and_to_nothing_that_is_shown() {
        let dir = std::env::temp_dir().join(format!("credentials-{}", std::process::id()));
        let real = dir.join("real");
        fs::create_dir_all(real.join("dotfiles/config/gcloud")).unwrap();
        fs::create_dir_all(real.join("project")).unwrap();
        fs::create_dir_all(dir.join("elsewhere")).unwrap();
        symlink("real", dir.join("home")).unwrap();
        let home = dir.canonicalize().unwrap().join("home");
        let link = |to: &str, name: &str| symlink(to, real.join(name)).unwrap();
        link("dotfiles/config", ".config");
        link("../elsewhere", ".aws");
        link("project", ".ssh");
        link(".", ".kube");
        link("nowhere", ".docker");
        let shown = [home.join("project"), home.clone()];
        let shown: Vec<&Path> = shown.iter().map(PathBuf::as_path).collect();
        let mut links = HomeLinks::of(&home);
        let mut at = |below: &str| place(&mut links, Path::new(below), &shown);
        assert_eq!(at(".netrc"), Some(home.join(".netrc")));
        assert_eq!(
            at(".config/gcloud"),
            Some(home.join("dotfiles/config/gcloud"))
        );
        assert_eq!(
            at(".aws"),
            Some(dir.canonicalize().unwrap().join("elsewhere"))
        );
        for below in [".ssh", ".kube", ".docker/config.json", ".config/gh"] {
            assert_eq!(at(below), None, "{below}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
