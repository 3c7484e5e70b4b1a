//! `policies/syscalls/base.toml` as rules, and `base.rs`, which is generated from them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use super::super::base::{BASE, REASONS};
use super::super::rule::{Case, Condition, ERRNOS, Op, Rule, SyscallVerdict, Width};
use crate::kernel::SyscallName;

const TOML: &str = include_str!("../../../policies/syscalls/base.toml");

/// What is besides or in place of the base, by the name of its list.
const MORE: [(&str, &str, &str); 5] = [
    (
        "DEVICES",
        "In place of the base where the container has devices of the node's choice.",
        include_str!("../../../policies/syscalls/devices.toml"),
    ),
    (
        "SET_ID",
        "Besides the base where no file may be made set-user-ID or set-group-ID.",
        include_str!("../../../policies/syscalls/set-id.toml"),
    ),
    (
        "ATTRIBUTES",
        "Besides the base where that is so and a mount has the node's groups.",
        include_str!("../../../policies/syscalls/attributes.toml"),
    ),
    (
        "DEBUG",
        "In place of the base under the profile `debug`.",
        include_str!("../../../policies/syscalls/debug.toml"),
    ),
    (
        "PARANOID",
        "In place of the base under the profile `paranoid`.",
        include_str!("../../../policies/syscalls/paranoid.toml"),
    ),
];

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
    calls: Vec<SyscallName>,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deny {
    calls: Vec<SyscallName>,
    errno: String,
    reason: String,
    #[serde(default)]
    logged: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    call: SyscallName,
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
        assert!(source.arg < 6);
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

/// Rules by number, with their reasons.
type Rules = BTreeMap<u32, (SyscallName, Rule, String)>;

/// The base rules, from the TOML.
pub(super) fn base() -> Rules {
    rules(TOML)
}

/// The rules of one of [`MORE`].
pub(super) fn more(name: &str) -> Rules {
    let (_, _, text) = MORE.iter().find(|(list, _, _)| *list == name).unwrap();
    rules(text)
}

fn rules(text: &str) -> Rules {
    let source: Source = toml::from_str(text).unwrap();
    let mut rules = BTreeMap::new();
    let mut add = |name: SyscallName, rule, reason: &str| {
        let old = rules.insert(name.number(), (name, rule, reason.to_owned()));
        assert!(old.is_none(), "{name} has two rules");
    };
    for group in &source.allow {
        for name in &group.calls {
            add(*name, Rule::always(SyscallVerdict::Allow), &group.reason);
        }
    }
    for group in &source.deny {
        for name in &group.calls {
            add(*name, Rule::always(verdict(&group.errno)), &group.reason);
        }
    }
    for check in &source.check {
        let cases: Vec<Case> = check.cases.iter().flat_map(cases).collect();
        let rule = Rule {
            cases: Cow::Owned(cases),
            otherwise: verdict(&check.otherwise),
        };
        add(check.call, rule, &check.reason);
    }
    rules
}

/// The calls of groups that are always logged.
fn logged() -> BTreeMap<u32, SyscallName> {
    let source: Source = toml::from_str(TOML).unwrap();
    let groups = source.deny.iter().filter(|group| group.logged);
    let calls = groups.flat_map(|group| &group.calls);
    calls.map(|name| (name.number(), *name)).collect()
}

/// `base.rs`, written from the TOML.
fn generated() -> String {
    let rules = base();
    let mut reasons: Vec<&str> = rules
        .values()
        .map(|(_, _, reason)| reason.as_str())
        .collect();
    reasons.sort_unstable();
    reasons.dedup();
    let mut text = String::from(HEADER);
    text.push_str("/// Why the rules are as they are.\npub(super) static REASONS: &[&str] = &[\n");
    for reason in &reasons {
        writeln!(text, "    {reason:?},").unwrap();
    }
    text.push_str("];\n\n/// The rule of every x86_64 call, sorted by number.\npub(super) static BASE: &[BaseRule] = &[\n");
    for (number, (name, rule, reason)) in &rules {
        let reason = reasons.binary_search(&reason.as_str()).unwrap();
        let rule = match (rule.cases.is_empty(), rule.otherwise) {
            (true, SyscallVerdict::Allow) => format!("allow({number}, {reason})"),
            (true, SyscallVerdict::Errno(errno)) => format!("deny({number}, {reason}, {errno})"),
            (false, SyscallVerdict::Errno(errno)) => {
                format!(
                    "check({number}, {reason}, &{}, {errno})",
                    name.as_str().to_uppercase()
                )
            }
            other => panic!("{name}: {other:?}"),
        };
        writeln!(text, "    {rule}, // {name}").unwrap();
    }
    text.push_str("];\n\n/// Calls that are logged although they are answered as a kernel without them would, sorted.\npub(super) static LOGGED: &[u16] = &[\n");
    for (number, name) in logged() {
        writeln!(text, "    {number}, // {name}").unwrap();
    }
    text.push_str("];\n");
    write_cases(&mut text, "", &rules);
    text
}

/// `more.rs`, likewise.
fn generated_more() -> String {
    let mut text = String::from(HEADER_OF_MORE);
    for (list, about, source) in MORE {
        let rules = rules(source);
        write!(
            text,
            "\n/// {about}\npub(super) static {list}: &[ExtraRule] = &[\n"
        )
        .unwrap();
        for (number, (name, rule, reason)) in &rules {
            let rule = match (rule.cases.is_empty(), rule.otherwise) {
                (true, SyscallVerdict::Allow) => format!("allow({number}, {reason:?})"),
                (true, SyscallVerdict::Errno(errno)) => {
                    format!("deny({number}, {errno}, {reason:?})")
                }
                (false, SyscallVerdict::Errno(errno)) => {
                    let constant = name.as_str().to_uppercase();
                    format!("check({number}, &{list}_{constant}, {errno}, {reason:?})")
                }
                other => panic!("{name}: {other:?}"),
            };
            writeln!(text, "    {rule}, // {name}").unwrap();
        }
        text.push_str("];\n");
        write_cases(&mut text, &format!("{list}_"), &rules);
    }
    text
}

fn write_cases(text: &mut String, prefix: &str, rules: &Rules) {
    for (name, rule, _) in rules.values().filter(|(_, rule, _)| !rule.cases.is_empty()) {
        let constant = format!("{prefix}{}", name.as_str().to_uppercase());
        writeln!(
            text,
            "\nstatic {constant}: [Case; {}] = [",
            rule.cases.len()
        )
        .unwrap();
        for case in rule.cases.iter() {
            let conditions: Vec<String> = case
                .when
                .iter()
                .map(|c| {
                    let op = if let Op::MaskedEq(mask) = c.op {
                        format!("Op::MaskedEq({mask:#x})")
                    } else {
                        format!("Op::{:?}", c.op)
                    };
                    format!(
                        "Condition {{ arg: {}, width: Width::{:?}, op: {op}, value: {:#x} }}",
                        c.arg, c.width, c.value
                    )
                })
                .collect();
            let when = conditions.join(", ");
            writeln!(
                text,
                "    Case {{ when: Cow::Borrowed(&[{when}]), then: SyscallVerdict::{:?} }},",
                case.then
            )
            .unwrap();
        }
        text.push_str("];\n");
    }
}

const HEADER_OF_MORE: &str = r#"//! Generated from the other files of `policies/syscalls`, as `base.rs` is from `base.toml`.
//!
//! `AGENTBOX_BLESS=1 cargo test base_rs_is_what_base_toml_says` writes this file.

use std::borrow::Cow;

use super::rule::{Case, Condition, Op, Rule, SyscallVerdict, Width};

/// The rule of one call.
pub(super) struct ExtraRule {
    pub number: u16,
    pub reason: &'static str,
    pub rule: Rule,
}

const fn allow(number: u16, reason: &'static str) -> ExtraRule {
    ExtraRule { number, reason, rule: Rule::always(SyscallVerdict::Allow) }
}

const fn deny(number: u16, errno: u16, reason: &'static str) -> ExtraRule {
    ExtraRule { number, reason, rule: Rule::always(SyscallVerdict::Errno(errno)) }
}

const fn check(number: u16, cases: &'static [Case], errno: u16, reason: &'static str) -> ExtraRule {
    ExtraRule { number, reason, rule: Rule { cases: Cow::Borrowed(cases), otherwise: SyscallVerdict::Errno(errno) } }
}
"#;

const HEADER: &str = r#"//! Generated from `policies/syscalls/base.toml`, with its reasons; a test holds that both are equal. Parsing the TOML
//! at every start would take longer than compiling the filter.
//!
//! `AGENTBOX_BLESS=1 cargo test base_rs_is_what_base_toml_says` writes this file.

use std::borrow::Cow;

use super::rule::{Case, Condition, Op, Rule, SyscallVerdict, Width};

/// The rule of one call.
pub(super) struct BaseRule {
    pub number: u16,
    /// An index into [`REASONS`].
    pub reason: u16,
    pub rule: Rule,
}

const fn allow(number: u16, reason: u16) -> BaseRule {
    BaseRule { number, reason, rule: Rule::always(SyscallVerdict::Allow) }
}

const fn deny(number: u16, reason: u16, errno: u16) -> BaseRule {
    BaseRule { number, reason, rule: Rule::always(SyscallVerdict::Errno(errno)) }
}

const fn check(number: u16, reason: u16, cases: &'static [Case], errno: u16) -> BaseRule {
    BaseRule { number, reason, rule: Rule { cases: Cow::Borrowed(cases), otherwise: SyscallVerdict::Errno(errno) } }
}

"#;

#[test]
fn base_rs_is_what_base_toml_says() {
    let (expected, more) = (generated(), generated_more());
    if std::env::var_os("AGENTBOX_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/seccomp/");
        std::fs::write(format!("{path}base.rs"), &expected).unwrap();
        std::fs::write(format!("{path}more.rs"), &more).unwrap();
        return;
    }
    assert!(
        include_str!("../more.rs") == more,
        "more.rs is stale: AGENTBOX_BLESS=1 cargo test base_rs_is"
    );
    assert!(
        include_str!("../base.rs") == expected,
        "base.rs is stale: AGENTBOX_BLESS=1 cargo test base_rs_is"
    );
}

#[test]
fn every_system_call_has_exactly_one_rule_and_a_reason() {
    let rules = base();
    let missing: Vec<_> = SyscallName::all()
        .filter(|name| !rules.contains_key(&name.number()))
        .collect();
    assert!(missing.is_empty(), "no rule for {missing:?}");
    assert!(rules.values().all(|(_, _, reason)| reason.len() > 5));
    assert_eq!(rules.len(), BASE.len());
    assert!(
        BASE.iter()
            .all(|base| usize::from(base.reason) < REASONS.len())
    );
    let socket = "socket".parse().unwrap();
    assert!(
        super::super::ours::denial(socket, &[17, 3, 0, 0, 0, 0])
            .unwrap()
            .contains("NETLINK_ROUTE")
    );
}

#[test]
fn calls_that_ordinary_programs_make_often_have_no_argument_checks() {
    let rules = base();
    for name in [
        "read",
        "write",
        "openat",
        "close",
        "mmap",
        "mprotect",
        "futex",
        "newfstatat",
        "lseek",
        "epoll_wait",
    ] {
        let name: SyscallName = name.parse().unwrap();
        assert_eq!(
            rules[&name.number()].1,
            Rule::always(SyscallVerdict::Allow),
            "{name}"
        );
    }
}
