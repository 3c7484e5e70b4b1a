//! PURE. containerd's config.toml with the handlers `agentbox` and `agentbox-strict`, and without them. They stand
//! between two comments at the end, so that every other byte stays.
//!
//! containerd 2 merges drop-in files into its main file: there the handlers get their own file. In containerd 1 a
//! drop-in replaces the whole CRI section, with the node's other handlers (seen with 1.6 and 1.7).

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::text::escape;

/// All lines between these are agentbox's. The first is matched by its start: earlier versions have other words in
/// brackets.
const BEGIN: &str = "# agentbox: begin";
const BEGIN_WORDS: &str = " (agentbox install; docs/kubernetes.md)";
const END: &str = "# agentbox: end";

/// The handlers in the form for manual installation.
const VERSION_2: &str = include_str!("../../hack/kubernetes/containerd-1.toml");
const VERSION_3: &str = include_str!("../../hack/kubernetes/containerd-2.toml");
/// The path in these texts.
const USUAL: &str = "\"/usr/local/bin/agentbox";

/// The name of agentbox's drop-in file.
const DROP_IN: &str = "agentbox.toml";

const HANDLERS: [&str; 2] = ["agentbox", "agentbox-strict"];

/// The place of the handlers.
#[derive(Debug, PartialEq, Eq)]
pub enum Registration {
    /// None, for this reason.
    None(String),
    /// At the end of the main file, whose new text this is.
    Main(String),
    /// In a separate file with this text.
    DropIn { path: PathBuf, text: String },
}

/// The handlers for a version of the file format.
fn handlers_of(version: i64) -> Option<&'static str> {
    match version {
        2 => Some(VERSION_2),
        3 => Some(VERSION_3),
        _ => None,
    }
}

/// Chooses the place of the handlers for this file.
pub fn register(text: &str, binary: &Path) -> Registration {
    let no = |why: &str| Registration::None(why.to_owned());
    let others = match without(text) {
        Ok(others) => others,
        Err(why) => return Registration::None(why),
    };
    let table: Table = match others.parse() {
        Ok(table) => table,
        Err(error) => {
            return no(&format!(
                "it is not TOML: {}",
                escape(error.to_string().trim_end())
            ));
        }
    };
    if has_no_pods(&table) {
        return no("its CRI plugin is disabled");
    }
    let version = table
        .get("version")
        .and_then(Value::as_integer)
        .unwrap_or(1);
    let Some(usual) = handlers_of(version) else {
        return no("it has neither version = 2 nor 3: add the lines of docs/kubernetes.md by hand");
    };
    if HANDLERS.iter().any(|name| has_handler(&table, name)) {
        return no("it has handlers of that name from another program: remove them first");
    }
    let block = handlers(usual, binary, CgroupManager::of(&table));
    if version == 3
        && others == text
        && let Some(directory) = drop_ins(&table)
    {
        return Registration::DropIn {
            path: directory.join(DROP_IN),
            text: format!(
                "# Written by agentbox install: docs/kubernetes.md.\nversion = 3\n{block}"
            ),
        };
    }
    let gap = match others.is_empty() || others.ends_with('\n') {
        true => "",
        false => "\n",
    };
    let whole = format!("{others}{gap}{BEGIN}{BEGIN_WORDS}\n{block}{END}\n");
    // A `plugins` inline table cannot be extended.
    match whole.parse::<Table>() {
        Ok(table) if HANDLERS.iter().all(|name| has_handler(&table, name)) => {
            Registration::Main(whole)
        }
        Ok(_) | Err(_) => {
            no("agentbox cannot append to its plugins: add the lines of docs/kubernetes.md by hand")
        }
    }
}

/// The text without agentbox's lines.
///
/// # Errors
/// One of the two comments is missing, so agentbox's lines cannot be told apart.
pub fn without(text: &str) -> Result<String, String> {
    let mut kept = String::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        match (inside, line.trim_end()) {
            (false, words) if words.starts_with(BEGIN) => inside = true,
            (true, END) => inside = false,
            (false, END) => return Err(unpaired(END)),
            (true, _) => {}
            (false, _) => kept.push_str(line),
        }
    }
    match inside {
        true => Err(unpaired(BEGIN)),
        false => Ok(kept),
    }
}

fn unpaired(line: &str) -> String {
    format!(
        "its line `{line}` has no counterpart: remove the handlers of agentbox and these lines by hand"
    )
}

/// Whether containerd with this file serves no pods: its CRI plugin is disabled.
pub fn has_no_pods(table: &Table) -> bool {
    let disabled = table.get("disabled_plugins").and_then(Value::as_array);
    let mut names = disabled.into_iter().flatten().filter_map(Value::as_str);
    names.any(|name| {
        name == "cri" || name.ends_with(".cri") || name.starts_with("io.containerd.cri.")
    })
}

/// The section `containerd` of each CRI plugin, under any version's name.
fn sections(table: &Table) -> impl Iterator<Item = &Value> {
    let plugins = table.get("plugins").and_then(Value::as_table);
    let plugins = plugins.into_iter().flat_map(|plugins| plugins.values());
    plugins.filter_map(|plugin| plugin.get("containerd"))
}

/// The handlers of each section.
fn runtimes(table: &Table) -> impl Iterator<Item = &Table> {
    sections(table).filter_map(|section| section.get("runtimes")?.as_table())
}

/// The handler `agentbox`.
pub fn handler(table: &Table) -> Option<&Value> {
    runtimes(table).find_map(|handlers| handlers.get(HANDLERS[0]))
}

/// Whether one of agentbox's handlers runs pods without a runtime class. containerd does not start with a file that is
/// not TOML.
pub fn is_default(text: &str) -> bool {
    let table: Table = text.parse().unwrap_or_default();
    let mut defaults =
        sections(&table).filter_map(|section| section.get("default_runtime_name")?.as_str());
    defaults.any(|name| HANDLERS.contains(&name))
}

fn has_handler(table: &Table, name: &str) -> bool {
    runtimes(table).any(|handlers| handlers.contains_key(name))
}

/// The manager of the node's cgroups. The kubelet and the runtime must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CgroupManager {
    Systemd,
    Cgroupfs,
}

impl CgroupManager {
    fn of(table: &Table) -> Self {
        let is_systemd = |handler: &Value| {
            let option = handler.get("options").and_then(|o| o.get("SystemdCgroup"));
            option.and_then(Value::as_bool) == Some(true)
        };
        match runtimes(table).flat_map(Table::values).any(is_systemd) {
            true => Self::Systemd,
            false => Self::Cgroupfs,
        }
    }
}

fn handlers(usual: &str, binary: &Path, manager: CgroupManager) -> String {
    let after = usual
        .lines()
        .skip_while(|line| !line.starts_with("version"));
    let mut block = String::new();
    for line in after.skip(1) {
        let line = line.replace(USUAL, &format!("\"{}", binary.display()));
        let line = match manager {
            CgroupManager::Systemd => line.replace("#SystemdCgroup", "SystemdCgroup"),
            CgroupManager::Cgroupfs => line,
        };
        block += &line;
        block.push('\n');
    }
    block
}

/// The drop-in file of a main file, if it imports drop-ins.
pub fn drop_in(text: &str) -> Option<PathBuf> {
    let table: Table = text.parse().ok()?;
    Some(drop_ins(&table)?.join(DROP_IN))
}

/// The directory of drop-ins that the main file imports, if it is below /etc/containerd.
fn drop_ins(table: &Table) -> Option<PathBuf> {
    let imports = table.get("imports")?.as_array()?;
    let directories = imports.iter().filter_map(|pattern| {
        let directory = Path::new(pattern.as_str()?.strip_suffix("/*.toml")?);
        let own = directory.starts_with("/etc/containerd");
        let plain = directory.components().all(|part| {
            let text = part.as_os_str().to_string_lossy();
            text != ".." && !text.contains(['*', '?', '['])
        });
        (own && plain).then(|| directory.to_owned())
    });
    directories.into_iter().next()
}
