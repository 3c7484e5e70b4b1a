//! A root that the container writes and gets again at its next start, and roots that are not a container's layer.

use std::os::unix::fs::PermissionsExt;

use rustix::fs::{CWD, FileType, Mode};

use super::*;

/// Links, files, directories and pipes in place of files that a start uses.
const PLANTS: [&str; 5] = ["link", "dangling", "file", "directory", "pipe"];

impl Stage {
    /// Puts a file of this kind at a path of the image, and keeps the old one beside it.
    fn plant(&self, kind: &str, name: &str) {
        let path = format!("{}/{name}", self.image);
        let _ = fs::rename(&path, format!("{path}.before"));
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        match kind {
            "link" => symlink(format!("{}/secret", self.outside), &path).unwrap(),
            "dangling" => symlink(format!("{}/made", self.outside), &path).unwrap(),
            "file" => fs::write(&path, "planted").unwrap(),
            "directory" => fs::create_dir(&path).unwrap(),
            _ => rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap(),
        }
    }

    /// Undoes `plant`.
    fn clear(&self, name: &str) {
        let path = format!("{}/{name}", self.image);
        let found = fs::symlink_metadata(&path);
        match found.map(|found| found.is_dir()) {
            Ok(true) => fs::remove_dir_all(&path).unwrap(),
            Ok(false) => fs::remove_file(&path).unwrap(),
            Err(_) => {}
        }
        let _ = fs::rename(format!("{path}.before"), &path);
    }

    /// A configuration with a workspace, a secret, name files and a hidden file.
    fn whole(&self, script: &str) -> Value {
        let mut config = self.config(script);
        let work = self.node.scratch.dir("work");
        let key = self.node.scratch.file("key", "a key");
        let options = json!(["rbind", "rw"]);
        for (source, place) in [(&work, "/work"), (&key, "/run/secrets/key")] {
            add_mount(
                &mut config,
                json!({"destination": place, "type": "bind", "source": source, "options": options}),
            );
        }
        config["process"]["cwd"] = json!("/work");
        config["linux"]["maskedPaths"] = json!(["/etc/hidden/file", "/proc/kcore"]);
        config["linux"]["readonlyPaths"] = json!(["/etc/fixed", "/proc/sys"]);
        config["annotations"]["dev.agentbox.report.denied"] = json!("on");
        config
    }
}

/// F40: every path that a start makes, mounts, hides or reads, after an earlier start of the same container.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_f_40_what_was_left_in_the_layer_leads_no_start_outside() {
    let stage = Stage::new();
    stage.node.scratch.file("image/etc/hidden/file", "hidden");
    stage.node.scratch.file("image/etc/fixed", "fixed");
    stage.node.scratch.dir("image/run");
    let script = "cat /etc/hidden/file; for f in /etc/fixed /etc/hosts; do [ -p $f ] || echo x >$f; done; echo x >/proc/sys/kernel/domainname; \
        for f in /etc/passwd /etc/hosts /work /root /run/secrets/key; do [ -p $f ] || cat $f; done; echo ran";
    let config = stage.whole(script);
    let first = stage.run(Runtime::Standard, &config).ok();
    assert!(
        first.contains("a key") && first.ends_with("ran\n"),
        "{first}"
    );
    let mut started = 0;
    for place in [
        "proc",
        "sys",
        "dev",
        "dev/null",
        "dev/pts",
        "dev/shm",
        "dev/ptmx",
        "dev/console",
        "etc/hosts",
        "etc/resolv.conf",
        "etc/hostname",
        "etc/hidden",
        "etc/hidden/file",
        "etc/fixed",
        "work",
        "run",
        "run/secrets",
        "run/secrets/key",
        "run/agentbox",
        "root",
        "tmp",
        "etc",
        "etc/passwd",
        "etc/group",
        "etc/nsswitch.conf",
        "etc/ld.so.preload",
        "etc/ld.so.cache",
        "etc/mtab",
        ".dockerenv",
        "usr/local/bin/agentbox",
    ] {
        for kind in PLANTS {
            stage.plant(kind, place);
            let seen = stage.run(Runtime::Standard, &config);
            stage.assert_outside_untouched(&seen);
            assert!(!seen.stdout.contains("hidden"), "{kind} {place}: {seen}");
            match seen.code {
                0 => started += 1,
                _ => assert!(!seen.stderr.trim().is_empty(), "{kind} {place}: {seen}"),
            }
            // In a new /etc, the file is the container's own.
            let of_image = match place {
                "etc" => "etc.before/fixed",
                _ => "etc/fixed",
            };
            let fixed = format!("{}/{of_image}", stage.image);
            if Path::new(&fixed).is_file() {
                assert_ne!(
                    fs::read_to_string(fixed).unwrap(),
                    "x\n",
                    "{kind} {place}: {seen}"
                );
            }
            stage.clear(place);
        }
    }
    // Most plants do not stop a start.
    assert!(started > 60, "{started}");
    let last = stage.run(Runtime::Standard, &config).ok();
    assert!(last.contains("a key") && last.ends_with("ran\n"), "{last}");
}

/// F40: paths that the engine hides or makes read-only stay so, whatever root does inside, and at the next start.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_f_40_no_renamed_directory_shows_what_is_hidden_at_the_next_start() {
    let stage = Stage::new();
    stage.node.scratch.file("image/etc/app/key", "hidden");
    stage.node.scratch.file("image/opt/x/fixed", "fixed");
    let script = "busybox cat /etc/app/key; busybox ls /opt/x; echo x >/opt/x/fixed; busybox rm -f /opt/x/fixed; \
        busybox umount /etc/app/key; busybox mount -o remount,rw /opt/x; \
        busybox mv /etc/app/key /k; busybox mv /etc/app /app; busybox mv /etc /e; busybox mv /opt/x /y; busybox mv /opt /o; \
        busybox ln /etc/app/key /l; \
        for f in /k /l /app/key /e/app/key /etc/app/key; do busybox cat $f; done; echo y >/y/fixed; echo y >/o/x/fixed; echo ran";
    let mut config = stage.config(script);
    config["linux"]["maskedPaths"] = json!(["/etc/app/key", "/absent/key"]);
    config["linux"]["readonlyPaths"] = json!(["/opt/x"]);
    // The control: without the two lists, the same steps show and change the files.
    for hides in [true, true, false] {
        if !hides {
            config["linux"]["maskedPaths"] = json!([]);
            config["linux"]["readonlyPaths"] = json!([]);
        }
        let seen = stage.run(Runtime::Standard, &config);
        assert!(seen.stdout.ends_with("ran\n"), "{seen}");
        assert_eq!(seen.stdout.contains("hidden"), !hides, "{seen}");
        let fixed = fs::read_to_string(format!("{}/opt/x/fixed", stage.image));
        assert_eq!(fixed.is_ok_and(|text| text == "fixed"), hides, "{seen}");
    }
}

/// F41: a node directory that the caller names as a root is not written, nor are mounts below one.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_f_41_a_root_that_is_no_layer_is_not_written() {
    let stage = Stage::new();
    let script = "echo x >/written; echo x >/etc/written; busybox ls /data; cat /written; echo ran";
    let written = || Path::new(&stage.image).join("written").exists();
    // The control: the bundle's own root.
    assert_eq!(
        stage.run(Runtime::Standard, &stage.config(script)).ok(),
        "x\nran\n"
    );
    assert!(written());
    fs::remove_file(format!("{}/written", stage.image)).unwrap();
    let refused = |bundle: &str, config: &Value, word: &str| {
        let told = stage
            .call(Runtime::Standard, &["explain", "--bundle", bundle])
            .ok();
        assert!(told.contains("discarded") && told.contains(word), "{told}");
        let mut config = config.clone();
        config["annotations"] = json!({"dev.agentbox.filesystem.root": "engine"});
        let text = config.to_string();
        fs::write(format!("{bundle}/config.json"), text).unwrap();
        let id = format!("hostile-{}-engine", std::process::id());
        let mut command = Command::new(program());
        command.args(["--root", &stage.node.root, "run", "--bundle", bundle, &id]);
        let refused = stage.node.finish(command).failed();
        assert!(refused.contains("ephemeral"), "{refused}");
    };
    // A directory elsewhere, like that of `podman run --rootfs`.
    let config = stage.config(script);
    let bundle = stage.node.bundle("elsewhere", &config);
    let id = format!("hostile-{}-elsewhere", std::process::id());
    let run = |bundle: &str| {
        let seen = stage.call(Runtime::Standard, &["run", "--bundle", bundle, &id]);
        assert_eq!(seen.stdout, "x\nran\n", "{seen}");
    };
    run(&bundle);
    assert!(!written());
    refused(&bundle, &config, "not a layer");
    // Through a link in the bundle, and through a mount of a directory with the node's programs.
    let mut config = config.clone();
    config["root"] = json!({"path": "rootfs", "readonly": false});
    let bundle = stage.node.bundle("linked", &config);
    symlink(&stage.image, format!("{bundle}/rootfs")).unwrap();
    run(&bundle);
    assert!(!written());
    // A mount below the bundle's own root.
    let data = stage.node.scratch.dir("image/data");
    stage.node.scratch.file("outside/shown", SECRET);
    crate::command::run("mount", &["--bind", &stage.outside, &data]).ok();
    let below = stage.run(Runtime::Standard, &stage.config(script));
    let told = refused_below(&stage, script);
    let strict = {
        let (bundle, id) = stage.bundle(&stage.config(script));
        stage.call_of(program(), "strict", &["run", "--bundle", &bundle, &id])
    };
    crate::command::run("umount", &[&data]).ok();
    assert_eq!(below.stdout, "x\nran\n", "{below}");
    assert!(told.contains("mounted over at"), "{told}");
    // Without an overlay to hide it, the start is refused.
    assert!(strict.failed().contains("has a mount below it"));
    assert!(!written());
}

fn refused_below(stage: &Stage, script: &str) -> String {
    let (bundle, _) = stage.bundle(&stage.config(script));
    stage
        .call(Runtime::Standard, &["explain", "--bundle", &bundle])
        .ok()
}

/// F41: the node's programs, mounted at the bundle's root.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_f_41_the_nodes_programs_are_no_root_to_write() {
    let stage = Stage::new();
    let programs = stage.node.scratch.dir("programs");
    // An entry of the list that this node does not have otherwise.
    let entry = "/snap";
    let made = fs::create_dir(entry).is_ok();
    fs::create_dir_all(format!("{entry}/image")).unwrap();
    crate::command::run(
        "cp",
        &[
            "-a",
            &format!("{}/.", stage.image),
            &format!("{entry}/image"),
        ],
    )
    .ok();
    crate::command::run("mount", &["--bind", &format!("{entry}/image"), &programs]).ok();
    let mut config = stage.config("echo x >/written; echo ran");
    config["root"] = json!({"path": "programs", "readonly": false});
    let seen = stage.run(Runtime::Standard, &config);
    let written = Path::new(entry).join("image/written").exists();
    crate::command::run("umount", &[&programs]).ok();
    fs::remove_dir_all(format!("{entry}/image")).unwrap();
    if made {
        fs::remove_dir(entry).unwrap();
    }
    assert_eq!(seen.stdout, "ran\n", "{seen}");
    assert!(!written);
}

/// F40: `exec` in a root that its processes change, and the files that it reads there.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_f_40_exec_meets_what_the_container_makes_of_its_root() {
    let stage = Stage::new();
    let (bundle, id) = stage.bundle(&stage.whole("sleep 100"));
    let standard = |arguments: &[&str]| stage.call(Runtime::Standard, arguments);
    standard(&["run", "--detach", "--bundle", &bundle, &id]).ok();
    let script = format!(
        "cat {0}/secret; echo x >{0}/made; echo ran $HOME",
        stage.outside
    );
    for (kind, place) in [
        ("pipe", "etc/passwd"),
        ("link", "etc/passwd"),
        ("link", "etc/group"),
        ("link", "root"),
        ("dangling", "srv"),
        ("link", "etc/ld.so.preload"),
    ] {
        stage.plant(kind, place);
        for options in [
            &["--cwd", "/srv"][..],
            &["--cwd", "/root"],
            &["--user", "7:7"],
            &[],
        ] {
            let call = [&["exec"], options, &[id.as_str(), "sh", "-c", &script]].concat();
            let seen = standard(&call);
            assert!(!seen.stdout.contains(SECRET), "{seen}");
            stage.assert_outside_untouched(&seen);
        }
        let verified = standard(&["verify", &id]);
        assert_eq!(verified.code, 0, "{kind} {place}: {verified}");
        standard(&["update", "--pids-limit", "100", &id]).ok();
        stage.clear(place);
    }
    standard(&["delete", "--force", &id]).ok();
    // None of it changed the permissions of the node's directory.
    let mode = fs::metadata(&stage.outside).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}
