//! Reading what has a say in a policy: the node's file, its policy directory, the command line.

use std::collections::BTreeMap;
use std::path::Path;

use super::bundle::read_file;
use super::{RuntimeError, upstream};
use crate::cli::Global;
use crate::policy::{NodeConfig, Selection, Sources, resolve};

/// Chooses and resolves the policy of a container with these annotations.
pub fn selection(
    global: &Global,
    annotations: &BTreeMap<String, String>,
) -> Result<Selection, RuntimeError> {
    let files = NodeFiles::read(&global.config)?;
    Ok(resolve(
        &files.sources(annotations, global.policy.as_deref()),
    )?)
}

/// What the node says of policies.
#[derive(Debug)]
pub struct NodeFiles {
    /// Its own file.
    pub node: NodeConfig,
    policies: BTreeMap<String, String>,
    presets: BTreeMap<String, String>,
}

impl NodeFiles {
    /// Reads the node's file and the directories that it names.
    pub fn read(config: &Path) -> Result<Self, RuntimeError> {
        let node = node(config)?;
        upstream::check(config, &node)?;
        Ok(Self {
            policies: toml_files(node.policy_dir.as_ref(), "policies")?,
            presets: toml_files(node.preset_dir.as_ref(), "presets")?,
            node,
        })
    }

    /// All that has a say in the policy of a container with these annotations.
    pub fn sources<'a>(
        &'a self,
        annotations: &'a BTreeMap<String, String>,
        flag: Option<&'a str>,
    ) -> Sources<'a> {
        Sources {
            annotations,
            flag,
            node: &self.node,
            files: &self.policies,
            presets: &self.presets,
            known_syscall: crate::seccomp::is_known,
        }
    }
}

fn node(path: &Path) -> Result<NodeConfig, RuntimeError> {
    match read_text(path) {
        Ok(text) => Ok(NodeConfig::parse(&text)?),
        Err(RuntimeError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(NodeConfig::default())
        }
        // Unreadable is not absent: it may hold the ceiling.
        Err(e) => Err(e),
    }
}

fn read_text(path: &Path) -> Result<String, RuntimeError> {
    String::from_utf8(read_file(path)?).map_err(|_| RuntimeError::Input {
        path: path.to_owned(),
        why: "it is not UTF-8".to_owned(),
    })
}

fn toml_files(dir: &Path, what: &str) -> Result<BTreeMap<String, String>, RuntimeError> {
    let step = || format!("read the node's {what} in {dir:?}");
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(e) => return Err(RuntimeError::io(step())(e)),
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry.map_err(RuntimeError::io(step()))?.path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .and_then(|n| n.strip_suffix(".toml"));
        if let Some(name) = name {
            files.insert(name.to_owned(), read_text(&path)?);
        }
    }
    Ok(files)
}
