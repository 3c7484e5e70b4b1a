//! Policies: permission to loosen, the narrowed default, an operator's mistakes (F-C1, N-H1, N-M3, N-M4, U-B).

use std::os::unix::fs::PermissionsExt;

use crate::command::{Finished, run};
use crate::direct::{Node, program};
use crate::docker::allowlist::{Agent, internet, witness};
use crate::docker::node::NodeFiles;
use crate::docker::{Docker, runtime};

fn agentbox(arguments: &[&str]) -> Finished {
    run(&program(), arguments)
}

/// A bundle as podman writes it: its own mark, and annotations of unknown origin.
fn as_podman(node: &Node, name: &str, annotations: &[(&str, &str)]) -> Finished {
    let mut config = node.config(&["true"]);
    config["annotations"]["io.container.manager"] = "libpod".into();
    for (key, value) in annotations {
        config["annotations"][format!("dev.agentbox.{key}")] = (*value).into();
    }
    let bundle = node.bundle(name, &config);
    node.call(&["run", "--bundle", &bundle, name])
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn an_image_that_podman_mixes_in_loosens_nothing() {
    let node = Node::new();
    as_podman(&node, "plain", &[]).ok();
    as_podman(&node, "narrower", &[("policy", "strict")]).ok();
    let image = [
        ("policy", "strict"),
        ("network.allow", "evil.example"),
        ("filesystem.mounts", "keep"),
        ("filesystem.root", "ephemeral"),
    ];
    for (name, annotations, why) in [
        ("loosened", &image[..], "is exceeded by annotations"),
        (
            "loosened-default",
            &image[1..],
            "is exceeded by annotations",
        ),
        (
            "chosen",
            &[("policy", "permissive")],
            "exceeds policy standard",
        ),
        (
            "workspace",
            &[("workspace", "/ref")],
            "it makes /ref the mount",
        ),
    ] {
        let refused = as_podman(&node, name, annotations).failed();
        assert!(refused.contains(why), "{name}: {refused}");
        assert!(refused.contains("an image may set it"), "{name}: {refused}");
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_denial_in_the_ceiling_leaves_the_default_as_tight_as_it_was() {
    let docker = Docker::alone();
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, "ceiling = \"lab\"\n");
    let data = std::env::temp_dir().join("agentbox-review-n-h1");
    std::fs::create_dir_all(&data).unwrap();
    let volume = format!("{}:/var/data", data.display());
    let look = "touch /var/data/x 2>&1; cat /sys/class/net/*/address | wc -l";
    for deny in [
        "",
        "[network]\ndeny = [\"pastebin.com\"]\n",
        "[syscalls]\ndeny = [\"ptrace\"]\n",
    ] {
        let text = format!("base = \"permissive\"\n{deny}");
        node.write("policies/lab.toml", 0o644, &text);
        let seen = docker.run(
            &[runtime(), "-v", &volume, "test-musl"],
            &["sh", "-c", look],
        );
        assert_eq!(
            seen.stdout.matches("Read-only file system").count(),
            1,
            "{deny}: {seen}"
        );
        // Chosen by name, it is the same policy with the ceiling's deny rules.
        let named = ["--annotation", "dev.agentbox.policy=standard", "test-musl"];
        docker
            .run(&[&[runtime()], &named[..]].concat(), &["true"])
            .ok();
    }
    let control = docker.run(
        &["--runtime=runc", "-v", &volume, "test-musl"],
        &["sh", "-c", look],
    );
    assert_eq!(control.stdout.matches("Read-only").count(), 0, "{control}");
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn without_leave_an_annotation_loosens_nothing_and_the_error_says_who_gives_it() {
    let docker = Docker::alone();
    let run = |annotation: &str| {
        let annotation = format!("dev.agentbox.{annotation}");
        docker.run(
            &[runtime(), "--annotation", &annotation, "test-musl"],
            &["true"],
        )
    };
    run("network.allow=api.example.test").ok();
    run("filesystem.scratch=512MiB").ok();
    run("syscalls.allow=ptrace").ok();
    for (annotation, field) in [
        ("filesystem.mounts=keep", "filesystem.mounts"),
        ("filesystem.search=partial", "filesystem.search"),
        ("filesystem.credentials=.npmrc", "filesystem.credentials"),
        ("privileges.set-id=on", "privileges.set-id"),
    ] {
        let refused = run(annotation).failed();
        let leave =
            format!("annotations = [\\\"{field}\\\"] in [allow] of the node's file permits it");
        let said = refused.replace('"', "\\\"").replace("\\\\\"", "\\\"");
        assert!(said.contains(&leave), "{annotation}: {refused}");
    }
    let mut node = NodeFiles::default();
    node.write(
        "config.toml",
        0o644,
        "[allow]\nannotations = [\"filesystem.search\"]\n",
    );
    run("filesystem.search=partial").ok();
    run("filesystem.mounts=keep").failed();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn what_is_named_and_not_there_or_anybodys_to_write_starts_nothing() {
    let docker = Docker::alone();
    let wrap = |config: &str| agentbox(&["--config", config, "wrap", "--", "true"]);
    let refused = wrap("/nope/config.toml").failed();
    assert!(
        refused.contains("--config names it, and it is not there"),
        "{refused}"
    );

    let mut node = NodeFiles::default();
    let create = || docker.run(&[runtime(), "test-musl"], &["true"]);
    create().ok();
    for key in ["policy-dir", "preset-dir"] {
        let text = format!("{key} = \"/etc/agentbox/polices\"\n");
        node.write("config.toml", 0o644, &text);
        let refused = create().failed();
        assert!(
            refused.contains("names it, and it is not there"),
            "{key}: {refused}"
        );
    }
    node.write("config.toml", 0o666, "");
    let refused = create().failed();
    assert!(
        refused.contains("others than root may write it"),
        "{refused}"
    );
    node.write("config.toml", 0o644, "");
    create().ok();
    node.write("policies/standard.toml", 0o666, "base = \"standard\"\n");
    let refused = create().failed();
    assert!(
        refused.contains("others than root may write it"),
        "{refused}"
    );
    node.write("policies/standard.toml", 0o644, "base = \"standard\"\n");
    create().ok();
    let open = |path: &str, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    // A user who can add or remove files could choose the policy.
    for (path, mode) in [
        ("/etc/agentbox/policies", 0o777),
        ("/etc/agentbox/policies", 0o1777),
        ("/etc/agentbox", 0o777),
    ] {
        open(path, mode);
        let refused = create().failed();
        open(path, 0o755);
        assert!(
            refused.contains("others than root may write it"),
            "{path}: {refused}"
        );
        create().ok();
    }
    drop(node);
    // A dangling link means that the file is gone, not that there is none.
    std::os::unix::fs::symlink("/nope", "/etc/agentbox/config.toml").unwrap();
    let dangling = create();
    std::fs::remove_file("/etc/agentbox/config.toml").unwrap();
    dangling.failed();
    create().ok();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn one_badly_named_file_concerns_nobody_else() {
    let docker = Docker::alone();
    let mut node = NodeFiles::default();
    node.write("policies/broken.toml", 0o666, "base = \"standard\"\n");
    node.write("policies/Team_B.toml", 0o644, "");
    node.write("policies/strict.tml", 0o644, "");
    node.write("presets/Python.toml", 0o644, "");
    docker.run(&[runtime(), "test-musl"], &["true"]).ok();
    let broken = ["--annotation", "dev.agentbox.policy=broken", "test-musl"];
    let refused = docker
        .run(&[&[runtime()], &broken[..]].concat(), &["true"])
        .failed();
    assert!(
        refused.contains("others than root may write it"),
        "{refused}"
    );
    let listed = agentbox(&["policy", "list"]).ok();
    for file in ["Team_B.toml", "strict.tml", "Python.toml"] {
        assert!(listed.contains(file), "{listed}");
    }
    assert_eq!(listed.matches("it is not read").count(), 3, "{listed}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_file_that_lists_hosts_reaches_them_and_one_that_asks_can_be_answered() {
    let _docker = Docker::alone();
    let mut node = NodeFiles::default();
    let base = "base = \"standard\"\n[network]\n";
    node.write(
        "policies/team.toml",
        0o644,
        &format!("{base}allow = [\"files.example.org\"]\n"),
    );
    node.write(
        "policies/ask.toml",
        0o644,
        &format!("{base}on-unknown = \"ask\"\n"),
    );
    node.write(
        "policies/closed.toml",
        0o644,
        &format!("{base}mode = \"local\"\nallow = [\"a.test\"]\n"),
    );
    let by_name = |name: &str, host: &str| agentbox(&["policy", "check", name, "--host", host]);
    let by_flag =
        |name: &str, host: &str| agentbox(&["--policy", name, "policy", "check", "--host", host]);
    for answer in [by_name, by_flag].map(|check| check("team", "files.example.org")) {
        assert!(
            answer.stdout.contains("allowed: files.example.org:443"),
            "{answer}"
        );
        assert_eq!(answer.code, 0, "{answer}");
    }
    // The verdict is the same. The advice differs: only one allows additions by annotation.
    let (named, flagged) = (by_name("team", "other.test"), by_flag("team", "other.test"));
    let first = |answer: &Finished| answer.stdout.lines().next().unwrap().to_owned();
    assert_eq!((named.code, first(&named)), (flagged.code, first(&flagged)));
    assert!(
        named
            .stdout
            .contains("where --policy team requires it: no annotation may add it"),
        "{named}"
    );
    assert!(
        flagged.stdout.contains("no annotation may add it"),
        "{flagged}"
    );

    let refused = by_flag("ask", "x.test").failed();
    assert!(refused.contains("allows no approval"), "{refused}");
    let asked = by_name("ask", "x.test");
    assert!(asked.stdout.contains("it waits 30 s"), "{asked}");
    assert!(asked.stdout.contains("allows no approval"), "{asked}");
    let refused = by_name("closed", "a.test").failed();
    assert!(refused.contains("contradicts itself"), "{refused}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn rules_are_added_and_removed_one_by_one_and_tightened_whatever_the_files_say() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let allow = "dev.agentbox.network.allow=api.example.test:80, files.example.test:80";
    let agent = Agent::start(&docker, &[runtime(), "--annotation", allow]);
    let id = agent.container.inspect("{{.Id}}");
    let reaches = |host: &str| {
        let url = format!("http://{host}/u-b5");
        agent.curl(false, &["-f", &url]).code == 0
    };
    let update = |option: &str, rules: &str| agentbox(&["update", &id, option, rules]);
    assert!(reaches("api.example.test") && reaches("files.example.test"));
    assert!(!reaches("other.example.test"), "the control");

    update("--network-add", "other.example.test:80").ok();
    for host in [
        "api.example.test",
        "files.example.test",
        "other.example.test",
    ] {
        assert!(reaches(host), "{host}");
    }
    update("--network-remove", "files.example.test:80").ok();
    assert!(!reaches("files.example.test") && reaches("other.example.test"));
    let refused = update("--network-remove", "files.example.test:80").failed();
    assert!(
        refused.contains("network.allow has no rule files.example.test:80"),
        "{refused}"
    );

    // If the node's file is broken, or stricter than the running policy, an update may narrow but not widen.
    let mut node = NodeFiles::default();
    for text in ["ceilng = \"strict\"\n", "ceiling = \"strict\"\n"] {
        node.write("config.toml", 0o644, text);
        update("--network-add", "files.example.test:80").failed();
        update("--network-deny", "other.example.test").ok();
        assert!(
            !reaches("other.example.test") && reaches("api.example.test"),
            "{text}"
        );
    }
    update("--network-allow", "").ok();
    assert!(!reaches("api.example.test"));
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn nobody_joins_a_network_in_which_more_may_be_approved_than_its_ceiling_has() {
    let docker = Docker::alone();
    internet();
    let ask = ["--annotation", "dev.agentbox.network.on-unknown=ask"];
    let first = Agent::start(&docker, &[&[runtime()], &ask[..]].concat());
    let network = format!("--network=container:{}", first.container.name);
    let member = |options: &[&str]| {
        let all = [&[runtime(), &network], options, &["test-musl"]].concat();
        docker.run(&all, &["true"])
    };
    member(&ask).ok();
    let own = [
        "--annotation",
        "dev.agentbox.network.allow=api.example.test",
    ];
    let refused = member(&own).failed();
    assert!(
        refused.contains("network.on-unknown is ask, and here network.on-unknown is deny"),
        "{refused}"
    );
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o644, "ceiling = \"narrow\"\n");
    let narrow =
        "base = \"permissive\"\nnetwork.allow = []\nnetwork.limit = [\"api.example.test\"]\n";
    node.write("policies/narrow.toml", 0o644, narrow);
    let refused = member(&ask).failed();
    assert!(
        refused.contains("more may be approved there than the ceiling narrow"),
        "{refused}"
    );

    // Every query shows an approved host.
    let id = first.container.inspect("{{.Id}}");
    let check = || {
        agentbox(&[
            "policy",
            "check",
            "--container",
            &id,
            "--host",
            "files.example.test",
        ])
    };
    assert_eq!(check().code, 1);
    agentbox(&["approve", &id, "files.example.test:443"]).ok();
    let approved = check();
    assert!(
        approved.stdout.contains("by agentbox approve"),
        "{approved}"
    );
    assert_eq!(approved.code, 0, "{approved}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn p01_a_fork_bomb_ends_at_the_policys_limit() {
    let docker = Docker::connect();
    // Forks sleeping children until fork fails, at most 1,200.
    let bomb = "import os, time\nn = 0\n\
                try:\n  while n < 1200:\n    if os.fork() == 0: time.sleep(20); os._exit(0)\n    n += 1\n\
                except OSError as e: print('errno', e.errno)\nprint('forked', n)\n";
    let run = |options: &[&str]| {
        let all = [options, &["--init", "test-workloads"]].concat();
        docker.run(&all, &["python3", "-c", bomb])
    };
    let control = run(&["--runtime=runc"]).ok();
    assert!(control.contains("forked 1200"), "{control}");
    let strict = ["--annotation", "dev.agentbox.policy=strict"];
    let bounded = run(&[&[runtime()], &strict[..]].concat()).ok();
    assert!(bounded.contains("errno 11"), "{bounded}");
    let engines = run(&[runtime(), "--pids-limit=50"]).ok();
    assert!(
        engines.contains("errno 11") && engines.contains("forked 4"),
        "{engines}"
    );

    let standard = docker.start(&[runtime(), "test-musl"], &["sleep", "60"]);
    let id = standard.inspect("{{.Id}}");
    let limit = || {
        let found = run_find(&id);
        std::fs::read_to_string(&found).unwrap().trim().to_owned()
    };
    assert_eq!(limit(), "4096");
    // The engine may lower the limit, but can raise it only to the policy's.
    standard.call("update", &["--pids-limit=77"]).ok();
    assert_eq!(limit(), "77");
    standard.call("update", &["--pids-limit=9999"]).ok();
    assert_eq!(limit(), "4096");
    standard.call("update", &["--pids-limit=-1"]).ok();
    assert_eq!(limit(), "4096");
}

/// The file with a container's pids limit.
fn run_find(id: &str) -> String {
    let script = "find /sys/fs/cgroup -path \"*$1*\" -name pids.max | grep -v sidecar | head -n 1";
    let found = run("sh", &["-c", script, "-", id]).ok();
    assert!(!found.trim().is_empty(), "{id} has no pids.max");
    found.trim().to_owned()
}
