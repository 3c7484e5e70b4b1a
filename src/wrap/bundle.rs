//! SHELL. The bundle that is made for a command, and removed with it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::CWD;

use super::layout::Layout;
use super::leftovers::{self, Claim, NameMatch};
use super::person::Person;
use crate::cli;
use crate::runtime::unprivileged;
use crate::sys::path;

/// Where git looks for the system's configuration. It depends on git's build, so GIT_CONFIG_SYSTEM sets it.
pub const GIT_CONFIG: &str = "/etc/gitconfig";

/// A bundle in a directory that no other user writes, removed when dropped.
pub struct WrapBundle {
    /// The bundle.
    pub dir: PathBuf,
    /// The container's id.
    pub id: String,
    /// Keeps other runs from taking the bundle for a leftover.
    _claim: Option<Claim>,
}

/// The directory in which a bundle is made.
#[derive(Debug, Clone, Copy)]
pub enum BundleRoot<'a> {
    /// In the runtime's own state directory, for a container under this root directory of the runtime.
    Records {
        /// `--root`
        root: &'a Path,
        /// `--name`
        name: Option<&'a str>,
    },
    /// In this directory of one run, for a decision: nothing is mounted on its root. The run keeps it from being taken for a
    /// leftover.
    Run(&'a Path),
}

impl BundleRoot<'_> {
    /// Whether a container gets the root. A decision asks only where the root's links lead: a path below an absent directory
    /// is resolved by its text. On a disk that discards blocks at once, each directory costs its removal 0.1 to 4 ms.
    const fn is_mounted(self) -> bool {
        match self {
            Self::Records { .. } => true,
            Self::Run(_) => false,
        }
    }
}

impl WrapBundle {
    /// `create`, for this bundle.
    pub fn create(&self) -> cli::Create {
        cli::Create {
            bundle: self.dir.clone(),
            console_socket: None,
            pid_file: None,
            pidfd_socket: None,
            no_pivot: false,
            no_new_keyring: false,
            preserve_fds: 0,
            id: self.id.clone(),
        }
    }

    /// Makes the directory, and the root file system's empty directories and links. For a decision alone, only the links and
    /// the directories that they lie in.
    pub fn new(layout: &Layout, person: &Person, base: BundleRoot<'_>) -> Result<Self> {
        let bundle = match base {
            BundleRoot::Records { root, name } => {
                let named = name.map_or(NameMatch::Beginning("wrap"), NameMatch::Whole);
                let claim = leftovers::claim(root, named)?;
                Self {
                    dir: claim.dir.clone(),
                    id: claim.id.clone(),
                    _claim: Some(claim),
                }
            }
            BundleRoot::Run(dir) => Self {
                dir: dir.to_owned(),
                id: "wrap".to_owned(),
                _claim: None,
            },
        };
        let root = bundle.dir.join("rootfs");
        make_dir(&root)?;
        let places = (!base.is_mounted()).then(|| places_of_links(layout));
        match places.flatten() {
            None => fill(&root, layout, person)?,
            Some(places) => {
                for place in places {
                    make_dir(&inside(&root, &place))?;
                }
            }
        }
        for (link, target) in &layout.links {
            std::os::unix::fs::symlink(target, inside(&root, link))
                .with_context(|| format!("make the link {link:?}"))?;
        }
        Ok(bundle)
    }

    /// Writes config.json.
    pub fn write(&self, spec: &oci_spec::runtime::Spec) -> Result<()> {
        let path = self.dir.join("config.json");
        fs::write(&path, serde_json::to_vec(spec)?).with_context(|| format!("write {path:?}"))
    }
}

impl Drop for WrapBundle {
    fn drop(&mut self) {
        if let Err(error) = path::remove_tree(CWD, &self.dir) {
            log::warn!("remove {:?}: {error}", self.dir);
        }
    }
}

/// Directories that links lie in or lead to: a link to an absent directory would not be followed. `None` if a link leads to
/// another one or upwards, which only the whole root shows.
fn places_of_links(layout: &Layout) -> Option<BTreeSet<PathBuf>> {
    let directories = layout.directories();
    let is_plain = |path: &Path| {
        let mut parts = path.components();
        parts.all(|part| matches!(part, Component::Normal(_) | Component::RootDir))
    };
    let mut places = BTreeSet::new();
    for (link, target) in &layout.links {
        let above = link.parent().unwrap_or(link);
        let target = above.join(target);
        let is_linked = layout
            .links
            .iter()
            .any(|(other, _)| target.starts_with(other) || above.starts_with(other));
        if is_linked || !is_plain(&target) {
            return None;
        }
        places.insert(above.to_owned());
        if directories.iter().any(|place| place.starts_with(&target)) {
            places.insert(target);
        }
    }
    Some(places)
}

/// Makes what mounts need, and the system's configuration of git.
fn fill(root: &Path, layout: &Layout, person: &Person) -> Result<()> {
    for below in layout.directories() {
        match layout
            .home
            .as_deref()
            .filter(|home| below.starts_with(home))
        {
            Some(home) => make_in_home(root, home, &below, person)?,
            None => make_dir(&inside(root, &below))?,
        }
    }
    let shared = fs::Permissions::from_mode(0o1777);
    let var_tmp = root.join("var/tmp");
    if var_tmp.is_dir() {
        fs::set_permissions(&var_tmp, shared).with_context(|| format!("open up {var_tmp:?}"))?;
    }
    let git = inside(root, Path::new(GIT_CONFIG));
    fs::write(&git, &layout.git).with_context(|| format!("write {git:?}"))
}

fn make_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .with_context(|| format!("make {path:?}"))
}

/// Makes a directory in the home, or the home itself. The user owns all of them, so a program can make its own
/// directories beside a mount.
fn make_in_home(root: &Path, home: &Path, path: &Path, person: &Person) -> Result<()> {
    let mut above: Vec<&Path> = path
        .ancestors()
        .take_while(|p| p.starts_with(home))
        .collect();
    above.reverse();
    make_dir(&inside(root, home.parent().unwrap_or(home)))?;
    for directory in above {
        let made = inside(root, directory);
        if made.is_dir() {
            continue;
        }
        let mode = if directory == home { 0o700 } else { 0o755 };
        let maker = fs::DirBuilder::new().mode(mode).create(&made);
        maker.with_context(|| format!("make {made:?}"))?;
        // Without root's rights, everything made is the user's already.
        if unprivileged::inside().is_none() {
            chown(&made, Some(person.uid), Some(person.gid))
                .with_context(|| format!("give {made:?} to {}", person.name()))?;
        }
    }
    Ok(())
}

/// A path of the container below the root directory.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{self, TestDir};

    /// A layout with links, of which two lie in directories.
    fn layout() -> Layout {
        let mut layout = Layout::empty(Path::new("/nohome/u/p"), &["HOME=/nohome/u".to_owned()]);
        layout.links = [
            ("/nobin", "nousr/bin"),
            ("/nohomes", "nohome"),
            ("/novar/run", "/run"),
            ("/var/run", "/run"),
        ]
        .map(|(link, target)| (link.into(), target.into()))
        .into();
        layout
    }

    fn below(root: &Path) -> Vec<String> {
        let names = fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_decision_gets_only_the_links_and_resolves_paths_as_in_the_whole_root() {
        let dir = TestDir::new("wrap-bundle");
        let person = Person::of_caller(Path::new("/")).unwrap();
        let made = dir.0.join("bundle");
        let bundle = WrapBundle::new(&layout(), &person, BundleRoot::Run(&made)).unwrap();
        let root = made.join("rootfs");
        assert_eq!(
            below(&root),
            ["nobin", "nohome", "nohomes", "novar", "run", "var"]
        );
        // The control: what a container gets.
        let whole = dir.0.join("whole");
        fs::create_dir(&whole).unwrap();
        fill(&whole, &layout(), &person).unwrap();
        fs::create_dir(whole.join("novar")).unwrap();
        for (link, target) in layout().links {
            std::os::unix::fs::symlink(target, inside(&whole, &link)).unwrap();
        }
        assert!(below(&whole).len() > 8 && whole.join("etc/gitconfig").is_file());
        for path in [
            "/nobin/x",
            "/novar/run/y",
            "/var/run/z",
            "/nohomes/u/p/x",
            "/var/tmp/a",
            "/etc/gitconfig",
            "/nohome/u/p/b",
            "/tmp",
            "/proc",
        ] {
            let resolve = |root: &Path| probe::destination(root, Path::new(path));
            assert_eq!(resolve(&root), resolve(&whole), "{path}");
        }
        let followed = probe::destination(&root, Path::new("/var/run/z"));
        assert_eq!(followed, Path::new("/run/z"));
        drop(bundle);
        assert!(!made.exists());
    }

    #[test]
    fn a_decision_gets_the_whole_root_if_a_link_leads_to_another_or_upwards() {
        let places = |links: &[(&str, &str)]| {
            let mut layout = layout();
            let links = links
                .iter()
                .map(|(link, target)| (link.into(), target.into()));
            layout.links = links.collect();
            places_of_links(&layout)
        };
        assert!(places(&[("/noa", "/nob/x")]).is_some());
        for odd in [
            &[("/noa", "/nob/x"), ("/nob", "/tmp")][..],
            &[("/noa", "../tmp")],
            &[("/noa", "noa")],
            &[("/noa/b", "/tmp"), ("/noa", "/home")],
        ] {
            assert_eq!(places(odd), None, "{odd:?}");
        }
    }
}
