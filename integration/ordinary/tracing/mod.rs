//! Debuggers and chroot in a container (A-7, A-9; S02, S05 of docs/threats.md): the annotation opens the container's
//! own processes and no others.
//!
//! The question behind it: `exec` brings a process into the container that holds more than the container while it
//! raises its own walls. The hunter seizes all processes that it can, and catches no half-made one.

use serde_json::json;

use crate::command::run;
use crate::direct::{Node, Scratch};
use crate::docker::Docker;

/// What `standard`'s limit leaves to annotations.
const DEBUGGERS: &str = "dev.agentbox.syscalls.allow=process_vm_readv,process_vm_writev,ptrace";

/// A directory with the tracer, to be mounted at /work.
fn workspace() -> Scratch {
    let scratch = Scratch::new();
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/integration/ordinary/tracing/tracer.c"
    );
    let tracer = format!("{}/tracer", scratch.dir("work"));
    run("gcc", &["-static", "-O1", "-o", &tracer, source]).ok();
    scratch
}

/// What the tracer says in a container that is started with these options.
fn traced(docker: &Docker, options: &[&str], mode: &str) -> String {
    let workspace = workspace();
    let mount = format!("{}:/work", workspace.path("work"));
    let options = [options, &["-v", &mount, "-w", "/work", "test-musl"]].concat();
    let seen = docker.run(&options, &["./tracer", mode]);
    seen.stdout
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_9_an_annotation_lets_a_container_debug_its_own_processes() {
    let docker = Docker::connect();
    let works = "registers\tdone\npeek\t4711\nwritev\tdone\nreadv\tdone\t4712\nended\t7\n";
    let annotation = ["--annotation", DEBUGGERS];
    for runtime in ["agentbox", "agentbox-standard", "agentbox-permissive"] {
        let runtime = format!("--runtime={runtime}");
        let plain = [runtime.as_str()];
        assert_eq!(traced(&docker, &plain, "debug"), "traceme\tEPERM\n");
        for user in ["0", "1000"] {
            let options = [&plain[..], &annotation, &["--user", user]].concat();
            assert_eq!(
                traced(&docker, &options, "debug"),
                works,
                "{runtime} {user}"
            );
        }
    }
    // Nobody gave `strict` leave, as policy or as ceiling.
    for options in [
        &["--runtime=agentbox-strict"][..],
        &[
            "--runtime=agentbox",
            "--annotation",
            "dev.agentbox.policy=strict",
        ],
    ] {
        let options = [options, &annotation, &["test-musl"]].concat();
        let refused = docker.run(&options, &["true"]);
        assert!(
            refused.stderr.contains("syscalls.allow requests"),
            "{refused}"
        );
    }
}

/// The filter is asked after the tracer has had its say (Linux 4.8), and nobody in the container takes it off.
#[test]
#[ignore = "needs the rig: hack/test"]
fn s_02_a_tracer_does_not_get_its_child_round_the_filter() {
    let docker = Docker::connect();
    let options = ["--runtime=agentbox", "--annotation", DEBUGGERS];
    let expected = "getpid\tdone\nunshare\tEPERM\nmount\tEPERM\nkeyctl\tEPERM\nbpf\tEPERM\n\
        io_uring_setup\tENOSYS\nsetns\tEPERM\nx32-getpid\tBad system call\n";
    assert_eq!(traced(&docker, &options, "rewrite"), expected);
    assert_eq!(
        traced(&docker, &options, "powers"),
        "suspend\tEPERM\nfilter\tEACCES\n"
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn s_02_a_tracer_catches_no_half_made_process_of_exec() {
    let docker = Docker::connect();
    for user in ["0", "1000"] {
        let workspace = workspace();
        let mount = format!("{}:/work", workspace.path("work"));
        let options = [
            "--runtime=agentbox",
            "--annotation",
            DEBUGGERS,
            "--user",
            user,
            "-v",
            &mount,
            "-w",
            "/work",
            "test-musl",
        ];
        let container = docker.start(&options, &["./tracer", "hunt", "20"]);
        container.await_log("ready");
        for _ in 0..20 {
            // One that the tracer has let go late ends late.
            let _ended = docker.call(&["exec", &container.name, "id"]);
        }
        docker.call(&["wait", &container.name]).ok();
        let log = docker.call(&["logs", &container.name]).ok();
        // It tried what was half made, and it caught what had its walls.
        let expected = "ready\nhunted\trefused=some\tcaught=some\tweak=0\n";
        assert_eq!(log, expected, "user {user}");
    }
}

/// The control: with the capability that only a node can give, the same hunter catches processes before their walls stand.
/// docs/policy.md says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_hunter_sees_what_is_half_made_where_a_node_gives_it_sys_ptrace() {
    let node = Node::new();
    let policies = node.scratch.dir("etc/policies");
    let config = node.scratch.file(
        "etc/config.toml",
        &format!(
            "ceiling = \"lab\"\ndefault = \"lab\"\npolicy-dir = \"{policies}\"\n[allow]\ncapabilities = [\"SYS_PTRACE\"]\n"
        ),
    );
    node.scratch.file(
        "etc/policies/lab.toml",
        "base = \"standard\"\nsyscalls.allow = [\"+\", \"ptrace\"]\nprivileges.capabilities = [\"+\", \"SYS_PTRACE\"]\n",
    );
    let workspace = workspace();
    let mut spec = node.config(&["/work/tracer", "hunt", "20"]);
    spec["process"]["cwd"] = json!("/work");
    for set in ["bounding", "effective", "permitted"] {
        spec["process"]["capabilities"][set] = json!(["CAP_KILL", "CAP_SYS_PTRACE"]);
    }
    let mount = json!({"destination": "/work", "type": "bind", "options": ["rbind", "rw"],
        "source": workspace.path("work")});
    spec["mounts"].as_array_mut().unwrap().push(mount);
    let bundle = node.bundle("hunted", &spec);
    let id = format!("hunted-{}", std::process::id());
    let call = |arguments: &[&str]| node.call(&[&["--config", &config], arguments].concat());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| call(&["run", "--bundle", &bundle, &id]));
        let mut tries = 0;
        while !running.is_finished() && tries < 200 {
            // It fails until the container runs.
            let _seen = call(&["exec", &id, "/bin/id"]);
            tries += 1;
        }
        let seen = running.join().unwrap();
        assert!(seen.stdout.contains("weak\t"), "{seen}");
        assert!(!seen.stdout.contains("weak=0"), "{seen}");
    });
    call(&["delete", "--force", &id]).ok();
}

/// chroot is as Docker has it: the walls are mounts, and they are there whatever a process calls its root.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_7_a_chroot_changes_the_root_and_no_wall() {
    let docker = Docker::connect();
    let held =
        "jailed\tdone\nclimbed\tdone\nroot\tthe container's\nkcore\tabsent\nsysctl\tread-only\n";
    for runtime in ["agentbox", "agentbox-permissive"] {
        let runtime = format!("--runtime={runtime}");
        let seen = traced(&docker, &[&runtime], "climb");
        assert_eq!(seen, format!("chroot\tdone\n{held}"), "{runtime}");
        let read_only = traced(&docker, &[&runtime, "--read-only"], "climb");
        assert_eq!(read_only, format!("chroot\tdone\n{held}"), "{runtime}");
        // It is the capability's, which neither a user nor `strict` has.
        let user = traced(&docker, &[&runtime, "--user", "1000"], "climb");
        assert!(user.starts_with("chroot\tEPERM\n"), "{user}");
    }
    let strict = traced(&docker, &["--runtime=agentbox-strict"], "climb");
    assert!(strict.starts_with("chroot\tEPERM\n"), "{strict}");
    let options = ["--runtime=agentbox", "test-workloads"];
    let script = ["sh", "-c", "chroot --userspec=1000 / id -u"];
    assert_eq!(docker.run(&options, &script).ok(), "1000\n");
    // Who enters the container afterwards is in its root, not in that of the process that changed its own.
    let script = "mkdir -p /tmp/jail/bin; cp /bin/busybox /tmp/jail/bin/; echo ready; \
        exec chroot /tmp/jail /bin/busybox sleep 60";
    let container = docker.start(&["--runtime=agentbox", "test-musl"], &["sh", "-c", script]);
    container.await_log("ready");
    let seen = container.exec(&[], &["/bin/ls", "-d", "/tmp/jail", "/proc/1"]);
    assert_eq!(seen.ok(), "/proc/1\n/tmp/jail\n");
}
