//! Another container's network: whose policy governs, and which containers are refused.

use super::*;
use crate::plan::join::refuses;
use crate::policy::NetworkMode;

const PATH: &str = "/proc/7/ns/net";

/// A container with `--network container:X`.
fn member(policy: Option<&str>) -> Case {
    let mut case = under(policy.unwrap_or("standard"));
    if policy.is_none() {
        case.annotations.clear();
    }
    let kinds = ["pid", "ipc", "uts", "mount", "cgroup"];
    let mut list: Vec<Value> = kinds.iter().map(|t| json!({"type": t})).collect();
    list.push(json!({"type": "network", "path": PATH}));
    case.set("/linux", "namespaces", Value::Array(list))
}

fn annotated(mut case: Case, key: &str, value: &str) -> Case {
    let key = format!("dev.agentbox.{key}");
    case.annotations.insert(key, value.to_owned());
    case
}

/// The container that owns the network, under this policy.
fn first(case: Case, state: fn(SharedNetwork) -> NetworkState) -> Neighbour {
    let decided = case.decided();
    let policy = decided.policy();
    let plan = decided.plan;
    let shared = SharedNetwork {
        container: "first".into(),
        path: "/proc/8/ns/net".into(),
        cookie: 77,
        sidecar_pid: 9,
        sidecar_start: 1,
    };
    Neighbour {
        id: "first".into(),
        policy: Some(policy),
        namespaces: plan.namespaces,
        network: Some(NeighbourNetwork {
            plan: plan.network,
            state: state(shared),
        }),
        sets_ids: false,
    }
}

fn standing(case: Case) -> Neighbour {
    first(case, NetworkState::Standing)
}

fn allowlist(allow: &str) -> Case {
    annotated(under("standard"), "network.allow", allow)
}

#[test]
fn a_member_has_the_first_containers_network_and_rules() {
    let governs = allowlist("api.example.com, git.example.com:22");
    let decided = member(None)
        .neighbours(PATH, vec![standing(governs)])
        .decided();
    let plan = &decided.plan;
    let governing = allowlist("api.example.com, git.example.com:22").decided();
    let first = &governing.plan;
    let shared = plan.network.shared.clone().unwrap();
    assert_eq!((shared.cookie, shared.container.as_str()), (77, "first"));
    assert_eq!(plan.network.rules, first.network.rules);
    assert_eq!(plan.network.mode, NetworkMode::Allowlist);
    assert!(plan.network.proxy_env);
    assert_eq!(decided.resolved.network, governing.resolved.network);
    assert!(
        plan.namespaces
            .contains(&"network=/proc/8/ns/net".parse().unwrap())
    );
    assert_eq!(
        decided.origins["network.allow"],
        "the network of container first"
    );
    // Fields outside the network stay the member's own.
    assert_eq!(
        decided.resolved.filesystem,
        under("standard").decided().resolved.filesystem
    );
    let joined = member(None)
        .set("/linux", "sysctl", json!({"net.core.somaxconn": "9"}))
        .neighbours(PATH, vec![standing(under("standard"))])
        .plan();
    assert!(joined.network.sysctl.is_empty());
    assert!(
        joined
            .warnings
            .iter()
            .any(|w| w.to_string().contains("net.core.somaxconn is not applied"))
    );
}

#[test]
fn a_member_never_gets_more_than_its_own_policy_allows() {
    let host = || standing(allowlist("api.example.com"));
    for (case, why) in [
        (
            member(Some("strict")),
            "its network.mode has allowlist, allowed here is at most none",
        ),
        (member(Some("standard")), "its network.mode has allowlist"),
        (
            annotated(member(None), "network.mode", "local"),
            "its network.mode has allowlist",
        ),
        (
            annotated(member(None), "network.allow", "other.example.com"),
            "its network.allow has api.example.com",
        ),
        (
            annotated(member(Some("standard")), "network.deny", "x.example.com")
                .node("ceiling = \"standard\""),
            "its network.mode has allowlist",
        ),
        // Not requested, but beyond the ceiling.
        (
            member(None).node("ceiling = \"standard\""),
            "its network.mode has allowlist",
        ),
    ] {
        let message = case.neighbours(PATH, vec![host()]).refused();
        assert!(
            message.contains("network namespace of container first") && message.contains(why),
            "{why}: {message}"
        );
        assert!(message.contains("cannot give a member"), "{message}");
    }
}

#[test]
fn a_member_does_not_get_requests_beyond_the_first_containers_rules() {
    let asks = annotated(
        member(None),
        "network.allow",
        "api.example.com, other.example.com",
    );
    let plan = asks
        .neighbours(PATH, vec![standing(allowlist("api.example.com"))])
        .plan();
    assert_eq!(
        plan.network.rules,
        allowlist("api.example.com").plan().network.rules
    );
    assert!(
        plan.warnings
            .iter()
            .any(|w| w.to_string().contains("requests other.example.com")),
        "{:?}",
        plan.warnings
    );
    let plan = member(Some("permissive"))
        .neighbours(PATH, vec![standing(under("strict"))])
        .plan();
    assert_eq!(plan.network.mode, NetworkMode::None);
    assert!(plan.network.rules.allow.is_empty() && !plan.network.proxy_env);
}

#[test]
fn only_a_network_that_stands_is_joined() {
    let unconfined = Neighbour {
        policy: None,
        network: None,
        ..standing(under("standard"))
    };
    let remapped = Neighbour {
        namespaces: vec!["user".parse().unwrap()],
        ..standing(under("standard"))
    };
    let mut of_member = standing(under("standard"));
    if let Some(network) = &mut of_member.network {
        network.plan.shared = Some(SharedNetwork {
            container: "gone".into(),
            path: PATH.into(),
            cookie: 77,
            sidecar_pid: 9,
            sidecar_start: 1,
        });
    }
    let not_started = first(under("standard"), |_| NetworkState::NotStarted);
    let dead = first(under("standard"), |_| NetworkState::Dead);
    let two = vec![standing(under("standard")), standing(under("standard"))];
    for (inside, why) in [
        (vec![], "no running container of agentbox"),
        (vec![unconfined], "no walls"),
        (vec![remapped], "user namespace"),
        (vec![not_started], "has not been started"),
        (vec![dead], "the sidecar of container first is gone"),
        (vec![of_member.clone()], "no running container of agentbox"),
        (two, "several containers"),
    ] {
        let case = || member(None).neighbours(PATH, inside.clone());
        let message = case().refused();
        assert!(message.contains(why), "{why}: {message}");
        let plan = case().node("allow.namespaces = [\"network\"]").plan();
        assert!(plan.network.shared.is_none());
        assert!(
            plan.warnings
                .iter()
                .any(|w| w.to_string().contains("has its own loopback"))
        );
    }
    // Other members do not matter if the first container is there.
    let both = vec![of_member, standing(under("standard"))];
    assert!(
        member(None)
            .neighbours(PATH, both)
            .plan()
            .network
            .shared
            .is_some()
    );
}

#[test]
fn later_rules_are_compared_like_those_of_the_start() {
    let own = |allow: &str, deny: &str| {
        let case = annotated(allowlist(allow), "network.deny", deny);
        case.resolved()
    };
    let network = |allow: &str, deny: &str| own(allow, deny).policy.network;
    let bounded = own("a.test, b.test", "bad.test");
    let refused = |allow: &str, deny: &str| refuses(&bounded, &network(allow, deny));
    assert_eq!(refused("a.test", "bad.test"), None);
    assert_eq!(refused("a.test", "bad.test, worse.test"), None);
    for (allow, deny, field) in [
        ("a.test, evil.test", "bad.test", "network.allow"),
        ("a.test", "", "network.deny"),
    ] {
        let why = refused(allow, deny).unwrap();
        assert!(why.contains(field), "{why}");
    }
    // A container without network rules of its own is limited only by its ceilings.
    let silent = member(None).resolved();
    assert_eq!(refuses(&silent, &network("evil.test", "")), None);
    let mut private = network("a.test", "");
    private.allow.insert("internal:db".parse().unwrap());
    assert!(refuses(&silent, &private).is_some());
}
