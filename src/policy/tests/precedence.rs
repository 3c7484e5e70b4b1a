//! Who chooses the policy, and what then limits it.

use super::*;

fn chosen(case: Case) -> (String, String) {
    match case.resolve().unwrap() {
        Selection::Unconfined { chosen_by } => ("unconfined".to_owned(), chosen_by.to_string()),
        Selection::Policy(resolved) => (
            resolved.policy.name.to_string(),
            resolved.chosen_by.to_string(),
        ),
    }
}

#[test]
fn the_annotation_chooses_before_the_flag_before_the_node_before_the_default() {
    const ANNOTATION: &str = "annotation dev.agentbox.policy";
    const FLAG: &str = "--policy";
    const NODE: &str = "the node's file";
    let table = [
        // annotation, flag, node's default; chosen, by
        (None, None, None, "standard", "the default"),
        (None, None, Some("strict"), "strict", NODE),
        (None, None, Some("unconfined"), "unconfined", NODE),
        (None, Some("strict"), None, "strict", FLAG),
        (None, Some("permissive"), Some("strict"), "permissive", FLAG),
        (None, Some("strict"), Some("unconfined"), "strict", FLAG),
        (None, Some("unconfined"), Some("strict"), "unconfined", FLAG),
        (Some("strict"), None, None, "strict", ANNOTATION),
        (
            Some("permissive"),
            None,
            Some("strict"),
            "permissive",
            ANNOTATION,
        ),
        (
            Some("strict"),
            Some("standard"),
            Some("permissive"),
            "strict",
            ANNOTATION,
        ),
        // A request for walls where the operator set none narrows.
        (
            Some("strict"),
            Some("unconfined"),
            None,
            "strict",
            ANNOTATION,
        ),
        (
            Some("permissive"),
            None,
            Some("unconfined"),
            "permissive",
            ANNOTATION,
        ),
    ];
    for (annotation, flag, node, name, by) in table {
        let mut case = case();
        if let Some(annotation) = annotation {
            case = case.field("policy", annotation);
        }
        if let Some(flag) = flag {
            case = case.flag(flag);
        }
        if let Some(node) = node {
            case = case.node(&format!("default = \"{node}\""));
        }
        assert_eq!(chosen(case), (name.to_owned(), by.to_owned()));
    }
}

#[test]
fn no_annotation_chooses_unconfined() {
    for case in [
        case(),
        case().flag("unconfined"),
        case().node("default = \"unconfined\""),
    ] {
        assert!(matches!(
            case.field("policy", "unconfined").error(),
            PolicyError::AnnotationUnconfined { .. }
        ));
    }
}

#[test]
fn the_flags_policy_is_the_ceiling_of_its_call_too() {
    let error = case().flag("strict").field("policy", "standard").error();
    let PolicyError::ExceedsCeiling { ceiling, over, .. } = error else {
        panic!("{error:?}");
    };
    assert_eq!(ceiling.to_string(), "strict (set by --policy)");
    let fields: Vec<Field> = over.iter().map(|over| over.exceeded.field).collect();
    assert_eq!(
        fields,
        [
            Field::FilesystemRoot,
            Field::FilesystemEphemeral,
            Field::FilesystemScratch,
            Field::FilesystemMounts,
            Field::FilesystemGitConfig,
            Field::NetworkMode,
            Field::PrivilegesCapabilities,
            Field::PrivilegesSetId,
            Field::LimitsPids,
            Field::LimitsMemory,
        ]
    );
}

/// A ceiling's limits allow nothing in a container.
#[test]
fn the_limits_of_a_chosen_policy_are_cut_to_the_ceilings() {
    const OURS: &str = "base = 'permissive'\nnetwork.limit = ['*.example.com', 'a.test']\nsyscalls.limit = []\n\
                        annotations.loosen = []";
    let under = |case: Case| {
        let case = case.node("ceiling = 'ours'").file("ours", OURS);
        case.field("policy", "permissive")
    };
    let resolved = under(case()).resolved();
    let policy = &resolved.policy;
    assert!(policy.network.limit.is_empty() && policy.syscalls.limit.is_empty());
    assert_eq!(policy.annotations, builtin("permissive").annotations);
    let by_ceiling = Origin::Ceiling("ours".parse().unwrap());
    for field in [Field::NetworkLimit, Field::SyscallsLimit] {
        assert_eq!(resolved.origins.get(&field), Some(&by_ceiling), "{field}");
    }
    // Limits within the ceiling stay. If nothing is cut, the origin stays too.
    let narrow = "base = 'permissive'\nnetwork.limit = ['b.example.com', 'a.test', '*']";
    let resolved = under(case().file("narrow", narrow))
        .field("policy", "narrow")
        .resolved();
    let kept = ["a.test", "b.example.com"].map(|rule| rule.parse().unwrap());
    assert_eq!(resolved.policy.network.limit, kept.into());
    assert_eq!(
        resolved.origins.get(&Field::NetworkLimit),
        Some(&by_ceiling)
    );
    let within = "base = 'permissive'\nnetwork.limit = ['a.test']";
    let resolved = under(case().file("within", within))
        .field("policy", "within")
        .resolved();
    assert_ne!(
        resolved.origins.get(&Field::NetworkLimit),
        Some(&by_ceiling)
    );
    // The limit opens nothing: annotations are compared with the ceiling.
    for (field, asked) in [
        ("network.allow", "service:db:5432"),
        ("syscalls.allow", "ptrace"),
    ] {
        let error = under(case()).field(field, asked).error();
        assert!(
            matches!(error, PolicyError::ExceedsCeiling { .. }),
            "{error}"
        );
    }
    assert!(
        under(case())
            .field("network.allow", "b.example.com")
            .resolve()
            .is_ok()
    );
    // The policy's own rules are compared with it, too.
    let wide = "base = 'permissive'\nnetwork.allow = ['c.test']";
    let error = under(case().file("wide", wide))
        .field("policy", "wide")
        .error();
    assert!(
        matches!(error, PolicyError::ExceedsCeiling { .. }),
        "{error}"
    );
}

#[test]
fn both_ceilings_hold_and_are_named() {
    let names = |case: &Case| -> Vec<String> {
        let ceilings = case.resolved().ceilings;
        ceilings.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&case()), ["permissive (set by the default)"]);
    let narrow = case().node("ceiling = \"standard\"").flag("strict");
    assert_eq!(
        names(&narrow),
        [
            "standard (set by the node's file)",
            "strict (set by --policy)"
        ]
    );
    let wide = case().node("ceiling = \"standard\"").flag("permissive");
    assert!(matches!(wide.error(), PolicyError::ExceedsCeiling { .. }));
    let wide = wide.field("policy", "standard");
    assert_eq!(chosen(wide).0, "standard");
}

#[test]
fn unconfined_by_the_flag_lifts_the_calls_ceiling_and_not_the_nodes() {
    let node = || case().flag("unconfined").node("ceiling = \"standard\"");
    assert!(node().field("policy", "standard").resolve().is_ok());
    let error = node().field("policy", "permissive").error();
    assert!(matches!(error, PolicyError::ExceedsCeiling { .. }));
}

#[test]
fn a_nodes_default_is_no_limit() {
    let case = case()
        .node("default = \"strict\"")
        .field("policy", "permissive");
    assert_eq!(chosen(case).0, "permissive");
}

#[test]
fn the_default_is_narrowed_to_a_ceiling_and_never_replaced_by_it() {
    let strict = case().node("ceiling = \"strict\"");
    assert_eq!(
        chosen(case().node("ceiling = \"strict\"")),
        ("standard".to_owned(), "the default".to_owned())
    );
    let resolved = strict.resolved();
    assert!(exceeds(&resolved.policy, &builtin("strict")).is_empty());
    assert_eq!(
        resolved.origins[&Field::NetworkMode].to_string(),
        "the ceiling strict"
    );
    let error = strict.field("network.mode", "local").error();
    assert!(matches!(error, PolicyError::ExceedsCeiling { .. }));
}

#[test]
fn a_denial_in_the_ceiling_narrows_the_default_and_loosens_nothing() {
    let lab = |change: &str| {
        case().node("ceiling = \"lab\"").file(
            "lab",
            &format!("base = \"permissive\"\nnetwork.limit = [\"*\"]\n{change}"),
        )
    };
    let standard = builtin("standard");
    for (change, narrowed) in [
        ("", None),
        (
            "network.deny = [\"pastebin.com\"]",
            Some(Field::NetworkDeny),
        ),
        ("syscalls.deny = [\"ptrace\"]", Some(Field::SyscallsDeny)),
        ("network.cool-down = 60", Some(Field::NetworkCoolDown)),
        ("network.hosts = 100", Some(Field::NetworkHosts)),
        ("time.wall = \"1h\"", Some(Field::TimeWall)),
        ("time.idle = \"5m\"", Some(Field::TimeIdle)),
        ("time.exec = \"2m\"", Some(Field::TimeExec)),
        (
            "filesystem.scratch = \"100MiB\"",
            Some(Field::FilesystemScratch),
        ),
        ("limits.memory = \"1GiB\"", Some(Field::LimitsMemory)),
        (
            "filesystem.workspace-at = [\"/w\"]",
            Some(Field::FilesystemWorkspaceAt),
        ),
    ] {
        let resolved = lab(change).resolved();
        assert_eq!(resolved.policy.name.as_str(), "standard", "{change}");
        assert!(exceeds(&resolved.policy, &standard).is_empty(), "{change}");
        let by_ceiling =
            |field: &&Field| resolved.origins[field] == Origin::Ceiling("lab".parse().unwrap());
        let fields: Vec<Field> = Field::ALL.iter().filter(by_ceiling).copied().collect();
        assert_eq!(fields, Vec::from_iter(narrowed), "{change}");
    }
    // Named, it also works if the ceiling denies more. Any other excess is an error, not a silent change.
    let named = |change: &str| lab(change).field("policy", "standard");
    let denied = named("network.deny = [\"pastebin.com\"]").resolved();
    assert_eq!(
        denied.policy.network.deny,
        ["pastebin.com".parse().unwrap()].into()
    );
    let error = named("network.hosts = 100").error();
    assert!(matches!(error, PolicyError::ExceedsCeiling { .. }));
}

#[test]
fn narrowing_a_default_opens_nothing() {
    let under = |standard: &str, ceiling: &str| {
        case()
            .node("ceiling = \"lab\"")
            .file("lab", &format!("base = \"permissive\"\n{ceiling}"))
            .file("standard", &format!("base = \"standard\"\n{standard}"))
    };
    // Neither the number nor the share is larger without the node, so both apply.
    let mixed = under("limits.memory = \"10%\"", "limits.memory = \"512GiB\"").resolved();
    assert_eq!(mixed.policy.limits.memory.to_string(), "10%");
    let bounds: Vec<String> = mixed.bounds.iter().map(|b| b.memory.to_string()).collect();
    assert_eq!(bounds, ["512GiB", "unlimited"]);
    let any = under("network.inbound = [\"*\"]", "network.inbound = [\"22\"]").resolved();
    assert!(any.policy.network.inbound.is_empty());
    let elsewhere = under(
        "filesystem.workspace-at = [\"/work\"]",
        "filesystem.workspace-at = [\"/src\"]",
    );
    assert!(matches!(
        elsewhere.error(),
        PolicyError::ExceedsCeiling { .. }
    ));
    let asks = under("network.on-unknown = \"ask\"", "network.limit = []").resolved();
    assert_eq!(asks.policy.network.on_unknown, OnUnknown::Deny);
}

#[test]
fn without_a_ceiling_the_chosen_policy_limits_annotations() {
    // Fields that `standard` lets annotations loosen.
    for (field, value) in [
        ("network.allow", "a.test"),
        ("network.mode", "allowlist"),
        ("network.on-unknown", "ask"),
        ("network.inbound", "8080"),
        ("network.hosts", "300"),
        ("filesystem.scratch", "8GiB"),
        ("filesystem.secrets", "read-only"),
        ("filesystem.write", "/data"),
        ("limits.pids", "8000"),
    ] {
        assert!(case().field(field, value).resolve().is_ok(), "{field}");
        // Not under podman, where the image may have set it, unless the node permits it.
        let error = errors::podman().field(field, value).error();
        assert!(
            matches!(error, PolicyError::Loosened { image: true, .. }),
            "{field}: {error}"
        );
        let leave = format!("[allow]\nannotations = [\"{field}\", \"network.mode\"]");
        assert!(
            errors::podman()
                .node(&leave)
                .field(field, value)
                .resolve()
                .is_ok(),
            "{field}"
        );
    }
    // Fields without permission.
    for (field, value) in [
        ("filesystem.mounts", "keep"),
        ("filesystem.search", "partial"),
        ("filesystem.credentials", ".npmrc"),
        ("filesystem.unprotected", ".vscode"),
        ("filesystem.service-account-token", "read-only"),
        ("privileges.set-id", "on"),
    ] {
        for container in [case(), case().field("policy", "standard")] {
            let error = container.field(field, value).error();
            assert!(
                matches!(error, PolicyError::Loosened { image: false, .. }),
                "{field}"
            );
        }
        let leave = format!("[allow]\nannotations = [\"{field}\"]");
        let with_leave = case().node(&leave).field(field, value).resolve();
        match with_leave {
            Ok(_) => {}
            // Permission is not a ceiling: it gives nothing beyond permissive.
            Err(error) => assert!(
                matches!(error, PolicyError::ExceedsCeiling { .. }),
                "{error}"
            ),
        }
    }
    // A policy that permits none, whatever it would allow as a ceiling.
    for (field, value) in [
        ("network.allow", "a.test"),
        ("network.inbound", "22"),
        ("network.on-unknown", "ask"),
    ] {
        let closed = case()
            .file("closed", "base = \"permissive\"\nannotations.loosen = []")
            .field("policy", "closed")
            .field(field, value);
        let error = closed.error();
        assert!(
            matches!(error, PolicyError::Loosened { .. }),
            "{field}: {error}"
        );
    }
    // A ceiling in the node's file permits everything up to it, and so does --policy.
    let named = case()
        .node("ceiling = \"permissive\"")
        .field("filesystem.mounts", "keep");
    assert!(named.resolve().is_ok());
    let error = case()
        .flag("standard")
        .field("network.allow", "a.test")
        .error();
    assert!(matches!(error, PolicyError::ExceedsCeiling { .. }));
}

/// Former fault: README's example did not work under podman. Its store tells that the image has no annotations of ours.
#[test]
fn a_caller_of_podman_loosens_what_a_caller_of_docker_does() {
    let of_caller = |case: Case| Case {
        image: ImageAnnotations::NoneOfOurs,
        ..case
    };
    let listed = || errors::podman().field("network.allow", "a.test");
    assert!(matches!(
        listed().error(),
        PolicyError::Loosened { image: true, .. }
    ));
    let resolved = of_caller(listed()).resolved();
    assert_eq!(resolved.policy.network.mode, NetworkMode::Allowlist);
    let chosen = of_caller(errors::podman().field("policy", "permissive")).resolved();
    assert_eq!(chosen.policy.name.as_str(), "permissive");
    // No more than that.
    let much = of_caller(errors::podman().field("filesystem.mounts", "keep"));
    assert!(matches!(
        much.error(),
        PolicyError::Loosened { image: false, .. }
    ));
    let over = of_caller(listed()).flag("standard").error();
    assert!(matches!(over, PolicyError::ExceedsCeiling { .. }));
}

/// The line is for the caller, who may not have read the image's annotations.
#[test]
fn an_image_leaves_no_line_for_its_caller_out() {
    let notice = |case: Case| {
        let told = "base = \"standard\"\nreport.notice = \"on\"";
        let case = case.file("told", told).node("default = \"told\"");
        let resolved = case.field("report.notice", "off").resolved();
        resolved.policy.report.notice
    };
    assert_eq!(notice(errors::podman()), Switch::On);
    let of_caller = Case {
        image: ImageAnnotations::NoneOfOurs,
        ..errors::podman()
    };
    assert_eq!(notice(of_caller), Switch::Off);
    assert_eq!(notice(case()), Switch::Off);
}

#[test]
fn what_an_image_may_have_written_widens_nothing() {
    use errors::podman;
    // The review's image, with the caller's `strict` and without it.
    let image = |case: Case| {
        case.field("network.allow", "evil.example")
            .field("filesystem.mounts", "keep")
            .field("filesystem.root", "ephemeral")
            .field("privileges.capabilities", "CHOWN")
    };
    for case in [podman().field("policy", "strict"), podman()] {
        let error = image(case).error();
        assert!(
            matches!(error, PolicyError::Loosened { image: true, .. }),
            "{error}"
        );
    }
    // A ceiling of the node limits how far, not who: it gives an image no permission.
    let ceiling = podman()
        .node("ceiling = \"permissive\"")
        .field("policy", "strict");
    assert!(matches!(
        image(ceiling).error(),
        PolicyError::Loosened { .. }
    ));
    for node in ["", "ceiling = \"permissive\"", "default = \"strict\""] {
        let error = podman().node(node).field("policy", "permissive").error();
        assert!(
            matches!(error, PolicyError::ChosenByImage { .. }),
            "{node}: {error}"
        );
    }
    // Whatever engine the image claims.
    let disguised = case()
        .annotation("io.container.manager", "docker")
        .field("policy", "permissive");
    assert!(matches!(
        disguised.error(),
        PolicyError::ChosenByImage { .. }
    ));
    let crio = case()
        .annotation("io.kubernetes.cri-o.ContainerType", "container")
        .field("policy", "permissive");
    assert!(matches!(crio.error(), PolicyError::ChosenByImage { .. }));
    // Another place means another writable mount, and a policy's limits as a ceiling grant nothing.
    for (flag, field, value) in [
        (None, "filesystem.workspace-at", "/data"),
        (Some("strict"), "filesystem.workspace-at", "/data"),
        (Some("permissive"), "network.allow", "evil.example"),
        (Some("permissive"), "network.inbound", "8080"),
        (Some("permissive"), "network.on-unknown", "ask"),
    ] {
        let mut container = podman().field(field, value);
        container.flag = flag.map(str::to_owned);
        let error = container.error();
        let refused = matches!(
            error,
            PolicyError::Loosened { image: true, .. } | PolicyError::ChosenByImage { .. }
        );
        assert!(refused, "{field}: {error}");
    }
    let other = podman()
        .node("default = \"build\"")
        .file(
            "build",
            "base = \"permissive\"\nnetwork.allow = [\"a.test\"]",
        )
        .file(
            "wide",
            "base = \"permissive\"\nnetwork.allow = [\"b.test\"]",
        )
        .field("policy", "wide");
    assert!(matches!(other.error(), PolicyError::ChosenByImage { .. }));
    let free = podman()
        .flag("unconfined")
        .field("policy", "strict")
        .field("workspace", "/data");
    assert!(matches!(free.error(), PolicyError::ChosenByImage { .. }));
    // It may narrow. A handler's policy cannot be widened.
    assert_eq!(chosen(podman().field("policy", "strict")).0, "strict");
    let flagged = podman().flag("permissive").field("policy", "permissive");
    assert_eq!(chosen(flagged).0, "permissive");
    let leave = "[allow]\nannotations = [\"policy\", \"workspace\"]";
    let allowed = podman()
        .node(leave)
        .field("policy", "permissive")
        .field("workspace", "/w");
    assert_eq!(chosen(allowed).0, "permissive");
    assert!(
        podman()
            .node("default = \"unconfined\"")
            .field("policy", "permissive")
            .resolve()
            .is_ok()
    );
}

#[test]
fn a_default_above_its_own_ceiling_is_the_nodes_fault_and_not_the_containers() {
    let node = || case().node("default = \"standard\"\nceiling = \"strict\"");
    for case in [node(), node().field("network.mode", "none")] {
        assert!(matches!(
            case.error(),
            PolicyError::DefaultExceedsCeiling { .. }
        ));
    }
    assert_eq!(chosen(node().flag("strict")).0, "strict");
}

#[test]
fn each_field_has_its_origin() {
    let resolved = case()
        .file(
            "team",
            "base = \"standard\"\n[filesystem]\nscratch = \"64MiB\"",
        )
        .flag("team")
        .field("network.mode", "none")
        .resolved();
    assert_eq!(resolved.chosen_by, Origin::Flag);
    assert_eq!(resolved.origins.len(), Field::ALL.len());
    for (field, origin) in &resolved.origins {
        let expected = if *field == Field::FilesystemScratch {
            "policy file team.toml"
        } else if *field == Field::NetworkMode {
            "annotation dev.agentbox.network.mode"
        } else {
            "built-in policy standard"
        };
        assert_eq!(origin.to_string(), expected, "{field}");
    }
}

#[test]
fn a_selection_survives_being_saved() {
    let full = case()
        .file("team", "description = \"ours\"\nbase = \"standard\"")
        .node("ceiling = \"permissive\"\n[allow]\nnamespaces = [\"pid\"]")
        .field("policy", "team")
        .field("workspace", "/w")
        .field("filesystem.write", "/data")
        .field("filesystem.mounts", "read-only");
    for case in [full, case().flag("unconfined")] {
        let mut selection = case.resolve().unwrap();
        // Only `create` judges them.
        if let Selection::Policy(resolved) = &mut selection {
            assert_eq!(std::mem::take(&mut resolved.annotated_writes).len(), 1);
        }
        let saved = serde_json::to_string(&selection).unwrap();
        assert_eq!(
            serde_json::from_str::<Selection>(&saved).unwrap(),
            selection
        );
    }
}
