//! Policy files: bases, replacing a built-in policy, and invalid content.

use super::*;

#[test]
fn a_file_takes_missing_fields_from_its_base() {
    let policy = case()
        .file(
            "team",
            "base = \"middle\"\n[filesystem]\nscratch = \"2MiB\"",
        )
        .file(
            "middle",
            "base = \"standard\"\nfilesystem.scratch = \"3MiB\"\nnetwork.mode = \"none\"",
        )
        .flag("team")
        .resolved()
        .policy;
    let mut expected = builtin("standard");
    expected.name = "team".parse().unwrap();
    expected.filesystem.scratch = "2MiB".parse().unwrap();
    expected.network.mode = NetworkMode::None;
    assert_eq!(policy, expected);
}

#[test]
fn an_empty_list_is_a_value_and_does_not_come_from_the_base() {
    let policy = case()
        .file("team", "base = \"standard\"\nprivileges.capabilities = []")
        .flag("team")
        .resolved()
        .policy;
    assert!(policy.privileges.capabilities.is_empty());
}

#[test]
fn a_file_replaces_the_built_in_policy_of_its_name_and_may_build_on_it() {
    let case = case().file("standard", "base = \"standard\"\nnetwork.mode = \"none\"");
    let resolved = case.resolved();
    assert_eq!(resolved.policy.network.mode, NetworkMode::None);
    assert_eq!(
        resolved.origins[&Field::FilesystemRoot],
        Origin::Builtin("standard".parse().unwrap())
    );
    // Other policies with this base get the file.
    let other = case
        .file("other", "base = \"standard\"")
        .flag("other")
        .resolved();
    assert_eq!(other.policy.network.mode, NetworkMode::None);
}

#[test]
fn eight_bases_in_a_row_are_followed() {
    assert_eq!(
        errors::bases(8).flag("p0").resolved().policy.filesystem,
        builtin("strict").filesystem
    );
}

#[test]
fn only_the_policies_involved_are_read() {
    let resolved = case().file("broken", "not toml").flag("strict").resolved();
    assert_eq!(resolved.policy, builtin("strict"));
    let ceiling = case()
        .node("ceiling = \"broken\"")
        .file("broken", "not toml");
    assert!(matches!(ceiling.error(), PolicyError::File { .. }));
}

#[test]
fn a_description_is_the_policys_own() {
    let base = case().file("base", "description = \"the base\"\nbase = \"strict\"");
    let own = |case: Case| case.resolved().description;
    let of = |text: &str| case().file("team", text).flag("team");
    assert_eq!(own(base.flag("base")).as_deref(), Some("the base"));
    assert_eq!(own(of("base = \"strict\"")), None);
    for name in BUILTIN.map(|builtin| builtin.name) {
        assert!(own(case().flag(name)).is_some(), "{name}");
    }
    for bad in [
        "\"a\\nb\"",
        "\"\\u001b[2J\"",
        &format!("\"{}\"", "x".repeat(201)),
    ] {
        let error = of(&format!("base = \"strict\"\ndescription = {bad}")).error();
        assert!(
            matches!(error, PolicyError::File { line: 2, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_file_has_only_fields_of_a_policy() {
    for (text, line, part) in [
        ("nmae = 1", 1, "unknown field `nmae`"),
        ("name = \"x\"", 1, "unknown field `name`"),
        ("[netwrok]\nmode = \"none\"", 1, "expected one of"),
        ("[network]\nmodes = \"none\"", 2, "expected one of `mode`"),
        ("[network]\nmode = 1", 2, "invalid type"),
        ("[network]\nmode = [\"none\"]", 2, "invalid type"),
        (
            "[network]\nallow = \"a.test\"",
            2,
            "did you mean [\"a.test\"]?",
        ),
        ("[network]\nallow = [\"a b\"]", 2, "is not one rule but 2"),
        ("[network]\nproxy_env = \"on\"", 2, "unknown field"),
        ("[network]\nproxy-env = true", 2, "invalid type"),
        ("[network]\nconnections = 0", 2, "from 1 to 1000000"),
        ("[network]\nconnections = \"5\"", 2, "invalid type"),
        ("[network]\nhosts = 1.5", 2, "invalid type"),
        ("[network]\nupload = 5", 2, "invalid type"),
        (
            "[filesystem]\nephemeral = \"tmp\"",
            2,
            "did you mean [\"tmp\"]?",
        ),
        (
            "[filesystem]\nephemeral = [\"etc\"]",
            2,
            "one of tmp, home, var",
        ),
        ("[filesystem]\nscratch = \"1TiB\"", 2, "1MiB to 64GiB"),
        ("[filesystem]\nwrite = [\"/a/../b\"]", 2, "absolute path"),
        ("[filesystem]\nread_only = true", 2, "unknown field"),
        ("[syscalls]\nallow = [\"no-such\"]", 2, "system call's name"),
        (
            "[privileges]\ncapabilities = [\"CHWON\"]",
            2,
            "did you mean CAP_CHOWN?",
        ),
        ("base = \"unconfined\"", 1, "reserved"),
        ("base = \"../strict\"", 1, "policy's name"),
        ("base = \"strict\"\nbase = \"strict\"", 2, "duplicate key"),
        (
            "[network]\nmode = \"none\"\n[network]\n",
            3,
            "duplicate key",
        ),
        ("\"\\u001b[2J\" = 1", 1, "unknown field `\\u{1b}[2J`"),
        ("[network", 1, "unclosed table"),
    ] {
        let error = case().file("team", text).flag("team").error();
        let message = error.to_string();
        let start = format!("policy file team.toml, line {line} (");
        assert!(message.starts_with(&start), "{message}");
        assert!(message.contains(part), "{message}");
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}

#[test]
fn hostile_files_are_only_errors() {
    let nested = format!("network = {}{}", "[".repeat(30_000), "]".repeat(30_000));
    let inline = "a = {".repeat(10_000);
    for text in [
        nested.as_str(),
        inline.as_str(),
        "\u{0}",
        "\u{feff}\u{feff}",
        "\r",
        "= =",
    ] {
        let message = case().file("team", text).flag("team").error().to_string();
        assert!(message.len() < 1000, "{message}");
    }
}

/// The block of the documentation that contains `marker`, without its fence.
fn example(marker: &str) -> String {
    let documentation = include_str!("../../../docs/policy.md");
    let mut blocks = documentation.split("```toml\n").skip(1);
    let block = blocks.find_map(|block| {
        let (code, _) = block.split_once("```")?;
        code.contains(marker).then_some(code)
    });
    block.unwrap().to_owned()
}

#[test]
fn the_documented_files_work_as_documented() {
    let config = NodeConfig::parse(&example("policy-dir")).unwrap();
    let unchanged = NodeConfig {
        default: Some("standard".parse().unwrap()),
        ..NodeConfig::default()
    };
    assert_eq!(config, unchanged);

    let builds = case().file("builds", &example("builds.toml"));
    let builds = builds.flag("builds");
    let PolicyError::ExceedsCeiling { over, .. } = builds.error() else {
        panic!("the documentation says that it exceeds permissive");
    };
    assert_eq!(over.len(), 1);
    assert_eq!(over[0].exceeded.field, Field::FilesystemScratch);

    let lab = case()
        .node("ceiling = \"lab\"\n[allow]\ncapabilities = [\"NET_RAW\"]")
        .file(
            "lab",
            "base = \"permissive\"\nprivileges.capabilities = [\"+\", \"NET_RAW\"]",
        )
        .field("privileges.capabilities", "NET_RAW");
    assert!(lab.resolve().is_ok());

    let mut build = case()
        .node("ceiling = \"build\"")
        .file("build", &example("build.toml"))
        .flag("build");
    let mirror = FileText::Readable(example("mirror.toml"));
    build.presets.insert("mirror".to_owned(), mirror);
    let allow = build.resolved().policy.network.allow;
    for rule in ["pypi.example.com", "internal:postgres:5432"] {
        assert!(allow.contains(&rule.parse().unwrap()), "{rule}: {allow:?}");
    }
}
