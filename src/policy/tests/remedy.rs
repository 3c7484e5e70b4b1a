//! What the errors of ceilings say to do.

use super::*;

/// Item 8 of the agents' review: the caller of a model server on the node read that it is too much, and nothing to write.
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
    // They are TOML as they stand, and they do it.
    let policy = policy.replace(", network", "\nnetwork");
    case()
        .node("ceiling=\"wider\"")
        .file("wider", &policy)
        .resolved();
    // A ceiling that is a file already.
    let ours = case()
        .node("ceiling = \"ours\"")
        .file("ours", "base = \"permissive\"");
    let error = ours.error().to_string();
    let words = "; root permits it by adding \"node:host.docker.internal:11434\" to network.limit of policies/ours.toml";
    assert!(error.ends_with(words), "{error}");
    // Whoever configured the call set this one on purpose.
    let flagged = super::case().flag("standard");
    let error = flagged.field("network.allow", "a.test").error().to_string();
    assert!(error.contains("the ceiling standard"), "{error}");
    assert!(
        !error.contains("wider") && !error.contains("root permits"),
        "{error}"
    );
}

#[test]
fn what_no_message_may_name_is_in_no_line_that_permits() {
    for rule in ["169.254.169.254:80", "internal:metadata:80"] {
        let error = case().field("network.allow", rule).error().to_string();
        assert!(!error.contains("wider"), "{error}");
    }
}

/// Narrowing it without a word would throw away what is written.
#[test]
fn a_root_that_exceeds_a_ceiling_is_an_error_that_says_what_is_within() {
    const OURS: &str = "base = \"permissive\"\nfilesystem.root = \"ephemeral\"";
    let under = || case().node("ceiling = \"ours\"").file("ours", OURS);
    let named = || under().field("policy", "standard");
    let error = named().error().to_string();
    let annotation =
        "; dev.agentbox.filesystem.root=ephemeral is within, and its writes end with the container";
    assert!(error.ends_with(annotation), "{error}");
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
    // What an annotation asks for is its author's, and is not said to be the policy's.
    let error = under()
        .field("filesystem.root", "engine")
        .error()
        .to_string();
    assert!(!error.contains("is within"), "{error}");
}

/// `wrap` has no layer of an engine's: the policies' own word for the root was refused there.
#[test]
fn the_root_of_a_named_policy_is_the_ceilings_for_wrap() {
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
    // Asked for by name it is still too much.
    let engine = FieldOption::set("filesystem.root=engine").unwrap();
    let error = wrap(vec![engine]).error();
    assert!(
        matches!(error, PolicyError::ExceedsCeiling { .. }),
        "{error}"
    );
}
