//! An unmodified image under `standard`: the writable places, their location, their bounds, and
//! the leftovers.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::direct::Node;
use crate::docker::Docker;

const IMAGE: &str = "test-workloads";

/// Writes are discarded.
const EPHEMERAL: &str = "--annotation=dev.agentbox.filesystem.root=ephemeral";

/// Where an image's programs write, as root and as the image's user.
#[test]
#[ignore = "needs the rig: hack/test"]
fn an_image_writes_to_its_usual_places() {
    let docker = Docker::connect();
    let places =
        "/usr/local/bin/x /opt/x /srv/x /run/x.pid /var/run/y.pid /etc/x /root/x /home/dev/x /x";
    let script = format!(
        "for f in {places}; do echo text >$f && cat $f || echo FAILED $f; done; ls -l /dev/null"
    );
    let seen = docker
        .run(&["--runtime=agentbox", IMAGE], &["sh", "-c", &script])
        .ok();
    assert_eq!(seen.matches("text\n").count(), 9, "{seen}");
    // The image's user, in its home directory and in its own directory of the image.
    let options = ["--runtime=agentbox", "--user=dev", "--workdir=/work", IMAGE];
    let script = "touch /home/dev/x /work/x && echo written; touch /usr/x 2>&1 || echo refused";
    let seen = docker.run(&options, &["sh", "-c", script]).ok();
    assert!(
        seen.contains("written\n") && seen.contains("refused\n"),
        "{seen}"
    );
    // Another user, by exec.
    let container = docker.start(&["--runtime=agentbox", IMAGE], &["sleep", "60"]);
    let exec = [
        "exec",
        "--user=dev",
        &container.name,
        "mkdir",
        "/home/dev/.vscode-server",
    ];
    docker.call(&exec).ok();
    // All of it is in the layer of the container that the engine keeps.
    let diff = docker.call(&["diff", &container.name]).ok();
    assert!(diff.contains("vscode"), "{diff}");
}

/// A working directory that only the caller's options create, below an initially empty /tmp.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_working_directory_below_tmp_is_created() {
    let docker = Docker::connect();
    for runtime in ["agentbox", "agentbox-strict"] {
        let runtime = format!("--runtime={runtime}");
        let options = [runtime.as_str(), "--workdir=/tmp/p/q", IMAGE];
        assert_eq!(
            docker.run(&options, &["sh", "-c", "touch x && pwd"]).ok(),
            "/tmp/p/q\n"
        );
    }
}

/// Settings can be saved, but programs saved there cannot run.
#[test]
#[ignore = "needs the rig: hack/test"]
fn strict_has_an_empty_home_of_its_own() {
    let docker = Docker::connect();
    let script = "mkdir -p $HOME/.config/agent && echo text >$HOME/.config/agent/settings && ls -A $HOME; \
        cp /bin/true $HOME/program; $HOME/program 2>/dev/null || echo does not run; touch /usr/x 2>/dev/null || echo read-only";
    let seen = docker
        .run(&["--runtime=agentbox-strict", IMAGE], &["sh", "-c", script])
        .ok();
    assert_eq!(seen, ".config\ndoes not run\nread-only\n");
}

/// More than the container's memory without being killed, but no more than the policy's bound.
#[test]
#[ignore = "needs the rig: hack/test"]
fn scratch_is_no_memory_and_has_an_end() {
    let docker = Docker::connect();
    let write = |at: &str| format!("dd if=/dev/zero of={at}/big bs=1M count=192 2>&1 | tail -1");
    for at in ["/tmp", "/root", "/usr"] {
        let options = ["--runtime=agentbox", EPHEMERAL, "--memory=64m", IMAGE];
        let seen = docker.run(&options, &["sh", "-c", &write(at)]).ok();
        assert!(seen.contains("201326592 bytes"), "{at}: {seen}");
    }
    let bound = "--annotation=dev.agentbox.filesystem.scratch=32MiB";
    for at in ["/tmp", "/root"] {
        let options = ["--runtime=agentbox", EPHEMERAL, bound, IMAGE];
        let script = format!("{}; df -m {at} | tail -1", write(at));
        let seen = docker.run(&options, &["sh", "-c", &script]).ok();
        assert!(!seen.contains("201326592 bytes"), "{at}: {seen}");
    }
    // As many files as allowed (inode filling).
    let script = "cd /tmp; seq 4000 | xargs touch 2>/dev/null; ls | wc -l";
    let seen = docker
        .run(
            &["--runtime=agentbox", EPHEMERAL, bound, IMAGE],
            &["sh", "-c", script],
        )
        .ok();
    let files: usize = seen.trim().parse().unwrap();
    assert!((1500..3000).contains(&files), "{files}");
}

/// On request it is in memory, and `explain` says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn memory_is_a_choice() {
    let node = Node::new();
    for (on, expect) in [
        ("memory", "in memory"),
        ("auto", "on disk"),
        ("disk", "on disk"),
    ] {
        let mut config = node.config(&["sh", "-c", "df /tmp | tail -1"]);
        config["annotations"] = serde_json::json!({"dev.agentbox.filesystem.scratch-on": on});
        let bundle = node.bundle(&format!("bundle-{on}"), &config);
        let told = node.call(&["explain", "--bundle", &bundle]).ok();
        assert!(told.contains(expect), "{on}: {told}");
        let id = format!("scratch-{on}-{}", std::process::id());
        let seen = node.call(&["run", "--bundle", &bundle, &id]).ok();
        assert_eq!(
            seen.starts_with("/dev/loop"),
            on != "memory",
            "{on}: {seen}"
        );
    }
}

/// It is not visible on the node while it runs, and nothing is left after everything is killed.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f08_a_disk_goes_with_the_container_however_that_ends() {
    let docker = Docker::alone();
    let devices = || {
        let all = fs::read_dir("/sys/block").unwrap().flatten();
        let backed =
            |name: &str| fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        let ours = all.filter_map(|e| backed(e.file_name().to_str()?).ok());
        // Other rigs share the machine's devices.
        ours.filter(|file| file.contains("/agentbox/scratch/"))
            .count()
    };
    let mounts = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table
            .lines()
            .filter(|l| l.contains(" ext4 /dev/loop"))
            .count()
    };
    let before = mounts();
    let container = docker.start(
        &["--runtime=agentbox", EPHEMERAL, IMAGE],
        &[
            "sh",
            "-c",
            "dd if=/dev/zero of=/tmp/x bs=1M count=8; sleep 60",
        ],
    );
    assert_eq!(mounts(), before);
    assert!(devices() > 0);
    let pid = container.inspect("{{.State.Pid}}");
    let pid: i32 = pid.trim().parse().unwrap();
    // The device is only in the container's own mounts.
    let inside = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let line = inside
        .lines()
        .find(|l| l.contains(" ext4 /dev/loop"))
        .unwrap();
    let device = line.split(" - ext4 /dev/").nth(1).unwrap();
    let device = device.split(' ').next().unwrap().to_owned();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let backing = format!("/sys/block/{device}/loop/backing_file");
    let start = Instant::now();
    // No other container may take the device in the meantime: this test has the rig to itself.
    let gone = loop {
        if !Path::new(&backing).exists() {
            break true;
        }
        if start.elapsed() > Duration::from_secs(30) {
            break false;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(gone, "{device} is still there");
}
