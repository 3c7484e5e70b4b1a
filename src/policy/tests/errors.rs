//! Every error, with the text that a user reads.

use super::*;
use crate::text::MESSAGE;

/// One name per variant, without a wildcard: a new variant does not compile until it has a row below.
fn variant(error: &PolicyError) -> &'static str {
    match error {
        PolicyError::AnnotationKey { .. } => "AnnotationKey",
        PolicyError::NoAnnotation { .. } => "NoAnnotation",
        PolicyError::AnnotationTooLong { .. } => "AnnotationTooLong",
        PolicyError::AnnotationValue { .. } => "AnnotationValue",
        PolicyError::AnnotationUnconfined { .. } => "AnnotationUnconfined",
        PolicyError::AnnotationsDisagree { .. } => "AnnotationsDisagree",
        PolicyError::AnnotationWithoutPolicy { .. } => "AnnotationWithoutPolicy",
        PolicyError::AllowsDenied { .. } => "AllowsDenied",
        PolicyError::NoSuchPreset { .. } => "NoSuchPreset",
        PolicyError::RuleNotAllowed { .. } => "RuleNotAllowed",
        PolicyError::Flag { .. } => "Flag",
        PolicyError::NoSuchPolicy { .. } => "NoSuchPolicy",
        PolicyError::FileName { .. } => "FileName",
        PolicyError::FileTooLong { .. } => "FileTooLong",
        PolicyError::File { .. } => "File",
        PolicyError::FieldMissing { .. } => "FieldMissing",
        PolicyError::BaseCycle { .. } => "BaseCycle",
        PolicyError::BaseDepth { .. } => "BaseDepth",
        PolicyError::RootPath { .. } => "RootPath",
        PolicyError::CapabilityNotAllowed { .. } => "CapabilityNotAllowed",
        PolicyError::LearnNotAllowed { .. } => "LearnNotAllowed",
        PolicyError::ExceedsCeiling { .. } => "ExceedsCeiling",
        PolicyError::DefaultExceedsCeiling { .. } => "DefaultExceedsCeiling",
        PolicyError::Loosened { .. } => "Loosened",
        PolicyError::WriteDropped { .. } => "WriteDropped",
        PolicyError::ChosenByImage { .. } => "ChosenByImage",
        PolicyError::NothingToApprove { .. } => "NothingToApprove",
        PolicyError::FileUnreadable { .. } => "FileUnreadable",
        PolicyError::FileDisagrees { .. } => "FileDisagrees",
        PolicyError::Option(_) => "Option",
    }
}

/// All but `FileName`, which comes from [`misnamed_policy`] and concerns no container.
const VARIANTS: usize = 29;

fn table() -> Vec<(Case, &'static str, &'static str)> {
    let mut rows = about_annotations();
    rows.extend(about_names_and_files());
    rows.extend(about_limits());
    rows.extend(about_options());
    rows
}

fn about_options() -> Vec<(Case, &'static str, &'static str)> {
    vec![
        (
            case().allow("nowhere:0"),
            "Option",
            "option --allow: \"nowhere:0\" is not a rule: HOST, *.DOMAIN or ADDRESS[/BITS], with :PORT if not 443; service:, internal: or node: before a private name; METHOD https://HOST/PATH; or @PRESET",
        ),
        (
            case().allow(&"a.test,".repeat(10_000)),
            "Option",
            "option --allow: its value is too large: 70002 bytes, the limit is 65536",
        ),
        (
            case().allow("a.test").set("network.mode=none"),
            "Option",
            "option --set network.mode and option --allow disagree: hosts are allowed, but the mode reaches none: leave network.mode out, or use allowlist",
        ),
    ]
}

fn about_annotations() -> Vec<(Case, &'static str, &'static str)> {
    vec![
        (
            case().annotation("dev.agentbox.polciy", "strict"),
            "AnnotationKey",
            "annotation \"dev.agentbox.polciy\" is not one of agentbox's; did you mean dev.agentbox.policy?; use dev.agentbox.policy, .workspace or a field of `agentbox policy show standard`",
        ),
        (
            case().field("network.limit", "a.test"),
            "NoAnnotation",
            "annotation dev.agentbox.network.limit: annotations cannot set this field, only a policy file of the node",
        ),
        (
            case().field("network.mode", &"x".repeat(70_000)),
            "AnnotationTooLong",
            "annotation dev.agentbox.network.mode: its value is too large: 70000 bytes, the limit is 65536",
        ),
        (
            case().field("network.mode", "lcoal"),
            "AnnotationValue",
            "annotation dev.agentbox.network.mode: \"lcoal\" is not one of none, local, allowlist; did you mean local?",
        ),
        (
            case().field("policy", "unconfined").flag("unconfined"),
            "AnnotationUnconfined",
            "annotation dev.agentbox.policy chooses unconfined, which only `default` of the node's file or --policy may choose; name a policy",
        ),
        (
            case()
                .field("syscalls.allow", "bpf,ptrace")
                .field("syscalls.deny", "ptrace"),
            "AnnotationsDisagree",
            "annotations dev.agentbox.syscalls.allow and dev.agentbox.syscalls.deny disagree: both name ptrace",
        ),
        (
            case()
                .field("workspace", "/w")
                .field("filesystem.workspace", "none"),
            "AnnotationsDisagree",
            "annotations dev.agentbox.workspace and dev.agentbox.filesystem.workspace disagree: a workspace is set, but its access is none",
        ),
        (
            case()
                .field("workspace", "/w")
                .field("filesystem.write", "/w"),
            "AnnotationsDisagree",
            "annotations dev.agentbox.workspace and dev.agentbox.filesystem.write disagree: the workspace is listed as another mount; use filesystem.workspace for its access",
        ),
        (
            case()
                .field("filesystem.mounts", "drop")
                .field("filesystem.write", "/d"),
            "AnnotationsDisagree",
            "annotations dev.agentbox.filesystem.mounts and dev.agentbox.filesystem.write disagree: mounts are listed for writing, but all mounts are dropped",
        ),
        (
            case()
                .field("network.mode", "local")
                .field("network.allow", "a.test"),
            "AnnotationsDisagree",
            "annotations dev.agentbox.network.mode and dev.agentbox.network.allow disagree: hosts are allowed, but the mode reaches none: leave network.mode out, or use allowlist",
        ),
        (
            case()
                .file("ours", "base = \"standard\"\nsyscalls.deny = [\"ptrace\"]")
                .flag("ours")
                .field("syscalls.allow", "ptrace"),
            "AllowsDenied",
            "annotation dev.agentbox.syscalls.allow allows ptrace, but policy file ours.toml denies it (syscalls.deny) and a denial wins: leave it out",
        ),
        (
            case().field("network.allow", "@gone"),
            "NoSuchPreset",
            "annotation dev.agentbox.network.allow: there is no preset @gone; known: @anthropic, @anthropic-api, @bedrock, @bitbucket, @bitbucket-read, @github and 12 more. Define it in gone.toml in the node's preset directory (/etc/agentbox/presets), as docs/policy.md shows",
        ),
        (
            case().field("network.allow", "@githb"),
            "NoSuchPreset",
            "annotation dev.agentbox.network.allow: there is no preset @githb; known: @anthropic, @anthropic-api, @bedrock, @bitbucket, @bitbucket-read, @github and 12 more. Did you mean @github?",
        ),
        (
            case().field("network.allow", "*.com"),
            "RuleNotAllowed",
            "annotation dev.agentbox.network.allow: network.allow may not have *.com: every internet user can register a name below com (the public suffix list); allow.open-egress of the node's file permits it",
        ),
        (
            case().flag("unconfined").field("network.mode", "none"),
            "AnnotationWithoutPolicy",
            "annotation dev.agentbox.network.mode needs a policy, but --policy chose unconfined: set dev.agentbox.policy",
        ),
        (
            case()
                .node("default = \"unconfined\"")
                .field("workspace", "/w"),
            "AnnotationWithoutPolicy",
            "annotation dev.agentbox.workspace needs a policy, but the node's file chose unconfined: set dev.agentbox.policy",
        ),
        (
            case().field("workspace", "/"),
            "RootPath",
            "annotation dev.agentbox.workspace: workspace is /: name a mount point below it",
        ),
        (
            case().field("filesystem.write", "/"),
            "RootPath",
            "annotation dev.agentbox.filesystem.write: filesystem.write is /: name a mount point below it",
        ),
        (
            case().field("syscalls.deny", "ptrcae"),
            "AnnotationValue",
            "annotation dev.agentbox.syscalls.deny: \"ptrcae\" is not a system call's name; did you mean ptrace?",
        ),
    ]
}

fn about_names_and_files() -> Vec<(Case, &'static str, &'static str)> {
    vec![
        (
            case().flag("Strict"),
            "Flag",
            "--policy: \"Strict\" is not a policy's name: 1 to 63 of a-z, 0-9 and -, the first not a -",
        ),
        (
            case().flag("strickt").file("ours", ""),
            "NoSuchPolicy",
            "--policy: there is no policy strickt; did you mean strict?; known: strict, standard, ci, permissive, ours",
        ),
        (
            case().node("ceiling = \"gone\""),
            "NoSuchPolicy",
            "the node's file: there is no policy gone; known: strict, standard, ci, permissive",
        ),
        (
            case().node(
                "[[secret]]\nname = \"key\"\nfile = \"/k\"\npolicies = [\"agent\"]\n\
                 requests = [\"GET https://a.test/\"]\nheader = \"x-api-key: {}\"",
            ),
            "NoSuchPolicy",
            "the node's file: policies of [[secret]] key: there is no policy agent; known: strict, standard, ci, permissive; or \
             make agent.toml in /etc/agentbox/policies",
        ),
        (
            case().node(
                "[[honey]]\nname = \"bait\"\nvalue = \"AKIAIOSFODNN7EXAMPLE\"\npolicies = [\"standrd\"]",
            ),
            "NoSuchPolicy",
            "the node's file: policies of [[honey]] bait: there is no policy standrd; did you mean standard?; known: strict, standard, \
             ci, permissive; or make standrd.toml in /etc/agentbox/policies",
        ),
        (
            case().file("ours", "base = \"gone\"").flag("ours"),
            "NoSuchPolicy",
            "policy file ours.toml: there is no policy gone; known: strict, standard, ci, permissive, ours",
        ),
        (
            case()
                .preset("ours", "[\"a.test\", 7]")
                .field("network.deny", "@ours"),
            "File",
            "preset file ours.toml, line 2 (\"rules = [\\\"a.test\\\", 7]\"): invalid type: integer `7`, expected a string",
        ),
        (
            case().unreadable("ours", "it is not UTF-8").flag("ours"),
            "FileUnreadable",
            "policy file ours.toml: it is not UTF-8",
        ),
        (
            case().file("ours", &"#".repeat(65_537)).flag("ours"),
            "FileTooLong",
            "policy file ours.toml is too large: 65537 bytes, the limit is 65536",
        ),
        (
            case()
                .file("ours", "base = \"strict\"\n[network]\nmode = \"lcoal\"\n")
                .flag("ours"),
            "File",
            "policy file ours.toml, line 3 (\"mode = \\\"lcoal\\\"\"): \"lcoal\" is not one of none, local, allowlist; did you mean local?",
        ),
        (
            case()
                .file("ours", "[network]\nmode = \"none\"")
                .flag("ours"),
            "FieldMissing",
            "policy file ours.toml: filesystem.root is missing, also in `base`",
        ),
        (
            case()
                .file("a", "base = \"b\"")
                .file("b", "base = \"a\"")
                .flag("a"),
            "BaseCycle",
            "policy files name each other as base: a -> b -> a",
        ),
        (
            case().file("a", "base = \"a\"").flag("a"),
            "BaseCycle",
            "policy files name each other as base: a -> a",
        ),
        (
            bases(9).flag("p0"),
            "BaseDepth",
            "policy files name more than 8 bases in a row: p0 -> p1 -> p2 -> p3 -> p4 -> p5 -> p6 -> p7 -> p8 -> strict",
        ),
        (
            case()
                .file("ours", "base = \"strict\"\nsyscalls.deny = [\"nosuch\"]")
                .flag("ours"),
            "File",
            "policy file ours.toml, line 2 (\"syscalls.deny = [\\\"nosuch\\\"]\"): \"nosuch\" is not a system call's name",
        ),
        (
            case()
                .file("ours", "base = \"standard\"\nfilesystem.write = [\"/\"]")
                .flag("ours"),
            "RootPath",
            "policy file ours.toml: filesystem.write is /: name a mount point below it",
        ),
    ]
}

fn about_limits() -> Vec<(Case, &'static str, &'static str)> {
    vec![
        (
            case().field("privileges.capabilities", "NET_RAW"),
            "CapabilityNotAllowed",
            "annotation dev.agentbox.privileges.capabilities: privileges.capabilities names CAP_NET_RAW, which needs `allow.capabilities` in the node's file (docs/policy.md lists the others)",
        ),
        (
            case()
                .file("learning", "base = \"standard\"\nreport.learn = \"on\"")
                .field("policy", "learning"),
            "LearnNotAllowed",
            "policy file learning.toml: report.learn is on, which allows unlisted hosts: `learn = true` under [allow] of the node's file permits it",
        ),
        (
            case()
                .flag("strict")
                .field("network.mode", "local")
                .field("filesystem.scratch", "1GiB"),
            "ExceedsCeiling",
            "the request exceeds the ceiling strict (set by --policy): filesystem.scratch requests 1GiB (annotation), allowed: at most 16MiB; and 1 more field",
        ),
        (
            case()
                .node("ceiling = \"strict\"\ndefault = \"standard\"")
                .file("standard", "base = \"strict\"\nnetwork.mode = \"local\""),
            "DefaultExceedsCeiling",
            "the node's file: its default standard exceeds its own ceiling strict: network.mode requests local (policy file standard.toml), allowed: at most none",
        ),
        (
            case().field("privileges.set-id", "on"),
            "Loosened",
            "policy standard (the default) is exceeded by annotations: privileges.set-id requests on (annotation), allowed: at most auto; annotations = [\"privileges.set-id\"] in [allow] of the node's file permits it, and so does a ceiling there",
        ),
        (
            podman()
                .field("policy", "strict")
                .field("network.allow", "a.test"),
            "Loosened",
            "policy strict (annotation) is exceeded by annotations: network.mode requests allowlist (annotation), allowed: at most none; and 1 more field; an image may set it: annotations = [\"network.mode\", \"network.allow\"] in [allow] of the node's file or --policy permits it",
        ),
        (
            case()
                .node("[allow]\nannotations = [\"filesystem.write\"]")
                .field("policy", "strict")
                .field("filesystem.write", "+,/data"),
            "WriteDropped",
            "policy strict (annotation) is exceeded by annotations: filesystem.write requests /data (annotation), and built-in policy strict drops all mounts: name another policy",
        ),
        (
            podman().field("policy", "permissive"),
            "ChosenByImage",
            "annotation dev.agentbox.policy exceeds policy standard (the default): policy permissive has more, such as filesystem.scratch; an image may set it: annotations = [\"policy\"] in [allow] of the node's file or --policy permits it",
        ),
        (
            podman().field("workspace", "/ref"),
            "ChosenByImage",
            "annotation dev.agentbox.workspace exceeds policy standard (the default): it makes /ref the mount that may be written; an image may set it: annotations = [\"workspace\"] in [allow] of the node's file or --policy permits it",
        ),
        (
            case()
                .file("ours", "base = \"standard\"\nnetwork.on-unknown = \"ask\"")
                .flag("ours"),
            "NothingToApprove",
            "network.on-unknown is ask, but the ceiling ours (set by --policy) allows no approval: its network.limit is empty; set one, such as limit = [\"*\"]",
        ),
        (
            case()
                .file(
                    "ours",
                    "base = \"standard\"\nnetwork = { mode = \"local\", allow = [\"a.test\"] }",
                )
                .flag("ours"),
            "FileDisagrees",
            "policy file ours.toml contradicts itself: hosts are allowed, but the mode reaches none: leave network.mode out, or use allowlist",
        ),
    ]
}

/// A container of podman with only the annotation that podman always sets.
pub(super) fn podman() -> Case {
    case().annotation("io.container.manager", "libpod")
}

/// `p0` based on `p1` and so on to a built-in policy: this many bases in a row.
pub(super) fn bases(number: usize) -> Case {
    (0..number).fold(case(), |case, index| {
        let base = match index + 1 {
            last if last == number => "strict".to_owned(),
            next => format!("p{next}"),
        };
        case.file(&format!("p{index}"), &format!("base = \"{base}\""))
    })
}

#[test]
fn every_error_names_the_place_the_fault_and_the_allowed_values() {
    let mut seen = BTreeSet::new();
    for (case, name, message) in table() {
        let error = case.error();
        assert_eq!(
            (variant(&error), error.to_string().as_str()),
            (name, message)
        );
        seen.insert(name);
    }
    assert_eq!(seen.len(), VARIANTS, "{seen:?}");
}

#[test]
fn every_error_is_one_readable_line() {
    for (case, _, _) in table() {
        let message = case.error().to_string();
        assert!(!message.contains(char::is_control) && !message.ends_with('.'));
        let length = message.chars().count();
        assert!(length <= MESSAGE, "{length}: {message}");
    }
}

/// However long the names are, the message stays readable.
#[test]
fn long_lists_and_names_do_not_make_long_messages() {
    let hosts: Vec<String> = (0..60)
        .map(|i| format!("internal:host-{i}.example.test"))
        .collect();
    let hosts = hosts.join(",");
    let long = "x".repeat(63);
    let many = (0..60).fold(case(), |case, i| {
        case.file(&format!("policy-of-team-{i}"), "")
    });
    let every = ["filesystem.scratch", "network.connections", "network.hosts"]
        .into_iter()
        .zip(["64GiB", "1000000", "1000000"]);
    let every = |case: Case| {
        every
            .clone()
            .fold(case, |case, (field, value)| case.field(field, value))
    };
    for case in [
        case().field("network.allow", &hosts),
        case().field("network.deny", &format!("{}!", "y".repeat(9000))),
        podman()
            .field("network.allow", &hosts)
            .field("network.hosts", "4096"),
        every(case())
            .field("network.allow", &hosts)
            .field("syscalls.allow", "keyctl,bpf"),
        every(podman()).field("network.allow", &hosts),
        case().flag("strict").field("policy", "permissive"),
        podman()
            .field("policy", "strict")
            .field("network.allow", "evil.example")
            .field("filesystem.mounts", "keep")
            .field("filesystem.root", "ephemeral"),
        case().flag("strict").field(
            "network.inbound",
            &(1..65).map(|p| p.to_string()).collect::<Vec<_>>().join(","),
        ),
        many.flag(&long),
        bases(9)
            .file("p8", &format!("base = \"{long}\""))
            .flag("p0"),
        case().field("filesystem.write", "relative"),
        case().field("filesystem.ephemeral", "tmpp"),
        case()
            .file(
                "ours",
                "base = \"standard\"\nannotations.loosen = [\"mounts\"]",
            )
            .flag("ours"),
        case()
            .file(
                "ours",
                &format!("base = \"standard\"\n[network]\nallow = [\"{hosts}\"]"),
            )
            .flag("ours"),
        case()
            .file("ours", "base = \"standard\"\n[netwrok]\nallow = []")
            .flag("ours"),
    ] {
        let message = case.error().to_string();
        let length = message.chars().count();
        assert!(length <= MESSAGE, "{length}: {message}");
    }
}

#[test]
fn the_error_has_the_fields_that_its_message_leaves_out() {
    let error = case().flag("strict").field("policy", "permissive").error();
    assert!(error.to_string().contains("more fields"), "{error}");
    let fields: Vec<String> = error.over().iter().map(ToString::to_string).collect();
    assert!(fields.len() > 10, "{fields:?}");
    assert!(
        fields
            .iter()
            .any(|field| field.starts_with("limits.memory requests unlimited"))
    );
    assert_eq!(case().field("policy", "strickt").error().over(), []);
}
