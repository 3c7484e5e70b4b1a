//! Reads the sources of a policy: the node's file, its policy directory, the command line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::way;
use crate::cli::GlobalOptions;
use crate::policy::{
    Asker, FileText, HostPath, ImageAnnotations, NodeConfig, NodeLog, PolicyError, SecretSource,
    Selection, Sources, Tool, WrapOptions, misnamed_policy, misnamed_preset, resolve, typed_path,
};
use crate::probe::NodePlaces;
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle::{open_regular, read_open};
use crate::runtime::network::upstream;
use crate::runtime::unprivileged;
use crate::sys::path::{resolve_owned, weakest};
use crate::sys::user_namespace::owner;

/// The node's file, unless the call names another. It may be missing.
const CONFIG: &str = "/etc/agentbox/config.toml";

/// The node's file for this call.
pub fn config(global: &GlobalOptions) -> &Path {
    global.config.as_deref().unwrap_or(Path::new(CONFIG))
}

/// Refuses `--config` of a caller without root's rights if the node has its own file: that file holds for every user,
/// and the option would replace it.
pub fn check_caller(global: &GlobalOptions) -> Result<(), RuntimeError> {
    let named = global.config.as_deref();
    check_config(unprivileged::uid(), named, Path::new(CONFIG))
}

/// The same for this caller and this option, where the node's file would be at this path.
fn check_config(uid: u32, named: Option<&Path>, node: &Path) -> Result<(), RuntimeError> {
    match named {
        Some(named) if named != node && !is_absent(node) && uid != 0 => Err(RuntimeError::Input {
            path: named.to_owned(),
            why: format!(
                "--config is root's where the node has {}, which holds for every user: leave --config out, and write \
                     settings of your own to ~/.config/agentbox/config.toml",
                node.display()
            ),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Chooses and resolves the policy of a container with these annotations.
pub fn selection(
    global: &GlobalOptions,
    annotations: &BTreeMap<String, String>,
    asked: &WrapOptions,
) -> Result<Selection, RuntimeError> {
    NodeFiles::for_container(global)?.select(global, annotations, asked)
}

/// The node's policy files.
#[derive(Debug)]
pub struct NodeFiles {
    /// The node's file.
    pub node: NodeConfig,
    policies: BTreeMap<String, FileText>,
    presets: BTreeMap<String, FileText>,
    misnamed: Vec<PolicyError>,
    ignored: Vec<PathBuf>,
}

impl NodeFiles {
    /// Reads the files for this call.
    pub fn of(global: &GlobalOptions) -> Result<Self, RuntimeError> {
        match &global.config {
            Some(named) => Self::read_named(named),
            None => Self::read(Path::new(CONFIG)),
        }
    }

    /// Likewise; says which ones are not read.
    pub fn for_container(global: &GlobalOptions) -> Result<Self, RuntimeError> {
        let files = Self::of(global)?;
        for problem in files.misnamed() {
            log::warn!("{problem}: it is not read");
        }
        Ok(files)
    }

    /// Reads the node's file and the directories that it names. Only the default file may be missing: a named one may
    /// hold the ceiling.
    pub fn read(config: &Path) -> Result<Self, RuntimeError> {
        match config == Path::new(CONFIG) {
            true => Self::complete(config, node(config)?.unwrap_or_default()),
            false => Self::read_named(config),
        }
    }

    fn read_named(config: &Path) -> Result<Self, RuntimeError> {
        let node = node(config)?.ok_or_else(|| missing(config, "--config names it"))?;
        Self::complete(config, node)
    }

    fn complete(config: &Path, node: NodeConfig) -> Result<Self, RuntimeError> {
        upstream::check(config, &node)?;
        let mut files = Self {
            policies: BTreeMap::new(),
            presets: BTreeMap::new(),
            misnamed: Vec::new(),
            ignored: Vec::new(),
            node,
        };
        let NodeConfig {
            policy_dir,
            preset_dir,
            ..
        } = &files.node;
        let by = |key: &str| format!("{key} of {config:?} names it");
        let policies = Directory::of(policy_dir.as_ref(), POLICIES, by("policy-dir"));
        let presets = Directory::of(preset_dir.as_ref(), PRESETS, by("preset-dir"));
        for (directory, misnamed, texts) in [
            (
                policies,
                misnamed_policy as fn(&str) -> _,
                &mut files.policies,
            ),
            (presets, misnamed_preset, &mut files.presets),
        ] {
            let found = directory.read(misnamed)?;
            *texts = found.texts;
            files.misnamed.extend(found.misnamed);
            files.ignored.extend(found.ignored);
        }
        Ok(files)
    }

    /// Likewise, from these files.
    ///
    /// # Errors
    /// What is chosen is not there, or is not permitted.
    pub fn select(
        &self,
        global: &GlobalOptions,
        annotations: &BTreeMap<String, String>,
        asked: &WrapOptions,
    ) -> Result<Selection, RuntimeError> {
        let sources = self.sources(annotations, global.policy.as_deref());
        Ok(resolve(&sources.asked_by_wrap(asked))?)
    }

    /// Policy files that cannot be chosen, because of their names.
    pub fn misnamed(&self) -> &[PolicyError] {
        &self.misnamed
    }

    /// Files in the same directories that do not end in `.toml`: backups, and typing errors.
    pub fn ignored(&self) -> &[PathBuf] {
        &self.ignored
    }

    /// All that has a say in the policy of a container with these annotations.
    pub fn sources<'a>(
        &'a self,
        annotations: &'a BTreeMap<String, String>,
        flag: Option<&'a str>,
    ) -> Sources<'a> {
        Sources {
            annotations,
            image: ImageAnnotations::Unknown,
            flag,
            node: &self.node,
            files: &self.policies,
            presets: &self.presets,
            asker: Asker::Container,
            tool: Tool::default(),
            asked: WrapOptions::NOTHING,
        }
    }
}

/// What the node's file says about logs.
///
/// # Errors
/// The file cannot be read, or others may write it.
pub fn log(config: &Path) -> Result<NodeLog, RuntimeError> {
    Ok(node(config)?.unwrap_or_default().log)
}

/// The node's file and the paths that it names. They decide about later containers, so no container may write them.
pub fn places(global: &GlobalOptions) -> Result<NodePlaces, RuntimeError> {
    Ok(places_of(global, &node_or_default(global)?))
}

/// Likewise, of a file that was read.
pub fn places_of(global: &GlobalOptions, node: &NodeConfig) -> NodePlaces {
    let path = |named: &HostPath| PathBuf::from(named.as_str());
    let network = &node.network;
    let named = [
        &node.policy_dir,
        &node.preset_dir,
        &network.upstream_credentials,
    ];
    let named = named.into_iter().flatten();
    let files = node
        .secret
        .iter()
        .filter_map(|secret| match &secret.source {
            SecretSource::File(file) => Some(file),
            SecretSource::Volume(_) | SecretSource::User(_) => None,
        });
    let named = named.chain(files);
    let config = std::path::absolute(config(global)).ok();
    // At its default path, the list's entry covers it.
    let config = config.filter(|path| path != Path::new(CONFIG));
    NodePlaces {
        hidden: named.map(path).chain(config).collect(),
        public: network.upstream_trust_roots.iter().map(path).collect(),
    }
}

/// The directory of the node's presets; it may not exist yet.
pub fn preset_dir(global: &GlobalOptions) -> Result<PathBuf, RuntimeError> {
    let named = node_or_default(global)?.preset_dir;
    Ok(PathBuf::from(
        named.as_ref().map_or(PRESETS, |path| path.as_str()),
    ))
}

/// The directory of the node's policies; it may not exist yet.
pub fn policy_dir(global: &GlobalOptions) -> Result<PathBuf, RuntimeError> {
    let named = node_or_default(global)?.policy_dir;
    Ok(PathBuf::from(
        named.as_ref().map_or(POLICIES, |path| path.as_str()),
    ))
}

fn node_or_default(global: &GlobalOptions) -> Result<NodeConfig, RuntimeError> {
    match (node(config(global))?, &global.config) {
        (None, Some(named)) => Err(missing(named, "--config names it")),
        (node, _) => Ok(node.unwrap_or_default()),
    }
}

/// The default directory of the node's policies.
const POLICIES: &str = "/etc/agentbox/policies";
/// The default directory of its presets.
const PRESETS: &str = "/etc/agentbox/presets";

/// The node's file; `None` if it is missing.
fn node(path: &Path) -> Result<Option<NodeConfig>, RuntimeError> {
    trusted_way(path)?;
    match read_text(path) {
        Ok(text) => Ok(Some(NodeConfig::parse(&text)?)),
        Err(RuntimeError::Io { source, .. })
            if source.kind() == ErrorKind::NotFound && is_absent(path) =>
        {
            Ok(None)
        }
        // Unreadable is not absent: it may hold the ceiling.
        Err(error) => Err(way::closed(path, error)),
    }
}

/// Whether the path is missing. A dangling link is not: its file existed once.
fn is_absent(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound)
}

/// Refuses a path if another user can change a directory or link on the way: they would choose the file. A path that is
/// missing or cannot be inspected is checked when it is opened.
fn trusted_way(path: &Path) -> Result<(), RuntimeError> {
    let Err(error) = resolve_owned(path, unprivileged::uid()) else {
        return Ok(());
    };
    match weakest(&error) {
        // Not the file itself, nor the directory of policies: their own errors are better.
        Some(step) if step.path != path => Err(RuntimeError::Input {
            path: path.to_owned(),
            why: format!(
                "{step}: others than root may write it, and choose what containers may do: chown root {} and chmod go-w it",
                typed_path(&step.path)
            ),
        }),
        Some(_) | None => Ok(()),
    }
}

fn missing(path: &Path, by: &str) -> RuntimeError {
    RuntimeError::Input {
        path: path.to_owned(),
        why: format!("{by}, and it is not there"),
    }
}

/// A text that decides about containers' rights, from a file that only trusted users can write.
fn read_text(path: &Path) -> Result<String, RuntimeError> {
    let file = open_regular(path)?;
    trusted(&file, path, 0)?;
    String::from_utf8(read_open(file, path)?).map_err(|_| RuntimeError::Input {
        path: path.to_owned(),
        why: "it is not UTF-8".to_owned(),
    })
}

/// Refuses a file that others can write. A user who can write or replace it decides on the rights of every container:
/// only root and the calling user may.
fn trusted(file: &File, path: &Path, excused_by: u32) -> Result<(), RuntimeError> {
    let step = || RuntimeError::io(format!("look at {path:?}"));
    let stat = file.metadata().map_err(step())?;
    let own = rustix::process::geteuid().as_raw();
    let writes = match stat.mode() & excused_by != 0 {
        true => 0,
        false => stat.mode() & 0o022,
    };
    // In the user namespace of one caller this is the second check: `unprivileged::enter` has done the first.
    let owner = owner(stat.uid());
    if (owner == 0 || stat.uid() == own) && writes == 0 {
        return Ok(());
    }
    Err(RuntimeError::Input {
        path: path.to_owned(),
        why: format!(
            "others than root may write it (owner {}, mode {:o}), and it says what containers may do: chown root it and \
             chmod go-w it",
            owner,
            stat.mode() & 0o7777
        ),
    })
}

/// What lies in a directory of `NAME.toml`.
#[derive(Default)]
struct DirectoryFiles {
    /// Name without `.toml` -> text.
    texts: BTreeMap<String, FileText>,
    misnamed: Vec<PolicyError>,
    ignored: Vec<PathBuf>,
}

/// A directory of `NAME.toml`.
struct Directory {
    path: PathBuf,
    /// Where the node's file names it, if it does: then it must exist.
    named: Option<String>,
}

impl Directory {
    fn of(named: Option<&HostPath>, usual: &str, by: String) -> Self {
        Self {
            path: named.map_or_else(|| PathBuf::from(usual), |path| PathBuf::from(path.as_str())),
            named: named.map(|_| by),
        }
    }

    /// Reads its files. What is misnamed is left out: other names stay usable.
    fn read(
        &self,
        misnamed: fn(&str) -> Option<PolicyError>,
    ) -> Result<DirectoryFiles, RuntimeError> {
        let dir = &self.path;
        let step = || format!("read the node's directory {dir:?}");
        let opened = match (File::open(dir), &self.named) {
            (Ok(opened), _) => opened,
            (Err(e), named) if e.kind() == ErrorKind::NotFound && is_absent(dir) => {
                return match named {
                    Some(by) => Err(missing(dir, by)),
                    None => Ok(DirectoryFiles::default()),
                };
            }
            (Err(e), _) => return Err(RuntimeError::io(step())(e)),
        };
        trusted_way(dir)?;
        // The sticky bit does not help here: adding a file adds a policy.
        trusted(&opened, dir, 0)?;
        let mut files = DirectoryFiles::default();
        for entry in std::fs::read_dir(dir).map_err(RuntimeError::io(step()))? {
            let entry = entry.map_err(RuntimeError::io(step()))?;
            let path = entry.path();
            // Only a link leads away from the directory, which is checked above.
            let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let name = path.file_name().map(|name| name.to_string_lossy());
            let name = name.as_deref().and_then(|name| name.strip_suffix(".toml"));
            match name.map(|name| (name, misnamed(name))) {
                Some((_, Some(problem))) => files.misnamed.push(problem),
                Some((name, None)) => {
                    // An error only for those who choose it.
                    let way = is_link.then(|| trusted_way(&path)).transpose();
                    let text = way.and_then(|_| read_text(&path));
                    let text = FileText::from(text.map_err(|error| crate::log::chain(&error)));
                    files.texts.insert(name.to_owned(), text);
                }
                None => files.ignored.push(path),
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;
    use crate::probe::TestDir;

    #[test]
    fn a_user_without_roots_rights_does_not_replace_the_nodes_file() {
        let base = TestDir::unique();
        let (node, own) = (base.0.join("config.toml"), base.0.join("own.toml"));
        let check = |uid, named: Option<&Path>| check_config(uid, named, &node);
        // Where the node has none, nothing is replaced.
        for uid in [0, 1000] {
            assert!(check(uid, Some(&own)).is_ok() && check(uid, None).is_ok());
        }
        // A link to nothing, too: it is the node's, and what it leads to may come back.
        for present in ["file", "link"] {
            match present {
                "file" => std::fs::write(&node, "").unwrap(),
                _ => std::os::unix::fs::symlink("missing", &node).unwrap(),
            }
            let why = check(1000, Some(&own)).unwrap_err().to_string();
            let expected = format!("--config is root's where the node has {}", node.display());
            assert!(why.contains(&expected), "{why}");
            for allowed in [
                check(0, Some(&own)),
                check(1000, Some(&node)),
                check(1000, None),
            ] {
                assert!(allowed.is_ok(), "{present}: {allowed:?}");
            }
            std::fs::remove_file(&node).unwrap();
        }
    }

    #[test]
    fn files_that_the_node_names_are_hidden_and_roots_of_trust_are_not() {
        let node = NodeConfig::parse(
            "policy-dir = \"/srv/policies\"\n[network]\nupstream-proxy = \"http://proxy.test:3128\"\n\
             upstream-credentials = \"/srv/upstream\"\nupstream-trust-roots = \"/srv/ca.pem\"\n",
        )
        .unwrap();
        let places = |config: Option<&str>| {
            let words = ["agentbox", "state", "x"];
            let mut global = Cli::parse_from(words).global;
            global.config = config.map(Into::into);
            places_of(&global, &node)
        };
        let default = places(None);
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(
            default.hidden,
            [path("/srv/policies"), path("/srv/upstream")]
        );
        assert_eq!(default.public, [path("/srv/ca.pem")]);
        // A file in place of the node's own is as secret as that one.
        assert!(
            places(Some("/opt/own.toml"))
                .hidden
                .contains(&path("/opt/own.toml"))
        );
    }
}
