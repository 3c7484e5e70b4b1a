//! SHELL. The upstream proxy of the user's environment: `HTTPS_PROXY`, the way out that the user's other programs take.
//!
//! A proxy is the other end of each connection. One of an attacker's would get what the workload sends, whatever hosts the
//! rules list: TLS does not help if the workload takes part. So a variable does not count if an env file in the workspace,
//! or above it where a sandbox writes, names it: direnv's `dotenv`, mise and others put what a sandbox wrote there into the
//! user's environment. direnv's and mise's own files are protected besides (`policies/protected.toml`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::person::Person;
use super::request::WrapRequest;
use super::settings::places::no_sandbox_writes;
use crate::policy::{NetworkMode, PROXY_VARIABLES, ResolvedPolicy, UpstreamSource, UserProxy};
use crate::runtime::input::bundle::read_file;

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

/// What the user's environment says about a proxy.
#[derive(Debug, Default)]
pub enum EnvironmentProxy {
    /// Nothing.
    #[default]
    Unset,
    /// It names one.
    Named(UserProxy),
    /// It names one that does not count, for this reason.
    Refused(String),
}

impl EnvironmentProxy {
    /// Reads the variables of this process, never those of `--env` or a file. `places` are the directories where the user's shell
    /// may have loaded files. Call it with the user's rights over files.
    pub fn of_caller(person: &Person, places: &[PathBuf]) -> Self {
        match UserProxy::of(|name| std::env::var(name).ok()) {
            Ok(None) => Self::Unset,
            Err(why) => Self::Refused(why),
            Ok(Some(proxy)) => match named_by(person, places) {
                Some(why) => Self::Refused(why),
                None => Self::Named(proxy),
            },
        }
    }

    /// The proxy, if it counts.
    pub fn named(&self) -> Option<&UserProxy> {
        match self {
            Self::Named(proxy) => Some(proxy),
            Self::Unset | Self::Refused(_) => None,
        }
    }
}

/// Says in one line through which proxy hosts are reached, or why not.
pub fn tell(wanted: &WrapRequest, resolved: &ResolvedPolicy) {
    let line = line(&wanted.proxy, resolved).filter(|_| !wanted.quiet);
    if let Some(line) = line {
        crate::log::complain(&format!("agentbox: {line}"));
    }
}

/// The line; `None` if no variable has a say.
fn line(proxy: &EnvironmentProxy, resolved: &ResolvedPolicy) -> Option<String> {
    if resolved.policy.network.mode != NetworkMode::Allowlist {
        return None;
    }
    let of_user = resolved.upstream.as_ref();
    let of_user = of_user.filter(|upstream| upstream.source != UpstreamSource::Node);
    Some(match (proxy, of_user, &resolved.upstream) {
        (EnvironmentProxy::Named(proxy), Some(upstream), _) => format!(
            "hosts are reached through the proxy {upstream} ({})",
            proxy.variable
        ),
        // The node's own, whatever the variable says.
        (EnvironmentProxy::Unset, _, _) | (_, _, Some(_)) => return None,
        (EnvironmentProxy::Named(proxy), None, None) => format!(
            "{} is not used, and hosts are dialled directly: the node's file does not permit it (upstream-from-user)",
            proxy.variable
        ),
        (EnvironmentProxy::Refused(why), _, None) => format!(
            "{} is not used, and hosts are dialled directly: {why}",
            PROXY_VARIABLES[1]
        ),
    })
}

/// Why a variable may come from a file that a sandbox writes; `None` if no such file names it.
fn named_by(person: &Person, places: &[PathBuf]) -> Option<String> {
    let above = places.iter().flat_map(|place| {
        let above = place.ancestors();
        above.take_while(|directory| !no_sandbox_writes(person, directory))
    });
    let all: BTreeSet<&Path> = above.collect();
    all.into_iter().find_map(
        |directory| match all_env_files(directory).and_then(few_enough) {
            Ok(files) => files.iter().find_map(|file| names_it(file)),
            Err(why) => Some(format!("{directory:?} cannot be looked through: {why}")),
        },
    )
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

/// Where the user's shell may be: its directory by the kernel's name and by its own, which may have links.
pub fn shells_places() -> Vec<PathBuf> {
    let own = std::env::var_os("PWD").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute());
    std::env::current_dir()
        .ok()
        .into_iter()
        .chain(own)
        .collect()
}

/// The files of a directory, and of mise's directories in it.
fn all_env_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = env_files(directory, loads_variables)?;
    for name in OF_MISE {
        let below = directory.join(name);
        if below.is_dir() {
            files.extend(env_files(&below, |name| {
                name.ends_with(".toml") || loads_variables(name)
            })?);
        }
    }
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

fn names_it(file: &Path) -> Option<String> {
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
    (has_escapes || text.contains(PROXY_VARIABLES[0])).then(|| {
        format!(
            "{file:?} may name it too, which a sandbox may have written; set it where your shell starts, and not in that file"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::sample_resolved;
    use crate::policy::Upstream;

    /// The proxy of `HTTPS_PROXY` in the user's environment.
    fn of_user() -> UserProxy {
        let set = |name: &str| {
            let value = "http://alice:password@proxy.test:3128";
            (name == PROXY_VARIABLES[1]).then(|| value.to_owned())
        };
        UserProxy::of(set).unwrap().unwrap()
    }

    fn proxy_message(
        proxy: &EnvironmentProxy,
        mode: NetworkMode,
        upstream: Option<Upstream>,
    ) -> Option<String> {
        let mut resolved = sample_resolved();
        resolved.policy.network.mode = mode;
        resolved.upstream = upstream;
        line(proxy, &resolved)
    }

    #[test]
    fn the_user_is_told_of_the_proxy_that_is_used_or_why_it_is_not() {
        let named = || EnvironmentProxy::Named(of_user());
        let refused = || EnvironmentProxy::Refused("why".to_owned());
        let users = || Some(of_user().upstream());
        let nodes = || {
            Some(Upstream {
                source: UpstreamSource::Node,
                ..of_user().upstream()
            })
        };
        for (proxy, upstream, expected) in [
            (
                named(),
                users(),
                Some("hosts are reached through the proxy http://proxy.test:3128 (HTTPS_PROXY)"),
            ),
            (
                named(),
                None,
                Some(
                    "HTTPS_PROXY is not used, and hosts are dialled directly: the node's file does not permit it \
                     (upstream-from-user)",
                ),
            ),
            (
                refused(),
                None,
                Some("HTTPS_PROXY is not used, and hosts are dialled directly: why"),
            ),
            // The node's own is used, whatever the variable says.
            (named(), nodes(), None),
            (refused(), nodes(), None),
            (EnvironmentProxy::Unset, nodes(), None),
            (EnvironmentProxy::Unset, None, None),
        ] {
            let proxy_message = |mode| proxy_message(&proxy, mode, upstream.clone());
            assert_eq!(proxy_message(NetworkMode::Allowlist).as_deref(), expected);
            // Nothing is reached through any proxy.
            assert_eq!(proxy_message(NetworkMode::Local), None);
            assert_eq!(proxy_message(NetworkMode::None), None);
        }
    }

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
                .find_map(|file| names_it(file));
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
                .any(|file| names_it(file).is_some())
        );
        std::fs::remove_file(pipe).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join(".env")).unwrap();
        assert!(
            env_files(&dir, loads_variables)
                .unwrap()
                .iter()
                .all(|file| names_it(file).is_none())
        );
        std::fs::remove_dir_all(dir).unwrap();
    }
}
