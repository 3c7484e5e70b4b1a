//! Mounts, masked and read-only paths.

use std::fs;

use serde_json::json;

use super::*;

/// The mounts below /mnt: source, place, options.
const MOUNTS: &str = "grep ' /mnt' /proc/self/mountinfo | cut -d' ' -f4- | sed -E 's/:[0-9]+//g'";

fn bound(options: &'static [&'static str]) -> String {
    same(|t| {
        let source = HostMount::new(&t.scratch.path("source"), "--make-rshared");
        let below = HostMount::new(&t.scratch.path("source/below"), "--make-shared");
        mount(t, "/mnt", &source.0, "bind", options);
        let text = outcome(t, MOUNTS);
        drop(below);
        text
    })
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn propagation_is_as_requested() {
    for (options, expect) in [
        (&["rbind"][..], "master"),
        (&["rbind", "rprivate"], "relatime -"),
        (&["rbind", "private"], "relatime -"),
        (&["rbind", "rshared"], "shared master"),
        (&["rbind", "shared"], "shared master"),
        (&["rbind", "rslave"], "master"),
        (&["bind", "unbindable"], "unbindable"),
        (&["rbind", "runbindable"], "unbindable"),
        (&["bind", "private", "ro"], "ro,relatime -"),
    ] {
        let text = bound(options);
        assert!(text.contains(expect), "{options:?}: {text}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn attributes_are_as_requested() {
    for (options, expect) in [
        (&["rbind", "nosymfollow"][..], "nosymfollow"),
        (&["rbind", "rro"], "/below ro,"),
        (
            &["bind", "nosuid", "nodev", "noexec"],
            "nosuid,nodev,noexec",
        ),
    ] {
        let text = bound(options);
        assert!(text.contains(expect), "{options:?}: {text}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_tmpfs_begins_with_what_it_covers_where_it_is_asked_to() {
    let text = same(|t| {
        let root = own_root(t);
        fs::create_dir_all(format!("{root}/etc/sub")).unwrap();
        fs::write(format!("{root}/etc/sub/file"), "content\n").unwrap();
        run("chown", &["5:6", &format!("{root}/etc/sub/file")]).ok();
        mount(t, "/etc", "tmpfs", "tmpfs", &["tmpcopyup", "mode=755"]);
        outcome(
            t,
            "cat /etc/sub/file; stat -c '%a %u %g %F' /etc /etc/sub/file; \
             echo new >/etc/new && grep -c ' /etc tmpfs ' /proc/mounts",
        )
    });
    assert_eq!(
        text,
        "content\n755 0 0 directory\n644 5 6 regular file\n1\n"
    );
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_tmpfs_has_the_mode_of_the_directory_that_it_covers() {
    let text = same(|t| {
        let root = own_root(t);
        fs::create_dir_all(format!("{root}/mnt/a")).unwrap();
        run("chmod", &["0750", &format!("{root}/mnt/a")]).ok();
        mount(t, "/mnt/a", "tmpfs", "tmpfs", &[]);
        mount(t, "/mnt/new", "tmpfs", "tmpfs", &["sync", "dirsync"]);
        outcome(t, &format!("stat -c %a /mnt/a; {MOUNTS} | grep new"))
    });
    assert!(text.starts_with("750\n"), "{text}");
    assert!(text.contains("rw,sync,dirsync"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn destinations_are_followed_within_the_image() {
    let text = same(|t| {
        let root = own_root(t);
        for (link, target) in [
            ("etc/link", "../var/target"),
            ("etc/out", "/../../../abs"),
            ("etc/deep", "nowhere/deep"),
        ] {
            std::os::unix::fs::symlink(target, format!("{root}/{link}")).unwrap();
        }
        let file = t.scratch.file("file", "hello\n");
        mount(t, "/new/dir/file", &file, "bind", &["bind"]);
        mount(t, "/etc/link", &file, "bind", &["bind"]);
        mount(t, "/etc/out", &file, "bind", &["bind"]);
        mount(t, "/etc/deep/x/y", "tmpfs", "tmpfs", &[]);
        mount(t, "/a/../b", "tmpfs", "tmpfs", &[]);
        outcome(
            t,
            "cat /new/dir/file /var/target /abs; cut -d' ' -f5 /proc/self/mountinfo | grep -E '^/(etc|b)'",
        )
    });
    assert_eq!(text, "hello\nhello\nhello\n/etc/nowhere/deep/x/y\n/b\n");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn the_hosts_dev_can_be_the_containers() {
    let text = same(|t| {
        t.config["linux"]["resources"]["devices"] = json!([
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "c", "major": 10, "minor": 229, "access": "w" },
        ]);
        mount(t, "/dev", "/dev", "bind", &["rbind", "rw"]);
        outcome(
            t,
            "[ -c /dev/net/tun ] && echo there; : >/dev/fuse && echo open; head -c0 </dev/fuse",
        )
    });
    assert!(text.starts_with("there\nopen\n"), "{text}");
    assert!(text.contains("not permitted"), "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn a_read_only_path_keeps_its_other_attributes() {
    let text = same(|t| {
        let root = own_root(t);
        fs::create_dir(format!("{root}/closed")).unwrap();
        t.config["linux"]["readonlyPaths"] = json!(["/mnt", "/bin", "/missing"]);
        t.config["linux"]["maskedPaths"] = json!(["/etc/passwd", "/closed", "/missing"]);
        outcome(
            t,
            &format!("{MOUNTS}; echo runs; touch /bin/x; wc -c </etc/passwd; touch /closed/x"),
        )
    });
    assert!(text.contains("\nruns\n0\n"), "{text}");
    assert_eq!(text.matches("Read-only file system").count(), 2, "{text}");
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn no_mount_covers_proc() {
    for destination in ["/proc", "/proc/sys/kernel/hostname", "/proc/self"] {
        let text = same(|t| {
            let file = t.scratch.file("file", "");
            let (kind, options) = match destination {
                "/proc" => ("tmpfs", &[][..]),
                _ => ("bind", &["bind"][..]),
            };
            mount(t, destination, &file, kind, options);
            outcome(t, "echo it ran")
        });
        assert_ne!(text, "it ran\n", "{destination}");
    }
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn ids_of_a_bind_mount_are_mapped() {
    let case = |own: bool| {
        on(Runtime::Unconfined, |t| {
            // The rig's root is overlayfs, which cannot map ids.
            let source = HostMount::new(&t.scratch.path("source"), "--make-private");
            fs::write(format!("{}/file", source.0), "").unwrap();
            run("chown", &["5:6", &format!("{}/file", source.0)]).ok();
            user_namespace(t, &[(0, 100_000, 65536)]);
            mount(t, "/mnt", &source.0, "bind", &["bind", "idmap"]);
            if own {
                let maps = json!([{ "containerID": 0, "hostID": 100_010, "size": 1000 }]);
                let mount = t.config["mounts"].as_array_mut().unwrap();
                let last = mount.last_mut().unwrap();
                last["uidMappings"] = maps.clone();
                last["gidMappings"] = maps;
            }
            outcome(
                t,
                "stat -c %u:%g /mnt/file; touch /mnt/new && stat -c %u:%g /mnt/new",
            ) + &run("stat", &["-c", "%u:%g", &format!("{}/new", source.0)]).stdout
        })
    };
    assert_eq!(case(false), "5:6\n0:0\n0:0\n");
    // Such a mount has no id for the container's root.
    assert!(case(true).starts_with("15:16\n"), "{}", case(true));
}
