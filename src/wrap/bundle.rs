//! SHELL. The bundle that is made for a command, and removed with it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::CWD;

use super::layout::Layout;
use super::leftovers::{self, Claim, NameMatch};
use super::person::Person;
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
    /// In this directory of one run. The run keeps it from being taken for a leftover.
    Run(&'a Path),
}

impl WrapBundle {
    /// Makes the directory, and the root file system's empty directories and links.
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
        for below in layout.directories() {
            match layout
                .home
                .as_deref()
                .filter(|home| below.starts_with(home))
            {
                Some(home) => make_in_home(&root, home, &below, person)?,
                None => make_dir(&inside(&root, &below))?,
            }
        }
        let shared = fs::Permissions::from_mode(0o1777);
        let var_tmp = root.join("var/tmp");
        if var_tmp.is_dir() {
            fs::set_permissions(&var_tmp, shared)
                .with_context(|| format!("open up {var_tmp:?}"))?;
        }
        let git = inside(&root, Path::new(GIT_CONFIG));
        fs::write(&git, &layout.git).with_context(|| format!("write {git:?}"))?;
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
