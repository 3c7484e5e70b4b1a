//! K-12: `features` promises no user namespaces of pods where a policy would refuse them: containerd passes it on to the
//! kubelet where id-mapped mounts and user namespaces are there.

use serde_json::Value;

use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn k_12_id_mapped_mounts_are_promised_where_they_are_given() {
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
    // dockerd asks before anybody has mended what cannot be read.
    assert!(!promised(&["--config", &file("no settings")]));
}
