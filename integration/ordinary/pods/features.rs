//! `features` does not announce id-mapped mounts if a policy would refuse a pod's user namespace: containerd
//! tells the kubelet that both exist.

use serde_json::Value;

use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn id_mapped_mounts_are_announced_only_if_they_are_allowed() {
    let node = Node::new();
    let file = |text: &str| node.scratch.file("config.toml", text);
    let promised = |options: &[&str]| {
        let text = node.call(&[options, &["features"]].concat()).ok();
        let features: Value = serde_json::from_str(&text).unwrap();
        features["linux"]["mountExtensions"]["idmap"]["enabled"] == true
    };
    assert!(promised(&["--policy", "unconfined"]));
    assert!(promised(&["--config", &file("default = \"unconfined\"\n")]));
    for options in [
        &[][..],
        &["--policy", "standard"],
        &["--config", &file("default = \"strict\"\n")],
    ] {
        assert!(!promised(options), "{options:?}");
    }
    // dockerd calls `features` even while the file is broken.
    assert!(!promised(&["--config", &file("no settings")]));
}
