//! Destinations of mounts.

use super::*;

/// Links in the image that could lead a destination outside: absolute, with `..`, in a chain, and dangling.
const LINKS: [&str; 4] = ["absolute", "relative", "chain", "dangling"];

fn make_link(stage: &Stage, kind: &str) {
    let outside = &stage.outside;
    match kind {
        "absolute" => stage.link(outside, "vol"),
        "relative" => stage.link(&format!("{}{outside}", "../".repeat(12)), "vol"),
        "chain" => {
            stage.link(outside, "third");
            stage.link("/third", "second");
            stage.link("../second", "vol");
        }
        _ => stage.link(&format!("{outside}/absent"), "vol"),
    }
}

/// CVE-2021-30465, CVE-2024-45310: directories and files for mounts are made inside the image.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2021_30465_a_mount_lands_in_the_image_whatever_links_say() {
    let stage = Stage::new();
    let dir = stage.node.scratch.dir("source");
    let file = stage.node.scratch.file("source/file", "mounted");
    for kind in LINKS {
        make_link(&stage, kind);
        for runtime in OURS {
            for (source, typ) in [(&dir, "bind"), (&file, "bind"), (&dir, "tmpfs")] {
                let mut config =
                    stage.config("cat /vol/made/file /vol/made /vol/secret 2>/dev/null; true");
                let options = match typ {
                    "bind" => json!(["rbind", "rw"]),
                    _ => json!([]),
                };
                let place = "/vol/made";
                add_mount(
                    &mut config,
                    json!({"destination": place, "type": typ, "source": source, "options": options}),
                );
                let seen = stage.run(runtime, &config);
                stage.assert_outside_untouched(&seen);
            }
        }
    }
}

/// The control: the same path on the node, without a runtime's checks.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2021_30465_control_a_naive_path_leads_outside() {
    let stage = Stage::new();
    make_link(&stage, "chain");
    // The chain's second link is absolute, so it leads outside only from the node's root.
    stage.node.scratch.dir("root-of-the-node");
    symlink(&stage.outside, format!("{}/direct", stage.image)).unwrap();
    fs::create_dir_all(format!("{}/direct/made", stage.image)).unwrap();
    assert!(stage.look_outside().contains_key("made"));
}

/// CVE-2019-19921, CVE-2023-27561, CVE-2023-28642, CVE-2025-54867: /proc or /sys is a link in the image.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2023_27561_proc_or_sys_that_is_a_link_is_refused() {
    for name in ["proc", "sys"] {
        let stage = Stage::new();
        for target in [stage.outside.clone(), "/tmp".to_owned()] {
            stage.link(&target, name);
            for runtime in OURS {
                let mut config = stage.config("cat /proc/version; true");
                if name == "proc" {
                    drop_mounts(&mut config, "/sys");
                }
                let seen = stage.run(runtime, &config);
                stage.assert_outside_untouched(&seen);
                seen.failed();
            }
            stage.run(Runtime::Runc, &stage.config("true")).failed();
        }
    }
}

/// CVE-2019-16884, CVE-2025-52881, CVE-2025-62596: a volume over /proc, where labels and settings are written.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2019_16884_a_volume_does_not_replace_proc() {
    let stage = Stage::new();
    let false_proc = stage.node.scratch.dir("false");
    stage.node.scratch.file("false/self/attr/exec", "");
    for place in [
        "/proc",
        "/proc/self",
        "/proc/sys",
        "/proc/self/attr",
        "/link",
        "/link/sys",
    ] {
        stage.link("/proc", "link");
        let mut config = stage.config("grep -c ' /proc proc ' /proc/mounts");
        add_mount(
            &mut config,
            json!({"destination": place, "type": "bind", "source": false_proc, "options": ["rbind"]}),
        );
        let message = stage.run(Runtime::Unconfined, &config).failed();
        assert!(message.contains("/proc"), "{place}: {message}");
        // Under a policy such a mount is left out, like similar ones.
        let seen = stage.run(Runtime::Standard, &config).ok();
        assert_eq!(seen.trim(), "1", "{place}");
        if place == "/proc/sys" {
            stage.run(Runtime::Runc, &config).failed();
        }
    }
}

/// A root file system that is the node's own, under any name, is refused under a policy.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_the_nodes_own_directories_are_no_image() {
    let stage = Stage::new();
    let alias = stage.node.scratch.dir("alias");
    run("mount", &["--bind", "/etc", &alias]).ok();
    let link = stage.node.scratch.path("link");
    symlink("/", &link).unwrap();
    for root in ["/", "/etc", "/etc/agentbox", "/proc/1/root", &alias, &link] {
        let mut config = stage.config("cat /etc/shadow /shadow");
        config["root"]["path"] = json!(root);
        let message = stage.run(Runtime::Standard, &config).failed();
        assert!(message.contains("use an image"), "{root}: {message}");
    }
    run("umount", &[&alias]).ok();
    let mut config = stage.config("echo runs");
    config["root"]["path"] = json!(stage.image);
    assert_eq!(stage.run(Runtime::Standard, &config).ok(), "runs\n");
}
