//! `exec`, `verify` and the other verbs in a sandbox that an ordinary user started without root's rights. A process of
//! `exec` is behind the walls of the init process, and no record leads it anywhere else.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::NodeDir;
use super::account::Account;
use crate::command::{Finished, await_that, finish, run, run_for};
use crate::direct::program;
use crate::docker::Docker;
use crate::docker::allowlist::{arrived, internet, witness};

const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];

/// A running sandbox of a user without root's rights; ended when dropped.
struct OwnSandbox<'a> {
    person: &'a Account,
    name: String,
    wrap: Child,
}

impl<'a> OwnSandbox<'a> {
    /// `agentbox GLOBAL... wrap --name NAME OPTIONS... -- bash -c SCRIPT`, once it runs.
    fn start(person: &'a Account, name: &str, options: &[&str], script: &str) -> Self {
        let name = format!("{name}.{}", person.uid);
        let program = program();
        // Options before the verb come first.
        let (global, options) = match options.iter().position(|one| *one == "wrap") {
            Some(at) => (&options[..at], &options[at + 1..]),
            None => (&[][..], options),
        };
        let all = [
            &[program.as_str()],
            global,
            &["wrap", "--name", &name],
            options,
            &["--", "bash", "-c", script],
        ]
        .concat();
        let mut command = person.alone(&all);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let wrap = command.spawn().unwrap();
        let sandbox = Self { person, name, wrap };
        await_that("it runs", || {
            let state = person.agentbox(&["state", &sandbox.name]);
            state.code == 0 && state.stdout.contains("\"running\"")
        });
        sandbox
    }

    /// `agentbox exec OPTIONS... NAME bash -c SCRIPT` as the user.
    fn exec(&self, options: &[&str], script: &str) -> Finished {
        let all = [&["exec"], options, &[&self.name, "bash", "-c", script]].concat();
        self.person.agentbox(&all)
    }

    fn call(&self, verb: &[&str]) -> Finished {
        self.person.agentbox(&[verb, &[&self.name]].concat())
    }

    /// The init process's number on the node.
    fn init(&self) -> i64 {
        let state: Value = serde_json::from_str(&self.call(&["state"]).ok()).unwrap();
        state["pid"].as_i64().unwrap()
    }

    /// The directory of its record.
    fn dir(&self) -> PathBuf {
        let index = format!("/dev/shm/agentbox-{}/index", self.person.uid);
        let all = std::fs::read_dir(index).unwrap();
        let mut all = all.map(|entry| entry.unwrap().path());
        let ends = |path: &PathBuf| path.to_string_lossy().ends_with(&self.name);
        all.find(ends).unwrap()
    }

    /// Ends it, and returns the exit status of `wrap`.
    fn end(mut self) -> Option<i32> {
        self.person
            .agentbox(&["kill", "--all", &self.name, "KILL"])
            .ok();
        self.wrap.wait().unwrap().code()
    }
}

impl Drop for OwnSandbox<'_> {
    fn drop(&mut self) {
        // SIGKILL of `wrap` ends all.
        let _gone = self.wrap.kill();
        let _ended = self.wrap.wait();
    }
}

/// Prints what the kernel says of the calling process, and what it sees. Numbers of descriptors, mounts and pids differ
/// from process to process.
const SEEN: &str = r#"
    grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp|Seccomp_filters|Umask|Speculation_Store_Bypass):' /proc/self/status
    cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups /proc/self/cgroup /proc/self/oom_score_adj /proc/self/limits
    for n in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$n; done
    cut -d' ' -f3- /proc/self/mountinfo
    ls /sys/class/net; cat /proc/net/route; pwd; env | grep -vE '^(_|SHLVL)=' | sort
    ls /proc/self/fd | wc -l; ls -Al ~ /dev /run /tmp 2>&1 | grep -v ' seen[.]'
    cat ~/.ssh/id_ed25519 ~/.aws/credentials /etc/shadow 2>&1
    (echo x >/usr/bin/x) 2>/dev/null || echo read-only; unshare -U true 2>/dev/null || echo no namespace
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_sees_and_has_what_the_init_process_has() {
    let _docker = Docker::connect();
    let person = Account::new();
    person.file(".ssh/id_ed25519", "a key");
    person.file(".aws/credentials", "a key");
    let look = person.file("src/project/look", SEEN);
    for policy in POLICIES {
        let script = format!(
            "bash {look} >seen.part </dev/null 2>/dev/null; mv seen.part seen.init; sleep 100"
        );
        let sandbox = OwnSandbox::start(&person, policy, &["--policy", policy], &script);
        person.does("until [ -e src/project/seen.init ]; do sleep 0.1; done");
        let into = format!("bash {look} >seen.exec </dev/null 2>/dev/null");
        // A variable and a working directory of the caller do not follow it.
        let all = [&program(), "exec", &sandbox.name, "bash", "-c", &into];
        let mut exec = person.alone(&all);
        exec.current_dir(&person.home)
            .env("LEAKS", "it does")
            .env("PATH", "/leaks:/usr/bin:/bin");
        finish(&mut exec).ok();
        let difference = person.tries("cd src/project && diff seen.init seen.exec");
        assert_eq!(difference.stdout, "", "{policy}");
        let seen = person.does("cd src/project && cat seen.exec && rm seen.*");
        let none = "0000000000000000";
        for words in [
            format!("CapBnd:\t{none}"),
            format!("CapEff:\t{none}"),
            "NoNewPrivs:\t1".to_owned(),
            "Seccomp:\t2".to_owned(),
            "read-only\nno namespace".to_owned(),
        ] {
            assert!(seen.contains(&words), "{policy}: {words}: {seen}");
        }
        assert!(!seen.contains("a key"), "{policy}: {seen}");
        assert_eq!(sandbox.end(), Some(137));
    }
    // The control: outside, the same script sees the keys and has the node's namespaces.
    let control = person.does(&format!("cd src/project && bash {look}"));
    assert!(
        control.contains("a key") && !control.contains("no namespace"),
        "{control}"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_serves_terminals_options_and_exit_codes_and_refuses_the_rest() {
    let _docker = Docker::connect();
    let person = Account::new();
    let sandbox = OwnSandbox::start(&person, "served", &[], "sleep 100");
    let (uid, gid) = (person.uid.to_string(), person.gid.to_string());
    assert_eq!(sandbox.exec(&[], "exit 7").code, 7);
    assert_eq!(sandbox.exec(&[], "kill -TERM $$").code, 143);
    let options = ["--cwd", "/tmp", "--env", "ADDED=yes", "--user", &uid];
    let said = sandbox
        .exec(&options, "pwd; echo $ADDED; id -u; id -g")
        .ok();
    assert_eq!(said, format!("/tmp\nyes\n{uid}\n{gid}\n"));
    let absent = person.agentbox(&["exec", &sandbox.name, "no-such-program"]);
    assert!(
        absent.code == 255 && absent.stderr.contains("not found"),
        "{absent}"
    );
    // A pseudo-terminal of the sandbox's own, which script(1) sees through ours.
    let program = program();
    let typed = format!(
        "cd src/project && script -qec \"{program} exec -t {} bash -c 'tty; test -t 0 && test -t 2 && exit 9'\" /dev/null",
        sandbox.name
    );
    let terminal = person.tries(&typed);
    assert!(
        terminal.code == 9 && terminal.stdout.contains("/dev/pts/0"),
        "{terminal}"
    );
    let pid_file = format!("{}/pid", person.home);
    let detached = ["--detach", "--pid-file", &pid_file];
    sandbox
        .exec(&detached, "exec sleep 77.5 >/dev/null 2>&1")
        .ok();
    let pid = person.does("cat pid");
    let args = std::fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap();
    assert_eq!(args, "sleep\u{0}77.5\u{0}");
    for (options, words) in [
        (&["--user", "0"][..], "leave --user out"),
        (&["--user", &format!("{uid}:0")], "leave --user out"),
        (&["--cap", "CAP_NET_RAW"], "leave --cap out"),
        (&["--additional-gids", &gid], "leave --additional-gids out"),
        (&["--cgroup", "/x"], "leave --cgroup out"),
    ] {
        let refused = sandbox.exec(options, "touch ran").failed();
        assert!(refused.contains(words), "{options:?}: {refused}");
    }
    let process = json!({"args": ["touch", "ran"], "cwd": "/", "user": {"uid": person.uid, "gid": person.gid},
        "capabilities": {"bounding": ["CAP_KILL"], "permitted": ["CAP_KILL"], "effective": ["CAP_KILL"]}});
    let file = person.file("process.json", &process.to_string());
    let refused = person
        .agentbox(&["exec", "--process", &file, &sandbox.name])
        .failed();
    assert!(refused.contains("has no capabilities"), "{refused}");
    assert_eq!(person.does("ls src/project"), "");
    let log = sandbox.call(&["audit"]).ok();
    for words in [
        &*format!("exec began as {uid}:{gid}: bash -c exit 7"),
        "exec ended with status 7",
        "exec ended with status 143",
        "exec not started",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_reaches_what_is_listed_and_its_denials_are_logged() {
    let _docker = Docker::connect();
    internet();
    let _turn = witness();
    let person = Account::new();
    let node = NodeDir::new();
    node.file(
        "policies/online.toml",
        "base = \"standard\"\n[network]\nmode = \"allowlist\"\nallow = [\"api.example.test:80\"]\n",
    );
    let config = node.file(
        "config.toml",
        &format!("policy-dir = \"{}\"\n", node.policies()),
    );
    let options = ["--config", &config, "wrap", "--policy", "online"];
    let sandbox = OwnSandbox::start(&person, "online", &options, "sleep 100");
    let curl = |host: &str| format!("curl -sSf --noproxy '*' --max-time 20 http://{host}/x");
    let listed = sandbox.exec(&[], &curl("api.example.test")).ok();
    assert!(listed.contains("api.example.test"), "{listed}");
    let before = arrived(&["other.example.test"]);
    sandbox.exec(&[], &curl("other.example.test")).failed();
    sandbox
        .exec(&[], &curl("198.51.100.10/other.example.test"))
        .failed();
    assert_eq!(arrived(&["other.example.test"]), before);
    // The control.
    person.does(&curl("other.example.test"));
    assert!(arrived(&["other.example.test"]) > before);
    sandbox
        .exec(
            &[],
            "python3 -c 'import ctypes; ctypes.CDLL(None).syscall(321, 0, 0, 0)'",
        )
        .ok();
    let log = sandbox.call(&["audit"]).ok();
    for words in ["name other.example.test", "bpf(0"] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// Opens everything of each process of the runtime's that it sees, from its first moment on. Prints whether it saw some, and
/// each success. A process that executes its program meanwhile is an ordinary one, as its link then says.
const BESIDE: &str = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
own, seen, won = os.getpid(), set(), set()
end = time.time() + float(sys.argv[1])
def succeeds(path, file, pid):
    if file == 'trace':
        return libc.ptrace(0x4206, pid, 0, 0) == 0
    try:
        if file in ('mem', 'environ', 'maps'):
            os.close(os.open(path, os.O_RDONLY))
        elif file == 'fd':
            return bool([os.readlink(path + '/' + fd) for fd in os.listdir(path)])
        else:
            os.readlink(path)
        return True
    except OSError:
        return False
def program(pid):
    try:
        return os.readlink('/proc/%d/exe' % pid)
    except PermissionError:
        return 'hidden'
    except OSError:
        return 'gone'
while time.time() < end and not os.path.exists('enough'):
    for pid in [int(p) for p in os.listdir('/proc') if p.isdigit()]:
        try:
            name = open('/proc/%d/comm' % pid).read().strip()
        except OSError:
            continue
        if pid == own or not (name.startswith('agentbox') or name == 'sleep'):
            continue
        seen.add((pid, name))
        for file in ('mem', 'environ', 'maps', 'fd', 'ns/user', 'root', 'cwd', 'trace'):
            if succeeds('/proc/%d/%s' % (pid, file), file, pid):
                then = program(pid)
                if name == 'sleep' or then == 'hidden' or 'agentbox' in then:
                    won.add(name + ' ' + file)
print('saw', len([pid for pid, name in seen if name.startswith('agentbox')]) > 3)
for one in sorted(won):
    print(one)
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_shows_a_process_beside_it_nothing_before_its_program() {
    let _docker = Docker::connect();
    let person = Account::new();
    let attack = person.file("src/project/beside.py", BESIDE);
    let script = format!("/usr/bin/python3 {attack} 90 >part; mv part beside; sleep 100");
    let sandbox = OwnSandbox::start(&person, "beside", &[], &script);
    for _ in 0..12 {
        sandbox.exec(&[], "true").ok();
    }
    sandbox.exec(&[], "sleep 1; true").ok();
    // Not after a time: a busy machine makes the calls above slow.
    let said = person
        .does("cd src/project; touch enough; until [ -e beside ]; do sleep 0.1; done; cat beside");
    let (first, rest) = said.split_once('\n').unwrap();
    assert_eq!(first, "saw True", "{said}");
    assert!(!rest.contains("agentbox"), "{said}");
    // The control: its own user's ordinary program is an open book. The filter denies ptrace(2) to all.
    assert!(
        rest.contains("sleep mem") && rest.contains("sleep environ"),
        "{said}"
    );
}

/// Rewrites the init process that a record names.
fn forge(sandbox: &OwnSandbox<'_>, pid: i64, later: i64) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let start: i64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
    let file = sandbox.dir().join("record.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    record["init"] = json!({"pid": pid, "startTime": start + later});
    std::fs::write(&file, record.to_string()).unwrap();
    // libcontainer's state has the number too.
    let state = format!(
        "/dev/shm/agentbox-{}/containers/{}/state.json",
        sandbox.person.uid, sandbox.name
    );
    let mut libs: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    libs["pid"] = json!(pid);
    std::fs::write(state, libs.to_string()).unwrap();
}

/// A process of the user's outside of any sandbox; ended when dropped.
struct Bystander(Child);

impl Bystander {
    fn start(mut command: Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        Self(child)
    }

    fn pid(&self) -> i64 {
        i64::from(self.0.id())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// A record that names another process: the number is another's by now, or somebody wrote it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_follows_no_record_to_another_process() {
    let _docker = Docker::connect();
    let (person, stranger) = (Account::new(), Account::new());
    let sandbox = OwnSandbox::start(&person, "forged", &[], "sleep 100");
    let theirs = OwnSandbox::start(&stranger, "theirs", &[], "sleep 100");
    let by = |words: &[&str]| Bystander::start(person.alone(words));
    let plain = by(&["sleep", "90"]);
    let one_namespace = by(&["unshare", "-Ur", "sleep", "90"]);
    let roots = Bystander::start({
        let mut sleep = Command::new("sleep");
        sleep.arg("90");
        sleep
    });
    let own = sandbox.init();
    let marker = format!("{}/src/project/ran", person.home);
    for (what, pid, later, words) in [
        (
            "the user's own",
            plain.pid(),
            0,
            "not in the user namespaces",
        ),
        (
            "in one namespace",
            one_namespace.pid(),
            0,
            "not in the user namespaces",
        ),
        ("root's", roots.pid(), 0, "does not show this user"),
        (
            "a stranger's sandbox",
            theirs.init(),
            0,
            "does not show this user",
        ),
        ("another start time", own, 1, "not running"),
    ] {
        forge(&sandbox, pid, later);
        for verb in [
            &["exec", &sandbox.name, "touch", &marker][..],
            &["verify", &sandbox.name],
        ] {
            let refused = person.agentbox(verb).failed();
            assert!(refused.contains(words), "{what}: {verb:?}: {refused}");
            assert!(!std::path::Path::new(&marker).exists(), "{what}");
        }
    }
    // The control: the true record leads in.
    forge(&sandbox, own, 0);
    sandbox.exec(&[], "touch ran").ok();
    assert!(std::path::Path::new(&marker).exists());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_is_for_the_user_alone_and_brings_no_group() {
    let _docker = Docker::connect();
    let (person, stranger) = (Account::new(), Account::new());
    let sandbox = OwnSandbox::start(&person, "alone", &[], "sleep 100");
    let program = program();
    let enter = [program.as_str(), "exec", &sandbox.name, "touch", "ran"];
    let minute = Duration::from_secs(60);
    let by_stranger = run_for(minute, &mut stranger.alone(&enter)).failed();
    assert!(by_stranger.contains("does not exist"), "{by_stranger}");
    let by_root = run(&program, &enter[1..]).failed();
    assert!(by_root.contains("does not exist"), "{by_root}");
    let by_sudo = run_for(minute, &mut person.sudo(&enter[1..])).failed();
    assert!(by_sudo.contains("leave sudo out"), "{by_sudo}");
    // The stranger names the user's records, and root.
    let mut named = stranger.alone(&enter);
    named.env(
        "XDG_RUNTIME_DIR",
        format!("/dev/shm/agentbox-{}", person.uid),
    );
    let named = run_for(minute, &mut named).failed();
    assert!(named.contains("does not exist"), "{named}");
    // A group that the user got later, as by newgrp(1).
    let with_groups = |groups: &str| {
        let ids = [person.uid.to_string(), person.gid.to_string()];
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &ids[0], "--regid", &ids[1], "--groups", groups]);
        command
            .args(enter)
            .current_dir(&person.project)
            .env_remove("XDG_RUNTIME_DIR");
        run_for(minute, &mut command)
    };
    let more = with_groups(&format!("{},{},27", person.gid, person.team)).failed();
    assert!(more.contains("the group 27"), "{more}");
    assert_eq!(person.does("ls src/project"), "");
    // The control: the groups that the sandbox has, or fewer.
    for fewer in [
        format!("{},{}", person.gid, person.team),
        person.gid.to_string(),
    ] {
        with_groups(&fewer).ok();
        person.does("rm src/project/ran");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_without_root_holds_and_lists_what_is_not_enforced() {
    let _docker = Docker::connect();
    let person = Account::new();
    for policy in POLICIES {
        let options = ["--policy", policy];
        let sandbox = OwnSandbox::start(&person, policy, &options, "sleep 100");
        let apart = person.agentbox(&["verify", "--policy", policy]);
        for seen in [sandbox.call(&["verify"]), apart] {
            assert_eq!(seen.code, 0, "{policy}: {seen}");
            for words in [
                "files         held",
                "not enforced without root's rights",
                "limits.pids",
                "the sidecar is the caller's user",
            ] {
                assert!(seen.stdout.contains(words), "{policy}: {words}: {seen}");
            }
            assert!(
                !seen.stdout.contains("resources     held"),
                "{policy}: {seen}"
            );
        }
        let json: Value = serde_json::from_str(&sandbox.call(&["verify", "--json"]).ok()).unwrap();
        assert_eq!(json["result"], "held");
        assert!(
            json["not-enforced"].as_array().unwrap().len() >= 3,
            "{json:#}"
        );
        let log = sandbox.call(&["audit"]).ok();
        assert!(!log.contains("192.0.2.1"), "{policy}: {log}");
        assert_eq!(sandbox.end(), Some(137));
    }
    // Nothing is left of the container of its own.
    assert_eq!(person.agentbox(&["list", "-q"]).ok(), "");
}

/// The user can open walls from outside, as root of the sandbox's outer user namespace. `verify` says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_without_root_finds_a_wall_that_was_taken_down() {
    let _docker = Docker::connect();
    let person = Account::new();
    let sandbox = OwnSandbox::start(&person, "mutated", &[], "sleep 100");
    assert_eq!(sandbox.call(&["verify"]).code, 0);
    let (init, wrap) = (sandbox.init(), sandbox.wrap.id());
    let taken = format!(
        "nsenter --user=/proc/{wrap}/ns/user --preserve-credentials nsenter --mount=/proc/{init}/ns/mnt mount -o remount,bind,rw /usr"
    );
    person.does(&taken);
    let seen = sandbox.call(&["verify"]);
    assert_eq!(seen.code, 1, "{seen}");
    assert!(seen.stdout.contains("files         NOT HELD"), "{seen}");
    assert!(seen.stdout.contains("mounts-of-the-plan"), "{seen}");
    // A filter that differs from the saved one refuses the process that would try.
    let filter = sandbox.dir().join("filter");
    let whole = std::fs::read(&filter).unwrap();
    std::fs::write(&filter, &whole[..whole.len() - 8]).unwrap();
    let refused = sandbox.call(&["verify"]);
    assert_ne!(refused.code, 0, "{refused}");
    sandbox.exec(&[], "touch ran").failed();
    assert_eq!(person.does("ls src/project"), "");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verify_without_root_cannot_be_made_to_say_what_is_not_so_by_a_process_beside_it() {
    let _docker = Docker::connect();
    let person = Account::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/integration/verify/thief.c");
    let thief = format!("{}/thief", person.project);
    run("gcc", &["-static", "-O1", "-o", &thief, source]).ok();
    let sandbox = OwnSandbox::start(&person, "thief", &[], "exec ./thief won");
    for _ in 0..4 {
        let seen = sandbox.call(&["verify"]);
        assert_eq!(seen.code, 0, "{seen}");
    }
    // The control: a program that does not hide, after the time limit of the last attempt.
    sandbox.exec(&[], "sleep 1.5").ok();
    sandbox.exec(&[], "sleep 0.5; sleep 0.5").ok();
    let won = person.does("cat src/project/won");
    assert!(won.contains("sleep 0.5"), "{won}");
    assert!(!won.contains("verify-inside"), "{won}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn verbs_without_root_list_and_signal_all_processes_and_say_what_needs_a_cgroup() {
    let _docker = Docker::connect();
    let person = Account::new();
    let sandbox = OwnSandbox::start(&person, "verbs", &[], "sleep 93.5 & sleep 94.5 & wait");
    sandbox
        .exec(&["--detach"], "exec sleep 95.5 >/dev/null 2>&1")
        .ok();
    let _outside = Bystander::start(person.alone(&["sleep", "96.5"]));
    let table = sandbox.call(&["ps"]).ok();
    for (seconds, listed) in [
        ("93.5", true),
        ("94.5", true),
        ("95.5", true),
        ("96.5", false),
    ] {
        assert_eq!(
            table.contains(&format!("sleep {seconds}")),
            listed,
            "{table}"
        );
    }
    let json = sandbox.call(&["ps", "--format", "json"]).ok();
    let pids: Vec<i64> = serde_json::from_str(&json).unwrap();
    assert!(pids.len() >= 5 && pids.contains(&sandbox.init()), "{json}");
    for verb in [
        &["pause"][..],
        &["update", "--memory", "100000000"],
        &["events", "--stats"],
    ] {
        let refused = sandbox.call(verb).failed();
        assert!(
            refused.contains("no cgroup of its own"),
            "{verb:?}: {refused}"
        );
    }
    let signal_all = person.agentbox(&["kill", "--all", &sandbox.name, "USR1"]);
    assert_eq!(signal_all.code, 0, "{signal_all}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(run("pgrep", &["-f", "^sleep 9[345][.]5"]).code, 1);
    assert_eq!(run("pgrep", &["-f", "^sleep 96[.]5"]).code, 0);
}

/// N26 without root: the init process makes its own user namespace during `start`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn exec_without_root_in_the_moment_of_start_waits_for_the_walls() {
    let _docker = Docker::connect();
    let person = Account::new();
    for round in 0..6 {
        let name = format!("moment{round}.{}", person.uid);
        let program = program();
        let mut wrap = person.alone(&[&program, "wrap", "--name", &name, "--", "sleep", "100"]);
        let mut wrap = wrap.stdin(Stdio::null()).spawn().unwrap();
        let look = "readlink /proc/self/ns/user /proc/1/ns/user; cat /proc/self/uid_map; ls /sys/class/net";
        let begun = std::time::Instant::now();
        let seen = loop {
            let tried = person.agentbox(&["exec", &name, "sh", "-c", look]);
            if tried.code == 0 {
                break tried.stdout;
            }
            let early = [
                "does not exist",
                "not started",
                "not running",
                "is creating",
            ];
            assert!(
                early.iter().any(|words| tried.stderr.contains(words)),
                "{tried}"
            );
            assert!(begun.elapsed() < Duration::from_secs(30), "{tried}");
        };
        let words: Vec<&str> = seen.split_whitespace().collect();
        let uid = person.uid.to_string();
        // Nobody inside reads the link of the hidden init process.
        assert!(words[0].starts_with("user:["), "{seen}");
        assert_eq!(words[1..], [&uid, "0", "1", "lo"], "{seen}");
        wrap.kill().unwrap();
        wrap.wait().unwrap();
    }
}

/// A user's shell that reads its commands from a pipe enters their sandbox: from its namespaces the shell cannot be looked at.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f52_exec_without_root_types_nothing_into_a_pipe_that_the_caller_reads() {
    const TYPES: &str = r#"timeout 2 bash -c "printf \"touch evil\\n\" >/proc/self/fd/0""#;
    let _docker = Docker::connect();
    let person = Account::new();
    let sandbox = OwnSandbox::start(&person, "piped", &[], "sleep 100");
    let is_typed = |command: &str| {
        let home = &person.home;
        let script = format!("cd {home}\n{command}\nsleep 1\ntouch after\n");
        std::fs::write(format!("{home}/script"), script).unwrap();
        // The pipe is the person's own.
        finish(&mut person.alone(&["bash", "-c", "cat ~/script | bash"]));
        let [after, evil] =
            ["after", "evil"].map(|name| std::fs::remove_file(format!("{home}/{name}")));
        after.expect("the rest of the script has run");
        evil.is_ok()
    };
    assert!(is_typed(&format!("bash -c '{TYPES}'")), "the control");
    for options in ["", "--detach"] {
        let name = &sandbox.name;
        let exec = format!("{} exec {options} {name} bash -c '{TYPES}'", program());
        assert!(!is_typed(&exec), "exec {options}");
    }
}
