//! Resources that a process of the container could get.

use super::*;

/// CVE-2024-21626: a working directory through one of the runtime's own descriptors.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2024_21626_no_descriptor_of_the_runtime_is_a_working_directory() {
    let stage = Stage::new();
    let script = format!(
        "for up in . .. ../.. ../../..; do cat $up{}/secret; done 2>/dev/null; true",
        stage.outside
    );
    for runtime in OURS {
        for number in 3..24 {
            for process in ["self", "thread-self", "1"] {
                let mut config = stage.config(&script);
                config["process"]["cwd"] = json!(format!("/proc/{process}/fd/{number}"));
                stage.run(runtime, &config);
            }
        }
        let (bundle, id) = stage.bundle(&stage.config("sleep 100"));
        stage
            .call(runtime, &["run", "--detach", "--bundle", &bundle, &id])
            .ok();
        for number in 3..24 {
            let cwd = format!("/proc/self/fd/{number}");
            let seen = stage.call(runtime, &["exec", "--cwd", &cwd, &id, "sh", "-c", &script]);
            assert!(!seen.stdout.contains(SECRET), "{seen}");
        }
        stage.call(runtime, &["delete", "--force", &id]).ok();
    }
}

/// CVE-2024-21626 again (attack 3): a program, or a script's interpreter, through a descriptor that execve(2) has not yet
/// closed. The runtime holds directories of the node while it makes a container, those of its mounts among them.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2024_21626_no_descriptor_of_the_runtime_leads_to_a_program() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    // A static program of the node, which no image has.
    let outside = format!("{}/busybox-of-the-node", stage.outside);
    fs::copy("/bin/busybox", &outside).unwrap();
    let tools = |number: i32| {
        let way = format!("/proc/self/fd/{number}/../../../../../../../../../..{outside}");
        let (link, script) = (
            format!("{}/bin/busybox-link", stage.image),
            format!("{}/bin/script", stage.image),
        );
        fs::remove_file(&link).ok();
        symlink(&way, &link).unwrap();
        fs::write(&script, format!("#!{way} echo\n")).unwrap();
        fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    };
    // The interpreter of "script" prints its name.
    let programs = [
        vec!["/bin/busybox-link", "echo", "escaped"],
        vec!["/bin/script"],
    ];
    let escaped = |seen: &Finished| {
        assert!(
            !seen.stdout.contains("escaped") && !seen.stdout.contains("/bin/script"),
            "{seen}"
        );
    };
    for runtime in OURS {
        let mut config = stage.config("sleep 100");
        config["process"]["cwd"] = json!("/");
        for name in ["one", "two"] {
            let source = stage.node.scratch.dir(&format!("volume-{name}"));
            add_mount(
                &mut config,
                json!({"destination": format!("/{name}"), "type": "bind", "source": source, "options": ["rbind", "ro"]}),
            );
        }
        let (bundle, id) = stage.bundle(&config);
        let begun = ["run", "--detach", "--bundle", &bundle, &id];
        stage.call(runtime, &begun).ok();
        for number in 3..40 {
            tools(number);
            for program in &programs {
                config["process"]["args"] = json!(program);
                escaped(&stage.run(runtime, &config));
                let words = [&["exec", &*id][..], program].concat();
                escaped(&stage.call(runtime, &words));
            }
        }
        stage.call(runtime, &["delete", "--force", &id]).ok();
    }
    // The control: a directory that the caller hands over leads there, without a policy.
    tools(3);
    let mut config = stage.config("");
    config["process"]["args"] = json!(programs[0]);
    let (bundle, id) = stage.bundle(&config);
    let script = format!(
        "exec 3</srv; exec {} --root {} --policy unconfined run --preserve-fds 1 --bundle {bundle} {id}",
        program(),
        stage.node.root
    );
    let seen = crate::command::run("sh", &["-c", &script]);
    assert!(seen.stdout.contains("escaped"), "{seen}");
}

/// The same in a repository that a user works in with `wrap`, whose descriptors are those of more mounts.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2024_21626_no_descriptor_of_wrap_leads_to_a_program() {
    const PROJECT: &str = r#"
set -eu
mkdir ~/outside
cp /bin/busybox ~/outside/busybox-of-the-node
cd src/project
link() { ln -sfn "/proc/self/fd/$1/../../../../../../../../../..$HOME/outside/busybox-of-the-node" busybox-link; }
"#;
    const TRY: &str = r#"
for number in $(seq 3 40); do
    link $number
    $WRAP ./busybox-link echo escaped 2>/dev/null || true
done
"#;
    let _docker = crate::docker::Docker::connect();
    for walls in ["namespaces", "landlock"] {
        let person = crate::wrap::account::Account::new();
        let wrap = format!("WRAP='{} wrap --quiet --walls {walls} --'", program());
        let seen = person.tries(&format!("{wrap}\n{PROJECT}{TRY}"));
        assert_eq!(
            (seen.code, seen.stdout.as_str()),
            (0, ""),
            "{walls}: {seen}"
        );
        // The controls: the way leads there where a descriptor is inherited, and `wrap` runs what a link names.
        let control = format!(
            "cd src/project; {wrap}; exec 9</\nln -sfn /proc/self/fd/9/../..$HOME/outside/busybox-of-the-node busybox-link; \
             ./busybox-link echo escaped; ln -sfn /bin/busybox busybox-link; $WRAP ./busybox-link echo ran"
        );
        let seen = person.tries(&control).ok();
        assert_eq!(seen, "escaped\nran\n", "{walls}");
    }
}

/// CVE-2022-29162, CVE-2025-27612: capabilities from `exec` are not inheritable.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2022_29162_exec_gives_no_inheritable_capabilities() {
    let stage = Stage::new();
    for runtime in OURS {
        let mut config = stage.config("sleep 100");
        let chown = ["CAP_CHOWN"];
        config["process"]["capabilities"] =
            json!({"bounding": chown, "effective": chown, "permitted": chown});
        let (bundle, id) = stage.bundle(&config);
        stage
            .call(runtime, &["run", "--detach", "--bundle", &bundle, &id])
            .ok();
        for cap in [None, Some("CAP_CHOWN"), Some("CAP_NET_ADMIN")] {
            let mut arguments = vec!["exec"];
            arguments.extend(cap.iter().flat_map(|cap| ["--cap", cap]));
            arguments.extend([id.as_str(), "grep", "^Cap", "/proc/self/status"]);
            let seen = stage.call(runtime, &arguments).ok();
            for set in ["CapInh", "CapAmb"] {
                assert!(
                    seen.contains(&format!("{set}:\t0000000000000000")),
                    "{seen}"
                );
            }
            // CAP_CHOWN is bit 0, CAP_NET_ADMIN bit 12. Capabilities that libcontainer itself needs are gone.
            let added = runtime == Runtime::Unconfined && cap == Some("CAP_NET_ADMIN");
            let sets = if added { "1001" } else { "0001" };
            for set in ["CapPrm", "CapEff", "CapBnd"] {
                assert!(
                    seen.contains(&format!("{set}:\t000000000000{sets}")),
                    "{seen}"
                );
            }
        }
        stage.call(runtime, &["delete", "--force", &id]).ok();
    }
}

/// Contradictory sets are refused, and the message names the capability.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_a_capability_that_cannot_be_effective_is_named() {
    let stage = Stage::new();
    let mut config = stage.config("true");
    config["process"]["capabilities"] =
        json!({"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": []});
    for runtime in OURS {
        let message = stage.run(runtime, &config).failed();
        assert!(
            message.contains("CAP_KILL") && message.contains("permitted"),
            "{message}"
        );
    }
}

/// CVE-2019-5736: the runtime's file cannot be written through a process that starts as the runtime.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2019_5736_the_runtimes_file_is_not_written() {
    let stage = Stage::new();
    let installed = stage.node.scratch.path("agentbox");
    fs::copy(program(), &installed).unwrap();
    let before = fs::read(&installed).unwrap();
    // Executing it executes /proc/self/exe, which is then the runtime, within reach of the script below.
    let trap = stage
        .node
        .scratch
        .file("image/bin/trap", "#!/proc/self/exe\n");
    fs::set_permissions(&trap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = "while true; do for p in /proc/[0-9]*; do echo x > $p/exe; done; done 2>/dev/null";
    for policy in ["unconfined", "standard"] {
        let (bundle, id) = stage.bundle(&stage.config(script));
        let call = |arguments: &[&str]| stage.call_of(&installed, policy, arguments);
        call(&["run", "--detach", "--bundle", &bundle, &id]).ok();
        for _ in 0..10 {
            call(&["exec", &id, "trap"]);
            call(&["exec", &id, "true"]);
        }
        call(&["delete", "--force", &id]).ok();
        assert!(
            fs::read(&installed).unwrap() == before,
            "{policy}: the file was written"
        );
    }
}

/// CVE-2019-5736, on a node whose programs are on a read-only mount that is made writable for an upgrade. A process
/// that kept a descriptor of the runtime's file could write to it then.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_cve_2019_5736_a_read_only_mount_of_the_node_is_no_seal() {
    struct Mounted(String);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").args(["-l", &self.0]).status();
        }
    }
    let stage = Stage::new();
    let scratch = &stage.node.scratch;
    // A read-only directory, and a read-only file.
    for place in ["programs", "programs/agentbox"] {
        let programs = scratch.dir("programs");
        let installed = format!("{programs}/agentbox");
        fs::copy(program(), &installed).unwrap();
        let mounted = Mounted(scratch.path(place));
        run("mount", &["--bind", &mounted.0, &mounted.0]).ok();
        run("mount", &["-o", "remount,bind,ro", &mounted.0]).ok();
        for policy in ["unconfined", "standard"] {
            let (bundle, id) = stage.bundle(&stage.config("sleep 100"));
            let call = |arguments: &[&str]| stage.call_of(&installed, policy, arguments);
            call(&["create", "--bundle", &bundle, &id]).ok();
            let state: Value = serde_json::from_str(&call(&["state", &id]).ok()).unwrap();
            let exe = format!("/proc/{}/exe", state["pid"]);
            run("mount", &["-o", "remount,bind,rw", &mounted.0]).ok();
            let is_read_only = |path: &str| {
                let flags = rustix::fs::statvfs(path).unwrap().f_flag;
                flags.contains(rustix::fs::StatVfsMountFlags::RDONLY)
            };
            assert!(
                !is_read_only(&installed),
                "the control: the node's is writable"
            );
            assert!(is_read_only(&exe), "{policy}, {place}");
            run("mount", &["-o", "remount,bind,ro", &mounted.0]).ok();
            call(&["delete", "--force", &id]).ok();
        }
    }
}
