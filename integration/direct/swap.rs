//! A mount's source that changes between check and mount.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::Scratch;
use crate::docker::{Docker, Policy};

const SECRET: &str = "the-secret-of-the-host";

/// A directory that the attacker can write, with `sub` in it, and a link to credentials elsewhere.
struct Stage {
    scratch: Scratch,
    parent: String,
    credentials: String,
}

impl Stage {
    fn new() -> Self {
        let scratch = Scratch::new();
        let parent = scratch.dir("parent");
        scratch.file("parent/sub/secret", "ordinary");
        scratch.file("victim/.ssh/secret", SECRET);
        let credentials = scratch.path("victim/.ssh");
        Self {
            scratch,
            parent,
            credentials,
        }
    }

    /// The options that mount both: the swapped one below the other, and at a separate place.
    fn mounts(&self) -> [String; 3] {
        let parent = &self.parent;
        [
            format!("-v={parent}:/ws"),
            format!("-v={parent}/sub:/ws/sub"),
            format!("-v={parent}/sub:/data"),
        ]
    }
}

const LOOK: [&str; 4] = [
    "test-musl",
    "sh",
    "-c",
    "cat /ws/sub/secret /data/secret; cat /ws/*/secret; true",
];

/// Exchanges the two names until `stop`. Returns how often.
fn exchange(one: &Path, other: &Path, stop: &AtomicBool) -> u64 {
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
        times += 1;
        // Each state lasts long enough for a check of it to end in the other.
        std::thread::sleep(std::time::Duration::from_micros(times % 8 * 50));
    }
    times
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_without_walls_a_link_to_credentials_is_mounted() {
    let docker = Docker::connect();
    let stage = Stage::new();
    std::fs::rename(
        stage.scratch.path("parent/sub"),
        stage.scratch.path("parent/was"),
    )
    .unwrap();
    symlink(&stage.credentials, stage.scratch.path("parent/sub")).unwrap();
    let mounts = stage.mounts();
    let options: Vec<&str> = mounts.iter().map(String::as_str).collect();
    let seen = docker.run(
        &[&["--runtime=runc", "-w", "/ws"], &options[..]].concat(),
        &LOOK,
    );
    assert!(seen.stdout.contains(SECRET), "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_source_that_turns_into_a_link_to_credentials_is_never_read() {
    let docker = Docker::connect();
    let stage = Stage::new();
    symlink(&stage.credentials, stage.scratch.path("parent/link")).unwrap();
    let (one, other) = (
        stage.scratch.0.join("parent/sub"),
        stage.scratch.0.join("parent/link"),
    );
    let mounts = stage.mounts();
    let mut options = Policy::Permissive.options();
    options.extend(["-w", "/ws"]);
    options.extend(mounts.iter().map(String::as_str));

    let stop = AtomicBool::new(false);
    let (mut ran, mut refused) = (0, 0);
    let mut leaks = Vec::new();
    let exchanged = std::thread::scope(|scope| {
        let swapper = scope.spawn(|| exchange(&one, &other, &stop));
        for _ in 0..40 {
            let seen = docker.run(&options, &LOOK);
            match seen.code {
                0 => ran += 1,
                _ => refused += 1,
            }
            if seen.to_string().contains(SECRET) {
                leaks.push(seen.to_string());
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap()
    });
    println!("{ran} ran, {refused} were refused, {exchanged} exchanges");
    assert!(leaks.is_empty(), "{} of 40: {}", leaks.len(), leaks[0]);
    assert!(ran > 0, "all {refused} were refused: nothing was tried");
    assert!(exchanged > 1000, "only {exchanged} exchanges");
}
