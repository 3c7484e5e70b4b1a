//! A node with many containers: a verb opens only the records that it needs.

use serde_json::{Value, json};

use crate::command::{Finished, finish};
use crate::direct::{Node, program};

/// Runs a bash script in a mount namespace with an empty /run/agentbox, hidden from other tests. `ab` is agentbox with
/// the node's root, stopped after 20 s. `unreadable ID` blocks every process that opens that container's record.
fn on_a_node_of_its_own(node: &Node, script: &str) -> Finished {
    let common = r#"
        set -euo pipefail
        prog=$1 root=$2 dir=$3
        mkdir -p /run/agentbox && mount -t tmpfs -o mode=700 tmpfs /run/agentbox
        ab() { timeout --kill-after=1 20 "$prog" --root "$root" "$@"; }
        unreadable() {
            local record
            record=$(echo /run/agentbox/index/*-"$1")/record.json
            mv "$record" "$dir/$1.json" && mkfifo -m 600 "$record"
        }
        readable() { mv -f "$dir/$1.json" "$(echo /run/agentbox/index/*-"$1")/record.json"; }
        # Whose network a container shares, as explain says it.
        shared() { ab explain "$1" | grep -o 'shared with container [a-z-]*'; }
        clean() {
            for json in "$dir"/crowd-*.json; do
                [ ! -e "$json" ] || readable "$(basename "$json" .json)" || true
            done
            for id in $(ab list --quiet); do ab delete --force "$id"; done
        }
        trap clean EXIT
        netns() { touch "$dir/$1" && unshare --net="$dir/$1" true; }
    "#;
    let script = format!("{common}{script}");
    let dir = node.scratch.dir("crowd");
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "bash", "-c", &script, "-", &program()]);
    command.args([&node.root, &dir]);
    finish(&mut command)
}

/// A bundle whose network namespace is the file `name` in the script's directory, as an engine names it.
fn bundle(node: &Node, name: &str) -> String {
    let mut config: Value = node.config(&["sleep", "300"]);
    let file = node.scratch.path(&format!("crowd/{name}"));
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|one| one["type"] != "network");
    namespaces.push(json!({"type": "network", "path": file}));
    node.bundle(name, &config)
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn create_kill_and_delete_open_no_record_of_the_others() {
    let node = Node::new();
    let (one, two) = (bundle(&node, "net1"), bundle(&node, "net2"));
    let said = on_a_node_of_its_own(
        &node,
        &format!(
            r#"
            netns net1; netns net2
            ab --policy standard run --detach --bundle {one} crowd-one
            unreadable crowd-one
            ab --policy standard create --bundle {two} crowd-two
            ab start crowd-two
            ab state crowd-two >/dev/null
            ab kill crowd-two KILL
            ab delete --force crowd-two
            # One whose network is that of the first needs its record.
            readable crowd-one
            ls /run/agentbox/namespaces/listed | sed 's/^[0-9a-f]*-//'
            ab --policy standard create --bundle {one} crowd-three
            shared crowd-three
            ab delete --force crowd-three
            ab delete --force crowd-one
            ls -A /run/agentbox/namespaces
            "#
        ),
    );
    // One entry while the first exists, and no trace when all are deleted.
    assert_eq!(said.ok(), "crowd-one\nshared with container crowd-one\n");
}

#[test]
#[ignore = "needs an engine: hack/rig"]
fn a_container_that_is_not_in_the_index_is_still_found() {
    let node = Node::new();
    let one = bundle(&node, "net1");
    let said = on_a_node_of_its_own(
        &node,
        &format!(
            r#"
            netns net1
            ab --policy standard run --detach --bundle {one} crowd-one
            # As an older version leaves it, or a user who tidies up.
            rm -r /run/agentbox/namespaces
            ab --policy standard create --bundle {one} crowd-two
            shared crowd-two
            ab delete --force crowd-two
            ab delete --force crowd-one
            # Stale entries disturb no other container.
            ab --policy standard run --detach --bundle {one} crowd-three
            rm -r /run/agentbox/index/*-crowd-three
            ab --policy standard run --detach --bundle {one} crowd-four
            ls /run/agentbox/namespaces/listed | sed 's/^[0-9a-f]*-//'
            ab delete --force crowd-four
            ab delete --force crowd-three
            "#
        ),
    );
    assert_eq!(said.ok(), "shared with container crowd-one\ncrowd-four\n");
}
