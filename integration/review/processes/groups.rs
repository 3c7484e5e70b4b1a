//! F-H6 (docs/threats.md F29): the groups of the runtime's caller are not passed to the container.

use std::process::Command;

use super::{POLICIES, Running, called_by, sleeper, with_groups};
use crate::command::finish;
use crate::direct::{Node, Scratch, program};
use crate::docker::Docker;

/// A caller in the groups root, adm and sudo.
const IN_GROUPS: [&str; 3] = ["setpriv", "--groups", "0,4,27"];

const SHOW: [&str; 3] = ["sh", "-c", "grep ^Groups: /proc/self/status"];

fn groups(text: &str) -> Vec<u32> {
    let line = text.lines().find_map(|l| l.strip_prefix("Groups:"));
    let line = line.unwrap_or_else(|| panic!("no groups in {text:?}"));
    line.split_whitespace()
        .map(|g| g.parse().unwrap())
        .collect()
}

/// The control: a program that the caller starts has these groups.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h6_the_callers_groups_are_there_without_a_container() {
    let _docker = Docker::connect();
    let [first, rest @ ..] = IN_GROUPS;
    let seen = finish(Command::new(first).args(rest).args(SHOW));
    assert_eq!(groups(&seen.ok()), [0, 4, 27]);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h6_run_and_exec_have_exactly_the_groups_of_the_spec() {
    let node = Node::new();
    for policy in POLICIES {
        for wanted in [None, Some(&[][..]), Some(&[7, 8][..])] {
            let expected = wanted.unwrap_or_default();
            let mut config = with_groups(node.config(&SHOW), wanted);
            for (uid, gid) in [(0, 0), (1000, 1000)] {
                config["process"]["user"]["uid"] = uid.into();
                config["process"]["user"]["gid"] = gid.into();
                let id = format!("groups-{policy}-{}", std::process::id());
                let bundle = node.bundle(&id, &config);
                let run = ["--policy", policy, "run", "--bundle", &bundle, &id];
                let seen = node.finish(called_by(&IN_GROUPS, &node, &run)).ok();
                assert_eq!(groups(&seen), expected, "{policy} {uid}");
            }
        }
        let container = Running::start(&node, "groups-exec", policy, &sleeper(&node));
        for (options, expected) in [
            (&[][..], &[][..]),
            (&["--user", "1000"], &[]),
            (&["-g", "7", "-g", "8"], &[7, 8]),
        ] {
            let exec = [&["exec"], options, &[container.id.as_str()], &SHOW].concat();
            let seen = node.finish(called_by(&IN_GROUPS, &node, &exec)).ok();
            assert_eq!(groups(&seen), expected, "{policy} {options:?}");
        }
    }
}

/// In a user namespace the numbers differ. libcontainer does not join it for `exec`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h6_a_user_namespace_has_none_of_them_either() {
    let node = Node::new();
    let mut config = sleeper(&node);
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.push(serde_json::json!({"type": "user"}));
    let map = serde_json::json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
    config["linux"]["uidMappings"] = map.clone();
    config["linux"]["gidMappings"] = map;
    let container = Running::start(&node, "groups-user", "unconfined", &config);
    for (options, expected) in [(&[][..], &[][..]), (&["-g", "7"], &[7])] {
        let exec = [&["exec"], options, &[container.id.as_str()], &SHOW].concat();
        let seen = node.finish(called_by(&IN_GROUPS, &node, &exec)).ok();
        assert_eq!(groups(&seen), expected, "{options:?}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn review_f_h6_wrap_hands_on_no_group() {
    let _docker = Docker::connect();
    let scratch = Scratch::new();
    // Not under permissive: it makes the whole node visible, where files of other tests come and go.
    for policy in ["strict", "standard"] {
        let mut command = Command::new(IN_GROUPS[0]);
        command.args(&IN_GROUPS[1..]).arg(program());
        command.args(["wrap", "--policy", policy, "--"]).args(SHOW);
        command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        command.current_dir(scratch.dir("project"));
        let seen = finish(&mut command).ok();
        assert!(groups(&seen).is_empty(), "{policy}: {seen}");
    }
}
