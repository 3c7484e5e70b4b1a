//! The remedies in errors of ceilings.

use super::*;

/// Former fault: with a model server on the node, the error did not say what to write.
#[test]
fn the_error_of_a_ceiling_has_the_lines_that_permit_a_private_name() {
    let rule = "node:host.docker.internal:11434";
    let case = || case().field("network.allow", rule);
    let error = case().error().to_string();
    let (_, files) = error.split_once("; needs ").expect(&error);
    let files = files
        .strip_prefix("ceiling=\"wider\" in config.toml and ")
        .unwrap();
    let policy = files.strip_suffix(" in policies/wider.toml").unwrap();
    // The lines are valid TOML and permit the rule.
    let policy = policy.replace(", network", "\nnetwork");
    case()
        .node("ceiling=\"wider\"")
        .file("wider", &policy)
        .resolved();
    // The ceiling is already a file.
    let ours = case()
        .node("ceiling = \"ours\"")
        .file("ours", "base = \"permissive\"");
    let error = ours.error().to_string();
    let words = "; root permits it by adding \"node:host.docker.internal:11434\" to network.limit of policies/ours.toml";
    assert!(error.ends_with(words), "{error}");
    // A ceiling by --policy was set on purpose: the remedy is in its own file.
    let flagged = super::case().flag("standard");
    let error = flagged.field("network.allow", "a.test").error().to_string();
    assert!(error.contains("the ceiling standard"), "{error}");
    let words = "; root permits it by a policy file with base=\"standard\", network.mode=\"allowlist\" and network.allow=[\"a.test\"], \
                 which --policy of this runtime names";
    assert!(
        !error.contains("wider") && error.ends_with(words),
        "{error}"
    );
    let ours = super::case().flag("ours").file(
        "ours",
        "base = \"standard\"\n[network]\nmode = \"allowlist\"",
    );
    let error = ours.field("network.allow", "+,a.test").error().to_string();
    let words = "; root permits it by adding \"a.test\" to network.allow of policies/ours.toml, this runtime's policy";
    assert!(error.ends_with(words), "{error}");
}

#[test]
fn a_remedy_has_no_rule_that_messages_must_not_name() {
    for rule in ["169.254.169.254:80", "internal:metadata:80"] {
        let error = case().field("network.allow", rule).error().to_string();
        assert!(!error.contains("wider"), "{error}");
    }
}

/// A silent change would discard the policy's choice.
#[test]
fn a_root_beyond_a_ceiling_is_an_error_with_the_root_within() {
    const OURS: &str = "base = \"permissive\"\nfilesystem.root = \"ephemeral\"";
    let under = || case().node("ceiling = \"ours\"").file("ours", OURS);
    let named = || under().field("policy", "standard");
    let error = named().error().to_string();
    let annotation =
        "; dev.agentbox.filesystem.root=ephemeral is within, and its writes end with the container";
    assert!(error.ends_with(annotation), "{error}");
    for (tool, sets) in [
        (
            Tool::Annotating,
            "; --annotation dev.agentbox.filesystem.root=ephemeral is",
        ),
        (
            Tool::Pod,
            "; dev.agentbox.filesystem.root: \"ephemeral\" is",
        ),
    ] {
        let error = named().of(tool).error().to_string();
        assert!(error.contains(sets), "{error}");
        // The plan's errors use the same words.
        assert_eq!(case().of(tool).resolved().tool, tool);
    }
    let resolved = named().field("filesystem.root", "ephemeral").resolved();
    assert_eq!(resolved.policy.filesystem.root, RootAccess::Ephemeral);
    let node = |default: &str| format!("ceiling = \"ours\"\ndefault = \"{default}\"");
    let error = under().node(&node("standard")).error().to_string();
    assert!(
        error.contains("base = \"standard\", filesystem.root = \"ephemeral\""),
        "{error}"
    );
    let mine = "base = \"standard\"\nfilesystem.root = \"ephemeral\"";
    under().node(&node("mine")).file("mine", mine).resolved();
    // If an annotation requests it, the error does not blame the policy.
    let error = under()
        .field("filesystem.root", "engine")
        .error()
        .to_string();
    assert!(!error.contains("is within"), "{error}");
}

/// `wrap` has no engine's layer, and refused the policies' own value for the root.
#[test]
fn wrap_reduces_the_root_of_a_named_policy_to_the_ceilings() {
    const OURS: &str = "base = \"permissive\"\nfilesystem.root = \"ephemeral\"";
    let wrap = |options: Vec<FieldOption>| {
        let case = case().node("ceiling = \"ours\"").file("ours", OURS);
        let case = case.chosen(PolicyOption::Named("standard".to_owned()));
        options.into_iter().fold(case, Case::asked)
    };
    let resolved = wrap(Vec::new()).resolved();
    assert_eq!(resolved.policy.filesystem.root, RootAccess::Ephemeral);
    let by = Origin::Ceiling("ours".parse().unwrap());
    assert_eq!(resolved.origins[&Field::FilesystemRoot], by);
    assert_eq!(builtin("standard").filesystem.root, RootAccess::Engine);
    // Requested explicitly, it still exceeds.
    let engine = FieldOption::set("filesystem.root=engine").unwrap();
    let error = wrap(vec![engine]).error();
    assert!(
        matches!(error, PolicyError::ExceedsCeiling { .. }),
        "{error}"
    );
}

/// A host under a ceiling without hosts is the commonest request of all: its two fields had no lines.
#[test]
fn the_error_of_a_ceiling_without_hosts_has_the_lines_that_permit_a_host() {
    let asks = [
        case().field("network.allow", "api.example.test,b.test:22"),
        case().allow("api.example.test,b.test:22"),
    ];
    for asked in asks {
        let under = |node: &str, file: Option<&str>| {
            let mut case = Case {
                annotations: asked.annotations.clone(),
                asked: asked.asked.clone(),
                ..Case::default()
            };
            if let Some(text) = file {
                case = case.file("wider", text);
            }
            case.node(node)
        };
        let error = under("ceiling = \"standard\"", None).error().to_string();
        let (_, files) = error.split_once("; needs ").expect(&error);
        let files = files
            .strip_prefix("ceiling=\"wider\" in config.toml and ")
            .expect(&error);
        let policy = files.strip_suffix(" in policies/wider.toml").unwrap();
        let policy = policy.replace(", network", "\nnetwork");
        under("ceiling=\"wider\"", Some(&policy)).resolved();
        // No more than the request: another host is beyond it, and the policy of others is as before.
        let other = case().field("network.allow", "other.test");
        let error = other
            .node("ceiling=\"wider\"")
            .file("wider", &policy)
            .error();
        assert!(
            matches!(error, PolicyError::ExceedsCeiling { .. }),
            "{error}"
        );
        let plain = case().node("ceiling=\"wider\"").file("wider", &policy);
        assert_eq!(plain.resolved().policy.network.mode, NetworkMode::Local);
        // The ceiling is already a file.
        let error = under("ceiling = \"wider\"", Some("base = \"standard\"")).error();
        let words = "; needs ceiling=\"wider-still\" in config.toml and base=\"wider\", network.mode=\"allowlist\", \
                     network.limit=[\"+\", \"api.example.test\", \"b.test:22\"] in policies/wider-still.toml";
        assert!(error.to_string().ends_with(words), "{error}");
        // A mode in the ceiling's own file would open the dormant hosts of each run under it.
        let listed = "base = \"standard\"\nnetwork.allow = [\"dormant.test\"]";
        let ours = "base = \"listed\"\nnetwork.mode = \"local\"";
        let still = "base=\"ours\"\nnetwork.mode=\"allowlist\"\nnetwork.limit=[\"+\", \"api.example.test\"]";
        let plain = case().node("default = \"ours\"\nceiling = \"wider\"");
        let plain = plain.file("listed", listed).file("ours", ours);
        let plain = plain.file("wider", still).resolved();
        assert_eq!(plain.policy.network.mode, NetworkMode::Local);
    }
    // Another field beyond the ceiling needs other lines.
    let error = case()
        .node("ceiling = \"standard\"")
        .field("network.allow", "a.test")
        .field("limits.pids", "9999")
        .error()
        .to_string();
    assert!(error.ends_with("root permits them by a wider ceiling in config.toml"));
    // A ceiling by --policy was set on purpose.
    let error = case().flag("standard").field("network.allow", "a.test");
    assert!(!error.error().to_string().contains("wider"));
}

/// Of all fields but eight, the error said no more than that the value is beyond the ceiling.
#[test]
fn the_error_of_a_ceiling_has_the_line_that_permits_one_value() {
    let asked = [
        ("filesystem.write", "/data, /out", ""),
        ("filesystem.scratch", "64GiB", ""),
        ("network.connections", "100000", ""),
        ("network.upload", "2GiB", "network.upload = \"1GiB\""),
        ("network.inbound", "8000", ""),
        ("syscalls.allow", "ptrace", "syscalls.limit = []"),
        ("syscalls.allow", "keyctl", ""),
        ("privileges.set-id", "on", ""),
        ("limits.pids", "100000", ""),
        ("limits.cpus", "4", "limits.cpus = 1"),
        ("limits.memory", "2GiB", "limits.memory = \"1GiB\""),
        ("time.wall", "2h", "time.wall = \"1h\""),
    ];
    for (field, value, tight) in asked {
        let under = |ceiling: &str| {
            let node = format!("ceiling = \"{ceiling}\"\n[allow]\nannotations = [\"{field}\"]");
            let case = case().field(field, value).node(&node);
            case.file("ours", &format!("base = \"standard\"\n{tight}"))
        };
        let error = under("ours").error().to_string();
        let (_, lines) = error.split_once("; needs ").expect(&error);
        let lines = lines
            .strip_prefix("ceiling=\"wider\" in config.toml and ")
            .expect(&error);
        let policy = lines.strip_suffix(" in policies/wider.toml").expect(&error);
        let policy = policy.replacen(", ", "\n", 1);
        under("wider").file("wider", &policy).resolved();
    }
}
