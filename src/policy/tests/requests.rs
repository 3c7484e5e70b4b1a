//! Request rules in a policy's lists, and within ceilings.

use super::*;

/// A node with a ceiling, and an annotation's request.
fn under(ceiling: &str, asked: &str) -> Case {
    let file = format!("base = \"standard\"\nnetwork = {{ mode = 'allowlist', {ceiling} }}");
    case()
        .node("ceiling = \"ceiling\"")
        .file("ceiling", &file)
        .field("policy", "ceiling")
        .field("network.allow", asked)
}

#[test]
fn an_annotation_and_a_file_list_requests_alike() {
    let asked = "a.test.example, GET,HEAD https://api.test.example/repos/acme/**";
    let annotated = under("limit = ['*']", asked).resolved().policy.network;
    let file = "base = \"standard\"\nnetwork.allow = [\"GET,HEAD https://api.test.example/repos/acme/**\", \"a.test.example\"]";
    let file = case().file("ours", file).flag("ours").resolved();
    assert_eq!(annotated.allow, file.policy.network.allow);
    assert_eq!(annotated.allow.len(), 2);
    assert_eq!(annotated.mode, NetworkMode::Allowlist);
}

#[test]
fn a_ceiling_compares_requests_exactly_and_names_one_beyond_it() {
    let api = "https://api.test.example";
    for (ceiling, asked) in [
        ("allow = ['* https://api.test.example']", "GET,POST {}/x/**"),
        ("limit = ['GET {}/a/**', 'POST {}/**']", "GET,POST {}/a/b"),
        ("limit = ['GET {}/**', 'POST {}/a/**']", "GET,POST {}/a/**"),
        ("limit = ['*.test.example']", "DELETE {}/x"),
        ("allow = ['api.test.example']", "DELETE {}/x"),
        (
            "limit = ['api.test.example']",
            "GET http://api.test.example/x",
        ),
        ("limit = ['GET https://*.test.example/**']", "GET {}/x"),
    ] {
        let case = under(&ceiling.replace("{}", api), &asked.replace("{}", api));
        assert!(
            case.resolve().is_ok(),
            "{asked} in {ceiling}: {:?}",
            case.resolve()
        );
    }
    for (ceiling, asked, witness) in [
        ("limit = ['GET {}/**']", "GET,POST {}/x", "POST {}/x"),
        (
            "limit = ['GET {}/repos/acme/**']",
            "GET {}/repos/**",
            "GET {}/repos/",
        ),
        (
            "limit = ['GET {}/**']",
            "GET http://api.test.example/x",
            "GET http://api.test.example/x",
        ),
        ("limit = ['GET {}/**']", "GET {}:8443/x", "GET {}:8443/x"),
        ("allow = ['api.test.example:22']", "GET {}/x", "GET {}/x"),
        // No request rule covers a connection, which can carry anything.
        (
            "limit = ['* {}/**']",
            "api.test.example",
            "api.test.example",
        ),
        (
            "limit = ['* https://*.test.example/**']",
            "*.test.example:80",
            "*.test.example:80",
        ),
    ] {
        let case = under(&ceiling.replace("{}", api), &asked.replace("{}", api));
        let error = case.resolve().unwrap_err().to_string();
        let witness = witness.replace("{}", api);
        assert!(error.contains(&witness), "{asked} in {ceiling}: {error}");
    }
}

/// A container can add a denial of requests; no list removes one.
#[test]
fn denials_of_requests_stay() {
    let policy = under(
        "allow = ['api.test.example'], deny = ['DELETE https://api.test.example']",
        "api.test.example",
    );
    let network = policy.field("network.deny", "PUT,POST https://api.test.example/admin/**");
    let network = network.resolved().policy.network;
    let denied: Vec<String> = network.deny.iter().map(ToString::to_string).collect();
    assert_eq!(
        denied,
        [
            "DELETE https://api.test.example/**",
            "POST,PUT https://api.test.example/admin/**"
        ]
    );
}

/// The hosts that no connection rule may name, no request rule may name.
#[test]
fn hosts_of_strangers_need_the_nodes_permission() {
    for rule in [
        "GET https://*/**",
        "GET https://*.github.io/**",
        "GET https://localhost/",
    ] {
        let file = format!("base = \"standard\"\nnetwork.allow = [\"{rule}\"]");
        let case = case().file("ours", &file).flag("ours");
        let error = case.resolve().unwrap_err().to_string();
        assert!(error.contains(rule), "{rule}: {error}");
    }
}

#[test]
fn secrets_are_for_the_nodes_policies_of_their_names() {
    let secret = |policies: &str| {
        format!(
            "[[secret]]\nname = 'model'\nfile = '/etc/agentbox/model-key'\npolicies = {policies}\n\
             requests = ['POST https://api.test.example/v1/**']\nheader = 'x-api-key: {{}}'"
        )
    };
    let names = |case: Case| -> Vec<String> {
        let secrets = case.resolved().secrets;
        secrets
            .iter()
            .map(|secret| secret.name.to_string())
            .collect()
    };
    let on = |policies: &str| case().node(&secret(policies));
    assert_eq!(names(on("['strict']").flag("strict")), ["model"]);
    assert_eq!(
        names(on("['strict', 'standard']").flag("standard")),
        ["model"]
    );
    assert_eq!(names(on("['strict']").flag("standard")), [""; 0]);
    // A user's own file of that name is not the node's policy.
    let own = PolicyOption::File {
        path: "/home/a/strict.toml".to_owned(),
        text: "base = \"standard\"".to_owned(),
    };
    assert_eq!(names(on("['strict']").chosen(own)), [""; 0]);
    let error = on("['stirct']").flag("strict").error().to_string();
    assert!(
        error.contains("stirct") && error.contains("strict"),
        "{error}"
    );
}
