//! The network wall: the enforced rules in each mode.

use super::*;
use crate::egress::Budget;
use crate::policy::{NetworkMode, SshFingerprint, SshKey, Switch};
use crate::rules::{Decision, EgressRules};

#[test]
fn only_the_mode_allowlist_reaches_anything() {
    let allow = |case: Case| case.annotation("network.allow", "a.example.com, b.example.com:22");
    let network = allow(under("standard")).plan().network;
    assert_eq!(network.mode, NetworkMode::Allowlist);
    let rules: Vec<String> = network
        .rules
        .allow
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(rules, ["a.example.com", "b.example.com:22"]);
    assert_eq!(network.rules.ports(), [22, 443].into());
    // In another mode neither the policy's list nor its proxy variables count.
    for mode in ["none", "local"] {
        let network = under("permissive")
            .annotation("network.mode", mode)
            .plan()
            .network;
        assert_eq!(network.rules, EgressRules::default());
        // Under `local` the proxy refuses.
        assert_eq!(
            (network.proxy_env, network.refusing),
            (mode == "local", mode == "local")
        );
    }
    assert_eq!(under("strict").plan().network.rules, EgressRules::default());
}

/// Former fault: git over SSH to a listed host was denied without a log line.
#[test]
fn the_wall_listens_for_ssh_unless_the_workload_does() {
    let allowing = || under("standard").annotation("network.allow", "a.example.com");
    assert_eq!(allowing().plan().network.ports, [22, 443].into());
    let inbound = allowing().annotation("network.inbound", "22");
    assert_eq!(inbound.plan().network.ports, [443].into());
    let local = under("standard").annotation("network.mode", "local");
    assert!(local.plan().network.ports.is_empty());
}

#[test]
fn presets_are_expanded_and_deny_rules_kept() {
    let network = under("standard")
        .annotation("network.allow", "@github")
        .annotation("network.deny", "gist.githubusercontent.com")
        .plan()
        .network;
    let asked = |host: &str, port| {
        let host = host.parse().unwrap();
        matches!(network.rules.decide(&host, port), Decision::Allow(_))
    };
    assert!(asked("github.com", 22) && asked("raw.githubusercontent.com", 443));
    assert!(!asked("gist.githubusercontent.com", 443) && !asked("example.com", 443));
}

#[test]
fn the_proxy_variables_are_set_and_the_budget_is_the_policys() {
    let open = || under("standard").annotation("network.allow", "a.example.com");
    assert!(open().plan().network.proxy_env);
    let network = open()
        .annotation("network.proxy-env", "off")
        .annotation("network.connections", "3")
        .annotation("network.connections-per-minute", "4")
        .annotation("network.upload", "5MiB")
        .annotation("network.hosts", "6")
        .plan()
        .network;
    assert!(!network.proxy_env);
    let budget = Budget {
        connections: 3,
        connections_per_minute: 4,
        upload_bytes: 5 << 20,
        hosts: 6,
        cool_down_seconds: 0,
    };
    assert_eq!(network.budget, budget);
}

#[test]
fn inbound_ports_must_lead_to_the_container_only() {
    let inbound = |ports: &str| under("standard").annotation("network.inbound", ports);
    let plan = inbound("8080, 9090").plan();
    assert_eq!(plan.network.inbound, [8080, 9090].into());
    assert_eq!(plan.network.mode, NetworkMode::Local);
    assert!(under("permissive").plan().network.inbound.is_empty());
    let many: Vec<String> = (1000..1065).map(|port: u32| port.to_string()).collect();
    let allowing = |ports: &str| inbound(ports).annotation("network.allow", "a.test, b.test:8443");
    assert!(allowing("8080, 80").plan().network.inbound.contains(&80));
    for (case, why) in [
        (
            inbound("8080").annotation("network.mode", "none"),
            "network.mode is none",
        ),
        (inbound(&many.join(",")), "at most 64"),
        // Ports of the rules, of DNS and of the proxy: a connection to one would lead out again.
        (allowing("8443"), "port 8443"),
        (allowing("443"), "port 443"),
        (allowing("53"), "port 53"),
        (allowing("3128"), "port 3128"),
        (
            inbound("8080").set("/linux", "namespaces", without_network()),
            "the host's network",
        ),
    ] {
        let message = case.refused();
        assert!(
            message.contains("network.inbound of policy 'standard'") && message.contains(why),
            "{why}: {message}"
        );
    }
}

/// `update --inbound-add`: the sidecar was confined before.
#[test]
fn a_running_container_gets_ports_that_its_sidecar_can_serve() {
    let policy: crate::policy::PolicyName = "standard".parse().unwrap();
    let open = |plan: &Plan, ports: &[u16]| {
        let ports = ports.iter().copied().collect();
        plan.network.opening(&ports, &policy, &plan.namespaces)
    };
    // Former fault: the cure could not be used on a running one.
    let wrapped = under("standard").set("/linux", "namespaces", without_network());
    let error = open(&wrapped.plan(), &[3000]).unwrap_err().to_string();
    assert!(
        error.contains("opens no more ports: start it with --publish 3000"),
        "{error}"
    );
    // Under `local` it cannot connect, unless a port may be opened later.
    let mut local = under("standard").plan();
    assert!(local.network.dials_nothing());
    let error = open(&local, &[8080]).unwrap_err().to_string();
    assert!(
        error.contains("name the port when the container is made"),
        "{error}"
    );
    let published = [(8080, [80].into()), (9090, [].into())].into();
    assert_eq!(local.sidecar.cpu_percent, 50);
    local.note_published(BTreeMap::new());
    assert_eq!(local.sidecar.cpu_percent, 50);
    local.note_published(published);
    assert!(!local.network.dials_nothing());
    // As with a port that was named at `create`.
    assert_eq!(local.sidecar.cpu_percent, 100);
    let next = open(&local, &[8080, 8081]).unwrap();
    assert_eq!(next.inbound, [8080, 8081].into());
    assert_eq!(next.leads_nowhere, [(9090, [].into())].into());
    assert_eq!(next.proxy_port, local.network.proxy_port);
    // `-p 80:8080`: the number outside is no port inside.
    let error = open(&local, &[80]).unwrap_err().to_string();
    assert!(
        error
            .contains("port 8080 of the container as 80: --inbound-add 8080 (or 8080,80 for both)"),
        "{error}"
    );
    for ports in [&[80, 8080][..], &[9090], &[8081]] {
        assert!(open(&local, ports).is_ok(), "{ports:?}");
    }
    let opened = Plan {
        network: next,
        ..local.clone()
    };
    assert!(open(&opened, &[80]).is_ok(), "8080 is open");
    let many: Vec<u16> = (1000..1065).collect();
    for (ports, why) in [
        (
            &[local.network.proxy_port][..],
            "the proxy of the container listens",
        ),
        (&many, "at most 64"),
    ] {
        let error = open(&local, ports).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let listed = under("standard").annotation("network.allow", "a.test, b.test:8443");
    let listed = listed.plan();
    assert!(open(&listed, &[8080]).is_ok());
    for port in [443, 8443, 53, 22, listed.network.proxy_port] {
        assert!(open(&listed, &[port]).is_err(), "{port}");
    }
    let hosts = under("standard").set("/linux", "namespaces", without_network());
    let hosts = hosts.annotation("network.allow", "a.test").plan();
    let error = open(&hosts, &[8080]).unwrap_err().to_string();
    assert!(
        error.contains("a running `wrap` opens no more ports"),
        "{error}"
    );
    // A port that leads out to a service of the machine.
    let service = wrapping(|policy| services(policy, &["5432", "*"])).plan();
    assert!(open(&service, &[5432]).is_err() && open(&service, &[5433]).is_ok());
}

/// A run of `wrap` under a site's policy.
fn wrapping(change: fn(&mut Policy)) -> Case {
    let mut case = under("standard").site(change);
    case.facts.wrapped.system.insert("/usr".into());
    case
}

fn keys(policy: &mut Policy, keys: impl IntoIterator<Item = SshFingerprint>) {
    let keys = keys.into_iter().map(SshKey::Key);
    policy.network.ssh_keys = keys.chain([SshKey::Any]).collect();
}

#[test]
fn keys_of_an_agent_sign_for_wrap_alone() {
    let one = wrapping(|policy| keys(policy, [SshFingerprint::of(b"key")])).plan();
    let signing = one.network.signing.unwrap();
    assert_eq!(signing.keys, [SshFingerprint::of(b"key")].into());
    assert!(one.filesystem.pinned.contains(Path::new("/run")));
    let none = wrapping(|policy| keys(policy, [])).plan();
    assert_eq!(none.network.signing, None);
    for (case, why) in [
        (
            under("standard").site(|policy| keys(policy, [SshFingerprint::of(b"key")])),
            "only `agentbox wrap`",
        ),
        (
            wrapping(|policy| keys(policy, (0..65).map(|n| SshFingerprint::of(&[n])))),
            "at most 64",
        ),
    ] {
        let message = case.refused();
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_service_of_the_machine_is_wraps_alone_and_its_port_leads_to_one() {
    let local = wrapping(|policy| services(policy, &["5432", "6379", "*"])).plan();
    assert_eq!(local.network.mode, NetworkMode::Local);
    assert_eq!(local.network.connect.len(), 2);
    assert_eq!(local.network.ports, [5432, 6379].into());
    assert!(!local.network.dials_nothing() && local.network.is_served());
    assert!(local.sidecar.files > 2048 + 512);
    // The proxy that only refuses takes no service's port.
    let moved = wrapping(|policy| services(policy, &["64128"])).plan();
    assert_ne!(moved.network.proxy_port, 64128);
    let other = wrapping(|policy| {
        policy.network.mode = NetworkMode::Allowlist;
        policy.network.allow = ["internal:db.test:5432".parse().unwrap()].into();
        services(policy, &["db.test:5432", "3128"]);
    })
    .plan();
    assert_eq!(other.network.ports, [22, 3128, 5432].into());
    assert_ne!(other.network.proxy_port, 3128);
    assert!(
        wrapping(|policy| services(policy, &["*"]))
            .plan()
            .network
            .connect
            .is_empty()
    );
    for (case, why) in [
        (
            under("standard").site(|policy| services(policy, &["5432"])),
            "only `agentbox wrap`",
        ),
        (
            wrapping(|policy| {
                policy.network.mode = NetworkMode::None;
                services(policy, &["5432"]);
            }),
            "--set network.mode=local",
        ),
        (wrapping(|policy| services(policy, &["53"])), "for names"),
        (
            wrapping(|policy| services(policy, &["2375"])),
            "Docker's API",
        ),
        (
            wrapping(|policy| services(policy, &["db.test:5432"])),
            "--allow internal:db.test:5432",
        ),
        (
            wrapping(|policy| services(policy, &["10.0.0.5:5432"])),
            "--allow 10.0.0.5:5432",
        ),
        (
            wrapping(|policy| services(policy, &["169.254.169.254:80"])),
            "metadata",
        ),
        (
            wrapping(|policy| services(policy, &["metadata.google.internal:80"])),
            "metadata",
        ),
        (
            wrapping(|policy| {
                policy.network.mode = NetworkMode::Allowlist;
                policy.network.allow = ["internal:db.test:5432".parse().unwrap()].into();
                services(policy, &["db.test:5432", "5432"]);
            }),
            "the same port",
        ),
        (
            wrapping(|policy| {
                policy.network.deny = ["127.0.0.1:5432".parse().unwrap()].into();
                services(policy, &["5432"]);
            }),
            "wins over",
        ),
        (
            wrapping(|policy| {
                policy.network.inbound = ["5432".parse().unwrap()].into();
                services(policy, &["5432"]);
            }),
            "is published",
        ),
        (
            wrapping(|policy| {
                let items = (1000..1033).map(|port: u32| port.to_string().parse().unwrap());
                policy.network.connect = items.collect();
            }),
            "at most 32",
        ),
    ] {
        let message = case.refused();
        assert!(
            message.contains("network.connect of policy 'standard'") && message.contains(why),
            "{why}: {message}"
        );
    }
}

#[test]
fn a_databases_socket_has_a_known_name_and_a_directory_of_its_own() {
    let one = wrapping(|policy| services(policy, &["/var/run/postgresql/.s.PGSQL.5432", "*"]));
    let one = one.plan().network;
    let directory = Path::new("/run/postgresql");
    assert_eq!(one.socket_directories(), [directory].into());
    assert!(one.ports.is_empty() && one.connect.is_empty() && one.dials_nothing());
    for (case, why) in [
        (
            under("standard").site(|policy| services(policy, &["/run/x/redis.sock"])),
            "only `agentbox wrap`",
        ),
        (
            wrapping(|policy| {
                policy.network.mode = NetworkMode::None;
                services(policy, &["/run/x/redis.sock"]);
            }),
            "--set network.mode=local",
        ),
        (
            wrapping(|policy| services(policy, &["/run/docker.sock"])),
            "is Docker's API",
        ),
        (
            wrapping(|policy| services(policy, &["/home/a/my.sock"])),
            "use [HOST:]PORT",
        ),
        (
            wrapping(|policy| services(policy, &["/run/x/mysqld.sock", "/run/x/y/mysqld.sock"])),
            "lies below /run/x",
        ),
        (
            wrapping(|policy| services(policy, &["/run/mysqld.sock"])),
            "which the sandbox has",
        ),
        (
            wrapping(|policy| services(policy, &["/dev/x/mysqld.sock"])),
            "no database",
        ),
        (
            wrapping(|policy| services(policy, &["/run/agentbox/mysqld.sock"])),
            "no database",
        ),
    ] {
        let message = case.refused();
        assert!(message.contains(why), "{why}: {message}");
    }
}

fn services(policy: &mut Policy, items: &[&str]) {
    policy.network.connect = items.iter().map(|item| item.parse().unwrap()).collect();
}

fn without_network() -> Value {
    ["pid", "ipc", "uts", "mount", "cgroup"]
        .iter()
        .map(|kind| json!({"type": kind}))
        .collect()
}

#[test]
fn learning_allows_what_may_be_approved_and_needs_a_network() {
    let learning = |case: Case| {
        case.node("[allow]\nlearn = true")
            .site(|policy| policy.report.learn = Switch::On)
    };
    let case = || under("permissive").annotation("network.allow", "a.example.com:22");
    let network = learning(case()).plan().network;
    assert!(network.learns());
    assert_eq!(network.ports, [22, 80, 443].into());
    let asks = case()
        .annotation("network.on-unknown", "ask")
        .plan()
        .network;
    let limits = |network: &NetworkPlan| network.asking.clone().unwrap().limits;
    assert_eq!(
        limits(&network),
        limits(&asks),
        "the same limits as for approval"
    );
    assert!(!asks.learns() && !case().plan().network.learns());
    let refused = learning(under("standard")).refused();
    assert!(
        refused.contains("report.learn") && refused.contains("allowlist"),
        "{refused}"
    );
}
