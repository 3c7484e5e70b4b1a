//! `agentbox policy` as a user runs it: verdicts, lists, and the answers of invented package managers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::command::{Finished, finish, run_for};

/// A node with its own configuration, policies, presets and home, and the only programs on PATH.
struct Node {
    path: PathBuf,
    /// The directory on PATH.
    bin: PathBuf,
}

impl Node {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("agentbox-policy-{name}-{}", std::process::id()));
        for dir in ["bin", "home", "policies"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        let bin = path.join("bin");
        let node = Self { path, bin };
        let (policies, presets) = (node.path("policies"), node.path("presets"));
        node.file(
            "config.toml",
            &format!("policy-dir = {policies:?}\npreset-dir = {presets:?}\n"),
        );
        node
    }

    /// The same, with the programs in a system directory. Only in the rig, whose root goes with it.
    fn with_programs_of_the_system(name: &str) -> Self {
        let mut node = Self::new(name);
        node.bin = PathBuf::from(format!("/usr/local/lib/agentbox-test-{name}"));
        fs::create_dir_all(&node.bin).unwrap();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn preset(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path("presets").join(format!("{name}.toml"))).ok()
    }

    /// Writes a program with these shell lines.
    fn program(&self, name: &str, lines: &str) {
        let path = self.bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn policy(&self, arguments: &[&str]) -> Finished {
        let built =
            std::env::var_os("AGENTBOX_BIN").unwrap_or(env!("CARGO_BIN_EXE_agentbox").into());
        run_for(
            Duration::from_secs(120),
            Command::new(built)
                .arg("--config")
                .arg(self.path("config.toml"))
                .arg("policy")
                .args(arguments)
                .env_clear()
                .env("HOME", self.path("home"))
                .env("PATH", &self.bin),
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).unwrap();
        if !self.bin.starts_with(&self.path) {
            fs::remove_dir_all(&self.bin).unwrap();
        }
    }
}

/// Scripts read the lists.
#[test]
fn lists_and_answers_have_a_json_form() {
    let node = Node::new("json");
    fs::create_dir(node.path("presets")).unwrap();
    node.file(
        "policies/team.toml",
        "description = \"ours\"\nbase = \"standard\"",
    );
    node.file("policies/broken.toml", "base = \"none\"");
    let json = |arguments: &str| -> serde_json::Value {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let said = node.policy(&arguments);
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
    };
    for form in ["--json", "--format json"] {
        let all = json(&format!("list {form}"));
        let named = |name: &str| {
            let mut all = all.as_array().unwrap().iter();
            all.find(|row| row["name"] == name).unwrap().clone()
        };
        assert_eq!(named("team")["description"], "ours", "{all}");
        assert!(named("broken")["error"].is_string(), "{all}");
        assert!(named("strict")["error"].is_null(), "{all}");
        let policy = json(&format!("show team {form}"));
        assert_eq!(policy["name"], "team", "{policy}");
        assert_eq!(policy["network"]["mode"], "local", "{policy}");
        let answer = json(&format!("check permissive --host a.test {form}"));
        assert_eq!(answer["version"], 1);
        assert_eq!(answer["allowed"], false, "{answer}");
        let verdict = answer["verdict"].as_str().unwrap();
        assert!(verdict.starts_with("denied: a.test:443"), "{answer}");
        assert!(answer["notes"].is_array(), "{answer}");
    }
}

#[test]
fn check_answers_by_its_words_and_its_status() {
    let node = Node::new("check");
    fs::create_dir(node.path("presets")).unwrap();
    node.file(
        "presets/ours.toml",
        "description = \"ours\"\nrules = [\"*.ours.test\", \"git.ours.test:22\"]",
    );
    node.file(
        "policies/team.toml",
        "base = \"permissive\"\n[network]\nallow = [\"@ours\"]\ndeny = [\"bad.ours.test\"]",
    );
    node.file(
        "policies/by-path.toml",
        "base = \"permissive\"\n[network]\nallow = [\"GET https://a.test/x\"]",
    );
    for (arguments, code, part) in [
        (
            "team --host a.ours.test",
            0,
            "allowed: a.ours.test:443 by the rule *.ours.test",
        ),
        (
            "team --host GIT.ours.test. --port 22",
            0,
            "by the rule git.ours.test:22",
        ),
        (
            "team --host a.ours.test --port 80",
            1,
            "the missing rule: a.ours.test:80",
        ),
        ("team --host a.ours.test --port 80", 1, "with port 443 only"),
        (
            "team --host bad.ours.test",
            1,
            "network.deny lists bad.ours.test",
        ),
        (
            "team --host other.test",
            1,
            "an annotation may add it: 'dev.agentbox.network.allow=",
        ),
        (
            "team --host 192.0.2.1",
            1,
            "no annotation may add it: policy team exceeds the ceiling",
        ),
        (
            "team --host 2001:db8::1 --port 80",
            1,
            "the missing rule: [2001:db8::1]:80",
        ),
        (
            "--host other.test",
            1,
            "network.mode is local, which reaches nothing",
        ),
        (
            "standard --annotation network.allow=@ours --host a.ours.test",
            0,
            "allowed",
        ),
        (
            "--annotation dev.agentbox.network.allow=a.test --host a.test",
            0,
            "allowed",
        ),
    ] {
        let words: Vec<&str> = ["check"].into_iter().chain(arguments.split(' ')).collect();
        let finished = node.policy(&words);
        assert_eq!(finished.code, code, "{finished}");
        assert!(finished.stdout.contains(part), "{part}: {finished}");
    }
    for (policy, request, code, part) in [
        (
            "team",
            "GET https://A.ours.test./x/../y?q=1",
            0,
            "allowed: GET https://a.ours.test/y?q=1 by the rule *.ours.test, which opens every request to this host",
        ),
        (
            "team",
            "POST http://a.ours.test/x",
            1,
            "the missing rule: a.ours.test:80",
        ),
        (
            "team",
            "PUT https://bad.ours.test/",
            1,
            "network.deny lists bad.ours.test",
        ),
        (
            "team",
            "GET https://a.ours.test/x%2f..%2fy",
            2,
            "can be read in two ways",
        ),
        (
            "team",
            "GET https://me:word@a.ours.test/",
            2,
            "names another host",
        ),
        ("team", "GET", 2, "this is not METHOD https://HOST/PATH"),
        (
            "by-path",
            "GET https://a.test/x?q",
            0,
            "by the rule GET https://a.test/x",
        ),
        (
            "by-path",
            "POST https://a.test/x",
            1,
            "the missing rule: POST https://a.test/x",
        ),
    ] {
        let finished = node.policy(&["check", policy, "--request", request]);
        assert_eq!(finished.code, code, "{finished}");
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains(part), "{part}: {finished}");
    }
    // A question without an answer is not a denial.
    for arguments in [
        "check gone --host a.test",
        "check team --host a_b..test",
        "check team --host a.test --port 0",
        "check team",
        "check team --host a.test --request GET",
        "check team --port 80 --request GET",
        "check team --host a.test --annotation network.alow=x",
        "check team --host a.test --annotation novalue",
        "check --container 0123456789abcdef --host a.test",
        "presets --write",
        "presets --detect --force",
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let finished = node.policy(&words);
        assert_eq!(finished.code, 2, "{finished}");
        assert!(
            finished.stdout.is_empty() && !finished.stderr.is_empty(),
            "{finished}"
        );
    }
}

#[test]
fn list_show_and_presets_say_what_there_is() {
    let node = Node::new("list");
    fs::create_dir(node.path("presets")).unwrap();
    node.file(
        "policies/team.toml",
        "description = \"the team's\"\nbase = \"strict\"\nnetwork.deny = [\"@ours\"]",
    );
    node.file("policies/broken.toml", "base = \"gone\"");
    node.file(
        "presets/ours.toml",
        "description = \"ours\"\nrules = [\"a.test\", \"b.test:22\"]",
    );
    node.file("presets/odd.toml", "rules = 5");
    let list = node.policy(&["list"]).ok();
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        names,
        ["strict", "standard", "ci", "permissive", "broken", "team"]
    );
    assert!(
        list.contains("policy file team.toml") && list.contains("the team's"),
        "{list}"
    );
    assert!(list.contains("cannot be used: policy file broken.toml: there is no policy gone"));

    let shown = node.policy(&["show", "team"]).ok();
    assert!(
        shown.contains("deny = [\"a.test\", \"b.test:22\"]"),
        "{shown}"
    );
    node.file("policies/copy.toml", &shown);
    assert_eq!(node.policy(&["show", "copy"]).ok(), shown);
    assert!(
        node.policy(&["show", "broken"])
            .failed()
            .contains("there is no policy gone")
    );

    let presets = node.policy(&["presets"]).ok();
    assert!(presets.contains("@github (built in): "), "{presets}");
    assert!(
        presets.contains("@ours (the node's): ours\n    a.test b.test:22\n"),
        "{presets}"
    );
    assert!(presets.contains("@odd (the node's): cannot be used: preset file odd.toml"));
}

/// Package managers and their answers, for an index at `.test` names.
fn managers(node: &Node) {
    node.program(
        "pip",
        r#"case "$1 $2" in
"install --help") echo "  -i, --index-url <url>  Base URL (default https://u:secret@pip.test/simple). More" ;;
"config list") echo "global.extra-index-url='https://more.pip.test:8443/simple'" ;;
"install --dry-run") echo '{"install": [{"download_info": {"url": "https://files.pip.test/p/x.whl"}}]}' ;;
*) exit 2 ;;
esac"#,
    );
    node.program(
        "npm",
        r#"case "$1 $2" in
"config list") echo '{"registry": "http://npm.test:4873/", "@corp:registry": "https://corp.test/"}' ;;
"view npm") exit 1 ;;
*) exit 2 ;;
esac"#,
    );
    node.program(
        "cargo",
        r#"case "$1" in
generate-lockfile) [ -f Cargo.toml ] || exit 3
  /bin/mkdir -p "$CARGO_HOME/registry/index/index.cargo.test-0123456789abcdef"
  echo '{"dl": "https://crates.cargo.test/{crate}"}' \
    > "$CARGO_HOME/registry/index/index.cargo.test-0123456789abcdef/config.json" ;;
*) exit 2 ;;
esac"#,
    );
    node.program(
        "go",
        r#"case "$2" in
GOPROXY) echo "https://go.test,direct" ;;
GOSUMDB) echo "sums.test" ;;
esac"#,
    );
    node.program(
        "apt-get",
        r#"echo http://apt.test/debian/; echo http://apt.test/debian/; echo cdrom:[Debian]/"#,
    );
    node.program(
        "getent",
        r#"case "$2" in
npm.test) echo "10.1.2.3 STREAM npm.test" ;;
go.test) exit 2 ;;
*) echo "203.0.113.1 STREAM $2" ;;
esac"#,
    );
}

/// As an agent could leave them in a virtual environment on PATH.
#[test]
fn detect_runs_no_program_that_others_than_root_may_change() {
    let node = Node::new("changeable");
    let mark = node.path("ran");
    for name in ["pip", "npm", "cargo", "go", "apt-get", "getent"] {
        node.program(name, &format!("echo {name} >>{}", mark.display()));
    }
    // The control: the program does the harm that it is made for.
    finish(&mut Command::new(node.bin.join("pip"))).ok();
    assert_eq!(fs::read_to_string(&mark).unwrap(), "pip\n");
    fs::remove_file(&mark).unwrap();
    let said = node.policy(&["presets", "--detect"]).ok();
    assert!(!mark.exists(), "{said}");
    assert!(
        said.contains("was not run: another user or a sandbox can write it"),
        "{said}"
    );
}

/// F50: as root in a user's HOME, the user could lead the tools' output to any file of root's.
#[test]
#[ignore = "needs the rig of hack/test"]
fn f50_detect_works_in_no_home_that_others_can_change() {
    let node = Node::with_programs_of_the_system("home");
    managers(&node);
    let home = node.path("home");
    let refused = |why: &str| {
        let said = node.policy(&["presets", "--detect"]).failed();
        assert!(said.contains(why), "{said}");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    };
    std::os::unix::fs::chown(&home, Some(1001), None).unwrap();
    refused("belongs to user 1001, and user 0 runs this: sudo --set-home");
    std::os::unix::fs::chown(&home, Some(0), None).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    refused("can be changed by other users");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&node.path, fs::Permissions::from_mode(0o777)).unwrap();
    refused("can be changed by other users");
    // The control.
    fs::set_permissions(&node.path, fs::Permissions::from_mode(0o755)).unwrap();
    let said = node.policy(&["presets", "--detect"]);
    // It is not the home of passwd(5).
    assert!(said.stderr.contains("HOME may choose hosts"), "{said}");
    said.ok();
}

/// F50: what one program leaves in the directory that it writes leads no later answer elsewhere, and keeps none waiting.
#[test]
#[ignore = "needs the rig of hack/test"]
fn f50_no_link_of_one_manager_leads_what_the_next_one_says_elsewhere() {
    let node = Node::with_programs_of_the_system("links");
    let victim = node.path("victim");
    fs::write(&victim, "kept").unwrap();
    let plant = format!(
        "cd \"$TMPDIR\"; for n in stdout Cargo.toml; do /bin/ln -sf {} $n; done; /bin/ln -sf {}/src . ; exit 1",
        victim.display(),
        node.path("home").display()
    );
    node.program("pip", &plant);
    node.program("cargo", "echo cargo");
    node.program("go", "echo https://go.test");
    let said = node.policy(&["presets", "--detect"]).ok();
    assert!(said.contains("go.test"), "{said}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    // A pipe in the place of settings, and a directory of settings that a project's files may have named.
    let settings = node.path("home").join(".cargo");
    fs::create_dir(&settings).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        settings.join("config.toml"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    node.policy(&["presets", "--detect"]).ok();
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn detect_asks_the_package_managers_and_writes_what_they_say() {
    let node = Node::with_programs_of_the_system("detect");
    managers(&node);
    let said = node.policy(&["presets", "--detect"]).ok();
    assert!(!said.contains("secret"), "{said}");
    assert!(!node.path("presets").exists());
    assert_eq!(fs::read_dir(node.path("home")).unwrap().count(), 0);

    let said = node.policy(&["presets", "--detect", "--write"]).ok();
    for (name, rules, gap) in [
        ("python", "files.pip.test more.pip.test:8443 pip.test", None),
        (
            "node",
            "corp.test internal:npm.test:4873",
            Some(
                "the host that the registry serves files from (`npm view npm dist.tarball` failed)",
            ),
        ),
        ("rust", "crates.cargo.test index.cargo.test", None),
        (
            "go",
            "go.test sums.test",
            Some("whether go.test has private addresses"),
        ),
        ("debian", "apt.test:80", Some("no http or https URL")),
    ] {
        let text = node
            .preset(name)
            .unwrap_or_else(|| panic!("{name}: {said}"));
        if let Some(gap) = gap {
            assert!(text.contains(gap), "{gap}: {text}");
        }
        assert!(text.contains(&format!("names @{name}")), "{text}");
        let listed = node.policy(&["presets"]).ok();
        assert!(
            listed.contains(&format!("@{name} (the node's): ")),
            "{listed}"
        );
        assert!(
            listed.contains(&format!("\n    {rules}\n")),
            "{rules}: {listed}"
        );
    }
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn detect_keeps_what_is_there_unless_it_is_forced() {
    let node = Node::with_programs_of_the_system("force");
    node.program(
        "go",
        "[ $2 = GOPROXY ] && echo https://one.test || echo off",
    );
    node.policy(&["presets", "--detect", "--write"]).ok();
    let first = node.preset("go").unwrap();
    assert!(first.contains("\"one.test\""), "{first}");
    // Nothing for managers that the node does not have.
    assert_eq!(fs::read_dir(node.path("presets")).unwrap().count(), 1);

    node.program(
        "go",
        "[ $2 = GOPROXY ] && echo https://two.test || echo off",
    );
    let said = node.policy(&["presets", "--detect", "--write"]).ok();
    assert!(said.contains("; --force replaces it"), "{said}");
    assert_eq!(node.preset("go").unwrap(), first);
    node.policy(&["presets", "--detect", "--write", "--force"])
        .ok();
    assert!(node.preset("go").unwrap().contains("\"two.test\""));

    // An empty answer is not written, and having no manager at all is an error.
    node.program("go", "exit 1");
    let said = node
        .policy(&["presets", "--detect", "--write", "--force"])
        .ok();
    assert!(said.contains("not written, no hosts were found"), "{said}");
    assert!(node.preset("go").unwrap().contains("\"two.test\""));
    fs::remove_file(node.bin.join("go")).unwrap();
    assert!(
        node.policy(&["presets", "--detect"])
            .failed()
            .contains("none of pip")
    );
}
