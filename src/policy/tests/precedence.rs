//! Who chooses, and what then limits.

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
        // Asking for walls where the operator set none narrows.
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
            Field::FilesystemEphemeral,
            Field::FilesystemScratch,
            Field::FilesystemMounts,
            Field::NetworkMode,
            Field::PrivilegesCapabilities,
        ]
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
fn a_nodes_default_limits_nobody() {
    let case = case()
        .node("default = \"strict\"")
        .field("policy", "permissive");
    assert_eq!(chosen(case).0, "permissive");
}

#[test]
fn a_ceiling_below_standard_is_the_default_where_the_node_names_none() {
    let strict = case().node("ceiling = \"strict\"");
    assert_eq!(
        chosen(strict),
        ("strict".to_owned(), "the node's file".to_owned())
    );
    let error = case()
        .node("ceiling = \"strict\"")
        .field("network.mode", "local")
        .error();
    assert!(matches!(error, PolicyError::ExceedsCeiling { .. }));
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
fn each_field_says_where_it_came_from() {
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
        .node("[allow]\nnamespaces = [\"pid\"]")
        .field("policy", "team")
        .field("workspace", "/w")
        .field("filesystem.write", "/data")
        .field("filesystem.mounts", "read-only");
    for case in [full, case().flag("unconfined")] {
        let selection = case.resolve().unwrap();
        let saved = serde_json::to_string(&selection).unwrap();
        assert_eq!(
            serde_json::from_str::<Selection>(&saved).unwrap(),
            selection
        );
    }
}
