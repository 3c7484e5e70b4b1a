//! NOTIFY_SOCKET: a container's messages reach the caller, and nothing else does.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::{BOTH, Runtime, sleeper};
use crate::command::await_that;
use crate::direct::Node;

/// The messages at the caller's socket, up to the last one.
fn heard(socket: &UnixDatagram, last: &str) -> Vec<String> {
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut all: Vec<String> = Vec::new();
    let mut buffer = [0; 256];
    // The barrier's descriptor is closed with its message, since this does not receive it.
    while all.last().is_none_or(|l| !l.starts_with(last)) {
        let length = socket.recv(&mut buffer).unwrap();
        all.push(String::from_utf8_lossy(&buffer[..length]).trim().to_owned());
    }
    all
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_a_container_tells_systemd_that_it_is_ready() {
    let node = Node::new();
    let config = sleeper(&node);
    for runtime in BOTH {
        let path = node.scratch.path(&format!("{runtime:?}.sock"));
        let socket = UnixDatagram::bind(&path).unwrap();
        let id = runtime.id("notify");
        let bundle = node.bundle(&id, &config);
        let with_socket = |arguments: &[&str]| {
            let mut command = runtime.command(&node, arguments);
            command.env("NOTIFY_SOCKET", &path);
            command
        };
        node.finish(with_socket(&["create", "--bundle", &bundle, &id]))
            .ok();
        let mut start = with_socket(&["start", &id]).spawn().unwrap();
        let pid = || {
            let state = runtime.call(&node, &["state", &id]).ok();
            let state: serde_json::Value = serde_json::from_str(&state).unwrap();
            state["pid"].as_u64().unwrap()
        };
        let root = format!("/proc/{}/root", pid());
        let inside = std::path::Path::new(&root).join("run/notify/notify.sock");
        let own = UnixDatagram::unbound().unwrap();
        await_that("a socket in the container", || {
            own.send_to(b"STATUS=half way", &inside).is_ok()
        });
        assert!(
            start.try_wait().unwrap().is_none(),
            "{runtime:?}: it is not ready yet"
        );
        if runtime == Runtime::Agentbox {
            own.send_to(b"MAINPID=1\nSTATUS=evil", &inside).unwrap();
        }
        own.send_to(b"READY=1", &inside).unwrap();
        let mut expected = vec!["READY=1".to_owned(), format!("MAINPID={}", pid())];
        // Debian 12's runc does not send a barrier to check that all was read.
        if runtime == Runtime::Agentbox {
            expected.push("BARRIER=1".to_owned());
        }
        let last = expected.last().unwrap();
        assert_eq!(heard(&socket, last), expected, "{runtime:?}");
        await_that("the end of start", || start.try_wait().unwrap().is_some());
        assert!(start.wait().unwrap().success(), "{runtime:?}");
        let env = runtime
            .call(&node, &["exec", &id, "cat", "/proc/1/environ"])
            .ok();
        assert!(
            env.contains("NOTIFY_SOCKET=/run/notify/notify.sock"),
            "{runtime:?}: {env}"
        );
        runtime.call(&node, &["delete", "--force", &id]).ok();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_verbs_a_policy_refuses_the_socket() {
    let node = Node::new();
    let id = Runtime::Agentbox.id("no-notify");
    let bundle = node.bundle(&id, &node.config(&["true"]));
    let mut command = std::process::Command::new(crate::direct::program());
    command.args(["--root", &node.root, "create", "--bundle", &bundle, &id]);
    command.env("NOTIFY_SOCKET", "/run/systemd/notify");
    let refused = node.finish(command).failed();
    assert!(refused.contains("NOTIFY_SOCKET"), "{refused}");
    assert!(node.leftovers(&id).is_empty());
}
