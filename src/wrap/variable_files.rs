//! SHELL. Files that put variables into the user's environment: direnv's `dotenv`, mise and others load them at the next prompt. In
//! the workspace, or above it where a sandbox writes, a variable that one of them names may be a sandbox's choice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::person::Person;
use super::settings::places::no_sandbox_writes;
use crate::plan::protect::ProtectedList;
use crate::runtime::input::bundle::read_file;

/// Which files count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableFiles {
    /// All.
    All,
    /// Those that sandboxes may write: `.envrc` and mise's are protected (`policies/protected.toml`).
    Unprotected,
}

/// Files that put variables into the user's environment, and templates of them, which nothing loads.
const PREFIXES: [&str; 4] = [".env", "mise.", ".mise.", ".rtx."];
const SUFFIXES: [&str; 1] = [".env"];
/// Directories of mise's (mise.jdx.dev/configuration.html), in each of which any TOML file may be one.
const OF_MISE: [&str; 7] = [
    ".config",
    ".config/mise",
    ".config/mise/conf.d",
    ".mise",
    ".mise/conf.d",
    "mise",
    "mise/conf.d",
];
const TEMPLATES: [&str; 4] = [".example", ".sample", ".template", ".dist"];
/// The most entries of a directory that are looked through.
const MOST: usize = 100_000;
/// The most files of variables in a directory, and their bytes: a sandbox could keep the next start waiting by more (F23).
const MOST_FILES: usize = 64;
const MOST_BYTES: u64 = 4 << 20;

/// Why one of these variables may come from a file that a sandbox writes; `None` if no such file names one. `places` are the
/// directories where the user's shell may have loaded files. Call it with the user's rights over files.
pub fn named_by(
    person: &Person,
    places: &[PathBuf],
    names: &[&str],
    which: VariableFiles,
) -> Option<String> {
    let above = places.iter().flat_map(|place| {
        let above = place.ancestors();
        above.take_while(|directory| !no_sandbox_writes(person, directory))
    });
    let all: BTreeSet<&Path> = above.collect();
    all.into_iter().find_map(|directory| {
        match all_env_files(directory, which).and_then(few_enough) {
            Ok(files) => files.iter().find_map(|file| names_one(file, names)),
            // Another user's, which no sandbox of this one writes.
            Err(_) if which == VariableFiles::Unprotected && !is_own(person, directory) => None,
            Err(why) => Some(format!("{directory:?} cannot be looked through: {why}")),
        }
    })
}

fn few_enough(files: Vec<PathBuf>) -> std::io::Result<Vec<PathBuf>> {
    let bytes = |file: &PathBuf| file.metadata().map_or(0, |found| found.len());
    if files.len() > MOST_FILES {
        let why = format!("it has more than {MOST_FILES} files of variables");
        return Err(std::io::Error::other(why));
    }
    if files.iter().map(bytes).sum::<u64>() > MOST_BYTES {
        let why = format!(
            "its files of variables have more than {} MiB",
            MOST_BYTES >> 20
        );
        return Err(std::io::Error::other(why));
    }
    Ok(files)
}

fn is_own(person: &Person, directory: &Path) -> bool {
    let meta = directory.symlink_metadata();
    meta.map_or(true, |meta| person.owns(&meta))
}

/// Where the user's shell may have loaded files: in its directory, by the kernel's name and by its own, which may have links, in that
/// of the command and in its workspace.
pub fn places(cwd: &Path, workspace: &Path) -> Vec<PathBuf> {
    let own = std::env::var_os("PWD").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute());
    let shells = std::env::current_dir().ok().into_iter().chain(own);
    shells
        .chain([cwd.to_owned(), workspace.to_owned()])
        .collect()
}

/// The files of a directory, and of mise's directories in it.
fn all_env_files(directory: &Path, which: VariableFiles) -> std::io::Result<Vec<PathBuf>> {
    let mut files = env_files(directory, loads_variables)?;
    let of_mise = OF_MISE.iter().filter(|_| which == VariableFiles::All);
    for name in of_mise {
        let below = directory.join(name);
        if below.is_dir() {
            files.extend(env_files(&below, |name| {
                name.ends_with(".toml") || loads_variables(name)
            })?);
        }
    }
    let is_protected = |file: &PathBuf| {
        let below = file.strip_prefix(directory).unwrap_or(file);
        let list = ProtectedList::builtin();
        (below.ancestors()).any(|path| path.to_str().is_some_and(|name| list.why(name).is_some()))
    };
    files.retain(|file| which == VariableFiles::All || !is_protected(file));
    Ok(files)
}

fn env_files(directory: &Path, is_one: impl Fn(&str) -> bool) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for (count, entry) in std::fs::read_dir(directory)?.enumerate() {
        if count == MOST {
            return Err(std::io::Error::other("it has too many entries"));
        }
        let entry = entry?;
        let is_env = entry.file_name().to_str().is_some_and(&is_one);
        // A directory may be called so: an environment of Python's.
        if is_env && !entry.path().is_dir() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Whether a file of this name may put variables into the user's environment.
fn loads_variables(name: &str) -> bool {
    let is_one = PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    is_one && !TEMPLATES.iter().any(|suffix| name.ends_with(suffix))
}

fn names_one(file: &Path, names: &[&str]) -> Option<String> {
    let text = match read_file(file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).to_ascii_lowercase(),
        // A link to nothing has no variables.
        Err(_) if !file.exists() => return None,
        Err(error) => {
            return Some(format!(
                "{}: {file:?} may name it",
                crate::log::chain(&error)
            ));
        }
    };
    // There an escape may stand for a letter of the name.
    let is_of_escapes = file
        .extension()
        .is_some_and(|end| end == "toml" || end == "json");
    let has_escapes = is_of_escapes && ["\\u", "\\x"].iter().any(|escape| text.contains(escape));
    let mut names = names.iter().map(|name| name.to_ascii_lowercase());
    (has_escapes || names.any(|name| text.contains(&name))).then(|| {
        format!(
            "{file:?} may name it too, which a sandbox may have written; set it where your shell starts, and not in that file"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 1] = ["https_proxy"];

    #[test]
    fn the_next_start_reads_no_more_than_a_few_files_of_variables() {
        let dir = crate::probe::TestDir::unique();
        let all = |count| {
            let names = (0..count).map(|n| dir.0.join(format!(".env.{n}")));
            names.collect::<Vec<_>>()
        };
        for file in all(MOST_FILES) {
            std::fs::File::create(file).unwrap();
        }
        assert!(few_enough(all(MOST_FILES)).is_ok());
        assert!(few_enough(all(MOST_FILES + 1)).is_err());
        let sparse = std::fs::File::create(dir.0.join(".env.0")).unwrap();
        sparse.set_len(MOST_BYTES + 1).unwrap();
        assert!(few_enough(all(1)).is_err());
    }

    #[test]
    fn files_of_variables_are_known_by_their_names() {
        for name in [
            ".env",
            ".env.local",
            ".envrc",
            "dev.env",
            "mise.toml",
            ".mise.toml",
            "mise.local.toml",
            ".mise.local.toml",
            "mise.production.toml",
            ".mise.production.toml",
            ".rtx.toml",
        ] {
            assert!(loads_variables(name), "{name}");
        }
        for name in [
            ".env.example",
            "env",
            "environment.yml",
            "promise.rs",
            "my.env.sample",
        ] {
            assert!(!loads_variables(name), "{name}");
        }
    }

    #[test]
    fn a_file_that_names_the_variable_in_any_case_is_found() {
        let dir = std::env::temp_dir().join(format!("agentbox-env-{}", std::process::id()));
        std::fs::create_dir_all(dir.join(".env.d")).unwrap();
        let found = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            let found = env_files(&dir, loads_variables)
                .unwrap()
                .iter()
                .find_map(|file| names_one(file, &NAMES));
            std::fs::remove_file(path).unwrap();
            found.is_some()
        };
        for text in [
            "export https_proxy=x",
            "HTTPS_PROXY=x\n",
            "# a\rHttps_Proxy=${A}",
        ] {
            assert!(found(".env", text), "{text:?}");
        }
        assert!(found(".mise.ci.toml", "\"HTTPS\\u005fPROXY\" = \"x\""));
        assert!(!found(".mise.ci.toml", "[tools]\nnode = \"22\""));
        assert!(!found(".env", "HTTP_PROXY=x\nA=1\n"));
        assert!(!found(".env.example", "HTTPS_PROXY=x\n"));
        // Reading it would block: it counts as one that names it.
        let pipe = dir.join(".env.pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(
            env_files(&dir, loads_variables)
                .unwrap()
                .iter()
                .any(|file| names_one(file, &NAMES).is_some())
        );
        std::fs::remove_file(pipe).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join(".env")).unwrap();
        assert!(
            env_files(&dir, loads_variables)
                .unwrap()
                .iter()
                .all(|file| names_one(file, &NAMES).is_none())
        );
        std::fs::remove_dir_all(dir).unwrap();
    }
}
