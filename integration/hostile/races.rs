//! An image and its volumes that change while the container is created.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// Exchanges two names, back and forth, while `during` runs.
fn exchanging<T>(one: &str, other: &str, during: impl FnOnce() -> T) -> T {
    /// Ends the exchange even if an assertion fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut times = 0u64;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                times += 1;
                std::thread::sleep(Duration::from_micros(times % 16 * 40));
            }
        });
        let _stop = Stop(&stop);
        during()
    })
}

/// CVE-2021-30465, CVE-2024-45310: a volume that two containers share, and a mount below it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2021_30465_a_volume_that_changes_leads_no_mount_outside() {
    let mut stage = Stage::new();
    // A complete search waits ten seconds for the volume to settle, and then refuses before anything is mounted.
    let policy = "base = \"standard\"\nfilesystem.search = \"partial\"\n";
    stage.policy = stage.node.scratch.file("partial.toml", policy);
    let volume = stage.node.scratch.dir("volume");
    let source = stage.node.scratch.file("source/file", "mounted");
    let (dir, link) = (format!("{volume}/dir"), format!("{volume}/link"));
    fs::create_dir(&dir).unwrap();
    symlink(&stage.outside, &link).unwrap();
    let mut config = stage.config("cat /vol/dir/secret /vol/link/secret 2>/dev/null; true");
    add_mount(
        &mut config,
        json!({"destination": "/vol", "type": "bind", "source": volume, "options": ["rbind", "rw"]}),
    );
    add_mount(
        &mut config,
        json!({"destination": "/vol/dir/made", "type": "tmpfs", "source": "tmpfs"}),
    );
    add_mount(
        &mut config,
        json!({"destination": "/vol/dir/file", "type": "bind", "source": source, "options": ["bind"]}),
    );
    config["process"]["cwd"] = json!("/");
    exchanging(&dir, &link, || {
        for runtime in OURS {
            for _ in 0..12 {
                let seen = stage.run(runtime, &config);
                stage.assert_outside_untouched(&seen);
            }
        }
    });
}

/// CVE-2023-27561, CVE-2025-52881: /proc is exchanged for a link or a directory of the attacker. A container that runs
/// has a real /proc, with its hidden paths hidden.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2023_27561_a_proc_that_changes_is_a_real_one_or_none() {
    let stage = Stage::new();
    let (real, other) = (
        format!("{}/proc", stage.image),
        format!("{}/other", stage.image),
    );
    symlink("/tmp", &other).unwrap();
    let script =
        "grep ' /proc ' /proc/mounts; cat /proc/self/mountinfo; echo 1 > /proc/sys/kernel/printk";
    let config = stage.config(script);
    let mut ran = 0;
    exchanging(&real, &other, || {
        for runtime in OURS {
            for _ in 0..15 {
                let seen = stage.run(runtime, &config);
                // The names keep changing while the program looks, so its answer may call /proc `other`.
                let proc: Vec<&str> = seen.stdout.lines().collect();
                if proc.iter().any(|line| line.contains(" - proc proc")) {
                    ran += 1;
                    let read_only = |l: &&str| {
                        l.contains(" - proc ") && l.contains(" /sys ") && l.contains(" ro,")
                    };
                    assert!(proc.iter().any(read_only), "{seen}");
                    assert!(proc.iter().any(|l| l.contains("/keys ")), "{seen}");
                    assert!(seen.stderr.contains("printk"), "written: {seen}");
                }
                stage.assert_outside_untouched(&seen);
            }
        }
    });
    // Most starts are refused, since the masks landed elsewhere. An image that no longer changes works as before.
    if Path::new(&real).is_symlink() {
        renameat_with(CWD, &real, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    }
    let seen = stage.run(Runtime::Unconfined, &config);
    assert!(
        seen.stdout.contains("proc /proc proc "),
        "{seen} ({ran} ran before)"
    );
}

/// Hidden and read-only paths of the image, exchanged during the start: a container sees them hidden, or does not run.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_a_hidden_path_that_changes_leads_nowhere_else() {
    let stage = Stage::new();
    stage.node.scratch.file("image/hidden/file", "hidden");
    stage.link(&stage.outside, "other");
    let one = format!("{}/hidden", stage.image);
    let other = format!("{}/other", stage.image);
    let mut config = stage.config("echo x > /hidden/secret; echo x > /other/secret; true");
    config["linux"]["maskedPaths"] = json!(["/hidden", "/other/secret"]);
    config["linux"]["readonlyPaths"] = json!(["/other"]);
    exchanging(&one, &other, || {
        for runtime in OURS {
            for _ in 0..12 {
                let seen = stage.run(runtime, &config);
                stage.assert_outside_untouched(&seen);
            }
        }
    });
}
