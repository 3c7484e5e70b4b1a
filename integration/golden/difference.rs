//! Differences between two texts, for people to read and for [`apply`] to follow.
//!
//! Lines contain their own context (`plan.network.sysfs = true`) and are unique. So a change needs no line number, and
//! a new line in the base does not affect other differences:
//!
//! - `- old` is removed, and `+ new` comes in place of the last removed line
//! - `  line` stays, and each `+ new` below it follows it
//! - `= only` lines replace the whole base
//!
//! The comparison is our own code of a few lines: a new version of a library may choose another of several equally
//! short differences, and so rewrite all golden files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// The place before the first line.
const BEGINNING: &str = "(the beginning)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `out` is replaced by `into`. If `out` is empty, `into` follows the line `after`; otherwise `after` is empty.
    Part {
        after: String,
        out: Vec<String>,
        into: Vec<String>,
    },
    /// Replaces the whole base.
    Whole(Vec<String>),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { after, out, into } => {
                if out.is_empty() {
                    writeln!(f, "  {after}")?;
                }
                out.iter().try_for_each(|line| writeln!(f, "- {line}"))?;
                into.iter().try_for_each(|line| writeln!(f, "+ {line}"))
            }
            Self::Whole(lines) => lines.iter().try_for_each(|line| writeln!(f, "= {line}")),
        }
    }
}

/// The changes from `base` to `text`.
pub fn between(base: &[String], text: &[String]) -> Vec<Change> {
    let parts = parts(base, text);
    let printed: usize = parts.iter().map(|p| p.to_string().lines().count()).sum();
    if printed > text.len() {
        vec![Change::Whole(text.to_vec())]
    } else {
        parts
    }
}

fn parts(base: &[String], text: &[String]) -> Vec<Change> {
    let end = (base.len(), text.len());
    let (mut from, mut parts) = ((0, 0), Vec::new());
    for same in matches(base, text).into_iter().chain([end]) {
        let (out, into) = (&base[from.0..same.0], &text[from.1..same.1]);
        if !out.is_empty() || !into.is_empty() {
            let before = from.0.checked_sub(1).map_or(BEGINNING, |i| &base[i]);
            parts.extend(by_subject(before, out, into));
        }
        from = (same.0 + 1, same.1 + 1);
    }
    parts
}

/// Splits a run of changes at pairs of lines with the same subject, so that old and new stand together.
fn by_subject(before: &str, out: &[String], into: &[String]) -> Vec<Change> {
    let subjects = |lines: &[String]| lines.iter().map(|l| subject(l)).collect::<Vec<_>>();
    let pairs = matches(&subjects(out), &subjects(into));
    let mut cuts: Vec<(usize, usize)> = pairs.windows(2).map(|w| (w[0].0 + 1, w[1].1)).collect();
    cuts.push((out.len(), into.len()));
    let mut from = (0, 0);
    let parts = cuts.into_iter().map(|to| {
        let (start, stop) = (from, to);
        from = to;
        Change::Part {
            after: if out.is_empty() {
                before.to_owned()
            } else {
                String::new()
            },
            out: out[start.0..stop.0].to_vec(),
            into: into[start.1..stop.1].to_vec(),
        }
    });
    parts.collect()
}

/// A line's subject: the path before ` = `, in a list with the item's name; otherwise its first word.
fn subject(line: &str) -> String {
    let Some((path, value)) = line.split_once(" = ") else {
        return line.split_whitespace().next().unwrap_or("").to_owned();
    };
    if !path.ends_with("[]") {
        return path.to_owned();
    }
    let name = match serde_json::from_str(value) {
        Ok(Value::String(text)) => text.split('=').next().map(str::to_owned),
        Ok(Value::Object(map)) => {
            let names = ["destination", "path", "type"].iter();
            names
                .filter_map(|n| map.get(*n))
                .find_map(|v| Some(v.as_str()?.to_owned()))
        }
        _ => None,
    };
    format!("{path}{}", name.as_deref().unwrap_or(value))
}

/// Indexes of a longest common subsequence.
fn matches<T: PartialEq>(a: &[T], b: &[T]) -> Vec<(usize, usize)> {
    let mut longest = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            longest[i][j] = if a[i] == b[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if longest[i + 1][j] >= longest[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Parses the printed form of [`Change`].
pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for line in lines {
        let (mark, rest) = line.split_at(2);
        let is_open = match (mark, changes.last()) {
            ("+ ", Some(Change::Part { .. })) | ("= ", Some(Change::Whole(_))) => true,
            ("- ", Some(Change::Part { out, into, .. })) => !out.is_empty() && into.is_empty(),
            _ => false,
        };
        if !is_open {
            changes.push(match mark {
                "= " => Change::Whole(Vec::new()),
                _ => Change::Part {
                    after: String::new(),
                    out: Vec::new(),
                    into: Vec::new(),
                },
            });
        }
        match (mark, changes.last_mut().unwrap()) {
            ("  ", Change::Part { after, .. }) => rest.clone_into(after),
            ("- ", Change::Part { out, .. }) => out.push(rest.to_owned()),
            ("+ ", Change::Part { into, .. }) => into.push(rest.to_owned()),
            ("= ", Change::Whole(lines)) => lines.push(rest.to_owned()),
            _ => panic!("not a line of a difference: {line}"),
        }
    }
    changes
}

/// Applies the changes to `base`.
pub fn apply(base: &[String], changes: &[Change]) -> Vec<String> {
    let places: BTreeMap<&str, usize> = base.iter().map(String::as_str).zip(1..).collect();
    assert_eq!(places.len(), base.len(), "a line stands twice");
    let place = |line: &String| match places.get(line.as_str()) {
        Some(place) => *place,
        None if line == BEGINNING => 0,
        None => panic!("not in the base: {line}"),
    };
    let mut gone: BTreeSet<usize> = BTreeSet::new();
    let mut come: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Part { after, out, into } => {
                gone.extend(out.iter().map(place));
                let at = place(out.last().unwrap_or(after));
                come.entry(at).or_default().extend(into.iter().cloned());
            }
            Change::Whole(lines) => return lines.clone(),
        }
    }
    let mut text = come.remove(&0).unwrap_or_default();
    for (line, place) in base.iter().zip(1..) {
        text.extend((!gone.contains(&place)).then(|| line.clone()));
        text.extend(come.remove(&place).unwrap_or_default());
    }
    text
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_change_stands_beside_what_it_changes() {
    let said = |base: &str, text: &str| -> String {
        let changes = between(&lines(base), &lines(text));
        changes.iter().map(Change::to_string).collect()
    };
    let base = "a = 1\nb = 2\nc = 3\nd = 4\ne[] = \"X=1\"\nf = 6\ng = 7\nh = 8\n";
    let text = "a = 1\nb = 5\nc = 6\nd = 4\nn = 0\ne[] = \"X=2\"\nf = 6\ng = 7\nh = 8\n";
    assert_eq!(
        said(base, text),
        "- b = 2\n+ b = 5\n- c = 3\n+ c = 6\n- e[] = \"X=1\"\n+ n = 0\n+ e[] = \"X=2\"\n"
    );
    assert_eq!(said("a\nb\nc", "a\nn\nb\nc"), "  a\n+ n\n");
    assert_eq!(said("a\nb\nc", "n\na\nb\nc"), "  (the beginning)\n+ n\n");
    assert_eq!(said(base, "refused"), "= refused\n");
}

#[test]
fn a_printed_difference_applied_to_its_base_gives_the_text_back() {
    // Every subset of seven lines, in two orders, with lines of the same subject among them.
    let pool = lines("a = 1\na = 2\nb: x\nb: y\nc[] = \"K=1\"\nc[] = \"K=2\"\n  d");
    let texts: Vec<Vec<String>> = (0..1_u32 << pool.len())
        .flat_map(|set| {
            let chosen = pool.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
            let text: Vec<String> = chosen.map(|(_, line)| line.clone()).collect();
            let turned = text.iter().rev().cloned().collect();
            [text, turned]
        })
        .collect();
    for base in &texts {
        for text in &texts {
            let parts = parts(base, text);
            let printed: String = parts.iter().map(Change::to_string).collect();
            assert_eq!(
                &apply(base, &parse(printed.lines())),
                text,
                "{base:?}\n{printed}"
            );
        }
    }
}
