//! Reading what has a say in a policy: the node's file, its policy directory, the command line.

use std::collections::BTreeMap;
use std::path::Path;

use super::RuntimeError;
use super::bundle::read_file;
use crate::cli::Global;
use crate::policy::{NodeConfig, Selection, Sources, resolve};

/// Chooses and resolves the policy of a container with these annotations.
pub fn selection(
    global: &Global,
    annotations: &BTreeMap<String, String>,
) -> Result<Selection, RuntimeError> {
    let node = node(&global.config)?;
    let files = policy_files(node.policy_dir.as_ref())?;
    Ok(resolve(&Sources {
        annotations,
        flag: global.policy.as_deref(),
        node: &node,
        files: &files,
        known_syscall: crate::seccomp::is_known,
    })?)
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

fn policy_files(dir: &Path) -> Result<BTreeMap<String, String>, RuntimeError> {
    let step = || format!("read the node's policies in {dir:?}");
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
