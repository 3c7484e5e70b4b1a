//! Lists that add to the base's list, and system calls that annotations may add.

use super::*;
use crate::rules::EgressRule;

fn names(names: &[&str]) -> BTreeSet<SyscallName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn rules(rules: &[&str]) -> BTreeSet<EgressRule> {
    rules.iter().map(|rule| rule.parse().unwrap()).collect()
}

/// A node whose policy `ours` lists one more host.
fn ours() -> Case {
    case().file(
        "ours",
        "base = \"standard\"\nnetwork.allow = [\"index.test\"]",
    )
}

#[test]
fn an_annotation_adds_to_the_policys_list() {
    let asked = |value: &str| ours().field("policy", "ours").field("network.allow", value);
    let resolved = asked("+,model.test:8443").resolved();
    assert_eq!(
        resolved.policy.network.allow,
        rules(&["index.test", "model.test:8443"])
    );
    let origin = Origin::Annotation("dev.agentbox.network.allow".to_owned());
    assert_eq!(resolved.origins[&Field::NetworkAllow], origin);
    // Without the plus, the list is replaced.
    let replaced = asked("model.test:8443").resolved().policy.network.allow;
    assert_eq!(replaced, rules(&["model.test:8443"]));
    // If the policy lists nothing, the result is the same, and it opens the network too.
    let alone = case().field("network.allow", "+,a.test").resolved().policy;
    assert_eq!(
        alone,
        case().field("network.allow", "a.test").resolved().policy
    );
}

#[test]
fn a_file_adds_to_its_base_and_that_to_its_own() {
    let case = ours()
        .file("more", "base = \"ours\"\nnetwork.allow = [\"+\", \"@mirror\"]")
        .file("most", "base = \"more\"\nnetwork.allow = [\"+\", \"c.test\"]\nfilesystem.ephemeral = [\"+\", \"run\"]")
        .preset("mirror", "[\"b.test\"]");
    let policy = case.flag("most").resolved().policy;
    assert_eq!(
        policy.network.allow,
        rules(&["index.test", "b.test", "c.test"])
    );
    assert_eq!(
        policy.filesystem.ephemeral,
        builtin("standard").filesystem.ephemeral
    );
}

#[test]
fn added_items_are_limited_like_listed_ones() {
    for (field, value) in [
        ("network.allow", "+,internal:db:5432"),
        ("syscalls.allow", "+,bpf"),
    ] {
        let error = case().field(field, value).error();
        assert!(
            matches!(error, PolicyError::ExceedsCeiling { .. }),
            "{error}"
        );
    }
    for (field, value) in [
        ("filesystem.credentials", "+,.npmrc"),
        ("filesystem.unprotected", "+,.vscode"),
    ] {
        let error = case().field(field, value).error();
        assert!(matches!(error, PolicyError::Loosened { .. }), "{error}");
    }
    let error = case().field("privileges.capabilities", "+,NET_RAW").error();
    assert!(matches!(error, PolicyError::CapabilityNotAllowed { .. }));
    let image = errors::podman().field("network.allow", "+,a.test").error();
    assert!(matches!(image, PolicyError::Loosened { image: true, .. }));
}

#[test]
fn an_addition_without_a_base_or_without_items_is_an_error() {
    let alone = case()
        .file(
            "alone",
            "[filesystem]\nephemeral = [\"+\", \"tmp\"]\nroot = \"read-only\"",
        )
        .flag("alone");
    assert!(matches!(alone.error(), PolicyError::FieldMissing { .. }));
    let nothing = case().field("network.allow", "+").error().to_string();
    assert_eq!(
        nothing,
        "annotation dev.agentbox.network.allow: \"+\" is not a list: after `+` come the values to add"
    );
    let nothing = ours()
        .file("more", "base = \"ours\"\nnetwork.allow = [\"+\"]")
        .flag("more");
    assert!(matches!(nothing.error(), PolicyError::File { .. }));
}

/// A caller who debugs the container's own processes requests it by annotation, like hosts.
#[test]
fn a9_a_debugger_needs_an_annotation_and_no_file_of_the_node() {
    let all = "process_vm_readv,process_vm_writev,ptrace";
    for value in ["ptrace", all] {
        for case in [
            case(),
            case().field("policy", "standard"),
            case().field("policy", "permissive"),
        ] {
            let policy = case.field("syscalls.allow", value).resolved().policy;
            assert_eq!(
                policy.syscalls.allow,
                value.parse::<list::WrittenList<_>>().unwrap().items
            );
        }
    }
    // As a ceiling, `standard` allows it too; `strict` does not, neither as the ceiling nor as the policy.
    assert!(
        case()
            .flag("standard")
            .field("syscalls.allow", all)
            .resolve()
            .is_ok()
    );
    let error = case()
        .flag("strict")
        .field("syscalls.allow", "ptrace")
        .error();
    assert!(matches!(error, PolicyError::ExceedsCeiling { .. }));
    let error = case()
        .field("policy", "strict")
        .field("syscalls.allow", "ptrace")
        .error();
    assert!(matches!(error, PolicyError::Loosened { .. }));
    // Calls that the limit does not list need the node. An image's annotation gets none.
    let error = case()
        .field("syscalls.allow", "keyctl,ptrace")
        .error()
        .to_string();
    assert_eq!(
        error,
        "policy standard exceeds the ceiling permissive (set by the default): syscalls.allow requests keyctl (annotation), allowed: process_vm_readv, process_vm_writev, ptrace; needs ceiling=\"wider\" in config.toml and base=\"permissive\", syscalls.limit=[\"+\", \"keyctl\"] in policies/wider.toml"
    );
    let image = errors::podman().field("syscalls.allow", "ptrace").error();
    assert!(matches!(image, PolicyError::Loosened { image: true, .. }));
    // A policy's author can still deny it.
    let shut = case()
        .file("shut", "base = \"standard\"\nsyscalls.deny = [\"ptrace\"]")
        .flag("shut")
        .field("syscalls.allow", "ptrace");
    assert_eq!(
        shut.error().to_string(),
        "annotation dev.agentbox.syscalls.allow allows ptrace, but policy file shut.toml denies it (syscalls.deny) and a denial wins: leave it out"
    );
}

#[test]
fn a_limit_of_system_calls_allows_none_by_itself() {
    let policy = builtin("standard");
    assert_eq!(policy.syscalls.limit, names(&DEBUGGERS));
    assert_eq!(policy.syscalls.allowed().count(), 0);
    // In a container the field would have no effect; likewise network.limit.
    for (field, value) in [("syscalls.limit", "ptrace"), ("network.limit", "a.test")] {
        let error = case().field(field, value).error();
        assert!(matches!(error, PolicyError::NoAnnotation { .. }), "{error}");
    }
}
