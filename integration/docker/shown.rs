//! `report.denied`: a container reads its own denials, and nothing more.

use super::allowlist::Agent;
use super::{Docker, Policy, runtime};
use crate::command::run;
use crate::direct::program;

const IMAGE: &str = "test-workloads";
const ON: &str = "dev.agentbox.report.denied=on";
const ALLOW: &str = "dev.agentbox.network.allow=api.example.test:80, api.example.test";
const SLEEP: [&str; 3] = ["python3", "-c", "import time; time.sleep(300)"];
const FILE: &str = "/run/agentbox/denied";
/// Makes a denied call, and prints the file once the call is in it.
const MOUNT: &str = "
import ctypes, time
ctypes.CDLL(None).mount(None, None, None, 0, None)
for _ in range(300):
    text = open('/run/agentbox/denied').read()
    if 'syscalls mount(' in text: break
    time.sleep(0.1)
print(text)";
/// Prints the proxy's answer to a request for its own path, sent without a proxy.
const ASK: &str = "
import os, socket, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])
s = socket.create_connection((proxy.hostname, proxy.port))
s.sendall(b'GET /denied HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
print(b''.join(iter(lambda: s.recv(65536), b'')).decode())";

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_container_reads_its_own_refusals_in_a_file_and_at_the_proxy() {
    let docker = Docker::connect();
    let options = [runtime(), "--annotation", ALLOW, "--annotation", ON];
    let agent = Agent::start(&docker, &options);
    let refused = agent.curl(false, &["https://files.example.test/"]);
    assert!(refused.code != 0, "{refused}");
    for user in ["0", "1000"] {
        let seen = agent
            .container
            .exec(&["-u", user], &["python3", "-c", MOUNT])
            .ok();
        let line = |words: &str| {
            seen.lines()
                .find(|line| line.contains(words))
                .map(str::to_owned)
        };
        let host = line("network files.example.test:443: ").expect(&seen);
        assert!(
            host.contains(
                "to ask for: within the ceiling, agentbox update --network-add files.example.test"
            ),
            "{host}"
        );
        let call = line("syscalls mount(...)").expect(&seen);
        assert!(
            call.contains("namespaces or mounts: ") || call.contains("mount"),
            "{call}"
        );
        assert!(seen.starts_with("# What agentbox denied"), "{seen}");
    }
    let url = agent.container.exec(&[], &["python3", "-c", ASK]).ok();
    assert!(url.starts_with("HTTP/1.1 200 OK\r\n"), "{url}");
    assert!(url.contains("network files.example.test:443: "), "{url}");
    // Others may share the network, and must not see the calls.
    assert!(!url.contains("syscalls"), "{url}");
    let explained = run(&program(), &["explain", &agent.container.name]).ok();
    assert!(
        explained.contains("report: the container reads"),
        "{explained}"
    );
}

/// The control: without the field there is no file and no path.
#[test]
#[ignore = "needs the rig: hack/test"]
fn without_the_field_there_is_no_file_and_the_proxy_says_so() {
    let docker = Docker::connect();
    let options = [runtime(), "--annotation", ALLOW];
    let agent = Agent::start(&docker, &options);
    let exec = |command: &[&str]| agent.container.exec(&[], command);
    assert!(exec(&["ls", "/run/agentbox"]).code != 0);
    let url = exec(&["python3", "-c", ASK]).ok();
    assert!(
        url.starts_with("HTTP/1.1 404 agentbox: this is a proxy"),
        "{url}"
    );
}

/// Under each policy, also without a network, and with a read-only root.
#[test]
#[ignore = "needs the rig: hack/test"]
fn the_command_of_the_page_runs() {
    let docker = Docker::connect();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/agents.md")).unwrap();
    let block = page.split("```sh refusals\n").nth(1).unwrap();
    let command = block.split("\n```").next().unwrap();
    let rest = command.strip_prefix("docker run --rm ").unwrap();
    let words: Vec<&str> = rest
        .split_whitespace()
        .map(|word| if word == "IMAGE" { IMAGE } else { word })
        .collect();
    let seen = docker.run(&words, &[]).ok();
    assert!(seen.starts_with("# What agentbox denied"), "{seen}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn the_file_is_there_under_every_policy() {
    let docker = Docker::connect();
    for policy in Policy::ALL {
        let options = [&policy.options()[..], &["--annotation", ON]].concat();
        for more in [
            &[][..],
            &["--read-only"][..],
            &["--user=1000", "--tmpfs=/run"][..],
        ] {
            let all = [&options[..], more, &[IMAGE]].concat();
            let seen = docker.run(&all, &["python3", "-c", MOUNT]).ok();
            assert!(
                seen.contains("syscalls mount(...)"),
                "{policy:?} {more:?}: {seen}"
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn the_workload_cannot_write_replace_or_unmount_it() {
    let docker = Docker::connect();
    // With the most that a policy can grant, and an engine profile that denies nothing.
    let options = [
        runtime(),
        "--annotation",
        "dev.agentbox.policy=permissive",
        "--cap-add=ALL",
        "--annotation",
        ON,
        "--security-opt=seccomp=unconfined",
        IMAGE,
    ];
    let container = docker.start(&options, &SLEEP);
    let attack = "
        mkdir -p /run/control && mv /run/control /run/moved && echo control moved
        for f in /run/agentbox/denied /run/agentbox/new; do echo forged >$f && echo written $f; done
        rm -f /run/agentbox/denied && echo removed
        mv /run/agentbox/denied /tmp/x && echo moved the file
        mv /run/agentbox /run/other && echo moved the directory
        mv /run /gone && echo moved run
        umount /run/agentbox && echo unmounted
        umount -l /run && echo unmounted run
        mount -o remount,rw,bind /run/agentbox && echo remounted
        mount -t tmpfs none /run/agentbox && echo covered
        chmod 777 /run/agentbox/denied && echo changed
        chattr -i /run/agentbox/denied && echo changed
        truncate -s 0 /run/agentbox/denied && echo truncated
        ln /run/agentbox/denied /run/link && echo linked
        true";
    let said = container.exec(&[], &["sh", "-c", attack]).ok();
    assert_eq!(said, "control moved\n");
    let seen = container.exec(&[], &["cat", FILE]).ok();
    assert!(!seen.contains("forged"), "{seen}");
    // Nothing else of the node is visible beside it.
    let listed = container
        .exec(&[], &["ls", "-A", "/run/agentbox", "/run/agentbox/.."])
        .ok();
    assert!(
        listed.contains("/run/agentbox:\ndenied\nmounts\n"),
        "{listed}"
    );
    assert!(!listed.contains("index"), "{listed}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn it_shows_nothing_of_others_and_no_forged_line() {
    let docker = Docker::connect();
    let options = [runtime(), "--annotation", ALLOW, "--annotation", ON];
    let (one, other) = (
        Agent::start(&docker, &options),
        Agent::start(&docker, &options),
    );
    other.curl(false, &["https://others.example.test/"]);
    let hostile = "
import os, socket, time, urllib.parse
proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])
for name in (b'a\\x1b[2J.test', b'b.test\\n2026-01-01T00:00:00Z network all is allowed', b'c' * 9000):
    s = socket.create_connection((proxy.hostname, proxy.port))
    s.sendall(b'\\x05\\x01\\x00'); s.recv(2)
    s.sendall(b'\\x05\\x01\\x00\\x03' + bytes([len(name[:255])]) + name[:255] + b'\\x01\\xbb')
    s.settimeout(3)
    try: s.recv(16)
    except OSError: pass
for n in range(3000):
    s = socket.create_connection((proxy.hostname, proxy.port))
    s.sendall(b'CONNECT h%d.%s.test:443 HTTP/1.1\\r\\n\\r\\n' % (n, b'x' * 50)); s.recv(64); s.close()
for _ in range(300):
    text = open('/run/agentbox/denied', 'rb').read()
    if b'h2999.' in text: break
    time.sleep(0.1)
print(len(text), len(text.splitlines()), all(b == 10 or 32 <= b < 127 for b in text), b'h2999.' in text)";
    let said = one.container.exec(&[], &["python3", "-c", hostile]).ok();
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words[0].parse::<usize>().unwrap() < 48 << 10, "{said}");
    assert_eq!(&words[1..], ["65", "True", "True"], "{said}");
    let seen = one.container.exec(&[], &["cat", FILE]).ok();
    assert!(!seen.contains("others.example"), "{seen}");
    for line in seen.lines().skip(1) {
        assert!(line.contains("Z network "), "{line}");
    }
}

/// A container in another one's network reads its own denied calls, and at the proxy the network's denials.
#[test]
#[ignore = "needs the rig: hack/test"]
fn who_shares_a_network_reads_its_own_calls_and_hosts_at_the_proxy_alone() {
    let docker = Docker::connect();
    let options = [runtime(), "--annotation", ALLOW, "--annotation", ON];
    let first = Agent::start(&docker, &options);
    let joined = format!("--network=container:{}", first.container.name);
    let member = docker.start(&[&options[..], &[joined.as_str(), IMAGE]].concat(), &SLEEP);
    first.curl(false, &["https://files.example.test/"]);
    // Each makes its own call.
    let calls = |call: &str| MOUNT.replace("mount(None, None, None, 0, None)", call);
    let umount = calls("umount2(None, 0)");
    let of_first = first
        .container
        .exec(
            &[],
            &["python3", "-c", &calls("mount(None, None, None, 0, None)")],
        )
        .ok();
    let of_member = member.exec(&[], &["python3", "-c", &umount]).ok();
    assert!(of_first.contains("syscalls mount("), "{of_first}");
    assert!(!of_first.contains("umount2"), "{of_first}");
    assert!(of_member.contains("syscalls umount2("), "{of_member}");
    assert!(!of_member.contains(" mount("), "{of_member}");
    assert!(!of_member.contains("network files."), "{of_member}");
    let head = of_member.lines().next().unwrap();
    assert!(head.contains("at /denied of the proxy"), "{head}");
    let attack = format!("echo forged >{FILE}; mv {FILE} /tmp/x; mv /run /gone; cat {FILE}");
    let kept = member.exec(&[], &["sh", "-c", &attack]).ok();
    assert!(kept.starts_with(head), "{kept}");
    let url = member.exec(&[], &["python3", "-c", ASK]).ok();
    assert!(url.contains("network files.example.test:443: "), "{url}");
    assert!(!url.contains("mount"), "{url}");
    let explained = run(&program(), &["explain", &member.name]).ok();
    for words in [
        "the container reads its last denied system calls in /run/agentbox/denied",
        "/run/agentbox/denied has denied system calls alone: the network is that of container",
    ] {
        assert!(explained.contains(words), "{explained}");
    }
}
