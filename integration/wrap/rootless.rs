//! `wrap` by a user without root's rights, in a user namespace. Attacks use the user's own rights: the control
//! succeeds without walls, and the wrapped command must not.

use std::process::Command;

use super::account::Account;
use crate::command::{Finished, await_that, awaited, finish, lives, run};
use crate::direct::program;
use crate::docker::Docker;
use crate::docker::allowlist::{arrived, internet, witness};

const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];

impl Account {
    /// Runs a program as the user: no capability, no variable of sudo, no login.
    pub fn alone(&self, arguments: &[&str]) -> Command {
        let ids = [self.uid.to_string(), self.gid.to_string()];
        let options = ["--reuid", &ids[0], "--regid", &ids[1], "--init-groups"];
        let mut command = Command::new("setpriv");
        command.args(options).args(arguments);
        command.current_dir(&self.project);
        command.env("HOME", &self.home).env("USER", &self.name);
        command.env_remove("XDG_RUNTIME_DIR");
        command
    }

    /// Runs `agentbox ARGUMENTS...` as the user.
    pub fn agentbox(&self, arguments: &[&str]) -> Finished {
        let program = program();
        let all = [&[program.as_str()], arguments].concat();
        finish(&mut self.alone(&all))
    }

    /// Runs `agentbox wrap OPTIONS... -- bash -c SCRIPT` as the user.
    pub fn wraps(&self, options: &[&str], script: &str) -> Finished {
        self.agentbox(&[&["wrap"], options, &["--", "bash", "-c", script]].concat())
    }

    /// The directory of the user's records.
    fn records(&self) -> String {
        format!("/dev/shm/agentbox-{}", self.uid)
    }

    /// Leftovers of containers.
    fn left(&self) -> String {
        let records = self.records();
        self.does(&format!(
            "cd {records} && ls index wrap containers locks && find . -type f"
        ))
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_runs_as_the_person_and_leaves_nothing() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file(".ssh/id_ed25519", "a key");
    let stranger = Account::new();
    let script = format!(
        "id -u; id -g; touch made; stat -c %u made; cat ~/.ssh/id_ed25519 /etc/shadow {} >&2; exit 7",
        stranger.file("secret", "of a stranger")
    );
    for policy in POLICIES {
        let seen = person.wraps(&["--policy", policy], &script);
        assert_eq!(seen.code, 7, "{policy}: {seen}");
        let expected = format!("{0}\n{1}\n{0}\n", person.uid, person.gid);
        assert_eq!(seen.stdout, expected, "{policy}");
        assert!(!seen.stderr.contains("a key"), "{policy}: {seen}");
        assert!(!seen.stderr.contains("stranger\n"), "{policy}: {seen}");
        assert_eq!(
            person.does("stat -c %U src/project/made"),
            format!("{}\n", person.name)
        );
        person.does("rm src/project/made");
        let left = person.left();
        assert_eq!(
            left, "containers:\n\nindex:\n\nlocks:\n\nwrap:\n./wrap/.turn\n",
            "{policy}"
        );
    }
    let absent = person.agentbox(&["wrap", "--", "no-such-program"]);
    assert_eq!(absent.code, 127, "{absent}");
    // The control: the user can read the key.
    assert_eq!(person.does("cat ~/.ssh/id_ed25519"), "a key");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_has_no_capability_and_a_filter_in_a_namespace_of_its_own() {
    let _docker = Docker::connect();
    let person = Account::new();
    let script = "grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status; cat /proc/self/uid_map; \
                  ls /sys/class/net; cat /proc/net/route | wc -l";
    let none = "0000000000000000";
    for policy in POLICIES {
        let seen = person.wraps(&["--policy", policy], script).ok();
        let words: Vec<&str> = seen.split_whitespace().collect();
        let uid = person.uid.to_string();
        let expected = [
            "CapInh:",
            none,
            "CapPrm:",
            none,
            "CapEff:",
            none,
            "CapBnd:",
            none,
            "CapAmb:",
            none,
            "NoNewPrivs:",
            "1",
            "Seccomp:",
            "2",
            &uid,
            "0",
            "1",
            "lo",
            "1",
        ];
        assert_eq!(words, expected, "{policy}");
    }
}

/// Tries a system call and prints its result.
const ATTACKS: &str = r#"
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def said(name, rc):
    print(name, 'ok' if rc >= 0 else 'refused', flush=True)
def forked(name, act):
    pid = os.fork()
    if pid == 0:
        said(name, act())
        os._exit(0)
    os.waitpid(pid, 0)
port, name, victim = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
forked('user namespace', lambda: libc.unshare(0x10000000))
forked('mount namespace', lambda: libc.unshare(0x10000000 | 0x20000))
def rejoin():
    libc.unshare(0x10000000 | 0x20000)
    return libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)
forked('setns', rejoin)
forked('keyctl', lambda: libc.syscall(250, 1, 0))
def inet(family, address):
    try:
        socket.socket(family).connect(address)
        return 0
    except OSError:
        return -1
forked('loopback', lambda: inet(socket.AF_INET, ('127.0.0.1', port)))
forked('abstract', lambda: inet(socket.AF_UNIX, '\0' + name))
def signal():
    try:
        os.kill(victim, 0)
        return 0
    except OSError:
        return -1
forked('signal', signal)
forked('trace', lambda: libc.ptrace(0x4206, victim, 0, 0))
try:
    open('/proc/%d/environ' % victim, 'rb').read()
    said('memory', 0)
except OSError:
    said('memory', -1)
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_keeps_the_command_from_the_persons_other_processes() {
    let _docker = Docker::connect();
    let person = Account::new();
    let attacks = person.file("src/project/attacks.py", ATTACKS);
    // A service of the user's, with a loopback port and an abstract socket. Any process of the user may trace it.
    let service = "import ctypes, socket, time\n\
        ctypes.CDLL(None).prctl(0x59616d61, -1, 0, 0, 0)\n\
        s = socket.create_server(('127.0.0.1', 0)); a = socket.socket(socket.AF_UNIX)\n\
        a.bind('\\0service-' + str(s.getsockname()[1])); a.listen()\n\
        print(s.getsockname()[1], flush=True); time.sleep(50)\n";
    let mut service = person
        .alone(&["/usr/bin/python3", "-c", service])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = service.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let (port, pid) = (line.trim().to_owned(), service.id());
    let script = format!("/usr/bin/python3 {attacks} {port} service-{port} {pid}");
    let tried = [
        "user namespace",
        "mount namespace",
        "setns",
        "keyctl",
        "loopback",
        "abstract",
        "signal",
        "trace",
        "memory",
    ];
    let all = |how: &str| -> String { tried.map(|what| format!("{what} {how}\n")).concat() };
    // The control: the user's own rights suffice for each of them.
    assert_eq!(person.does(&script), all("ok"));
    for policy in POLICIES {
        assert_eq!(
            person.wraps(&["--policy", policy], &script).ok(),
            all("refused"),
            "{policy}"
        );
    }
    service.kill().unwrap();
    service.wait().unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_changes_no_mount_and_no_setting_of_the_kernel() {
    let _docker = Docker::connect();
    let person = Account::new();
    for policy in POLICIES {
        let script = "for p in /proc/sys/kernel/core_pattern /proc/sys/net/ipv4/ip_forward /proc/sysrq-trigger /sys/power/state; do \
                        (echo 1 >$p) 2>/dev/null && echo wrote $p; done; \
                      for c in 'mount -t tmpfs x /tmp' 'mount -o remount,rw /usr' 'umount /proc' 'umount -l /tmp' \
                        'touch /usr/bin/x' 'mknod /tmp/d c 1 3' 'nsenter -t 1 -U true'; do $c 2>/dev/null && echo did $c; done; true";
        assert_eq!(
            person.wraps(&["--policy", policy], script).ok(),
            "",
            "{policy}"
        );
    }
    // The control: the user's own user namespace allows such mounts.
    assert_eq!(
        person.does("unshare -Urm sh -c 'mount -t tmpfs x /tmp && echo did'"),
        "did\n"
    );
}

/// Mounts of the node below visible paths: on a directory of /opt, and on two directories and a file of the project.
struct Mounted {
    person: Account,
    mounts: String,
}

impl Mounted {
    fn new() -> Self {
        let person = Account::new();
        let project = &person.project;
        person.does(
            "cd src/project && mkdir -p data deep/disk && touch file && echo of the tree >data/under",
        );
        let mounts = format!(
            "cd {project} && mount --make-rprivate / && mount -t tmpfs -o mode=755 none /opt && mkdir /opt/disk && \
             for at in /opt/disk {project}/data {project}/deep/disk; do \
               mount -t tmpfs none $at && mkdir $at/sub $at/.aws && mount -t tmpfs none $at/sub && \
               echo not judged | tee $at/key $at/sub/key $at/.aws/credentials >/dev/null && chmod -R 777 $at || exit 9; done && \
             mount --bind /opt/disk/key file && "
        );
        Self { person, mounts }
    }

    /// Runs a command there as the user alone.
    fn alone(&self, command: &str, look: &str) -> Finished {
        let Account { uid, gid, home, .. } = &self.person;
        let ids = format!("--reuid {uid} --regid {gid} --init-groups");
        self.runs(&format!("HOME={home} exec setpriv {ids} {command}"), look)
    }

    /// Runs a command there as the user behind sudo.
    fn sudo(&self, command: &str, look: &str) -> Finished {
        let Account { uid, gid, name, .. } = &self.person;
        let by = format!("HOME=/root SUDO_UID={uid} SUDO_GID={gid} SUDO_USER={name}");
        self.runs(&format!("{by} exec {command}"), look)
    }

    fn runs(&self, command: &str, look: &str) -> Finished {
        let script = format!("{}{command}", self.mounts);
        let mut all = Command::new("unshare");
        all.args(["-m", "bash", "-c", &script]);
        all.env("LOOK", look).env_remove("XDG_RUNTIME_DIR");
        finish(&mut all)
    }
}

/// A node's mount below a visible directory made every call fail with EINVAL.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_hides_what_the_node_has_mounted_below_what_it_shows() {
    let _docker = Docker::connect();
    let mounted = Mounted::new();
    let look = "cat file; for at in /opt/disk data deep/disk; do ls -A $at; cat $at/key $at/sub/key $at/.aws/credentials; \
                (echo x >$at/new) && echo wrote $at; umount $at && echo uncovered $at; done 2>/dev/null; touch made && echo works";
    for policy in ["strict", "standard"] {
        let command = format!("{} wrap --policy {policy} -- bash -c \"$LOOK\"", program());
        let seen = mounted.alone(&command, look);
        assert_eq!(
            (seen.code, &*seen.stdout),
            (0, "works\n"),
            "{policy}: {seen}"
        );
    }
    // The control: without walls all of it can be read and written.
    let control = mounted.alone("bash -c \"$LOOK\"", look);
    let lines = |word: &str| control.stdout.matches(word).count();
    assert_eq!(
        (lines("not judged"), lines("wrote"), lines("uncovered")),
        (10, 3, 0),
        "{control}"
    );
}

/// The error was `mount the private HOME: Invalid argument`: the kernel refuses an overlay over such a copy.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_says_which_mount_keeps_the_home_from_being_shown() {
    let _docker = Docker::connect();
    let mounted = Mounted::new();
    let command = |options: &str| format!("{} wrap {options} -- ls data", program());
    for options in ["", "--dry-run "] {
        let refused = mounted.alone(&command(&format!("{options}--policy permissive")), "");
        assert_eq!(refused.code, 125, "{options}: {refused}");
        let mount = format!("{}/data", mounted.person.project);
        for words in [mount.as_str(), "sudo agentbox wrap", "--policy standard"] {
            assert!(refused.stderr.contains(words), "{words}: {refused}");
        }
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
    }
    // Both cures work. Without root, the policy works if the home has no mounts.
    let seen = mounted.sudo(&command("--policy permissive"), "").ok();
    assert_eq!(seen, "under\n");
    let named = mounted.alone(&command("--policy standard --read data"), "");
    assert_eq!(named.ok(), "key\nsub\n");
    let without = mounted.person.wraps(&["--policy", "permissive"], "ls data");
    assert_eq!(without.ok(), "under\n");
}

/// `--read` and `--write` of such a mount silently had no effect.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_shows_the_mounts_that_are_named_below_what_it_shows() {
    let _docker = Docker::connect();
    let mounted = Mounted::new();
    // Without options, the directory below the mount is visible, or an empty one.
    let look = "for at in file /opt/disk/key data/key data/sub/key deep/disk/key; do \
                  grep -sq judged $at && echo reads $at && (echo x >>$at) 2>/dev/null && echo wrote $at; done; \
                for at in /opt/disk data deep/disk; do cat $at/.aws/credentials; umount $at && echo uncovered $at; done 2>/dev/null; \
                touch made && echo works";
    let ways: [fn(&Mounted, &str, &str) -> Finished; 2] = [Mounted::alone, Mounted::sudo];
    let wrap = format!("{} wrap --policy standard", program());
    for (index, way) in ways.into_iter().enumerate() {
        for (options, seen) in [
            (
                "--read /opt/disk --read data --read file",
                "reads file\nreads /opt/disk/key\nreads data/key\nworks\n",
            ),
            (
                "--write deep/disk --read data",
                "reads data/key\nreads deep/disk/key\nwrote deep/disk/key\nworks\n",
            ),
            (
                "--write data/sub --write data",
                "reads data/key\nwrote data/key\nreads data/sub/key\nwrote data/sub/key\nworks\n",
            ),
            (
                "--read data --write data/sub",
                "reads data/key\nreads data/sub/key\nwrote data/sub/key\nworks\n",
            ),
            (
                "--read data/sub --read data",
                "reads data/key\nreads data/sub/key\nworks\n",
            ),
            ("", "works\n"),
        ] {
            let command = format!("{wrap} {options} -- bash -c \"$LOOK\"");
            let ran = way(&mounted, &command, look);
            assert_eq!(
                (ran.code, &*ran.stdout),
                (0, seen),
                "{index} {options}: {ran}"
            );
        }
        // A path deeper on such a mount is refused with the reason.
        for (options, words) in [
            ("--read data/sub", "/data\""),
            ("--read /opt/disk/sub", "/opt/disk\""),
            ("--write data/sub/key", "/data\""),
        ] {
            let refused = way(&mounted, &format!("{wrap} {options} -- true"), look);
            assert_eq!(refused.code, 125, "{index} {options}: {refused}");
            for words in ["it lies on the mount", words] {
                assert!(
                    refused.stderr.contains(words),
                    "{index} {options}: {refused}"
                );
            }
        }
        let explained = way(
            &mounted,
            &format!("{wrap} --dry-run --read data -- true"),
            look,
        )
        .ok();
        assert!(
            explained.contains("named by --read"),
            "{index}: {explained}"
        );
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_reaches_what_is_listed_and_nothing_else() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let node = super::NodeDir::new();
    node.file(
        "policies/online.toml",
        "base = \"standard\"\n[network]\nmode = \"allowlist\"\nallow = [\"api.example.test:80\"]\n",
    );
    let config = node.file(
        "config.toml",
        &format!("policy-dir = \"{}\"\n", node.policies()),
    );
    let wrap = |script: &str| {
        let command = [
            "--config", &config, "wrap", "--policy", "online", "--", "bash", "-c", script,
        ];
        person.agentbox(&command)
    };
    let before = arrived(&["other.example.test"]);
    let listed = wrap("curl -sS --noproxy '*' --max-time 20 http://api.example.test/x").ok();
    assert!(listed.contains("api.example.test"), "{listed}");
    wrap("curl -sSf --noproxy '*' --max-time 20 http://other.example.test/x").failed();
    wrap("curl -sSf --noproxy '*' --max-time 20 http://198.51.100.10/other.example.test").failed();
    assert_eq!(arrived(&["other.example.test"]), before);
    // The control.
    person.does("curl -sS --max-time 20 http://other.example.test/x");
    assert!(arrived(&["other.example.test"]) > before);
    // An explicit limit is not dropped silently.
    node.file(
        "policies/online.toml",
        "base = \"standard\"\n[limits]\npids = 100\n",
    );
    let refused = wrap("true").failed();
    assert!(
        refused.contains("limits.pids") && refused.contains("cgroup"),
        "{refused}"
    );
}

/// A shell begins in a home, where `explain --syscalls` said that it is no project.
#[test]
#[ignore = "needs the rig: hack/test"]
fn explain_of_walls_needs_no_project_and_of_a_directory_does() {
    let _docker = Docker::connect();
    let person = Account::new();
    let program = program();
    let left = || person.does("ls -d /tmp/agentbox-explain-* || true");
    let explained = |directory: &str, options: &[&str], sudo: bool| {
        let words = [&["explain"], options].concat();
        let mut call = match sudo {
            true => person.sudo(&words),
            false => person.alone(&[&[program.as_str()], &words[..]].concat()),
        };
        finish(call.current_dir(directory))
    };
    for directory in ["/", "/srv", "/tmp", person.home.as_str()] {
        for sudo in [false, true] {
            for options in [
                &["--syscalls", "--policy", "strict"][..],
                &["--policy", "permissive"],
                &["--walls", "landlock"],
            ] {
                let finished = explained(directory, options, sudo);
                let said = &finished.stderr;
                let word = "explained for an empty directory: ";
                assert_eq!(said.matches(word).count(), 1, "{directory}: {finished}");
                let shown = finished.ok();
                assert!(shown.starts_with("wrap in an empty directory"), "{shown}");
            }
            let said = explained(directory, &[], sudo).failed();
            assert!(!said.contains("empty directory"), "{said}");
        }
    }
    let here = explained(&person.project, &["--policy", "strict"], false);
    assert_eq!(here.stderr, "", "the control");
    assert!(here.ok().starts_with("wrap in this directory"));
    assert_eq!(left(), "");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_ends_with_its_caller_and_is_found_by_the_verbs() {
    let _docker = Docker::connect();
    let person = Account::new();
    let program = program();
    let mark = format!("{}", 700_000 + person.uid);
    let start = || {
        let child = person
            .alone(&[&program, "wrap", "--", "sleep", &mark])
            .spawn()
            .unwrap();
        let id = awaited("it runs", || {
            let list = person.agentbox(&["list", "-q"]).ok();
            let running = run("pgrep", &["-f", &format!("^sleep {mark}")]).code == 0;
            let first = list.lines().next().filter(|_| running);
            first.map(str::to_owned).ok_or(list)
        });
        (child, id)
    };
    let (mut child, id) = start();
    let explained = person.agentbox(&["explain", &id]).ok();
    for word in ["limits.pids", "sidecar", "supplementary"] {
        assert!(explained.contains(word), "{word}: {explained}");
    }
    let list = person.agentbox(&["list"]).ok();
    assert!(
        list.lines()
            .any(|line| line.starts_with(&id) && line.ends_with(&person.name)),
        "{list}"
    );
    assert_eq!(
        person.agentbox(&["exec", &id, "echo", "within"]).ok(),
        "within\n"
    );
    let missing = person.agentbox(&["wrap", "--", "nosuchprogram"]);
    assert_eq!(
        (missing.code, missing.stderr.lines().count()),
        (127, 1),
        "{missing}"
    );
    // Root's list is separate, and no other user can read the user's records.
    assert!(!run(&program, &["list", "-q"]).ok().contains(&id));
    assert_eq!(
        run("stat", &["-c", "%a %U", &person.records()]).ok(),
        format!("700 {}\n", person.name)
    );
    person.agentbox(&["kill", &id, "KILL"]).ok();
    assert_eq!(child.wait().unwrap().code(), Some(137));

    let (mut child, id) = start();
    let record = std::fs::read_dir(format!("{}/index", person.records())).unwrap();
    let record = record
        .map(|e| e.unwrap().path().join("record.json"))
        .next()
        .unwrap();
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let sidecar = record["sidecar"]["pid"].as_i64().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = || {
        let sleeper = run("pgrep", &["-f", &format!("^sleep {mark}")]).code;
        sleeper != 0 && !lives(sidecar)
    };
    await_that("kill -9 of wrap ends all", gone);
    person.agentbox(&["delete", "--force", &id]).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_says_why_there_is_no_namespace() {
    let _docker = Docker::connect();
    let person = Account::new();
    // user.max_user_namespaces applies to one namespace: only this one has none.
    let script = format!(
        "cd src/project; unshare -c --keep-caps sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps=-all \
         --inh-caps=-all --bounding-set=-all {} wrap -- true'",
        program()
    );
    let refused = person.tries(&script).failed();
    assert!(refused.contains("user.max_user_namespaces"), "{refused}");
    assert!(
        refused.contains("--walls landlock") && refused.contains("sudo"),
        "{refused}"
    );
    assert_eq!(refused.lines().count(), 1, "{refused}");
    // The control: with a namespace allowed, it works from there.
    person.tries(&script.replace("echo 0", "echo 100")).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_uses_no_directory_that_is_not_the_persons() {
    let _docker = Docker::connect();
    let person = Account::new();
    let (records, stranger) = (person.records(), Account::new());
    for (make, word) in [
        (
            format!("mkdir -m 0777 {records}"),
            "belongs to another user",
        ),
        (format!("ln -s {} {records}", person.home), "link"),
    ] {
        stranger.does(&make);
        let refused = person.wraps(&[], "true").failed();
        assert!(
            refused.contains(word) && refused.contains(&records),
            "{refused}"
        );
        stranger.does(&format!("rm -rf {records}"));
    }
    person.wraps(&[], "true").ok();
    // The directory of wrap's own files cannot be the project.
    let refused = person
        .agentbox(&["wrap", "--workspace", "/tmp", "--", "true"])
        .failed();
    assert!(refused.contains("/tmp"), "{refused}");
}

/// L7: the policy that shows the home keeps a log too, and the command cannot write it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_keeps_a_log_under_every_policy() {
    let _docker = Docker::connect();
    let person = Account::new();
    let runs = "~/.local/state/agentbox/runs";
    for (index, policy) in POLICIES.into_iter().enumerate() {
        let script =
            format!("for f in {runs}/*/node.jsonl; do echo forged >>$f; done; rm -r {runs}; true");
        let seen = person.wraps(&["--policy", policy], &script).ok();
        assert_eq!(seen, "", "{policy}");
        let kept = person.does(&format!("ls -d {runs}/*/node.jsonl | wc -l"));
        assert_eq!(kept.trim(), (index + 1).to_string(), "{policy}");
        let forged = person.does(&format!("cat {runs}/*/*.jsonl | grep -c forged || true"));
        // The first line is the command itself.
        assert_eq!(forged.trim(), (index + 1).to_string(), "{policy}");
    }
    // A log that cannot be read (a umask of 0777) is left out of the others, and the exit status says so.
    let whole = person.agentbox(&["audit", "--json"]).ok();
    person.does(&format!("chmod 0 $(ls {runs}/*/node.jsonl | head -1)"));
    let seen = person.agentbox(&["audit", "--json"]);
    assert_eq!(seen.code, 3, "{seen}");
    assert!(seen.stderr.contains("is left out"), "{seen}");
    let lines = seen.stdout.lines().count();
    assert!(lines > 0 && lines < whole.lines().count(), "{seen}");
}

/// The user's own files appear as root's in their user namespace.
#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_without_root_works_in_a_subdirectory_and_a_work_tree() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.does(
        "git config --global user.name P && git config --global user.email p@example.org && git init -q ~/main && cd ~/main \
         && git commit -q --allow-empty -m begin && git worktree add -q ~/tree && mkdir sub",
    );
    for directory in ["main/sub", "tree"] {
        let script = "git commit -q --allow-empty -m inside && git rev-parse --show-toplevel; \
                      echo x >$(git rev-parse --git-common-dir)/commondir && echo planted; true";
        let program = program();
        let all = [program.as_str(), "wrap", "--", "bash", "-c", script];
        let mut command = person.alone(&all);
        command.current_dir(format!("{}/{directory}", person.home));
        let seen = finish(&mut command);
        let top = format!("{}/{}", person.home, directory.split('/').next().unwrap());
        // The command may write the workspace's own git directory, but not a work tree's main repository.
        let planted = if directory == "tree" { "" } else { "planted\n" };
        assert_eq!(seen.stdout, format!("{top}\n{planted}"), "{seen}");
        let said = person.does(&format!(
            "cd ~/{directory}; rm -f ~/main/.git/commondir; git log -1 --format=%s"
        ));
        assert_eq!(said, "inside\n");
    }
}
