//! The rules of `policies/syscalls` as Rust, for `src/seccomp/tables.rs`: parsing TOML at every start would take longer than
//! compiling the filter. The build script writes it, and a test compares the built tables with the TOML.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::numbers::{NONE, ROWS, SyscallRow};
use super::rule::{Case, Condition, ERRNOS, Op, Rule, SyscallVerdict, Width};

/// A list besides or in place of the base.
pub struct ExtraList {
    /// Its static.
    pub name: &'static str,
    /// Its file.
    pub file: &'static str,
    about: &'static str,
}

/// All lists besides the base.
pub const MORE: [ExtraList; 5] = [
    ExtraList {
        name: "DEVICES",
        file: "devices.toml",
        about: "In place of the base where the container has devices of the node's choice.",
    },
    ExtraList {
        name: "SET_ID",
        file: "set-id.toml",
        about: "Besides the base where no file may be made set-user-ID or set-group-ID.",
    },
    ExtraList {
        name: "ATTRIBUTES",
        file: "attributes.toml",
        about: "Besides the base where that is so and a mount has the node's groups.",
    },
    ExtraList {
        name: "DEBUG",
        file: "debug.toml",
        about: "In place of the base under the profile `debug`.",
    },
    ExtraList {
        name: "PARANOID",
        file: "paranoid.toml",
        about: "In place of the base under the profile `paranoid`.",
    },
];

/// A call that x86_64 has.
#[derive(Deserialize, Clone, Copy)]
#[serde(try_from = "String")]
struct Call(&'static SyscallRow);

impl TryFrom<String> for Call {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let index = ROWS.binary_search_by(|row| row.name.cmp(&name));
        let row = index.ok().map(|index| &ROWS[index]);
        let row = row.filter(|row| row.x86_64 != NONE);
        row.map(Call)
            .ok_or_else(|| format!("{name} is no system call of x86_64"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    #[serde(default)]
    allow: Vec<Allow>,
    #[serde(default)]
    check: Vec<Check>,
    #[serde(default)]
    deny: Vec<Deny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    calls: Vec<Call>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    calls: Vec<Call>,
    errno: String,
    reason: String,
    #[serde(default)]
    logged: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    call: Call,
    cases: Vec<SourceCase>,
    otherwise: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceCase {
    then: String,
    when: Vec<SourceCondition>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceCondition {
    arg: u8,
    width: SourceWidth,
    op: SourceOp,
    mask: Option<u64>,
    value: Values,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum SourceWidth {
    Int,
    Long,
}

#[derive(Deserialize, Clone, Copy, PartialEq)]
#[serde(rename_all = "snake_case")]
enum SourceOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    MaskedEq,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(u64),
    Many(Vec<u64>),
}

fn verdict(word: &str) -> SyscallVerdict {
    if word == "allow" {
        return SyscallVerdict::Allow;
    }
    let (_, errno) = ERRNOS
        .iter()
        .find(|(name, _)| *name == word)
        .unwrap_or_else(|| panic!("{word} is no verdict"));
    SyscallVerdict::Errno(*errno)
}

/// The alternatives of one condition; in each all conditions must hold.
fn conditions(source: &SourceCondition) -> Vec<Vec<Condition>> {
    let width = match source.width {
        SourceWidth::Int => Width::Int,
        SourceWidth::Long => Width::Long,
    };
    let op = match (source.op, source.mask) {
        (SourceOp::Eq, None) => Op::Eq,
        (SourceOp::Ne, None) => Op::Ne,
        (SourceOp::Lt, None) => Op::Lt,
        (SourceOp::Le, None) => Op::Le,
        (SourceOp::Gt, None) => Op::Gt,
        (SourceOp::Ge, None) => Op::Ge,
        (SourceOp::MaskedEq, Some(mask)) => Op::MaskedEq(mask),
        _ => panic!("masked_eq, and only that, has a mask"),
    };
    let values = match &source.value {
        Values::One(value) => vec![*value],
        Values::Many(values) => values.clone(),
    };
    let condition = |value| {
        assert!(source.arg < 6, "a call has six arguments");
        assert!(
            width == Width::Long || value <= u64::from(u32::MAX),
            "{value:#x} is no int"
        );
        if let Op::MaskedEq(mask) = op {
            assert_eq!(value & !mask, 0, "{value:#x} is not within {mask:#x}");
        }
        Condition {
            arg: source.arg,
            width,
            op,
            value,
        }
    };
    match source.op {
        SourceOp::Ne => vec![values.into_iter().map(condition).collect()],
        SourceOp::Eq | SourceOp::MaskedEq => values
            .into_iter()
            .map(|value| vec![condition(value)])
            .collect(),
        SourceOp::Lt | SourceOp::Le | SourceOp::Gt | SourceOp::Ge => {
            assert_eq!(values.len(), 1, "an order has one bound");
            vec![vec![condition(values[0])]]
        }
    }
}

fn cases(source: &SourceCase) -> Vec<Case> {
    let mut products: Vec<Vec<Condition>> = vec![Vec::new()];
    for condition in &source.when {
        let alternatives = conditions(condition);
        products = products
            .iter()
            .flat_map(|so_far| {
                alternatives
                    .iter()
                    .map(move |more| [&so_far[..], &more[..]].concat())
            })
            .collect();
    }
    products
        .into_iter()
        .map(|when| Case {
            when: Cow::Owned(when),
            then: verdict(&source.then),
        })
        .collect()
}

/// The rule of one call, from a file.
pub struct SourceRule {
    /// The call.
    pub name: &'static str,
    /// What happens to it.
    pub rule: Rule,
    /// Why.
    pub reason: String,
    /// Whether a denial is always logged.
    pub logged: bool,
}

/// The rules of a file, by number.
pub fn rules(file: &Path) -> BTreeMap<u16, SourceRule> {
    let text = std::fs::read_to_string(file).expect("a file of rules");
    let source: Source = toml::from_str(&text).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    let mut rules = BTreeMap::new();
    let mut add = |Call(row): Call, rule, reason: &str, logged| {
        let rule = SourceRule {
            name: row.name,
            rule,
            reason: reason.to_owned(),
            logged,
        };
        let old = rules.insert(row.x86_64, rule);
        assert!(old.is_none(), "{file:?}: {} has two rules", row.name);
    };
    for group in &source.allow {
        for call in &group.calls {
            let rule = Rule::always(SyscallVerdict::Allow);
            add(*call, rule, &group.reason, false);
        }
    }
    for group in &source.deny {
        for call in &group.calls {
            let rule = Rule::always(verdict(&group.errno));
            add(*call, rule, &group.reason, group.logged);
        }
    }
    for check in &source.check {
        let cases: Vec<Case> = check.cases.iter().flat_map(cases).collect();
        let rule = Rule {
            cases: Cow::Owned(cases),
            otherwise: verdict(&check.otherwise),
        };
        add(check.call, rule, &check.reason, false);
    }
    rules
}

/// The tables of all files in a directory.
pub fn generated(dir: &Path) -> String {
    let rules = rules(&dir.join("base.toml"));
    let mut reasons: Vec<&str> = rules.values().map(|rule| rule.reason.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let mut text = table(
        "Why the rules are as they are.",
        "REASONS: &[&str]",
        reasons.iter().map(|reason| format!("{reason:?}")),
    );
    text += &table(
        "The rule of every x86_64 call, sorted by number.",
        "BASE: &[BaseRule]",
        rules.iter().map(|(number, source)| {
            let reason = reasons.binary_search(&source.reason.as_str());
            let reason = reason.expect("each reason is in the list");
            let rule = expression("", source);
            format!("BaseRule {{ number: {number}, reason: {reason}, rule: {rule} }}")
        }),
    );
    let logged = rules.iter().filter(|(_, source)| source.logged);
    text += &table(
        "Calls that are logged although they are answered as a kernel without them would, sorted.",
        "LOGGED: &[u16]",
        logged.map(|(number, _)| number.to_string()),
    );
    text += &all_cases("", &rules);
    for list in MORE {
        let rules = self::rules(&dir.join(list.file));
        let prefix = format!("{}_", list.name);
        text += &table(
            list.about,
            &format!("{}: &[ExtraRule]", list.name),
            rules.iter().map(|(number, source)| {
                let (rule, reason) = (expression(&prefix, source), &source.reason);
                format!("ExtraRule {{ number: {number}, reason: {reason:?}, rule: {rule} }}")
            }),
        );
        text += &all_cases(&prefix, &rules);
    }
    text
}

fn table(about: &str, what: &str, rows: impl Iterator<Item = String>) -> String {
    let rows: String = rows.map(|row| format!("    {row},\n")).collect();
    format!("/// {about}\npub(super) static {what} = &[\n{rows}];\n\n")
}

fn expression(prefix: &str, source: &SourceRule) -> String {
    match (source.rule.cases.is_empty(), source.rule.otherwise) {
        (true, SyscallVerdict::Allow) => "allow()".to_owned(),
        (true, SyscallVerdict::Errno(errno)) => format!("deny({errno})"),
        (false, SyscallVerdict::Errno(errno)) => {
            format!("check(&{prefix}{}, {errno})", source.name.to_uppercase())
        }
        other => panic!("{}: {other:?}", source.name),
    }
}

/// The cases of each rule that has some.
fn all_cases(prefix: &str, rules: &BTreeMap<u16, SourceRule>) -> String {
    let mut text = String::new();
    for source in rules
        .values()
        .filter(|source| !source.rule.cases.is_empty())
    {
        let cases = source.rule.cases.iter().map(|case| {
            let conditions: Vec<String> = case.when.iter().map(condition).collect();
            let (when, then) = (conditions.join(", "), case.then);
            format!(
                "    Case {{ when: Cow::Borrowed(&[{when}]), then: SyscallVerdict::{then:?} }},\n"
            )
        });
        let (name, count) = (source.name.to_uppercase(), source.rule.cases.len());
        let cases: String = cases.collect();
        text += &format!("static {prefix}{name}: [Case; {count}] = [\n{cases}];\n\n");
    }
    text
}

fn condition(condition: &Condition) -> String {
    let Condition {
        arg,
        width,
        op,
        value,
    } = condition;
    format!(
        "Condition {{ arg: {arg}, width: Width::{width:?}, op: Op::{op:?}, value: {value:#x} }}"
    )
}
