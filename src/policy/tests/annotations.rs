//! Our keys, keys that look like ours, keys of other programs, and the meaning of lists.

use super::*;
use crate::text::shown;

#[test]
fn every_field_has_an_annotation() {
    let resolved = case()
        .field("policy", "permissive")
        .field("workspace", "/project")
        .field("filesystem.root", "read-only")
        .field("filesystem.ephemeral", "tmp, home")
        .field("filesystem.scratch", "32MiB")
        .field("filesystem.workspace", "read-only")
        .field("filesystem.mounts", "read-only")
        .field("filesystem.write", "/data,/cache")
        .field("network.mode", "allowlist")
        .field("network.allow", "api.example.com, github.com:22,@local")
        .field(
            "network.temporary",
            "b.example.com:22 for 10m,@local until 2030-01-02T04:04:05+01:00",
        )
        .field("network.deny", "bad.example.com")
        .field("network.proxy-env", "off")
        .field("network.tls", "open")
        .field("network.connections", "7")
        .field("network.connections-per-minute", "70")
        .field("network.upload", "2MiB")
        .field("network.hosts", "9")
        .field("network.on-unknown", "ask")
        .field("network.ask-seconds", "31")
        .field("network.cool-down", "32")
        .field("network.inbound", "9090, 8080")
        .preset("local", "[\"a.local.test\"]")
        .field("syscalls.profile", "paranoid")
        .field("syscalls.allow", "")
        .field("syscalls.deny", "ptrace , keyctl")
        .field("privileges.capabilities", "CHOWN,CAP_KILL")
        .field("privileges.set-id", "auto")
        .field("filesystem.idmap", "on")
        .field("filesystem.scratch-on", "disk")
        .field("filesystem.workspace-at", "/project")
        .field("filesystem.search", "complete")
        .field("filesystem.credentials", "")
        .field("filesystem.unprotected", "")
        .field("filesystem.git-config", "read-only")
        .field("filesystem.secrets", "drop")
        .field("filesystem.service-account-token", "drop")
        .field("filesystem.left-out", "error")
        .field("limits.pids", "77")
        .field("limits.memory", "10%")
        .field("limits.cpus", "1.5")
        .field("time.wall", "30m")
        .field("time.idle", "5m")
        .field("time.exec", "2m")
        .field("time.grace", "5s")
        .field("time.sleep", "counts")
        .field("report.denied", "on")
        .field("report.notice", "on")
        .field("report.audit", "strict")
        .resolved();
    let expected = Policy {
        name: "permissive".parse().unwrap(),
        filesystem: Filesystem {
            root: RootAccess::ReadOnly,
            ephemeral: [EphemeralDir::Tmp, EphemeralDir::Home].into(),
            scratch: "32MiB".parse().unwrap(),
            scratch_on: ScratchOn::Disk,
            workspace: Access::ReadOnly,
            mounts: MountRule::ReadOnly,
            write: ["/cache", "/data"].map(|path| path.parse().unwrap()).into(),
            idmap: IdMapRule::On,
            workspace_at: ["/project".parse().unwrap()].into(),
            search: SearchRule::Complete,
            credentials: BTreeSet::new(),
            unprotected: BTreeSet::new(),
            git_config: GitConfigRule::ReadOnly,
            secrets: SecretRule::Drop,
            service_account_token: SecretRule::Drop,
            left_out: LeftOut::Refuse,
        },
        network: Network {
            mode: NetworkMode::Allowlist,
            allow: ["a.local.test", "api.example.com", "github.com:22"]
                .map(|rule| rule.parse().unwrap())
                .into(),
            temporary: [
                "a.local.test until 2030-01-02T03:04:05Z",
                "b.example.com:22 for 10m",
            ]
            .map(|rule| rule.parse().unwrap())
            .into(),
            deny: ["bad.example.com".parse().unwrap()].into(),
            limit: builtin("permissive").network.limit,
            proxy_env: Switch::Off,
            tls: TlsWay::Open,
            user_secrets: Switch::On,
            connections: "7".parse().unwrap(),
            connections_per_minute: "70".parse().unwrap(),
            upload: "2MiB".parse().unwrap(),
            hosts: "9".parse().unwrap(),
            on_unknown: OnUnknown::Ask,
            ask_seconds: "31".parse().unwrap(),
            cool_down: "32".parse().unwrap(),
            connect: [ConnectService::Any].into(),
            ssh_keys: [SshKey::Any].into(),
            inbound: ["8080", "9090"].map(|port| port.parse().unwrap()).into(),
        },
        syscalls: Syscalls {
            profile: SyscallProfile::Paranoid,
            allow: BTreeSet::new(),
            deny: ["ptrace", "keyctl"]
                .map(|name| name.parse().unwrap())
                .into(),
            limit: builtin("permissive").syscalls.limit,
        },
        privileges: Privileges {
            capabilities: ["CHOWN", "KILL"].map(|name| name.parse().unwrap()).into(),
            set_id: SetIdRule::Auto,
        },
        limits: Limits {
            pids: "77".parse().unwrap(),
            memory: "10%".parse().unwrap(),
            cpus: "1.5".parse().unwrap(),
        },
        time: Time {
            wall: "30m".parse().unwrap(),
            idle: "5m".parse().unwrap(),
            exec: "2m".parse().unwrap(),
            grace: "5s".parse().unwrap(),
            sleep: SleepRule::Counts,
        },
        report: Report {
            denied: Switch::On,
            notice: Switch::On,
            audit: "strict".parse().unwrap(),
            learn: Switch::Off,
        },
        annotations: builtin("permissive").annotations,
    };
    assert_eq!(resolved.policy, expected);
    assert_eq!(resolved.workspace, Some("/project".parse().unwrap()));
    for field in Field::ALL.iter().filter(|field| field.has_annotation()) {
        let key = format!("dev.agentbox.{field}");
        assert_eq!(resolved.origins[field], Origin::Annotation(key));
    }
    let error = case().field("annotations.loosen", "network.mode").error();
    assert!(matches!(error, PolicyError::NoAnnotation { .. }), "{error}");
}

#[test]
fn an_empty_list_allows_nothing() {
    for empty in ["", " ", "   "] {
        let resolved = case()
            .field("filesystem.ephemeral", empty)
            .field("privileges.capabilities", empty)
            .resolved();
        assert!(resolved.policy.filesystem.ephemeral.is_empty());
        assert!(resolved.policy.privileges.capabilities.is_empty());
    }
}

#[test]
fn a_denial_of_a_container_is_added_to_the_policys_own() {
    let node = || {
        case().file(
            "closed",
            "base = \"standard\"\nsyscalls.deny = [\"keyctl\"]",
        )
    };
    let denied = |case: Case| -> Vec<String> {
        let deny = case.flag("closed").resolved().policy.syscalls.deny;
        deny.into_iter().map(String::from).collect()
    };
    assert_eq!(denied(node()), ["keyctl"]);
    assert_eq!(
        denied(node().field("syscalls.deny", "bpf")),
        ["bpf", "keyctl"]
    );
    assert_eq!(denied(node().field("syscalls.deny", "")), ["keyctl"]);
}

#[test]
fn keys_that_look_like_ours_are_refused() {
    for (key, meant) in [
        ("dev.agentbox.polciy", Some("dev.agentbox.policy")),
        ("dev.agentbox.Policy", Some("dev.agentbox.policy")),
        ("DEV.AGENTBOX.POLICY", Some("dev.agentbox.policy")),
        ("dev.agentbox/policy", Some("dev.agentbox.policy")),
        ("dev.agentbox.policy ", Some("dev.agentbox.policy")),
        (" dev.agentbox.policy", Some("dev.agentbox.policy")),
        ("dev.agentbox.policy\n", Some("dev.agentbox.policy")),
        ("dev.agentbox.policy\0", Some("dev.agentbox.policy")),
        ("agentbox.policy", Some("dev.agentbox.policy")),
        ("io.agentbox.policy", Some("dev.agentbox.policy")),
        ("dev.agentbox.network", None),
        (
            "dev.agentbox.network.allowed",
            Some("dev.agentbox.network.allow"),
        ),
        (
            "dev.agentbox.network.modes",
            Some("dev.agentbox.network.mode"),
        ),
        (
            "dev.agentbox.mounts",
            Some("dev.agentbox.filesystem.mounts"),
        ),
        (
            "dev.agentbox.syscalls.allows",
            Some("dev.agentbox.syscalls.allow"),
        ),
        ("dev.agentbox", None),
        ("agentbox", None),
        ("com.example.agentbox-team", None),
        ("com.example.AgentBox-team", None),
        ("com.example.agent\u{200b}box-team", None),
        ("com.example.age\u{ff4e}tbox-team", None),
        ("com.example.\u{430}gentb\u{43e}x-team", None),
        // The word itself is misspelt, but the rest can only be ours.
        ("dev.agent-box.policy", Some("dev.agentbox.policy")),
        ("dev.agentbx.policy", Some("dev.agentbox.policy")),
        (
            "dev.agnetbox.network.mode",
            Some("dev.agentbox.network.mode"),
        ),
        ("devv.agentbx.policy", Some("dev.agentbox.policy")),
        // Other alphabets: Cyrillic, full-width, and zero-width characters.
        ("dev.agentb\u{43e}x.policy", Some("dev.agentbox.policy")),
        (
            "dev.\u{430}g\u{435}ntb\u{43e}\u{445}.filesystem.workspace",
            Some("dev.agentbox.filesystem.workspace"),
        ),
        ("dev.agent\u{200b}box.policy", Some("dev.agentbox.policy")),
        ("dev.\u{ff41}gentbox.policy", Some("dev.agentbox.policy")),
        ("dev.agentbox.p\u{43e}licy", Some("dev.agentbox.policy")),
        ("dev.agentbox.policy\u{feff}", Some("dev.agentbox.policy")),
        // The Kelvin sign becomes a k in lower case.
        (
            "dev.agentbox.wor\u{212a}space",
            Some("dev.agentbox.workspace"),
        ),
    ] {
        let error = case().annotation(key, "strict").error();
        let PolicyError::AnnotationKey {
            key: named,
            suggestion,
        } = error
        else {
            panic!("{key:?}: {error:?}");
        };
        assert_eq!(named, shown(key));
        assert_eq!(suggestion.as_deref(), meant, "{key:?}");
    }
}

/// `policy check --annotation` takes keys without the prefix, and engines pass on whatever is typed.
#[test]
fn a_key_of_ours_without_its_prefix_is_refused() {
    for key in ["policy", "workspace", "network.allow", "filesystem.write"] {
        let error = case().annotation(key, "strict").error();
        let PolicyError::AnnotationKey { suggestion, .. } = error else {
            panic!("{key:?}: {error:?}");
        };
        assert_eq!(suggestion, Some(format!("dev.agentbox.{key}")));
    }
    // Pods and images may have a `policy` of their own, where an engine passes all of theirs on.
    let of_image = || case().annotation("io.podman.annotations.autoremove", "FALSE");
    let resolved = of_image().annotation("policy", "strict").resolved();
    assert!(resolved == of_image().resolved());
}

#[test]
fn a_hostile_key_is_refused_bounded_and_without_control_characters() {
    let key = format!("agentbox\u{1b}[2J\n{}", "x".repeat(1 << 20));
    let message = case().annotation(&key, "").error().to_string();
    assert!(message.len() < 1000 && message.is_ascii());
    assert!(!message.chars().any(char::is_control));
}

#[test]
fn keys_of_other_programs_are_ignored() {
    let huge = "agentbox".repeat(100_000);
    let mut everything = case();
    for (key, value) in [
        ("io.kubernetes.cri.container-name", "agentbox"),
        (
            "io.kubernetes.cri.image-name",
            "registry.example/agentbox:1",
        ),
        (
            "org.opencontainers.image.title",
            "dev.agentbox.policy=strict",
        ),
        ("org.systemd.property.TimeoutStopUSec", "1"),
        ("dev.agent", "unconfined"),
        ("dev.containers.policy", "x"),
        ("com.example.agent.box", "\u{1b}"),
        (
            "\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{6ce8}\u{91c8}\u{306e}\u{9375}",
            "x",
        ),
        ("", "x"),
        ("com.example.huge", &huge),
    ] {
        everything = everything.annotation(key, value);
    }
    assert_eq!(everything.resolved(), case().resolved());
}

#[test]
fn a_value_has_at_most_64_kib() {
    // Spaces around items are ignored, so this is a long form of `ptrace`.
    let value = |length: usize| " ".repeat(length - 6) + "ptrace";
    let deny = |length| case().field("syscalls.deny", &value(length)).resolve();
    assert!(deny(64 << 10).is_ok());
    assert!(matches!(
        deny((64 << 10) + 1),
        Err(PolicyError::AnnotationTooLong { length: 65_537, .. })
    ));
}

#[test]
fn an_error_names_the_key_the_bad_value_and_the_allowed_ones() {
    for (field, value, part) in [
        ("policy", "", "\"\" is not a policy's name"),
        ("policy", "Strict", "\"Strict\" is not a policy's name"),
        (
            "policy",
            "../strict",
            "\"../strict\" is not a policy's name",
        ),
        ("workspace", "work", "\"work\" is not an absolute path"),
        (
            "workspace",
            "/a/../b",
            "\"/a/../b\" is not an absolute path",
        ),
        (
            "filesystem.root",
            "writable",
            "\"writable\" is not one of read-only, ephemeral",
        ),
        ("filesystem.root", " read-only", "did you mean read-only?"),
        (
            "filesystem.ephemeral",
            "tmp,,var",
            "\"\" is not one of tmp, home, var",
        ),
        (
            "filesystem.ephemeral",
            "tmp,",
            "\"\" is not one of tmp, home, var",
        ),
        (
            "filesystem.ephemeral",
            "tmp\t",
            "\"tmp\\t\" is not one of tmp, home, var",
        ),
        (
            "filesystem.scratch",
            "64",
            "\"64\" is not a size from 1MiB to 64GiB",
        ),
        (
            "filesystem.workspace",
            "rw",
            "one of none, read-only, read-write",
        ),
        ("filesystem.mounts", "keeep", "did you mean keep?"),
        (
            "filesystem.write",
            "/data,relative",
            "\"relative\" is not an absolute path",
        ),
        (
            "network.mode",
            "Local",
            "\"Local\" is not one of none, local, allowlist; did you mean local?",
        ),
        (
            "network.mode",
            "\u{1b}[2J\u{202e}",
            "\"\\u{1b}[2J\\u{202e}\" is not one of",
        ),
        (
            "network.allow",
            "https://example.com",
            "\"https://example.com\" is not a rule for a host, which has no scheme and no path (for requests: METHOD https://HOST/PATH); \
             did you mean example.com?",
        ),
        ("network.allow", "a.test/8", "did you mean a.test?"),
        (
            "network.allow",
            "10.0.0.0/40",
            "\"10.0.0.0/40\" is not a rule: HOST, *.DOMAIN or ADDRESS",
        ),
        ("network.allow", "a.test,,b.test", "\"\" is not a rule"),
        (
            "network.deny",
            "@Python",
            "\"Python\" is not a preset's name",
        ),
        (
            "network.deny",
            "internal:*.a.test",
            "service:, internal: and node: stand before one name",
        ),
        (
            "network.proxy-env",
            "true",
            "\"true\" is not one of off, on",
        ),
        (
            "network.connections",
            "0",
            "\"0\" is not a whole number from 1 to 1000000",
        ),
        (
            "network.connections-per-minute",
            "-1",
            "\"-1\" is not a whole number",
        ),
        ("network.upload", "1", "\"1\" is not a size from 1MiB"),
        ("network.hosts", "1e3", "\"1e3\" is not a whole number"),
        ("network.ask-seconds", "601", "from 1 to 600"),
        ("network.cool-down", "1m", "from 0 to 86400"),
        ("network.on-unknown", "allow", "one of deny, ask"),
        ("syscalls.allow", "*", "\"*\" is not a system call's name"),
        (
            "syscalls.deny",
            "PTRACE",
            "\"PTRACE\" is not a system call's name",
        ),
        (
            "privileges.capabilities",
            "ALL",
            "\"ALL\" is not a capability",
        ),
        (
            "privileges.capabilities",
            "net_raw",
            "did you mean CAP_NET_RAW?",
        ),
    ] {
        let message = case().field(field, value).error().to_string();
        let start = format!("annotation dev.agentbox.{field}: ");
        assert!(message.starts_with(&start), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_apparent_contradiction_is_accepted() {
    for case in [
        case().field("syscalls.deny", "ptrace,ptrace"),
        case()
            .field("filesystem.mounts", "drop")
            .field("filesystem.write", ""),
        case()
            .node("ceiling = \"permissive\"")
            .field("workspace", "/w")
            .field("filesystem.write", "/w/sub"),
        // An author who narrows a policy need not know its lists.
        case()
            .file("w", "base = \"standard\"\nfilesystem.write = [\"/data\"]")
            .flag("w")
            .field("filesystem.mounts", "drop"),
    ] {
        assert!(case.resolve().is_ok(), "{:?}", case.annotations);
    }
}

/// `strict` ignored the list in silence, also with the permission that its error would name.
#[test]
fn writable_mounts_of_an_annotation_under_a_policy_without_mounts_are_an_error() {
    let listed = |case: Case| case.field("filesystem.write", "/data").error();
    let strict = || case().field("policy", "strict");
    for case in [
        strict(),
        case().flag("strict"),
        strict().node("ceiling = \"permissive\""),
        strict().node("[allow]\nannotations = [\"filesystem.write\"]"),
        case().node("ceiling = \"strict\""),
        case().node("default = \"strict\""),
    ] {
        let error = listed(case);
        assert!(matches!(error, PolicyError::WriteDropped { .. }), "{error}");
    }
    // A policy's own list under an annotation that tightens, and a list of nothing, are no requests.
    let tight = case().field("policy", "ci");
    tight.field("filesystem.mounts", "drop").resolved();
    strict().field("filesystem.write", "").resolved();
    // A container that runs so all the same is updated.
    let running = strict().field("filesystem.write", "/data");
    let sources = Sources {
        asker: Asker::Operator,
        ..running.sources()
    };
    assert!(resolve(&sources).is_ok());
}
