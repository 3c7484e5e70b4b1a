//! The documents are right about the repository: paths, links, and the tests of the threat list.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below `directory` with one of these extensions, except plans and bundles that tests compare with.
fn files(directory: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root().join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let data = ["golden", "fixtures"]
                .iter()
                .any(|name| path.ends_with(name));
            if path.is_dir() && !data {
                directories.push(path);
            } else if extensions
                .iter()
                .any(|e| path.extension().is_some_and(|have| have == *e))
            {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "{directory} has moved");
    found
}

/// The pages that people read.
fn documents() -> Vec<PathBuf> {
    let mut found = files("docs", &["md"]);
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ] {
        found.push(root().join(name));
    }
    found
}

/// The texts between single backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The rows of the list of threats: number, attack, wall, tests.
fn threats() -> BTreeMap<String, Vec<String>> {
    let text = read(&root().join("docs/threats.md"));
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<String> = line.split(" | ").map(str::to_owned).collect();
        let number = cells[0].strip_prefix("| ")?.to_owned();
        is_number(&number).then_some((number, cells))
    });
    let rows: Vec<_> = rows.collect();
    let listed = rows.iter().cloned().collect::<BTreeMap<_, _>>();
    assert_eq!(listed.len(), rows.len(), "a number stands twice");
    listed
}

/// A letter for the part of the list, and two digits.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix(['N', 'S', 'F', 'P']);
    digits.is_some_and(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_digit()))
}

/// The name of the function that begins in a line.
fn function(line: &str) -> Option<&str> {
    let name = line.trim_start().strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

/// Names of tests, each with the files that have one of that name.
fn tests() -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in [files("src", &["rs"]), files("integration", &["rs"])].concat() {
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let before = &lines[number.saturating_sub(3)..number];
            if let Some(name) = function(line)
                && before.iter().any(|l| l.trim() == "#[test]")
            {
                let name = name.to_owned();
                found.entry(name).or_default().push(path.clone());
            }
        }
    }
    found
}

/// Whether a file is the module of this name, or in it.
fn is_in(path: &Path, module: &str) -> bool {
    let names = path.strip_prefix(root()).unwrap().iter();
    names
        .map(|name| name.to_str().unwrap().trim_end_matches(".rs"))
        .any(|name| name == module)
}

#[test]
fn every_number_of_an_attack_is_in_the_list_of_threats() {
    let listed = threats();
    let extensions = ["rs", "c", "h", "sh", "py", "toml"];
    let named = ["src", "integration", "hack", "policies"];
    for path in named
        .iter()
        .flat_map(|directory| files(directory, &extensions))
    {
        for line in read(&path).lines() {
            let mut words: BTreeSet<String> = line
                .split(|c: char| !c.is_ascii_alphanumeric())
                .map(str::to_owned)
                .collect();
            // serde's `visit_f64` is no attack.
            if let Some(name) = function(line).filter(|name| !name.starts_with("visit_")) {
                words.extend(name.split('_').map(str::to_uppercase));
            }
            for word in words.iter().filter(|word| is_number(word)) {
                let known = listed.contains_key(word);
                assert!(
                    known,
                    "docs/threats.md has no {word}: {}: {line}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn every_test_that_the_list_of_threats_names_exists() {
    let known = tests();
    let mut cases = BTreeSet::new();
    for path in files("hack/matrix.d/cases", &["toml"]) {
        let text = read(&path);
        let names = text.lines().filter_map(|line| line.strip_prefix("name = "));
        cases.extend(names.map(|name| name.trim_matches('"').to_owned()));
    }
    for (number, cells) in threats() {
        assert_eq!(cells.len(), 4, "{number}: not four cells");
        let named: Vec<&str> = quoted(&cells[3]).collect();
        if named.is_empty() {
            assert!(
                cells[3].starts_with("*None*: "),
                "{number}: no test, and no reason"
            );
        }
        for name in named {
            let (modules, last) = name.rsplit_once("::").unwrap_or(("", name));
            let exists = if name.contains('/') {
                root().join(name).exists()
            } else if modules.is_empty() {
                cases.contains(name)
            } else {
                let places = known.get(last).into_iter().flatten();
                let mut places = places.filter(|path| modules.split("::").all(|m| is_in(path, m)));
                places.next().is_some()
            };
            assert!(exists, "{number}: there is no {name}");
        }
    }
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let tops = [
        "src/",
        "integration/",
        "hack/",
        "policies/",
        "docs/",
        "fuzz/",
    ];
    let mut seen = 0;
    for document in documents() {
        for line in read(&document).lines() {
            for name in quoted(line) {
                // A script is named with its arguments.
                let name = name.split_whitespace().next().unwrap_or("");
                let pattern =
                    name.contains(['*', '{', '<']) || name.chars().any(|c| c.is_ascii_uppercase());
                if tops.iter().any(|top| name.starts_with(top)) && !pattern {
                    let there = root().join(name).exists();
                    assert!(there, "{}: there is no {name}", document.display());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} paths found");
}

#[test]
fn every_folder_of_the_source_is_in_the_map_of_the_design() {
    let map = read(&root().join("docs/design.md"));
    for entry in std::fs::read_dir(root().join("src")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let row = format!("| `src/{name}` |");
            assert!(
                map.contains(&row),
                "docs/design.md has no row for src/{name}"
            );
        }
    }
}

/// The anchor of a heading, as the viewers of Markdown make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_to_a_file_and_its_heading() {
    let mut seen = 0;
    for document in documents() {
        let text = read(&document);
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.clone(),
                _ => document.parent().unwrap().join(file),
            };
            assert!(
                path.exists(),
                "{}: {target} leads nowhere",
                document.display()
            );
            let found = heading.is_empty()
                || read(&path)
                    .lines()
                    .any(|l| l.starts_with('#') && anchor(l) == heading);
            assert!(
                found,
                "{}: {target} has no such heading",
                document.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} links found");
}

#[test]
fn the_book_has_every_page_once() {
    let summary = read(&root().join("docs/SUMMARY.md"));
    for page in files("docs", &["md"]) {
        let name = page.file_name().unwrap().to_str().unwrap();
        let expected = usize::from(name != "SUMMARY.md");
        let seen = summary.matches(&format!("]({name})")).count();
        assert_eq!(seen, expected, "docs/SUMMARY.md and {name}");
    }
}

#[test]
fn every_page_says_at_its_top_for_whom_it_is() {
    for page in files("docs", &["md"]) {
        if page.ends_with("SUMMARY.md") {
            continue;
        }
        let text = read(&page);
        let top: Vec<&str> = text.lines().filter(|l| !l.is_empty()).take(2).collect();
        let says = top.get(1).is_some_and(|line| line.starts_with("For "));
        assert!(top[0].starts_with("# ") && says, "{}", page.display());
    }
}

#[test]
fn the_pages_stay_short() {
    let words = |path: &Path| read(path).split_whitespace().count();
    let readme = root().join("README.md");
    assert!(words(&readme) <= 900, "README.md: {}", words(&readme));
    assert!(read(&readme).lines().count() <= 120, "README.md");
    // Half of the length in November 2026.
    let all: usize = files("docs", &["md"]).iter().map(|page| words(page)).sum();
    assert!(
        all <= 28_000,
        "docs/ has {all} words: a page that grows loses something else"
    );
}

/// Runs the checker of commit subjects on one subject.
fn is_good_subject(subject: &str) -> bool {
    let script = root().join("hack/lib/commits.sh");
    let line = format!("printf '%s\\n' \"$1\" | {} -", script.display());
    let mut checked = std::process::Command::new("bash");
    checked.args(["-c", &line, "bash", subject]);
    checked.output().unwrap().status.success()
}

#[test]
fn a_commit_has_an_area_and_at_most_72_characters() {
    for good in [
        "secrets: close a chunk-size oracle",
        "wrap, policy: keep a hard core limit of 0",
        "Revert \"policy: say how the node permits a rule\"",
    ] {
        assert!(is_good_subject(good), "{good}");
    }
    let long = format!("wrap: {}", "keep ".repeat(14));
    for bad in [
        "Answers of a secret's host are cut alike",
        "wrap: Keep a hard core limit",
        "wrap: keep a hard core limit.",
        "wrap:",
        &long,
    ] {
        assert!(!is_good_subject(bad), "{bad}");
    }
}
