//! Places that forbid namespaces: a container without options, and one without any right. Ordinary work there.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::Place;
use crate::command::finish;
use crate::direct::{Scratch, program};
use crate::docker::Docker;
use crate::wrap::account::Account;

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_holds_in_a_container_without_options_and_in_one_without_rights() {
    let docker = Docker::connect();
    let binary = format!("{}:/ab:ro", program());
    let script = "mkdir -p /tmp/w && cd /tmp/w && echo mine >/tmp/key && \
                  /ab wrap --walls landlock -- sh -c 'id -u; cat /etc/shadow; cat /tmp/key; ls /root; echo x >y; cat y; exit 3'";
    let control = "id -u; cat /tmp/key; ls /root";
    let common = ["--runtime", "runc", "-v", &binary];
    let rights = [
        "--user=1000:1000",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
    ];
    for (options, user) in [(&[][..], "0"), (&rights[..], "1000")] {
        let options = [&common[..], options].concat();
        let seen = docker.run(&options, &["test-workloads", "sh", "-c", script]);
        assert_eq!(seen.code, 3, "{seen}");
        assert_eq!(seen.stdout, format!("{user}\nx\n"), "{seen}");
        assert_eq!(
            seen.stderr.matches("Permission denied").count(),
            3,
            "{seen}"
        );
        // The control: namespaces cannot be made there, and without walls the files can be read.
        let full = "cd /tmp && /ab wrap -- true";
        assert_ne!(
            docker
                .run(&options, &["test-workloads", "sh", "-c", full])
                .code,
            0
        );
        let bare = format!("echo mine >/tmp/key; {control}");
        let bare = docker.run(&options, &["test-workloads", "sh", "-c", &bare]);
        assert!(
            bare.stdout.starts_with(&format!("{user}\nmine\n")),
            "{bare}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_ordinary_work_goes_on() {
    let docker = Docker::connect();
    let binary = format!("{}:/ab:ro", program());
    let work = "set -e
        git init -q . && git config user.email a@b && git config user.name me
        printf 'int main(void){return 0;}' >m.c && printf 'all:\\n\\tgcc -o m m.c\\n' >Makefile && make -s && ./m
        python3 -m venv --without-pip v && v/bin/python -c 'import sys, json, subprocess; print(subprocess.run([\"echo\", \"venv\"], \
        capture_output=True, text=True).stdout.strip())'
        git add m.c && git commit -qm one && git log --format=%s
        node -e 'console.log(require(\"child_process\").execSync(\"echo node\").toString().trim())'
        echo data | tee f | sort >g; chmod +x f; cp -p f h; tar c f | tar t; find . -name f -newer m.c; python3 -m py_compile v/bin/../pyvenv.cfg 2>/dev/null || echo compiled";
    let script = format!(
        "mkdir -p /w/p && cd /w/p && /ab wrap --walls landlock -- bash -c '{}'",
        work.replace('\'', "'\\''")
    );
    for user in ["0:0", "1000:1000"] {
        let options = [
            "--runtime",
            "runc",
            "-v",
            &binary,
            "--tmpfs",
            "/w:mode=777,exec",
            "--user",
            user,
        ];
        let seen = docker.run(&options, &["test-workloads", "bash", "-c", &script]);
        assert_eq!(seen.ok(), "venv\none\nnode\nf\n./f\ncompiled\n", "{user}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_says_what_it_lacks_and_refuses_what_it_cannot_hold() {
    let place = Place::new();
    let mut explain = std::process::Command::new(program());
    explain
        .args(["explain", "--walls", "landlock"])
        .current_dir(&place.project);
    let said = crate::command::finish(&mut explain).ok();
    for word in [
        "refused rather than absent",
        "/dev/shm",
        "pid namespace",
        "are not limited",
        "loopback",
        "terminal",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    explain = std::process::Command::new(program());
    explain.args(["explain"]).current_dir(&place.project);
    let full = crate::command::finish(&mut explain).ok();
    assert!(!full.contains("refused rather than absent"), "{full}");
    let missing = place.wrap(&["no-such-program"]);
    assert_eq!(missing.code, 127, "{missing}");
    let denied = place.wrap(&["/etc/passwd"]);
    assert_eq!(denied.code, 126, "{denied}");
}

/// The report of these walls lists what their rules grant, and nothing that needs a mount or a namespace.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_explains_its_own_walls_and_not_those_of_namespaces() {
    let place = Place::new();
    let of = |words: &[&str]| {
        let mut command = std::process::Command::new(program());
        command.args(words).current_dir(&place.project);
        crate::command::finish(&mut command).ok()
    };
    let allow = ["--set", "network.allow=example.org:8443"];
    let dry = [&["wrap", "--dry-run", "--all"], &allow[..], &["--", "true"]].concat();
    let of_landlock = [&["wrap", "--walls", "landlock"], &dry[1..]].concat();
    let (full, said) = (of(&dry), of(&of_landlock));
    // The control: the full walls report these words, and enforce them.
    for word in [
        "discarded: at most",
        "empty: /",
        "an inner network",
        "limits: at most",
    ] {
        assert!(full.contains(word), "{word}: {full}");
        assert!(!said.contains(word), "{word}: {said}");
    }
    let project = format!("{}  read, write, execute: ", place.project);
    for word in [
        "every other path is refused",
        &project,
        "/usr  read, execute: ",
        "/proc  read: ",
        "HOME, TMPDIR, TMP, TEMP  read, write, execute: ",
        "example.org:8443",
        "limits: none holds",
        "namespaces: the caller's",
        "option --set network.allow",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&of(&["explain", "--walls", "landlock", "--json"])).unwrap();
    assert!(json["plan"].is_null() && json["lacks"].is_null(), "{json}");
    let walls = &json["landlock"];
    assert!(
        walls["lacks"].as_array().is_some_and(|all| all.len() > 5),
        "{json}"
    );
    let opened = walls["opened"].as_array().unwrap();
    let workspace = opened
        .iter()
        .find(|one| one["path"] == place.project.as_str());
    let access = &workspace.unwrap()["access"];
    assert_eq!(access, "read, write, execute", "{json}");
    // Paths that are reported as open are; the command opens nothing else, which `files` tests.
    for one in opened.iter().filter(|one| one["access"] == "read, execute") {
        let path = one["path"].as_str().unwrap();
        let script =
            format!("test -r '{path}' && head -c 1 '{path}' >/dev/null 2>&1 || ls '{path}'");
        place.shell(&script).ok();
    }
}

/// A variable that the run sets itself is an error, not silently lost.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_refuses_variables_that_it_sets() {
    let place = Place::new();
    for pair in ["HOME=/x", "TMPDIR=/x", "TEMP", "GIT_CONFIG_SYSTEM=/x"] {
        let mut wrap = std::process::Command::new(program());
        let words = [
            "wrap", "--walls", "landlock", "-e", pair, "--", "echo", "ran",
        ];
        wrap.args(words)
            .env("TEMP", "/x")
            .current_dir(&place.project);
        let said = crate::command::finish(&mut wrap).failed();
        let name = pair.split('=').next().unwrap();
        assert!(
            said.contains(name) && said.contains("cannot be passed on"),
            "{said}"
        );
    }
}

/// The full walls' filter forbids listeners for system calls: the inner wrap names the sandbox, and nothing runs.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_within_the_full_walls_is_refused_with_the_reason() {
    let place = Place::new();
    let binary = format!("{}/ab", place.project);
    std::fs::copy(program(), &binary).unwrap();
    let mut outer = std::process::Command::new(program());
    let inner = "./ab wrap --walls landlock -- echo ran";
    outer
        .args(["wrap", "--", "sh", "-c", inner])
        .current_dir(&place.project);
    let seen = crate::command::finish(&mut outer);
    assert_ne!(seen.code, 0, "{seen}");
    assert!(!seen.stdout.contains("ran"), "{seen}");
    let reason = "this looks like a sandbox of agentbox already: run the command without `wrap`";
    assert!(seen.stderr.contains(reason), "{seen}");
}

/// Exchanges the first directory of a run for the user's own, as soon as the user may.
const EXCHANGE: &str = r"
import ctypes, os, sys, time
base, own = sys.argv[1:]
libc, end = ctypes.CDLL(None), time.monotonic() + 30
print('looks', flush=True)
while time.monotonic() < end:
    for name in os.listdir(base):
        if name.startswith('agentbox-wrap-') and not libc.syscall(316, -100, os.path.join(base, name).encode(), -100, own.encode(), 2):
            sys.exit()
sys.exit(1)
";

/// What a root that works by path in the user's directory would do.
const NAIVE: &str = "d=$(mktemp -d $TMPDIR/agentbox-wrap-XXXXXX); mkdir -p $d/bundle/rootfs/var/tmp; chown -R $SUDO_UID $d; \
    for n in $(seq 100); do sleep 0.02; chmod 1777 $d/bundle/rootfs/var/tmp; done";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_root_follows_no_link_in_a_directory_that_the_user_exchanges() {
    let _docker = Docker::connect();
    let account = Account::new();
    let wrap = ["wrap", "--walls", "landlock"];
    let end = ["--", "true"];
    let ways = [
        None,
        Some([&wrap[..], &end].concat()),
        Some([&wrap[..], &["--dry-run"], &end].concat()),
    ];
    for way in ways {
        let scratch = Scratch::new();
        let (victim, base) = (scratch.dir("victim"), scratch.dir("base"));
        let file = scratch.file("victim/file", "kept");
        let mode = |path: &str, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&victim, 0o755);
        mode(&base, 0o1777);
        let links = [
            "bundle/config.json",
            "bundle/rootfs/etc/gitconfig",
            "home/.gitconfig",
            "sidecar.jsonl",
        ];
        let links = links.map(|link| format!("ln -s {file} {link}; ")).concat();
        account.does(&format!(
            "rm -rf own; mkdir -p own/tmp own/home own/bundle/rootfs/var own/bundle/rootfs/etc; cd own; touch lock; \
             ln -s {victim} bundle/rootfs/var/tmp; {links} mv ~/own {base}/own"
        ));
        let mut racer = Command::new("setpriv");
        let ids = [account.uid.to_string(), account.gid.to_string()];
        racer.args([
            "--reuid",
            &ids[0],
            "--regid",
            &ids[1],
            "--init-groups",
            "/usr/bin/python3",
            "-c",
            EXCHANGE,
        ]);
        racer
            .args([&base, &format!("{base}/own")])
            .stdout(Stdio::piped());
        let mut racer = racer.spawn().unwrap();
        std::io::Read::read_exact(racer.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        let mut command = match &way {
            Some(arguments) => account.sudo(arguments),
            None => {
                let mut naive = Command::new("bash");
                naive.args(["-c", NAIVE]).env("SUDO_UID", &ids[0]);
                naive
            }
        };
        let seen = finish(command.env("TMPDIR", &base));
        assert!(racer.wait().unwrap().success(), "never exchanged: {seen}");
        let changed = std::fs::metadata(&victim).unwrap().permissions().mode() & 0o7777;
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text == "kept", "{way:?}: {text:.80} {seen}");
        let expected = if way.is_some() { 0o755 } else { 0o1777 };
        assert_eq!(changed, expected, "{way:?}: {seen}");
    }
}
