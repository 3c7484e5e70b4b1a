//! Queries each package manager by its public command line; [`super::parse`] reads the answers.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::tool::{self, ManagerProgram, ToolRunner};
use super::{ManagerRules, parse};
use crate::rules::{HostReach, NetworkRule, RuleTarget};

const INDEX: &str = "the index";
const FURTHER: &str = "a further index";
const FILES: &str = "the files";

/// A package that every index has, to see where files come from.
const PYTHON_PACKAGE: &str = "pip";
const NODE_PACKAGE: &str = "npm";
const RUST_PACKAGE: &str = "cfg-if";

/// Queries all managers that are on the node.
pub fn all(tools: &ToolRunner, home: &Path) -> Vec<ManagerRules> {
    let asked = [
        python(tools),
        node(tools),
        rust(tools, home),
        go(tools),
        debian(tools),
    ];
    let mut all: Vec<ManagerRules> = asked.into_iter().flatten().collect();
    for learned in &mut all {
        open_private(tools, learned);
    }
    all
}

/// What is known of a manager without a query, and its program; `None` if the node has none.
fn begin(
    tools: &ToolRunner,
    (preset, manager): (&'static str, &'static str),
    programs: &[&str],
) -> Option<(ManagerRules, Option<PathBuf>)> {
    let mut learned = ManagerRules::new(preset, manager);
    let program = match tools.find(programs) {
        ManagerProgram::Missing => return None,
        ManagerProgram::Program(program) => Some(program),
        ManagerProgram::Changeable(program) => {
            learned.gap(&format!(
                "the hosts of {manager}: {program:?} was not run: another user or a sandbox can write it; list the hosts \
                 yourself, or install the system's {manager}"
            ));
            None
        }
    };
    Some((learned, program))
}

fn python(tools: &ToolRunner) -> Option<ManagerRules> {
    let (mut learned, pip) = begin(tools, ("python", "pip"), &["pip", "pip3"])?;
    let Some(pip) = pip else {
        return Some(learned);
    };
    // Its help shows the current value, configured or built in.
    let help = tools.ask(&pip, &["install", "--help"]);
    match help.as_deref().and_then(parse::pip_index) {
        Some(url) => learned.url(&url, INDEX),
        None => learned.gap("pip's index (`pip install --help` does not say it)"),
    }
    match tools.ask(&pip, &["config", "list"]) {
        Some(config) => {
            for url in parse::pip_more(&config) {
                learned.url(&url, FURTHER);
            }
        }
        None => learned.gap("pip's further indexes (`pip config list` failed)"),
    }
    let dry_run = [
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        // Run nothing that the index serves.
        "--only-binary",
        ":all:",
        "--quiet",
        "--report",
        "-",
        PYTHON_PACKAGE,
    ];
    let report = tools.ask(&pip, &dry_run);
    match report.as_deref().and_then(parse::pip_file) {
        Some(url) => learned.url(&url, FILES),
        None => learned.gap(&format!(
            "the host that the index serves files from (`pip {}` failed)",
            dry_run.join(" ")
        )),
    }
    Some(learned)
}

fn node(tools: &ToolRunner) -> Option<ManagerRules> {
    let (mut learned, npm) = begin(tools, ("node", "npm"), &["npm"])?;
    let Some(npm) = npm else {
        return Some(learned);
    };
    let config = tools.ask(&npm, &["config", "list", "--json"]);
    match config.as_deref().and_then(parse::npm_registries) {
        Some((registry, scopes)) => {
            learned.url(&registry, INDEX);
            for url in &scopes {
                learned.url(url, FURTHER);
            }
            if !scopes.is_empty() {
                learned.gap("the hosts that the registries of scopes serve files from");
            }
        }
        None => learned.gap("npm's registry (`npm config list --json` failed)"),
    }
    let question = ["view", NODE_PACKAGE, "dist.tarball"];
    match tools.ask(&npm, &question) {
        Some(url) => learned.url(&url, FILES),
        None => learned.gap(&format!(
            "the host that the registry serves files from (`npm {}` failed)",
            question.join(" ")
        )),
    }
    Some(learned)
}

/// Cargo has no command that shows its index, but its home does: a new home, with the configured sources, has the
/// index of a small package after one query.
fn rust(tools: &ToolRunner, home: &Path) -> Option<ManagerRules> {
    let (mut learned, cargo) = begin(tools, ("rust", "cargo"), &["cargo"])?;
    let Some(cargo) = cargo else {
        return Some(learned);
    };
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    // A project may have set the variable.
    let own = own.filter(|own| tool::is_closed(&own.join("config.toml")));
    let own = own.unwrap_or_else(|| home.join(".cargo"));
    let config = ["config.toml", "config"]
        .iter()
        .find_map(|name| tool::read(&own.join(name)))
        .unwrap_or_default();
    match parse::cargo_config(&config) {
        Some(indexes) => {
            for url in &indexes.urls {
                learned.url(url, INDEX);
            }
            if indexes.offline {
                learned.gap("no index: crates come from a directory of this node");
            }
        }
        None => learned.gap("cargo's configured indexes (its config.toml is no TOML)"),
    }
    let sources = parse::cargo_sources(&config).unwrap_or_default();
    let found = cargo_indexes(tools, &cargo, &sources).unwrap_or_default();
    if found.is_empty() {
        learned.gap(
            "the hosts that the index serves crates from (`cargo generate-lockfile` kept no config.json of an index)",
        );
    }
    for (directory, config) in found {
        // If the configuration has the same host with its port, that is the rule.
        match parse::cargo_directory(&directory) {
            Some(rule) if !learned.has(&rule.target) => learned.rule(rule, INDEX),
            Some(_) => {}
            None => learned.gap("the host of an index (its directory's name does not say it)"),
        }
        match parse::cargo_files(&config) {
            Some(url) => learned.url(&url, FILES),
            None => learned.gap("the host of an index's crates (its config.json has no dl)"),
        }
    }
    Some(learned)
}

/// Directory name and `config.json` of each index that cargo queries for a small package.
fn cargo_indexes(tools: &ToolRunner, cargo: &Path, config: &str) -> Option<Vec<(String, String)>> {
    let home = tools.path().join("cargo");
    // Not over a link that an earlier program may have left.
    let write = |path: &str, text: &str| {
        let mut new = std::fs::File::create_new(tools.path().join(path)).ok()?;
        new.write_all(text.as_bytes()).ok()
    };
    std::fs::create_dir(&home).ok()?;
    std::fs::create_dir(tools.path().join("src")).ok()?;
    write("cargo/config.toml", config)?;
    write("src/lib.rs", "")?;
    let package = format!(
        "[package]\nname = \"question\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [dependencies]\n{RUST_PACKAGE} = \"*\"\n[workspace]\n"
    );
    write("Cargo.toml", &package)?;
    let mut command = tools.command(cargo);
    // Found or not: cargo keeps an index that it has queried.
    tools.run(
        command
            .args(["generate-lockfile", "--quiet"])
            .env("CARGO_HOME", &home),
    );
    let mut found = Vec::new();
    for entry in std::fs::read_dir(home.join("registry/index")).ok()? {
        let entry = entry.ok()?;
        if let Some(text) = tool::read(&entry.path().join("config.json")) {
            found.push((entry.file_name().into_string().ok()?, text));
        }
    }
    found.sort();
    Some(found)
}

fn go(tools: &ToolRunner) -> Option<ManagerRules> {
    let (mut learned, go) = begin(tools, ("go", "go"), &["go"])?;
    let Some(go) = go else {
        return Some(learned);
    };
    match tools.ask(&go, &["env", "GOPROXY"]) {
        Some(value) => {
            let (urls, direct) = parse::go_proxies(&value);
            for url in &urls {
                learned.url(url, INDEX);
            }
            if direct {
                learned
                    .gap("the hosts of modules that no proxy has (GOPROXY names direct: any host)");
            }
            if !urls.is_empty() {
                learned.gap("whether the proxy sends on to other hosts (go does not say it)");
            }
        }
        None => learned.gap("go's proxies (`go env GOPROXY` failed)"),
    }
    match tools.ask(&go, &["env", "GOSUMDB"]) {
        Some(value) => {
            if let Some(url) = parse::go_sums(&value) {
                learned.url(&url, "the sums of modules");
            }
        }
        None => learned.gap("go's database of sums (`go env GOSUMDB` failed)"),
    }
    Some(learned)
}

fn debian(tools: &ToolRunner) -> Option<ManagerRules> {
    let (mut learned, apt) = begin(tools, ("debian", "apt"), &["apt-get"])?;
    let Some(apt) = apt else {
        return Some(learned);
    };
    match tools.ask(&apt, &["indextargets", "--format", "$(REPO_URI)"]) {
        Some(uris) => {
            for uri in uris.lines() {
                learned.url(uri, "the index and the files");
            }
            learned.gap("whether an index sends on to other hosts (apt does not say it)");
        }
        None => learned.gap("apt's indexes (`apt-get indextargets` failed)"),
    }
    Some(learned)
}

/// Marks the rules of names with private addresses as internal; other rules do not reach them.
fn open_private(tools: &ToolRunner, learned: &mut ManagerRules) {
    let getent = tools.find(&["getent"]);
    let rules = std::mem::take(&mut learned.rules);
    for (rule, purpose) in rules {
        let RuleTarget::Name(name) = &rule.target else {
            learned.rule(rule, purpose);
            continue;
        };
        let answer = match &getent {
            ManagerProgram::Program(getent) => tools.ask(getent, &["ahosts", name.as_str()]),
            ManagerProgram::Missing | ManagerProgram::Changeable(_) => None,
        };
        if answer.is_none() {
            learned.gap(&format!("whether {name} has private addresses"));
        }
        let reach = match answer.as_deref().is_some_and(parse::is_private) {
            true => HostReach::Internal,
            false => HostReach::Public,
        };
        learned.rule(NetworkRule { reach, ..rule }, purpose);
    }
}
