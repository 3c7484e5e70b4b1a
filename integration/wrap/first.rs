//! The first hour with `wrap`, as a user meets it: through a real sudo, under real limits, at a real terminal.

use std::process::Command;

use super::account::Account;
use super::shell::Shell;
use crate::command::{Finished, finish, run};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

const WALLS: [&str; 2] = ["namespaces", "landlock"];
const HELPER: &str = "a crash starts the node's core_pattern program";

fn by(program: &str, arguments: &[&str], directory: &str) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    command.env_remove("XDG_RUNTIME_DIR");
    finish(&mut command)
}

/// Hardened nodes set this limit for every user.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_starts_where_the_hard_limit_of_core_files_is_0() {
    let _docker = Docker::connect();
    let person = Account::new();
    for walls in WALLS {
        let wrap = format!("{} wrap --quiet --walls {walls}", program());
        let within = |limit: &str, rest: &str| {
            let script = format!("cd src/project; {limit} env -u XDG_RUNTIME_DIR {wrap} {rest}");
            person.tries(&script)
        };
        let seen = within(
            "ulimit -Hc 0;",
            "-- bash -c 'ulimit -Hc; ulimit -Sc; exit 3'",
        );
        assert_eq!(
            (seen.code, seen.stdout.as_str()),
            (3, "0\n0\n"),
            "{walls}: {seen}"
        );
        let told = within("ulimit -Hc 0;", "--dry-run -- true").ok();
        assert!(told.contains(HELPER), "{walls}: {told}");
        // The control: without that limit it is 1, at which a crash starts no helper.
        let seen = within("", "-- bash -c 'ulimit -Hc; ulimit -Sc'").ok();
        // In blocks of 512 or 1024 bytes.
        assert!(
            ["0\n0\n", "1\n1\n"].contains(&seen.as_str()),
            "{walls}: {seen}"
        );
        let raw = within("", "-- grep core /proc/self/limits").ok();
        let words: Vec<&str> = raw.split_whitespace().collect();
        assert_eq!(words[4..6], ["1", "1"], "{walls}: {raw}");
        assert!(
            !within("", "--dry-run -- true").ok().contains(HELPER),
            "{walls}"
        );
    }
}

/// sudo(8) itself sets that limit.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_starts_by_a_real_sudo() {
    let _docker = Docker::connect();
    let person = Account::new();
    let (name, project) = (person.name.as_str(), person.project.as_str());
    let program = program();
    let script = "id -u; grep core /proc/self/limits";
    for walls in WALLS {
        let wrap = [
            program.as_str(),
            "wrap",
            "--quiet",
            "--walls",
            walls,
            "--",
            "bash",
            "-c",
        ];
        let login = format!("cd {project}; {} '{script}'", wrap.join(" "));
        let as_user = [&["-u", name], &wrap[..], &[script]].concat();
        for (how, arguments) in [
            ("sudo -u", as_user),
            ("sudo -iu", vec!["-iu", name, "bash", "-c", &login]),
        ] {
            let seen = by("sudo", &arguments, project);
            assert_eq!(seen.code, 0, "{how} {walls}: {seen}");
            let uid = format!("{}\n", person.uid);
            assert!(seen.stdout.starts_with(&uid), "{how} {walls}: {seen}");
            let words: Vec<&str> = seen.stdout.split_whitespace().collect();
            assert_eq!(words[5..7], ["0", "0"], "{how} {walls}: {seen}");
        }
    }
    // The control: the limit is sudo's.
    let bare = by("sudo", &["-u", name, "bash", "-c", "ulimit -Hc"], project);
    assert_eq!(bare.ok(), "0\n");
}

/// As typed by a user: sudo asks PAM for the password and sudoers(5) for permission, and sets its own variables.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_is_the_persons_by_their_own_sudo() {
    const PASSWORD: &str = "a word of theirs";
    let _docker = Docker::connect();
    let person = Account::new();
    person.may_sudo(PASSWORD);
    let (name, project) = (person.name.as_str(), person.project.as_str());
    let program = program();
    let script =
        "id -un; touch made; grep CapEff /proc/self/status; cat /etc/shadow 2>/dev/null; true";
    let expected = format!("{name}\nCapEff:\t{:016}\n", 0);
    let mut shell = Shell::new(project);
    let ids = format!(
        "--reuid {} --regid {} --init-groups",
        person.uid, person.gid
    );
    shell.ask(&format!(
        "exec setpriv {ids} env HOME={} USER={name} LOGNAME={name} bash --norc --noprofile --noediting -i",
        person.home
    ));
    // The control: without the password sudo refuses, and with it sudo gives root.
    let shown = shell.ask("sudo -n id -u; echo rc $?");
    assert!(shown.contains("password is required\nrc 1"), "{shown}");
    shell.line("sudo -p 'pass''word:' id -u");
    shell.wait_for("password:");
    shell.line(PASSWORD);
    let shown = shell.wait_for("<prompt>").replace('\r', "");
    assert!(shown.ends_with("\n0\n<prompt>"), "{shown}");
    for walls in WALLS {
        let wrap = format!("{program} wrap --quiet --walls {walls} --");
        let made = || person.does("stat -c %U src/project/made; rm src/project/made");
        // At a terminal, which remembers the password.
        let shown = shell.ask(&format!("sudo {wrap} bash -c 'test -t 0 && {script}'"));
        // sudo cannot resolve the rig's name, and Landlock walls print at a terminal what they lack.
        let said = |line: &&str| line.starts_with("sudo: ") || line.starts_with("agentbox: ");
        let lines = shown.lines().filter(|line| !said(line));
        let shown = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(shown, format!("{expected}<prompt>"), "{walls}");
        assert_eq!(made(), format!("{name}\n"), "{walls}");
        // In a script, where the command gets the rest of standard input.
        let seen = person.tries(&format!(
            "cd src/project; printf '%s\\n' '{PASSWORD}' for-the-command | sudo -k -S -p '' {wrap} bash -c 'cat; {script}'"
        ));
        let all = format!("for-the-command\n{expected}");
        assert_eq!(seen.stdout, all, "{walls}: {seen}");
        assert_eq!(made(), format!("{name}\n"), "{walls}");
    }
}

/// A job container has this limit through an option of its engine.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_starts_in_a_job_container_without_core_files() {
    let docker = Docker::connect();
    let binary = format!("{}:/ab:ro", program());
    let script = "mkdir -p /tmp/w && cd /tmp/w && /ab wrap --quiet --walls landlock -- sh -c 'grep core /proc/self/limits'";
    for (limit, wanted) in [("core=0", "0"), ("core=-1", "1")] {
        for user in ["0:0", "1000:1000"] {
            let options = [
                "--runtime",
                "runc",
                "--ulimit",
                limit,
                "--user",
                user,
                "-v",
                &binary,
            ];
            let options = [&options[..], &["test-workloads"]].concat();
            let seen = docker.run(&options, &["sh", "-c", script]).ok();
            let words: Vec<&str> = seen.split_whitespace().collect();
            assert_eq!(words[4..6], [wanted, wanted], "{user} {limit}: {seen}");
        }
    }
}

/// The first denial says what to type, and so do all reports of the run.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_says_what_to_type_in_its_own_words() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    let mut shell = Shell::new(&scratch.dir("project"));
    let program = program();
    let name = format!("first-{}", std::process::id());
    let lists = ["", "--allow other.example.test"];
    for (walls, listed) in WALLS
        .iter()
        .flat_map(|walls| lists.map(|list| (walls, list)))
    {
        let shown = shell.ask(&format!(
            "{program} wrap --walls {walls} {listed} -- curl -sv https://first.example.test"
        ));
        let said = "first.example.test:443; --allow first.example.test allows it";
        assert!(shown.contains(said), "{walls} {listed}: {shown}");
        // The program itself gets an answer, not a name that does not resolve.
        assert!(
            shown.contains("CONNECT tunnel failed, response 403"),
            "{walls} {listed}: {shown}"
        );
    }
    // `ssh` looks the name up, and a rule without a port would not help it.
    let shown = shell.ask(&format!("{program} wrap -- getent hosts git.example.test"));
    let ssh = "--allow git.example.test allows it; other ports, such as SSH's, need --allow git.example.test:PORT";
    assert!(shown.contains(ssh), "{shown}");
    let script = "curl -s https://first.example.test; strace -f true; true";
    let shown = shell.ask(&format!(
        "{program} wrap --name {name} -- bash -c '{script}'"
    ));
    let allows = "--allow first.example.test";
    assert!(shown.contains(&format!("; {allows} allows it")), "{shown}");
    let profile = "--set syscalls.profile=debug";
    for verb in ["audit", "suggest"] {
        let said = run(&program, &[verb, &name]).ok();
        for words in [allows, profile] {
            assert!(said.contains(words), "{verb}: {said}");
        }
        assert!(!said.contains("dev.agentbox."), "{verb}: {said}");
    }
    // The printed advice works.
    let shown = shell.ask(&format!(
        "{program} wrap {profile} -- strace -f true; echo rc $?"
    ));
    assert!(shown.contains("rc 0"), "{shown}");
    let options = format!("{program} wrap --dry-run {allows} -- true; echo rc $?");
    assert!(shell.ask(&options).contains("rc 0"));
}

/// `--read` shows parts of /etc that every user may read, such as /etc/chromium.d.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_shows_public_parts_of_etc_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let _docker = Docker::connect();
    let person = Account::new();
    let dir = format!("/etc/{}.d", person.name);
    std::fs::create_dir(&dir).unwrap();
    let file = format!("{dir}/one");
    std::fs::write(&file, "WORD=public\n").unwrap();
    let script = format!(". {dir}/one && echo $WORD; echo x >{dir}/new");
    let mode = |path: &str, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&dir, 0o755);
    for walls in WALLS {
        let reads = || person.wraps(&["--quiet", "--walls", walls, "--read", &dir], &script);
        mode(&file, 0o644);
        let seen = reads();
        assert_eq!(seen.stdout, "public\n", "{walls}: {seen}");
        assert!(!std::path::Path::new(&format!("{dir}/new")).exists());
        // The control: without `--read` it is not there.
        let control = person.wraps(&["--quiet", "--walls", walls], &script);
        assert_eq!(control.stdout, "", "{walls}: {control}");
        for (changed, to, word) in [
            (&file, 0o600, "everybody may read"),
            (&file, 0o664, "others than root may write"),
            (&dir, 0o750, "everybody may read"),
        ] {
            let before = if *changed == dir { 0o755 } else { 0o644 };
            mode(changed, to);
            let refused = reads();
            mode(changed, before);
            assert_eq!(refused.code, 125, "{walls}: {refused}");
            assert!(refused.stderr.contains(word), "{walls} {to:o}: {refused}");
        }
    }
    for path in [
        "/etc/shadow",
        "/etc",
        "/etc/hosts",
        "/etc/ssl",
        "/etc/ssl/private",
    ] {
        let refused = person.wraps(&["--read", path], "true");
        assert_eq!(refused.code, 125, "{path}: {refused}");
    }
    // Debian's start script of Chromium reads this one, so it needs no option. The directory stays: other tests may show
    // it already.
    let (chromium, own) = (
        "/etc/chromium.d",
        format!("/etc/chromium.d/{}", person.name),
    );
    std::fs::create_dir_all(chromium).unwrap();
    mode(chromium, 0o755);
    std::fs::write(&own, "WORD=chromium\n").unwrap();
    mode(&own, 0o644);
    let seen = WALLS.map(|walls| {
        let script = format!(". {own} && echo $WORD");
        person.wraps(&["--quiet", "--walls", walls], &script)
    });
    std::fs::remove_file(&own).unwrap();
    for seen in seen {
        assert_eq!(seen.stdout, "chromium\n", "{seen}");
    }
    // A credential is refused, whatever its mode.
    std::fs::create_dir(format!("{dir}/.aws")).unwrap();
    std::fs::write(format!("{dir}/.aws/credentials"), "x").unwrap();
    let refused = person.wraps(&["--read", &dir], "true");
    assert_eq!(refused.code, 125, "{refused}");
    std::fs::remove_dir_all(dir).unwrap();
}

/// A directory of the node's files without any file, removed when dropped.
struct EmptyPolicies;

impl EmptyPolicies {
    const DIR: &str = "/etc/agentbox/policies";

    fn new() -> Self {
        std::fs::create_dir_all(Self::DIR).unwrap();
        Self
    }
}

impl Drop for EmptyPolicies {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(Self::DIR);
    }
}

/// An MCP configuration with `agentbox wrap`, used under `agentbox wrap -- claude`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_within_a_sandbox_says_to_run_the_command_without_it() {
    const WORDS: &str =
        "this looks like a sandbox of agentbox already: run the command without `wrap`";
    let docker = Docker::connect();
    let person = Account::new();
    // Landlock denies it, before anything else is tried.
    let _policies = EmptyPolicies::new();
    let (program, nested) = (program(), format!("{} wrap -- true", program()));
    let (read, landlock) = (
        ["--read", &program],
        ["--walls", "landlock", "--read", &program],
    );
    for (by, said) in [
        ("sudo", person.wrap(&read, &nested)),
        ("alone", person.wraps(&read, &nested)),
        ("landlock", person.wraps(&landlock, &nested)),
    ] {
        assert!(said.stderr.contains(WORDS), "{by}: {said}");
        assert_eq!(said.code, 125, "{by}: {said}");
    }
    let binary = format!("{program}:/ab:ro");
    for user in ["0:0", "1000:1000"] {
        let nested = |runtime: &str| {
            let options = ["--runtime", runtime, "--user", user, "-v", &binary];
            let script = "cd /tmp && /ab wrap -- true";
            docker.run(&options, &["test-workloads", "sh", "-c", script])
        };
        let said = nested("agentbox");
        assert!(said.stderr.contains(WORDS), "{user}: {said}");
        // The control: another container gets the ways that exist there.
        let said = nested("runc").failed();
        assert!(
            !said.contains(WORDS) && said.contains("--walls landlock"),
            "{user}: {said}"
        );
    }
}

/// Rows of a terminal of 80 columns.
fn rows(text: &str) -> usize {
    text.lines()
        .map(|line| line.chars().count().div_ceil(80).max(1))
        .sum()
}

/// A screen of 80 columns and 44 rows, for what is explained of an ordinary run, of an ordinary container, and of one in
/// another's network. What Landlock's walls lack takes more.
#[test]
#[ignore = "needs the rig: hack/test"]
fn what_is_explained_fits_a_screen() {
    let docker = Docker::connect();
    let person = Account::new();
    let mut all = vec![
        person.wraps(&["--dry-run"], "true").ok(),
        person
            .wraps(&["--dry-run", "--allow", "a.example.com"], "true")
            .ok(),
    ];
    let allow = ["--annotation=dev.agentbox.network.allow=a.example.com"];
    let first = docker.start(
        &[&["--runtime=agentbox"], &allow[..], &["test-musl"]].concat(),
        &["sleep", "60"],
    );
    let member = format!("--network=container:{}", first.name);
    let second = docker.start(
        &["--runtime=agentbox", &member, "test-musl"],
        &["sleep", "60"],
    );
    for container in [&first, &second] {
        let id = container.inspect("{{.Id}}");
        all.push(run(&program(), &["explain", &id]).ok());
    }
    for text in all {
        assert!(text.contains("--all prints"), "{text}");
        assert!(rows(&text) <= 44, "{} rows:\n{text}", rows(&text));
    }
}

/// Without root's rights the seal would fail before.
#[test]
#[ignore = "needs the rig: hack/test"]
fn run_of_a_command_names_wrap() {
    let _docker = Docker::connect();
    let person = Account::new();
    let said = person.agentbox(&["run", "make"]).failed();
    assert!(said.contains("agentbox wrap -- make"), "{said}");
    // The control: a caller who names a bundle knows what `run` is.
    let said = person.agentbox(&["run", "--bundle", "b", "web1"]).failed();
    assert!(!said.contains("agentbox wrap"), "{said}");
}
