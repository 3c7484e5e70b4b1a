//! `agentbox install`, through `hack/install`, in a directory instead of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Finished, finish};
use crate::direct::program;

/// A root to install into, removed when dropped.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("agentbox-{name}-{}", std::process::id()));
        // Other users must not be able to write files that root's programs obey.
        fs::DirBuilder::new().mode(0o755).create(&path).unwrap();
        Self(path)
    }

    fn install(&self, arguments: &[&str]) -> Finished {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/install");
        finish(
            Command::new(script)
                .args(arguments)
                .env("DESTDIR", &self.0)
                .env("AGENTBOX_BIN", program()),
        )
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.0.join(path)).unwrap()).unwrap()
    }

    /// Every file below it with its content.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut rest = vec![self.0.clone()];
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    rest.push(path);
                } else {
                    let name = path.strip_prefix(&self.0).unwrap().display().to_string();
                    found.insert(name, fs::read(path).unwrap());
                }
            }
        }
        found
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const DAEMON_JSON: &str = "etc/docker/daemon.json";
const OTHERS: &str = r#"{ "debug": true, "runtimes": { "other": { "path": "/bin/other" } } }"#;

#[test]
fn installs_beside_what_is_there_and_takes_away_only_that() {
    let root = Root::new("install");
    root.write(DAEMON_JSON, OTHERS);
    let before = root.json(DAEMON_JSON);

    root.install(&[]).ok();
    let json = root.json(DAEMON_JSON);
    assert_eq!(json["debug"], true);
    assert_eq!(json["runtimes"]["other"]["path"], "/bin/other");
    assert_eq!(
        json["runtimes"]["agentbox"]["path"],
        "/usr/local/bin/agentbox"
    );
    let files = root.files();
    assert_eq!(
        files["usr/local/bin/agentbox"],
        fs::read(program()).unwrap()
    );
    assert!(files.contains_key("etc/agentbox/config.toml"));
    let script = String::from_utf8(files["usr/local/bin/agentbox-strict"].clone()).unwrap();
    assert!(script.contains("exec /usr/local/bin/agentbox --policy strict"));

    root.install(&[]).ok();
    assert_eq!(root.files(), files, "a second time changes nothing");

    let backup = format!("{DAEMON_JSON}.before-agentbox");
    assert_eq!(files[&backup], OTHERS.as_bytes());
    let said = root.install(&["--uninstall"]).ok();
    assert!(!said.contains("restart docker"), "{said}");
    let left: BTreeMap<String, Vec<u8>> = [(DAEMON_JSON.to_owned(), OTHERS.into())].into();
    assert_eq!(root.files(), left, "byte for byte as before");
    assert_eq!(root.json(DAEMON_JSON), before);
}

#[test]
fn removes_a_daemon_json_that_it_made_itself() {
    let root = Root::new("made");
    fs::create_dir_all(root.0.join("etc/docker")).unwrap();
    root.install(&["--prefix", "/opt/box"]).ok();
    assert!(root.files().contains_key("opt/box/bin/agentbox"));
    assert!(root.files().contains_key(DAEMON_JSON));
    let said = root.install(&["--uninstall"]).ok();
    // dockerd's reload replaces runtimes only if the file names some.
    assert!(said.contains("systemctl restart docker"), "{said}");
    assert_eq!(root.files(), BTreeMap::new());
}

#[test]
fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    let root = Root::new("dry");
    root.write(DAEMON_JSON, OTHERS);
    let before = root.files();
    let said = root.install(&["--dry-run"]).ok();
    assert!(
        said.contains("would copy the binary to /usr/local/bin/agentbox"),
        "{said}"
    );
    assert!(
        said.contains("would register the runtime agentbox"),
        "{said}"
    );
    for line in [
        "--- a/etc/docker/daemon.json",
        "+++ b/etc/docker/daemon.json",
        "+      \"path\": \"/usr/local/bin/agentbox\"",
        "--- /dev/null",
        "+++ b/etc/agentbox/config.toml",
    ] {
        assert!(
            said.lines().any(|said| said.trim() == line.trim()),
            "{line}: {said}"
        );
    }
    assert_eq!(root.files(), before);

    root.install(&[]).ok();
    let installed = root.files();
    let said = root.install(&["--uninstall", "--dry-run"]).ok();
    assert!(
        said.contains("would remove /usr/local/bin/agentbox"),
        "{said}"
    );
    assert_eq!(root.files(), installed);
}

#[test]
fn keeps_files_that_were_changed_since() {
    let root = Root::new("changed");
    root.write(DAEMON_JSON, "{}");
    root.install(&[]).ok();
    root.write("etc/agentbox/config.toml", "default = \"strict\"\n");
    root.write(
        DAEMON_JSON,
        r#"{"runtimes":{"agentbox":{"path":"/elsewhere"}}}"#,
    );
    root.install(&["--uninstall"]).ok();
    assert_eq!(
        root.files()["etc/agentbox/config.toml"],
        b"default = \"strict\"\n"
    );
    assert_eq!(
        root.json(DAEMON_JSON)["runtimes"]["agentbox"]["path"],
        "/elsewhere"
    );
}

#[test]
fn a_broken_daemon_json_stops_it_before_anything_is_changed() {
    for broken in [
        "{ \"debug\": tru",
        "[]",
        "\"text\"",
        "{ /* c */ }",
        "{\"a\":1,}",
    ] {
        let root = Root::new("broken");
        root.write(DAEMON_JSON, broken);
        let before = root.files();
        let message = root.install(&[]).failed();
        assert!(message.contains("not a JSON object"), "{message}");
        assert_eq!(root.files(), before);
    }
}

#[test]
fn an_unknown_argument_is_refused() {
    let root = Root::new("argument");
    assert!(
        root.install(&["--uninstal"])
            .failed()
            .contains("--uninstal")
    );
    assert!(
        root.install(&["--prefix"])
            .failed()
            .contains("needs a value")
    );
    assert!(
        root.install(&["--prefix", "relative"])
            .failed()
            .contains("absolute")
    );
}

const CONTAINERD: &str = "etc/containerd/config.toml";

/// The configuration of kubeadm's users, for containerd 1.x and 2.x.
fn containerd_config(version: u8) -> String {
    let plugin = match version {
        2 => "io.containerd.grpc.v1.cri",
        _ => "io.containerd.cri.v1.runtime",
    };
    format!(
        "version = {version}\nroot = \"/var/lib/containerd\"\n\
         [plugins.\"{plugin}\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n  \
         [plugins.\"{plugin}\".containerd.runtimes.runc.options]\n    SystemdCgroup = true\n"
    )
}

#[test]
fn point_15_containerds_handlers_go_to_the_end_and_leave_nothing_behind() {
    for (version, plugin) in [
        (2, "io.containerd.grpc.v1.cri"),
        (3, "io.containerd.cri.v1.runtime"),
    ] {
        let root = Root::new("containerd");
        let before = containerd_config(version);
        root.write(CONTAINERD, &before);
        let said = root.install(&["--prefix", "/opt/box"]).ok();
        assert!(said.contains("systemctl restart containerd"), "{said}");
        let text = String::from_utf8(root.files()[CONTAINERD].clone()).unwrap();
        assert!(text.starts_with(&before), "{text}");
        let config: toml::Table = toml::from_str(&text).unwrap();
        let runtimes = &config["plugins"][plugin]["containerd"]["runtimes"];
        for (handler, program) in [
            ("agentbox", "/opt/box/bin/agentbox"),
            ("agentbox-strict", "/opt/box/bin/agentbox-strict"),
        ] {
            let options = &runtimes[handler]["options"];
            assert_eq!(options["BinaryName"].as_str(), Some(program));
            // The same as for the node's other pods: kubelet and the runtime must agree.
            assert_eq!(options["SystemdCgroup"].as_bool(), Some(true));
            assert_eq!(
                runtimes[handler]["pod_annotations"]
                    .as_array()
                    .unwrap()
                    .len(),
                3
            );
        }
        let installed = root.files();
        let said = root.install(&["--prefix", "/opt/box"]).ok();
        assert!(
            said.contains("registered in /etc/containerd/config.toml already"),
            "{said}"
        );
        assert_eq!(root.files(), installed, "a second time changes nothing");
        root.install(&["--uninstall"]).ok();
        let files: BTreeMap<String, Vec<u8>> =
            [(CONTAINERD.to_owned(), before.into_bytes())].into();
        assert_eq!(root.files(), files);
    }
}

#[test]
fn a_containerd_without_pods_or_with_foreign_handlers_is_left_alone() {
    let own = containerd_config(2)
        + "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.agentbox]\n  runtime_type = \"x\"\n";
    for (text, why) in [
        ("disabled_plugins = [\"cri\"]\n", "disabled"),
        ("version = 2\nplugins = {}\n", "cannot append"),
        ("version = [\n", "not TOML"),
        ("", "neither version"),
        ("root = \"/x\"\n", "neither version"),
        (own.as_str(), "from another program"),
    ] {
        let root = Root::new("left-alone");
        root.write(CONTAINERD, text);
        let said = root.install(&[]).ok();
        assert!(
            said.contains("not registered with containerd") && said.contains(why),
            "{said}"
        );
        assert_eq!(root.files()[CONTAINERD], text.as_bytes());
    }
}

#[test]
fn point_15_podman_gets_a_file_of_its_own() {
    let root = Root::new("podman");
    root.write("etc/containers/policy.json", "{}");
    root.install(&[]).ok();
    let path = "etc/containers/containers.conf.d/agentbox.conf";
    let text = String::from_utf8(root.files()[path].clone()).unwrap();
    let config: toml::Table = toml::from_str(&text).unwrap();
    let program = config["engine"]["runtimes"]["agentbox"][0].as_str();
    assert_eq!(program, Some("/usr/local/bin/agentbox"));
    root.install(&["--uninstall"]).ok();
    assert!(!root.files().contains_key(path));
}

#[test]
fn it_is_not_taken_away_from_under_containers() {
    let root = Root::new("running");
    root.install(&[]).ok();
    root.write(
        "run/agentbox/index/0123456789abcdef-agent-1/record.json",
        "{}",
    );
    let before = root.files();
    let said = root.install(&["--uninstall"]).failed();
    assert!(
        said.contains("agent-1") && said.contains("list --all"),
        "{said}"
    );
    assert_eq!(root.files(), before);
    // A dry run has the diff too, and ends with the same refusal.
    root.write(DAEMON_JSON, OTHERS);
    root.install(&[]).ok();
    let before = root.files();
    let seen = root.install(&["--uninstall", "--dry-run"]);
    assert_eq!(seen.code, 3, "{seen}");
    assert!(
        seen.stdout.contains("--- a/etc/docker/daemon.json") && seen.stderr.contains("agent-1"),
        "{seen}"
    );
    assert_eq!(root.files(), before);
    root.install(&["--uninstall", "--force"]).ok();
    assert!(!root.files().contains_key("usr/local/bin/agentbox"));
}

/// A tarball's program and a package's: the shell ran the old one, Docker the new one, and no line said so.
#[test]
fn another_agentbox_beside_the_installed_one_is_named() {
    let root = Root::new("twin");
    let other = root.0.join("usr/bin/agentbox");
    root.write("usr/bin/agentbox", "another build");
    let said = root.install(&[]).ok();
    assert!(
        said.contains("/usr/bin/agentbox is another agentbox: engines run /usr/local/bin/agentbox"),
        "{said}"
    );
    // The control: the same program, and a script.
    fs::copy(program(), &other).unwrap();
    let said = root.install(&[]).ok();
    assert!(!said.contains("another agentbox"), "{said}");
    fs::write(&other, "#!/bin/sh\nexec agentbox\n").unwrap();
    let said = root.install(&[]).ok();
    assert!(!said.contains("another agentbox"), "{said}");
}

/// The program was copied already when the read-only /etc/docker stopped it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_directory_that_cannot_be_written_stops_it_before_the_first_step() {
    let root = Root::new("read-only");
    root.write(DAEMON_JSON, OTHERS);
    let before = root.files();
    let mounted = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$2\" install --destdir \"$3\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mounted, "sh"]);
    command
        .arg(root.0.join("etc/docker"))
        .arg(program())
        .arg(&root.0);
    let said = finish(&mut command).failed();
    assert!(
        said.contains("etc/docker\": Read-only file system (os error 30); nothing was changed"),
        "{said}"
    );
    assert_eq!(said.matches("Read-only").count(), 1, "{said}");
    assert_eq!(root.files(), before);
    // The control: it can be written.
    root.install(&[]).ok();
}

#[test]
fn a_sandbox_of_an_ordinary_user_stops_it_too() {
    let root = Root::new("rootless");
    root.install(&[]).ok();
    let uid = rustix::process::geteuid().as_raw();
    // Files of another user under such a name delay nothing.
    for name in ["agentbox-x", "agentbox-12345"] {
        let dir = format!("dev/shm/{name}/index/0123456789abcdef-other");
        fs::create_dir_all(root.0.join(dir)).unwrap();
    }
    for own in [
        format!("run/user/{uid}/agentbox"),
        format!("dev/shm/agentbox-{uid}"),
    ] {
        let own = root.0.join(own);
        let dir = own.join("index/0123456789abcdef-mine");
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
        let said = root.install(&["--uninstall"]).failed();
        assert!(
            said.contains("1 sandboxes") && said.contains("mine"),
            "{said}"
        );
        let owner = format!("mine of user {uid}");
        assert_eq!(said.contains(&owner), uid != 0, "{said}");
        fs::remove_dir_all(dir).unwrap();
    }
    root.install(&["--uninstall"]).ok();
}

/// With a link or a file of their own, another user could choose what root's programs obey, or which file root
/// overwrites.
#[test]
fn a_link_or_a_file_that_others_write_is_refused_before_anything_is_changed() {
    let secret = Root::new("elsewhere");
    secret.write("file", "{}");
    for path in [DAEMON_JSON, CONTAINERD, "etc/agentbox/config.toml"] {
        let root = Root::new("linked");
        root.write("etc/docker/x", "");
        let at = root.0.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(secret.0.join("file"), &at).unwrap();
        let said = root.install(&[]).failed();
        assert!(
            said.contains("is a link to") && said.contains("nothing was changed"),
            "{said}"
        );
        assert!(!root.files().contains_key("usr/local/bin/agentbox"));
        assert_eq!(secret.files()["file"], b"{}");

        fs::remove_file(&at).unwrap();
        fs::write(&at, "{}").unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o664)).unwrap();
        let said = root.install(&[]).failed();
        assert!(said.contains("chmod go-w"), "{said}");

        // The control: the same file, writable by root alone, in a directory that every user can write.
        fs::set_permissions(&at, fs::Permissions::from_mode(0o644)).unwrap();
        let directory = at.parent().unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        let said = root.install(&[]).failed();
        assert!(said.contains("not safe to change"), "{said}");
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        root.install(&[]).ok();
    }
}

#[test]
fn a_file_keeps_its_mode_and_nothing_is_left_beside_it() {
    let root = Root::new("mode");
    root.write(DAEMON_JSON, "{\n\t\"debug\": true\n}\n");
    root.write(CONTAINERD, &containerd_config(2));
    let mode = |path: &str| fs::metadata(root.0.join(path)).unwrap().mode() & 0o7777;
    for path in [DAEMON_JSON, CONTAINERD] {
        fs::set_permissions(root.0.join(path), fs::Permissions::from_mode(0o400)).unwrap();
    }
    root.install(&[]).ok();
    for path in [DAEMON_JSON, CONTAINERD] {
        assert_eq!(
            (mode(path), mode(&format!("{path}.before-agentbox"))),
            (0o400, 0o400)
        );
    }
    let text = String::from_utf8(root.files()[DAEMON_JSON].clone()).unwrap();
    assert!(
        text.contains("\n\t\"debug\": true,\n\t\"runtimes\""),
        "{text}"
    );
    let temporary = root
        .files()
        .into_keys()
        .find(|name| name.contains(".agentbox-"));
    assert_eq!(temporary, None);
    root.install(&["--uninstall"]).ok();
    assert_eq!(mode(CONTAINERD), 0o400);
    assert_eq!(root.files()[CONTAINERD], containerd_config(2).into_bytes());
}

#[test]
fn containerd_2_with_imports_gets_a_drop_in_that_goes_again() {
    let root = Root::new("drop-in");
    let text = format!(
        "imports = ['/etc/containerd/conf.d/*.toml']\n{}",
        containerd_config(3)
    );
    root.write(CONTAINERD, &text);
    root.install(&[]).ok();
    let drop_in = "etc/containerd/conf.d/agentbox.toml";
    let installed = root.files();
    assert!(installed.contains_key(drop_in));
    assert_eq!(
        installed[CONTAINERD],
        text.as_bytes(),
        "the main file is not touched"
    );
    root.install(&[]).ok();
    assert_eq!(root.files(), installed);
    root.install(&["--uninstall"]).ok();
    assert!(!root.files().contains_key(drop_in));
}

#[test]
fn what_an_older_hack_install_has_written_is_updated_and_goes() {
    let root = Root::new("older");
    let before = containerd_config(2);
    root.write(
        CONTAINERD,
        &format!(
            "{before}# agentbox: begin (hack/install; docs/kubernetes.md)\n# old\n# agentbox: end\n"
        ),
    );
    root.write(
        "etc/containers/containers.conf.d/agentbox.conf",
        "# Written by hack/install.\n",
    );
    root.write(
        DAEMON_JSON,
        "{\"runtimes\":{\"agentbox\":{\"path\":\"/opt/old/bin/agentbox\"}}}",
    );
    root.write(
        "var/lib/agentbox/installed",
        "binary /usr/local/bin/agentbox\nmade-daemon-json /etc/docker/daemon.json\nregistered /opt/old/bin/agentbox\n\
         containerd /etc/containerd/config.toml\npodman /etc/containers/containers.conf.d/agentbox.conf\n",
    );
    root.install(&[]).ok();
    assert_eq!(
        root.json(DAEMON_JSON)["runtimes"]["agentbox"]["path"],
        "/usr/local/bin/agentbox"
    );
    let podman =
        String::from_utf8(root.files()["etc/containers/containers.conf.d/agentbox.conf"].clone())
            .unwrap();
    assert!(podman.contains("[engine.runtimes]"), "{podman}");
    root.install(&["--uninstall"]).ok();
    let left: BTreeMap<String, Vec<u8>> = [(CONTAINERD.to_owned(), before.into_bytes())].into();
    assert_eq!(root.files(), left);
}

#[test]
fn the_template_has_every_setting_and_each_can_be_taken() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let template = fs::read_to_string(here.join("hack/config.toml")).unwrap();
    // A setting follows `#`, words follow `# `.
    let is_setting = |line: &&str| line.starts_with(|c: char| c == '[' || c.is_ascii_lowercase());
    let settings: Vec<&str> = template
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line))
        .filter(is_setting)
        .collect();
    let settings = settings.join("\n");
    agentbox::policy::NodeConfig::parse(&settings).unwrap();
    // docs/policy.md shows the same ones.
    let keys = |text: &str| -> Vec<String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        let mut keys = Vec::new();
        for (name, value) in table {
            match value {
                toml::Value::Table(inner) => {
                    keys.extend(inner.keys().map(|key| format!("{name}.{key}")))
                }
                _ => keys.push(name),
            }
        }
        keys.sort();
        keys
    };
    let docs = fs::read_to_string(here.join("docs/policy.md")).unwrap();
    let shown = docs.split("## The node's file").nth(1).unwrap();
    let shown = shown
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let shown: Vec<&str> = shown
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .collect();
    assert_eq!(keys(&settings), keys(&shown.join("\n")));
}
