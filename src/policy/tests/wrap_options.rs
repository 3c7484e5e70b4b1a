//! Requests of the user of `wrap`.

use super::*;

fn origin(resolved: &ResolvedPolicy, field: Field) -> String {
    resolved.origins[&field].to_string()
}

fn hosts(resolved: &ResolvedPolicy) -> Vec<String> {
    let allow = resolved.policy.network.allow.iter();
    allow.map(ToString::to_string).collect()
}

fn own(text: &str) -> PolicyOption {
    PolicyOption::File {
        path: "./dir/mine.toml".to_owned(),
        text: text.to_owned(),
    }
}

#[test]
fn a_preset_that_is_missing_has_a_cure_in_wraps_words() {
    let error = case().allow("@npm").error().to_string();
    assert!(error.ends_with("; or list hosts: --allow HOST"), "{error}");
    // The control: an annotation of an engine.
    let error = case().field("network.allow", "@npm").error().to_string();
    assert!(
        error.contains("dev.agentbox.network.allow=+,HOST"),
        "{error}"
    );
}

#[test]
fn options_add_to_the_policy_and_say_so() {
    let resolved = case()
        .allow("a.test")
        .allow("b.test:22,c.test")
        .set("limits.pids=99")
        .resolved();
    assert_eq!(hosts(&resolved), ["a.test", "b.test:22", "c.test"]);
    assert_eq!(resolved.policy.network.mode, NetworkMode::Allowlist);
    assert_eq!(origin(&resolved, Field::NetworkAllow), "option --allow");
    assert_eq!(origin(&resolved, Field::NetworkMode), "option --allow");
    assert_eq!(
        origin(&resolved, Field::LimitsPids),
        "option --set limits.pids"
    );
    // `--allow` adds to the policy's list; `--set` replaces it.
    let more = case()
        .chosen(PolicyOption::Named("permissive".to_owned()))
        .allow("a.test")
        .resolved();
    assert!(hosts(&more).len() > 4, "{:?}", hosts(&more));
    let instead = case()
        .chosen(PolicyOption::Named("permissive".to_owned()))
        .set("network.allow=b.test")
        .allow("a.test")
        .resolved();
    assert_eq!(hosts(&instead), ["a.test", "b.test"]);
    let nothing = case().set("network.allow=").allow("a.test").resolved();
    assert_eq!(hosts(&nothing), ["a.test"]);
}

/// The node's proxy wins. A proxy of the user's would get past an operator's list of hosts.
#[test]
fn the_users_proxy_counts_where_the_node_permits_it() {
    let own = |name: &str| (name == "HTTPS_PROXY").then(|| "http://me:pw@own.test:1".to_owned());
    let own = UserProxy::of(own).unwrap().unwrap().upstream();
    let upstream = |node: &str, flag: Option<&str>| {
        let mut case = case().node(node).allow("a.test");
        if let Some(flag) = flag {
            case = case.flag(flag);
        }
        case.asked.proxy = Some(own.clone());
        let upstream = case.resolved().upstream;
        upstream.map(|upstream| upstream.to_string())
    };
    let (users, nodes) = (Some("http://own.test:1"), Some("http://node.test:2"));
    let on = "[network]\nupstream-from-user = \"on\"\n";
    let off = "[network]\nupstream-from-user = \"off\"\n";
    let ceiling = "ceiling = \"permissive\"\n";
    let named = "[network]\nupstream-proxy = \"http://node.test:2\"\nupstream-from-user = \"on\"\n";
    for (node, flag, expected) in [
        ("", None, users),
        (on, None, users),
        (off, None, None),
        (ceiling, None, None),
        (&format!("{ceiling}{on}"), None, users),
        ("", Some("permissive"), None),
        (named, None, nodes),
    ] {
        assert_eq!(
            upstream(node, flag).as_deref(),
            expected,
            "{node:?} {flag:?}"
        );
    }
    let mut case = case()
        .node("[network]\nupstream-names = \"proxy\"\n")
        .allow("a.test");
    case.asked.proxy = Some(own);
    let upstream = case.resolved().upstream.unwrap();
    assert_eq!(upstream.names, UpstreamNames::Proxy);
}

/// Former fault: after one `project` answer `--policy strict` reached that host.
#[test]
fn earlier_answers_give_no_network_to_a_policy_without_one() {
    let answered = |policy: &str| {
        let mut case = case().chosen(PolicyOption::Named(policy.to_owned()));
        let answer = FieldOption::adding("allow", Field::NetworkAllow, "a.test");
        case.asked.answers = vec![answer.in_file("allow", "answers.toml")];
        case
    };
    let network = |case: Case| {
        let resolved = case.resolved();
        (resolved.policy.network.mode, hosts(&resolved))
    };
    let a = || vec!["a.test".to_owned()];
    assert_eq!(network(answered("strict")), (NetworkMode::None, vec![]));
    assert_eq!(network(answered("standard")), (NetworkMode::Allowlist, a()));
    // A host on the command line names that host alone.
    let b = answered("strict").allow("b.test");
    assert_eq!(
        network(b),
        (NetworkMode::Allowlist, vec!["b.test".to_owned()])
    );
    let asks = answered("strict").asked(FieldOption::setting(
        "--ask",
        Field::NetworkOnUnknown,
        "ask",
    ));
    assert_eq!(network(asks), (NetworkMode::Allowlist, a()));
    // A setting takes the network away; `--ask` on the line gives the answers back.
    let set = |mut case: Case| {
        let none = FieldOption::set("network.mode=none").unwrap();
        case.asked.settings = vec![vec![none.in_file("set", "config.toml")]];
        case
    };
    assert_eq!(
        network(set(answered("standard"))),
        (NetworkMode::None, vec![])
    );
    let ask = || FieldOption::setting("--ask", Field::NetworkOnUnknown, "ask");
    let asked = set(answered("standard")).asked(ask());
    assert_eq!(network(asked), (NetworkMode::Allowlist, a()));
    // Settings are no answer, and a ceiling without a network is no error.
    let mut settings = answered("strict");
    settings.asked.settings = vec![std::mem::take(&mut settings.asked.answers)];
    assert_eq!(network(settings), (NetworkMode::Allowlist, a()));
    let mut ceiling = answered("strict").flag("strict");
    ceiling.asked.policy = None;
    assert_eq!(network(ceiling).0, NetworkMode::None);
}

#[test]
fn the_last_set_counts() {
    let resolved = case()
        .set("limits.pids=99")
        .set("limits.pids=77")
        .resolved();
    assert_eq!(resolved.policy.limits.pids.to_string(), "77");
}

#[test]
fn a_named_policy_is_the_choice_and_no_ceiling() {
    let resolved = case()
        .chosen(PolicyOption::Named("strict".to_owned()))
        .set("filesystem.scratch=1GiB")
        .resolved();
    assert_eq!(resolved.policy.name.as_str(), "strict");
    assert_eq!(resolved.chosen_by, Origin::Flag);
    assert_eq!(resolved.ceilings.len(), 1);
    // The call's own `--policy` is still a ceiling.
    let error = case()
        .flag("strict")
        .set("filesystem.scratch=1GiB")
        .error()
        .to_string();
    assert!(
        error.contains("exceeds the ceiling strict (set by --policy)"),
        "{error}"
    );
    assert!(error.contains("option --set filesystem.scratch"), "{error}");
}

/// Without an operator's ceiling the user reaches the private hosts that the user reaches, and an engine's container does not.
#[test]
fn a_user_names_private_hosts_and_an_annotation_does_not() {
    let resolved = case()
        .allow("internal:wiki,internal:db.corp.test:5432")
        .resolved();
    assert_eq!(
        hosts(&resolved),
        ["internal:db.corp.test:5432", "internal:wiki"]
    );
    let error = case().field("network.allow", "internal:wiki").error();
    assert!(
        matches!(error, PolicyError::ExceedsCeiling { .. }),
        "{error}"
    );
}

/// Former fault: the address of this machine's loopback led to root's files alone.
#[test]
fn a_port_of_this_machine_names_connect() {
    for (rules, cure) in [
        ("127.0.0.1:5432", "--connect 5432"),
        ("[::1]:5432", "--connect 5432"),
        ("127.0.0.1", "--connect 443"),
        ("node:localhost:5432", "--connect 5432"),
    ] {
        let error = case().allow(rules).error();
        assert!(error.to_string().ends_with(cure), "{rules}: {error}");
        // With them in place the address would be the workload's own.
        assert!(error.files_that_permit().is_none());
    }
    let other = case().allow("10.0.0.5:5432").error().to_string();
    assert!(!other.contains("--connect"), "{other}");
}

/// What the message says can be pasted into root's files, and permits it.
#[test]
fn a_mode_or_a_policy_beyond_the_nodes_ceiling_has_the_files_lines() {
    let strict = "ceiling = \"strict\"\ndefault = \"strict\"";
    let policy = |node: &str| case().node(node).field("policy", "permissive");
    let said = policy(strict).error().to_string();
    assert!(said.contains("more fields"), "{said}");
    let cure = "; root permits it by ceiling = \"permissive\" in config.toml";
    assert!(said.ends_with(cure), "{said}");
    policy("ceiling = \"permissive\"").resolved();

    let mode = || case().set("privileges.set-id=on");
    let said = mode().node("ceiling = \"standard\"").error().to_string();
    let cure = "; needs ceiling=\"wider\" in config.toml and base=\"standard\", privileges.set-id=\"on\" in policies/wider.toml";
    assert!(said.ends_with(cure), "{said}");
    let wider = "base=\"standard\"\nprivileges.set-id=\"on\"";
    let node = mode().node("ceiling=\"wider\"");
    node.file("wider", wider).resolved();
    let node = mode().node("ceiling=\"ours\"");
    let said = node.file("ours", "base = \"standard\"").error().to_string();
    // Not in the ceiling's own file, which may be the policy of other runs.
    let cure = "; needs ceiling=\"wider\" in config.toml and base=\"ours\", privileges.set-id=\"on\" in policies/wider.toml";
    assert!(said.ends_with(cure), "{said}");
    // A limit is one word, too.
    let limit = || case().set("limits.pids=80000").node("ceiling = \"wider\"");
    let base = "base=\"standard\"\n";
    let said = limit().file("wider", base).error().to_string();
    let cure = "; needs ceiling=\"wider-still\" in config.toml and base=\"wider\", limits.pids=80000 in policies/wider-still.toml";
    assert!(said.ends_with(cure), "{said}");
    let still = limit().file("wider", base).node("ceiling=\"wider-still\"");
    let wider = "base=\"wider\"\nlimits.pids=80000";
    still.file("wider-still", wider).resolved();
    let both = mode().set("limits.pids=80000");
    let said = both.node("ceiling = \"standard\"").error().to_string();
    let cure = "; root permits them by a wider ceiling in config.toml";
    assert!(said.ends_with(cure), "{said}");
    // A ceiling by --policy was set on purpose.
    let said = mode().flag("standard").error().to_string();
    assert!(
        !said.contains("needs") && !said.contains("permits"),
        "{said}"
    );
}

#[test]
fn options_need_no_permission_and_exceed_no_ceiling() {
    // An annotation has no permission for this.
    case().field("privileges.set-id", "on").error();
    let resolved = case().set("privileges.set-id=on").resolved();
    assert_eq!(resolved.policy.privileges.set_id, SetIdRule::On);
    for (case, field) in [
        (case().allow("node:wiki"), "network.allow"),
        (case().allow("10.0.0.5:5432"), "network.allow"),
        (
            case()
                .node("ceiling = \"permissive\"")
                .allow("internal:wiki"),
            "network.allow",
        ),
        (
            case().flag("permissive").allow("internal:wiki"),
            "network.allow",
        ),
        (case().set("filesystem.scratch=17GiB"), "filesystem.scratch"),
        (
            case()
                .node("ceiling = \"standard\"")
                .set("privileges.set-id=on"),
            "privileges.set-id",
        ),
        (
            case()
                .chosen(own("base = \"permissive\""))
                .node("ceiling = \"standard\"\ndefault = \"standard\""),
            "network.mode",
        ),
    ] {
        let error = case.error();
        assert!(
            matches!(error, PolicyError::ExceedsCeiling { .. }),
            "{error}"
        );
        assert!(
            error
                .over()
                .iter()
                .any(|o| o.exceeded.field.as_str() == field)
        );
        assert!(!error.to_string().contains("annotation"), "{error}");
    }
    // The remedy can be pasted.
    let wanted = || case().allow("node:db.test:5432, a.test");
    let files = wanted().error().files_that_permit().unwrap();
    let (_, policy) = files.split_once("wider.toml\n").unwrap();
    assert!(
        files.starts_with("# /etc/agentbox/config.toml\nceiling = \"wider\"\n"),
        "{files}"
    );
    wanted()
        .node("ceiling = \"wider\"")
        .file("wider", policy)
        .resolved();
    // For another field, or a ceiling of the node, the reader must decide.
    for other in [
        case().set("filesystem.scratch=64GiB"),
        wanted().node("ceiling = \"standard\""),
    ] {
        assert_eq!(other.error().files_that_permit(), None);
    }
    // An option cannot set what no policy may have.
    let error = case().set("privileges.capabilities=NET_RAW").error();
    assert!(
        matches!(error, PolicyError::CapabilityNotAllowed { .. }),
        "{error}"
    );
}

#[test]
fn a_file_of_the_user_is_not_a_policy_of_the_node() {
    let resolved = case()
        .chosen(own("base = \"strict\"\nlimits.pids = \"99\""))
        .resolved();
    assert_eq!(resolved.policy.name.as_str(), "mine");
    assert_eq!(
        origin(&resolved, Field::LimitsPids),
        "policy file ./dir/mine.toml"
    );
    // Even with the name of its base or of the ceiling, which stays the node's.
    let like = |name: &str, text: &str| {
        case().chosen(PolicyOption::File {
            path: format!("/p/{name}.toml"),
            text: text.to_owned(),
        })
    };
    let resolved = like("strict", "base = \"strict\"\nlimits.pids = \"99\"").resolved();
    assert_eq!(resolved.policy.limits.pids.to_string(), "99");
    let wide = "base = \"permissive\"\nfilesystem.scratch = \"32GiB\"";
    let error = like("permissive", wide).error();
    assert!(
        matches!(error, PolicyError::ExceedsCeiling { .. }),
        "{error}"
    );
    let error = like("No Name", "").error();
    assert!(matches!(error, PolicyError::FileName { .. }), "{error}");
    let error = like("broken", "\nnonsense = 1").error().to_string();
    assert!(
        error.starts_with("policy file /p/broken.toml, line 2"),
        "{error}"
    );
}

#[test]
fn denials_are_added() {
    let resolved = case()
        .chosen(own("base = \"standard\"\nnetwork.deny = [\"x.test\"]"))
        .asked(FieldOption::adding("--deny", Field::NetworkDeny, "y.test"))
        .set("network.deny=z.test")
        .resolved();
    assert_eq!(resolved.policy.network.deny.len(), 3);
}

#[test]
fn set_knows_the_fields() {
    let error = |text: &str| FieldOption::set(text).unwrap_err().to_string();
    assert_eq!(
        error("limits.pids"),
        "option --set \"limits.pids\" is not FIELD=VALUE, such as limits.memory=4GiB"
    );
    assert_eq!(
        error("limits.pid=3"),
        "option --set: there is no field \"limits.pid\"; did you mean limits.pids?; `agentbox policy show standard` \
         prints all of them"
    );
    assert!(error("memory=3").contains("did you mean limits.memory?"));
    assert_eq!(
        error("network.limit=*"),
        "network.limit is set by a policy file alone: write one and name it with --policy FILE"
    );
}

#[test]
fn options_survive_the_record() {
    let asked = case()
        .chosen(own("base = \"strict\""))
        .allow("a.test")
        .asked;
    let saved = serde_json::to_string(&asked).unwrap();
    assert_eq!(serde_json::from_str::<WrapOptions>(&saved).unwrap(), asked);
}

#[test]
fn settings_lie_below_the_options_and_lists_add_up() {
    let setting = |field, value: &str, file: &str| {
        FieldOption::setting("", field, value).in_file("set", file)
    };
    let allow = |host: &str, file: &str| {
        FieldOption::adding("", Field::NetworkAllow, host).in_file("allow", file)
    };
    let mut case = case().allow("line.test").set("limits.pids=77");
    case.asked.settings = vec![
        vec![
            allow("mine.test", "/m"),
            setting(Field::LimitsPids, "99", "/m"),
            setting(Field::LimitsMemory, "1GiB", "/m"),
            setting(Field::NetworkUpload, "1MiB", "/m"),
        ],
        vec![
            allow("project.test", "/p"),
            setting(Field::NetworkUpload, "2MiB", "/p"),
        ],
    ];
    let resolved = case.resolved();
    assert_eq!(hosts(&resolved), ["line.test", "mine.test", "project.test"]);
    assert_eq!(origin(&resolved, Field::NetworkAllow), "option --allow");
    assert_eq!(resolved.policy.limits.pids.to_string(), "77");
    assert_eq!(origin(&resolved, Field::LimitsMemory), "setting set of /m");
    assert_eq!(origin(&resolved, Field::NetworkUpload), "setting set of /p");
    // The ceiling applies to each of them.
    let mut case = super::case();
    case.asked.settings = vec![vec![setting(Field::FilesystemScratch, "17GiB", "/m")]];
    let error = case.error().to_string();
    assert!(error.contains("setting set of /m"), "{error}");
    // The error names the file of a bad value.
    let mut case = super::case();
    case.asked.settings = vec![vec![setting(Field::LimitsPids, "many", "/m")]];
    let error = case.error().to_string();
    assert!(error.starts_with("setting set of /m: "), "{error}");
}

#[test]
fn a_policy_named_by_a_file_has_the_file_as_origin() {
    let mut case = case().chosen(PolicyOption::Named("strict".to_owned()));
    case.asked.policy_of = Some("/p".to_owned());
    let by = case.resolved().chosen_by.to_string();
    assert_eq!(by, "setting policy of /p");
}

#[test]
fn a_ceiling_takes_the_users_own_secrets_away_also_from_a_named_policy() {
    let secret: UserSecret = toml::from_str(
        "name = \"k\"\nfrom-env = \"KEY\"\nrequests = [\"GET https://a.test/x\"]\nheader = \"x-api-key: {}\"",
    )
    .unwrap();
    let with = |case: Case| {
        let mut case = case.allow("GET https://a.test/x");
        case.asked.secrets = vec![secret.clone().within("/h".as_ref()).unwrap()];
        let resolved = case.resolved();
        (
            resolved.secrets.len(),
            origin(&resolved, Field::NetworkUserSecrets),
        )
    };
    let named = |name: &str| case().chosen(PolicyOption::Named(name.to_owned()));
    let closed = "base = \"permissive\"\n[network]\nuser-secrets = \"off\"\n";
    assert_eq!(with(case()).0, 1);
    assert_eq!(with(named("strict")).0, 1);
    assert_eq!(with(case().chosen(own("base = \"standard\""))).0, 1);
    for case in [
        case(),
        named("standard"),
        case().chosen(own(
            "base = \"standard\"\n[network]\nuser-secrets = \"on\"\n",
        )),
    ] {
        let under = case.file("low", closed).node("ceiling = \"low\"");
        assert_eq!(with(under), (0, "the ceiling low".to_owned()));
    }
}

/// The values of a field are joined. `bad.test` would else be a part of the path that the first one begins.
#[test]
fn no_quote_of_one_option_ends_in_another() {
    let deny = |hosts: &str| FieldOption::adding("--deny", Field::NetworkDeny, hosts);
    let error = case()
        .allow("a.test")
        .asked(deny("\"GET https://p.test/x"))
        .asked(deny("bad.test"))
        .asked(deny("y\""))
        .error()
        .to_string();
    assert!(error.contains("each quote ends"), "{error}");
    let whole = case()
        .allow("a.test")
        .asked(deny("\"GET https://p.test/x,y\""))
        .asked(deny("bad.test"))
        .resolved();
    let denied: Vec<String> = (whole.policy.network.deny.iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(denied, ["bad.test", "GET https://p.test/x,y"]);
}
