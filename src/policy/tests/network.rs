//! Rules of the network wall: implied fields, presets, and rules that need the node's permission.

use super::*;
use crate::rules::EgressRule;

fn network(case: Case) -> Network {
    case.resolved().policy.network
}

fn rules(list: &[&str]) -> BTreeSet<EgressRule> {
    list.iter().map(|rule| rule.parse().unwrap()).collect()
}

/// A node whose ceiling allows everything, with this permission in its file.
fn roomy(leave: &str) -> Case {
    case()
        .node(&format!(
            "ceiling = \"anything\"\n[allow]\ncapabilities = [\"NET_RAW\"]\n{leave}"
        ))
        .file("anything", ceilings::ANYTHING)
}

#[test]
fn listing_hosts_makes_the_mode_allowlist() {
    let resolved = case()
        .flag("unconfined")
        .field("policy", "standard")
        .field("network.allow", "a.example.com")
        .node("ceiling = \"permissive\"")
        .resolved();
    assert_eq!(resolved.policy.network.mode, NetworkMode::Allowlist);
    let allow = Origin::Annotation("dev.agentbox.network.allow".to_owned());
    assert_eq!(resolved.origins[&Field::NetworkMode], allow);
    assert_eq!(resolved.origins[&Field::NetworkAllow], allow);
    // If the mode is named too, that is its origin. An empty list implies no mode.
    let named = case()
        .field("network.allow", "a.example.com")
        .field("network.mode", "allowlist")
        .resolved();
    let mode = Origin::Annotation("dev.agentbox.network.mode".to_owned());
    assert_eq!(named.origins[&Field::NetworkMode], mode);
    let nobody = case().field("network.allow", " ");
    assert_eq!(network(nobody).mode, NetworkMode::Local);
    let denied = case().field("network.deny", "a.example.com");
    assert_eq!(network(denied).mode, NetworkMode::Local);
}

#[test]
fn an_implied_mode_is_limited_like_a_named_one() {
    let error = case()
        .flag("strict")
        .field("network.allow", "a.example.com")
        .error();
    let PolicyError::ExceedsCeiling { over, .. } = error else {
        panic!("{error:?}");
    };
    let fields: Vec<Field> = over.iter().map(|over| over.exceeded.field).collect();
    assert_eq!(fields, [Field::NetworkMode, Field::NetworkAllow]);
}

#[test]
fn hosts_and_a_mode_that_reaches_none_contradict_each_other() {
    for mode in ["none", "local"] {
        let error = case()
            .field("network.mode", mode)
            .field("network.allow", "a.example.com")
            .error();
        assert!(
            matches!(error, PolicyError::AnnotationsDisagree { .. }),
            "{error}"
        );
    }
    // An author who narrows a policy need not know its lists.
    let narrowed = case().flag("permissive").field("network.mode", "none");
    assert_eq!(network(narrowed).mode, NetworkMode::None);
}

#[test]
fn an_allowed_list_replaces_the_policys_own() {
    let asked = case()
        .field("policy", "permissive")
        .field("network.allow", "a.example.com");
    assert_eq!(network(asked).allow, rules(&["a.example.com"]));
}

#[test]
fn a_denied_host_is_added_to_the_policys_own() {
    let node = || {
        case()
            .file(
                "closed",
                "base = \"permissive\"\nnetwork.deny = [\"a.example.com\", \"@ads\"]",
            )
            .preset("ads", "[\"*.ads.example.com\"]")
            .flag("closed")
    };
    let own = ["*.ads.example.com", "a.example.com"];
    assert_eq!(network(node()).deny, rules(&own));
    assert_eq!(network(node().field("network.deny", "")).deny, rules(&own));
    let more = node().field("network.deny", "b.example.com:22");
    assert_eq!(
        network(more).deny,
        rules(&["*.ads.example.com", "a.example.com", "b.example.com:22"])
    );
}

#[test]
fn presets_are_expanded_in_every_list() {
    let node = || case().preset("ours", "[\"a.example.com\", \"*.example.com:8443\"]");
    let ours = rules(&["a.example.com", "*.example.com:8443"]);
    let annotated = node().field("network.allow", "@ours");
    assert_eq!(network(annotated).allow, ours);
    let file = node()
        .file("team", "base = \"permissive\"\nnetwork.allow = [\"@ours\"]")
        .field("policy", "team");
    assert_eq!(network(file).allow, ours);
    let limit = node()
        .file("team", "base = \"standard\"\nnetwork.limit = [\"@ours\"]")
        .field("policy", "team");
    assert_eq!(network(limit).limit, ours);
}

#[test]
fn a_preset_of_the_node_replaces_the_built_in_one() {
    let ours = || case().preset("github", "[\"git.example.com\"]");
    let asked = ours().field("network.allow", "@github");
    assert_eq!(network(asked).allow, rules(&["git.example.com"]));
    // In the built-in policies too: the name means the company's own preset.
    let permissive = network(ours().flag("permissive")).allow;
    assert!(permissive.contains(&"git.example.com".parse().unwrap()));
    assert!(!permissive.contains(&"github.com".parse().unwrap()));
}

#[test]
fn an_undefined_preset_is_an_error_that_says_how_to_define_it() {
    let file = case()
        .file("team", "base = \"strict\"\nnetwork.allow = [\"@python\"]")
        .preset("node", "[\"npm.example.com\"]")
        .flag("team");
    let message = file.error().to_string();
    for part in [
        "policy file team.toml: there is no preset @python",
        "@github",
        "@node",
        "`agentbox policy presets --detect --write` writes @python",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // A preset that cannot be parsed is an error too, but only if it is named.
    let broken = || case().preset("python", "[\"not a rule\"]");
    let named = broken().field("network.allow", "@python").error();
    assert!(matches!(named, PolicyError::File { .. }), "{named}");
    assert!(broken().resolve().is_ok());
}

#[test]
fn rules_for_too_many_hosts_need_the_nodes_permission() {
    for (rule, leave_helps) in [
        ("*", true),
        ("*:80", true),
        ("*.com", true),
        ("*.co.uk", true),
        ("*.test", true),
        // Anyone can publish below these (N-L3).
        ("*.github.io", true),
        ("*.s3.amazonaws.com", true),
        ("*.nip.io", true),
        ("internal:*", false),
    ] {
        let asked = |case: Case| case.field("network.allow", rule).resolve();
        let refused = asked(roomy("")).unwrap_err();
        assert!(
            matches!(refused, PolicyError::RuleNotAllowed { .. }),
            "{rule}: {refused}"
        );
        let with_leave = asked(roomy("open-egress = true"));
        assert_eq!(with_leave.is_ok(), leave_helps, "{rule}");
        // A permission is not a grant: the ceiling still limits.
        let limited = case().node("[allow]\nopen-egress = true").flag("strict");
        assert!(asked(limited).is_err(), "{rule}");
    }
    for rule in [
        "*.example.com",
        "*.githubusercontent.com",
        "octocat.github.io",
        "10.0.0.0/8",
        "internal:db:1",
    ] {
        let asked = roomy("").field("network.allow", rule);
        assert!(asked.resolve().is_ok(), "{rule}");
    }
}

#[test]
fn a_policy_file_needs_the_permission_too_and_a_limit_does_not() {
    let file = |text: &str| {
        roomy("")
            .file("team", &format!("base = \"permissive\"\n{text}"))
            .flag("team")
            .resolve()
    };
    assert!(matches!(
        file("network.allow = [\"*\"]"),
        Err(PolicyError::RuleNotAllowed { .. })
    ));
    assert!(file("network.limit = [\"*\", \"*.com\", \"internal:*\"]").is_ok());
    assert!(file("network.deny = [\"*.com\"]").is_ok());
}

#[test]
fn rules_name_at_most_64_ports() {
    let asked = |count: usize| {
        let each: Vec<String> = (0..count)
            .map(|index| format!("a.example.com:{}", 1000 + index))
            .collect();
        case().field("network.allow", &each.join(","))
    };
    assert_eq!(network(asked(64)).allow.len(), 64);
    let message = asked(65).error().to_string();
    assert!(
        message.contains("64 different ports, these name 65"),
        "{message}"
    );
    // One port for many hosts counts once.
    let many: Vec<String> = (0..100).map(|i| format!("a{i}.example.com")).collect();
    let many = case().field("network.allow", &many.join(","));
    assert_eq!(network(many).allow.len(), 100);
}

#[test]
fn private_names_and_addresses_are_the_nodes_to_grant() {
    let asked = |case: Case, rule| case.field("network.allow", rule).resolve().is_ok();
    for rule in ["internal:postgres:5432", "10.1.2.3:5432"] {
        assert!(!asked(case(), rule), "{rule}");
    }
    let granted = || {
        case().node("ceiling = \"lab\"").file(
            "lab",
            "base = \"permissive\"\n\
             network.limit = [\"*\", \"internal:postgres\", \"10.0.0.0/8:5432\"]",
        )
    };
    assert!(asked(granted(), "internal:postgres:5432"));
    assert!(asked(granted(), "10.1.2.3:5432"));
    assert!(!asked(granted(), "internal:redis:6379"));
    assert!(!asked(granted(), "10.1.2.3:22"));
}
