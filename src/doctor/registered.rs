//! PURE. Finds the runtime in the configuration of containerd and podman.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::install;
use crate::policy::{Field, POLICY_KEY, WORKSPACE_KEY, annotation_key};

/// The annotations that must reach the runtime: one that does not would tighten nothing, in silence.
fn annotations() -> impl Iterator<Item = String> {
    let fields = Field::ALL.iter().filter(|field| field.has_annotation());
    let keys = [POLICY_KEY, WORKSPACE_KEY].map(str::to_owned);
    keys.into_iter()
        .chain(fields.map(|field| annotation_key(*field)))
}

/// A handler of containerd.
#[derive(Debug, PartialEq, Eq)]
pub struct HandlerEntry {
    /// `BinaryName`; without it the handler runs runc.
    pub program: Option<PathBuf>,
    /// Whether all annotations of a pod and of its containers reach it.
    pub passes_annotations: bool,
}

/// The result for containerd's files.
#[derive(Debug, PartialEq, Eq)]
pub enum ContainerdEntry {
    /// It serves no pods: its CRI plugin is disabled.
    NoPods,
    /// It has no handler `agentbox`.
    Absent,
    /// It has the handler.
    Handler(HandlerEntry),
}

/// Reads the main file and its imports, in the order of merging.
///
/// # Errors
/// A file is not TOML, and containerd refuses it.
pub fn containerd(texts: &[String]) -> Result<ContainerdEntry, String> {
    let tables = texts.iter().map(|text| table(text));
    let tables: Vec<Table> = tables.collect::<Result<_, _>>()?;
    if tables.iter().any(install::has_no_pods) {
        return Ok(ContainerdEntry::NoPods);
    }
    let handler = tables.iter().rev().find_map(handler);
    Ok(handler.map_or(ContainerdEntry::Absent, ContainerdEntry::Handler))
}

fn table(text: &str) -> Result<Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        format!("its configuration is not TOML: {}", error.message())
    })
}

fn handler(table: &Table) -> Option<HandlerEntry> {
    let handler = install::handler(table)?;
    let program = handler.get("options").and_then(|o| o.get("BinaryName"));
    let program = program.and_then(Value::as_str);
    let passes = |key: &str| {
        let patterns = handler.get(key).and_then(Value::as_array);
        let patterns = patterns.into_iter().flatten().filter_map(Value::as_str);
        let patterns: Vec<&str> = patterns.collect();
        annotations().all(|key| patterns.iter().any(|pattern| matches(pattern, &key)))
    };
    Some(HandlerEntry {
        program: program.filter(|name| !name.is_empty()).map(PathBuf::from),
        passes_annotations: passes("pod_annotations") && passes("container_annotations"),
    })
}

/// One entry of `imports`.
#[derive(Debug, PartialEq, Eq)]
pub enum ImportedFiles {
    /// This file.
    One(PathBuf),
    /// The files of this directory whose names match.
    Matching(PathBuf, String),
    /// A pattern of another form.
    Unknown(String),
}

impl ImportedFiles {
    /// Whether a file of the directory is imported.
    pub fn has(pattern: &str, path: &Path) -> bool {
        let name = path.file_name().and_then(std::ffi::OsStr::to_str);
        name.is_some_and(|name| matches(pattern, name))
    }
}

/// The imports of a file in this directory. As in containerd, `*` makes a pattern, and other paths are relative to the file.
pub fn imports(text: &str, directory: &Path) -> Result<Vec<ImportedFiles>, String> {
    let table = table(text)?;
    let imports = table.get("imports").and_then(Value::as_array);
    let names = imports.into_iter().flatten().filter_map(Value::as_str);
    let imported = names.map(|name| {
        let special = |text: &str| text.contains(['*', '?', '[', '\\']);
        match name.rsplit_once('/') {
            _ if !name.contains('*') => ImportedFiles::One(directory.join(name)),
            Some((parent, pattern)) if parent.starts_with('/') && !special(parent) => {
                ImportedFiles::Matching(parent.into(), pattern.to_owned())
            }
            Some(_) | None => ImportedFiles::Unknown(name.to_owned()),
        }
    });
    Ok(imported.collect())
}

/// The programs of podman's runtime `agentbox`, of which podman takes the first that exists. `texts` are its files,
/// lowest priority first.
///
/// # Errors
/// A file is not TOML, and podman refuses it.
pub fn podman(texts: &[String]) -> Result<Option<Vec<PathBuf>>, String> {
    let mut found = None;
    for text in texts {
        let table = table(text)?;
        let runtimes = table.get("engine").and_then(|e| e.get("runtimes"));
        let paths = runtimes.and_then(|runtimes| runtimes.get("agentbox"));
        if let Some(paths) = paths.and_then(Value::as_array) {
            let paths = paths.iter().filter_map(Value::as_str);
            found = Some(paths.map(PathBuf::from).collect());
        }
    }
    Ok(found)
}

/// Go's path.Match, by which containerd selects annotations: `*` and `?` match no slash. An invalid pattern matches
/// nothing.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    from(&pattern, &name)
}

fn from(pattern: &[char], name: &[char]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return name.is_empty();
    };
    match (first, name.split_first()) {
        // Two stars equal one; many would take exponential time.
        ('*', _) if rest.first() == Some(&'*') => from(rest, name),
        ('*', next) => {
            from(rest, name)
                || next.is_some_and(|(next, after)| *next != '/' && from(pattern, after))
        }
        ('?', Some((next, after))) => *next != '/' && from(rest, after),
        ('[', Some((next, after))) => {
            class(rest, *next).is_some_and(|(has, rest)| has && from(rest, after))
        }
        ('\\', Some((next, after))) => {
            let literal = rest.split_first();
            literal.is_some_and(|(literal, rest)| literal == next && from(rest, after))
        }
        (_, Some((next, after))) => first == next && from(rest, after),
        (_, None) => false,
    }
}

/// Whether a character class contains the character, and the pattern after it. The bracket is already open.
fn class(pattern: &[char], of: char) -> Option<(bool, &[char])> {
    let (negated, mut rest) = match pattern.split_first()? {
        ('^', rest) => (true, rest),
        _ => (false, pattern),
    };
    let (mut has, mut is_first) = (false, true);
    loop {
        rest = match rest.split_first()? {
            (']', rest) if !is_first => return Some((has != negated, rest)),
            ('\\', rest) => rest,
            _ => rest,
        };
        let (low, after) = rest.split_first()?;
        let (high, after) = match after {
            ['-', high, after @ ..] => (high, after),
            _ => (low, after),
        };
        has |= (*low..=*high).contains(&of);
        (rest, is_first) = (after, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = include_str!("../../hack/kubernetes/containerd-2.toml");

    #[test]
    fn a_handler_is_judged_by_its_program_and_its_annotation_patterns() {
        let entry = |text: &str| match containerd(&[text.to_owned()]) {
            Ok(ContainerdEntry::Handler(entry)) => entry,
            other => panic!("{other:?}"),
        };
        let program = Some(PathBuf::from("/usr/local/bin/agentbox"));
        for ours in [
            OURS,
            include_str!("../../hack/kubernetes/containerd-1.toml"),
        ] {
            let entry = entry(ours);
            assert!(entry.passes_annotations);
            assert_eq!(entry.program, program);
        }
        let renamed = OURS.replace("[Aa]gent[Bb]ox", "other");
        assert!(!entry(&renamed).passes_annotations);
        let pods_alone = OURS.replace("container_annotations", "others");
        assert!(!entry(&pods_alone).passes_annotations);
        assert_eq!(entry(&OURS.replace("BinaryName", "Other")).program, None);
        let by_hand = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.agentbox]\n  pod_annotations = [\"x\"]\n";
        assert!(!entry(by_hand).passes_annotations);
        let of = |text: &str| containerd(&[text.to_owned()]);
        assert_eq!(of("version = 2\n"), Ok(ContainerdEntry::Absent));
        assert!(of("version = [").is_err(), "containerd refuses it");
    }

    /// A pod's network.mode was dropped in silence where its policy alone arrived.
    #[test]
    fn a_handler_that_passes_some_annotations_drops_the_others() {
        let passes = |patterns: &str| {
            let text = format!(
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.agentbox]\n\
                 pod_annotations = {patterns}\ncontainer_annotations = [\"dev.agentbox.*\"]\n"
            );
            match containerd(&[text]) {
                Ok(ContainerdEntry::Handler(entry)) => entry.passes_annotations,
                other => panic!("{other:?}"),
            }
        };
        assert!(passes("[\"dev.agentbox.*\"]") && passes("[\"*\"]"));
        for some in [
            "[\"dev.agentbox.policy\"]",
            "[\"dev.agentbox.network.*\", \"dev.agentbox.policy\"]",
            "[\"dev.agentbox.????????????\"]",
            "[]",
        ] {
            assert!(!passes(some), "{some}");
        }
    }

    #[test]
    fn imported_files_count_and_a_node_without_pods_needs_no_handler() {
        let main = "version = 3\nimports = [\"/etc/containerd/conf.d/1*.toml\", \"/etc/a.toml\", \"b.toml\", \"/x*/c.toml\", \
                    \"c/*.toml\"]\n";
        let absent = containerd(&[main.to_owned()]);
        assert_eq!(absent, Ok(ContainerdEntry::Absent));
        let both = [main.to_owned(), OURS.to_owned()];
        assert!(matches!(containerd(&both), Ok(ContainerdEntry::Handler(_))));
        assert_eq!(
            imports(main, Path::new("/etc/containerd")).unwrap(),
            [
                ImportedFiles::Matching("/etc/containerd/conf.d".into(), "1*.toml".to_owned()),
                ImportedFiles::One("/etc/a.toml".into()),
                ImportedFiles::One("/etc/containerd/b.toml".into()),
                ImportedFiles::Unknown("/x*/c.toml".to_owned()),
                ImportedFiles::Unknown("c/*.toml".to_owned()),
            ]
        );
        let is_imported = |name: &str| ImportedFiles::has("1*.toml", &Path::new("/d").join(name));
        assert!(is_imported("10-a.toml") && !is_imported("20-a.toml"));
        for plugin in [
            "cri",
            "io.containerd.grpc.v1.cri",
            "io.containerd.cri.v1.runtime",
        ] {
            let disabled = format!("disabled_plugins = [\"{plugin}\"]\n");
            let found = containerd(&[disabled]);
            assert_eq!(found, Ok(ContainerdEntry::NoPods), "{plugin}");
        }
    }

    #[test]
    fn the_last_file_of_podman_wins() {
        let of = |path: &str| format!("[engine.runtimes]\nagentbox = [\"{path}\"]\n");
        let other = "[engine]\nruntime = \"crun\"\n".to_owned();
        assert_eq!(podman(&[]), Ok(None));
        assert_eq!(podman(std::slice::from_ref(&other)), Ok(None));
        let found = podman(&[of("/a"), of("/b"), other]);
        assert_eq!(found, Ok(Some(vec!["/b".into()])));
        assert!(podman(&["[".to_owned()]).is_err());
    }

    #[test]
    fn patterns_match_as_in_containerd() {
        for pattern in [
            "*",
            "dev.agentbox.policy",
            "dev.agentbox.*",
            "*[Aa]gent[Bb]ox*",
            "dev.agentbox.polic?",
            "dev.agentbox.polic[a-z]",
            "dev[^x]agentbox.policy",
            "dev\\.agentbox*",
        ] {
            assert!(matches(pattern, POLICY_KEY), "{pattern}");
        }
        for pattern in [
            "",
            "x",
            "dev.agentbox",
            "dev.agentbox.policy/*",
            "*/*[Aa]gent[Bb]ox*",
            "dev.agentbox.polic[^y]",
            "dev.agentbox.polic[y",
            "dev.agentbox.policy?",
            "dev.agentbox.policy\\",
        ] {
            assert!(!matches(pattern, POLICY_KEY), "{pattern}");
        }
        assert!(!matches("*", "a/b") && matches("*/*", "a/b"));
    }
}
