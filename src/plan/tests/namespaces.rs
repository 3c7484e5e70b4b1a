//! Namespaces and network settings.

use super::*;

fn namespaces(list: Value) -> Case {
    under("standard").set("/linux", "namespaces", list)
}

fn without(kind: &str) -> Value {
    let all = ["pid", "ipc", "uts", "mount", "network", "cgroup"];
    all.iter()
        .filter(|k| **k != kind)
        .map(|k| json!({"type": k}))
        .collect()
}

fn foreign(kind: &str) -> Value {
    let mut list = without(kind);
    list.as_array_mut()
        .unwrap()
        .push(json!({"type": kind, "path": "/proc/7/ns/x"}));
    list
}

#[test]
fn the_hosts_and_foreign_namespaces_are_refused_unless_the_node_allows_them() {
    for kind in ["pid", "ipc", "uts"] {
        let message = namespaces(without(kind)).refused();
        assert!(
            message.contains(&format!("the host's {kind} namespace")),
            "{message}"
        );
        let plan = namespaces(without(kind))
            .node(&format!("allow.namespaces = [\"{kind}\"]"))
            .plan();
        assert!(!plan.namespaces.iter().any(|n| n.to_string() == kind));
    }
    for kind in ["pid", "ipc", "uts", "cgroup", "user"] {
        let message = namespaces(foreign(kind)).refused();
        assert!(
            message.contains(kind) && message.contains("/proc/7/ns/x"),
            "{message}"
        );
        let plan = namespaces(foreign(kind))
            .node(&format!("allow.namespaces = [\"{kind}\"]"))
            .plan();
        assert!(
            plan.namespaces
                .contains(&format!("{kind}=/proc/7/ns/x").parse().unwrap()),
            "{:?}",
            plan.namespaces
        );
    }
    assert!(namespaces(without("mount")).refused().contains("mount"));
    assert!(namespaces(foreign("mount")).refused().contains("mount"));
}

#[test]
fn missing_and_harmless_namespaces_are_added() {
    assert_eq!(
        namespaces(without("cgroup")).plan().namespaces,
        under("standard").plan().namespaces
    );
    let host_network = namespaces(without("network")).plan();
    assert!(
        host_network
            .namespaces
            .contains(&"network=/proc/self/ns/net".parse().unwrap())
    );
    // `docker run --network host` is told so.
    assert_eq!(host_network.not_given, [OmittedItem::HostNetwork]);
    assert_eq!(under("standard").plan().not_given, []);
    let engines = [json!({"type": "network", "path": "/run/netns/x"})];
    let mut list = without("network");
    list.as_array_mut().unwrap().extend(engines);
    let engines = namespaces(list).plan();
    assert!(
        engines
            .namespaces
            .contains(&"network=/run/netns/x".parse().unwrap())
    );
    assert_eq!(engines.not_given, []);
}

/// A container with its own namespaces, under a policy.
pub(super) fn neighbour(policy: &str) -> Neighbour {
    let decided = under(policy).decided();
    Neighbour {
        id: "other".into(),
        policy: Some(decided.policy()),
        namespaces: decided.plan.namespaces,
        network: None,
        sets_ids: false,
    }
}

#[test]
fn namespaces_of_a_container_with_the_same_walls_may_be_joined() {
    for kind in ["pid", "ipc", "uts"] {
        let plan = namespaces(foreign(kind))
            .neighbours("/proc/7/ns/x", vec![neighbour("standard")])
            .plan();
        assert!(
            plan.namespaces
                .contains(&format!("{kind}=/proc/7/ns/x").parse().unwrap())
        );
    }
    for kind in ["cgroup", "user", "mount"] {
        let message = namespaces(foreign(kind))
            .neighbours("/proc/7/ns/x", vec![neighbour("standard")])
            .refused();
        assert!(message.contains(kind), "{message}");
    }
}

#[test]
fn all_containers_in_the_namespace_must_have_the_same_walls() {
    let unconfined = Neighbour {
        policy: None,
        namespaces: Vec::new(),
        ..neighbour("standard")
    };
    let remapped = Neighbour {
        namespaces: vec!["pid".parse().unwrap(), "user".parse().unwrap()],
        ..neighbour("standard")
    };
    for (other, why) in [
        (neighbour("strict"), "is not the same"),
        (neighbour("permissive"), "is not the same"),
        (unconfined, "no walls"),
        (remapped, "user namespace"),
    ] {
        let message = namespaces(foreign("pid"))
            .neighbours("/proc/7/ns/x", vec![neighbour("standard"), other])
            .refused();
        assert!(
            message.contains("container other") && message.contains(why),
            "{message}"
        );
    }
}

#[test]
fn a_namespace_that_none_of_them_made_is_foreign() {
    let joined = Neighbour {
        namespaces: vec!["pid=/proc/1/ns/pid".parse().unwrap()],
        ..neighbour("standard")
    };
    for others in [vec![], vec![joined]] {
        let message = namespaces(foreign("pid"))
            .neighbours("/proc/7/ns/x", others)
            .refused();
        assert!(message.contains("foreign"), "{message}");
    }
}

#[test]
fn the_first_of_two_namespaces_of_a_type_counts() {
    let mut list = without("");
    list.as_array_mut()
        .unwrap()
        .push(json!({"type": "pid", "path": "/proc/1/ns/pid"}));
    assert_eq!(
        namespaces(list).plan().namespaces,
        under("standard").plan().namespaces
    );
}

#[test]
fn net_settings_go_to_the_inner_namespace_if_they_have_an_effect() {
    let settings = json!({
        "net.core.somaxconn": "9",
        "net.ipv4.ping_group_range": "0 2147483647",
        "net.ipv4.conf.eth0.forwarding": "1",
        "net.ipv6.conf.all.disable_ipv6": "1",
        "kernel.shmmax": "1",
    });
    let plan = under("standard").set("/linux", "sysctl", settings).plan();
    assert_eq!(
        plan.network.sysctl,
        [("net.core.somaxconn".to_owned(), "9".to_owned())].into()
    );
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
}
