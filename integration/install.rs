//! `hack/install`, in a directory of its own instead of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::{Finished, run_for};

/// A root to install into, removed with the value.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("agentbox-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn install(&self, arguments: &[&str]) -> Finished {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/install");
        run_for(
            Duration::from_secs(60),
            Command::new(script)
                .args(arguments)
                .env("DESTDIR", &self.0)
                // Any program does: what is tested is where it goes.
                .env("AGENTBOX_BIN", "/bin/true"),
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
        fs::read("/bin/true").unwrap()
    );
    assert!(files.contains_key("etc/agentbox/config.toml"));

    root.install(&[]).ok();
    assert_eq!(root.files(), files, "a second time changes nothing");

    root.install(&["--uninstall"]).ok();
    assert_eq!(root.files().keys().collect::<Vec<_>>(), [DAEMON_JSON]);
    assert_eq!(root.json(DAEMON_JSON), before);
}

#[test]
fn removes_a_daemon_json_that_it_made_itself() {
    let root = Root::new("made");
    root.install(&["--prefix", "/opt/box"]).ok();
    assert!(root.files().contains_key("opt/box/bin/agentbox"));
    root.install(&["--uninstall"]).ok();
    assert_eq!(root.files(), BTreeMap::new());
}

#[test]
fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    let root = Root::new("dry");
    root.write(DAEMON_JSON, OTHERS);
    let before = root.files();
    let said = root.install(&["--dry-run"]).ok();
    assert!(
        said.contains("would put the binary at /usr/local/bin/agentbox"),
        "{said}"
    );
    assert!(
        said.contains("would register the runtime agentbox"),
        "{said}"
    );
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
fn keeps_what_somebody_changed_since() {
    let root = Root::new("changed");
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
    for broken in ["{ \"debug\": tru", "[]", "\"text\""] {
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
