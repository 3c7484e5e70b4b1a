//! `wrap` and `explain`, as a user types them.

use serde_json::{Value, json};

use super::{Scratch, program, with_env};
use crate::command::{Finished, run};
use crate::docker::{Docker, Policy};

/// The content of the user's key file.
pub const SECRET: &str = "a key of the user";

fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::Strict => "strict",
        Policy::Standard => "standard",
        Policy::Permissive => "permissive",
    }
}

/// A user with a key in the home directory and a project.
pub struct Person {
    _docker: Docker,
    pub scratch: Scratch,
    pub home: String,
    pub project: String,
}

impl Person {
    pub fn new() -> Self {
        let docker = Docker::connect();
        let scratch = Scratch::new();
        scratch.file("home/.ssh/id_ed25519", SECRET);
        Self {
            _docker: docker,
            home: scratch.path("home"),
            project: scratch.dir("home/project"),
            scratch,
        }
    }

    /// `agentbox wrap OPTIONS... -- sh -c SCRIPT` in the project.
    fn wrap(&self, options: &[&str], script: &str) -> Finished {
        let command = [&["wrap"], options, &["--", "bash", "-c", script]].concat();
        let env = [("HOME", self.home.as_str()), ("FOO", "of the node")];
        let run = || with_env(&program(), &command, &self.project, &env);
        // The whole node is visible inside, and other tests' sockets appear and disappear. One that disappears between
        // search and mask is a refusal.
        let gone = |ended: &Finished| ended.stderr.contains("has gone since it was found");
        (0..4)
            .map(|_| run())
            .find(|ended| !gone(ended))
            .unwrap_or_else(run)
    }

    fn wrap_by(&self, policy: Policy, script: &str) -> Finished {
        self.wrap(&["--policy", name(policy)], script)
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_wrap_passes_the_work_and_the_exit_code_on() {
    let person = Person::new();
    for policy in Policy::ALL {
        let seen = person.wrap_by(policy, "echo done >result && exit 5");
        assert_eq!(seen.code, 5, "{policy:?}: {seen}");
        let result = format!("{}/result", person.project);
        assert_eq!(std::fs::read_to_string(&result).unwrap(), "done\n");
        std::fs::remove_file(result).unwrap();
    }
    assert_eq!(person.wrap(&[], "kill -KILL $BASHPID & wait $!").code, 137);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_wrap_shows_no_key_and_no_password_hash() {
    let person = Person::new();
    let key = person.scratch.path("home/.ssh/id_ed25519");
    let script = format!("cat ~/.ssh/id_ed25519 {key} /etc/shadow 2>&1; ls -A ~/.ssh {key}; true");
    for policy in Policy::ALL {
        let seen = person.wrap_by(policy, &script);
        let all = seen.to_string();
        assert_eq!(seen.code, 0, "{policy:?}: {all}");
        assert!(!all.contains(SECRET), "{policy:?}: {all}");
        assert!(!all.contains("root:"), "{policy:?}: {all}");
    }
    // The control: without walls both are visible.
    let seen = run("bash", &["-c", &format!("cat {key} /etc/shadow")]).ok();
    assert!(seen.contains(SECRET) && seen.contains("root:"), "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_wrap_passes_on_only_the_environment_that_was_asked_for() {
    let person = Person::new();
    let script = "echo \"FOO=${FOO-unset} HOME=$HOME\"";
    let home = &person.home;
    for policy in Policy::ALL {
        let silent = person.wrap_by(policy, script).ok();
        assert_eq!(silent, format!("FOO=unset HOME={home}\n"));
        let asked = person.wrap(&["--policy", name(policy), "--env", "FOO=1"], script);
        assert_eq!(asked.ok(), format!("FOO=1 HOME={home}\n"));
    }
    let unnamed = person.wrap(&["--env", "=FOO"], "true").failed();
    assert!(unnamed.contains("--env"), "{unnamed}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_wrap_allows_no_writes_outside_and_no_connections() {
    let person = Person::new();
    for policy in Policy::ALL {
        let refused = person.wrap_by(policy, "echo x >/usr/bin/wrapped").failed();
        assert!(refused.contains("Read-only file system"), "{refused}");
        assert!(!std::path::Path::new("/usr/bin/wrapped").exists());
        let out = person
            .wrap_by(policy, "exec 3<>/dev/tcp/198.51.100.1/80")
            .failed();
        // Without an allowlist there is no route. With one, each address is local, and no rule names this port.
        let said = ["Network is unreachable", "Connection refused"];
        assert!(said.iter().any(|s| out.contains(s)), "{policy:?}: {out}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_wrap_refuses_what_it_cannot_fence() {
    let person = Person::new();
    let ssh = person.scratch.path("home/.ssh");
    for workspace in ["/etc", "/run", "/proc", "/sys", "/dev", ssh.as_str()] {
        let refused = person.wrap(&["--workspace", workspace], "true").failed();
        assert!(refused.contains(workspace), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
    // Nothing of the node's root is mounted: the command runs in the empty one.
    let root = person.wrap(&["--workspace", "/"], "pwd; echo x >/wrapped");
    assert_ne!(root.code, 0, "{root}");
    assert!(!std::path::Path::new("/wrapped").exists());
    let unknown = person.wrap(&["--policy", "none-such"], "true").failed();
    assert!(unknown.contains("none-such"), "{unknown}");
    let absent = person.wrap(&["--workspace", "/none/such"], "true").failed();
    assert!(absent.contains("/none/such"), "{absent}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_explain_names_omitted_mounts_and_matches_the_container() {
    let docker = Docker::connect();
    let options = [&Policy::Standard.options()[..], &["-v", "/etc:/h"]].concat();
    let container = docker.start(&options, &["test-musl", "sleep", "100"]);
    let id = container.inspect("{{.Id}}");

    let text = run(&program(), &["explain", &id]).ok();
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("/h "))
        .unwrap_or("");
    assert!(line.contains("not mounted"), "{text}");
    assert!(line.contains("password hashes"), "{text}");
    container.exec(&[], &["ls", "/h/passwd"]).failed();

    // An unambiguous prefix of the id is enough.
    let plan = run(&program(), &["explain", "--json", &id[..12]]).ok();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    let bounding = &plan["plan"]["capabilities"]["bounding"];
    let bounding = bounding.as_array().unwrap_or_else(|| panic!("{plan:#}"));
    let status = container.exec(&[], &["cat", "/proc/1/status"]).ok();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    assert_eq!(
        bounding.len(),
        mask.count_ones() as usize,
        "{bounding:?} {mask:x}"
    );
}

/// The table of `explain --syscalls` matches a container's process: each kind of verdict is tried.
#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_explain_the_table_of_system_calls_matches_the_kernel() {
    let person = Person::new();
    let table = |policy: &str| -> Vec<Value> {
        let words = [
            "explain",
            "--syscalls",
            "--json",
            "--policy",
            policy,
            "--compare",
            "docker",
        ];
        let env = [("HOME", person.home.as_str())];
        let text = with_env(&program(), &words, &person.project, &env).ok();
        let table: Value = serde_json::from_str(&text).unwrap();
        let beside = table["compared"]["calls"].as_array().unwrap();
        assert!(
            beside.iter().any(|row| row["call"] == "io_uring_setup"),
            "{text}"
        );
        table["calls"].as_array().unwrap().clone()
    };
    let verdict = |table: &[Value], call: &str| {
        let row = table.iter().find(|row| row["call"] == call).unwrap();
        assert!(row["reason"].as_str().unwrap().len() > 10, "{row}");
        row["verdicts"].clone()
    };
    let standard = table("standard");
    assert!(standard.len() > 300);
    // Arguments of 0 are harmless: without a pointer even an allowed call fails.
    let script = "import ctypes, os\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        for number in (0, 101, 165, 321, 425, 435):\n    \
            ctypes.set_errno(0)\n    \
            print(number, libc.syscall(number, -1, 0, 0, 0, 0, 0) < 0 and ctypes.get_errno())\n";
    let env = [("HOME", person.home.as_str())];
    let words = [
        "wrap", "--policy", "standard", "--", "python3", "-c", script,
    ];
    let seen = with_env(&program(), &words, &person.project, &env).ok();
    for (call, number, said, errno) in [
        ("read", 0, "allow", 9),
        ("ptrace", 101, "EPERM", 1),
        ("mount", 165, "EPERM", 1),
        ("bpf", 321, "EPERM", 1),
        ("io_uring_setup", 425, "ENOSYS", 38),
        ("clone3", 435, "ENOSYS", 38),
    ] {
        assert_eq!(verdict(&standard, call), json!([said]), "{call}");
        assert!(
            seen.contains(&format!("{number} {errno}\n")),
            "{call}: {seen}"
        );
    }
    assert_eq!(verdict(&standard, "chmod"), json!(["allow", "EPERM"]));
    assert_eq!(verdict(&table("permissive"), "chmod"), json!(["allow"]));
}
