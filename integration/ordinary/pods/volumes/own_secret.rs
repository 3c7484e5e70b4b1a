//! A `[[secret]]` with its value in the pod's own Secret: `create` reads it within that volume, and it is not visible
//! inside.

use super::*;
use crate::docker::allowlist::{INTERNET, arrived, internet, witness};

/// A node file whose policy `agent` adds a key of the pod to requests. The policy `plain` allows the same requests.
fn node_file(node: &Node) -> String {
    // It names the authority.
    internet();
    const REQUESTS: &str = "[\"GET,POST https://api.example.test/v1/**\"]";
    let policies = node.scratch.dir("policies");
    let text =
        format!("base = \"standard\"\nnetwork.mode = \"allowlist\"\nnetwork.allow = {REQUESTS}\n");
    for name in ["agent", "plain"] {
        node.scratch.file(&format!("policies/{name}.toml"), &text);
    }
    let text = format!(
        "policy-dir = \"{policies}\"\nceiling = \"agent\"\ndefault = \"agent\"\n
        [network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n
        [[secret]]\nname = \"model\"\nvolume = \"apikey/token\"\npolicies = [\"agent\"]
        requests = {REQUESTS}\nheader = \"authorization: Bearer {{}}\"\nenv = \"API_KEY\"\n"
    );
    node.scratch.file("config.toml", &text)
}

/// The network namespace that an engine makes for a pod, with a way to the rig's small internet.
struct PodNetwork(String);

impl PodNetwork {
    const UP: &str = "set -e; ip netns add $1; ip link add $1 type veth peer name eth0 netns $1
        ip addr add 10.97.0.1/24 dev $1; ip link set $1 up; ip -n $1 link set lo up
        ip -n $1 addr add 10.97.0.2/24 dev eth0; ip -n $1 link set eth0 up; ip -n $1 route add default via 10.97.0.1
        iptables -I FORWARD -i $1 -j ACCEPT; iptables -I FORWARD -o $1 -j ACCEPT";

    fn new() -> Self {
        let name = format!("pod-{}", std::process::id());
        run("bash", &["-c", Self::UP, "-", &name]).ok();
        Self(name)
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        for way in ["-i", "-o"] {
            run("iptables", &["-D", "FORWARD", way, &self.0, "-j", "ACCEPT"]);
        }
        run("ip", &["netns", "del", &self.0]);
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_key_of_the_pods_own_secret_comes_to_its_requests() {
    const VALUE: &str = "sk-9876543210abcdef";
    internet();
    let _turn = witness();
    let node = Node::of_cri();
    let file = node_file(&node);
    let network = PodNetwork::new();
    let mut pod = Pod::new();
    let volume = pod.filled("secret", "apikey", &[("token", VALUE)]);
    let seen_by = |policy| {
        let script = format!(
            "wget -qO- http://api.example.test/v1/{policy}; wget -qO- http://api.example.test/other; true"
        );
        let setting = Setting {
            options: &["--config", file.as_str()],
            network: Some(&network.0),
            ..Setting::of(policy, &script)
        };
        pod.run(&node, &setting, &[("/v-key", &volume)]).ok()
    };
    let seen = seen_by("agent");
    assert!(
        seen.contains("/v1/agent") && !seen.contains(VALUE),
        "{seen}"
    );
    assert_eq!(arrived(&["/v1/agent", &format!("Bearer {VALUE}")]), 1);
    assert_eq!(arrived(&["/other", VALUE]), 0);
    // The control: a policy without the secret.
    let seen = seen_by("plain");
    assert!(seen.contains("/v1/plain"), "{seen}");
    assert_eq!(arrived(&["/v1/plain", VALUE]), 0);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_key_of_the_pods_own_secret_is_used_and_not_seen() {
    const VALUE: &str = "sk-0123456789abcdef";
    let node = Node::of_cri();
    let file = node_file(&node);
    let options = ["--config", file.as_str()];
    let script =
        "echo $API_KEY; cat /v-key/token 2>/dev/null; grep -rs sk-0123 /proc/self/environ; true";
    let setting = Setting {
        options: &options,
        ..Setting::of("agent", script)
    };
    let mut pod = Pod::new();
    let volume = pod.filled("secret", "apikey", &[("token", VALUE)]);
    let seen = pod.run(&node, &setting, &[("/v-key", &volume)]);
    assert_eq!(seen.ok(), "agentbox-secret-model\n");
    // The sandbox comes before the containers, and mounts nothing.
    assert_eq!(
        pod.run(&node, &setting, &[]).ok(),
        "agentbox-secret-model\n"
    );
    // The control: a policy without the secret.
    let other = Setting::of("standard", script);
    assert_eq!(pod.run(&node, &other, &[]).ok(), "\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_pod_without_its_secret_is_refused_and_has_no_others() {
    let node = Node::of_cri();
    let file = node_file(&node);
    let options = ["--config", file.as_str()];
    let setting = Setting {
        options: &options,
        ..Setting::of("agent", "echo ran")
    };
    let mut with = Pod::new();
    let key = [("token", "sk-0123456789abcdef")];
    let theirs = with.filled("secret", "apikey", &key);
    // None; another kind of volume; no such key; a path out of the volume; a volume that is a link to another pod's.
    let none = Pod::new();
    let mut projected = Pod::new();
    projected.filled("projected", "apikey", &key);
    let mut keyless = Pod::new();
    keyless.filled("secret", "apikey", &[("other", "sk-0123456789abcdef")]);
    let mut leading = Pod::new();
    let out = leading.filled("secret", "apikey", &[]);
    std::os::unix::fs::symlink(format!("{theirs}/token"), format!("{out}/token")).unwrap();
    let linked = Pod::new();
    let place = linked.path("volumes/kubernetes.io~secret");
    fs::create_dir_all(&place).unwrap();
    std::os::unix::fs::symlink(&theirs, format!("{place}/apikey")).unwrap();
    for pod in [&none, &projected, &keyless, &leading, &linked] {
        let refused = pod.run(&node, &setting, &[("/v-key", &theirs)]).failed();
        assert!(refused.contains("apikey/token"), "{refused}");
    }
    // The control.
    assert_eq!(with.run(&node, &setting, &[]).ok(), "ran\n");
    // Under other engines, the caller chooses cgroup and annotations.
    let docker = Node::new();
    let refused = with.run(&docker, &setting, &[]).failed();
    assert!(refused.contains("in no pod"), "{refused}");
}
