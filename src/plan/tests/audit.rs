//! Report-only policies.

use super::*;
use crate::plan::audit::report;
use crate::policy::Field;

fn audited(case: &Case) -> (DecidedPlan, Option<AuditPlan>) {
    let spec: Spec = serde_json::from_value(case.spec.clone()).unwrap();
    let decided = case.decided();
    let found = report(&case.resolved(), &spec, &case.facts, &host(), &decided);
    (decided, found)
}

fn workload(policy: &str) -> Case {
    under(policy)
        .cwd("/work")
        .bind("/srv/project", "/work")
        .bind("/srv/data", "/data")
        .set(
            "/process",
            "capabilities",
            json!({"bounding": ["CAP_CHOWN", "CAP_KILL"]}),
        )
        .annotation("workspace", "/work")
        .annotation("network.allow", "api.example.com")
}

#[test]
fn a_report_only_policy_changes_nothing_that_is_enforced() {
    for policy in ["strict", "standard", "permissive"] {
        let without = workload(policy).decided();
        for audit in ["strict", "standard", "permissive"] {
            let case = workload(policy).annotation("report.audit", audit);
            let (with, found) = audited(&case);
            assert_eq!(with.plan, without.plan, "{policy} {audit}");
            let found = found.unwrap();
            assert_eq!(found.refused, None);
            let is_nothing =
                found.mounts.is_empty() && found.not_given.is_empty() && found.less.is_empty();
            if policy == audit || policy == "strict" {
                assert!(is_nothing, "{policy} {audit}: {found:?}");
            } else if policy == "permissive" {
                assert!(!is_nothing, "{policy} {audit}");
            }
        }
        let (_, found) = audited(&workload(policy).annotation("report.audit", "off"));
        assert_eq!(found, None);
    }
}

#[test]
fn the_report_lists_what_would_be_missing() {
    let case = workload("permissive").annotation("report.audit", "strict");
    let (_, found) = audited(&case);
    let found = found.unwrap();
    let mounts: Vec<String> = found
        .mounts
        .iter()
        .map(|mount| mount.destination.display().to_string())
        .collect();
    assert_eq!(mounts, ["/data"]);
    for item in ["CHOWN", "KILL"] {
        assert!(
            found
                .not_given
                .iter()
                .any(|thing| thing.to_string().contains(item)),
            "{found:?}"
        );
    }
    let less: Vec<Field> = found.less.iter().map(|less| less.field).collect();
    for field in [
        Field::FilesystemRoot,
        Field::PrivilegesSetId,
        Field::LimitsPids,
        Field::NetworkUpload,
    ] {
        assert!(less.contains(&field), "{less:?}");
    }
    let rules = found.network.unwrap().rules;
    let allowed: Vec<String> = rules.allow.iter().map(ToString::to_string).collect();
    assert_eq!(allowed, ["api.example.com"], "with the same annotations");
    // Read-only instead of writable.
    let case = workload("permissive").annotation("report.audit", "standard");
    let (_, found) = audited(&case);
    let found = found.unwrap().mounts;
    assert!(
        found[0].why.starts_with("it would be read-only"),
        "{found:?}"
    );
}

#[test]
fn a_container_that_it_would_refuse_starts_with_the_reason_in_the_report() {
    let case = workload("permissive")
        .annotation("network.inbound", "8080")
        .node("ceiling = \"permissive\"")
        .annotation("report.audit", "closed-network");
    // A missing policy is an error, not a report.
    let error = resolve(&Sources {
        annotations: &case.annotations,
        image: crate::policy::ImageAnnotations::Unknown,
        flag: None,
        node: &case.node,
        files: &BTreeMap::new(),
        presets: &BTreeMap::new(),
        asker: Asker::Operator,
        tool: crate::policy::Tool::default(),
        asked: crate::policy::WrapOptions::NOTHING,
    });
    assert!(error.unwrap_err().to_string().contains("closed-network"));
    let files = BTreeMap::from([(
        "site".to_owned(),
        crate::policy::FileText::Readable(
            "base = \"permissive\"\nfilesystem.left-out = \"error\"\nfilesystem.mounts = \"drop\""
                .to_owned(),
        ),
    )]);
    let case = workload("permissive").annotation("report.audit", "site");
    let resolved = resolve(&Sources {
        annotations: &case.annotations,
        image: crate::policy::ImageAnnotations::Unknown,
        flag: None,
        node: &case.node,
        files: &files,
        presets: &BTreeMap::new(),
        asker: Asker::Operator,
        tool: crate::policy::Tool::default(),
        asked: crate::policy::WrapOptions::NOTHING,
    });
    let Ok(Selection::Policy(resolved)) = resolved else {
        panic!("{resolved:?}");
    };
    let spec: Spec = serde_json::from_value(case.spec.clone()).unwrap();
    let decided = plan(&resolved, &spec, &case.facts, &host()).unwrap();
    let found = report(&resolved, &spec, &case.facts, &host(), &decided).unwrap();
    let why = found.refused.unwrap();
    assert!(why.contains("/data"), "{why}");
    assert_eq!(found.network, None);
}
