//! N57: `--ssh-agent`. Listed keys of the user's agent sign logins and SSHSIG messages, each in the log; nothing else
//! reaches the agent.

use std::process::Command;

use super::NodeDir;
use super::account::Account;
use crate::command::{Finished, finish, run};
use crate::direct::program;
use crate::docker::Docker;

/// A user's agent with two keys; their `.pub` files are in ~/.ssh and in the project.
pub(super) struct Agent<'a> {
    person: &'a Account,
    pub(super) socket: String,
    pid: String,
}

/// The value of a variable in the lines of `ssh-agent -s`.
fn set_by(said: &str, name: &str) -> String {
    let rest = said.split(&format!("{name}=")).nth(1).unwrap();
    rest.split(';').next().unwrap().to_owned()
}

impl<'a> Agent<'a> {
    pub(super) fn new(person: &'a Account) -> Self {
        let said = person.does("ssh-agent -s");
        let agent = Self {
            person,
            socket: set_by(&said, "SSH_AUTH_SOCK"),
            pid: set_by(&said, "SSH_AGENT_PID"),
        };
        agent.does(
            "mkdir -m 700 ~/.ssh; cd ~/.ssh
             for key in listed other late; do ssh-keygen -q -t ed25519 -N '' -C $key@home -f $key; done
             ssh-add -q listed other; cp *.pub ~/src/project",
        );
        agent
    }

    /// A script of the user's, outside.
    fn does(&self, script: &str) -> String {
        let socket = &self.socket;
        self.person
            .does(&format!("export SSH_AUTH_SOCK={socket}\n{script}"))
    }

    pub(super) fn fingerprint(&self, key: &str) -> String {
        let line = self.does(&format!("ssh-keygen -lf ~/.ssh/{key}.pub"));
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// `agentbox ARGUMENTS...` by sudo and as the user.
    fn both(&self, arguments: &[&str]) -> [(&'static str, Finished); 2] {
        let person = self.person;
        let ways = [
            ("sudo", person.sudo(&[])),
            ("alone", person.alone(&[&program()])),
        ];
        ways.map(|(by, mut way)| {
            way.env("SSH_AUTH_SOCK", &self.socket).args(arguments);
            (by, finish(&mut way))
        })
    }

    /// `agentbox wrap OPTIONS... -- bash -c SCRIPT` by both.
    pub(super) fn wraps(&self, options: &[&str], script: &str) -> [(&'static str, Finished); 2] {
        self.both(&[&["wrap"], options, &["--", "bash", "-c", script]].concat())
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        run("kill", &[&self.pid]);
    }
}

/// Signs a message for git with a key, whose `.pub` file is in the project.
pub(super) fn sign(key: &str) -> String {
    format!(
        "echo hello >m.{key}; rm -f m.{key}.sig; ssh-keygen -q -Y sign -n git -f {key}.pub m.{key} && grep -c BEGIN m.{key}.sig"
    )
}

/// Sends messages to the agent, and prints the first byte of each answer.
const ASK: &str = r#"
import os, socket, struct
def ask(stream, body):
    stream.sendall(struct.pack(">I", len(body)) + body)
    return answer(stream)
def answer(stream):
    head = take(stream, 4)
    return take(stream, struct.unpack(">I", head)[0]) if head else b""
def take(stream, length):
    got = b""
    while len(got) < length:
        part = stream.recv(length - len(got))
        if not part:
            return b""
        got += part
    return got
def connect():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(os.environ["SSH_AUTH_SOCK"])
    return stream
def string(text):
    return struct.pack(">I", len(text)) + text
def key(name):
    import base64
    return base64.b64decode(open(name + ".pub").read().split()[1])
def login(name, user):
    data = string(b"s" * 32) + b"\x32" + string(user) + string(b"ssh-connection") + string(b"publickey")
    data += b"\x01" + string(b"ssh-ed25519") + string(key(name))
    return b"\x0d" + string(key(name)) + string(data) + struct.pack(">I", 0)
def message(name, namespace):
    data = b"SSHSIG" + string(namespace) + string(b"") + string(b"sha512") + string(bytes(64))
    return b"\x0d" + string(key(name)) + string(data) + struct.pack(">I", 0)
def bind(forwards):
    return b"\x1b" + string(b"session-bind@openssh.com") + string(b"host") + string(b"s" * 32) + string(b"x") + bytes([forwards])
"#;

pub(super) fn python(script: &str) -> String {
    format!("python3 - <<'END'\n{ASK}\n{script}\nEND")
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_a_listed_key_signs_and_another_one_does_not() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let (listed, other) = (agent.fingerprint("listed"), agent.fingerprint("other"));
    // The control: without walls both sign.
    let outside = agent.does(&format!(
        "cd ~/src/project; {}; {}",
        sign("listed"),
        sign("other")
    ));
    assert_eq!(outside, "1\n1\n");
    // Without the option there is no agent.
    for (by, said) in agent.wraps(&[], "echo \"[$SSH_AUTH_SOCK]\"; ssh-add -l 2>&1") {
        assert!(
            said.code == 2 && said.stdout.starts_with("[]"),
            "{by}: {said}"
        );
    }
    let script = format!("ssh-add -l; {}; {}; true", sign("listed"), sign("other"));
    let file = format!("{}/.ssh/listed.pub", person.home);
    for name in [listed.as_str(), "listed@home", &file] {
        for (by, said) in agent.wraps(&[&format!("--ssh-agent={name}")], &script) {
            let said = said.ok();
            assert!(
                said.contains(&listed) && !said.contains(&other),
                "{by} {name}: {said}"
            );
            assert!(
                said.ends_with("listed@home (ED25519)\n1\n"),
                "{by} {name}: {said}"
            );
        }
    }
    // Without a name all of them sign, which is said.
    for (by, said) in agent.wraps(&["--ssh-agent"], &script) {
        assert!(
            said.stderr.contains("lists no key, so all") && said.stderr.contains(&other),
            "{by}: {said}"
        );
        assert!(said.ok().ends_with("\n1\n1\n"), "{by}");
    }
    // git signs by it.
    let commit = "git init -q . 2>/dev/null; git -c user.name=a -c user.email=a@b.test -c gpg.format=ssh -c user.signingkey=listed.pub \
                  commit -q -S --allow-empty -m signed && git cat-file commit HEAD | grep -c 'BEGIN SSH SIGNATURE'";
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], commit) {
        assert_eq!(said.ok(), "1\n", "{by}");
    }
}

/// A global `commit.gpgsign` was lost without a word.
#[test]
#[ignore = "needs the rig: hack/test"]
fn commits_are_signed_as_the_users_own_configuration_says() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let planted = format!("{}/planted", person.project);
    person.does("git init -q ~/src/project");
    let configure = |key: &str| {
        person.file(
            ".gitconfig",
            &format!(
                "[user]\n\tname = a\n\temail = a@b.test\n\tsigningkey = ~/.ssh/{key}\n[gpg]\n\tformat = ssh\n\
                 [gpg \"ssh\"]\n\tprogram = {planted}\n[commit]\n\tgpgsign = true\n"
            ),
        );
    };
    let commit = "git commit -q --allow-empty -m x && git cat-file commit HEAD | grep -c 'BEGIN SSH SIGNATURE'";
    let line = "your git signs";
    for name in ["listed.pub", "listed"] {
        configure(name);
        for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], commit) {
            assert!(!said.stderr.contains(line), "{by}: {said}");
            assert_eq!(said.ok(), "1\n", "{by} {name}");
        }
        for (by, said) in agent.wraps(&[], commit) {
            assert_eq!(said.stdout, "0\n", "{by}: {said}");
            let cure = format!("--ssh-agent={}/.ssh/listed.pub", person.home);
            assert!(
                said.stderr.contains(line) && said.stderr.contains(&cure),
                "{by}: {said}"
            );
        }
    }
    // Without a key in the settings it is the only one that signs, also where the repository alone says that git signs.
    person.file(
        ".gitconfig",
        "[user]\n\tname = a\n\temail = a@b.test\n[gpg]\n\tformat = ssh\n",
    );
    person.does("git -C ~/src/project config commit.gpgsign true");
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], commit) {
        assert!(!said.stderr.contains(line), "{by}: {said}");
        assert_eq!(said.ok(), "1\n", "{by}");
    }
    // Nor does the format have to be in the user's own file.
    person.file(".gitconfig", "[user]\n\tname = a\n\temail = a@b.test\n");
    person.does("git -C ~/src/project config gpg.format ssh");
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], commit) {
        assert!(!said.stderr.contains(line), "{by}: {said}");
        assert_eq!(said.ok(), "1\n", "{by}");
    }
    // A file that the repository's own settings name is not here, and a run may have chosen it.
    person.does("git -C ~/src/project config user.signingkey ~/.ssh/listed.pub");
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], "true") {
        assert!(
            said.stderr
                .contains("this repository's own user.signingkey"),
            "{by}: {said}"
        );
    }
    person.does("git -C ~/src/project config --unset user.signingkey; git -C ~/src/project config --unset gpg.format; git -C ~/src/project config --unset commit.gpgsign");
    // Git is not told of a key that the relay does not offer.
    configure("other.pub");
    let read = "git config user.signingkey; true";
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], read) {
        assert!(said.stderr.contains("/.ssh/other.pub"), "{by}: {said}");
        assert_eq!(said.ok(), "", "{by}");
    }
    for (by, said) in agent.wraps(&["--quiet"], commit) {
        assert!(!said.stderr.contains(line), "{by}: {said}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_the_agent_is_not_changed_and_each_signature_is_in_the_log() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let before = agent.does("ssh-add -l");
    let script = format!(
        "ssh-keygen -q -t ed25519 -N '' -f new; ssh-add new; ssh-add -D; ssh-add -d listed.pub; {}; {}",
        sign("listed"),
        python(
            r#"
stream = connect()
print("changes", {ask(stream, bytes([number]) + string(b"x"))[:1].hex() for number in [*range(11), 12, *range(14, 27), 28, 255]})
print("lock", ask(stream, b"\x16" + string(b"secret")).hex())
print("extension", ask(stream, b"\x1b" + string(b"query")).hex())
print("data", ask(stream, b"\x0d" + string(key("listed")) + string(b"anything") + bytes(4)).hex())
print("login", ask(stream, login("listed", b"git"))[:1].hex())
print("other", ask(stream, login("other", b"git"))[:1].hex())
print("forward", ask(stream, bind(1)).hex())
print("list", ask(stream, b"\x0b")[:5].hex())
"#
        )
    );
    for by in ["sudo", "alone"] {
        let name = format!("ssh-{by}-{}", std::process::id());
        let options = ["--ssh-agent=listed@home", "--name", &name];
        let (_, said) = agent
            .wraps(&options, &script)
            .into_iter()
            .find(|(way, _)| *way == by)
            .unwrap();
        let said = said.ok();
        let expected = "1\nchanges {'05'}\nlock 05\nextension 05\ndata 05\nlogin 0e\nother 05\nforward 05\nlist 0c00000001\n";
        assert!(said.ends_with(expected), "{by}: {said}");
        // The control: the agent still has both keys, and is not locked.
        assert_eq!(agent.does("ssh-add -l"), before, "{by}");
        let audit = |options: &[&str]| {
            let all = [&["audit", &name], options].concat();
            match by {
                "sudo" => finish(&mut person.sudo(&all)),
                _ => person.agentbox(&all),
            }
        };
        let log = audit(&["--json"]).ok();
        let key = agent.fingerprint("listed");
        let lines = |verdict: &str, part: &str| {
            let is_it = |line: &&str| {
                line.contains(&format!("\"verdict\":\"{verdict}\"")) && line.contains(part)
            };
            log.lines().filter(is_it).count()
        };
        for (verdict, part) in [
            ("allowed", "\"namespace\":\"git\""),
            ("allowed", "\"user\":\"git\""),
            ("denied", "the key is not listed"),
            ("denied", "unknown-data"),
            ("denied", "add a key to the SSH agent"),
            ("denied", "remove keys from the SSH agent"),
            ("denied", "lock or unlock the SSH agent"),
            ("denied", "use an extension of the SSH agent"),
            ("denied", "forward the SSH agent to another host"),
        ] {
            assert!(lines(verdict, part) > 0, "{by} {verdict} {part}: {log}");
        }
        assert_eq!(lines("allowed", &key), 2, "{by}: {log}");
        let (text, page) = (audit(&[]).ok(), audit(&["--format", "markdown"]).ok());
        for purpose in [
            "to log in as \"git\" at a server that it does not name",
            "of a message for \"git\"",
        ] {
            let what = format!("signature with {key} {purpose}");
            assert!(
                text.contains(&format!("  {what}: 1 signed (at ")),
                "{by}: {text}"
            );
            assert!(
                page.contains(&format!("| `{what}` | 1 | 0 |")),
                "{by}: {page}"
            );
        }
    }
}

/// A flood of purposes: each that was signed has its line, and the rate is the relay's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_no_signature_of_a_flood_is_without_a_line() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let script = python(
        r#"
import time
began = time.monotonic()
streams = [connect() for _ in range(8)]
signed = []
for n in range(160):
    stream = streams[n % len(streams)]
    body = message("listed", b"n%d" % n) if n % 2 else login("listed", b"u%d" % n)
    if ask(stream, body)[:1] == b"\x0e":
        signed.append(("n%d" if n % 2 else "u%d") % n)
print(" ".join(signed))
print("slow" if time.monotonic() - began > 9 else "fast")
"#,
    );
    let name = format!("ssh-flood-{}", std::process::id());
    let options = ["--ssh-agent=listed@home", "--name", &name];
    let all = [&["wrap"], &options[..], &["--", "bash", "-c", &script]].concat();
    let mut alone = person.alone(&[&program()]);
    alone.env("SSH_AUTH_SOCK", &agent.socket).args(&all);
    let said = finish(&mut alone).ok();
    let (signed, speed) = said.trim_end().split_once('\n').unwrap();
    // 50 at once, then ten each second.
    assert_eq!(speed, "slow");
    let signed: Vec<&str> = signed.split(' ').collect();
    assert_eq!(
        signed.len(),
        160,
        "an honest flood is slowed down, not refused"
    );
    let log = person.agentbox(&["audit", &name, "--json"]).ok();
    for purpose in signed {
        let quoted = format!(":\"{purpose}\"");
        let is_it =
            |line: &&str| line.contains("\"verdict\":\"allowed\"") && line.contains(&quoted);
        assert_eq!(log.lines().filter(is_it).count(), 1, "{purpose}: {log}");
    }
}

/// The disk of the log is full, after a first signature.
#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_a_full_disk_under_the_log_ends_signing() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let state = format!("{}/.local/state", person.home);
    person.does(&format!("mkdir -p {state}"));
    let options = format!("size=24m,mode=700,uid={},gid={}", person.uid, person.gid);
    let mounted = run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &state]);
    assert_eq!(mounted.code, 0, "{mounted}");
    let script = format!(
        "{}; touch ready; until [ -e go ]; do sleep 0.1; done; {}; ssh-add -l; echo after",
        sign("listed"),
        sign("listed")
    );
    let said = std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let mut way = person.alone(&[&program()]);
            way.env("SSH_AUTH_SOCK", &agent.socket);
            way.args([
                "wrap",
                "--ssh-agent=listed@home",
                "--",
                "bash",
                "-c",
                &script,
            ]);
            finish(&mut way)
        });
        agent.does(&format!(
            "cd ~/src/project; for n in $(seq 600); do [ -e ready ] && break; sleep 0.1; done
             cat /dev/zero >{state}/full 2>/dev/null; touch go"
        ));
        inside.join().unwrap()
    });
    run("umount", &["-l", &state]);
    // The control is the first signature.
    let count = said.stdout.lines().filter(|line| *line == "1").count();
    assert_eq!(count, 1, "{said}");
    // The run and its relay are there: it lists the key, and does not sign.
    let tail = said.stdout.split("listed@home").nth(1);
    assert!(tail.is_some_and(|tail| tail.contains("after")), "{said}");
    assert_eq!(said.code, 0, "{said}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_floods_and_garbage_leave_the_relay_and_the_network() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let flood = python(
        r#"
import os
stream = connect()
print("flood", {ask(stream, b"\xff" + os.urandom(20))[:1].hex() for _ in range(10000)})
for _ in range(200):
    garbage = connect()
    try:
        garbage.sendall(os.urandom(300))
        garbage.shutdown(socket.SHUT_WR)
        while garbage.recv(4096):
            pass
    except OSError:
        pass
# A message that is promised and never sent, one beyond the limit, and many connections at once.
slow = [connect() for _ in range(20)]
for one in slow:
    one.sendall(struct.pack(">I", 200000) + b"\x0d")
long = connect()
long.sendall(struct.pack(">I", (256 << 10) + 1))
print("long", long.recv(1))
many = [connect() for _ in range(10)]
print("many", {ask(one, b"\x0b")[:5].hex() for one in many})
"#,
    );
    let script = format!(
        "{flood}\n{}; curl -sS -o /dev/null -w '%{{http_code}}\\n' http://a.test/",
        sign("listed")
    );
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home"], &script) {
        let said = said.ok();
        let expected = "flood {'05'}\nlong b''\nmany {'0c00000001'}\n1\n403\n";
        assert_eq!(said, expected, "{by}");
    }
}

/// The workload sees the agent as it is at the moment, but for keys that came later.
#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_a_key_that_comes_later_does_not_sign_and_one_that_goes_is_gone() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let script = format!(
        "touch ready; until [ -e go ]; do sleep 0.1; done; ssh-add -l | cut -d' ' -f3; {}; {}",
        sign("late"),
        sign("other")
    );
    for by in ["sudo", "alone"] {
        agent.does("cd ~/src/project; rm -f ready go; cd ~/.ssh; ssh-add -q listed other; ssh-add -q -d late 2>/dev/null || true");
        let said = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let mut way = match by {
                    "sudo" => person.sudo(&[]),
                    _ => person.alone(&[&program()]),
                };
                way.env("SSH_AUTH_SOCK", &agent.socket);
                way.args(["wrap", "--ssh-agent", "--", "bash", "-c", &script]);
                finish(&mut way)
            });
            agent.does(
                "cd ~/src/project; for n in $(seq 600); do [ -e ready ] && break; sleep 0.1; done
                 ssh-add -q ~/.ssh/late; ssh-add -q -d ~/.ssh/listed; touch go",
            );
            inside.join().unwrap()
        });
        assert_eq!(said.ok(), "other@home\n1\n", "{by}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n57_no_agent_of_a_sandbox_or_beyond_the_ceiling_counts() {
    let _docker = Docker::connect();
    let person = Account::new();
    let agent = Agent::new(&person);
    let refused = |socket: Option<&str>, options: &[&str], part: &str| {
        let ways = [
            ("sudo", person.sudo(&[])),
            ("alone", person.alone(&[&program()])),
        ];
        for (by, mut way) in ways {
            match socket {
                Some(socket) => way.env("SSH_AUTH_SOCK", socket),
                None => way.env_remove("SSH_AUTH_SOCK"),
            };
            way.arg("wrap").args(options).args(["--", "true"]);
            let said = finish(&mut way).failed();
            assert!(said.contains(part), "{by} {options:?}: {said}");
        }
    };
    let own = Some(agent.socket.as_str());
    refused(None, &["--ssh-agent"], "SSH_AUTH_SOCK is not set");
    refused(own, &["--ssh-agent=late@home"], "your SSH agent has no key");
    refused(
        own,
        &["--ssh-agent=./listed.pub"],
        "a sandbox could have written",
    );
    refused(
        own,
        &["--ssh-agent", "--walls", "landlock"],
        "--ssh-agent (network.ssh-keys) needs a UNIX socket",
    );
    refused(
        own,
        &["--ssh-agent", "--env", "SSH_AUTH_SOCK"],
        "the listed keys sign",
    );
    // A socket in the project, which a sandbox could have made: with an agent of the user's, it would work.
    let planted = format!("{}/agent", person.project);
    let said = person.does(&format!("ssh-agent -s -a {planted}"));
    let pid = set_by(&said, "SSH_AGENT_PID");
    refused(
        Some(&planted),
        &["--ssh-agent"],
        "a sandbox could have made it",
    );
    // The same where an earlier sandbox had its workspace, in a directory that looks like one of OpenSSH's.
    let looks = format!("{}/src/earlier/ssh-x", person.home);
    let said = person.does(&format!(
        "cd ~/src; mkdir -m 1777 earlier; mkdir -m 700 {looks}; ssh-agent -s -a {looks}/agent.1"
    ));
    let looks_pid = set_by(&said, "SSH_AGENT_PID");
    refused(
        Some(&format!("{looks}/agent.1")),
        &["--ssh-agent"],
        "a sandbox could have made it",
    );
    run("kill", &[&looks_pid]);
    // The same in the home that sandboxes of an agent have, below agentbox's own state: its sandboxes write there.
    let homes = format!("{}/.local/state/agentbox/.agentbox-agents", person.home);
    let said = person.does(&format!(
        "umask 077; mkdir -p {homes}/claude/.claude; cd {homes}/claude/.claude; cp ~/.ssh/listed.pub .; ssh-agent -s -a {homes}/claude/.claude/a"
    ));
    let homes_pid = set_by(&said, "SSH_AGENT_PID");
    refused(
        Some(&format!("{homes}/claude/.claude/a")),
        &["--ssh-agent"],
        "a sandbox could have made it",
    );
    refused(
        own,
        &[&format!("--ssh-agent={homes}/claude/.claude/listed.pub")],
        "a sandbox could have written",
    );
    run("kill", &[&homes_pid]);
    // And no sandbox has such a directory for its workspace.
    let temporary = person.does("mktemp -d /tmp/ssh-XXXXXX");
    refused(
        own,
        &["--workspace", temporary.trim()],
        "for sockets of SSH agents",
    );
    person.does(&format!("ln -s {planted} ~/link"));
    let link = format!("{}/link", person.home);
    refused(
        Some(&link),
        &["--ssh-agent"],
        "a sandbox could have made it",
    );
    run("kill", &[&pid]);
    // Another user's agent.
    let stranger = Account::new();
    let strange = Agent::new(&stranger);
    refused(Some(&strange.socket), &["--ssh-agent"], "does not count");
    // A socket that is named and not there is said.
    for (by, said) in agent.wraps(&["--env", "SSH_AUTH_SOCK"], "true") {
        assert!(
            said.stderr
                .contains("names a socket that the sandbox does not have"),
            "{by}: {said}"
        );
    }
    // A ceiling lists the keys.
    let node = NodeDir::new();
    let dir = node.policies();
    let listed = agent.fingerprint("listed");
    node.file(
        "policies/keys.toml",
        &format!("base = \"permissive\"\nnetwork.ssh-keys = [\"{listed}\"]\n"),
    );
    let config = node.file(
        "config.toml",
        &format!("ceiling = \"keys\"\npolicy-dir = \"{dir}\"\n"),
    );
    let within = |options: &[&str]| {
        let all = [
            &["--config", &config, "wrap"],
            options,
            &["--", "ssh-add", "-l"],
        ]
        .concat();
        let mut sudo = person.sudo(&all);
        finish(sudo.env("SSH_AUTH_SOCK", &agent.socket))
    };
    let beyond = within(&["--ssh-agent=other@home"]).failed();
    assert!(beyond.contains("network.ssh-keys"), "{beyond}");
    assert!(within(&["--ssh-agent=listed@home"]).ok().contains(&listed));
    // `--dry-run` says it.
    for (by, said) in agent.wraps(&["--ssh-agent=listed@home", "--dry-run"], "true") {
        let said = said.ok();
        assert!(
            said.contains("signatures by your SSH agent") && said.contains(&listed),
            "{by}: {said}"
        );
    }
    // The relay is a process of the user's, and ends with the command.
    let mut ps = Command::new("ps");
    ps.args(["-C", "agentbox-ssh", "-o", "uid="]);
    let left = finish(&mut ps).stdout;
    let uid = person.uid.to_string();
    assert!(!left.split_whitespace().any(|one| one == uid), "{left}");
}
