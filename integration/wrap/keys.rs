//! N49: `[[secret]]` of the user's own settings. Keys that a request gets on the way out are nowhere in the sandbox; no sandbox
//! chooses a key, or a program that prints one.

use std::path::Path;
use std::time::{Duration, Instant};

use super::NodeDir;
use super::account::Account;
use super::agents::{AGENT, WALLS};
use super::shell::Shell;
use crate::clock::await_that;
use crate::command::{Finished, finish, run};
use crate::direct::program;
use crate::docker::Docker;
use crate::docker::allowlist::{INTERNET, arrived, internet, witness};
use crate::docker::requests::{heads, smart_repositories};

const CONFIG: &str = ".config/agentbox/config.toml";
const HOST: &str = "api.example.test/repos/acme";
/// How the values below begin: searches name it in pieces, and so do not find themselves.
const MARK: &str = "sk-live-KEYOF";

/// A value that no other test has.
fn value(person: &Account, name: &str) -> String {
    format!("{MARK}-{name}-{}-5d7c1e0b42f9", person.uid)
}

/// `[[secret]]` for GET requests to one path of the host.
fn secret(name: &str, rest: &str) -> String {
    format!("[[secret]]\nname = \"{name}\"\nrequests = [\"GET https://{HOST}/{name}\"]\n{rest}\n")
}

/// The same for a command.
fn by_command(name: &str, words: &[&str], rest: &str) -> String {
    secret(
        name,
        &format!("command = {words:?}\nheader = \"x-model: {{}}\"\nenv = \"MODEL_KEY\"\n{rest}"),
    )
}

impl Account {
    /// Writes a file that the user alone can read.
    fn private(&self, name: &str, content: &str) -> String {
        let path = self.file(name, content);
        self.does(&format!(
            "chmod 600 '{path}'; chmod go-w ~/.config ~/.config/agentbox"
        ));
        path
    }

    /// `agentbox ARGUMENTS...` by sudo and as the user, with these variables and trust in the test's internet.
    fn both(&self, variables: &[(&str, &str)], arguments: &[&str]) -> [Finished; 2] {
        [self.sudo(&[]), self.alone(&[&program()])].map(|mut way| {
            way.env("SSL_CERT_FILE", format!("{INTERNET}/authority.crt"));
            way.env("PATH", self.path());
            way.envs(variables.iter().copied()).args(arguments);
            finish(&mut way)
        })
    }

    /// `agentbox wrap OPTIONS... -- bash -c SCRIPT` by both.
    fn keyed(&self, options: &[&str], script: &str) -> [Finished; 2] {
        self.both(
            &[],
            &[&["wrap"], options, &["--", "bash", "-c", script]].concat(),
        )
    }
}

/// Looks for values in all that a process can reach of processes and files.
const SEARCH: &str = r#"
    echo "environment: $( (env; set; cat /proc/*/environ /proc/*/task/*/environ /proc/*/cmdline) 2>/dev/null | tr '\0' '\n' | grep -ac 'sk-live-[K]EYOF' )"
    echo "files: $(grep -rlsa 'sk-live-[K]EYOF' ~ "$PWD" /tmp /run /etc /var /dev/shm /home 2>/dev/null | wc -l)"
    python3 - <<'END'
import glob, re
mark = ("sk-live-" + "KEYOF").encode()
hits = 0
for maps in glob.glob("/proc/[0-9]*/maps"):
    try:
        memory = open(maps.replace("maps", "mem"), "rb", 0)
        for line in open(maps):
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            if " rw" in line and last - first < 1 << 26:
                memory.seek(first)
                hits += len(re.findall(re.escape(mark) + rb"-[a-z]+-\d", memory.read(last - first)))
    except (OSError, ValueError, OverflowError):
        pass
print("memory:", min(hits, 1))
END
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_a_users_key_is_in_the_request_and_nowhere_inside() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let of = |name: &str| value(&person, name);
    person.private(".config/agentbox/key", &format!("{}\nnotes\n", of("file")));
    person.private(".config/agentbox/other", &of("command"));
    let other = format!("{}/.config/agentbox/other", person.home);
    let settings = [
        secret(
            "file",
            "file = \"~/.config/agentbox/key\"\nheader = \"x-file: {}\"\nenv = \"FILE_KEY\"",
        ),
        secret(
            "command",
            &format!(
                "command = [\"/bin/cat\", \"{other}\"]\nheader = \"x-model: {{}}\"\nenv = \"COMMAND_KEY\""
            ),
        ),
        secret(
            "variable",
            "from-env = \"CALLER_KEY\"\nbasic = \"user\"\nenv = \"VARIABLE_KEY\"",
        ),
    ];
    person.private(CONFIG, &settings.concat());
    let allow = format!("GET https://{HOST}/**");
    let ask = format!(
        "for name in file command variable; do curl -sS --max-time 30 http://{HOST}/$name; done; \
         echo \"$FILE_KEY $COMMAND_KEY $VARIABLE_KEY ${{CALLER_KEY-unset}}\"; {SEARCH}"
    );
    let caller = of("variable");
    let variables = [("CALLER_KEY", &*caller), ("VARIABLE_KEY", &*caller)];
    let basic = run(
        "sh",
        &["-c", &format!("printf 'user:{caller}' | base64 -w0")],
    )
    .ok();
    for walls in WALLS {
        for policy in ["standard", "permissive"] {
            let options = [
                "wrap", "--walls", walls, "--policy", policy, "--allow", &allow,
            ];
            // Also a variable that is named is not passed on.
            let named = [
                "-e",
                "CALLER_KEY",
                "-e",
                "VARIABLE_KEY",
                "--",
                "bash",
                "-c",
                &ask,
            ];
            let before = |words: &[&str]| arrived(words);
            let sent = [
                ["/file\"", &*of("file")],
                ["/command\"", &*of("command")],
                ["/variable\"", &*format!("Basic {basic}")],
            ];
            let counts = sent.map(|words| before(&words));
            for finished in person.both(&variables, &[&options[..], &named].concat()) {
                let said = finished.stderr.clone();
                let shown = finished.ok();
                let inside =
                    "agentbox-secret-file agentbox-secret-command agentbox-secret-variable unset\n";
                assert!(shown.contains(inside), "{walls} {policy}: {shown}{said}");
                for clean in ["environment: 0\n", "files: 0\n", "memory: 0\n"] {
                    assert!(shown.contains(clean), "{walls} {policy}: {shown}{said}");
                }
                assert!(
                    said.contains(
                        "the variable CALLER_KEY is not passed on: secret variable of your settings"
                    ),
                    "{said}"
                );
                assert!(
                    !said.contains(MARK) && !shown.contains(MARK),
                    "{said}{shown}"
                );
            }
            for (words, before) in sent.iter().zip(counts) {
                assert_eq!(arrived(words), before + 2, "{walls} {policy}: {words:?}");
            }
        }
    }
    // The plan tells of them, reads none, and names no value.
    for call in [
        &["wrap", "--allow", &*allow, "--dry-run", "--", "true"][..],
        &["explain"],
    ] {
        for finished in person.both(&[], call) {
            let shown = finished.ok();
            assert!(
                shown.contains("keeps outside: secret command, from the command /bin/cat")
                    && !shown.contains(MARK),
                "{shown}"
            );
        }
    }
    // The control: what is passed on is found, in each of the three.
    person.private(CONFIG, "");
    for walls in WALLS {
        let options = [
            "wrap",
            "--walls",
            walls,
            "-e",
            "CALLER_KEY",
            "--",
            "bash",
            "-c",
        ];
        let script = format!("echo $CALLER_KEY >left; {SEARCH}\nrm left");
        for finished in person.both(&variables, &[&options[..], &[&*script]].concat()) {
            let shown = finished.ok();
            assert!(!shown.contains("environment: 0\n"), "{walls}: {shown}");
            assert!(!shown.contains("files: 0\n"), "{walls}: {shown}");
            assert!(shown.contains("memory: 1\n"), "{walls}: {shown}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_a_command_for_a_key_has_an_end_and_only_the_users_rights() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let allow = format!("GET https://{HOST}/**");
    let key = value(&person, "command");
    let script =
        |body: &str| person.program(".config/agentbox/print", &format!("#!/bin/sh\n{body}\n"));
    let print = script("");
    let mark = format!("{}", 800_000 + person.uid);
    let run = |rest: &str, words: &[&str]| {
        person.private(CONFIG, &by_command("command", words, rest));
        let ask = format!("curl -sS --max-time 30 http://{HOST}/command; touch began");
        person.keyed(&["--allow", &allow], &ask)
    };
    let began = format!("{}/began", person.project);
    for (body, rest, word) in [
        ("echo whatever; exit 1", "", "failed (exit status: 1)"),
        ("exit 0", "", "is no secret"),
        ("echo short", "", "is no secret"),
        ("printf 'key with spaces in it\\n'", "", "is no secret"),
        (
            "head -c 10485760 /dev/zero | tr '\\0' k",
            "",
            "printed more than 65536 bytes",
        ),
        (
            "echo 0123456789; while :; do echo more; done",
            "",
            "printed more than 65536 bytes",
        ),
        (
            &*format!("echo 0123456789; sleep {mark}"),
            "command-seconds = 1",
            "did not end within 1 s",
        ),
        (
            &*format!("exec >&-; sleep {mark}"),
            "command-seconds = 1",
            "did not end within 1 s",
        ),
        (
            "read answer </dev/tty && echo $answer",
            "command-seconds = 5",
            "failed (exit status",
        ),
    ] {
        script(body);
        let begin = Instant::now();
        for finished in run(rest, &[&print]) {
            assert_eq!(finished.code, 125, "{body}: {finished}");
            let said = finished.stderr.clone();
            assert!(
                said.contains("secret command: ") && said.contains(word),
                "{body}: {said}"
            );
            assert!(!said.contains("0123456789"), "{body}: {said}");
        }
        assert!(!Path::new(&began).exists(), "{body}");
        assert!(begin.elapsed() < Duration::from_secs(45), "{body}");
        assert_ne!(
            crate::command::run("pgrep", &["-f", &format!("^sleep {mark}")]).code,
            0,
            "{body}"
        );
    }
    // The controls: a child that holds the pipe is not waited for, and ends with the program. Notes below the key do not matter.
    let about = format!("{}/about", person.home);
    script(&format!(
        "sleep {mark} & echo {key}; echo notes; (id -u; id -G; pwd; env | sort; grep -E 'CapEff|Seccomp:' /proc/self/status) >>{about}"
    ));
    let before = arrived(&["/command\"", &key]);
    for finished in run("command-env = [\"LISTED\"]", &[&print]) {
        finished.ok();
    }
    assert_eq!(arrived(&["/command\"", &key]), before + 2);
    assert_ne!(
        crate::command::run("pgrep", &["-f", &format!("^sleep {mark}")]).code,
        0
    );
    let told = std::fs::read_to_string(&about).unwrap();
    let uid = person.uid.to_string();
    assert_eq!(
        told.lines().filter(|line| *line == uid).count(),
        2,
        "{told}"
    );
    assert_eq!(told.matches("\n/\n").count(), 2, "{told}");
    assert_eq!(
        told.matches("CapEff:\t0000000000000000").count(),
        2,
        "{told}"
    );
    let names = told.lines().filter_map(|line| line.split_once('='));
    for (name, content) in names {
        let known = [
            "HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "SHLVL", "_",
        ];
        assert!(known.contains(&name), "{name}: {told}");
        assert!(name != "HOME" || content == person.home, "{told}");
        assert!(name != "PATH" || !content.contains(&person.home), "{told}");
    }
    // A listed variable is passed on, and nothing runs for a plan, or for a run without the requests.
    std::fs::remove_file(&about).unwrap();
    let listed = by_command("command", &[&print], "command-env = [\"LISTED\"]");
    person.private(CONFIG, &listed);
    for call in [
        &["wrap", "--allow", &*allow, "--dry-run", "--", "true"][..],
        &["explain"],
        &["wrap", "--", "true"],
        &[
            "wrap",
            "--allow",
            "GET https://other.example.test/**",
            "--",
            "true",
        ],
    ] {
        for finished in person.both(&[("LISTED", "listed")], call) {
            finished.ok();
        }
        assert!(!Path::new(&about).exists(), "{call:?}");
    }
    for finished in person.both(
        &[("LISTED", "listed")],
        &["wrap", "--allow", &allow, "--", "true"],
    ) {
        finished.ok();
    }
    let told = std::fs::read_to_string(&about).unwrap();
    assert_eq!(told.matches("LISTED=listed\n").count(), 2, "{told}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_no_sandbox_and_no_other_user_chooses_a_key_or_its_program() {
    let _docker = Docker::connect();
    internet();
    let person = Account::new();
    let allow = format!("GET https://{HOST}/**");
    let ran = format!("{}/ran", person.home);
    let body = format!("touch {ran}; echo 0123456789");
    let in_project = person.program("src/project/print", &format!("#!/bin/sh\n{body}\n"));
    let own = person.program(".config/agentbox/print", &format!("#!/bin/sh\n{body}\n"));
    let interpreted = person.program(".config/agentbox/interpreted", &format!("#!{in_project}\n"));
    let refused = |word: &str, by: &[(&str, &str)]| {
        for finished in person.both(by, &["wrap", "--allow", &allow, "--", "true"]) {
            let said = finished.failed();
            assert!(said.contains(word), "{word}: {said}");
            assert!(!Path::new(&ran).exists(), "{word}: {said}");
        }
    };
    let works = || {
        for finished in person.both(&[], &["wrap", "--allow", &allow, "--", "true"]) {
            finished.ok();
        }
        std::fs::remove_file(&ran).unwrap();
    };
    let good = by_command("command", &[&own], "");
    person.private(CONFIG, &good);
    works();
    // Programs.
    person.does(&format!("ln -s {in_project} ~/.config/agentbox/linked"));
    let linked = format!("{}/.config/agentbox/linked", person.home);
    for other in [&in_project, &interpreted, &linked] {
        person.private(CONFIG, &by_command("command", &[other], ""));
        refused("could have written", &[]);
    }
    for (words, word) in [
        (&["print"][..], "absolute path"),
        (&["./print"], "absolute path"),
        (&["/no/such/print"], "there is no such file"),
    ] {
        person.private(CONFIG, &by_command("command", words, ""));
        refused(word, &[]);
    }
    person.private(CONFIG, &good);
    person.does("chmod 775 ~/.config/agentbox/print");
    refused("could have written", &[]);
    person.does("chmod 755 ~/.config/agentbox/print");
    works();
    // The settings.
    for (change, back, word) in [
        ("chmod 644 $C", "chmod 600 $C", "chmod 600"),
        ("chmod 640 $C", "chmod 600 $C", "chmod 600"),
        ("ln $C ~/copy", "rm ~/copy", "2 names"),
        (
            "mv $C ~/src/project/c; ln -s ~/src/project/c $C",
            "mv ~/src/project/c $C",
            "not behind a link",
        ),
        (
            "chmod 775 ~/.config/agentbox",
            "chmod 755 ~/.config/agentbox",
            "chmod go-w",
        ),
    ] {
        person.does(&format!("C=~/{CONFIG}; {change}"));
        refused(word, &[]);
        person.does(&format!("C=~/{CONFIG}; {back}"));
        works();
    }
    // A variable that a project sets leads to no settings with secrets.
    person.does("mkdir -p ~/src/other/.config; cp -r ~/.config/agentbox ~/src/other/.config/; mv ~/.config/agentbox ~/aside");
    let planted = format!("{}/src/other/.config", person.home);
    for finished in [person.alone(&[&program()])].map(|mut way| {
        way.env("XDG_CONFIG_HOME", &planted);
        finish(way.args(["wrap", "--allow", &allow, "--", "true"]))
    }) {
        let said = finished.failed();
        assert!(said.contains("secrets count only in"), "{said}");
        assert!(!Path::new(&ran).exists(), "{said}");
    }
    person.does("mv ~/aside ~/.config/agentbox");
    works();
    // Nor does one that leads to none leave the key inside.
    person.does("mkdir ~/src/empty");
    let empty = format!("{}/src/empty", person.home);
    for name in ["XDG_CONFIG_HOME", "HOME"] {
        let mut way = person.alone(&[&program()]);
        way.env(name, &empty)
            .args(["wrap", "--allow", &allow, "--", "true"]);
        let said = finish(&mut way).failed();
        assert!(said.contains("leads elsewhere"), "{name}: {said}");
    }
    works();
    // A project's settings have none, trusted or not.
    person.private(CONFIG, "");
    person.file("src/project/.agentbox.toml", &good);
    for finished in person.both(&[], &["trust", "--yes"]) {
        let said = finished.failed();
        assert!(
            said.contains("~/.config/agentbox/config.toml alone"),
            "{said}"
        );
    }
    for finished in person.both(&[], &["wrap", "--allow", &allow, "--", "true"]) {
        finished.ok();
    }
    assert!(!Path::new(&ran).exists());
    person.does("rm ~/src/project/.agentbox.toml");
    // Files.
    let file = |path: &str| {
        person.private(
            CONFIG,
            &secret(
                "file",
                &format!("file = \"{path}\"\nheader = \"x-file: {{}}\""),
            ),
        )
    };
    let key = person.private(".config/agentbox/key", "0123456789\n");
    person.private("src/project/key", "0123456789\n");
    file(&key);
    for finished in person.both(&[], &["wrap", "--allow", &allow, "--", "true"]) {
        finished.ok();
    }
    for (change, back, word) in [
        ("chmod 644 $K", "chmod 600 $K", "chmod 600"),
        ("ln $K ~/copy", "rm ~/copy", "2 names"),
        (
            "mv $K ~/aside; ln -s ~/src/project/key $K",
            "mv ~/aside $K",
            "could read or write it",
        ),
        (
            "mv $K ~/aside; mkfifo -m 600 $K",
            "mv -f ~/aside $K",
            "regular file",
        ),
        ("mv $K ~/aside", "mv ~/aside $K", "is missing"),
    ] {
        person.does(&format!("K=~/.config/agentbox/key; {change}"));
        refused(word, &[]);
        person.does(&format!("K=~/.config/agentbox/key; {back}"));
    }
    file("~/src/project/key");
    refused("could read or write it", &[]);
    // Sandboxes see it there.
    let shown = format!("/opt/key-{}", person.uid);
    std::fs::write(&shown, "0123456789\n").unwrap();
    run("chown", &[&person.uid.to_string(), &shown]).ok();
    run("chmod", &["600", &shown]).ok();
    file(&shown);
    refused("could read or write it", &[]);
    std::fs::remove_file(&shown).unwrap();
    let of_root = format!("{}/.config/agentbox/of-root", person.home);
    file(&of_root);
    std::fs::write(&of_root, "0123456789\n").unwrap();
    std::fs::set_permissions(
        &of_root,
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    refused("it must be your own", &[]);
    // A variable that is not set.
    person.private(
        CONFIG,
        &secret("file", "from-env = \"NOT_SET\"\nheader = \"x-file: {}\""),
    );
    refused("your variable NOT_SET is not set", &[]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_a_ceiling_of_the_node_forbids_a_users_keys() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let key = value(&person, "variable");
    let settings = secret(
        "variable",
        "from-env = \"MODEL_KEY\"\nheader = \"x-model: {}\"\nenv = \"MODEL_KEY\"",
    );
    person.private(CONFIG, &settings);
    let node = NodeDir::new();
    let config = node.file(
        "config.toml",
        &format!("ceiling = \"low\"\npolicy-dir = \"{}\"\n", node.policies()),
    );
    let allow = format!("GET https://{HOST}/**");
    let ask = format!("curl -sS --max-time 30 http://{HOST}/variable; echo [${{MODEL_KEY-unset}}]");
    let call = |field: &str, walls: &str| {
        node.file(
            "policies/low.toml",
            &format!("base = \"permissive\"\n[network]\nuser-secrets = \"{field}\"\n"),
        );
        let all = [
            "--config",
            &config,
            "wrap",
            "--walls",
            walls,
            "--policy",
            "standard",
            "--allow",
            &allow,
            "-e",
            "MODEL_KEY",
            "--",
            "bash",
            "-c",
            &ask,
        ];
        person.both(&[("MODEL_KEY", &key)], &all)
    };
    for walls in WALLS {
        let before = arrived(&["/variable\"", &key]);
        for finished in call("off", walls) {
            let said = finished.stderr.clone();
            let shown = finished.ok();
            assert!(shown.contains("[unset]"), "{walls}: {shown}");
            assert!(
                said.contains(
                    "secret variable is not used: network.user-secrets is off (the ceiling low)"
                ),
                "{walls}: {said}"
            );
        }
        assert_eq!(arrived(&["/variable\"", &key]), before, "{walls}");
        // The control.
        for finished in call("on", walls) {
            assert!(
                finished.ok().contains("[agentbox-secret-variable]"),
                "{walls}"
            );
        }
        assert_eq!(arrived(&["/variable\"", &key]), before + 2, "{walls}");
    }
}

/// Only a rule for requests puts a key in: one for the whole host leaves its variable empty.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_user_is_told_of_a_key_that_a_rule_for_the_whole_host_leaves_unused() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.private(".config/agentbox/key", &value(&person, "whole"));
    let from = "file = \"~/.config/agentbox/key\"\nheader = \"x-file: {}\"\nenv = \"FILE_KEY\"";
    person.private(CONFIG, &secret("whole", from));
    let requests = format!("GET https://{HOST}/**");
    let (host, _) = HOST.split_once('/').unwrap();
    for (rule, is_told) in [
        (host, true),
        (&requests, false),
        ("other.example.test", false),
    ] {
        for seen in person.keyed(&["--allow", rule], "true") {
            let told = seen
                .stderr
                .contains("agentbox: secret whole is not used: network.allow opens");
            assert_eq!(told, is_told, "{rule}: {seen}");
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_a_key_of_the_node_is_roots_and_a_user_is_told_what_to_do() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let secret = value(&person, "node");
    let node = NodeDir::new();
    let key = node.file("key", &secret);
    run("chmod", &["600", &key]).ok();
    let config = node.file(
        "config.toml",
        &format!(
            "[[secret]]\nname = \"node\"\nfile = \"{key}\"\npolicies = [\"standard\"]\nrequests = [\"GET https://{HOST}/node\"]\n\
             header = \"x-model: {{}}\"\n"
        ),
    );
    let allow = format!("GET https://{HOST}/**");
    let ask = format!("curl -sS --max-time 30 http://{HOST}/node");
    let all = [
        "--config", &config, "wrap", "--allow", &allow, "--", "bash", "-c", &ask,
    ];
    let before = arrived(&["/node\"", &secret]);
    let [by_sudo, alone] = person.both(&[], &all);
    by_sudo.ok();
    assert_eq!(arrived(&["/node\"", &secret]), before + 1);
    let said = alone.failed();
    assert!(
        said.contains("root alone reads its key: run with sudo"),
        "{said}"
    );
    assert_eq!(arrived(&["/node\"", &secret]), before + 1);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_an_agent_has_a_placeholder_for_the_key_that_its_user_has_listed() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    for name in ["claude", "opencode"] {
        person.program(&format!(".local/bin/{name}"), AGENT);
    }
    let key = value(&person, "variable");
    let variables = [("ANTHROPIC_API_KEY", &*key)];
    // By TLS, as agents do it.
    let ask = format!(
        "curl -sS --max-time 30 https://{HOST}/variable; echo [$ANTHROPIC_API_KEY]; {SEARCH}"
    );
    let call = |name: &str, walls: &str, options: &[&str]| {
        let all = [&["wrap", "--walls", walls], options, &["--", name, &ask]].concat();
        person.both(&variables, &all)
    };
    for walls in WALLS {
        for name in ["claude", "opencode"] {
            // The control: without the user's entry, the key is inside.
            person.private(CONFIG, "");
            for finished in call(name, walls, &[]) {
                let shown = finished.ok();
                assert!(
                    shown.contains(&format!("[{key}]")),
                    "{walls} {name}: {shown}"
                );
            }
            person.private(
                CONFIG,
                &secret("variable", "from-env = \"ANTHROPIC_API_KEY\"\nheader = \"x-model: {}\"\nenv = \"ANTHROPIC_API_KEY\""),
            );
            let before = arrived(&["/variable\"", &key]);
            for finished in call(name, walls, &[]) {
                let said = finished.stderr.clone();
                let shown = finished.ok();
                assert!(
                    shown.contains("[agentbox-secret-variable]"),
                    "{walls} {name}: {shown}{said}"
                );
                for clean in ["environment: 0\n", "files: 0\n", "memory: 0\n"] {
                    assert!(shown.contains(clean), "{walls} {name}: {shown}{said}");
                }
                assert!(
                    said.contains("ANTHROPIC_API_KEY stays outside (secret variable)")
                        && said.contains(&format!("GET https://{HOST}/variable"))
                        && !said.contains("@anthropic"),
                    "{walls} {name}: {said}"
                );
            }
            // The server writes its line after its answer.
            await_that("the key arrives", || {
                arrived(&["/variable\"", &key]) >= before + 2
            });
            assert_eq!(
                arrived(&["/variable\"", &key]),
                before + 2,
                "{walls} {name}"
            );
        }
        // A preset says where a provider's key belongs; what the entry says itself counts before it.
        person.private(
            CONFIG,
            "[[secret]]\npreset = \"anthropic\"\nfrom-env = \"ANTHROPIC_API_KEY\"\n",
        );
        for finished in call("claude", walls, &[]) {
            let said = finished.stderr.clone();
            let shown = finished.stdout.clone();
            assert!(
                shown.contains("[agentbox-secret-anthropic]")
                    && shown.contains("environment: 0\n")
                    && said.contains("ANTHROPIC_API_KEY stays outside (secret anthropic)")
                    && said.contains("GET https://api.anthropic.com/v1/models")
                    && !said.contains("@anthropic"),
                "{walls}: {finished}"
            );
        }
        let preset =
            "preset = \"anthropic\"\nfrom-env = \"ANTHROPIC_API_KEY\"\nheader = \"x-model: {}\"";
        person.private(CONFIG, &secret("variable", preset));
        let before = arrived(&["/variable\"", &key]);
        for finished in call("claude", walls, &[]) {
            assert!(
                finished.ok().contains("[agentbox-secret-variable]"),
                "{walls}"
            );
        }
        let after = arrived(&["/variable\"", &key]);
        assert_eq!(after, before + 2, "{walls}");
        // Opening the host as a whole would show the key to every server that answers there.
        for finished in call("claude", walls, &["--allow", "api.example.test"]) {
            let said = finished.failed();
            assert!(
                said.contains("reads only requests of request rules"),
                "{walls}: {said}"
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_git_pushes_with_a_token_that_is_put_in_on_the_way() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    smart_repositories();
    let person = Account::new();
    let token = value(&person, "token");
    person.private(".config/agentbox/token", &token);
    let rules = "git:read files.example.test/smart/*, git:push files.example.test/smart/write";
    person.private(
        CONFIG,
        "[[secret]]\nname = \"forge\"\nfile = \"~/.config/agentbox/token\"\nbasic = \"x-access-token\"\n\
         requests = [\"git:read files.example.test/smart/*\", \"git:push files.example.test/smart/write\"]\n",
    );
    let git = "git -c user.name=a -c user.email=a@b";
    let work = format!(
        "cd ~ && {git} clone -q https://files.example.test/smart/write w && cd w && cat file && date +%N >new && \
         git add new && {git} commit -qm inside && {git} push -q origin HEAD:main && echo pushed"
    );
    let basic = run(
        "sh",
        &[
            "-c",
            &format!("printf 'x-access-token:{token}' | base64 -w0"),
        ],
    )
    .ok();
    for walls in WALLS {
        for tls in ["pass", "open"] {
            let tls = format!("network.tls={tls}");
            let before = heads("write").matches("inside").count();
            let sent = arrived(&["/smart/write", "git-receive-pack", &basic]);
            for finished in
                person.keyed(&["--walls", walls, "--allow", rules, "--set", &tls], &work)
            {
                let shown = finished.ok();
                assert!(shown.ends_with("pushed\n"), "{walls} {tls}: {shown}");
            }
            assert_eq!(
                heads("write").matches("inside").count(),
                before + 2,
                "{walls} {tls}"
            );
            assert!(
                arrived(&["/smart/write", "git-receive-pack", &basic]) > sent,
                "{walls} {tls}"
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n49_a_user_sees_at_a_terminal_which_command_is_waited_for() {
    let _docker = Docker::connect();
    internet();
    let person = Account::new();
    let slow = by_command("slow", &["/bin/sh", "-c", "sleep 3; echo a-longer-key"], "");
    person.private(CONFIG, &slow);
    let mut shell = Shell::new(&person.project);
    for (redirected, said) in [("", true), ("2>&1 | cat", false)] {
        let seen = shell.ask(&format!(
            "{} {} wrap --allow 'GET https://{HOST}/**' -- echo ran {redirected}",
            person.typed(),
            program()
        ));
        assert!(seen.ends_with("ran\n<prompt>"), "{seen:?}");
        let line = "agentbox: waiting for the command /bin/sh: ";
        assert_eq!(seen.contains(line), said, "{seen:?}");
        let last = seen.rsplit(line).next().unwrap();
        assert!(!said || last.contains("s of 10\u{1b}[K"), "{seen:?}");
    }
}
