//! K-4: a pod's annotations reach all of its containers, the one that holds its namespaces included.

use serde_json::json;

use super::sleeper;
use crate::direct::Node;

#[test]
#[ignore = "needs the rig: hack/test"]
fn k_4_annotations_that_name_mounts_are_ignored_and_named_by_those_that_have_none() {
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
