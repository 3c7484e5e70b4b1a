//! `policy presets`

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::super::out;
use crate::cli::{GlobalOptions, PolicyPresets};
use crate::indexes::{self, ManagerRules};
use crate::policy::Preset;
use crate::policy::catalogue::{self, ListedPreset};
use crate::runtime::input::node_files::{NodeFiles, preset_dir};
use crate::runtime::input::own_home;
use crate::text::escape;

/// Lists presets, or detects the hosts of the node's package managers.
pub fn run(global: &GlobalOptions, args: &PolicyPresets) -> Result<ExitCode> {
    if !args.detect {
        return list(global, args);
    }
    let home = std::env::var_os("HOME").context("HOME is not set: set it to the user's home")?;
    let home = own_home::resolve(Path::new(&home))?;
    crate::log::complain(
        "agentbox: asking pip, npm, cargo, go and apt for their hosts; without a network each may take a minute",
    );
    let all = indexes::detect(&home).context("create a directory in HOME for the query")?;
    if all.is_empty() {
        bail!("none of pip, npm, cargo, go and apt-get is on this node");
    }
    let variables = indexes::variables(&home);
    if !variables.is_empty() {
        crate::log::complain(&format!(
            "agentbox: your variables {} may choose hosts below: a project may have set them (.env), so review these",
            variables.join(", ")
        ));
    }
    for learned in &all {
        out::line(&format!("# {}.toml\n{}", learned.preset, learned.to_toml()))?;
    }
    if args.write {
        let dir = preset_dir(global)?;
        let existing = match args.force {
            true => OverwriteMode::IsReplaced,
            false => OverwriteMode::Stays,
        };
        for learned in &all {
            out::line(&write(&dir, learned, existing, &all)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the named presets, or all.
fn list(global: &GlobalOptions, args: &PolicyPresets) -> Result<ExitCode> {
    let files = NodeFiles::of(global)?;
    let mut all = catalogue::presets(&files.sources(&BTreeMap::new(), None))?;
    let asked: Vec<&str> = args
        .names
        .iter()
        .map(|name| name.trim_start_matches('@'))
        .collect();
    for name in &asked {
        if !all.iter().any(|listed| listed.name.as_str() == *name) {
            bail!(
                "there is no preset @{}: `agentbox policy presets` lists all",
                escape(name)
            );
        }
    }
    all.retain(|listed| asked.is_empty() || asked.contains(&listed.name.as_str()));
    if args.json {
        let usable: BTreeMap<String, &Preset> = all
            .iter()
            .filter_map(|listed| Some((listed.name.to_string(), listed.preset.as_ref().ok()?)))
            .collect();
        out::line(&serde_json::to_string_pretty(&usable).context("write JSON")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for listed in &all {
        out::text(&words(listed))?;
        if let Ok(preset) = listed.preset.as_ref()
            && !asked.is_empty()
        {
            for page in &preset.sources {
                out::line(&format!("    see {}", escape(page)))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn words(listed: &ListedPreset) -> String {
    let from = match listed.of_node {
        true => "the node's",
        false => "built in",
    };
    match &listed.preset {
        Ok(preset) => {
            let (hosts, requests): (Vec<_>, Vec<_>) = preset
                .rules
                .iter()
                .partition(|rule| rule.connection().is_some());
            let hosts: Vec<String> = hosts.into_iter().map(ToString::to_string).collect();
            let hosts = (!hosts.is_empty()).then(|| hosts.join(" "));
            let lines = hosts
                .into_iter()
                .chain(requests.iter().map(ToString::to_string));
            let rules: String = lines.map(|line| format!("    {line}\n")).collect();
            format!(
                "@{} ({from}): {}\n{rules}",
                listed.name,
                escape(&preset.description)
            )
        }
        Err(error) => format!("@{} ({from}): cannot be used: {error}\n", listed.name),
    }
}

/// Whether an existing file is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OverwriteMode {
    Stays,
    IsReplaced,
}

/// Writes a whole preset file, or nothing. Returns the result for the user.
fn write(
    dir: &Path,
    learned: &ManagerRules,
    existing: OverwriteMode,
    all: &[ManagerRules],
) -> Result<String> {
    let path = dir.join(format!("{}.toml", learned.preset));
    if learned.rules.is_empty() {
        return Ok(format!(
            "{}: not written, no hosts were found",
            path.display()
        ));
    }
    if existing == OverwriteMode::Stays && path.symlink_metadata().is_ok() {
        return Ok(format!("kept {}; --force replaces it", path.display()));
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
        .map_err(|error| unwritten(error, dir, all))?;
    let part = dir.join(format!(".{}.part", learned.preset));
    fill(&part, &learned.to_toml()).map_err(|error| unwritten(error, dir, all))?;
    std::fs::rename(&part, &path).with_context(|| format!("write {path:?}"))?;
    Ok(format!(
        "wrote {}; review it before a policy uses @{}",
        path.display(),
        learned.preset
    ))
}

/// Why the node's presets are not written, and what a user without root's rights can write instead.
fn unwritten(error: std::io::Error, dir: &Path, all: &[ManagerRules]) -> anyhow::Error {
    let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
    let error = anyhow::Error::new(error);
    if !is_refused {
        return error.context(format!("write to {dir:?}"));
    }
    let rules = all.iter().flat_map(|learned| learned.rules.keys());
    let rules: BTreeSet<String> = rules.map(ToString::to_string).collect();
    let rules = toml::Value::from(Vec::from_iter(rules));
    anyhow::anyhow!(
        "the node's presets are root's: use sudo; or, in ~/.config/agentbox/config.toml: allow = {rules}"
    )
}

fn fill(path: &PathBuf, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
