//! Hostile user databases in the image.

use super::*;
use std::time::{Duration, Instant};

/// A library that prints a line when any program loads it.
const LIBRARY: &str = "
#include <unistd.h>
__attribute__((constructor)) static void loaded(void) { write(1, \"LOADED\\n\", 7); }
";

/// A static program that does what libcontainer does without HOME.
const NAIVE: &str = "
#include <pwd.h>
#include <unistd.h>
int main(int count, char **words) { chroot(words[1]); chdir(\"/\"); getpwuid(7); return 0; }
";

fn compile(stage: &Stage, name: &str, source: &str, options: &[&str]) -> String {
    let input = stage.node.scratch.file(&format!("{name}.c"), source);
    let output = stage.node.scratch.path(name);
    crate::command::run("gcc", &[&["-w", "-o", &output, &input], options].concat()).ok();
    output
}

/// The image's nsswitch.conf names a library, which glibc loads into any program that looks up a user: the runtime,
/// while it still has its capabilities (as in CVE-2019-14271).
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_no_library_of_the_image_is_loaded_by_the_runtime() {
    let stage = Stage::new();
    let library = compile(&stage, "libnss_evil.so.2", LIBRARY, &["-shared", "-fPIC"]);
    let naive = compile(&stage, "naive", NAIVE, &["-static"]);
    // With the node's C library, as in an image of the same Debian.
    let libraries = "image/lib/x86_64-linux-gnu";
    stage.node.scratch.dir(libraries);
    stage.node.scratch.dir("image/lib64");
    let here = |name: &str| stage.node.scratch.path(&format!("{libraries}/{name}"));
    fs::copy(library, here("libnss_evil.so.2")).unwrap();
    fs::copy("/lib/x86_64-linux-gnu/libc.so.6", here("libc.so.6")).unwrap();
    for loader in [
        here("ld-linux-x86-64.so.2"),
        stage.node.scratch.path("image/lib64/ld-linux-x86-64.so.2"),
    ] {
        fs::copy("/lib64/ld-linux-x86-64.so.2", loader).unwrap();
    }
    stage
        .node
        .scratch
        .file("image/etc/nsswitch.conf", "passwd: evil\n");
    let control = crate::command::run(&naive, &[&stage.image]).ok();
    assert!(
        control.contains("LOADED"),
        "the trap does not work: {control}"
    );

    for runtime in OURS {
        for env in [
            json!(["PATH=/bin"]),
            json!(["PATH=/bin", "HOME=/x", "HOME="]),
            json!(["PATH=/bin", "HOME="]),
        ] {
            let mut config = stage.config("echo HOME is $HOME");
            config["process"]["env"] = env;
            let seen = stage.run(runtime, &config).ok();
            assert!(
                !seen.contains("LOADED") && seen.contains("HOME is /"),
                "{seen}"
            );
        }
        let mut config = stage.config("sleep 100");
        config["process"]["env"] = json!(["PATH=/bin"]);
        let (bundle, id) = stage.bundle(&config);
        stage
            .call(runtime, &["run", "--detach", "--bundle", &bundle, &id])
            .ok();
        let seen = stage
            .call(
                runtime,
                &["exec", "--user", "7", &id, "sh", "-c", "echo HOME is $HOME"],
            )
            .ok();
        assert_eq!(seen, "HOME is /\n");
        stage.call(runtime, &["delete", "--force", &id]).ok();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_a_home_comes_from_the_users_line() {
    let stage = Stage::new();
    stage.node.scratch.file(
        "image/etc/passwd",
        "root:x:0:0::/root:\nme:x:7:7::/home/me:\n",
    );
    for runtime in [Runtime::Runc, Runtime::Unconfined, Runtime::Standard] {
        for (uid, home) in [(0, "/root"), (7, "/home/me"), (8, "/")] {
            let mut config = stage.config("echo $HOME");
            config["process"]["env"] = json!(["PATH=/bin"]);
            config["process"]["user"] = json!({"uid": uid, "gid": uid});
            assert_eq!(stage.run(runtime, &config).ok().trim(), home, "{runtime:?}");
        }
    }
}

/// A user list that is a pipe, endless, or another user's file.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_no_list_of_users_stops_the_runtime_or_leads_outside() {
    let stage = Stage::new();
    let path = format!("{}/etc/passwd", stage.image);
    let line = format!("root:x:0:0::/{SECRET}:\n");
    stage.node.scratch.file("outside-passwd", &line);
    for kind in ["pipe", "long", "link", "loop", "directory", "device"] {
        match kind {
            "pipe" => rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RUSR,
                0,
            )
            .unwrap(),
            "long" => fs::write(&path, "x".repeat(64 << 20)).unwrap(),
            "link" => stage.link(&stage.node.scratch.path("outside-passwd"), "etc/passwd"),
            "loop" => stage.link("passwd", "etc/passwd"),
            "device" => stage.link("/dev/zero", "etc/passwd"),
            _ => fs::create_dir(&path).unwrap(),
        }
        for runtime in OURS {
            let mut config = stage.config("echo $HOME");
            config["process"]["env"] = json!(["PATH=/bin"]);
            let start = Instant::now();
            let seen = stage.run(runtime, &config).ok();
            assert_eq!(seen.trim(), "/", "{kind}");
            assert!(start.elapsed() < Duration::from_secs(45), "{kind}");
        }
        if path_is_dir(&path) {
            fs::remove_dir(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
    }
}

fn path_is_dir(path: &str) -> bool {
    Path::new(path).is_dir() && !Path::new(path).is_symlink()
}
