//! A value as lines with their own context, one fact per line: `plan.network.sysfs = true`.
//!
//! Different values give different lines. `path[] = item` is a list's item, in order. Short lists of words stay on one
//! line.

use std::collections::BTreeSet;

use oci_spec::runtime::Spec;
use serde::Serialize;
use serde_json::Value;

/// A word list whose JSON is longer than this gets one line per word.
const LONGEST_LIST: usize = 300;

/// Sorts keys and sets of capabilities, which have no order in memory.
pub fn of(name: &str, value: &impl Serialize) -> Vec<String> {
    let mut value = serde_json::to_value(value).unwrap();
    sort(&mut value);
    let mut lines = Vec::new();
    flatten(&mut lines, name, &value);
    lines
}

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

fn flatten(lines: &mut Vec<String>, path: &str, value: &Value) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                flatten(lines, &format!("{path}.{}", quoted(key)), inner);
            }
        }
        Value::Array(items) if has_a_line_for_each(path, items, value) => {
            lines.extend(items.iter().map(|item| format!("{path}[] = {item}")));
        }
        _ => lines.push(format!("{path} = {value}")),
    }
}

fn has_a_line_for_each(path: &str, items: &[Value], list: &Value) -> bool {
    let is_long = path.ends_with(".env") || list.to_string().len() > LONGEST_LIST;
    let are_words = items.iter().all(|i| !i.is_object() && !i.is_array());
    !items.is_empty() && (is_long || !are_words)
}

/// Quotes a key that has more than letters, digits, `-` and `_`.
fn quoted(key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !key.is_empty() && key.chars().all(is_plain) {
        key.to_owned()
    } else {
        Value::from(key).to_string()
    }
}

/// Marks repeated lines, so that all are unique.
pub fn once(lines: Vec<String>) -> Vec<String> {
    const AGAIN: &str = " (again)";
    let mut seen = BTreeSet::new();
    let marked = lines.into_iter().map(|mut line| {
        assert!(!line.is_empty() && !line.ends_with(AGAIN), "{line:?}");
        while !seen.insert(line.clone()) {
            line.push_str(AGAIN);
        }
        line
    });
    marked.collect()
}

/// The ID that the engine gave to a container, different in each.
pub struct Id(Option<String>);

impl Id {
    const LONG: &str = "<id>";
    const SHORT: &str = "<short id>";

    /// The last part of the cgroup's path, if it is one of an engine: 64 hexadecimal digits.
    pub fn of(spec: &Spec) -> Self {
        let cgroup = spec.linux().as_ref().and_then(|l| l.cgroups_path().clone());
        let cgroup = cgroup.unwrap_or_default().to_string_lossy().into_owned();
        let last = cgroup.rsplit(['/', ':', '-']).next().unwrap_or_default();
        let is_id = last.len() == 64 && last.bytes().all(|b| b.is_ascii_hexdigit());
        Self(is_id.then(|| last.to_owned()))
    }

    /// The lines with `<id>` for the ID, and `<short id>` for its first twelve digits.
    pub fn hide(&self, lines: Vec<String>) -> Vec<String> {
        let Some(id) = &self.0 else { return lines };
        let hidden = lines.into_iter().map(|line| {
            let hidden = line.replace(id, Self::LONG).replace(&id[..12], Self::SHORT);
            let shown = hidden
                .replace(Self::LONG, id)
                .replace(Self::SHORT, &id[..12]);
            assert_eq!(shown, line, "the line says {} itself", Self::LONG);
            hidden
        });
        hidden.collect()
    }

    /// The golden file's line about the ID.
    pub fn line(&self) -> String {
        self.0
            .iter()
            .map(|id| format!("{} = {id}\n", Self::LONG))
            .collect()
    }
}

/// `value` with one change, for each possible change: another leaf, a missing key or item, two swapped neighbours.
fn mutants(value: &Value) -> Vec<Value> {
    let mut all = match value {
        Value::Null => vec![Value::from("null")],
        Value::Bool(yes) => vec![Value::from(!yes)],
        Value::Number(_) => vec![Value::from(77_777)],
        Value::String(text) => vec![Value::from(format!("{text}x")), Value::Null],
        Value::Array(_) | Value::Object(_) => vec![Value::Null],
    };
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let with = |change: &dyn Fn(&mut Vec<Value>)| {
                    let mut items = items.clone();
                    change(&mut items);
                    Value::Array(items)
                };
                all.push(with(&|items| drop(items.remove(index))));
                all.push(with(&|items| items.insert(index, item.clone())));
                if index > 0 && items[index - 1] != *item {
                    all.push(with(&|items| items.swap(index - 1, index)));
                }
                let inner = mutants(item);
                all.extend(
                    inner
                        .into_iter()
                        .map(|m| with(&|items| items[index] = m.clone())),
                );
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                let mut without = map.clone();
                without.remove(key);
                all.push(Value::Object(without));
                for inner in mutants(item) {
                    let mut other = map.clone();
                    other.insert(key.clone(), inner);
                    all.push(Value::Object(other));
                }
            }
        }
        _ => {}
    }
    all
}

/// Changes one part of `value` at a time, and checks that each change gives other lines. Returns the number of changes.
pub fn assert_every_change_shows(name: &str, value: &impl Serialize) -> usize {
    let value = serde_json::to_value(value).unwrap();
    let flat = |value: &Value| {
        let mut lines = Vec::new();
        flatten(&mut lines, name, value);
        once(lines)
    };
    let before = flat(&value);
    let mutants = mutants(&value);
    for mutant in &mutants {
        assert_ne!(flat(mutant), before, "{mutant} looks like {value}");
    }
    mutants.len()
}
