//! The list of what `wrap` makes visible: `policies/wrap.toml`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::toolchain::prefix_of;
use crate::data::table;

/// The parsed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SystemList {
    /// Directories of the system.
    pub system: Vec<PathBuf>,
    /// Visible files and directories of /etc.
    pub etc: Vec<PathBuf>,
    environment: Vec<String>,
    tool_variables: Vec<String>,
    /// Names beside `bin` that make a PATH directory `X/bin` a part of `X`.
    pub beside_bin: Vec<PathBuf>,
    /// Where links, scripts and virtual environments may lead: below the home, or absolute.
    pub places: Vec<PathBuf>,
    /// Packages that installers of toolchains fetched: below the home, or absolute.
    pub packages: Vec<PathBuf>,
    login_path: Vec<PathBuf>,
    /// Other directories with programs that an installer keeps, below the home.
    installers: Vec<PathBuf>,
    /// Directories of shims, by the end of their path.
    shims: Vec<PathBuf>,
    /// File names of the programs that shims are links to.
    shim_programs: Vec<PathBuf>,
    #[serde(rename = "toolchain")]
    toolchains: Vec<Toolchain>,
    /// Caches of package managers.
    #[serde(rename = "cache")]
    pub caches: Vec<Cache>,
}

/// A cache of a package manager.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Below the home.
    pub path: PathBuf,
    /// Parts that are not visible, below that.
    #[serde(default)]
    pub without: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toolchain {
    bin: PathBuf,
    needs: Vec<PathBuf>,
    #[serde(default)]
    follow: Vec<PathBuf>,
}

impl SystemList {
    /// The built-in list.
    pub fn builtin() -> Self {
        table!("wrap")
            .read()
            .expect("a test parses the built-in list")
    }

    /// Whether an environment variable is passed on.
    pub fn passes(&self, key: &str) -> bool {
        self.environment
            .iter()
            .any(|name| match name.strip_suffix('*') {
                Some(prefix) => key.starts_with(prefix),
                None => key == name,
            })
    }

    /// The usual directories for the user's programs that exist. `*` stands for the highest version.
    pub fn login_path(&self, home: &Path) -> Vec<PathBuf> {
        let found = self.login_path.iter().filter_map(|p| newest(home, p));
        found.collect()
    }

    /// Where installers put programs of the user's: below the home, or absolute. `*` stands for one component.
    pub fn program_places(&self) -> Vec<PathBuf> {
        let of_npm = self.login_path.iter().filter(|path| path.ends_with("bin"));
        let above = of_npm.filter_map(|path| path.parent());
        // `~/lib` may be anything.
        let above = above.filter(|above| !above.as_os_str().is_empty());
        let of_npm = above.map(|above| above.join("lib/node_modules"));
        let known = self.toolchains.iter();
        let known = known.flat_map(|one| one.needs.iter().chain(&one.follow).cloned());
        // Files of every kind are there, not only installers'.
        let known = known.filter(|path| !path.ends_with("*"));
        let listed = self
            .login_path
            .iter()
            .chain(&self.places)
            .chain(&self.packages)
            .chain(&self.installers);
        let mut all: Vec<_> = of_npm.chain(known).chain(listed.cloned()).collect();
        // A toolchain that is its own directory, wherever that is.
        all.retain(|path| path != Path::new("."));
        all
    }

    /// Whether a file is a shim, which chooses a program when it runs.
    pub fn is_shim(&self, file: &Path) -> bool {
        let is_in = |end: &PathBuf| file.parent().is_some_and(|above| above.ends_with(end));
        self.shims.iter().any(is_in) || self.shim_programs.iter().any(|name| file.ends_with(name))
    }

    /// Whether an environment variable that names a directory belongs to a toolchain.
    pub fn names_toolchain(&self, key: &str) -> bool {
        self.tool_variables.iter().any(|name| key == name)
    }

    /// The toolchain of a directory of PATH, if it is listed.
    pub fn known(&self, bin: &Path) -> Option<KnownPathDir<'_>> {
        self.toolchains.iter().find_map(|toolchain| {
            let depth = toolchain.bin.components().count();
            let base = bin.ancestors().nth(depth)?;
            let pattern = std::slice::from_ref(&toolchain.bin);
            let is_it = prefix_of(base, pattern, bin).is_some();
            is_it.then(|| KnownPathDir {
                base: base.to_owned(),
                needs: &toolchain.needs,
                follow: &toolchain.follow,
            })
        })
    }
}

/// A directory of PATH that is in the list.
pub struct KnownPathDir<'a> {
    /// Base of the rule's paths, usually the home.
    pub base: PathBuf,
    /// Visible parts.
    pub needs: &'a [PathBuf],
    /// Where links of the directory may lead.
    pub follow: &'a [PathBuf],
}

/// The directory that matches a pattern below `base`, the highest version of several.
fn newest(base: &Path, pattern: &Path) -> Option<PathBuf> {
    let mut found = base.to_owned();
    for part in pattern.components() {
        if part.as_os_str() != "*" {
            found.push(part);
            continue;
        }
        let entries = std::fs::read_dir(&found).ok()?.flatten();
        found = entries.map(|e| e.path()).max_by_key(|path| version(path))?;
    }
    found.is_dir().then_some(found)
}

/// The numbers in a name: v9 comes before v10.
fn version(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbers = name.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_brings_its_parts_and_not_its_credentials() {
        let list = SystemList::builtin();
        let cargo = list.known(Path::new("/home/me/.cargo/bin")).unwrap();
        assert_eq!(cargo.base, Path::new("/home/me"));
        assert!(cargo.needs.contains(&PathBuf::from(".rustup")));
        assert!(!cargo.needs.contains(&PathBuf::from(".cargo")));
        let node = list.known(Path::new("/home/me/.nvm/versions/node/v22.1.0/bin"));
        assert_eq!(node.unwrap().needs, [PathBuf::from(".nvm")]);
        assert!(list.known(Path::new("/srv/tools")).is_none());
        assert!(list.known(Path::new("/home/me/x.cargo/bin")).is_none());
    }

    #[test]
    fn shims_are_known_wherever_they_lie() {
        let list = SystemList::builtin();
        for shim in [
            "/home/me/.volta/bin/claude",
            "/usr/bin/volta-shim",
            "/home/me/.asdf/shims/node",
            "/home/me/.local/share/mise/shims/claude",
            "/home/me/.local/bin/mise",
            "/opt/pyenv/shims/aider",
        ] {
            assert!(list.is_shim(Path::new(shim)), "{shim}");
        }
        for program in [
            "/home/me/.volta/tools/image/node/22.1.0/bin/node",
            "/home/me/.asdf/installs/nodejs/22.1.0/bin/node",
            "/home/me/.pyenv/versions/3.12.1/bin/aider",
            "/home/me/shims/bin/claude",
            "/home/me/.local/bin/claude",
        ] {
            assert!(!list.is_shim(Path::new(program)), "{program}");
        }
    }

    #[test]
    fn secrets_of_the_environment_are_not_passed_on() {
        let list = SystemList::builtin();
        for key in [
            "PATH",
            "LC_ALL",
            "CI",
            "NO_COLOR",
            "FORCE_COLOR",
            "EDITOR",
            "VISUAL",
            "COLORTERM",
            "TERM_PROGRAM",
        ] {
            assert!(list.passes(key), "{key}");
        }
        for key in [
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "GITHUB_TOKEN",
            "LD_PRELOAD",
            "LC",
            "HOMEX",
            "CI_JOB_TOKEN",
            "GIT_EDITOR",
            "TERM_SESSION_ID",
        ] {
            assert!(!list.passes(key), "{key}");
        }
    }
}
