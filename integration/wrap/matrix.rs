//! Each kind of caller, walls and policy of `wrap`: ordinary work goes on, and attacks of docs/threats.md that succeed
//! without walls fail.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Stdio};

use super::account::Account;
use crate::command::{Finished, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

/// Each attempt prints its number and name, then `done` or the errno.
const ATTEMPTS: &str = r"
import ctypes, errno, os, socket, sys
key, theirs, open_to_all, port, victim = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), 'syscall')
def attempt(name, action):
    try:
        action()
        print(name, 'done')
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, 'timeout'))
attempt('F02-own-key', lambda: open(key).read())
attempt('F02-somebody-elses-file', lambda: open(theirs).read())
attempt('F01-by-dots', lambda: open('../' * 20 + key).read())
def linked():
    os.symlink(key, 'link')
    try:
        open('link').read()
    finally:
        os.unlink('link')
attempt('F01-by-a-link', linked)
attempt('F01-write', lambda: open(open_to_all, 'a').write('x'))
attempt('N01-loopback-of-the-node', lambda: socket.create_connection(('127.0.0.1', int(port)), 5))
attempt('P07-environment', lambda: open('/proc/%s/environ' % victim, 'rb').read())
attempt('P07-signal', lambda: os.kill(int(victim), 0))
attempt('S06-keyring', lambda: syscall(250, 0, -3, 0))
def set_id():
    open('set-id', 'w').close()
    try:
        os.chmod('set-id', 0o4755)
    finally:
        os.unlink('set-id')
attempt('F21-set-user-ID', set_id)
# Last: without walls it takes this process away from its files.
attempt('S05-namespace', lambda: syscall(272, 0x10000000))
";

const WORK: &str = "set -e; git init -q . && git add Makefile && git commit -qm one && git log --format=%s && make -s && \
    python3 -c 'import json, subprocess; print(subprocess.run([\"echo\", \"python\"], capture_output=True, text=True).stdout.strip())' && \
    printf 'b\\na\\n' | sort | head -1 >f && cat f && mkdir -p ~/.cache/x \"${TMPDIR:-/tmp}/x\" && rm -rf .git f out";

/// A user with private files beside the project, and a process outside.
struct Setting {
    person: Account,
    /// The arguments of [`ATTEMPTS`].
    arguments: Vec<String>,
    victim: Child,
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.victim.kill().unwrap();
        self.victim.wait().unwrap();
    }
}

fn outcomes(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(name, word)| (name.to_owned(), word.to_owned()))
        .collect()
}

impl Setting {
    fn new(other: &Account, scratch: &Scratch, listener: &TcpListener) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let person = Account::new();
        let open_to_all = scratch.file("open-to-all", "");
        let everybody = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(&open_to_all, everybody).unwrap();
        person.file(".gitconfig", "[user]\nname = me\nemail = me@example.test\n");
        person.file("src/project/Makefile", "all:\n\t@echo made >out; cat out\n");
        let arguments = [
            person.file(".ssh/id_ed25519", "the-secret"),
            other.file("notes", "theirs"),
            open_to_all,
            listener.local_addr().unwrap().port().to_string(),
        ];
        let mut sleeps = person.alone(&["sleep", "300"]);
        let victim = sleeps.stdin(Stdio::null()).spawn().unwrap();
        let pid = victim.id().to_string();
        Self {
            arguments: arguments.into_iter().chain([pid]).collect(),
            person,
            victim,
        }
    }

    /// Runs a command with `wrap`, as the user behind sudo and as the user.
    fn calls(&self, options: &[&str], command: &[&str]) -> [Finished; 2] {
        let words = [&["wrap", "--quiet"], options, &["--"], command].concat();
        let ways = [self.person.sudo(&[]), self.person.alone(&[&program()])];
        ways.map(|mut way| {
            way.env("PATH", "/usr/bin:/bin").args(&words);
            finish(&mut way)
        })
    }

    fn attempts(&self) -> Vec<&str> {
        let arguments = self.arguments.iter().map(String::as_str);
        ["/usr/bin/python3", "-c", ATTEMPTS]
            .into_iter()
            .chain(arguments)
            .collect()
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_matrix_ordinary_work_goes_on_and_the_attacks_fail() {
    let _docker = Docker::connect();
    let (other, scratch) = (Account::new(), Scratch::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let setting = Setting::new(&other, &scratch, &listener);
    let attempts = setting.attempts();
    let mut control = setting.person.alone(&attempts);
    let control = finish(&mut control).ok();
    let control = outcomes(&control);
    assert_eq!(control.len(), 11, "{control:?}");
    for (name, word) in &control {
        assert_eq!(word, "done", "without walls: {name}");
    }
    for walls in ["namespaces", "landlock"] {
        for policy in ["strict", "standard", "permissive"] {
            let options = ["--walls", walls, "--policy", policy];
            for (who, finished) in ["sudo", "alone"]
                .iter()
                .zip(setting.calls(&options, &attempts))
            {
                let walled = outcomes(&finished.ok());
                assert_eq!(
                    walled.len(),
                    control.len(),
                    "{walls} {policy} {who}: {walled:?}"
                );
                // `permissive` lets installers make such files (privileges.set-id).
                let is_let = |name: &str| policy == "permissive" && name.starts_with("F21");
                for (name, word) in walled.iter().filter(|(name, _)| !is_let(name)) {
                    assert!(
                        word.starts_with('E'),
                        "{walls} {policy} {who}: {name} {word}"
                    );
                }
            }
            for finished in setting.calls(&options, &["bash", "-c", WORK]) {
                assert_eq!(finished.ok(), "one\nmade\npython\na\n", "{walls} {policy}");
            }
        }
    }
}
