//! A pod's annotations reach all of its containers, including its sandbox.

use serde_json::json;

use super::sleeper;
use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn containers_without_a_mount_ignore_and_report_annotations_about_it() {
    let node = Node::new();
    let settings = "[allow]\nannotations = [\"filesystem.write\"]\n";
    let file = node.scratch.file("config.toml", settings);
    let project = node.scratch.dir("project");
    for role in ["sandbox", "container"] {
        let mut config = sleeper(
            &node,
            &[
                ("io.kubernetes.cri.container-type", role),
                ("dev.agentbox.workspace", "/work"),
                ("dev.agentbox.filesystem.write", "/cache"),
            ],
        );
        if role == "container" {
            let mount = json!({"destination": "/other", "type": "bind", "source": project, "options": ["rbind"]});
            config["mounts"].as_array_mut().unwrap().push(mount);
            config["process"]["cwd"] = json!("/other");
        }
        let id = format!("ignored-{role}-{}", std::process::id());
        let bundle = node.bundle(&id, &config);
        let call = ["--config", &file, "create", "--bundle", &bundle, &id];
        let created = node.call(&call);
        let explained = node.call(&["explain", &id]);
        node.call(&["delete", "--force", &id]).ok();
        created.ok();
        let explained = explained.ok();
        for (key, place) in [("workspace", "/work"), ("filesystem.write", "/cache")] {
            let line =
                format!("dev.agentbox.{key} names {place}, which is no mount of this container");
            assert!(explained.contains(&line), "{role}: {explained}");
        }
    }
}
