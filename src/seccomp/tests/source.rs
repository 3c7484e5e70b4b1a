//! `policies/syscalls` as rules, and the tables that are built from them.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::tables::{
    ATTRIBUTES, BASE, DEBUG, DEVICES, ExtraRule, LOGGED, PARANOID, REASONS, SET_ID,
};
use crate::kernel::SyscallName;
use crate::seccomp::rule::{Rule, SyscallVerdict};
use generator::SourceRule;

/// What the generator finds beside itself in the build script.
use super::super::rule;
use crate::kernel::syscall as numbers;

#[path = "../../../hack/build.d/syscalls.rs"]
#[expect(dead_code, reason = "the build script needs more of it")]
mod generator;

/// The rules of a file, by number.
fn rules(file: &str) -> BTreeMap<u16, SourceRule> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/syscalls");
    generator::rules(&Path::new(dir).join(file))
}

/// Rules by number, with their reasons.
type Rules = BTreeMap<u32, (SyscallName, Rule, String)>;

fn named(rules: BTreeMap<u16, SourceRule>) -> Rules {
    let named = rules.into_iter().map(|(number, source)| {
        let name = source.name.parse().unwrap();
        (u32::from(number), (name, source.rule, source.reason))
    });
    named.collect()
}

/// The base rules, from the TOML.
pub(super) fn base() -> Rules {
    named(rules("base.toml"))
}

/// The rules of another list.
pub(super) fn more(name: &str) -> Rules {
    let mut lists = generator::MORE.iter();
    named(rules(lists.find(|list| list.name == name).unwrap().file))
}

#[test]
fn the_tables_are_what_the_toml_says() {
    let rules = rules("base.toml");
    assert_eq!(rules.len(), BASE.len());
    for (base, (number, source)) in BASE.iter().zip(&rules) {
        assert_eq!(base.number, *number, "{}", source.name);
        assert_eq!(base.rule, source.rule, "{}", source.name);
        assert_eq!(REASONS[usize::from(base.reason)], source.reason);
    }
    let logged = rules.iter().filter(|(_, source)| source.logged);
    assert!(logged.map(|(number, _)| number).eq(LOGGED));
    let tables: [&[ExtraRule]; 5] = [DEVICES, SET_ID, ATTRIBUTES, DEBUG, PARANOID];
    for (list, table) in generator::MORE.iter().zip(tables) {
        let rules = self::rules(list.file);
        assert_eq!(rules.len(), table.len(), "{}", list.file);
        for (extra, (number, source)) in table.iter().zip(&rules) {
            assert_eq!(extra.number, *number, "{}", source.name);
            assert_eq!(extra.rule, source.rule, "{}", source.name);
            assert_eq!(extra.reason, source.reason);
        }
    }
}

#[test]
fn every_system_call_has_exactly_one_rule_and_a_reason() {
    let rules = base();
    let missing: Vec<_> = SyscallName::all()
        .filter(|name| !rules.contains_key(&name.number()))
        .collect();
    assert!(missing.is_empty(), "no rule for {missing:?}");
    assert!(rules.values().all(|(_, _, reason)| reason.len() > 5));
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
