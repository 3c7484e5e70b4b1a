//! Rules that end: `network.temporary` in files, annotations and options, and below a ceiling.

use chrono::TimeZone;

use super::*;
use crate::rules::NetworkLimit;

fn temporary(case: Case) -> Vec<String> {
    let rules = case.resolved().policy.network.temporary;
    rules.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_with_an_end_imply_the_mode_and_have_their_own_origin() {
    let resolved = case()
        .field("network.temporary", "a.test for 10m")
        .resolved();
    assert_eq!(resolved.policy.network.mode, NetworkMode::Allowlist);
    assert!(resolved.policy.network.allow.is_empty());
    let origin = Origin::Annotation("dev.agentbox.network.temporary".to_owned());
    for field in [Field::NetworkMode, Field::NetworkTemporary] {
        assert_eq!(resolved.origins[&field], origin);
    }
    let error = case()
        .field("network.mode", "local")
        .field("network.temporary", "a.test for 10m")
        .error();
    let said = error.to_string();
    assert!(said.contains("network.temporary"), "{said}");
}

#[test]
fn a_policy_that_builds_on_another_keeps_or_replaces_its_ends() {
    let base = "base = 'standard'\nnetwork.temporary = ['a.test for 10m']";
    let with = |own: &str| {
        let own = format!("base = 'below'\n{own}");
        case().file("below", base).file("own", &own).flag("own")
    };
    assert_eq!(temporary(with("")), ["a.test for 10m"]);
    let more = "network.temporary = ['+', '@local until 2030-01-02T03:04:05Z']";
    let more = with(more).preset("local", "['b.test', 'c.test:22']");
    assert_eq!(
        temporary(more),
        [
            "a.test for 10m",
            "b.test until 2030-01-02T03:04:05Z",
            "c.test:22 until 2030-01-02T03:04:05Z"
        ]
    );
    // Other rules do not touch them.
    let listed = with("network.allow = ['b.test']");
    assert_eq!(temporary(listed), ["a.test for 10m"]);
    let closed = with("network.mode = 'local'");
    assert_eq!(temporary(closed), [""; 0]);
    // The file that is printed says the same.
    let policy = with("").resolved().policy;
    let printed = case().file("printed", &policy.to_toml()).flag("printed");
    assert_eq!(temporary(printed), ["a.test for 10m"]);
}

#[test]
fn a_rule_with_two_ends_is_refused() {
    for list in [
        "a.test for 10m, a.test for 11m",
        "a.test for 10m, a.test until 2030-01-02T03:04:05Z",
    ] {
        let said = case().field("network.temporary", list).error().to_string();
        assert!(
            said.contains("a.test") && said.contains("give it one end"),
            "{said}"
        );
    }
    let same = "a.test for 10m, a.test for 600s";
    assert_eq!(
        temporary(case().field("network.temporary", same)),
        ["a.test for 10m"]
    );
}

/// With each kind of item: as methods of MCP, the words of an end would make a lasting rule.
#[test]
fn an_end_in_another_list_is_an_error_that_names_the_place() {
    for rule in [
        "a.test for 10m",
        "a.test until 18:00",
        "a.test for 10 minutes",
        "a.test FOR 10m",
        "@github for 10m",
        "git:push a.test/o/r for 10m",
        "GET https://a.test/x for 10m",
        "mcp:https://a.test/mcp tools/call:x for 10m",
        "mcp:https://a.test/mcp tools/call:x until 2030-01-02T03:04:05Z",
        "mcp:https://a.test/mcp tools/call:x Until 10m",
    ] {
        let allowed = case().field("network.allow", rule).error().to_string();
        assert!(allowed.contains("network.temporary"), "{allowed}");
        for field in ["allow", "limit", "deny"] {
            let file = format!("base = 'standard'\nnetwork.{field} = ['{rule}']");
            let said = case().file("own", &file).flag("own").error().to_string();
            assert!(said.contains("network.temporary"), "{said}");
        }
        let preset = format!("['{rule}']");
        let preset = case().preset("local", &preset);
        assert!(preset.field("network.allow", "@local").resolve().is_err());
        // A denied rule has none, and its error leads to no list that allows.
        let denied = case().field("network.deny", rule).error().to_string();
        let mut option = case();
        option.asked.options = vec![FieldOption::adding("--deny", Field::NetworkDeny, rule)];
        for said in [denied, option.error().to_string()] {
            assert!(said.contains("denied rules have no end"), "{said}");
            assert!(!said.contains("network.temporary"), "{said}");
        }
    }
    for rule in [
        "mcp:https://a.test/mcp for tools/list",
        "mcp:https://a.test/mcp until",
        "mcp:https://a.test/mcp tools/call:x fro 10m",
    ] {
        for field in ["network.allow", "network.deny"] {
            assert!(case().field(field, rule).resolve().is_err(), "{rule}");
        }
    }
    let said = case()
        .field("network.temporary", "a.test until 18:00")
        .error();
    assert!(said.to_string().contains("its offset"), "{said}");
}

#[test]
fn only_rules_that_end_no_later_are_within_a_ceilings_rule_with_an_end() {
    let ceiling = "base = 'standard'\nnetwork.mode = 'allowlist'\n\
                   network.temporary = ['a.test for 10m', 'b.test until 2030-01-02T03:04:05Z']\n\
                   network.limit = ['l.test']";
    let under = || {
        let short = case().file("short", ceiling);
        short.node("ceiling = 'short'\ndefault = 'standard'")
    };
    for (field, rules) in [
        ("network.temporary", "a.test for 10m"),
        (
            "network.temporary",
            "a.test for 1s, b.test until 2029-01-02T03:04:05Z",
        ),
        ("network.temporary", "l.test for 366d"),
        ("network.allow", "l.test"),
    ] {
        let within = under().field(field, rules);
        assert!(within.resolve().is_ok(), "{rules}: {:?}", within.resolve());
    }
    for (field, rules) in [
        ("network.temporary", "a.test for 601s"),
        ("network.temporary", "a.test until 2000-01-01T00:00:00Z"),
        ("network.temporary", "b.test for 1s"),
        ("network.temporary", "b.test until 2030-01-02T03:04:06Z"),
        ("network.temporary", "c.test for 1s"),
        // Without an end: longer than any.
        ("network.allow", "a.test"),
        ("network.allow", "b.test"),
    ] {
        let error = under().field(field, rules).error();
        assert!(
            matches!(error, PolicyError::ExceedsCeiling { .. }),
            "{error}"
        );
        let said = error.over()[0].to_string();
        assert!(said.contains("a.test for 10m"), "{said}");
    }
    // Nor may anyone approve more.
    let limit = NetworkLimit::of(String::new(), &under().resolved().limits[0].network);
    let rules: Vec<String> = limit.rules.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["l.test"]);
}

#[test]
fn an_end_is_no_permission_of_its_own() {
    let own = "base = 'standard'\nannotations.loosen = []\nnetwork.temporary = ['a.test for 10m']\nnetwork.mode = 'allowlist'";
    let under = |field: &str, rules: &str| {
        let own = case().file("own", own).field("policy", "own");
        own.field(field, rules)
    };
    for (field, rules) in [
        ("network.temporary", "a.test for 11m"),
        ("network.temporary", "+, b.test for 1s"),
        ("network.allow", "a.test"),
    ] {
        let error = under(field, rules).error();
        assert!(matches!(error, PolicyError::Loosened { .. }), "{error}");
    }
    let less = under("network.temporary", "a.test for 9m");
    assert_eq!(temporary(less), ["a.test for 9m"]);
    assert_eq!(temporary(under("network.temporary", "")), [""; 0]);
}

#[test]
fn an_option_of_wrap_may_have_an_end() {
    let mut wrapped = case();
    wrapped.asked.options = FieldOption::allowing("--allow", "b.test, a.test for 10m");
    let resolved = wrapped.resolved();
    assert_eq!(
        resolved.policy.network.allow,
        ["b.test".parse().unwrap()].into()
    );
    assert_eq!(temporary(wrapped), ["a.test for 10m"]);
    let origin = Origin::Option("--allow".to_owned());
    assert_eq!(resolved.origins[&Field::NetworkTemporary], origin);
    let zone = chrono::FixedOffset::east_opt(3600).unwrap();
    let now = zone.with_ymd_and_hms(2026, 11, 30, 17, 30, 0).unwrap();
    let mut typed = case();
    let items = "b.test, a.test until 18:00, GET,HEAD https://c.test/x until 17:00";
    typed.asked.options = FieldOption::typed_allow(items, &now);
    let ends = [
        "a.test until 2026-11-30T17:00:00Z",
        "GET,HEAD https://c.test/x until 2026-12-01T16:00:00Z",
    ];
    assert_eq!(temporary(typed), ends);
    // In a file it would be another day at each run.
    let mut wrong = case();
    wrong.asked.options = FieldOption::allowing("allow", "a.test until 18:00");
    let said = wrong.error().to_string();
    assert!(
        said.contains("allow") && said.contains("its offset"),
        "{said}"
    );
}
