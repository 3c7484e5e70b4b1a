//! The root of `standard` is the engine's layer: what the engine's own commands see
//! of it, and how far it works as an ordinary file system.

use std::fs;

use crate::command::run;
use crate::direct::{Node, Scratch};
use crate::docker::Docker;

const IMAGE: &str = "test-workloads";

/// Files are copied in and out, and appear in `diff`, in `export`, in a new image and after a restart.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_engine_sees_and_keeps_what_a_container_writes() {
    let docker = Docker::connect();
    let script = "cat /etc/kept /tmp/kept /run/kept 2>/dev/null; mkdir -p /opt/new; \
        for f in /etc/kept /tmp/kept /run/kept /opt/new/kept; do echo kept >$f; done; echo ready; sleep 60";
    let container = docker.start(&["--runtime=agentbox", IMAGE], &["sh", "-c", script]);
    container.await_log("ready");
    let dir = std::env::temp_dir().join(format!("layer-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (name, file) = (&container.name, dir.join("file").display().to_string());
    fs::write(&file, "from outside").unwrap();
    docker
        .call(&["cp", &file, &format!("{name}:/opt/new/in")])
        .ok();
    let seen = container.exec(&[], &["cat", "/opt/new/in"]).ok();
    assert_eq!(seen, "from outside");
    docker
        .call(&["cp", &format!("{name}:/opt/new/kept"), &file])
        .ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept\n");
    fs::remove_dir_all(&dir).unwrap();
    let diff = container.call("diff", &[]).ok();
    for line in [
        "A /etc/kept",
        "A /tmp/kept",
        "A /opt/new/kept",
        "A /opt/new/in",
    ] {
        assert!(diff.lines().any(|l| l == line), "{line}: {diff}");
    }
    let image = format!("layer-{}", std::process::id());
    docker.call(&["commit", name, &image]).ok();
    let seen = docker
        .run(&["--runtime=agentbox", &image], &["cat", "/etc/kept"])
        .ok();
    docker.call(&["rmi", &image]).ok();
    assert_eq!(seen, "kept\n");
    container.call("restart", &["-t", "0"]).ok();
    let log = container.await_log("ready\nkept\nkept\nkept\nready\n");
    assert_eq!(log, "ready\nkept\nkept\nkept\nready\n");
    let verified = run("agentbox", &["verify", &container.inspect("{{.Id}}")]);
    assert_eq!(verified.code, 0, "{verified}");
}

/// Hard links of a file stay hard links, and a package manager's use of them works.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hard_links_and_renames_of_the_images_files_hold() {
    let docker = Docker::connect();
    let script = "set -e; ln /etc/issue /etc/i2; cp /etc/issue /etc/i2 2>&1 || true; stat -c %h /etc/issue; \
        test -s /etc/issue; test /etc/issue -ef /etc/i2; \
        cp -a /usr/bin/env /usr/bin/env.dpkg-new; ln /usr/bin/env /usr/bin/env.dpkg-tmp; \
        mv /usr/bin/env.dpkg-new /usr/bin/env; mv /usr/bin/env.dpkg-tmp /usr/bin/env; env true; \
        mkdir /opt/a; mv /opt/a /opt/b; awk '$5 == \"/\"' /proc/self/mountinfo | wc -l; grep -c ' ext4 /dev/loop' /proc/self/mountinfo || true";
    let seen = docker
        .run(&["--runtime=agentbox", IMAGE], &["sh", "-c", script])
        .ok();
    let lines: Vec<&str> = seen.lines().collect();
    // One root, no overlay over it, and no scratch disk.
    assert!(
        lines.contains(&"2") && lines.ends_with(&["1", "0"]),
        "{seen}"
    );
    let control = "--annotation=dev.agentbox.filesystem.root=ephemeral";
    let options = ["--runtime=agentbox", control, IMAGE];
    let seen = docker
        .run(
            &options,
            &["grep", "-c", " ext4 /dev/loop", "/proc/self/mountinfo"],
        )
        .ok();
    assert_ne!(seen, "0\n");
}

/// If the engine makes the root read-only, it stays so, with the policy's private directories.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_root_that_the_engine_makes_read_only_stays_so() {
    let docker = Docker::connect();
    let script =
        "touch /etc/x 2>&1; touch /opt/x 2>&1; touch /tmp/x /run/x /var/x /root/x && echo private";
    let container = docker.create(
        &["--runtime=agentbox", "--read-only", IMAGE],
        &["sh", "-c", script],
    );
    let seen = container.call("start", &["-a"]).ok();
    assert_eq!(seen.matches("Read-only file system").count(), 2, "{seen}");
    assert!(seen.ends_with("private\n"), "{seen}");
    assert_eq!(container.call("diff", &[]).ok(), "");
}

/// An image of programs alone, as a pod's first container of podman's has: a mount below a private directory that it lacks.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_read_only_image_without_private_directories_takes_mounts_below_them() {
    let docker = Docker::connect();
    let gone = "rm -rf /tmp /run /var /home /root";
    let container = docker.create(&["--runtime=runc", IMAGE], &["sh", "-c", gone]);
    container.call("start", &["-a"]).ok();
    let image = format!("bare-{}", std::process::id());
    docker.call(&["commit", &container.name, &image]).ok();
    let script = "touch /tmp/a/x /var/tmp/x /home/u/.cache/x /run/secrets/x && echo mounted; touch /x 2>/dev/null || echo read-only";
    let mounts = "/tmp/a /var/tmp /home/u/.cache /run/secrets"
        .split(' ')
        .flat_map(|place| ["--tmpfs", place]);
    let mounts: Vec<&str> = mounts.collect();
    for runtime in ["--runtime=runc", "--runtime=agentbox"] {
        let first = [runtime, "--read-only", "--env=HOME=/home/u"];
        let options = [&first[..], &mounts, &[&image]].concat();
        let seen = docker.run(&options, &["sh", "-c", script]).ok();
        assert_eq!(seen, "mounted\nread-only\n", "{runtime}");
    }
    docker.call(&["rmi", &image]).ok();
}

/// `-w` names a directory that the mounted project lacks. Through a read-only mount, and below a link, none is made.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_missing_working_directory_is_made_where_runc_makes_it() {
    let docker = Docker::connect();
    let dir = Scratch::new();
    let (project, outside) = (dir.dir("project"), dir.dir("outside"));
    std::os::unix::fs::symlink(&outside, format!("{project}/link")).unwrap();
    for (runtime, name) in [("--runtime=runc", "runc"), ("--runtime=agentbox", "ours")] {
        let bind = |more: &str| format!("--volume={project}:/work{more}");
        let at = format!("--workdir=/work/new/{name}");
        let seen = docker.run(&[runtime, &bind(""), &at, IMAGE], &["pwd"]).ok();
        assert_eq!(seen, format!("/work/new/{name}\n"));
        assert!(std::path::Path::new(&format!("{project}/new/{name}")).is_dir());
        let missing = format!("--workdir=/work/none/{name}");
        let refused = docker.run(&[runtime, &bind(":ro"), &missing, IMAGE], &["pwd"]);
        assert_ne!(refused.code, 0, "{refused}");
    }
    let linked = format!("--volume={project}:/work");
    let seen = docker.run(
        &[
            "--runtime=agentbox",
            &linked,
            "--workdir=/work/link/x",
            IMAGE,
        ],
        &["pwd"],
    );
    assert_ne!(seen.code, 0, "{seen}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// An ephemeral root, once every container's.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_root_can_still_be_ephemeral() {
    let docker = Docker::connect();
    let script =
        "ls /etc/kept /opt/kept; echo kept >/etc/kept; echo kept >/opt/kept; echo ready; sleep 60";
    let options = [
        "--runtime=agentbox",
        "--annotation=dev.agentbox.filesystem.root=ephemeral",
        IMAGE,
    ];
    let container = docker.start(&options, &["sh", "-c", script]);
    container.await_log("ready");
    let diff = container.call("diff", &[]).ok();
    assert!(!diff.contains("kept"), "{diff}");
    container.call("restart", &["-t", "0"]).ok();
    assert_eq!(container.await_log("ready\nready\n"), "ready\nready\n");
}

/// F40: root inside damages its own layer, and the engine restarts the container, or starts one from it with a read-only
/// root: with all walls, or not at all.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f40_a_container_that_spoiled_its_layer_starts_with_its_walls_or_not_at_all() {
    let docker = Docker::connect();
    let node = Node::new();
    let outside = node.scratch.dir("outside");
    node.scratch.file("outside/secret", "the node's");
    let work = node.scratch.dir("work");
    let mount = format!("--volume={work}:/work");
    let mut started = 0;
    for mess in [
        // A fifo there blocks Docker itself, under every runtime.
        format!(
            "rm -f /etc/passwd /etc/group; ln -s {outside}/secret /etc/passwd; ln -s {outside}/new /etc/group"
        ),
        "echo /evil.so >/etc/ld.so.preload; echo x >/etc/ld.so.cache; rm -rf /etc/nsswitch.conf"
            .to_owned(),
        format!(
            "rm -rf /root /srv /home; ln -s {outside} /root; ln -s {outside} /srv; ln -s /proc/1/root /home"
        ),
        format!(
            "mv /etc /e; mkdir -p /etc; ln -s {outside}/secret /etc/hosts; ln -s {outside}/new /etc/resolv.conf"
        ),
        format!("mv /run /r; ln -s {outside} /run"),
        "rm -rf /tmp /var/tmp /run/agentbox; mkfifo /tmp; echo x >/run/agentbox".to_owned(),
        format!(
            "mkdir -p /usr/local/bin; ln -sf {outside}/new /usr/local/bin/agentbox; rm -f /.dockerenv; ln -s {outside}/new /.dockerenv"
        ),
        "mv /dev /d; mv /proc /p; mv /sys /s; rm -rf /dev /proc /sys; mv /work /w; ln -s / /work"
            .to_owned(),
    ] {
        let script = format!(
            "[ -e /spoilt ] || {{ ({mess}) 2>/dev/null; echo spoilt >/spoilt; exit 0; }}; echo again; cat /root/secret /srv/secret; \
             cat /run/secret /etc/hosts; sleep 60"
        );
        let options = [
            "--runtime=agentbox",
            "--annotation=dev.agentbox.report.denied=on",
            "--workdir=/work",
            &mount,
            IMAGE,
        ];
        let container = docker.create(&options, &["/bin/bash", "-c", &script]);
        container.call("start", &["-a"]).ok();
        let again = container.call("start", &[]);
        if again.code == 0 {
            let log = container.await_log("again");
            assert!(!log.contains("the node's"), "{mess}: {log}");
            let verified = run("agentbox", &["verify", &container.inspect("{{.Id}}")]);
            assert_eq!(verified.code, 0, "{mess}: {verified}");
            started += 1;
        } else {
            assert!(again.stderr.contains("OCI runtime"), "{mess}: {again}");
        }
        // The same layer below a read-only root: the private mounts meet the links.
        let image = format!("spoilt-{}", std::process::id());
        docker.call(&["commit", &container.name, &image]).ok();
        let options = ["--runtime=agentbox", "--read-only", &mount, &image];
        let script =
            "cat /root/secret /srv/secret /run/secret /etc/hosts; touch /tmp/x /root/x /run/x";
        let seen = docker.run(&options, &["/bin/bash", "-c", script]);
        docker.call(&["rmi", &image]).ok();
        assert!(!seen.stdout.contains("the node's"), "{mess}: {seen}");
        let names = |dir: &str| fs::read_dir(dir).unwrap().count();
        assert_eq!((names(&outside), names(&work)), (1, 0), "{mess}");
    }
    assert!(started > 3, "{started}");
}

/// A node with at most `ephemeral`: a container without a named policy gets that, and none gets more.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_ceiling_narrows_the_root() {
    let node = Node::new();
    let ceiling = "base = \"permissive\"\nfilesystem.root = \"ephemeral\"\n";
    node.scratch.file("policies/most.toml", ceiling);
    let policies = node.scratch.path("policies");
    let config = format!("ceiling = \"most\"\npolicy-dir = \"{policies}\"\n");
    let config = node.scratch.file("config.toml", &config);
    let bundle = node.scratch.path("own");
    let mut spec = node.config(&["true"]);
    spec["root"] = serde_json::json!({"path": "image", "readonly": false});
    // The rig's root is an overlay. An ephemeral root over one of its directories is refused.
    let image = node.scratch.dir("own/image");
    run("mount", &["-t", "tmpfs", "tmpfs", &image]).ok();
    let mut explain = |root: Option<&str>| {
        if let Some(root) = root {
            spec["annotations"] = serde_json::json!({"dev.agentbox.filesystem.root": root});
        }
        node.bundle("own", &spec);
        node.call(&["--config", &config, "explain", "--bundle", &bundle])
    };
    let told = explain(None).ok();
    assert!(
        told.contains("files: the image; writes are discarded"),
        "{told}"
    );
    let refused = explain(Some("engine")).failed();
    assert!(
        refused.contains("filesystem.root") && refused.contains("ephemeral"),
        "{refused}"
    );
    run("umount", &[&image]).ok();
}
