//! The options of `wrap`: each is tested by its effect, from outside.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::command::{Finished, all_at_once};
use crate::direct::{Scratch, program, with_env};
use crate::docker::Docker;

/// `nobody` of passwd(5): a user other than root.
const SOMEBODY: u32 = 65534;

/// A user with a home and a project below it.
struct Person {
    scratch: Scratch,
    home: String,
    project: String,
}

impl Person {
    fn new() -> Self {
        let scratch = Scratch::new();
        Self {
            home: scratch.dir("home"),
            project: scratch.dir("home/project"),
            scratch,
        }
    }

    /// Runs `agentbox WORDS...` in the project.
    fn run(&self, words: &[&str]) -> Finished {
        self.run_with(words, &[("FOO", "of the node")])
    }

    /// The same with these variables besides HOME.
    fn run_with(&self, words: &[&str], more: &[(&str, &str)]) -> Finished {
        let mut env = vec![("HOME", self.home.as_str())];
        env.extend(more);
        with_env(&program(), words, &self.project, &env)
    }

    /// Runs `agentbox wrap OPTIONS... -- sh -c SCRIPT` in the project.
    fn wrap(&self, options: &[&str], script: &str) -> Finished {
        self.run(&[&["wrap"], options, &["--", "sh", "-c", script]].concat())
    }
}

/// A server on the rig's side of Docker's bridge that sends hello. It ends with the test process.
struct Server {
    address: String,
    port: u16,
}

impl Server {
    fn new(docker: &Docker) -> Self {
        let gateway = "{{(index .IPAM.Config 0).Gateway}}";
        let address = docker.call(&["network", "inspect", "bridge", "--format", gateway]);
        let address = address.ok().trim().to_owned();
        let listener = TcpListener::bind((address.as_str(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                // The client has hung up if its test has ended.
                client.write_all(b"hello\n").ok();
            }
        });
        Self { address, port }
    }

    fn rule(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// A script that prints the server's line.
    fn ask(&self) -> String {
        let Self { address, port } = self;
        format!("bash -c 'exec 3<>/dev/tcp/{address}/{port} && head -1 <&3'")
    }
}

/// A node whose ceiling permits the bridge's addresses.
fn node() -> String {
    let node = super::NodeDir::new();
    let ceiling = "base = \"permissive\"\nnetwork.limit = [\"*\", \"172.16.0.0/12\"]\n";
    node.file("policies/lab.toml", ceiling);
    let config = format!("ceiling = \"lab\"\npolicy-dir = \"{}\"\n", node.policies());
    node.file("config.toml", &config)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_allow_and_deny_say_what_is_reached() {
    let docker = Docker::connect();
    let person = Person::new();
    let config = node();
    let (listed, unlisted) = (Server::new(&docker), Server::new(&docker));
    let wrap = |options: &[&str], script: &str| {
        let words = [&["--config", config.as_str(), "wrap"], options];
        person.run(&[&words.concat()[..], &["--", "sh", "-c", script]].concat())
    };
    let (rule, other) = (listed.rule(), unlisted.rule());
    let allow = ["--allow", rule.as_str()];
    assert_eq!(wrap(&allow, &listed.ask()).ok(), "hello\n");
    // The control for the rest: the other server answers if it may be reached.
    assert_eq!(
        wrap(&["--allow", other.as_str()], &unlisted.ask()).ok(),
        "hello\n"
    );
    let both = format!("{rule},{other}");
    assert_eq!(
        wrap(&["--allow", both.as_str()], &unlisted.ask()).ok(),
        "hello\n"
    );
    wrap(&allow, &unlisted.ask()).failed();
    wrap(&[], &listed.ask()).failed();
    let denied = ["--allow", both.as_str(), "--deny", other.as_str()];
    wrap(&denied, &unlisted.ask()).failed();
    assert_eq!(wrap(&denied, &listed.ask()).ok(), "hello\n");
    // The option adds to every policy. The field alone replaces.
    let strict = ["--policy", "strict", "--allow", rule.as_str()];
    assert_eq!(wrap(&strict, &listed.ask()).ok(), "hello\n");
    // The built-in ceiling permits no address.
    let refused = person.wrap(&allow, "true").failed();
    for part in ["option --allow", "ceiling permissive", rule.as_str()] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(!refused.contains("annotation"), "{refused}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n59_an_option_of_wrap_ends_and_a_ceilings_end_is_no_longer_one() {
    let docker = Docker::connect();
    let person = Person::new();
    let config = node();
    let server = Server::new(&docker);
    let wrap = |config: &str, allow: &str, script: &str| {
        let words = ["--config", config, "wrap", "--allow", allow];
        Person::new().run(&[&words[..], &["--", "sh", "-c", script]].concat())
    };
    let (rule, ask) = (server.rule(), server.ask());
    let twice = format!("{ask}; sleep 25; {ask} || echo ended");
    let denied = format!("denied: {rule}");
    let lasts = |allow: &str| assert_eq!(wrap(&config, allow, &twice).stdout, "hello\nhello\n");
    all_at_once(&[
        &|| {
            let ended = wrap(&config, &format!("{rule} for 20s"), &twice);
            assert_eq!(ended.stdout, "hello\nended\n", "{ended}");
            assert!(ended.stderr.contains(&denied), "{ended}");
        },
        // The control: the same without an end, and with a later one.
        &|| lasts(&rule),
        &|| lasts(&format!("{rule} for 10m")),
    ]);
    let vague = wrap(&config, &format!("{rule} until tomorrow"), "true").failed();
    assert!(vague.contains("its offset"), "{vague}");
    // A time that is typed is the next one.
    let today = wrap(&config, &format!("{rule} until 18:00"), &ask);
    assert_eq!(today.stdout, "hello\n", "{today}");
    // Both kinds of walls show the ends before a run.
    for walls in ["namespaces", "landlock"] {
        let allow = "new.example.com for 10m,old.example.com until 2020-01-01T00:00:00Z";
        let words = ["--config", &config, "wrap", "--walls", walls, "--dry-run"];
        let page = person.run(&[&words[..], &["--allow", allow, "--", "true"]].concat());
        let page = page.ok();
        assert!(page.contains("rule new.example.com: until "), "{page}");
        let over = "rule old.example.com: expired at 2020-01-01T00:00:00Z";
        assert!(page.contains(over), "{page}");
        assert_eq!(page.matches("old.example.com").count(), 1, "{page}");
    }

    // A ceiling whose rule ends permits no rule that ends later, or never.
    let node = super::NodeDir::new();
    let port = server.port;
    let ceiling =
        format!("base = \"permissive\"\nnetwork.temporary = [\"172.16.0.0/12:{port} for 20s\"]\n");
    node.file("policies/short.toml", &ceiling);
    let short = format!(
        "ceiling = \"short\"\npolicy-dir = \"{}\"\n",
        node.policies()
    );
    let short = node.file("config.toml", &short);
    assert_eq!(
        wrap(&short, &format!("{rule} for 20s"), &ask).ok(),
        "hello\n"
    );
    for allow in [rule.clone(), format!("{rule} for 21s")] {
        let refused = wrap(&short, &allow, &ask).failed();
        assert!(refused.contains("ceiling short"), "{refused}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_set_is_shown_and_enforced_within_the_ceiling() {
    let _docker = Docker::connect();
    let person = Person::new();
    let pids = "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; \
        i=0; while [ $i -lt 40 ]; do sleep 3 & i=$((i+1)); done; echo all";
    assert!(person.wrap(&[], pids).ok().contains("all"));
    let few = person.wrap(&["--set", "limits.pids=16"], pids);
    assert!(!few.stdout.contains("all"), "{few}");
    let shown = person
        .wrap(&["--set", "limits.pids=16", "--dry-run"], "touch ran")
        .ok();
    let line = shown.lines().find(|line| line.contains("limits.pids"));
    assert!(
        line.is_some_and(|l| l.contains("option --set limits.pids")),
        "{shown}"
    );
    assert!(!std::path::Path::new(&person.project).join("ran").exists());
    let over = person
        .wrap(&["--set", "filesystem.scratch=64GiB"], "true")
        .failed();
    assert!(over.contains("exceeds the ceiling permissive"), "{over}");
    assert!(over.contains("option --set filesystem.scratch"), "{over}");
    // The cure is a whole file, for which a line of the error chain had no room.
    let rule = "node:host.docker.internal:11434";
    let over = person.wrap(&["--allow", rule], "true").failed();
    for line in [
        "# /etc/agentbox/policies/wider.toml",
        "network.limit = [\"+\", \"node:host.docker.internal:11434\"]",
    ] {
        assert!(over.lines().any(|said| said == line), "{line}: {over}");
    }
    for (word, said) in [
        ("limits.pidz=3", "did you mean limits.pids?"),
        ("limits.pids", "FIELD=VALUE"),
        ("network.limit=*", "--policy FILE"),
        ("limits.pids=many", "is not a number of processes"),
    ] {
        let refused = person.wrap(&["--set", word], "true").failed();
        assert!(refused.contains(said), "{word}: {refused}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_policy_takes_a_file_of_the_persons_own() {
    let _docker = Docker::connect();
    let person = Person::new();
    let text =
        "base = \"standard\"\ndescription = \"mine\"\n[filesystem]\nworkspace = \"read-only\"\n";
    let file = person.scratch.file("home/.config/agentbox/mine.toml", text);
    person.wrap(&[], "touch by-standard").ok();
    let refused = person.wrap(&["--policy", &file], "touch here").failed();
    assert!(refused.contains("Read-only file system"), "{refused}");
    let shown = person
        .wrap(
            &["--policy", "../.config/agentbox/mine.toml", "--dry-run"],
            "true",
        )
        .ok();
    assert!(
        shown.contains("policy file ../.config/agentbox/mine.toml"),
        "{shown}"
    );
    // A file of another user, and one that others can write.
    chown(&file, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let refused = person.wrap(&["--policy", &file], "true").failed();
    assert!(refused.contains("belongs to user 65534"), "{refused}");
    chown(&file, Some(0), Some(0)).unwrap();
    for mode in [0o646, 0o666] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let refused = person.wrap(&["--policy", &file], "true").failed();
        assert!(refused.contains("chmod go-w"), "{refused}");
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    person.wrap(&["--policy", &file], "true").ok();
    let missing = person.wrap(&["--policy", "./none.toml"], "true").failed();
    assert!(missing.contains("none.toml"), "{missing}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_env_passes_on_what_was_named_and_shows_no_secret_in_the_list_of_processes() {
    let _docker = Docker::connect();
    let person = Person::new();
    let script = "echo \"${FOO-unset} ${BAR-unset} ${NONE-unset}\"; tr '\\0' ' ' </proc/1/cmdline";
    let first = |options: &[&str]| {
        let all = person.wrap(options, script).ok();
        all.lines().next().unwrap().to_owned()
    };
    assert_eq!(first(&[]), "unset unset unset");
    assert_eq!(
        first(&["-e", "FOO", "-e", "NONE"]),
        "of the node unset unset"
    );
    assert_eq!(first(&["--env", "FOO=given", "-e", "BAR="]), "given  unset");
    let file = person.scratch.file(
        "home/.config/agentbox/env",
        "# tokens\nFOO\nBAR=\"two words\"\n",
    );
    assert_eq!(
        first(&["--env-file", &file]),
        "of the node \"two words\" unset"
    );
    assert_eq!(
        first(&["--env-file", &file, "-e", "BAR=1"]),
        "of the node 1 unset"
    );
    let broken = person
        .scratch
        .file("home/broken", "FOO=1\nSECRET VALUE=hush\n");
    let refused = person.wrap(&["--env-file", &broken], "true").failed();
    assert!(
        refused.contains("line 2") && !refused.contains("hush"),
        "{refused}"
    );
}

/// The sidecar's proxy overrides proxy variables, so another proxy there must be an error, not silently lost.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_refuses_a_proxy_of_the_callers_where_it_names_its_own() {
    let _docker = Docker::connect();
    let person = Person::new();
    let script = "echo ${HTTPS_PROXY-unset} ${no_proxy-unset}";
    let file = person.scratch.file("home/env", "no_proxy=x\n");
    for options in [
        &["-e", "HTTPS_PROXY=http://p:1"][..],
        &["--env-file", &file],
    ] {
        let said = person.wrap(&[options, &["--allow", "example.org"]].concat(), script);
        let said = said.failed();
        assert!(
            said.contains("cannot be passed on") && said.contains("network.proxy-env"),
            "{said}"
        );
    }
    let given = ["-e", "HTTPS_PROXY=http://p:1", "-e", "no_proxy=x"];
    let off = ["--allow", "example.org", "--set", "network.proxy-env=off"];
    let seen = person.wrap(&[&given[..], &off].concat(), script).ok();
    assert_eq!(seen, "http://p:1 x\n");
    let none = ["--set", "network.mode=none"];
    let seen = person.wrap(&[&given[..], &none].concat(), script).ok();
    assert_eq!(seen, "http://p:1 x\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_reads_files_with_the_rights_of_the_person_behind_sudo() {
    let _docker = Docker::connect();
    let person = Person::new();
    let secret = person.scratch.file("secret", "FOO=of root\nnot-toml\n");
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let link = person.scratch.path("home/link.toml");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    chown(&person.project, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let somebody = SOMEBODY.to_string();
    let sudo = [
        ("SUDO_UID", somebody.as_str()),
        ("SUDO_GID", somebody.as_str()),
    ];
    let link_path = link.clone();
    for option in ["--env-file", "--policy"] {
        // The control: root itself reads both.
        let root = person.run(&["wrap", option, &link, "--dry-run", "--", "true"]);
        assert!(!root.stderr.contains("Permission denied"), "{root}");
        for path in [&secret, &link] {
            let words = ["wrap", option, path.as_str(), "--dry-run", "--", "true"];
            let refused = person.run_with(&words, &sudo).failed();
            // The link belongs to another user, and its directory is not the user's home.
            let link = refused.contains("a command could have made");
            assert!(
                link == (path == &link_path) && (link || refused.contains("Permission denied")),
                "{refused}"
            );
            assert!(!refused.contains("not-toml"), "{refused}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_takes_no_word_for_a_program_that_looks_like_an_option() {
    let _docker = Docker::connect();
    let person = Person::new();
    for words in [
        &["wrap", "--polciy", "strict", "--", "id"][..],
        &["wrap", "--config", "/nowhere", "--", "id"],
        &["wrap", "-x", "id"],
        &["wrap", "--allow"],
        &["wrap", "--"],
        &["wrap"],
    ] {
        let refused = person.run(words);
        assert_eq!(refused.code, 125, "{refused}");
        assert!(refused.stderr.starts_with("error: "), "{refused}");
    }
    // After the first word, all words are the command's.
    let words = ["wrap", "echo", "--policy", "-x", "--", "y"];
    assert_eq!(person.run(&words).ok(), "--policy -x -- y\n");
    let words = ["wrap", "--", "echo", "--dry-run"];
    assert_eq!(person.run(&words).ok(), "--dry-run\n");
}

/// The commands of docs/wrap.md below these headings.
fn documented() -> Vec<String> {
    let text = include_str!("../../docs/wrap.md");
    let sections = text.split("\n## ");
    let own = sections.filter(|s| ["Start", "Options"].contains(&s.lines().next().unwrap_or("")));
    let blocks = own.flat_map(|section| section.split("```sh\n").skip(1));
    let blocks = blocks.map(|block| block.split("```").next().unwrap_or(""));
    blocks
        .flat_map(|block| block.lines().map(str::to_owned))
        .collect()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_commands_of_the_page_about_it_work() {
    let _docker = Docker::connect();
    let person = Person::new();
    let agent = person
        .scratch
        .file("home/project/agent", "#!/bin/sh\necho did\n");
    std::fs::set_permissions(&agent, PermissionsExt::from_mode(0o755)).unwrap();
    for (name, text) in [
        ("script.py", "print('did')\n"),
        ("Makefile", "all test:\n\t@echo did\n"),
        ("mine.toml", "base = \"strict\"\n"),
    ] {
        person.scratch.file(&format!("home/project/{name}"), text);
    }
    let lines = documented();
    assert!(lines.len() >= 5, "{lines:?}");
    for line in lines {
        let words = line
            .strip_prefix("agentbox ")
            .unwrap_or_else(|| panic!("{line}"));
        let words: Vec<&str> = words.split(' ').collect();
        let seen = person.run(&words).ok();
        let said = match words[0] {
            "trust" => "trusted, until the file changes",
            _ if line.contains("--dry-run") => "policy 'mine'",
            _ => "did\n",
        };
        assert!(seen.contains(said), "{line}: {seen}");
    }
}
