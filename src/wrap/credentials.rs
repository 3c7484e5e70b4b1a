//! SHELL. Where the credentials of a home are. Managers of settings make links of `~/.config` and its kin: what is hidden is what they
//! lead to, since a mount never stands on a name behind a link.

use std::path::{Component, Path, PathBuf};

use crate::plan::never::NeverList;

/// The paths to hide, as they are named inside. `shown` is what a link must not take along: the workspace, which an agent may have
/// filled with links, and the home.
pub fn hidden(home: &Path, shown: &[&Path]) -> Vec<PathBuf> {
    let credentials = NeverList::builtin().credentials();
    let found = credentials.filter_map(|below| place(home, Path::new(below), shown));
    found.collect()
}

fn place(home: &Path, below: &Path, shown: &[&Path]) -> Option<PathBuf> {
    let path = home.join(below);
    if !is_linked(home, below) {
        return Some(path);
    }
    // A link that leads nowhere hides nothing.
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

/// Whether a part of a path below the home is a link, its last one too.
fn is_linked(home: &Path, below: &Path) -> bool {
    let mut path = home.to_owned();
    below.components().any(|part| match part {
        Component::Normal(part) => {
            path.push(part);
            path.is_symlink()
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        let at = |below: &str| place(&home, Path::new(below), &shown);
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
