//! Images and bundles that attack: published advisories of runc and youki from 2019 to 2025, by number. They must not
//! reach outside under `unconfined`, nor under `standard`. If the node's runc or a naive program is still vulnerable, a
//! control shows it.

mod devices;
mod held;
mod layer;
mod limits;
mod mounts;
mod process;
mod races;
mod users;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::command::{Finished, run};
use crate::direct::{Node, program};

const SECRET: &str = "the-secret-of-the-host";

/// The runtime that runs the bundle.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Runtime {
    Runc,
    Unconfined,
    /// The image is the container's own layer.
    Standard,
    /// With an overlay over the image.
    ThrownAway,
}

/// The runtime under test, with and without walls.
const OURS: [Runtime; 3] = [Runtime::Unconfined, Runtime::Standard, Runtime::ThrownAway];

/// An image that a test may change, and a node directory that must not change.
struct Stage {
    node: Node,
    image: String,
    outside: String,
    /// The policy of the runtime with walls: a name or a file.
    policy: String,
}

impl Drop for Stage {
    fn drop(&mut self) {
        crate::command::run("umount", &["-l", &self.image]);
    }
}

impl Stage {
    fn new() -> Self {
        let node = Node::new();
        let image = node.scratch.dir("image");
        // The rig's root is an overlay, and an ephemeral root over a directory of an overlay is refused.
        crate::command::run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", &image]).ok();
        for dir in ["bin", "dev", "proc", "sys", "tmp", "etc", "var", "root"] {
            node.scratch.dir(&format!("image/{dir}"));
        }
        fs::copy("/bin/busybox", format!("{image}/bin/busybox")).unwrap();
        for name in [
            "sh", "cat", "ls", "true", "sleep", "echo", "grep", "stat", "env", "id", "touch",
        ] {
            symlink("busybox", format!("{image}/bin/{name}")).unwrap();
        }
        let outside = node.scratch.dir("outside");
        for name in ["secret", "ptmx"] {
            node.scratch.file(&format!("outside/{name}"), SECRET);
        }
        Self {
            node,
            image,
            outside,
            policy: "standard".to_owned(),
        }
    }

    /// A config.json for a shell script in the image.
    fn config(&self, script: &str) -> Value {
        let mut config = self.node.config(&["sh", "-c", script]);
        config["root"] = json!({"path": self.image, "readonly": false});
        config["process"]["env"] = json!(["PATH=/bin", "HOME=/root"]);
        config
    }

    /// Calls this file of agentbox.
    fn call_of(&self, file: impl AsRef<OsStr>, policy: &str, arguments: &[&str]) -> Finished {
        let mut command = Command::new(file);
        command
            .args(["--root", &self.node.root, "--policy", policy])
            .args(arguments);
        self.node.finish(command)
    }

    /// Calls this runtime, with its own `--root`.
    fn call(&self, runtime: Runtime, arguments: &[&str]) -> Finished {
        let mut command = match runtime {
            Runtime::Runc => Command::new("runc"),
            _ => Command::new(program()),
        };
        let root = match runtime {
            Runtime::Runc => self.node.scratch.path("runc"),
            _ => self.node.root.clone(),
        };
        command.args(["--root", &root]).stdin(Stdio::null());
        match runtime {
            Runtime::Runc => {}
            Runtime::Unconfined => drop(command.args(["--policy", "unconfined"])),
            Runtime::Standard | Runtime::ThrownAway => {
                command.args(["--policy", &self.policy]);
            }
        }
        command.args(arguments);
        self.node.finish(command)
    }

    /// Makes a bundle of this configuration, with the image in it. Returns the bundle and an id.
    fn bundle(&self, config: &Value) -> (String, String) {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let bundle = self.node.bundle(".", config);
        (bundle, format!("hostile-{}-{number}", std::process::id()))
    }

    /// Runs a container to its end, and removes it in any case.
    fn run(&self, runtime: Runtime, config: &Value) -> Finished {
        let mut config = config.clone();
        if runtime == Runtime::ThrownAway {
            config["annotations"]["dev.agentbox.filesystem.root"] = json!("ephemeral");
        }
        let (bundle, id) = self.bundle(&config);
        let seen = self.call(runtime, &["run", "--bundle", &bundle, &id]);
        let gone = self.call(runtime, &["delete", "--force", &id]);
        if runtime != Runtime::Runc {
            assert_eq!(gone.code, 0, "{gone}");
            assert_eq!(self.node.leftovers(&id), Vec::<String>::new());
        }
        assert!(!seen.stdout.contains(SECRET), "{runtime:?} {seen}");
        seen
    }

    /// The node directory as text: names and contents.
    fn look_outside(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(&self.outside).unwrap().map(Result::unwrap);
        let name = |e: &fs::DirEntry| e.file_name().to_string_lossy().into_owned();
        let content = |e: &fs::DirEntry| match fs::symlink_metadata(e.path()) {
            Ok(found) if found.is_file() => fs::read_to_string(e.path()).unwrap(),
            other => format!("{other:?}"),
        };
        entries.map(|e| (name(&e), content(&e))).collect()
    }

    #[track_caller]
    fn assert_outside_untouched(&self, after: &dyn std::fmt::Display) {
        let expected = ["ptmx", "secret"].map(|name| (name.to_owned(), SECRET.to_owned()));
        assert_eq!(self.look_outside(), expected.into(), "{after}");
    }

    /// Replaces a path of the image by a symbolic link.
    fn link(&self, target: &str, name: &str) {
        let path = format!("{}/{name}", self.image);
        let path = Path::new(&path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else if path.symlink_metadata().is_ok() {
            fs::remove_file(path).unwrap();
        }
        symlink(target, path).unwrap();
    }
}

/// Appends a mount.
fn add_mount(config: &mut Value, mount: Value) {
    config["mounts"].as_array_mut().unwrap().push(mount);
}

/// Removes the mounts at and below a path.
fn drop_mounts(config: &mut Value, place: &str) {
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.retain(|m| !m["destination"].as_str().unwrap().starts_with(place));
}
