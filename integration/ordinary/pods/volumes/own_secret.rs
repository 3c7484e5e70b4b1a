//! A `[[secret]]` with its value in the pod's own Secret: `create` reads it within that volume, and it is not visible
//! inside.

use super::*;

/// A node file whose policy `agent` adds a key of the pod to requests.
fn node_file(node: &Node) -> String {
    let policies = node.scratch.dir("policies");
    let text = "base = \"standard\"\nnetwork.mode = \"allowlist\"\nnetwork.allow = [\"POST https://api.example.com/v1/**\"]\n";
    node.scratch.file("policies/agent.toml", text);
    let text = format!(
        "policy-dir = \"{policies}\"\nceiling = \"agent\"\ndefault = \"agent\"\n
        [[secret]]\nname = \"model\"\nvolume = \"apikey/token\"\npolicies = [\"agent\"]
        requests = [\"POST https://api.example.com/v1/**\"]\nheader = \"x-api-key: {{}}\"\nenv = \"API_KEY\"\n"
    );
    node.scratch.file("config.toml", &text)
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
