//! Rules that end, from the policy to the plan.

use super::*;
use crate::rules::{ClockReading, Decision, Denial};

const NOW: ClockReading = ClockReading {
    boot_ms: 5_000,
    unix: 1_700_000_000,
};

fn begins(rules: &str) -> Case {
    let mut case = under("standard").annotation("network.temporary", rules);
    case.facts.now = NOW;
    case
}

fn later(seconds: u64) -> ClockReading {
    ClockReading {
        boot_ms: NOW.boot_ms + seconds * 1000,
        unix: NOW.unix + i64::try_from(seconds).unwrap(),
    }
}

#[test]
fn an_end_counts_from_the_beginning_of_the_run() {
    let network = begins("a.test:22 for 10m, b.test until 2023-11-14T22:14:20Z")
        .plan()
        .network;
    let allows = |at: ClockReading, host: &str, port| {
        let mut rules = network.rules.clone();
        rules.expire(at);
        match rules.decide(&host.parse().unwrap(), port) {
            Decision::Allow(_) => true,
            Decision::Deny(denial) => {
                assert!(matches!(denial, Denial::Expired(_)), "{denial}");
                false
            }
        }
    };
    // The wall listens on their ports from the start.
    assert_eq!(network.ports, [22, 443].into());
    for (seconds, first, second) in [
        (0, true, true),
        (59, true, true),
        (60, true, false),
        (600, false, false),
    ] {
        assert_eq!(allows(later(seconds), "a.test", 22), first, "{seconds}");
        assert_eq!(allows(later(seconds), "b.test", 443), second, "{seconds}");
    }
    // Clocks that are set back give no time.
    let back = ClockReading {
        unix: 0,
        ..later(600)
    };
    assert!(!allows(back, "a.test", 22) && !allows(back, "b.test", 443));
    // A run that begins after the date has the reason from the start.
    let mut late = begins("b.test until 2020-01-01T00:00:00Z").plan().network;
    let expired = late.rules.expire(NOW);
    assert_eq!(expired.len(), 1);
    assert!(late.rules.allow.is_empty());
}

#[test]
fn a_mode_that_reaches_nothing_has_no_ends_either() {
    let ended = begins("a.test for 10m")
        .site(|policy| policy.network.mode = crate::policy::NetworkMode::Local);
    assert_eq!(
        ended.plan().network.rules,
        crate::rules::EgressRules::default()
    );
}

#[test]
fn an_end_that_another_rule_makes_vain_is_said() {
    let case =
        begins("a.test for 10m, x.w.test for 10m, GET https://r.test/x for 10m, b.test:22 for 10m");
    let lasting = "a.test, *.w.test, r.test, b.test";
    let plan = case.annotation("network.allow", lasting).plan();
    let said: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    let lasts = |rule: &str| {
        let text =
            format!("{rule} for 10m does not end: network.allow allows the same without an end");
        said.contains(&text)
    };
    for rule in ["a.test", "x.w.test", "GET https://r.test/x"] {
        assert!(lasts(rule), "{rule}: {said:?}");
    }
    assert!(!lasts("b.test:22"), "{said:?}");
    // The rule itself has no end then.
    let ends: Vec<String> = plan
        .network
        .rules
        .ends
        .keys()
        .map(ToString::to_string)
        .collect();
    assert!(!ends.contains(&"a.test".to_owned()), "{ends:?}");
}

#[test]
fn the_policy_of_a_container_has_its_rules_where_they_were_given() {
    let case = begins("a.test for 10m, b.test for 20m").annotation("network.allow", "c.test");
    let mut decided = case.decided();
    assert_eq!(decided.policy().network, decided.resolved.network);
    // After the first end.
    decided.plan.network.rules.expire(later(600));
    let network = decided.policy().network;
    assert_eq!(
        network.temporary,
        ["b.test for 20m".parse().unwrap()].into()
    );
    assert_eq!(network.allow, ["c.test".parse().unwrap()].into());
    // An end that `update` gave is not the policy's: others see a rule that they must allow as a whole.
    decided.plan.network.rules.ended_by_policy.clear();
    let network = decided.policy().network;
    assert!(network.temporary.is_empty());
    assert_eq!(network.allow.len(), 2);
}
