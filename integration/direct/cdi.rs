//! CDI devices and GPU hooks. Engines write them into config.json as a node, a mount, a variable and a hook, as here.
//! Each is checked by itself.

use serde_json::{Value, json};

use super::Node;

/// A CDI device (container device interface, `containerEdits`) in an engine's config.json.
fn edited(node: &Node, hook: &str) -> Value {
    let library = node.scratch.file("driver/libdriver.so", "the library");
    let mut config = node.config(&[
        "sh",
        "-c",
        "test -c /dev/fuse && cat /usr/lib/libdriver.so && echo \" $DRIVER\"",
    ]);
    let linux = &mut config["linux"];
    linux["devices"] =
        json!([{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o666}]);
    linux["resources"]["devices"] = json!([
        {"allow": false, "access": "rwm"},
        {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm"},
    ]);
    config["mounts"].as_array_mut().unwrap().push(json!({
        "destination": "/usr/lib/libdriver.so", "source": library, "type": "bind",
        "options": ["ro", "nosuid", "nodev", "bind"],
    }));
    let env = config["process"]["env"].as_array_mut().unwrap();
    env.push(json!("DRIVER=yes"));
    let made = node.scratch.path("hook-ran");
    config["hooks"] = json!({"createRuntime": [{"path": hook, "args": ["hook", "-c", format!("echo ran >{made}")]}]});
    config
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn direct_a_cdi_device_works_where_the_node_allows_its_parts() {
    let node = Node::new();
    let bundle = node.bundle("cdi", &edited(&node, "/bin/sh"));
    let with = |name: &str, allow: &str| {
        node.scratch.file("node.toml", allow);
        let file = node.scratch.path("node.toml");
        node.call(&["--config", &file, "run", "--bundle", &bundle, name])
    };
    for (name, allow, missing) in [
        ("cdi-none", "", "hook"),
        ("cdi-device", "[allow]\nhooks = [\"/bin/sh\"]", "/dev/fuse"),
        ("cdi-hook", "[allow]\ndevices = [\"/dev/fuse\"]", "/bin/sh"),
    ] {
        let said = with(name, allow).failed();
        assert!(said.contains(missing), "{name}: {said}");
        assert!(!std::path::Path::new(&node.scratch.path("hook-ran")).exists());
    }
    let both = "[allow]\nhooks = [\"/bin/sh\"]\ndevices = [\"/dev/fuse\"]";
    assert_eq!(with("cdi-both", both).ok(), "the library yes\n");
    let ran = std::fs::read_to_string(node.scratch.path("hook-ran")).unwrap();
    assert_eq!(ran, "ran\n");
    let plain = node.call(&[
        "--policy",
        "unconfined",
        "run",
        "--bundle",
        &bundle,
        "cdi-plain",
    ]);
    assert_eq!(plain.ok(), "the library yes\n");
}
