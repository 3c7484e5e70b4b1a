//! Hostile files in the image's /dev.

use super::*;

#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_a_dev_that_is_a_link_is_refused_before_the_node_is_touched() {
    let stage = Stage::new();
    stage.link(&stage.outside, "dev");
    for runtime in OURS {
        let seen = stage.run(runtime, &stage.config("true"));
        stage.assert_outside_untouched(&seen);
        let message = seen.failed();
        assert!(
            message.contains("/dev") && message.contains("symbolic link"),
            "{message}"
        );
    }
    // Control: runc 1.1 makes its links in the node's directory, and replaces the file named ptmx there.
    stage.run(Runtime::Runc, &stage.config("true")).ok();
    assert!(stage.look_outside().contains_key("stdin"));
}

/// CVE-2025-31133, CVE-2025-62161: files are hidden by a /dev/null that the image made.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2025_31133_a_false_dev_null_hides_nothing_and_opens_nothing() {
    let stage = Stage::new();
    stage.node.scratch.file("image/hidden", "hidden");
    for null in ["link", "file"] {
        for runtime in OURS {
            let path = format!("{}/dev/null", stage.image);
            let _ = fs::remove_file(&path);
            match null {
                "link" => stage.link(&format!("{}/secret", stage.outside), "dev/null"),
                _ => fs::write(&path, "not a device").unwrap(),
            }
            let mut config = stage.config("cat /hidden; echo changed > /hidden; true");
            drop_mounts(&mut config, "/dev");
            config["linux"]["maskedPaths"] = json!(["/hidden"]);
            let seen = stage.run(runtime, &config);
            stage.assert_outside_untouched(&seen);
            assert!(!seen.stdout.contains("hidden"), "{seen}");
            // It is refused, or the file is hidden by a device that the runtime made: never by the image's file.
            let kept = fs::read_to_string(format!("{}/hidden", stage.image)).unwrap();
            assert_eq!(kept, "hidden", "{seen}");
        }
    }
}

/// CVE-2025-52565: the console is mounted over the image's file at /dev/console.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2025_52565_a_false_console_is_not_followed() {
    let stage = Stage::new();
    stage.link(&format!("{}/secret", stage.outside), "dev/console");
    for runtime in OURS {
        let mut config = stage.config("echo typed > /dev/console; true");
        drop_mounts(&mut config, "/dev");
        config["process"]["terminal"] = json!(true);
        let seen = stage.run(runtime, &config);
        stage.assert_outside_untouched(&seen);
    }
}

/// The device rules would open some: the control has the same rules.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_f06_a_device_node_of_the_image_is_closed() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let stage = Stage::new();
    let path = format!("{}/node", stage.image);
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
    let script = "(: </dev/null) && echo own; (: </node) && echo image; true";
    for (runtime, expected) in [
        (Runtime::Runc, "own\nimage\n"),
        (Runtime::Unconfined, "own\nimage\n"),
        (Runtime::Standard, "own\n"),
    ] {
        let seen = stage.run(runtime, &stage.config(script)).ok();
        assert_eq!(seen, expected, "{runtime:?}");
    }
}
