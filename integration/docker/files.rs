//! Files: F01, F02, F04, F09 of the threat list, and a workspace that stays usable.

use std::fs;
use std::path::{Path, PathBuf};

use super::probe::{Answer, Via, Walls, all_denied, ask_each, attack, attack_if_built_in};
use super::{Docker, NO_WALLS, Policy};

/// A test's directory on the rig's host side, removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("agentbox-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// The option that binds it.
    fn bound_at(&self, target: &str) -> String {
        format!("--volume={}:{target}", self.path().display())
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// The answers of probe steps without walls and behind each policy, by the init process and by exec. All steps of one policy and way
/// in are asked in one container.
#[track_caller]
fn denied_everywhere(options: &[&str], steps: &[&[&str]], control: &str, denied: &[&str]) {
    denied_under(&Policy::ALL, options, steps, control, denied);
}

#[track_caller]
fn denied_under(
    policies: &[Policy],
    options: &[&str],
    steps: &[&[&str]],
    control: &str,
    denied: &[&str],
) {
    let docker = Docker::connect();
    for via in [Via::Init, Via::Exec] {
        let answers = ask_each(&docker, Walls::None, via, options, steps);
        for (step, Answer { word, detail }) in steps.iter().zip(answers) {
            assert_eq!(
                word, control,
                "the control of {step:?} via {via:?}: {detail}"
            );
        }
        for &policy in policies {
            let answers = ask_each(&docker, Walls::Of(policy), via, options, steps);
            for (step, Answer { word, detail }) in steps.iter().zip(answers) {
                assert!(
                    denied.contains(&word.as_str()),
                    "{policy:?} via {via:?}, {options:?}: {step:?} got {word} {detail}, not {denied:?}"
                );
            }
        }
    }
}

/// The rig's Docker has moved its data directory, like many nodes. None of it is ever mounted, except volumes.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f02_an_engines_data_is_known_where_it_was_moved() {
    let docker = Docker::connect();
    let data = docker.call(&["info", "-f", "{{.DockerRootDir}}"]).ok();
    let data = data.trim();
    assert_ne!(data, "/var/lib/docker");
    let seen = |runtime: &str, source: &str| {
        let runtime = format!("--runtime={runtime}");
        let volume = format!("--volume={source}:/x");
        let list = "ls /x 2>/dev/null || echo nothing";
        let run = docker.run(&[&runtime, &volume, "test-probe"], &["sh", "-c", list]);
        run.ok().trim().to_owned()
    };
    for part in ["network", "image", "runtimes", "volumes"] {
        let source = format!("{data}/{part}");
        // The control.
        assert_ne!(seen("runc", &source), "nothing", "{part}");
        for runtime in ["agentbox", "agentbox-permissive"] {
            assert_eq!(seen(runtime, &source), "nothing", "{part}");
        }
        let volume = format!("--volume={source}:/work");
        let options = ["--runtime=agentbox", &volume, "-w/work", "test-probe"];
        let refused = docker.run(&options, &["true"]);
        assert!(
            refused.stderr.contains("holds every container of Docker"),
            "{refused:?}"
        );
    }
    // Within a mount, all of it is hidden.
    let above = Path::new(data).parent().unwrap().display();
    let hidden = seen("agentbox", &format!("{above}"));
    assert!(hidden.lines().any(|name| name == "docker"), "{hidden}");
    let inside = format!("--volume={above}:/x");
    let options = ["--runtime=agentbox", &inside, "test-probe"];
    assert_eq!(docker.run(&options, &["ls", "/x/docker"]).ok(), "");
    let volume = docker.call(&["volume", "create"]).ok();
    let volume = volume.trim();
    let option = format!("--volume={volume}:/work");
    let options = ["--runtime=agentbox", &option, "-w/work", "test-probe"];
    let written = docker
        .run(&options, &["sh", "-c", "echo x >a && cat a"])
        .ok();
    docker.call(&["volume", "rm", volume]).ok();
    assert_eq!(written, "x\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f04_the_kernels_knobs_cannot_be_turned() {
    const DENIED: &[&str] = &["EROFS", "EACCES", "EPERM", "ENOENT"];
    all_denied(&[
        attack("write-core-pattern", DENIED),
        attack_if_built_in("write-modprobe", DENIED),
        attack("write-hostname", DENIED),
        attack("write-ip-forward", DENIED),
        attack_if_built_in("write-sysrq", DENIED),
        attack_if_built_in("write-irq", DENIED),
        attack_if_built_in("write-uevent-helper", DENIED),
        attack_if_built_in("write-kernel-profiling", DENIED),
        attack("write-swappiness", DENIED),
        attack("write-release-agent", &["refused"]),
    ]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f04_the_kernels_secrets_cannot_be_read() {
    const MASKED: &[&str] = &["empty", "EACCES", "EPERM", "ENOENT"];
    all_denied(&[
        attack_if_built_in("read-kcore", MASKED),
        attack("read-keys", MASKED),
        attack_if_built_in("read-timer-list", MASKED),
        attack_if_built_in("read-sched-debug", MASKED),
        attack_if_built_in("read-latency-stats", MASKED),
        attack_if_built_in("list-firmware", MASKED),
        attack_if_built_in("list-acpi", MASKED),
        attack_if_built_in("list-scsi", MASKED),
    ]);
}

const ABSENT: &[&str] = &["ENOENT", "EACCES", "ENXIO", "empty", "EISDIR", "ENOTDIR"];

#[test]
#[ignore = "needs the rig: hack/test"]
fn f02_an_engines_socket_is_not_there() {
    // An existing socket is not a directory.
    denied_everywhere(
        &[
            "--volume=/run/docker.sock:/var/run/docker.sock",
            "--volume=/run:/host-run",
        ],
        &[
            &["list", "/var/run/docker.sock"],
            &["list", "/host-run/docker.sock"],
        ],
        "ENOTDIR",
        &["ENOENT", "EACCES", "empty"],
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f02_the_hosts_own_directories_are_not_there() {
    let binds = [
        "--volume=/:/host",
        "--volume=/etc:/host-etc",
        "--volume=/proc:/host-proc",
        "--volume=/sys:/host-sys",
        "--volume=/dev:/host-dev",
    ];
    let steps: [&[&str]; 5] = [
        &["read", "/host/etc/passwd"],
        &["read", "/host-etc/passwd"],
        &["read", "/host-proc/1/status"],
        &["read", "/host-sys/kernel/uevent_seqnum"],
        &["list", "/host-dev/net"],
    ];
    denied_everywhere(&binds, &steps, "ok", ABSENT);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f02_credentials_inside_a_kept_mount_are_masked() {
    const SECRETS: [&str; 8] = [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".config/gcloud/credentials.db",
        ".kube/config",
        ".docker/config.json",
        ".netrc",
        ".gnupg/private-keys-v1.d/key",
        ".git-credentials",
    ];
    let home = Scratch::new("home");
    home.write("notes.txt", "not a secret");
    for secret in SECRETS {
        home.write(secret, "secret");
    }
    let bind = home.bound_at("/home/dev");
    let paths = SECRETS.map(|secret| format!("/home/dev/{secret}"));
    let steps = paths.each_ref().map(|path| ["read", path.as_str()]);
    let steps = steps.each_ref().map(<[&str; 2]>::as_slice);
    denied_everywhere(&[&bind], &steps, "ok", ABSENT);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f01_a_bind_beside_the_workspace_cannot_be_written() {
    let other = Scratch::new("other");
    let workspace = Scratch::new("beside");
    denied_under(
        &[Policy::Strict, Policy::Standard],
        &[
            &other.bound_at("/data"),
            &workspace.bound_at("/work"),
            "--workdir=/work",
            // Without it, `strict` does not choose between the two.
            "--annotation=dev.agentbox.workspace=/work",
        ],
        &[&["create-in", "/data"]],
        "ok",
        &["EROFS", "ENOENT", "EACCES"],
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f01_a_symlink_in_the_workspace_leads_nowhere() {
    let workspace = Scratch::new("link");
    workspace.write("plain", "text");
    let outside = Scratch::new("outside");
    outside.write("secret", "secret");
    std::os::unix::fs::symlink(
        outside.path().join("secret"),
        workspace.path().join("way-out"),
    )
    .unwrap();
    let docker = Docker::connect();
    let bind = workspace.bound_at("/work");
    for policy in Policy::ALL {
        for via in [Via::Init, Via::Exec] {
            let options = [bind.as_str(), "--workdir=/work"];
            let steps: [&[&str]; 2] = [&["read", "/work/plain"], &["read", "/work/way-out"]];
            let answers = ask_each(&docker, Walls::Of(policy), via, &options, &steps);
            let words = answers.iter().map(|answer| answer.word.as_str());
            assert!(
                words.eq(["ok", "ENOENT"]),
                "{policy:?} via {via:?}: {answers:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn the_workspace_is_shared_and_writable_under_every_policy() {
    let docker = Docker::connect();
    for policy in Policy::ALL {
        let workspace = Scratch::new("workspace");
        workspace.write("in.txt", "from the host\n");
        let bind = workspace.bound_at("/work");
        let mut options = policy.options();
        options.extend([bind.as_str(), "--workdir=/work", "test-probe"]);
        let seen = docker
            .run(
                &options,
                &["sh", "-c", "cat in.txt && echo from inside >out.txt"],
            )
            .ok();
        assert_eq!(seen, "from the host\n", "{policy:?}");
        let out = fs::read_to_string(workspace.path().join("out.txt")).unwrap();
        assert_eq!(out, "from inside\n", "{policy:?}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn the_root_cannot_be_written_under_strict_but_tmp_can() {
    let docker = Docker::connect();
    let directories = ["/bin", "/etc", "/usr", "/lib", "/tmp"];
    let steps = directories.map(|directory| ["create-in", directory]);
    let steps = steps.each_ref().map(<[&str; 2]>::as_slice);
    for via in [Via::Init, Via::Exec] {
        for policy in Policy::ALL {
            let answers = ask_each(&docker, Walls::Of(policy), via, &[], &steps);
            for (directory, Answer { word, .. }) in directories.iter().zip(answers) {
                let expect: &[&str] = match policy {
                    Policy::Strict if *directory != "/tmp" => &["EROFS", "EACCES"],
                    // It belongs to the container, and is removed with it.
                    _ => &["ok"],
                };
                assert!(
                    expect.contains(&word.as_str()),
                    "{policy:?} via {via:?}: {directory} {word}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f09_the_runtimes_binary_cannot_be_opened_for_writing() {
    let docker = Docker::connect();
    for policy in Policy::ALL {
        let mut options = policy.options();
        options.push("test-probe");
        // It outlives the watch: an exec into an ending container is another test's matter.
        let script = "probe with watch-runtime 4; sleep 300";
        let container = docker.start(&options, &["sh", "-c", script]);
        for _ in 0..6 {
            // A normal end, and what CVE-2019-5736 did: make the runtime execute itself.
            container.exec(&[], &["true"]).ok();
            container.exec(&[], &["/proc/self/exe", "--version"]);
        }
        let log = container.await_log("watch-runtime");
        let answer = &super::probe::parse(&log)["watch-runtime"];
        assert!(
            ["safe", "never-seen"].contains(&answer.word.as_str()),
            "{policy:?}: {} {}",
            answer.word,
            answer.detail
        );
    }
    // The control: the probe finds and opens an unprotected program.
    let control = docker.start(
        &[&NO_WALLS[..], &["test-probe"]].concat(),
        &["sh", "-c", "cp /bin/probe /tmp/victim; probe with watch-runtime 3 & while sleep 0.1; do /tmp/victim list >/dev/null; done"],
    );
    let log = control.await_log("watch-runtime");
    assert_eq!(
        super::probe::parse(&log)["watch-runtime"].word,
        "writable",
        "the control"
    );
}
