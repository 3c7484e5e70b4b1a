//! The list of what `wrap` shows: `policies/wrap.toml`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The parsed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct List {
    /// Directories of the system.
    pub system: Vec<PathBuf>,
    /// Files and directories of /etc.
    pub etc: Vec<PathBuf>,
    environment: Vec<String>,
    login_path: Vec<PathBuf>,
    #[serde(rename = "toolchain")]
    toolchains: Vec<Toolchain>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toolchain {
    bin: PathBuf,
    needs: Vec<PathBuf>,
}

impl List {
    /// The list that is built in.
    pub fn builtin() -> Self {
        toml::from_str(include_str!("../../policies/wrap.toml"))
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

    /// The usual directories of a person's programs that are there. For `*` stands the highest version.
    pub fn login_path(&self, home: &Path) -> Vec<PathBuf> {
        let found = self.login_path.iter().filter_map(|p| newest(home, p));
        found.collect()
    }

    /// What a directory of PATH needs to be of use: its toolchain's parts, or itself.
    pub fn toolchain(&self, bin: &Path) -> Vec<PathBuf> {
        let known = self.toolchains.iter().find(|t| bin.ends_with(&t.bin));
        let Some(known) = known else {
            return vec![bin.to_owned()];
        };
        let depth = known.bin.components().count();
        let base = bin.ancestors().nth(depth).unwrap_or(bin);
        known.needs.iter().map(|n| base.join(n)).collect()
    }
}

/// The directory that a pattern below `base` names, the highest of several.
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
        let list = List::builtin();
        let cargo = list.toolchain(Path::new("/home/me/.cargo/bin"));
        assert_eq!(
            cargo,
            [
                PathBuf::from("/home/me/.cargo/bin"),
                PathBuf::from("/home/me/.rustup")
            ]
        );
        assert_eq!(
            list.toolchain(Path::new("/srv/tools")),
            [PathBuf::from("/srv/tools")]
        );
    }

    #[test]
    fn secrets_of_the_environment_are_not_passed_on() {
        let list = List::builtin();
        assert!(list.passes("PATH") && list.passes("LC_ALL"));
        for key in [
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "GITHUB_TOKEN",
            "LD_PRELOAD",
            "LC",
            "HOMEX",
        ] {
            assert!(!list.passes(key), "{key}");
        }
    }
}
