//! H1: files that an agent prepares for the next start use the node's memory only up to a bound.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Finished, run};
use crate::direct::program;

/// Memory limit of the whole program, KiB: twice the most that a search keeps.
const MOST: usize = 128 << 10;

struct Made(PathBuf);

impl Made {
    fn new(name: &str) -> Self {
        let dir = format!("/srv/{name}-{}", std::process::id());
        fs::create_dir_all(&dir).unwrap();
        Self(dir.into())
    }

    /// A work tree with a token, for which it is unknown whether git has it.
    fn tree(&self, name: &str) -> PathBuf {
        let tree = self.0.join("work").join(name);
        for part in ["objects", "refs", "info"] {
            fs::create_dir_all(tree.join(".git").join(part)).unwrap();
        }
        fs::write(tree.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(tree.join(".npmrc"), "_authToken=abc\n").unwrap();
        tree.join(".git/index")
    }

    /// Plans for it, as `create` does, within the memory limit.
    fn planned(&self) -> Finished {
        let bundle = self.0.join("bundle");
        fs::create_dir_all(bundle.join("rootfs")).unwrap();
        let source = self.0.join("work");
        let config = format!(
            r#"{{"ociVersion":"1.0.2","root":{{"path":"rootfs"}},"process":{{"args":["true"],"cwd":"/work","user":{{"uid":0,"gid":0}}}},
            "linux":{{"namespaces":[{{"type":"mount"}},{{"type":"pid"}},{{"type":"ipc"}},{{"type":"uts"}},{{"type":"network"}}]}},
            "mounts":[{{"destination":"/work","type":"bind","source":{source:?},"options":["bind","rw"]}}]}}"#
        );
        fs::write(bundle.join("config.json"), config).unwrap();
        let script = format!("ulimit -d {MOST}; exec \"$0\" explain --bundle \"$1\"");
        let bundle = bundle.display().to_string();
        run("sh", &["-c", &script, &program(), &bundle])
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The beginning of an index with this many files.
fn head(version: u32, count: u32) -> Vec<u8> {
    [&b"DIRC"[..], &version.to_be_bytes(), &count.to_be_bytes()].concat()
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn an_index_uses_the_nodes_memory_only_up_to_a_bound() {
    // Names of 4 KB, each of which needs one byte in the file.
    let made = Made::new("index-names");
    let name = [&b"d/".repeat(1900)[..], b".netrc"].concat();
    let length = u16::try_from(name.len()).unwrap().to_be_bytes();
    let entry = |rest: &[u8]| [&[0; 60][..], &length, &[0], rest, &[0]].concat();
    let mut index = head(4, 100_001);
    index.extend(entry(&name));
    index.extend(entry(b"").repeat(100_000));
    index.extend([0; 20]);
    fs::write(made.tree("a"), index).unwrap();
    let message = made.planned().failed();
    assert!(message.contains("64 MiB of memory"), "{message}");
    // A hole that many repositories share.
    let made = Made::new("index-holes");
    let hole = made.0.join("hole");
    fs::write(&hole, head(2, 1_048_000)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&hole).unwrap();
    file.set_len(64 << 20).unwrap();
    for number in 0..10 {
        let index = made.tree(&number.to_string());
        fs::hard_link(&hole, index).unwrap();
    }
    let message = made.planned().failed();
    assert!(message.contains("64 MiB of memory"), "{message}");
}

/// The names of parent directories count once.
#[test]
#[ignore = "needs the rig: hack/test"]
fn deep_directories_use_no_more_memory_than_others() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let made = Made::new("index-deep");
    let mode = Mode::from_raw_mode(0o755);
    let mut at = openat(CWD, &made.0, OFlags::PATH, Mode::empty()).unwrap();
    let names = std::iter::once("work".to_owned()).chain((0..15).map(|_| "d".repeat(250)));
    for name in names {
        mkdirat(&at, Path::new(&name), mode).unwrap();
        at = openat(&at, Path::new(&name), OFlags::PATH, Mode::empty()).unwrap();
    }
    for number in 0..40_000 {
        mkdirat(&at, Path::new(&number.to_string()), mode).unwrap();
    }
    made.planned().ok();
}
