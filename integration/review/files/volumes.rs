//! H2: a volume's name gives access to nothing of the node. A volume with an anonymous one's name may be another
//! container's.

use std::fs;

use serde_json::json;

use super::bind;
use crate::command::run as call;
use crate::direct::{Node, Scratch};
use crate::docker::{Docker, Policy};

const IMAGE: &str = "test-musl";

/// A name like an engine's, unique to this test.
fn name(of: &str) -> String {
    let own = format!("{:08x}{of}", std::process::id());
    let digits = own.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    format!("{digits:0<64}")
}

const WRITE: &str = "cat /data/f && echo ruined >/data/f && echo new >/data/new && cat /data/f";

/// Written without walls (the control). Under standard, only the container's own copy is written.
#[track_caller]
fn is_private(docker: &Docker, option: &str, on_the_node: &str) {
    let read = || fs::read_to_string(format!("{on_the_node}/f")).unwrap();
    let new = format!("{on_the_node}/new");
    let mut options = Policy::Standard.options();
    options.push(option);
    for round in 0..2 {
        let seen = docker.run(&options, &[IMAGE, "sh", "-c", WRITE]).ok();
        assert_eq!(seen, "precious\nruined\n", "{option} {round}");
        assert_eq!(read(), "precious\n", "{option} {round}");
        assert!(!fs::exists(&new).unwrap(), "{option} {round}");
    }
    let control = docker.run(&["--runtime=runc", option], &[IMAGE, "sh", "-c", WRITE]);
    assert_eq!(control.ok(), "precious\nruined\n", "{option}");
    assert_eq!(read(), "ruined\n", "the control of {option}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn another_containers_volume_is_not_written() {
    let docker = Docker::connect();
    let script = "echo precious >/data/f; echo ready; exec sleep 600";
    let db = docker.start(
        &["--runtime=runc", "-v", "/data"],
        &[IMAGE, "sh", "-c", script],
    );
    db.await_log("ready");
    let source = db.inspect("{{(index .Mounts 0).Source}}");
    assert!(source.ends_with("/_data"), "{source}");
    is_private(&docker, &format!("--volumes-from={}", db.name), &source);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_volume_or_a_directory_that_is_called_so_is_not_written() {
    let docker = Docker::connect();
    let (volume, scratch) = (name("volume"), Scratch::new());
    docker.call(&["volume", "create", &volume]).ok();
    let inspect = ["volume", "inspect", "-f", "{{.Mountpoint}}", &volume];
    let place = docker.call(&inspect).ok();
    fs::write(format!("{}/f", place.trim()), "precious\n").unwrap();
    is_private(&docker, &format!("-v={volume}:/data"), place.trim());
    docker.call(&["volume", "rm", &volume]).ok();
    let place = scratch.dir(&format!("volumes/{}/_data", name("bind")));
    fs::write(format!("{place}/f"), "precious\n").unwrap();
    is_private(&docker, &format!("-v={place}:/data"), &place);
}

/// The volume belongs to the container under any root, and the caller's other options apply.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_images_own_volume_is_scratch_with_its_bound() {
    let docker = Docker::connect();
    let script = "cd /data && echo '#!/bin/sh' >run && chmod 700 run && ./run && mkdir -p a/b && mv run a/b/ && ls a/b";
    for more in [&["--read-only"][..], &["--user=1000"], &[]] {
        let mut options = Policy::Standard.options();
        // A volume starts as the image's directory: /tmp is open to every user.
        options.extend(["-v", "/tmp", "-v", "/data"]);
        options.extend(more);
        let seen = docker.run(&options, &[IMAGE, "sh", "-c", script]);
        match more {
            ["--user=1000"] => assert!(seen.failed().contains("denied"), "not the owner's"),
            _ => assert_eq!(seen.ok(), "run\n", "{more:?}"),
        }
    }
    let mut options = Policy::Standard.options();
    options.extend(["--annotation", "dev.agentbox.filesystem.scratch=16MiB"]);
    options.extend(["-v", "/data"]);
    let fill = "head -c 64000000 /dev/zero >/data/f; echo $?; stat -c %s /data/f";
    let seen = docker.run(&options, &[IMAGE, "sh", "-c", fill]).ok();
    let lines: Vec<u64> = seen.lines().map(|l| l.parse().unwrap()).collect();
    assert!(lines[0] != 0 && lines[1] < 17 << 20, "{seen}");
    let mut control = vec!["--runtime=runc", "-v", "/data"];
    control.extend([IMAGE, "sh", "-c", fill]);
    assert_eq!(docker.run(&control, &[]).ok(), "0\n64000000\n");
}

/// A volume that contains the working directory is the workspace, like any mount.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_volume_that_is_worked_in_is_the_workspace() {
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let place = scratch.dir(&format!("volumes/{}/_data", name("work")));
    let mut options = Policy::Standard.options();
    let mount = format!("-v={place}:/data");
    options.extend([mount.as_str(), "-w=/data"]);
    docker
        .run(&options, &[IMAGE, "sh", "-c", "echo text >file"])
        .ok();
    assert_eq!(
        fs::read_to_string(format!("{place}/file")).unwrap(),
        "text\n"
    );
}

/// An overlay over two others cannot be the lower directory of another one (FILESYSTEM_MAX_STACK_DEPTH).
#[test]
#[ignore = "needs the rig: hack/test"]
fn where_no_overlay_can_be_laid_it_is_read_only_and_explain_says_why() {
    let node = Node::new();
    let memory = node.scratch.dir("memory");
    let below = format!("volumes/{}/_data", name("stacked"));
    // In the shell's own mount namespace, which ends with it.
    let script = r#"set -e
        mount -t tmpfs tmpfs "$1"; cd "$1"
        mkdir -p "a/$2" u1 w1 u2 w2 one two; echo precious >"a/$2/f"
        mount -t overlay overlay -o "lowerdir=$1/a,upperdir=$1/u1,workdir=$1/w1" "$1/one"
        mount -t overlay overlay -o "lowerdir=$1/one,upperdir=$1/u2,workdir=$1/w2" "$1/two"
        shift 2; cd /; "$@""#;
    let with = |verb: &[&str], place: &str| {
        let mut config = node.config(&["sh", "-c", "cat /x/f; echo ruined >/x/f; cat /x/f"]);
        let mounts = config["mounts"].as_array_mut().unwrap();
        mounts.push(bind(&format!("{memory}/{place}/{below}")));
        config["annotations"] = json!({"dev.agentbox.policy": "standard"});
        let bundle = node.bundle(&format!("bundle-{place}-{}", verb[0]), &config);
        let program = crate::direct::program();
        let own = ["unshare", "-m", "bash", "-c", script, "-", &memory, &below];
        let agentbox = [program.as_str(), "--root", &node.root];
        let rest = [verb, &["--bundle", &bundle]].concat();
        let id = format!("stacked-{}", std::process::id());
        let id: &[&str] = if verb[0] == "run" { &[&id] } else { &[] };
        let all = [&own[1..], &agentbox, &rest, id].concat();
        call(own[0], &all)
    };
    // The control: over one overlay, the volume is the container's own.
    let told = with(&["explain"], "one").ok();
    assert!(told.contains("discarded, from"), "{told}");
    let seen = with(&["run"], "one").ok();
    assert_eq!(seen, "precious\nruined\n");
    let told = with(&["explain"], "two").ok();
    assert!(told.contains("lays none over"), "{told}");
    let seen = with(&["run"], "two");
    assert!(seen.stdout.starts_with("precious\nprecious\n"), "{seen}");
    assert!(seen.stderr.contains("Read-only"), "{seen}");
}

/// A sibling case: a path named like a pod's shared memory is writable as such, even under strict, if it is the
/// container's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn memory_that_is_called_like_a_pods_is_not_written() {
    let docker = Docker::connect();
    let scratch = Scratch::new();
    let memory = scratch.dir("memory");
    call("mount", &["-t", "tmpfs", "tmpfs", &memory]).ok();
    let place = format!("{memory}/sandboxes/{}/shm", name("shm"));
    fs::create_dir_all(&place).unwrap();
    let mount = format!("-v={place}:/dev/shm");
    let write = [IMAGE, "sh", "-c", "echo text >/dev/shm/file; true"];
    let file = format!("{place}/file");
    let results: Vec<bool> = [Policy::Strict, Policy::Standard]
        .map(|policy| {
            let options = [&policy.options()[..], &[mount.as_str()]].concat();
            docker.run(&options, &write);
            fs::exists(&file).unwrap()
        })
        .into();
    docker.run(&["--runtime=runc", &mount], &write);
    let control = fs::exists(&file).unwrap();
    call("umount", &[&memory]).ok();
    assert!(control, "the control");
    assert_eq!(results, [false, false]);
}
