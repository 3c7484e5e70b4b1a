//! F33 to F36: files that a command left do not decide about the next run. The commands of the first runs are an
//! agent's. Each test's control does the same by the user's own hand.

use std::process::Command;

use super::account::Account;
use crate::command::{Finished, finish};
use crate::direct::program;
use crate::docker::{Docker, Policy};

/// Names of programs that agentbox has ever run to ask something.
const ASKED: [&str; 8] = [
    "busctl",
    "ps",
    "getent",
    "id",
    "sh",
    "systemd-run",
    "git",
    "newuidmap",
];

/// Runs a script in its own mount namespace, as the rig's root.
fn in_mounts(script: &str) -> Finished {
    let options = ["--mount", "--propagation", "private", "bash", "-c", script];
    finish(Command::new("unshare").args(options))
}

impl Account {
    /// A shell command for `agentbox ARGUMENTS` as the user, in the project, with only the user's rights.
    fn command_line(&self, environment: &str, arguments: &str) -> String {
        let (uid, gid, home, project) = (self.uid, self.gid, &self.home, &self.project);
        let program = program();
        format!(
            "cd {project} && env -u XDG_RUNTIME_DIR HOME={home} USER={} {environment} \
             /usr/bin/setpriv --reuid {uid} --regid {gid} --init-groups {program} {arguments}",
            self.name
        )
    }
}

/// F33
#[test]
#[ignore = "needs the rig: hack/test"]
fn f33_no_program_that_a_command_left_on_path_runs_outside_of_the_walls() {
    let _docker = Docker::connect();
    let person = Account::new();
    let venv = format!("{}/.venv/bin", person.project);
    let plant: String = ASKED
        .iter()
        .map(|name| {
            format!(
                "printf '#!/bin/sh\\necho {name} >>{}/ran\\n' >.venv/bin/{name}; ",
                person.project
            )
        })
        .collect();
    let plant = format!("mkdir -p .venv/bin; {plant} chmod 755 .venv/bin/*");
    person.wraps(&["--policy", "strict"], &plant).ok();
    let ran = format!("{}/ran", person.project);
    // The control: found along PATH, it runs.
    person.does(&format!("PATH={venv}:/usr/bin:/bin busctl"));
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "busctl\n");
    std::fs::remove_file(&ran).unwrap();
    // On cgroup v2, systemd is asked for a scope if a variable names its bus.
    let unified = "umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup /sys/fs/cgroup; ";
    let path = format!(
        "PATH={venv}:/usr/bin:/bin VIRTUAL_ENV={}/.venv",
        person.project
    );
    let bus = format!("{path} DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/none");
    for cgroups in ["", unified] {
        for environment in [&path, &bus] {
            for call in [
                "wrap -- true",
                "wrap --dry-run -- true",
                "explain",
                "wrap --walls landlock -- true",
                "list",
                "trust --list",
                "policy list",
            ] {
                let line = person.command_line(environment, call);
                in_mounts(&format!("{cgroups}{line}")).ok();
                let seen = std::fs::read_to_string(&ran).unwrap_or_default();
                assert_eq!(seen, "", "{call}");
            }
        }
    }
    // Also root's commands, if the environment keeps such a PATH.
    for call in ["list", "policy list", "wrap --dry-run -- true"] {
        let mut command = Command::new(program());
        command.args(call.split(' ')).current_dir(&person.project);
        command.env("PATH", format!("{venv}:/usr/bin:/bin"));
        finish(&mut command).ok();
        assert!(!std::path::Path::new(&ran).exists(), "{call}");
    }
}

/// F34
#[test]
#[ignore = "needs the rig: hack/test"]
fn f34_a_policy_that_a_command_can_write_counts_as_it_was_trusted() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("secret/diary", "diary");
    let look = "test -e ~/secret/diary && echo SHOWN || echo hidden";
    let own = person.file("src/project/mine.toml", "base = \"strict\"\n");
    let settings = person.file(
        ".config/agentbox/config.toml",
        &format!("policy = {own:?}\n"),
    );
    let by_option = ["--policy", "./mine.toml"];
    let ways: [&[&str]; 2] = [&by_option, &[]];
    for options in ways {
        let refused = person.wraps(options, look).failed();
        assert!(
            refused.contains("lies where a command may write")
                && refused.contains(&format!("agentbox trust {own}")),
            "{refused}"
        );
        assert!(
            person
                .wrap(options, look)
                .failed()
                .contains("agentbox trust")
        );
    }
    let shown = person.agentbox(&["trust", "--yes", "mine.toml"]).ok();
    assert!(shown.contains("base = \"strict\""), "{shown}");
    let wider = "printf 'base = \"permissive\"\\n' >new && mv new mine.toml && echo written; \
                 printf 'base = \"permissive\"\\n' >mine.toml && echo written; true";
    for options in ways {
        // During its own run the file is read-only.
        let seen = person.wraps(options, &format!("{look}; {wider}"));
        assert_eq!(seen.stdout, "hidden\n", "{seen}");
        assert_eq!(person.wraps(options, look).ok(), "hidden\n");
    }
    // A run with other options can write it, and then it no longer counts.
    assert!(
        person
            .wraps(&["--policy", "standard"], wider)
            .ok()
            .contains("written")
    );
    for options in ways {
        for walls in ["namespaces", "landlock"] {
            let options = [options, &["--walls", walls]].concat();
            let refused = person.wraps(&options, look).failed();
            assert!(
                refused.contains("has changed since you trusted it"),
                "{refused}"
            );
        }
    }
    let listed = person.agentbox(&["trust", "--list"]).ok();
    assert!(listed.contains("mine.toml  changed, or"), "{listed}");
    // The control: the same content counts if the user trusts it, or if it lies where no sandbox writes.
    person.agentbox(&["trust", "--yes", &own]).ok();
    assert_eq!(person.wraps(&by_option, look).ok(), "SHOWN\n");
    person.agentbox(&["trust", "--remove", &own]).ok();
    assert!(
        person
            .wraps(&by_option, look)
            .failed()
            .contains("agentbox trust")
    );
    std::fs::remove_file(&settings).unwrap();
    let kept = person.file(".config/agentbox/wide.toml", "base = \"permissive\"\n");
    assert_eq!(person.wraps(&["--policy", &kept], look).ok(), "SHOWN\n");
    assert_eq!(person.wrap(&["--policy", &kept], look).ok(), "SHOWN\n");
    let refused = person
        .wraps(
            &["--write", &format!("{}/.config/agentbox", person.home)],
            "true",
        )
        .failed();
    assert!(refused.contains("by which later runs go"), "{refused}");
}

/// F34: a link that an earlier run left in another project.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f34_no_link_of_another_project_stands_for_a_file_of_the_users() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("secret/diary", "diary");
    person.file("secret/prod.env", "DB_PASS=prod\n");
    person.file("keys", "keys");
    person.file(".config/agentbox/wide.toml", "base = \"permissive\"\n");
    let mine = person.file("src/project/mine.toml", "base = \"strict\"\n");
    person.agentbox(&["trust", "--yes", &mine]).ok();
    let plant = "ln -sf ~/.config/agentbox/wide.toml mine.toml; ln -s ~/secret/prod.env .env; \
                 ln -s ~/secret dir; ln -s ~/keys sum.md";
    person.wraps(&["--policy", "standard"], plant).ok();
    person.does("mkdir -p ~/src/other");
    let other = format!("{}/src/other", person.home);
    let program = program();
    let elsewhere = |options: &[&str], script: &str| {
        let all = [
            &[program.as_str(), "wrap"],
            options,
            &["--", "sh", "-c", script],
        ]
        .concat();
        let mut command = person.alone(&all);
        command.current_dir(&other);
        finish(&mut command)
    };
    let at = |name: &str| format!("{}/{name}", person.project);
    for (option, name) in [
        ("--policy", "mine.toml"),
        ("--env-file", ".env"),
        ("--read", "dir/diary"),
        ("--write", "dir"),
        ("--hide", "dir"),
        ("--summary", "sum.md"),
    ] {
        for walls in ["namespaces", "landlock"] {
            let refused = elsewhere(&[option, &at(name), "--walls", walls], "env; echo ran");
            assert_eq!(refused.stdout, "", "{option}: {refused}");
            assert!(
                refused.failed().contains("a command could have made"),
                "{option}"
            );
        }
    }
    assert_eq!(person.does("cat ~/keys"), "keys");
    // The control: the files themselves, and a link where no sandbox writes.
    person.does("ln -s secret/diary ~/mine");
    let mine = format!("{}/mine", person.home);
    let seen = elsewhere(&["--read", &mine], "cat ~/mine").ok();
    assert_eq!(seen, "diary");
    let env = format!("{}/secret/prod.env", person.home);
    assert_eq!(
        elsewhere(&["--env-file", &env], "echo $DB_PASS").ok(),
        "prod\n"
    );
}

/// F34
#[test]
#[ignore = "needs the rig: hack/test"]
fn f34_variables_that_a_command_can_write_hand_over_none_of_the_users() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("private/bin/tool", "private");
    let file = person.file("src/project/.env", "MODE=test\n");
    let program = program();
    let run = |options: &[&str], script: &str| {
        let all = [
            &[program.as_str(), "wrap"],
            options,
            &["--", "sh", "-c", script],
        ]
        .concat();
        let mut command = person.alone(&all);
        command.env("GITHUB_TOKEN", "ghp_own");
        finish(&mut command)
    };
    let script = "echo $MODE $GITHUB_TOKEN";
    let option = ["--env-file", ".env"];
    assert_eq!(run(&option, script).ok(), "test\n");
    // Its own run cannot write it. Another one can.
    let add = |line: &str| format!("echo '{line}' >>.env && echo written");
    assert!(!run(&option, &add("X=1")).stdout.contains("written"));
    run(&[], &add("GITHUB_TOKEN")).ok();
    person.file(
        ".config/agentbox/config.toml",
        &format!("env-file = [{file:?}]\n"),
    );
    for options in [&option[..], &[]] {
        let refused = run(options, script).failed();
        assert!(
            refused.contains("line 2")
                && refused.contains("agentbox trust")
                && !refused.contains("ghp_own"),
            "{refused}"
        );
    }
    std::fs::remove_file(format!("{}/.config/agentbox/config.toml", person.home)).unwrap();
    for line in ["PATH=/home", "HOME=/"] {
        std::fs::write(&file, format!("{line}\n")).unwrap();
        assert!(
            run(&option, "true")
                .failed()
                .contains("which directories are shown"),
            "{line}"
        );
    }
    // The control: variables that the user has reviewed are passed on.
    let own = "MODE=test\nNODE_OPTIONS=--require=./x.js\nAPI_TOKEN=secret-word\nGITHUB_TOKEN\n";
    std::fs::write(&file, own).unwrap();
    let shown = person.agentbox(&["trust", "--yes", ".env"]).ok();
    // What programs obey is shown, and no secret.
    assert!(
        shown.contains("--require=./x.js") && !shown.contains("secret-word"),
        "{shown}"
    );
    assert_eq!(run(&option, script).ok(), "test ghp_own\n");
}

/// F35
#[test]
#[ignore = "needs the rig: hack/test"]
fn f35_records_lie_where_no_sandbox_writes_and_carry_no_hooks() {
    let docker = Docker::connect();
    let person = Account::new();
    let records = format!("/dev/shm/agentbox-{}", person.uid);
    person.wraps(&[], "true").ok();
    assert!(std::path::Path::new(&records).is_dir());
    for named in [records.as_str(), "/dev/shm", "/tmp", "/var/tmp"] {
        for walls in ["namespaces", "landlock"] {
            let seen = person.wraps(&["--walls", walls, "--write", named], "echo ran");
            assert_ne!(seen.code, 0, "{named}: {seen}");
            assert_eq!(seen.stdout, "", "{named}");
        }
    }
    // Under an engine, with the user's own id.
    let user = person.uid.to_string();
    person.file(".config/agentbox/config.toml", "");
    person.does("mkdir -p ~/.local/state/agentbox/trusted");
    let own = [".config/agentbox", ".local/state/agentbox"].map(|d| format!("{}/{d}", person.home));
    let above = [".config", ".local/state"].map(|d| format!("{}/{d}", person.home));
    for place in own.iter().chain(&above).chain([&records]) {
        for policy in Policy::ALL {
            let volume = format!("{place}:/work");
            let options = [
                &policy.options()[..],
                &["-u", &user, "-v", &volume, "test-probe"],
            ]
            .concat();
            let script =
                "touch /work/planted /work/agentbox/planted /work/agentbox/trusted/planted";
            docker.run(&options, &["sh", "-c", script]);
        }
    }
    let planted = |places: &str| person.does(&format!("find {places} -name planted"));
    assert_eq!(
        planted(
            &[&own[..], std::slice::from_ref(&records)]
                .concat()
                .join(" ")
        ),
        ""
    );
    // A record that names a hook, as an attacker with write access would leave it. The living one may be written meanwhile.
    let mark = format!("{}/hooked", person.home);
    let plant = format!(
        "set -e; cd {records}; d=$(echo index/*-living); z=${{d%living}}zz; \
         for i in $(seq 50); do cp -r $d $z 2>/dev/null && break; rm -rf $z; sleep 0.1; done; \
         python3 - $z/record.json <<'PY'\n\
import json, sys\n\
path = sys.argv[1]\n\
record = json.load(open(path))\n\
record.update(id='zz', init=None, sidecar=None, cgroups=[])\n\
record['hooks'] = {{'poststop': [{{'path': '/bin/sh', 'args': ['sh', '-c', 'touch {mark}']}}]}}\n\
json.dump(record, open(path, 'w'))\n\
PY\n\
         mkdir -m 700 wrap/zz; printf %s {records}/containers >wrap/zz/alive; ls $z >/dev/null"
    );
    let mut living = person.alone(&[&program(), "wrap", "--name", "living", "--", "sleep", "600"]);
    let mut living = living.spawn().unwrap();
    let waits = format!(
        "for i in $(seq 200); do ls {records}/index/*-living/record.json && exit 0; sleep 0.05; done 2>/dev/null; exit 1"
    );
    person.does(&waits);
    person.does(&plant);
    let swept = person.wraps(&[], "true");
    assert_eq!(swept.code, 0, "{swept}");
    let listed = person.agentbox(&["list", "--all"]);
    let deleted = person.agentbox(&["delete", "--force", "zz"]);
    // At least one of them read it.
    let said = format!("{swept}\n{listed}\n{deleted}");
    assert!(said.contains("it names hooks"), "{said}");
    let was_run = std::path::Path::new(&mark).exists();
    person.agentbox(&["kill", "living", "KILL"]).ok();
    living.wait().unwrap();
    assert!(!was_run, "the hook of a planted record ran");
}

/// F35: a missing file cannot be hidden, so the sandbox must not be able to make it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f35_no_sandbox_makes_the_settings_that_a_user_has_not_made() {
    let docker = Docker::connect();
    let person = Account::new();
    person.does("mkdir -p ~/.config ~/.local/state ~/elsewhere");
    let user = person.uid.to_string();
    let plant = "mkdir -p $1/agentbox/trusted; echo 'policy = \"permissive\"' >$1/agentbox/config.toml; true";
    let made = || person.does("find ~/.config ~/.local -name '*agentbox*'");
    for (place, below) in [(".config", "."), (".local/state", "."), (".local", "state")] {
        let place = format!("{}/{place}", person.home);
        for policy in Policy::ALL {
            let volume = format!("{place}:/work");
            let own = ["-u", &user, "-v", &volume, "-w", "/work", "test-probe"];
            let options = [&policy.options()[..], &own].concat();
            docker.run(&options, &["sh", "-c", plant, "plant", below]);
            assert_eq!(made(), "", "{place}, {policy:?}");
        }
        // With other variables, the user's own directories are elsewhere.
        for variable in ["HOME", "XDG_CONFIG_HOME"] {
            for walls in ["namespaces", "landlock"] {
                let elsewhere = format!("{variable}={}/elsewhere", person.home);
                let script = plant.replace("$1", &format!("{place}/{below}"));
                let call = format!(
                    "wrap --walls {walls} --write {place} -- sh -c '{}'",
                    script.replace('\'', "'\\''")
                );
                in_mounts(&person.command_line(&elsewhere, &call)).failed();
                assert_eq!(made(), "", "{place}, {variable}");
            }
        }
        // The control: without a wall the file is made.
        let control = [
            "--runtime=runc",
            "-u",
            &user,
            "-v",
            &format!("{place}:/work"),
            "test-probe",
        ];
        docker
            .run(
                &control,
                &["sh", "-c", plant, "plant", &format!("/work/{below}")],
            )
            .ok();
        assert_ne!(made(), "", "{place}");
        person.does("rm -rf ~/.config/agentbox ~/.local/state/agentbox");
    }
}

/// F36: root in a sandbox could write root's files.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f36_no_sandbox_of_roots_writes_what_the_nodes_file_names() {
    let docker = Docker::alone();
    let scratch = crate::direct::Scratch::new();
    let policies = scratch.dir("shared/policies");
    scratch.file("shared/policies/mine.toml", "base = \"strict\"\n");
    let key = scratch.file("shared/key", "a key\n");
    let shared = scratch.path("shared");
    let config = std::path::Path::new("/etc/agentbox/config.toml");
    assert!(!config.exists(), "the rig's node has no file");
    let text = format!("policy-dir = \"{policies}\"\n");
    let plant = "echo 'base = \"permissive\"' >policies/mine.toml; mkdir -p policies; echo x >policies/mine.toml; cat key";
    let volume = format!("{shared}:/work");
    let own = ["-v", &volume, "-w", "/work", "test-probe"];
    let options = [&Policy::Standard.options()[..], &own].concat();
    std::fs::create_dir_all("/etc/agentbox").unwrap();
    std::fs::write(config, &text).unwrap();
    docker.run(&options, &["sh", "-c", plant]);
    let seen = std::fs::read_to_string(format!("{policies}/mine.toml")).unwrap();
    std::fs::remove_file(config).unwrap();
    assert_eq!(seen, "base = \"strict\"\n");
    // The control: no node file names the directory.
    docker
        .run(&options, &["sh", "-c", "echo x >policies/mine.toml"])
        .ok();
    assert!(std::path::Path::new(&key).exists());
    // `--config` of a call counts only where no sandbox writes.
    let node = scratch.file("shared/node.toml", "");
    for verb in [&["wrap", "--", "true"][..], &["explain"]] {
        let all = [&["--config", node.as_str()], verb].concat();
        let mut command = Command::new(program());
        command
            .args(&all)
            .current_dir(&shared)
            .env("HOME", scratch.path("home"));
        let refused = finish(&mut command).failed();
        assert!(
            refused.contains("lies where a sandbox could write it"),
            "{refused}"
        );
    }
    let kept = super::NodeDir::new().file("node.toml", "");
    let mut command = Command::new(program());
    command
        .args(["--config", &kept, "wrap", "--", "true"])
        .current_dir(&shared);
    finish(&mut command).ok();
}

/// F36
#[test]
#[ignore = "needs the rig: hack/test"]
fn f36_root_obeys_no_directory_that_others_may_change() {
    let _docker = Docker::connect();
    let program = program();
    let list = format!("{program} list --all");
    let person = Account::new();
    let uid = person.uid;
    in_mounts(&list).ok();
    for (make, word) in [
        ("mount -t tmpfs -o mode=777 x /run/agentbox".to_owned(), "rights in it"),
        (format!("mount -t tmpfs -o mode=700,uid={uid} x /run/agentbox"), "another user"),
        ("mount -t tmpfs -o mode=777 x /run; mkdir -m 700 /run/agentbox".to_owned(), "on the way there"),
        ("mount -t tmpfs -o mode=755 x /run; mkdir -m 777 /run/x; mkdir -m 700 /run/x/a; ln -s x/a /run/agentbox".to_owned(), "link"),
    ] {
        let refused = in_mounts(&format!("mkdir -p /run/agentbox; {make}; {list}")).failed();
        assert!(refused.contains(word), "{make}: {refused}");
    }
}

/// F36, L4: root also reads no log there, and signs with no key there.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f36_root_keeps_no_log_and_no_key_where_others_may_change_it() {
    let _docker = Docker::connect();
    let program = program();
    let person = Account::new();
    let uid = person.uid;
    let verbs = ["audit", "key"];
    let made = "mkdir -p /var/lib/agentbox; mount -t tmpfs -o mode=711 x /var/lib/agentbox; ";
    for verb in verbs {
        in_mounts(&format!("{made}{program} {verb}")).ok();
    }
    for (make, cure) in [
        (
            "mount -t tmpfs -o mode=777 x /var/lib/agentbox".to_owned(),
            "/var/lib/agentbox",
        ),
        (
            format!("mount -t tmpfs -o mode=711,uid={uid} x /var/lib/agentbox"),
            "/var/lib/agentbox",
        ),
        (
            "mount -t tmpfs -o mode=711 x /var/lib/agentbox; mkdir -m 777 /var/lib/agentbox/y; ln -s y /var/lib/agentbox/runs"
                .to_owned(),
            "/var/lib/agentbox/y",
        ),
    ] {
        // The key is beside the runs.
        for verb in verbs.iter().take(if cure.ends_with('y') { 1 } else { 2 }) {
            let refused = in_mounts(&format!(
                "mkdir -p /var/lib/agentbox; {make}; {program} {verb}"
            ))
            .failed();
            assert!(
                refused.contains("chmod go-w") && refused.contains(cure),
                "{make}: {verb}: {refused}"
            );
        }
    }
}

/// F36
#[test]
#[ignore = "needs the rig: hack/test"]
fn f36_the_nodes_file_holds_for_every_user_and_by_every_link() {
    let _docker = Docker::connect();
    let person = Account::new();
    let own = person.file(".config/agentbox/empty.toml", "");
    let node = "mkdir -p /etc/agentbox; mount -t tmpfs -o mode=755 x /etc/agentbox; ";
    let ceiling = "echo 'ceiling = \"strict\"' >/etc/agentbox/config.toml; ";
    let wrap = "wrap --policy standard --dry-run -- true";
    let with_own = person.command_line("", &format!("--config {own} {wrap}"));
    // The controls: without a node file, and by root.
    in_mounts(&format!("{node}{with_own}")).ok();
    let by_root = format!(
        "{node}{ceiling}cp {own} /etc/agentbox/e.toml; cd {}; {} --config /etc/agentbox/e.toml {wrap}",
        person.project,
        program()
    );
    in_mounts(&by_root).ok();
    let refused = in_mounts(&format!("{node}{ceiling}{with_own}")).failed();
    assert!(refused.contains("which holds for every user"), "{refused}");
    // A link into a directory that others can write, and a parent of the named directory that they can.
    let target = "mount -t tmpfs -o mode=755 x /srv; mkdir -m 777 /srv/lk; echo 'default = \"permissive\"' >/srv/lk/c; \
                  ln -s /srv/lk/c /etc/agentbox/config.toml; ";
    let policies = "mount -t tmpfs -o mode=755 x /srv; mkdir -m 777 /srv/up; mkdir -p -m 755 /srv/up/a/policies; \
                    echo 'policy-dir = \"/srv/up/a/policies\"' >/etc/agentbox/config.toml; ";
    for (make, word) in [(target, "/srv/lk"), (policies, "/srv/up")] {
        let call = format!("{} policy list", program());
        let refused = in_mounts(&format!("{node}{make}{call}")).failed();
        assert!(
            refused.contains(word) && refused.contains("others than root may write it"),
            "{refused}"
        );
        let mended = format!("{node}{make}chmod 755 {word}; {call}");
        in_mounts(&mended).ok();
    }
}

/// F22: the command of one run renames the directories above a hidden or read-only path, and makes others of their names.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f22_what_the_user_hides_or_closes_in_the_workspace_keeps_its_path() {
    let _docker = Docker::connect();
    let person = Account::new();
    let hide = "mv a1 a2; mkdir -p a1/b1; echo decoy >a1/b1/private; true";
    let close = "mv r r2; mkdir -p r/ro; echo evil >r/ro/k; true";
    let look = "cat a1/b1/private a2/b1/private; true";
    let named = ["--hide", "a1/b1/private", "--read", "r/ro"];
    let start = || {
        person.does("cd src/project; rm -rf * .agentbox.toml; mkdir -p free/x");
        person.file("src/project/a1/b1/private", "SECRET");
        person.file("src/project/r/ro/k", "orig\n");
    };
    let evil = format!("{hide} {close} mv free free2").replace("true ", "true; ");
    for by_root in [false, true] {
        let wraps = |options: &[&str], script: &str| match by_root {
            true => person.wrap(options, script),
            false => person.wraps(options, script),
        };
        start();
        wraps(&named, &evil).ok();
        assert_eq!(person.does("cat src/project/r/ro/k"), "orig\n");
        let seen = wraps(&named, look);
        assert!(!seen.to_string().contains("SECRET"), "{seen}");
        // The control: what holds nothing of the kind is moved, and without the options all is.
        person.does("test -d src/project/free2/x");
        start();
        wraps(&[], &evil).ok();
        assert_eq!(person.does("cat src/project/r/ro/k"), "evil\n");
        assert!(wraps(&named, look).stdout.contains("SECRET"));
    }
}

/// F22: a hard link that an earlier run made is another name of a hidden or read-only file.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f22_a_file_with_another_name_is_hidden_by_no_option() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file("src/project/s/k", "SECRET");
    person.wraps(&[], "ln s/k s/other").ok();
    for option in ["--hide", "--read"] {
        let refused = person.wraps(&[option, "s/k"], "cat s/other").failed();
        assert!(
            refused.contains("another name by a hard link") && !refused.contains("SECRET"),
            "{refused}"
        );
    }
    // The control: a file with one name.
    person.does("cd src/project; cp -p s/k new; mv new s/k");
    assert_eq!(
        person
            .wraps(&["--hide", "s/k"], "cat s/k; cat s/other")
            .ok(),
        "SECRET"
    );
    person
        .wraps(&["--read", "s/k"], "! (echo x >s/k) && ! ln s/k s/more")
        .ok();
}
