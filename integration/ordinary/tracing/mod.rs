//! Debuggers and chroot in a container (S02, S05 of docs/threats.md): the annotation allows debugging of the
//! container's own processes and no others.
//!
//! The risk: an exec process has more privileges than the container until its walls are raised. The test's hunter
//! attaches to all processes that it can, and catches no unfinished one.

use serde_json::json;

use crate::command::run;
use crate::direct::{Node, Scratch};
use crate::docker::Docker;

/// The calls that `standard`'s limit lets annotations allow.
const DEBUGGERS: &str = "dev.agentbox.syscalls.allow=process_vm_readv,process_vm_writev,ptrace";

/// A directory with the tracer, to mount at /work.
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

/// The tracer's output in a container with these options.
fn traced(docker: &Docker, options: &[&str], mode: &str) -> String {
    let workspace = workspace();
    let mount = format!("{}:/work", workspace.path("work"));
    let options = [options, &["-v", &mount, "-w", "/work", "test-musl"]].concat();
    let seen = docker.run(&options, &["./tracer", mode]);
    seen.stdout
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn an_annotation_lets_a_container_debug_its_own_processes() {
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
    // `strict` gives no permission, as policy or as ceiling.
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

/// The filter decides after the tracer (Linux 4.8), and no process in the container can remove it.
#[test]
#[ignore = "needs the rig: hack/test"]
fn s02_a_tracer_does_not_get_its_child_round_the_filter() {
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
fn s02_a_tracer_catches_no_half_made_process_of_exec() {
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
            // A process that the tracer released late ends late.
            let _ended = docker.call(&["exec", &container.name, "id"]);
        }
        docker.call(&["wait", &container.name]).ok();
        let log = docker.call(&["logs", &container.name]).ok();
        // It tried unfinished processes, and caught those with their walls.
        let expected = "ready\nhunted\trefused=some\tcaught=some\tweak=0\n";
        assert_eq!(log, expected, "user {user}");
    }
}

/// The control: with the capability that only a node can grant, the same hunter catches processes before their walls
/// are raised. docs/policy.md says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_hunter_catches_unfinished_processes_if_a_node_grants_sys_ptrace() {
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

/// chroot works as under Docker: the walls are mounts, which stay whatever a process's root is.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_chroot_changes_the_root_and_no_wall() {
    let docker = Docker::connect();
    let held =
        "jailed\tdone\nclimbed\tdone\nroot\tthe container's\nkcore\tabsent\nsysctl\tread-only\n";
    for runtime in ["agentbox", "agentbox-permissive"] {
        let runtime = format!("--runtime={runtime}");
        let seen = traced(&docker, &[&runtime], "climb");
        assert_eq!(seen, format!("chroot\tdone\n{held}"), "{runtime}");
        let read_only = traced(&docker, &[&runtime, "--read-only"], "climb");
        assert_eq!(read_only, format!("chroot\tdone\n{held}"), "{runtime}");
        // It needs the capability, which neither a user nor `strict` has.
        let user = traced(&docker, &[&runtime, "--user", "1000"], "climb");
        assert!(user.starts_with("chroot\tEPERM\n"), "{user}");
    }
    let strict = traced(&docker, &["--runtime=agentbox-strict"], "climb");
    assert!(strict.starts_with("chroot\tEPERM\n"), "{strict}");
    let options = ["--runtime=agentbox", "test-workloads"];
    let script = ["sh", "-c", "chroot --userspec=1000 / id -u"];
    assert_eq!(docker.run(&options, &script).ok(), "1000\n");
    // An exec process is in the container's root, not in that of a process that changed its own.
    let script = "mkdir -p /tmp/jail/bin; cp /bin/busybox /tmp/jail/bin/; echo ready; \
        exec chroot /tmp/jail /bin/busybox sleep 60";
    let container = docker.start(&["--runtime=agentbox", "test-musl"], &["sh", "-c", script]);
    container.await_log("ready");
    let seen = container.exec(&[], &["/bin/ls", "-d", "/tmp/jail", "/proc/1"]);
    assert_eq!(seen.ok(), "/proc/1\n/tmp/jail\n");
}
