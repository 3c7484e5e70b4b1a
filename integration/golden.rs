//! What is enforced, for every built-in policy and every bundle of a real engine, as text in `integration/golden/`.
//!
//! `AGENTBOX_BLESS=1 cargo test --test integration golden` writes the files; otherwise a difference fails. Who reviews
//! a change reads here what it does to containers.
//!
//! - `POLICY/BUNDLE.txt`: the plan, the program, the shadow spec and the explanation under `--policy POLICY`
//! - `annotated/BUNDLE.txt`: what the bundle's own annotations choose, on a node without files
//! - `exec/POLICY.txt`: what `exec` makes of process.json

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use agentbox::plan::{HostFacts, Plan, PlanError, plan, process};
use agentbox::policy::{Resolved, Selection};
use agentbox::render::explain::{self, Subject};
use agentbox::render::spec as shadow;
use agentbox::runtime::filter;
use oci_spec::runtime::Spec;
use serde::Serialize;
use serde_json::Value;

use crate::fixtures::{self, POLICIES};

/// Kernels of current distributions, with their Landlock ABI; the newest last.
fn kernels() -> Vec<(&'static str, HostFacts)> {
    vec![
        ("5.15", fixtures::host("5.15.0", (5, 15), 1)),
        ("6.1", fixtures::host("6.1.0", (6, 1), 2)),
        ("6.12", fixtures::host("6.12.0", (6, 12), 6)),
        ("6.18", fixtures::newest()),
    ]
}

#[test]
fn every_policy_does_to_every_bundle_what_its_golden_file_says() {
    let mut golden = Golden::default();
    for policy in POLICIES {
        for (name, spec) in fixtures::bundles() {
            let text = under(&flagged(policy, &spec), &spec);
            golden.check(&format!("{policy}/{name}.txt"), &text);
        }
    }
    golden.finish(&POLICIES);
}

#[test]
fn annotations_of_a_bundle_choose_what_its_golden_file_says() {
    let mut golden = Golden::default();
    for (name, spec) in fixtures::bundles() {
        golden.check(&format!("annotated/{name}.txt"), &annotated(&spec));
    }
    golden.finish(&["annotated"]);
}

#[test]
fn exec_gives_a_process_what_its_golden_file_says() {
    let spec = fixtures::bundle("docker26-run");
    let mut golden = Golden::default();
    for policy in POLICIES {
        let plan = fixtures::planned(&flagged(policy, &spec), &spec).unwrap();
        let mut text = String::new();
        for (name, wanted) in fixtures::processes() {
            section(&mut text, &name, &json(&process::confine(wanted, &plan)));
        }
        golden.check(&format!("exec/{policy}.txt"), &text);
    }
    golden.finish(&["exec"]);
}

/// What `--policy NAME` resolves to for a container that asks for nothing itself.
fn flagged(policy: &str, spec: &Spec) -> Resolved {
    let mut annotations = fixtures::annotations(spec);
    annotations.retain(|key, _| !key.starts_with("dev.agentbox."));
    match fixtures::select(Some(policy), &annotations).unwrap() {
        Selection::Policy(resolved) => *resolved,
        other => panic!("{other:?}"),
    }
}

/// Everything under one policy.
fn under(resolved: &Resolved, spec: &Spec) -> String {
    let on = |host: &HostFacts| {
        let result = plan(resolved, spec, &fixtures::facts(spec), host);
        result.map_err(|error| chain(&error))
    };
    let kernels = kernels();
    let ((newest_name, newest_host), older) = kernels.split_last().unwrap();
    let newest = on(newest_host);
    let mut text = String::new();
    for (kernel, host) in older {
        match on(host) {
            here if here == newest => writeln!(text, "on {kernel}: as on {newest_name}").unwrap(),
            Ok(here) => section(&mut text, &format!("plan on {kernel}"), &json(&here)),
            Err(error) => writeln!(text, "on {kernel}: {error}").unwrap(),
        }
    }
    match &newest {
        Ok(plan) => walls(&mut text, newest_name, plan, resolved, spec),
        Err(error) => writeln!(text, "on {newest_name}: {error}").unwrap(),
    }
    text
}

fn walls(text: &mut String, kernel: &str, plan: &Plan, resolved: &Resolved, spec: &Spec) {
    let engine = spec.linux().as_ref().and_then(|l| l.seccomp().as_ref());
    let compiled = filter::compile(Some(plan.into()), engine).unwrap();
    let filter = compiled.map(|f| explain::filter(&f.program));
    let subject = Subject {
        name: "container ID".to_owned(),
        identity: None,
        chosen_by: resolved.chosen_by.to_string(),
        plan: Some(plan.clone()),
        filter,
    };
    section(text, "explanation", &explain::text(&subject));
    section(text, &format!("plan on {kernel}"), &json(plan));
    let rendered = shadow::confined(spec.clone(), plan, &fixtures::places());
    section(text, "shadow spec", &json(&rendered));
}

/// What the bundle chooses itself; plans are said by reference to the files of the first test.
fn annotated(spec: &Spec) -> String {
    let annotations = fixtures::annotations(spec);
    let resolved = match fixtures::select(None, &annotations) {
        Ok(Selection::Policy(resolved)) => *resolved,
        Ok(other) => panic!("{other:?}"),
        Err(error) => return format!("refused: {}\n", chain(&error)),
    };
    let name = resolved.policy.name.to_string();
    let mut text = format!("policy '{name}', chosen by {}\n", resolved.chosen_by);
    let words = |result: Result<Plan, PlanError>| result.map_err(|error| chain(&error));
    let here = words(fixtures::planned(&resolved, spec));
    if here == words(fixtures::planned(&flagged(&name, spec), spec)) {
        writeln!(text, "as in {name}/").unwrap();
        return text;
    }
    match here {
        Ok(plan) => section(&mut text, "plan", &json(&plan)),
        Err(error) => writeln!(text, "refused: {error}").unwrap(),
    }
    text
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn section(text: &mut String, title: &str, body: &str) {
    write!(text, "\n== {title}\n{}\n", body.trim_end()).unwrap();
}

/// JSON in an order of its own: keys sorted, sets sorted, what fits on a line on one line.
fn json(value: &impl Serialize) -> String {
    let mut value = serde_json::to_value(value).unwrap();
    sort(&mut value);
    let mut text = String::new();
    print(&mut text, &value, 0);
    text
}

/// Capability sets have no order in memory.
fn sort(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.sort_keys();
            for (key, inner) in map.iter_mut() {
                let is_set = inner.as_array().is_some_and(|items| {
                    let names = |item: &Value| item.as_str().is_some_and(|s| s.starts_with("CAP_"));
                    key != "args" && items.iter().all(names)
                });
                if is_set {
                    let items = inner.as_array_mut().unwrap();
                    items.sort_by_key(Value::to_string);
                }
                sort(inner);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

fn print(text: &mut String, value: &Value, depth: usize) {
    let short = value.to_string();
    let pad = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match value {
        Value::Object(map) if short.len() + end.len() > 110 => {
            text.push_str("{\n");
            for (index, (key, inner)) in map.iter().enumerate() {
                write!(text, "{pad}{}: ", Value::from(key.as_str())).unwrap();
                print(text, inner, depth + 1);
                text.push_str(if index + 1 < map.len() { ",\n" } else { "\n" });
            }
            write!(text, "{end}}}").unwrap();
        }
        Value::Array(items) if short.len() + end.len() > 110 => {
            text.push_str("[\n");
            for (index, inner) in items.iter().enumerate() {
                text.push_str(&pad);
                print(text, inner, depth + 1);
                text.push_str(if index + 1 < items.len() { ",\n" } else { "\n" });
            }
            write!(text, "{end}]").unwrap();
        }
        _ => text.push_str(&short),
    }
}

/// Compares with the golden files, or writes them.
#[derive(Default)]
struct Golden {
    seen: BTreeSet<PathBuf>,
    differences: Vec<String>,
}

impl Golden {
    fn check(&mut self, name: &str, text: &str) {
        let path = fixtures::path("golden").join(name);
        self.seen.insert(path.clone());
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        if before == text {
            return;
        }
        if blessing() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        } else {
            let difference = difference(&before, text);
            self.differences.push(format!("--- {name}\n{difference}"));
        }
    }

    /// Fails on differences, and on files that nothing produces any more.
    fn finish(self, directories: &[&str]) {
        let root = fixtures::path("golden");
        let files = directories.iter().flat_map(|d| entries(&root.join(d)));
        let stale: Vec<PathBuf> = files.filter(|file| !self.seen.contains(file)).collect();
        if blessing() {
            stale.iter().for_each(|f| std::fs::remove_file(f).unwrap());
            return;
        }
        let advice = "AGENTBOX_BLESS=1 writes the golden files; then review their diff";
        let all = self.differences;
        let shown = all.iter().take(5).cloned().collect::<String>();
        assert!(
            all.is_empty(),
            "{} files differ; {advice}\n{shown}",
            all.len()
        );
        assert!(stale.is_empty(), "left over: {stale:?}; {advice}");
    }
}

fn blessing() -> bool {
    std::env::var_os("AGENTBOX_BLESS").is_some()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(directory).unwrap();
    listing.map(|entry| entry.unwrap().path()).collect()
}

/// The lines between the common beginning and the common end, old ones with `-`, new ones with `+`.
fn difference(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let common =
        |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let head = common(&mut old.iter().zip(&new));
    let tail = common(&mut old[head..].iter().rev().zip(new[head..].iter().rev()));
    let mut text = format!(" line {}\n", head + 1);
    for (sign, lines) in [
        ('-', &old[head..old.len() - tail]),
        ('+', &new[head..new.len() - tail]),
    ] {
        for line in lines.iter().take(40) {
            writeln!(text, "{sign}{line}").unwrap();
        }
        if lines.len() > 40 {
            writeln!(text, "{sign}... {} more", lines.len() - 40).unwrap();
        }
    }
    text
}

#[test]
fn a_difference_names_the_line_and_both_texts() {
    let text = difference("a\nb\nc\n", "a\nx\nc\n");
    assert_eq!(text, " line 2\n-b\n+x\n");
}
